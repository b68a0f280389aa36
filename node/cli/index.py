"""`rillnode index`: the saved positions of consumers."""

import argparse
from typing import TYPE_CHECKING

from rillnode.codecs.errors import RillnodeError, StreamUnknown
from rillnode.node.cli.connection import add_connection_options, connected
from rillnode.node.cli.parsing import Commands, Parser, add_noun, add_verb, whole_number
from rillnode.node.cli.terminal import Terminal

if TYPE_CHECKING:
    from rillnode.node.client import Client, GroupInfo, GroupMember


def add(commands: Commands) -> None:
    """Add the noun and its verbs."""
    verbs = add_noun(commands, "index", "saved positions of consumers: ls, get, set")
    parser = add_verb(
        verbs, "ls", ls,
        summary="list consumers, their positions and their lag",
        text="Members of groups are shown beside the partitions that they have at the moment;\n"
        "without STREAM, only groups with members at this node.",
        examples=["rillnode index ls", "rillnode index ls sensors --json"],
    )  # fmt: skip
    parser.add_argument("stream", nargs="?", default="", metavar="STREAM", help="only this stream")
    add_connection_options(parser)

    parser = add_verb(
        verbs, "get", get,
        summary="show a consumer's position: the next index that it reads",
        examples=["rillnode index get sensors c1 --partition 2"],
    )  # fmt: skip
    _add_position(parser)

    parser = add_verb(
        verbs, "set", set_,
        summary="move a consumer's position forward",
        text="A position never goes back; the consumer will not see the entries in between.",
        examples=["rillnode index set sensors c1 1000"],
    )  # fmt: skip
    _add_position(parser)
    parser.add_argument("index", type=whole_number, metavar="INDEX", help="next index to read")


async def ls(args: argparse.Namespace, terminal: Terminal) -> None:
    """List positions."""
    async with connected(args, terminal) as client:
        saved = await client.indexes(args.stream)
        groups = await _groups(client, args.stream)
        if args.stream and not (saved or groups):
            await client.describe(args.stream)  # which refuses one that is not there
    members = {
        (group.stream, group.name, partition): member
        for group in groups
        for member in group.members
        for partition in member.partitions
    }
    rows = [
        {
            "stream": one.stream,
            "partition": one.partition,
            "client": one.client_id,
            "index": one.index,
            "end": one.next_index,
            "lag": one.lag,
            "member": _name(members.pop((one.stream, one.client_id, one.partition), None)),
        }
        for one in saved
    ]
    rows += [
        {
            "stream": stream, "partition": partition, "client": name, "index": None, "end": None,
            "lag": None, "member": _name(member),
        }
        for (stream, name, partition), member in members.items()
    ]  # fmt: skip
    terminal.rows(rows, empty="no consumer has saved a position yet")


async def _groups(client: "Client", stream: str) -> "list[GroupInfo]":
    """The groups of a stream, or of all; of a stream that is no more there are none."""
    try:
        return await client.groups(stream)
    except StreamUnknown:
        return []


def _name(member: "GroupMember | None") -> str | None:
    """What a member is called: the beginning of its token, and whose it is."""
    return None if member is None else f"{member.id} {member.principal}"


async def get(args: argparse.Namespace, terminal: Terminal) -> None:
    """Show one position; exit code 1 when there is none."""
    async with connected(args, terminal) as client:
        index = await client.get_index(args.client, args.stream, partition=args.partition)
    if index is None:
        raise RillnodeError(
            "index.none",
            f"{args.client} has saved no position in {args.stream}, partition {args.partition}",
        )
    _show(args, terminal, index)


async def set_(args: argparse.Namespace, terminal: Terminal) -> None:
    """Move a position; exit code 1 when it stands further on already."""
    from rillnode.node.client.client import move_index

    async with connected(args, terminal) as client:
        await move_index(client, args.stream, args.client, args.partition, args.index)
        saved = await client.indexes(args.stream)
    for one in saved:
        at = one.client_id, one.partition
        end = one.next_index
        if at != (args.client, args.partition):
            continue
        if end is None:
            terminal.message(f"there is no stream {args.stream!r}: the position waits for one")
        elif end < args.index:
            text = f"the partition ends at {end}: what comes before {args.index} is left out"
            terminal.message(text)
    _show(args, terminal, args.index)


def _add_position(parser: Parser) -> None:
    parser.add_argument("stream", metavar="STREAM", help="name of the stream")
    parser.add_argument("client", metavar="CLIENT", help="the consumer's client id")
    parser.add_argument(
        "--partition", type=whole_number, default=0, metavar="N", help="which (default: 0)"
    )
    add_connection_options(parser)


def _show(args: argparse.Namespace, terminal: Terminal, index: int) -> None:
    terminal.record(
        {
            "stream": args.stream,
            "partition": args.partition,
            "client": args.client,
            "index": index,
        }
    )
