"""Counts rows of a typed table that came late or are not as people expect them, and rejects some.

An expectation is met as a CHECK is: where its predicate is null it is met. A predicate that fails
for a row is not. The counts go with the rows in one transaction: in all as positions, which Delta
keeps, and those of expectations also per minute, in what the transaction says beside.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from deltalake import Transaction

from rillnode.codecs.errors import ConfigError
from rillnode.node.spark.delta_log import Numbered
from rillnode.node.spark.predicates import Predicates
from rillnode.node.spark.typed.arrays import table_schema
from rillnode.node.spark.typed.columns import Columns
from rillnode.node.spark.typed.expectations import Expectation, unfit_expectation
from rillnode.node.spark.typed.store import OpenTable

LATE: Final = "rows_late"
"""Rows that were received long after their time."""
EXPIRED: Final = "rows_expired"
"""Entries that came when they were too old, and were not landed."""
SUPERSEDED: Final = "rows_superseded"
"""Entries that came after a later one of their key, and changed nothing."""
COUNTS: Final = (LATE, SUPERSEDED, EXPIRED)

MINUTES_MAX: Final = 60
"""Minutes that `unexpected_minutes` looks for."""
COMMITS_MAX: Final = 1_000
METADATA: Final = "unexpected"
"""As what a transaction says how many rows of each minute were not as expected."""
_TOTAL: Final = "rillnode.unexpected."
"""As what a table's transactions number, by expectation, all rows that did not meet it."""

Unexpected = dict[str, dict[str, int]]
"""How many rows did not meet an expectation, by its name and by minute."""


def transaction_of(count: str, number: int) -> Transaction:
    """A count as a transaction leaves it."""
    return Transaction(f"rillnode.{count}", number)


def counts_of(table: Numbered | None) -> dict[str, int]:
    """What was counted since a table was made."""
    return {name: _counted_in(table, name) for name in COUNTS}


def _counted_in(table: Numbered | None, count: str) -> int:
    return 0 if table is None else table.transaction_version(f"rillnode.{count}") or 0


def counted(
    table: Numbered | None, more: Mapping[str, int]
) -> tuple[list[Transaction], list[Transaction]]:
    """The counts before and after more was counted, of those that change."""
    changed = [name for name, number in more.items() if number]
    before = {name: _counted_in(table, name) for name in changed}
    return (
        [transaction_of(name, before[name]) for name in changed],
        [transaction_of(name, before[name] + more[name]) for name in changed],
    )


class Judged(NamedTuple):
    """The verdict on rows.

    Attributes:
        rows: those that stay.
        rejected: those that do not, by number, and why.
        unexpected: the counts.
    """

    rows: pa.RecordBatch
    rejected: list[tuple[int, str]]
    unexpected: Unexpected


class Expectations:
    """The expectations of one table.

    Args:
        expectations: which.
        schema: the table's.

    Raises:
        ConfigError: `table.expect`, one of them is no condition on the table's columns.
    """

    def __init__(self, expectations: Sequence[Expectation], schema: pa.Schema) -> None:
        self._expectations = expectations
        for one in expectations:
            try:
                Predicates(schema, {one.name: one.sql})
            except ConfigError as error:
                raise unfit_expectation(one.name, error.text) from error
        self._predicates = Predicates(schema, {one.name: one.sql for one in expectations})

    def judge(self, rows: pa.RecordBatch) -> Judged:
        """Count the rows that do not meet an expectation, and part from them those to reject."""
        met = self._predicates.met(rows)
        stays = np.ones(rows.num_rows, np.bool_)
        why: dict[int, str] = {}
        failed = {one.name: ~met[one.name] for one in self._expectations}
        for one in self._expectations:
            if one.action == "reject":
                # A row is a reject of the first one that it does not meet.
                failed[one.name] &= stays
                stays &= ~failed[one.name]
                text = f"expectation {one.name} is not met: {' '.join(one.sql.split())}"
                why |= dict.fromkeys(np.flatnonzero(failed[one.name]).tolist(), text)
        unexpected: Unexpected = {}
        for one in self._expectations:
            counted = failed[one.name] & stays if one.action == "warn" else failed[one.name]
            if counted.any():
                unexpected[one.name] = _by_minute(rows.filter(pa.array(counted)))
        kept = rows.filter(pa.array(stays)) if why else rows
        return Judged(kept, sorted(why.items()), unexpected)


def check_expectation(one: Expectation, columns: Columns, *, rest: bool) -> None:
    """Check that a table of these columns can have an expectation.

    Raises:
        ConfigError: `table.expect`, it is no condition on them.
    """
    Expectations([one], table_schema(columns, rest=rest))


def _by_minute(rows: pa.RecordBatch) -> dict[str, int]:
    times: list[datetime] = rows.column("_received_at").to_pylist()
    return dict(Counter(one.strftime("%Y-%m-%dT%H:%MZ") for one in times))


def summed(parts: Sequence[Unexpected]) -> Unexpected:
    """The counts of several parts together."""
    counted: dict[str, Counter[str]] = {}
    for part in parts:
        for name, minutes in part.items():
            counted.setdefault(name, Counter()).update(minutes)
    return {name: dict(minutes) for name, minutes in counted.items()}


def totals(table: OpenTable | None, names: Sequence[str]) -> dict[str, int]:
    """How many rows have not met each of some expectations since the table was made."""
    if table is None:
        return dict.fromkeys(names, 0)
    return {name: table.transaction_version(f"{_TOTAL}{name}") or 0 for name in names}


def positions(counts: Mapping[str, int]) -> list[Transaction]:
    """Totals as a transaction says them."""
    return [Transaction(f"{_TOTAL}{name}", count) for name, count in counts.items()]


def unexpected_minutes(table: OpenTable) -> Unexpected:
    """The counts of the newest minutes in a table's history."""
    found = summed(list(table.noted(METADATA, COMMITS_MAX)))
    newest = sorted({minute for minutes in found.values() for minute in minutes})[-MINUTES_MAX:]
    return {
        name: {minute: count for minute, count in sorted(minutes.items()) if minute in newest}
        for name, minutes in found.items()
    }
