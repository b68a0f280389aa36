"""The metrics of Spark sinks: what their jobs report, and how they are."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from rillnode.node.plugin import Described, Sample

METRICS: Final = (
    Described(
        "rillnode_spark_batches_total", "counter", ("sink",), "Batches that a sink has committed."
    ),
    Described("rillnode_spark_batch_rows", "gauge", ("sink",), "Rows of the newest batch."),
    Described("rillnode_spark_batch_seconds", "gauge", ("sink",), "Time that batch took."),
    Described("rillnode_spark_rows_behind", "gauge", ("sink",), "Entries not yet in the table."),
    Described(
        "rillnode_spark_entries_lost_total", "counter", ("sink",),
        "Entries that were trimmed before a sink could land them; its table names them.",
    ),
    Described(
        "rillnode_spark_table_rows_behind", "gauge", ("sink", "table"),
        "Rows of bronze that silver or a gold table has not taken in.",
    ),
    Described(
        "rillnode_spark_table_seconds_behind", "gauge", ("sink", "table"),
        "How long the first of these rows has been in bronze.",
    ),
    Described(
        "rillnode_spark_state", "gauge", ("sink", "state"),
        "1 for the state that a sink is in, its job's or that of its worst table: running, failed, "
        "waiting, parked, paused and so on.",
    ),
    Described(
        "rillnode_spark_table_state", "gauge", ("sink", "state", "table"),
        "1 for the state that a table is in; 0 for running, failed and waiting where it is not.",
    ),
    Described(
        "rillnode_spark_table_rows", "gauge", ("sink", "table"), "Rows of a typed table.",
    ),
    Described(
        "rillnode_spark_table_rejects", "gauge", ("sink", "table"),
        "Entries among the rejects of a typed table, which did not fit its schema.",
    ),
    Described(
        "rillnode_spark_table_rows_late", "gauge", ("sink", "table"),
        "Rows of a typed table that were received long after their time, since it was made.",
    ),
    Described(
        "rillnode_spark_table_rows_superseded", "gauge", ("sink", "table"),
        "Entries that came to a typed table after a later one of their key, since it was made.",
    ),
    Described(
        "rillnode_spark_table_rows_expired", "gauge", ("sink", "table"),
        "Entries that were too old for a typed table when they came, since it was made.",
    ),
    Described(
        "rillnode_spark_table_rows_outside", "gauge", ("sink", "table"),
        "Rows whose time a view cannot cut off, so that they are in none of its slots.",
    ),
    Described(
        "rillnode_spark_table_unexpected_rows", "gauge", ("expectation", "sink", "table"),
        "Rows that did not meet an expectation of a typed table, since it was made.",
    ),
    Described("rillnode_spark_job_starts_total", "counter", ("sink",), "Starts of a sink's job."),
    Described(
        "rillnode_spark_job_failures", "gauge", ("sink",),
        "Ends of the job since it last made progress.",
    ),
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
        found: list[tuple[tuple[str, str], Any]] = [
            ((name, table), one["report"].get(table))
            for (name,), one in sinks
            for table in one["tables"]
        ]
        values = [
            (names, cast("dict[str, Any]", one).get(key))
            for names, one in found
            if isinstance(one, dict)
        ]
        return [(names, value) for names, value in values if isinstance(value, int | float)]

    def unexpected() -> Iterator[Sample]:
        for (name,), one in sinks:
            for table in one["tables"]:
                counts = _document(_document(one["report"].get(table)).get("unexpected"))
                for expectation, count in counts.items():
                    if isinstance(count, int | float):
                        yield (expectation, name, table), count

    # Batches are numbered from 0; one that waits for rows has the number of the next.
    running = {name for name, one in sinks if one["report"].get("state") == "running"}

    return {
        "rillnode_spark_batches_total": [
            (name, batch + (name in running)) for name, batch in reported("batch")
        ],
        "rillnode_spark_batch_rows": reported("rows"),
        "rillnode_spark_batch_seconds": reported("seconds"),
        "rillnode_spark_rows_behind": [(name, one["rows_behind"]) for name, one in sinks],
        "rillnode_spark_entries_lost_total": reported("entries_lost_total"),
        "rillnode_spark_table_rows_behind": of_tables("rows_behind"),
        "rillnode_spark_table_seconds_behind": of_tables("seconds_behind"),
        "rillnode_spark_table_rows": of_tables("rows"),
        "rillnode_spark_table_rejects": of_tables("rejects"),
        "rillnode_spark_table_rows_late": of_tables("rows_late"),
        "rillnode_spark_table_rows_superseded": of_tables("rows_superseded"),
        "rillnode_spark_table_rows_expired": of_tables("rows_expired"),
        "rillnode_spark_table_rows_outside": of_tables("rows_outside"),
        "rillnode_spark_table_unexpected_rows": [*unexpected()],
        "rillnode_spark_state": [((*name, one["state"]), 1) for name, one in sinks],
        "rillnode_spark_table_state": [
            ((name, state, table), state == now["state"])
            for (name,), one in sinks
            for table, now in one["tables"].items()
            for state in dict.fromkeys((*_TABLE_STATES, now["state"]))
        ],
        "rillnode_spark_job_starts_total": [(name, one["starts"]) for name, one in sinks],
        "rillnode_spark_job_failures": [(name, one["failures"]) for name, one in sinks],
    }


def _document(told: object) -> dict[str, Any]:
    return cast("dict[str, Any]", told) if isinstance(told, dict) else {}
