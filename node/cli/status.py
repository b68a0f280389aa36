"""`rillnode status`: shows the state of a running node."""

import argparse
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from rillnode.node.cli.connection import add_connection_options, connected
from rillnode.node.cli.parsing import Commands, add_verb
from rillnode.node.cli.stream import totals
from rillnode.node.cli.terminal import Terminal, printable, shown as text

if TYPE_CHECKING:
    from rillnode.node.client import Client, StreamInfo


_STREAMS_SHOWN: Final = 20
_STREAMS_LOOKED_AT: Final = 2_000
_FACT_CHARS: Final = 24
_FACTS_CHARS: Final = 60
"""What is longer is for programs, and so is what does not fit into a line of 80 beside a name."""

_COLUMNS: Final = {
    "listeners": ("address", "links", "errors"),
    "peers": ("state", "round_trip_seconds", "last_error"),
    "sinks": ("kind", "state", "rows_behind", "failures", "last_error"),
    "actors": ("cells", "handled", "failures", "restarts"),
}
"""What people see of each; `--json` has all."""


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_verb(
        commands, "status", status,
        summary="show the state of a running node",
        text="The key must be granted `admin` on some stream.",
        examples=["rillnode status", "rillnode status -c edge/node.toml --json | jq .store"],
    )  # fmt: skip
    add_connection_options(parser)


async def status(args: argparse.Namespace, terminal: Terminal) -> None:
    """Show the status document: whole for programs, what matters first for people."""
    async with connected(args, terminal) as client:
        document = await client.status()
        if not terminal.for_people:
            terminal.document(document)
            return
        streams = [totals(info) async for info in _some(client)]
    terminal.record(_for_people(document, streams))
    if len(streams) == _STREAMS_LOOKED_AT:
        terminal.message("of the first streams by name: `rillnode stream ls` lists all")
    elif len(streams) > _STREAMS_SHOWN:
        terminal.message(f"the largest of {len(streams):,} streams: `rillnode stream ls` lists all")


async def _some(client: "Client") -> AsyncIterator["StreamInfo"]:
    async with aclosing(client.iterate_streams()) as streams:
        count = 0
        async for info in streams:
            yield info
            count += 1
            if count == _STREAMS_LOOKED_AT:
                return


def _for_people(document: Mapping[str, Any], streams: list[dict[str, Any]]) -> dict[str, Any]:
    """The document with streams first and actors last, and few enough columns for a terminal.

    What is kept by name becomes rows, and actors have their class's short name.
    """
    shown = dict(document)
    store = dict(shown.pop("store"))
    log = store.pop("log", None)
    actors = shown.pop("actors", {})
    named = {key: shown.pop(key, {}) for key in ("listeners", "peers", "sinks")}
    shown["store"] = "takes writes" if store["writable"] else f"no writes: {store['reason']}"
    shown["pending_bytes"] = store.get("pending_bytes")
    plug_ins = {key: shown.pop(key) for key, one in [*shown.items()] if isinstance(one, dict)}
    if log is not None:
        shown["log"] = {key: value for key, value in log.items() if key != "views"}
    shown["streams"] = sorted(streams, key=lambda row: -row["bytes"])[:_STREAMS_SHOWN]
    shown["checks"] = shown.pop("checks", [])
    for key, rows in named.items():
        shown[key] = [_row(name, values, _COLUMNS[key]) for name, values in rows.items()]
    if log is not None:
        shown["views"] = log["views"]
    shown["groups"] = [
        {key: row[key] for key in ("name", "stream", "members_count", "generation")}
        for row in shown.pop("groups", ())
    ]
    shown["plug-ins"] = [
        {"name": name, "facts": facts}
        for name, values in plug_ins.items()
        if (facts := _facts(values))
    ]
    shown["actors"] = [
        {
            **_row(name.rpartition(".")[2], values, _COLUMNS["actors"]),
            "slowest_ms": round(1_000 * values.get("slowest_handler_seconds", 0), 3),
        }
        for name, values in actors.items()
    ]
    return {key: value for key, value in shown.items() if value not in ([], "-", None)}


def _facts(values: Mapping[str, Any]) -> str:
    """As much of a plug-in's record as stands in one line."""
    facts = ""
    for key, value in values.items():
        shown = text(value)
        more = f"{', ' if facts else ''}{printable(key)} {shown}"
        if shown != "-" and len(shown) <= _FACT_CHARS and len(facts + more) <= _FACTS_CHARS:
            facts += more
    return facts


def _row(name: str, values: Mapping[str, Any], columns: tuple[str, ...]) -> dict[str, Any]:
    return {"name": name, **{column: values.get(column) for column in columns}}
