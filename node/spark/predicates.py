"""Evaluates SQL predicates over Arrow rows with DuckDB, in this process and without a table.

A predicate is one condition on the columns of a row, in DuckDB's SQL. It reads nothing but its
row: files, other tables, aggregates and whatever gives another value each time are refused before
any row is looked at. One that fails for a row (a division by zero, a cast) fails for that row only.
"""

from collections.abc import Mapping
from typing import Final

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rillnode.codecs.errors import ConfigError
from rillnode.node.spark.explaining import first_line

PREDICATE_MAX: Final = 10_000
"""Characters of a predicate."""
_ROWS: Final = "rows"
_SETTINGS: Final[dict[str, str | bool | int | float | list[str]]] = {
    "enable_external_access": "false",
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "python_enable_replacements": "false",
    # Spark's tasks share the cores out already.
    "threads": "1",
}

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
        self._database = duckdb.connect(":memory:", config=_SETTINGS)
        self._database.execute("SET TimeZone = 'UTC'")
        self._database.execute("SET lock_configuration = true")
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
