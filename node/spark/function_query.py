"""Lands what an application's function makes of new rows of a table, once.

A step gives the function the rows of the next files of a log, and commits the files that its tasks
have written of what it returns, together with the position. What is cut off before is done again.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable, Schema, Transaction
from pyspark.sql import DataFrame, SparkSession, functions as f
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from rillnode.actors.spark.sink_job import TYPED_TABLES
from rillnode.codecs.errors import ConfigError
from rillnode.node.spark.delta import add_actions, commit_unless_changed, committing, open_to_write
from rillnode.node.spark.delta_log import (
    LogFile,
    Position,
    TableLog,
    arrow_schema_of,
    mark,
    open_table,
    saved_position,
    sizes,
)
from rillnode.node.spark.files import absolute, remove_files
from rillnode.node.spark.frames import frame_of
from rillnode.node.spark.functions import TableFunction, load_functions
from rillnode.node.spark.job_config import JobConfig, TypedConfig
from rillnode.node.spark.parquet import TableFile, write_files
from rillnode.node.spark.parts import Duties, Duty, Part
from rillnode.node.spark.schema_upgrade import conform
from rillnode.node.spark.typed.columns import unfit_name
from rillnode.node.spark.typed.schemas import STREAM

EMPTY_VERSIONS_MAX: Final = 100
"""Versions without a row for a table after which it notes that it has seen them."""
_SOURCE: Final = "rillnode.source"
"""As what a table's transactions say of which table it is made."""
_PLACE: Final = ("stream", "partition", "index", "received_at", "created_at")


class FunctionQuery:
    """Makes the table of a function.

    Args:
        session: Spark.
        declared: the function and its table.
        source: directory or URI of the table whose new rows it gets.
        is_typed: whether that is a typed table, and not bronze.
        rows_max: rows of a step, about.

    Attributes:
        position: how far in the source's log it has come, as the last step saw it.
    """

    def __init__(
        self,
        session: SparkSession,
        declared: TableFunction,
        source: str,
        *,
        is_typed: bool,
        rows_max: int,
    ) -> None:
        self.position: Position | None = None
        self._session = session
        self._declared = declared
        self._dir = absolute(declared.dir)
        self._source = source
        self._log = TableLog(source)
        self._is_typed = is_typed
        self._rows_max = rows_max
        self._ahead: Position | None = None

    @property
    def followed(self) -> str:
        """Directory or URI of the table whose new rows it gets."""
        return self._source

    def figures(self) -> dict[str, object]:
        """How many rows the table has, and how large it is."""
        table = open_table(self._dir)
        return {} if table is None else {"rows": table.count(), **sizes(table)}

    def step(self) -> bool:
        """Give the function the next rows; returns whether there were any.

        Raises:
            ConfigError: what it returns is no table, or another one lies there.
            StoreError: the source's log does not reach back to where the table has come.
        """
        source = self._log.open()
        if source is None:
            return False
        made_of = mark(_SOURCE, str(source.metadata().id))
        target = open_table(self._dir)
        self._check(target, made_of)
        saved = saved_position(target, str(source.metadata().id))
        start = self._ahead if self._ahead is not None and self._ahead > saved else saved
        end = self._log.plan(start, self._rows_max)
        self.position = start
        if end == start:
            return False
        files = self._log.files_between(start, end)
        schema, written = self._written(source, files) if files else (None, [])
        if written or end.version - saved.version >= EMPTY_VERSIONS_MAX:
            if schema is not None:
                self._commit(schema, written, saved, [*end.transactions(), made_of])
            self._ahead = None
        if not written:
            self._ahead = end
        self.position = end
        return True

    def _written(
        self, source: DeltaTable, files: list[LogFile]
    ) -> tuple[pa.Schema, list[TableFile]]:
        """The columns of what the function returns, and the files that tasks have written of it."""
        made: Any = self._declared.function(self._rows(source, files))
        if not isinstance(made, DataFrame):
            raise self._wrong(f"returns {type(made).__name__}, and not a DataFrame")
        for name in made.columns:
            if why := unfit_name(name):
                raise self._wrong(f"returns a column {name!r} that {why}")
        found = to_arrow_schema(made.schema, timezone="UTC")
        schema = pa.schema([pa.field(one.name, one.type) for one in found])
        names = made.mapInArrow(_writer(self._dir, schema), "file string").collect()
        return schema, [TableFile(**json.loads(row.file)) for row in names]

    def _rows(self, source: DeltaTable, files: list[LogFile]) -> DataFrame:
        """The rows of files that the source still has, of the function's streams."""
        struct = from_arrow_schema(arrow_schema_of(source))
        rows = frame_of(self._session, self._log.uris(files), struct)
        gone, holders = self._log.files_left(files)
        if gone:
            present = list(dict.fromkeys([*(one for one in files if one not in gone), *holders]))
            left = frame_of(self._session, self._log.uris(present), struct)
            place = [f"_{one}" for one in _PLACE] if self._is_typed else [*_PLACE[:4]]
            rows = rows.join(left.select(*place), place, "left_semi")
        if not self._is_typed:
            rows = rows.where(f.col("kind") != "gap")
        if "*" in self._declared.streams:
            return rows
        wanted = "|".join(map(_regular, self._declared.streams))
        return rows.where(f.col("_stream" if self._is_typed else "stream").rlike(wanted))

    def _commit(
        self,
        schema: pa.Schema,
        files: Sequence[TableFile],
        start: Position,
        positions: list[Transaction],
    ) -> None:
        with committing(self._dir):
            table = open_to_write(self._dir, Schema.from_arrow(schema))
            while saved_position(table, start.table) == start:
                if commit_unless_changed(
                    self._dir, table, add_actions(files, data_change=True), positions
                ):
                    return
        # Another process has done the work.
        remove_files(self._dir, [one.name for one in files])

    def _check(self, target: DeltaTable | None, made_of: Transaction) -> None:
        known = None if target is None else target.transaction_version(made_of.app_id)
        if known not in (None, made_of.version):
            raise ConfigError(
                "table.source",
                f"{self._source} was made anew, and has rows again that {self._dir} has: remove "
                "that, and it is made anew, too; or give the function another dir",
            )

    def _wrong(self, why: str) -> ConfigError:
        return ConfigError("table.function", f"the function {self._declared.name} {why}")


