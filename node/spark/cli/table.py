"""`rillnode table`: the typed tables that a sink makes."""

import argparse
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, cast

from rillnode.codecs.errors import ConfigError
from rillnode.node.cli.config import add_config_options
from rillnode.node.cli.connection import add_connection_options, connected
from rillnode.node.cli.failures import Exit
from rillnode.node.cli.parsing import Commands, add_noun, add_verb, positive_number
from rillnode.node.cli.terminal import Terminal
from rillnode.node.spark.cli import erase
from rillnode.node.spark.cli.choosing import add_table_options, configuration

if TYPE_CHECKING:
    from rillnode.node.config import Config

_SAMPLES: Final = 1_000
_COLUMNS: Final = (
    "kind", "state", "schema_version", "rows", "rejects", "rows_behind", "seconds_behind", "files",
    "bytes", "last_commit", "error",
)  # fmt: skip


def add(commands: Commands) -> None:
    """Add the noun and its verbs."""
    verbs = add_noun(commands, "table", "typed tables: ls, show, infer, retry, erase, erasures")
    parser = add_verb(
        verbs, "ls", ls,
        summary="list a node's typed tables and views, their rows, rejects, lag and sizes",
        text="The key must be granted `admin` on some stream.",
        examples=["rillnode table ls", "rillnode table ls --json | jq .rejects"],
    )  # fmt: skip
    add_connection_options(parser)
    parser = add_verb(
        verbs, "show", show,
        summary="show a table's schema, its past schemas, its files and its rejects",
        text="It reads the table itself, and needs no node.",
        examples=["rillnode table show readings -c edge/node.toml"],
    )  # fmt: skip
    add_table_options(parser)
    add_config_options(parser)
    parser = add_verb(
        verbs, "infer", infer,
        summary="print a [[table]] that fits the entries a sink has landed",
        text="NAME is a stream or a pattern of streams, or a configured table. The newest files\n"
        "of bronze are sampled. Nothing is changed: check the columns, and put the output into\n"
        "node.toml.",
        examples=["rillnode table infer 'sensors/*'"],
    )  # fmt: skip
    add_table_options(parser, stream=False)
    parser.add_argument(
        "--samples", type=positive_number, default=_SAMPLES, metavar="N",
        help=f"entries to look at (default: {_SAMPLES})",
    )  # fmt: skip
    add_config_options(parser)
    parser = add_verb(
        verbs, "retry", retry,
        summary="land the rejects of a table again, after its schema was corrected",
        text="The sink's job may run meanwhile. Each entry is in the table or in the rejects,\n"
        "once, even if the verb is killed.",
        examples=["rillnode table retry readings"],
    )  # fmt: skip
    add_table_options(parser)
    add_config_options(parser)
    erase.add(verbs)


async def ls(args: argparse.Namespace, terminal: Terminal) -> int:
    """List typed tables."""
    from rillnode.actors.spark.sink_job import TYPED_TABLES, VIEWS

    async with connected(args, terminal) as client:
        document = await client.status()
    rows: list[dict[str, Any]] = []
    sinks: Mapping[str, Mapping[str, Any]] = document.get("sinks", {})
    for sink, status in sinks.items():
        for called, table in status["tables"].items():
            if called.startswith((TYPED_TABLES, VIEWS)):
                kind, _, name = called.partition("/")
                told = cast("dict[str, Any]", status["report"].get(called) or {})
                committed = _time(told.get("committed_at"))
                values = {**told, **table, "kind": kind, "last_commit": committed}
                rows.append(
                    {"name": name, "sink": sink, **{one: values.get(one) for one in _COLUMNS}}
                )
    terminal.rows(rows, empty="no typed tables; a [[table]] in node.toml makes one")
    return Exit.OK


def show(args: argparse.Namespace, terminal: Terminal) -> int:
    """Show one typed table."""
    from rillnode.node.spark.cli.choosing import choose_table

    config = configuration(args, terminal)
    if (view := _view(config, args.name)) is not None:
        terminal.record(view)
        return Exit.OK
    table, typed = choose_table(config, args.name, args.stream)
    from rillnode.node.spark.typed.describing import describe

    terminal.record({"name": table.called, **describe(typed)})
    return Exit.OK


def infer(args: argparse.Namespace, terminal: Terminal) -> int:
    """Print a table for what entries have."""
    from rillnode.node.spark.cli.choosing import choose_sink
    from rillnode.node.spark.table_config import TypedTable

    config = configuration(args, terminal)
    table = next((one for one in config.each(TypedTable) if one.called == args.name), None)
    sink = choose_sink(config, table.sink if table is not None else None)
    streams = table.streams if table is not None else (args.name,)
    from rillnode.node.entries import Readers
    from rillnode.node.spark.files import absolute
    from rillnode.node.spark.typed.describing import infer_table, write_table

    columns, looked_at = infer_table(
        absolute(sink.table_dir), streams, args.samples, Readers(sink.key_files)
    )
    if not columns:
        names = ", ".join(streams)
        raise ConfigError(
            "table.infer",
            f"none of {looked_at} entries of {names} that sink {sink.name} has landed is a JSON "
            "object with something in it, so there is nothing to make columns of",
        )
    place = (
        str(table.dir) if table is not None and table.dir else f"data/tables/{_plain(args.name)}"
    )
    terminal.write_text(write_table(streams, place, columns) + "\n")
    terminal.message(f"made of {looked_at} entries: look it over before you put it into node.toml")
    return Exit.OK


def retry(args: argparse.Namespace, terminal: Terminal) -> int:
    """Land rejects again."""
    from rillnode.node.spark.cli.choosing import choose_sink, choose_table

    config = configuration(args, terminal)
    table, typed = choose_table(config, args.name, args.stream)
    from rillnode.node.spark.delta_log import TableLog
    from rillnode.node.spark.files import absolute
    from rillnode.node.spark.typed.query import TypedQuery
    from rillnode.node.spark.typed.work import in_process

    sink = choose_sink(config, table.sink)
    landed, left = TypedQuery(typed, TableLog(absolute(sink.table_dir)), in_process).retry()
    terminal.message(f"{table.called}: {landed} rejects fit now, {left} do not")
    return Exit.OK


def _view(config: "Config", name: str) -> dict[str, Any] | None:
    """A view of the configuration, with what there is of its table; None for none of that name."""
    from rillnode.node.spark.table_config import TypedTable
    from rillnode.node.spark.view_config import ViewTable

    if any(one.called == name for one in config.each(TypedTable)):
        return None
    view = next((one for one in config.each(ViewTable) if one.called == name), None)
    if view is None:
        return None
    from rillnode.node.spark.delta_log import arrow_schema_of, open_table, sizes
    from rillnode.node.spark.files import absolute

    told: dict[str, Any] = {"name": name, "of": view.of, "dir": absolute(view.dir)}
    told |= {"slot": list(view.slot), "sql": view.sql}
    table = open_table(absolute(view.dir))
    if table is None:
        return {**told, "state": "not made yet"}
    columns = {one.name: str(one.type) for one in arrow_schema_of(table)}
    found = sizes(table)
    committed = _time(found.pop("committed_at"))
    return {**told, "columns": columns, "rows": table.count(), **found, "last_commit": committed}


def _time(milliseconds: object) -> datetime | None:
    if not isinstance(milliseconds, int):
        return None
    return datetime.fromtimestamp(milliseconds / 1_000, UTC)


def _plain(name: str) -> str:
    kept = "".join(one for one in name.replace("/", "_") if one.isalnum() or one in "_-")
    return kept.strip("_-") or "table"
