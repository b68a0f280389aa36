"""The metrics of Spark sinks: what their jobs report, and how they are."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from rillnode.node.plugin import Described, Sample

_PREFIX: Final = "rillnode_spark_"
_OF_TABLES: Final = {
    "rows_behind": "Rows of bronze that silver or a gold table has not taken in.",
    "seconds_behind": "How long the first of these rows has been in bronze.",
    "rows": "Rows of a typed table.",
    "rejects": "Entries among the rejects of a typed table, which did not fit its schema.",
    "rows_late": "Rows of a typed table that were received long after their time, since it was "
    "made.",
    "rows_superseded": "Entries that came to a typed table after a later one of their key, since "
    "it was made.",
    "rows_expired": "Entries that were too old for a typed table when they came, since it was "
    "made.",
    "rows_outside": "Rows whose time a view cannot cut off, so that they are in none of its slots.",
}
"""What jobs report of tables, by the names that it has in their reports."""
METRICS: Final = tuple(
    Described(f"{_PREFIX}{name}", kind, labels, text)
    for name, kind, labels, text in (
        ("batches_total", "counter", ("sink",), "Batches that a sink has committed."),
        ("batch_rows", "gauge", ("sink",), "Rows of the newest batch."),
        ("batch_seconds", "gauge", ("sink",), "Time that batch took."),
        ("rows_behind", "gauge", ("sink",), "Entries not yet in the table."),
        (
            "entries_lost_total", "counter", ("sink",),
            "Entries that were trimmed before a sink could land them; its table names them.",
        ),
        *((f"table_{name}", "gauge", ("sink", "table"), text) for name, text in _OF_TABLES.items()),
        (
            "table_unexpected_rows", "gauge", ("expectation", "sink", "table"),
            "Rows that did not meet an expectation of a typed table, since it was made.",
        ),
        (
            "state", "gauge", ("sink", "state"),
            "1 for the state that a sink is in, its job's or that of its worst table: running, "
            "failed, waiting, parked, paused and so on.",
        ),
        (
            "table_state", "gauge", ("sink", "state", "table"),
            "1 for the state that a table is in; 0 for running, failed and waiting where it is "
            "not.",
        ),
        ("job_starts_total", "counter", ("sink",), "Starts of a sink's job."),
        ("job_failures", "gauge", ("sink",), "Ends of the job since it last made progress."),
    )
)  # fmt: skip
_TABLE_STATES: Final = ("running", "failed", "waiting")
"""States of tables that have a series at all times: an alert rule must find what it asks for."""


def samples(statuses: Mapping[str, Mapping[str, Any]]) -> dict[str, Sequence[Sample]]:
    """The values of `METRICS`, out of the documents of all sinks."""
    sinks = [((name,), one) for name, one in statuses.items()]

    def reported(key: str) -> list[Sample]:
        # A job says what it likes; only numbers can be told on.
        found: list[tuple[tuple[str], Any]] = [
            (name, one["report"].get(key)) for name, one in sinks
        ]
        return [(name, value) for name, value in found if isinstance(value, int | float)]

    def of_tables(key: str) -> list[Sample]:
        found: list[Sample] = []
        for (name,), one in sinks:
            for table in one["tables"]:
                value = _document(one["report"].get(table)).get(key)
                if isinstance(value, int | float):
                    found.append(((name, table), value))
        return found

    def unexpected() -> Iterator[Sample]:
        for (name,), one in sinks:
            for table in one["tables"]:
                counts = _document(_document(one["report"].get(table)).get("unexpected"))
                for expectation, count in counts.items():
                    if isinstance(count, int | float):
                        yield (expectation, name, table), count

    # Batches are numbered from 0; one that waits for rows has the number of the next.
    running = {name for name, one in sinks if one["report"].get("state") == "running"}

    found: dict[str, Sequence[Sample]] = {
        "batches_total": [(name, batch + (name in running)) for name, batch in reported("batch")],
        "batch_rows": reported("rows"),
        "batch_seconds": reported("seconds"),
        "rows_behind": [(name, one["rows_behind"]) for name, one in sinks],
        "entries_lost_total": reported("entries_lost_total"),
        **{f"table_{key}": of_tables(key) for key in _OF_TABLES},
        "table_unexpected_rows": [*unexpected()],
        "state": [((*name, one["state"]), 1) for name, one in sinks],
        "table_state": [
            ((name, state, table), state == now["state"])
            for (name,), one in sinks
            for table, now in one["tables"].items()
            for state in dict.fromkeys((*_TABLE_STATES, now["state"]))
        ],
        "job_starts_total": [(name, one["starts"]) for name, one in sinks],
        "job_failures": [(name, one["failures"]) for name, one in sinks],
    }
    return {f"{_PREFIX}{name}": samples for name, samples in found.items()}


def _document(told: object) -> dict[str, Any]:
    return cast("dict[str, Any]", told) if isinstance(told, dict) else {}
