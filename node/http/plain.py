"""The page's tables for browsers without script: the same documents as HTML tables."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final, cast

_TABLES: Final[Mapping[str, tuple[str, Sequence[str], str]]] = {
    "streams": (
        "streams",
        ("name", "partitions", "next_index", "entries_per_second", "data_bytes", "subscribers",
         "members", "worst_lag"),
        "No streams yet: rillnode stream push sensors --create",
    ),
    "consumers": (
        "positions",
        ("stream", "client_id", "partition", "index", "lag", "member"),
        "No consumer has saved a position.",
    ),
    "links": (
        "links",
        ("remote", "protocol", "direction", "state", "peer", "route", "round_trip_seconds",
         "bytes_in", "bytes_out"),
        "No links are open.",
    ),
    "queues": (
        "queues",
        ("stream", "queue", "depth", "in_flight", "waiting", "dead", "workers", "held"),
        "No work queue is in use.",
    ),
    "peers": (
        "peers",
        ("name", "address", "speaks", "state", "links", "last_error"),
        "No peers: a [[peer]] in node.toml names one.",
    ),
    "actors": (
        "actors",
        ("class", "cells", "mailbox_depth", "handled", "handled_per_second", "failures", "restarts",
         "slowest_handler_seconds"),
        "No actors.",
    ),
    "sinks": (
        "sinks",
        ("name", "state", "rows_behind", "starts", "failures", "error", "last_error"),
        "No sinks: a table such as [[sink.python]] in node.toml makes one.",
    ),
    "warnings": ("warnings", ("time", "level", "logger", "event"), "No warnings."),
}  # fmt: skip


def tables(documents: Mapping[str, Mapping[str, Any]]) -> str:
    """The tables of all documents that are given, by the documents' names."""
    parts: list[str] = []
    for name, (key, columns, empty) in _TABLES.items():
        rows = cast(Sequence[Mapping[str, Any]], documents.get(name, {}).get(key, ()))
        parts.append(f'<h2>{name.capitalize()}</h2><p><a href="/v1/{name}">/v1/{name}</a></p>')
        parts.append(_table(columns, rows) if rows else f"<p>{escape(empty)}</p>")
    for one in cast(Sequence[Mapping[str, Any]], documents.get("tables", {}).get("tables", ())):
        parts.append(f'<h2>{escape(one["title"])}</h2><p><a href="/v1/tables">/v1/tables</a></p>')
        columns = [column["key"] for column in one["columns"]]
        rows = one["rows"]
        parts.append(_table(columns, rows) if rows else f"<p>{escape(one['empty'])}</p>")
    return "\n".join(parts)


def _table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    head = "".join(f'<th scope="col">{escape(column.replace("_", " "))}</th>' for column in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_text(row.get(column)))}</td>" for column in columns)
        + "</tr>"
        for row in rows
    )  # fmt: skip
    scroll = f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody>'
    return f"{scroll}</table></div>"


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int | float) else str(value)
