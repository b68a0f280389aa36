"""`rillnode table erase` and `table erasures`: entries that are to be gone from all tables."""

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from rillnode.codecs.errors import ConfigError, RequestError, TransportError
from rillnode.node.cli.connection import add_connection_options, connected, refuse_another
from rillnode.node.cli.failures import Exit
from rillnode.node.cli.interrupting import interrupted_at_once
from rillnode.node.cli.parsing import Commands, Parser, add_verb
from rillnode.node.cli.terminal import Terminal
from rillnode.node.spark.cli.choosing import add_table_options, configuration

if TYPE_CHECKING:
    from rillnode.node.client import Client
    from rillnode.node.spark.erasing import Lake
    from rillnode.node.spark.erasure import Erased
    from rillnode.node.spark.job_config import TypedConfig
    from rillnode.node.spark.table_config import TypedTable

_NOW: Final = (
    "--now: readers of older versions of these tables fail from here on, since their files go"
)


def add(verbs: Commands) -> None:
    """Add the verbs."""
    parser = add_verb(
        verbs, "erase", erase,
        summary="erase entries from bronze, silver, gold and all typed tables, for ever",
        usage="NAME --where SQL [--yes] [--now] [options]",
        text="SQL is a condition on the table's columns. Entries are found in the table, in its\n"
        "rejects and in bronze. Without --yes they are only counted. The sink's job may run\n"
        "meanwhile; it finishes what a kill left undone, as does --resume. Erased entries are\n"
        "written down, and do not come back from the log, from bronze or by a replay.",
        examples=[
            "rillnode table erase readings --where \"user = 'u17'\"",
            "rillnode table erase readings --where \"user = 'u17'\" --yes --now",
            "rillnode table erase readings --resume",
        ],
    )  # fmt: skip
    _add_options(parser)
    parser.add_argument("--where", metavar="SQL", help="which entries, by the table's columns")
    parser.add_argument("--yes", action="store_true", help="erase them")
    parser.add_argument(
        "--resume", action="store_true", help="finish the erasures that were begun, and begin none"
    )
    parser.add_argument(
        "--now", action="store_true",
        help="remove the tables' old files, too, and trim the streams as far as only erased "
        "entries are before",
    )  # fmt: skip
    parser = add_verb(
        verbs, "erasures", erasures,
        summary="list erasures, and what still holds the erased bytes and until when",
        text="It reads the tables, and asks the node about its streams if it can be reached.",
        examples=["rillnode table erasures readings"],
    )  # fmt: skip
    _add_options(parser)


async def erase(args: argparse.Namespace, terminal: Terminal) -> int:
    """Erase entries."""
    with interrupted_at_once():
        found = _erased(args, terminal)
    if found is not None:
        await _tell(args, terminal, *found)
    return Exit.OK


def _erased(args: argparse.Namespace, terminal: Terminal) -> "tuple[Lake, Erased] | None":
    """Erase entries in the tables; None: there are none."""
    table, typed, lake = _chosen(args, terminal)
    if args.resume == (args.where is not None):
        text = "give --where SQL, or --resume to finish what was begun"
        raise ConfigError("table.where", text)
    from rillnode.node.spark.erasing import counts, find, sweep_all
    from rillnode.node.spark.erasure import Erasures, of_ranges

    log = Erasures(lake.bronze)
    if not args.resume:
        match = find(lake, typed, args.where)
        if match.unread:
            terminal.message(
                f"{match.unread} rejects cannot be read, so that no column finds them: name them "
                "by _stream, _partition and _index"
            )
        found = {"table": table.called, "where": args.where, "entries": match.entries}
        if not match.entries:
            terminal.record(found)
            return None
        rows = counts(lake, of_ranges(match.ranges))
        if not args.yes:
            terminal.record({**found, "rows": rows})
            text = f"{match.entries} entries would be gone for ever: repeat with --yes"
            raise ConfigError("usage.yes", text)
        number = log.note(match.ranges, table=table.called, predicate=args.where)
        terminal.record({**found, "rows": rows, "erasure": number})
    sweep_all(lake, log, terminal.message)
    erased = log.erased()
    if args.now:
        _forget(lake, erased, terminal)
    return lake, erased


async def erasures(args: argparse.Namespace, terminal: Terminal) -> int:
    """List erasures."""
    table, _, lake = _chosen(args, terminal)
    from rillnode.node.spark.erasure import Erasures

    log = Erasures(lake.bronze)
    erased = log.erased()
    record: dict[str, Any] = {"name": table.called, "erasures": log.history()}
    held = _held(lake, erased)
    streams = await _asked(args, terminal, erased, trims=False)
    terminal.record({**record, "tables": held, "streams": streams})
    return Exit.OK


