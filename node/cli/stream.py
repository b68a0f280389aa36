"""`rillnode stream`: list, create, show, push, pull, tail, follow, trim and remove."""

import argparse
from typing import TYPE_CHECKING, Any, Final

from rillnode.codecs.errors import ConfigError
from rillnode.node.cli import push, read
from rillnode.node.cli.connection import add_connection_options, connected
from rillnode.node.cli.parsing import (
    Commands,
    add_noun,
    add_verb,
    positive_number,
    stream_name,
    whole_number,
)
from rillnode.node.cli.terminal import Terminal

if TYPE_CHECKING:
    from rillnode.node.client import StreamInfo

_SINK_PREFIX: Final = "sink/"
"""Begins the client ids under which sinks save how far they are."""


def add(commands: Commands) -> None:
    """Add the noun and its verbs."""
    summary = "streams of a node: ls, create, show, push, pull, tail, follow, trim, rm"
    verbs = add_noun(commands, "stream", summary)
    parser = add_verb(
        verbs, "ls", ls,
        summary="list the streams that your key may use",
        examples=["rillnode stream ls", "rillnode stream ls sensors --json"],
    )  # fmt: skip
    parser.add_argument("prefix", nargs="?", default="", metavar="PREFIX", help="start of the name")
    add_connection_options(parser)

    parser = add_verb(
        verbs, "create", create,
        summary="create a stream, or more partitions of one",
        text="A stream that already has as many partitions is not changed.",
        examples=["rillnode stream create sensors --partitions 4"],
    )  # fmt: skip
    parser.add_argument("name", type=stream_name, metavar="NAME", help="name of the stream")
    parser.add_argument(
        "--partitions", type=positive_number, default=1, metavar="N", help="how many (default: 1)"
    )
    add_connection_options(parser)

    parser = add_verb(
        verbs, "show", show,
        summary="show a stream and its partitions",
        examples=["rillnode stream show sensors"],
    )  # fmt: skip
    parser.add_argument("name", type=stream_name, metavar="NAME", help="name of the stream")
    add_connection_options(parser)

    push.add(verbs)
    read.add(verbs)

    parser = add_verb(
        verbs, "trim", trim,
        summary="drop the oldest entries of a partition, for ever",
        usage="NAME --before INDEX --yes [options]",
        text="Retention waits for sinks; this does not. Entries that a sink had not\n"
        "landed become a row of kind `gap` in its table, and are reported here.",
        examples=["rillnode stream trim sensors --partition 2 --before 1000 --yes"],
    )  # fmt: skip
    parser.add_argument("name", type=stream_name, metavar="NAME", help="name of the stream")
    parser.add_argument(
        "--before", type=whole_number, required=True, metavar="INDEX", help="first index to keep"
    )
    parser.add_argument(
        "--partition", type=whole_number, default=0, metavar="N", help="which (default: 0)"
    )
    parser.add_argument("--yes", action="store_true", help="really drop them")
    add_connection_options(parser)

    parser = add_verb(
        verbs, "rm", rm,
        summary="remove a stream with all entries and saved positions, for ever",
        usage="NAME --yes [options]",
        text="A stream created under the same name later is a new one, and begins at index 0.",
        examples=["rillnode stream rm sensors --yes"],
    )  # fmt: skip
    parser.add_argument("name", type=stream_name, metavar="NAME", help="name of the stream")
    parser.add_argument("--yes", action="store_true", help="really remove it")
    add_connection_options(parser)


async def ls(args: argparse.Namespace, terminal: Terminal) -> None:
    """List streams."""
    from rillnode.node.entry_lines import iso_time

    async with connected(args, terminal) as client:
        infos = await client.streams(args.prefix)
    rows: list[dict[str, Any]] = [
        {
            **totals(info),
            "retention": _retention(info),
            "created_at": iso_time(info.created_at),
        }
        for info in infos
    ]
    if terminal.for_people:
        rows = [
            {**row, "retention": _kept(info), "created_at": row["created_at"][: len("2000-01-01")]}
            for row, info in zip(rows, infos, strict=True)
        ]
    terminal.rows(rows, empty="no streams; `rillnode stream create NAME` makes one")


async def create(args: argparse.Namespace, terminal: Terminal) -> None:
    """Create a stream."""
    async with connected(args, terminal) as client:
        stream = await client.stream(args.name, partitions=args.partitions)
    if stream.partitions != args.partitions:
        terminal.message(f"{stream.name} was there, with {stream.partitions} partitions")
    terminal.record({"name": stream.name, "partitions": stream.partitions})


async def show(args: argparse.Namespace, terminal: Terminal) -> None:
    """Show one stream."""
    from rillnode.node.entry_lines import iso_time

    async with connected(args, terminal) as client:
        info = await client.describe(args.name)
    terminal.record(
        {
            "name": info.name,
            "owner": info.owner,
            "created_at": iso_time(info.created_at),
            "retention": _retention(info),
            "partitions": [
                {
                    "partition": one.partition,
                    "first_index": one.first_index,
                    "next_index": one.next_index,
                    "entries": one.next_index - one.first_index,
                    "bytes": one.data_bytes,
                    "address": one.address,
                }
                for one in info.partitions
            ],
        }
    )


async def trim(args: argparse.Namespace, terminal: Terminal) -> None:
    """Drop old entries."""
    if not args.yes:
        text = f"entries below index {args.before} would be gone for ever: repeat with --yes"
        raise ConfigError("usage.yes", text)
    async with connected(args, terminal) as client:
        saved = await client.indexes(args.name)
        first = await client.trim(args.name, partition=args.partition, before=args.before)
    terminal.record({"name": args.name, "partition": args.partition, "first_index": first})
    for one in saved:
        is_sink = one.client_id.startswith(_SINK_PREFIX) and one.partition == args.partition
        if is_sink and one.index < first:
            terminal.message(f"{one.client_id} had landed only what is below index {one.index}")


async def rm(args: argparse.Namespace, terminal: Terminal) -> None:
    """Remove a stream."""
    if not args.yes:
        text = f"{args.name} and all its entries would be gone for ever: repeat with --yes"
        raise ConfigError("usage.yes", text)
    async with connected(args, terminal) as client:
        await client.remove(args.name)
    terminal.record({"name": args.name, "removed": True})


def totals(info: "StreamInfo") -> dict[str, Any]:
    """What a stream has, over its partitions."""
    return {
        "name": info.name,
        "partitions": len(info.partitions),
        "entries": sum(one.next_index - one.first_index for one in info.partitions),
        "bytes": sum(one.data_bytes for one in info.partitions),
    }


def _kept(info: "StreamInfo") -> str:
    """The limits of a stream in few characters."""
    from rillnode.node.entry_lines import duration

    limits = info.retention
    parts = [
        "" if limits.seconds is None else duration(limits.seconds),
        "" if limits.entries_max is None else f"{limits.entries_max:,} entries",
        "" if limits.bytes_max is None else f"{limits.bytes_max:,} bytes",
    ]
    return ", ".join(filter(None, parts)) or "-"


def _retention(info: "StreamInfo") -> dict[str, Any]:
    limits = {
        "seconds": info.retention.seconds,
        "entries_max": info.retention.entries_max,
        "bytes_max": info.retention.bytes_max,
    }
    return {name: limit for name, limit in limits.items() if limit is not None}
