"""Describes typed tables to people, and infers new ones from what has landed."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

import msgspec

from rillnode.actors.core.patterns import matcher
from rillnode.node.entries import Readers
from rillnode.node.spark.bronze import read_file
from rillnode.node.spark.delta_log import TableLog, live_files
from rillnode.node.spark.job_config import TypedConfig
from rillnode.node.spark.typed.columns import Columns, infer_columns, written_columns
from rillnode.node.spark.typed.decode import said_by
from rillnode.node.spark.typed.delta_store import stores_of
from rillnode.node.spark.typed.judging import counts_of, totals, unexpected_minutes

REASONS_MAX: Final = 20
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


def describe(config: TypedConfig) -> dict[str, Any]:
    """What there is to know of a typed table: its schemas, files and rejects."""
    stores = stores_of(config)
    table, rejects = (one.open() for one in stores)
    history = stores[0].history()
    found: dict[str, Any] = {
        "dir": config.dir or stores[0].name,
        "evolve": config.evolve,
        "reject": config.reject,
        **msgspec.to_builtins(config.layout),
    }
    if table is None or not history:
        return {**found, "state": "not made yet"}
    return {
        **found,
        "schema_version": history[-1].version,
        "columns": toml_value(history[-1].columns),
        "rows": table.count(),
        "rejects": 0 if rejects is None else rejects.count(),
        "reasons": {} if rejects is None else _reasons(stores[1].uris(rejects.files())),
        **counts_of(table),
        "unexpected": totals(table, [one.name for one in config.expect]),
        "unexpected_minutes": unexpected_minutes(table),
        **table.figures(),
        "schemas": [
            {
                "version": one.version,
                "at": one.at,
                "why": one.why,
                "columns": toml_value(one.columns),
            }
            for one in history
        ],
    }


def _reasons(uris: Sequence[str]) -> dict[str, int]:
    """How many rejects there are for each reason, the most frequent ones."""
    counted: Counter[str] = Counter()
    for uri in uris:
        for rows in read_file(uri, ["reason"]):
            counted.update(rows.column("reason").to_pylist())
    return dict(counted.most_common(REASONS_MAX))


def infer_table(
    bronze: str, streams: Sequence[str], samples: int, readers: Readers
) -> tuple[Columns, int]:
    """The columns of entries in the newest files of bronze, and how many were looked at."""
    log = TableLog(bronze)
    table = log.open()
    matches = [matcher(one) for one in streams]
    said: list[dict[str, Any]] = []
    looked_at = 0
    for uri in reversed(log.uris(live_files(table)) if table is not None else []):
        for name, kind, data in _entries(uri):
            if looked_at >= samples:
                return infer_columns(said), looked_at
            if any(one(name) for one in matches):
                looked_at += 1
                if (found := said_by(kind, data, readers)) is not None:
                    said.append(found)
    return infer_columns(said), looked_at


def _entries(uri: str) -> Iterator[tuple[str, str, bytes]]:
    for rows in read_file(uri, ["stream", "kind", "data"]):
        for row in rows.to_pylist():
            if row["kind"] != "gap":
                yield row["stream"], row["kind"], row["data"] or b""


def write_table(streams: Sequence[str], place: str, columns: Columns) -> str:
    """A `[[table]]` of node.toml."""
    lines = ["[[table]]", f"streams = {toml_value(list(streams))}", f"dir = {toml_value(place)}"]
    lines.append("[table.columns]")
    for name, kind in written_columns(columns).items():
        lines.append(f"{_toml_key(name)} = {toml_value(kind)}")
    return "\n".join(lines)


def toml_value(value: object) -> str:
    """A text, a list or a table as TOML has it in one line."""
    match value:
        case dict():
            fields = cast("dict[str, Any]", value).items()
            inner = ", ".join(f"{_toml_key(name)} = {toml_value(one)}" for name, one in fields)
            return f"{{ {inner} }}"
        case list():
            items = cast("list[object]", value)
            return f"[{', '.join(map(toml_value, items))}]"
        case _:
            return json.dumps(value)


def _toml_key(name: str) -> str:
    return name if _BARE.fullmatch(name) else json.dumps(name)