def function_tables(session: SparkSession, config: JobConfig) -> Duties:
    """What makes the tables of the functions in a job's modules."""
    duties: list[Duty] = []
    taken = {one.name for one in config.typed}
    for module in config.modules:
        try:
            functions = load_functions(module)
        except ConfigError as error:
            duties.append(_failing(module, error))
            continue
        for declared in functions:
            try:
                if declared.name in taken:
                    text = f"two tables are named {declared.name!r}: give one another `name`"
                    raise ConfigError("table.function", text)
                duties.append(_duty(session, config, declared))
            except ConfigError as error:
                duties.append(_failing(declared.name, error))
            taken.add(declared.name)
    return Duties(duties, pause_seconds=config.trigger_seconds)


def _duty(session: SparkSession, config: JobConfig, declared: TableFunction) -> Duty:
    """The duty of making a function's table.

    Raises:
        ConfigError: there is no typed table of the name that it says.
    """
    typed = _typed_of(config.typed, declared)
    source = absolute(config.table_dir) if typed is None else typed.dir
    query = FunctionQuery(
        session,
        declared,
        source,
        is_typed=typed is not None,
        rows_max=config.batch_rows_max,
    )
    return Duty(Part(f"{TYPED_TABLES}{declared.name}", [declared.dir]), query.step, query)


def _typed_of(tables: Sequence[TypedConfig], declared: TableFunction) -> TypedConfig | None:
    """The typed table that a function gets rows of; None for bronze."""
    # Its log is what tells a function which rows are new.
    delta = [one for one in tables if one.catalog is None]
    for one in delta:
        is_meant = (
            one.name == declared.of
            if declared.of
            else {*declared.streams} <= {*one.streams} and STREAM not in one.dir
        )
        if is_meant:
            return one
    if not declared.of:
        return None
    text = f"the function {declared.name} is of {declared.of!r}, and no typed table has that name"
    raise ConfigError("table.function", f"{text}, or it is one of Iceberg's")


def _failing(name: str, error: ConfigError) -> Duty:
    """What tells of a table that cannot be made before the job is started anew."""

    def fail() -> bool:
        raise error

    return Duty(Part(f"{TYPED_TABLES}{name}", []), fail)


def _writer(
    location: str, schema: pa.Schema
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for file in write_files(location, (conform(rows, schema) for rows in batches)):
            yield pa.RecordBatch.from_pydict({"file": [json.dumps(asdict(file))]})

    return write


def _regular(pattern: str) -> str:
    """A pattern of streams as a regular expression of Java's."""
    signs = {"*": ".*", "?": "."}
    return r"(?s)\A" + "".join(signs.get(one) or re.escape(one) for one in pattern) + r"\z"
