"""`rillnode sink`: the sinks of a node."""

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rillnode.codecs.errors import RequestError
from rillnode.node.cli.config import add_config_options
from rillnode.node.cli.connection import add_connection_options, connected
from rillnode.node.cli.failures import Exit
from rillnode.node.cli.parsing import Commands, add_noun, add_verb
from rillnode.node.cli.terminal import Terminal
from rillnode.node.spark.cli.choosing import configuration

if TYPE_CHECKING:
    from rillnode.node.spark.erasing import Lake

_COLUMNS = ("kind", "state", "pid", "starts", "failures", "rows_behind", "bytes_behind", "error")


def add(commands: Commands) -> None:
    """Add the noun and its verbs."""
    verbs = add_noun(commands, "sink", "sinks: ls, show, pause, resume, compact, verify")
    parser = add_verb(
        verbs, "ls", ls,
        summary="list a node's sinks, their jobs and their lag",
        text="The key must be granted `admin` on some stream.",
        examples=["rillnode sink ls", "rillnode sink ls --json | jq .rows_behind"],
    )  # fmt: skip
    add_connection_options(parser)
    for run, summary, text in (
        (show, "show a sink, why its job last ended, and the job's report", ""),
        (
            pause,
            "let a sink's job end after its batch and not start again",
            "The node keeps back what the sink has not committed, up to its hold_bytes_max.",
        ),
        (resume, "start the job of a sink that was paused or gave up", ""),
    ):
        parser = add_verb(
            verbs, run.__name__, run, summary=summary, text=text,
            examples=[f"rillnode sink {run.__name__} bronze"],
        )  # fmt: skip
        parser.add_argument("name", metavar="NAME", help="name of the sink")
        add_connection_options(parser)
    for work, summary, text in (
        (
            compact,
            "merge the small files of a sink's tables now",
            "The job does so by itself after every 200 commits. It may run meanwhile.",
        ),
        (
            verify,
            "check the log and the files of a sink's tables",
            "It needs neither the node nor Java, and changes nothing. Each fault is reported\n"
            "with its file and a remedy.",
        ),
    ):
        parser = add_verb(
            verbs, work.__name__, work, summary=summary, text=text,
            examples=[f"rillnode sink {work.__name__} bronze -c edge/node.toml"],
        )  # fmt: skip
        parser.add_argument("name", nargs="?", metavar="NAME", help="name of the sink")
        add_config_options(parser)


async def ls(args: argparse.Namespace, terminal: Terminal) -> int:
    """List sinks."""
    async with connected(args, terminal) as client:
        document = await client.status()
    rows = [
        {"name": name, **{column: sink.get(column) for column in _COLUMNS}}
        for name, sink in document.get("sinks", {}).items()
    ]
    terminal.rows(rows, empty="no sinks; a [[sink.spark]] in node.toml makes one")
    return Exit.OK


async def show(args: argparse.Namespace, terminal: Terminal) -> int:
    """Show one sink."""
    async with connected(args, terminal) as client:
        document = await client.status()
    sinks: Mapping[str, Mapping[str, Any]] = document.get("sinks", {})
    if args.name not in sinks:
        raise RequestError("sink.unknown", f"the node has no sink {args.name!r}")
    sink = sinks[args.name]
    terminal.record({"name": args.name, **sink})
    if sink.get("state") == "parked":
        terminal.message(
            f"{args.name} is parked: its job only failed. When the reason is mended, start it "
            f"with `rillnode sink resume {args.name}`"
        )
    elif sink.get("state") == "failed":
        failed = [name for name, table in sink["tables"].items() if table["state"] == "failed"]
        terminal.message(
            f"{args.name} does not keep {', '.join(failed)}; its other tables go on. It is tried "
            "again every minute; where that does not help, `error` says what does"
        )
    return Exit.OK


async def pause(args: argparse.Namespace, terminal: Terminal) -> int:
    """Pause a sink's job."""
    return await _run(args, terminal, run=False, said="its job ends after the running batch")


async def resume(args: argparse.Namespace, terminal: Terminal) -> int:
    """Start a sink's job again."""
    return await _run(args, terminal, run=True, said="its job starts")


async def _run(args: argparse.Namespace, terminal: Terminal, *, run: bool, said: str) -> int:
    async with connected(args, terminal) as client:
        await client.run_sink(args.name, run=run)
    terminal.message(f"{args.name}: {said}")
    return Exit.OK


def compact(args: argparse.Namespace, terminal: Terminal) -> int:
    """Merge the small files of a sink's tables."""
    lake = _lake(args, terminal)
    # Only this verb needs what the `tables` extra installs.
    from rillnode.node.spark.delta_log import open_table
    from rillnode.node.spark.maintenance import compact as compact_table

    for table in _tables(lake):
        if open_table(table) is not None:
            for done in compact_table(table):
                terminal.message(f"{table}: {done}")
    return Exit.OK


def verify(args: argparse.Namespace, terminal: Terminal) -> int:
    """Verify a sink's tables."""
    lake = _lake(args, terminal)
    # Only this verb needs what the `tables` extra installs.
    from rillnode.node.spark.explaining import is_made, verify as verify_table

    views = (one.dir for one in lake.views)
    tables = [one for one in (*_tables(lake), *lake.gold(), *views) if is_made(one)]
    wrong = [text for table in tables for text in verify_table(table)]
    for text in wrong:
        terminal.error(text)
    terminal.message(f"{len(tables)} tables, {len(wrong) or 'nothing'} wrong")
    return Exit.FAILED if wrong else Exit.OK


def _lake(args: argparse.Namespace, terminal: Terminal) -> "Lake":
    """The tables of the sink that is named, or of the only one."""
    from rillnode.node.spark.cli.choosing import choose_sink, lake_of

    config = configuration(args, terminal)
    return lake_of(config, choose_sink(config, args.name))


def _tables(lake: "Lake") -> list[str]:
    """Where those tables lie that are made of few large files."""
    typed = (one for one in lake.typed if one.catalog is None and not one.of_each_stream)
    places = (place for one in typed for place in (one.dir, one.rejects))
    return [*filter(None, (lake.bronze, lake.silver)), *places]
