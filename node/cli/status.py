"""`rillnode status`: shows the state of a running node."""

import argparse
from collections.abc import Mapping
from typing import Any

from rillnode.node.cli.connection import add_connection_options, connected
from rillnode.node.cli.failures import Exit
from rillnode.node.cli.parsing import Commands, add_verb
from rillnode.node.cli.terminal import Terminal


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_verb(
        commands, "status", status,
        summary="show the state of a running node",
        text="The key must be granted `admin` on some stream.",
        examples=["rillnode status", "rillnode status -c edge/node.toml --json | jq .store"],
    )  # fmt: skip
    add_connection_options(parser)


async def status(args: argparse.Namespace, terminal: Terminal) -> int:
    """Show the status document: whole for programs, its tables one per line for people."""
    async with connected(args, terminal) as client:
        document = await client.status()
    terminal.record(_for_people(document) if terminal.for_people else document)
    return Exit.OK


def _for_people(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with what is kept by name as rows, and actors by their class's short name."""
    shown = dict(document)
    shown["store"] = dict(shown["store"])
    if (log := shown["store"].pop("log", None)) is not None:
        shown["log"] = {key: value for key, value in log.items() if key != "views"}
        shown["views"] = log["views"]
    shown["groups"] = [
        {key: row[key] for key in ("name", "stream", "members_count", "generation")}
        for row in shown.get("groups", ())
    ]
    for key in ("listeners", "peers", "sinks", "actors"):
        shown[key] = [
            {"name": str(name).rpartition(".")[2] if key == "actors" else name, **_row(key, values)}
            for name, values in shown.get(key, {}).items()
        ]
    return shown


def _row(table: str, values: Mapping[str, Any]) -> dict[str, Any]:
    if table != "actors":
        return dict(values)
    columns = ("cells", "handled", "failures", "restarts", "mailbox_depth")
    row = {column: values.get(column) for column in columns}
    return {**row, "slowest_ms": round(1_000 * values.get("slowest_handler_seconds", 0), 3)}