def _forget(lake: "Lake", erased: "Erased", terminal: Terminal) -> None:
    from rillnode.node.spark.erasing import forget_old_files

    terminal.message(_NOW)
    removed, kept = forget_old_files(lake, erased)
    terminal.message(f"{removed} old files removed")
    for place, why in kept.items():
        terminal.message(f"{place}: {why}. Let the job go on, and repeat with --resume --now")


async def _tell(
    args: argparse.Namespace, terminal: Terminal, lake: "Lake", erased: "Erased"
) -> None:
    """Say what still holds the bytes of what was erased, and until when."""
    for one in _held(lake, erased):
        if one["state"] != "erased":
            terminal.message(f"{one['table']}: its job has yet to calculate it anew")
        elif one["old_files"]:
            terminal.message(
                f"{one['table']}: {one['old_files']} old files hold what was erased, or may, until "
                f"the table's maintenance after {_text(one['until'])}"
            )
    for one in await _asked(args, terminal, erased, trims=args.now):
        if one["entries"]:
            until = _text(one["until"]) if one["until"] else "its limits trim them"
            terminal.message(
                f"the log of {one['stream']}/{one['partition']} still has {one['entries']} of the "
                f"entries, until {until}"
            )


def _held(lake: "Lake", erased: "Erased") -> list[dict[str, Any]]:
    from rillnode.node.spark.erasing import held

    return [
        {
            "table": one.table,
            "state": "erased" if one.is_swept else "pending",
            "old_files": one.files,
            "old_bytes": one.bytes,
            "until": one.until,
        }
        for one in held(lake, erased)
    ]


async def _asked(
    args: argparse.Namespace, terminal: Terminal, erased: "Erased", *, trims: bool
) -> list[dict[str, Any]]:
    """What the node's streams still have of what was erased; trimmed first where that `trims`."""
    if not erased:
        return []
    try:
        async with connected(args, terminal, reconnect=False) as client:
            found: list[dict[str, Any]] = []
            for stream in erased.streams:
                found += await _stream(client, stream, erased, trims=trims)
            return found
    except (TransportError, ConfigError, RequestError) as error:
        names = ", ".join(erased.streams[:_NAMES_MAX])
        terminal.message(
            f"the node does not tell ({error.text}): its log has the entries of {names} as long "
            "as the streams' retention keeps them"
        )
        return []


async def _stream(
    client: "Client", stream: str, erased: "Erased", *, trims: bool
) -> list[dict[str, Any]]:
    try:
        info = await client.describe(stream)
    except RequestError as error:
        if error.code != "stream.unknown":
            raise
        return []  # a stream that was removed holds nothing
    mine = [one for one in erased.spans(stream) if one.created_ms in (-1, info.created_at)]
    firsts = {one.partition: one.first_index for one in info.partitions}
    rows: list[dict[str, Any]] = []
    for partition, first in firsts.items():
        spans = sorted((one.start, one.until) for one in mine if one.partition == partition)
        reached = _reached(first, spans)
        if trims and reached > first:
            first = await client.trim(stream, partition=partition, before=reached)
        left = sum(until - max(start, first) for start, until in spans if until > first)
        last_ms = max((one.last_ms for one in mine if one.partition == partition), default=0)
        seconds = info.retention.seconds
        until = None
        if left and seconds is not None:
            until = datetime.fromtimestamp(last_ms / 1_000, UTC) + timedelta(seconds=seconds)
        if spans:
            rows.append({"stream": stream, "partition": partition, "entries": left, "until": until})
    return rows


def _reached(first: int, spans: Sequence[tuple[int, int]]) -> int:
    """How far a partition may be trimmed without losing an entry that was not erased."""
    for start, until in spans:
        if start <= first < until:
            first = until
    return first


_NAMES_MAX: Final = 10


def _text(time: datetime) -> str:
    return time.isoformat(timespec="minutes").replace("+00:00", "Z")


def _chosen(args: argparse.Namespace, terminal: Terminal) -> "tuple[TypedTable, TypedConfig, Lake]":
    from rillnode.node.spark.cli.choosing import choose_sink, choose_table, lake_of

    config = configuration(args, terminal)
    refuse_another(args, terminal, config)  # whose streams may be trimmed
    table, typed = choose_table(config, args.name, args.stream)
    return table, typed, lake_of(config, choose_sink(config, table.sink))


def _add_options(parser: Parser) -> None:
    add_table_options(parser)
    add_connection_options(parser)
    # The verbs read tables first, and only then ask the node.
    parser.set_defaults(asks_node=False)
    parser.add_argument(
        "--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE",
        help="set one value of the configuration; may be repeated",
    )  # fmt: skip
