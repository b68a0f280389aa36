"""`rillnode top`: a running node's streams, links and sinks, again and again."""

import argparse
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from rillnode.node.cli.connection import add_connection_options, connected
from rillnode.node.cli.interrupting import while_read
from rillnode.node.cli.parsing import Commands, add_verb, positive_number, seconds
from rillnode.node.cli.terminal import Row, Terminal

if TYPE_CHECKING:
    from rillnode.node.client import Client

_STREAMS_MAX: Final = 10_000
"""Streams looked at each time; a node may have many more."""


@dataclass(frozen=True, slots=True)
class _Look:
    """The streams at one moment: next index and data bytes, over all partitions."""

    at: float
    ends: Mapping[str, tuple[int, int]]
    status: Mapping[str, Any]


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_verb(
        commands, "top", top,
        summary="watch the streams, links and sinks of a running node",
        text="On a terminal the screen is redrawn each time, until Ctrl-C; elsewhere, or with\n"
        "--json, each refresh is one line. Streams are sorted by rate. The key must\n"
        "be granted `admin` on some stream.",
        examples=[
            "rillnode top -c edge/node.toml",
            "rillnode top --count 60 --json > minute.jsonl",
        ],
    )  # fmt: skip
    parser.add_argument(
        "--interval",
        type=seconds,
        default=1.0,
        metavar="SECONDS",
        help="between looks (default: 1)",
    )
    parser.add_argument(
        "--count", type=positive_number, metavar="N", help="so many looks (default: no end)"
    )
    parser.add_argument(
        "--streams", type=positive_number, default=20, metavar="N",
        help="streams shown (default: 20)",
    )  # fmt: skip
    add_connection_options(parser)


async def top(args: argparse.Namespace, terminal: Terminal) -> None:
    """Look at a node until told to stop."""
    import asyncio

    async with connected(args, terminal) as client, while_read(terminal):
        before = await _look(client)
        for number in count(1):
            await asyncio.sleep(args.interval)
            now = await _look(client)
            document = _document(before, now, args.streams)
            if terminal.for_people:
                _draw(terminal, document)
            else:
                terminal.document(document)
                terminal.flush()
            if number == args.count:
                break
            before = now


async def _look(client: "Client") -> _Look:
    status = await client.status()
    ends: dict[str, tuple[int, int]] = {}
    async for stream in client.iterate_streams():
        if len(ends) == _STREAMS_MAX:
            break
        ends[stream.name] = (
            sum(partition.next_index for partition in stream.partitions),
            sum(partition.data_bytes for partition in stream.partitions),
        )
    return _Look(time.monotonic(), ends, status)


def _document(before: _Look, now: _Look, streams_max: int) -> dict[str, Any]:
    """What is shown of two looks: rates are those between them."""
    # Here, because it stands on the actors, for which no other command is to wait.
    from rillnode.actors.core.streams.context import stream_address

    elapsed = now.at - before.at
    streams: list[dict[str, Any]] = [
        {
            "stream": name,
            "route": stream_address(name, 0).decode(),
            "entries_per_second": round((end - before.ends.get(name, (end, 0))[0]) / elapsed, 1),
            "next_index": end,
            "bytes_kept": size,
        }
        for name, (end, size) in now.ends.items()
    ]
    streams.sort(key=lambda row: (-row["entries_per_second"], row["stream"]))
    status = now.status
    return {
        "time": round(time.time(), 3),
        "node": status["name"],
        "state": status["state"],
        "uptime_seconds": status["uptime_seconds"],
        "entries_per_second": round(sum(row["entries_per_second"] for row in streams), 1),
        "store_pending_bytes": status["store"]["pending_bytes"],
        **_log_behind(status["store"].get("log")),
        "streams": streams[:streams_max],
        "listeners": [
            {"listener": name, "address": row["address"], "links": row["links"]}
            for name, row in status["listeners"].items()
        ],
        "peers": _named("peer", "peer/", status["peers"], ("state", "round_trip_seconds")),
        "sinks": _named(
            "sink", "sink/", status.get("sinks", {}), ("state", "rows_behind", "failures")
        ),
    }


def _log_behind(log: Mapping[str, Any] | None) -> dict[str, int]:
    """How far the worst view of a shared log is behind; nothing where there is no such log."""
    if log is None:
        return {}
    return {"log_frames_behind": max((view["behind"] for view in log["views"]), default=0)}


def _named(title: str, prefix: str, rows: Mapping[str, Row], columns: tuple[str, ...]) -> list[Row]:
    return [
        {title: name, "route": prefix + name, **{column: row.get(column) for column in columns}}
        for name, row in rows.items()
    ]


def _draw(terminal: Terminal, document: Mapping[str, Any]) -> None:
    # To the upper left corner, and away with what stood below.
    terminal.write_text("\x1b[H\x1b[J")
    shown = {key: value for key, value in document.items() if value != [] and key != "time"}
    terminal.record(shown)
    terminal.flush()
