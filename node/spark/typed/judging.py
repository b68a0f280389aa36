"""Evaluates predicates over rows of typed tables: what is expected, what is to be erased.

A predicate is one condition on the columns of a row, in DuckDB's SQL. It reads nothing but its row:
files, other tables, aggregates and whatever gives another value each time are refused before any
row is looked at. One that fails for a row (a division by zero, a cast) fails for that row only.

An expectation is met as a CHECK is: where its predicate is null it is met. What was counted of rows
goes with them in one transaction: in all as positions, which Delta keeps, and of expectations also
per minute, in what the transaction says beside.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from deltalake import Transaction

from rillnode.codecs.errors import ConfigError
from rillnode.node.spark.delta_log import Numbered
from rillnode.node.spark.explaining import first_line
from rillnode.node.spark.querying import connect_locked
from rillnode.node.spark.typed.arrays import table_schema
from rillnode.node.spark.typed.columns import Columns
from rillnode.node.spark.typed.layout import Expectation, unfit_expectation
from rillnode.node.spark.typed.store import OpenTable

PREDICATE_MAX: Final = 10_000
"""Characters of a predicate."""
_ROWS: Final = "rows"

Flags = npt.NDArray[np.bool_]


class Predicates:
    """Predicates over rows of one schema.

    Args:
        schema: the rows' columns.
        predicates: SQL by name.

    Raises:
        ConfigError: `table.predicate`, one of them is no condition on these columns.
    """

    def __init__(self, schema: pa.Schema, predicates: Mapping[str, str]) -> None:
        self._schema = schema
        self._sql: dict[str, str] = {}
        if not predicates:  # as mostly
            return
        self._database = connect_locked()
        self._database.register(_ROWS, pa.Table.from_batches([], schema=schema))
        self._sql = {name: self._checked(sql) for name, sql in predicates.items()}

    def met(self, rows: pa.RecordBatch) -> dict[str, Flags]:
        """Which rows meet each predicate, as of a CHECK: where it is null they do.

        One for which it fails is not met.
        """
        return self._evaluated(rows, "IS NOT FALSE")

    def true(self, rows: pa.RecordBatch) -> dict[str, Flags]:
        """For which rows each predicate is true, as of a WHERE: neither null nor failed."""
        return self._evaluated(rows, "IS TRUE")

    def _evaluated(self, rows: pa.RecordBatch, test: str) -> dict[str, Flags]:
        if not self._sql:
            return {}
        self._database.register(_ROWS, pa.Table.from_batches([rows]))
        columns = ", ".join(
            f'coalesce(try((\n{sql}\n) {test}), false) AS "{at}"'
            for at, sql in enumerate(self._sql.values())
        )
        found = self._database.execute(f"SELECT {columns} FROM {_ROWS}").fetchnumpy()
        return {name: np.asarray(found[str(at)], np.bool_) for at, name in enumerate(self._sql)}

    def _checked(self, sql: str) -> str:
        """A predicate as it is asked, of which it is sure that it can be.

        Raises:
            ConfigError: `table.predicate`.
        """
        if len(sql) > PREDICATE_MAX:
            text = f"it has {len(sql)} characters, and {PREDICATE_MAX} is the most"
            raise ConfigError("table.predicate", text)
        try:
            sql = self._parsed(sql)
            # A condition is what WHERE takes, which is neither an aggregate nor a window.
            self._database.execute(f"SELECT 1 FROM {_ROWS} WHERE (\n{sql}\n)")
            self._database.execute(f"SELECT try((\n{sql}\n) IS TRUE) FROM {_ROWS}")
            kind = str(
                self._database.execute(f"DESCRIBE SELECT (\n{sql}\n) FROM {_ROWS}").fetchall()[0][1]
            )
        except duckdb.Error as error:
            names = ", ".join(self._schema.names)
            raise ConfigError(
                "table.predicate", f"{first_line(error)}; the columns are {names}"
            ) from error
        if kind.strip('"') not in ("BOOLEAN", "NULL"):
            raise ConfigError(
                "table.predicate", f"it is a {kind}, and a condition is true or false"
            )
        return sql

    def _parsed(self, sql: str) -> str:
        """A predicate that is one expression.

        Raises:
            duckdb.Error: it is none.
        """
        try:
            duckdb.SQLExpression(sql)
        except duckdb.Error:
            quoted = self._quoted(sql)
            try:
                duckdb.SQLExpression(quoted)
            except duckdb.Error:
                quoted = sql
            if quoted == sql:
                raise
            return quoted
        return sql

    def _quoted(self, sql: str) -> str:
        """A predicate in which words of SQL that are names of columns are quoted, such as `at`."""
        names = {name.lower() for name in self._schema.names}
        data = sql.encode()
        parts: list[bytes] = []
        done = 0
        for start, kind in duckdb.tokenize(sql):
            word = _word(data, start)
            if kind == duckdb.token_type.keyword and word.decode().lower() in names:
                parts += [data[done:start], b'"', word, b'"']
                done = start + len(word)
        return b"".join([*parts, data[done:]]).decode()


def _word(data: bytes, start: int) -> bytes:
    end = start
    while end < len(data) and (data[end : end + 1].isalnum() or data[end : end + 1] == b"_"):
        end += 1
    return data[start:end]


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
