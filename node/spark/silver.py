"""Makes silver of bronze, step by step: every event decoded, and once.

A step takes the next files of bronze's log. Tasks decode them and write rows of silver to files of
its table. An entry never stops them: what cannot be decoded becomes a row that has its bytes and
the reason. The transaction that adds the files says how far the table has come in bronze, and that
is all there is of a checkpoint.

Tasks give back no rows, only what tells the events apart: a digest of each, and where its row lies.
What has come before within `duplicate_seconds` is remembered in a database on the disk. A file of
whose rows none has come before is added as it is; of another, the new rows are written anew. A file
that no transaction names is removed by the table's maintenance. Entries of kind `bytes` have no
name but their index, and bronze has each once: nothing is remembered of them.

Time is that at which rows were committed to bronze. It never goes back, so that no row ever comes
too late and is dropped: neither those of a stream that is read from its beginning beside others
that are read at their end, nor those of a publisher whose clock is wrong.
"""

import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from struct import Struct
from typing import Any, Final

import duckdb
import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import Schema, Transaction
from pyarrow import ipc

from rillnode.codecs.errors import CodecError, StoreError
from rillnode.node.entries import WITHOUT_KEYS, Decoded, Readers, Unreadable
from rillnode.node.spark.bronze import read_file, read_rest, share_files
from rillnode.node.spark.delta import add_actions, commit, committing, open_to_write, summary
from rillnode.node.spark.delta_log import Position, TableLog, saved_position
from rillnode.node.spark.erasure import Erasures
from rillnode.node.spark.explaining import first_line
from rillnode.node.spark.files import absolute, filesystem, local_path, remove_begun, remove_files
from rillnode.node.spark.job_config import DerivedConfig
from rillnode.node.spark.maintenance import Maintenance
from rillnode.node.spark.parquet import TableFile, write_files
from rillnode.node.spark.querying import connect_to
from rillnode.node.spark.schema_upgrade import conform
from rillnode.node.spark.tables import BRONZE_SCHEMA, SILVER_SCHEMA, schema_of
from rillnode.node.spark.typed.work import Engine

_TIMES: Final = ("ts", "prev_ts", "landed_at")


def decode_rows(
    rows: pa.RecordBatch, landed_at_ms: int, readers: Readers = WITHOUT_KEYS
) -> pa.RecordBatch:
    """Decode rows of bronze, in order.

    Args:
        rows: rows of any version of the bronze schema.
        landed_at_ms: when they were committed, ms since 1970.
        readers: decode the entries.

    Returns:
        As many rows of the silver schema.
    """
    rows = conform(rows, BRONZE_SCHEMA)
    kinds: list[str] = rows.column("kind").to_pylist()
    items: list[bytes | None] = rows.column("data").to_pylist()
    decoded = [decode_entry(kind, data, readers) for kind, data in zip(kinds, items, strict=True)]
    values: dict[str, list[Any]] = {
        name: [row[at] for row in decoded] for at, name in enumerate(Decoded._fields)
    }
    indexes: list[int] = rows.column("index").to_pylist()
    values["event_id"] = [
        f"#{index}" if name is None else name
        for index, name in zip(indexes, values["event_id"], strict=True)
    ]
    values["landed_at"] = [landed_at_ms] * len(items)
    values["data_bytes"] = [len(data or b"") for data in items]
    for name in _TIMES:
        values[name] = [None if time is None else time * 1000 for time in values[name]]
    return pa.RecordBatch.from_arrays(
        [
            _array(values[column.name], column.type)
            if column.name in values
            else rows.column(column.name)
            for column in SILVER_SCHEMA
        ],
        schema=SILVER_SCHEMA,
    )


def decode_entry(kind: str, data: bytes | None, readers: Readers = WITHOUT_KEYS) -> Decoded:
    """Decode one entry's bytes as its kind says; what is wrong with them is in `error`."""
    if data is None:
        return Decoded(error="entries were trimmed or removed before they were landed")
    try:
        return readers.of(kind).decoded(data)
    except (CodecError, Unreadable) as error:
        return Decoded(data=data, error=str(error))


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """An array of a silver column; times are given as integers."""
    if isinstance(kind, pa.TimestampType):
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, kind)


KEYS: Final = schema_of(file="text", row="int", a="long", b="long")
"""Digests of events, and where their rows lie: in which file, and at which place in it."""
_READ_ROWS: Final = 4_096
_DIGEST: Final = Struct("<qq")


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """The share of a step that one task does.

    Attributes:
        table: silver's directory or URI.
        batch: what the names of the step's files begin with.
        files: files of bronze, as URIs.
        gone: those of the files that bronze no longer has.
        holders: the files that have what is left of their rows.
        landed_at_ms: when their rows count as committed to bronze.
        key_files: paths of files with keys for encrypted entries, by kind of entries.
    """

    table: str
    batch: str
    files: list[str]
    gone: list[str]
    holders: list[str]
    landed_at_ms: int
    key_files: dict[str, str]


class Written(msgspec.Struct, frozen=True):
    """The files that a task has written, and what tells their rows apart.

    Attributes:
        files: files of silver that no commit has added yet.
        keys: those of their rows that may have come before, as Arrow's stream of `KEYS`.
    """

    files: list[TableFile]
    keys: bytes


def write_rows(task: bytes) -> bytes:
    """Write a task's rows to files, which are durable when this returns."""
    asked = msgspec.msgpack.decode(task, type=Task)
    readers, gone = Readers(asked.key_files), frozenset(asked.gone)
    held: list[pa.RecordBatch] = []
    rows = 0

    def decoded() -> Iterator[pa.RecordBatch]:
        nonlocal rows
        for uri in asked.files:
            for read in read_rest(uri, asked.holders) if uri in gone else read_file(uri):
                batch = decode_rows(read, asked.landed_at_ms, readers)
                held.append(keys_of(batch, rows))
                rows += batch.num_rows
                yield batch

    files: list[TableFile] = []
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, KEYS) as keys:
        for file in write_files(asked.table, decoded(), name=asked.batch):
            files.append(file)
            for one in held:
                names = pa.repeat(pa.scalar(file.name), one.num_rows)
                arrays = [names, *one.columns]
                keys.write_batch(pa.RecordBatch.from_arrays(arrays, schema=KEYS))
            held.clear()
            rows = 0
    return msgspec.msgpack.encode(Written(files, sink.getvalue().to_pybytes()))


def keys_of(rows: pa.RecordBatch, first: int) -> pa.RecordBatch:
    """What tells the events of rows apart that may come again, but for the file that they are in.

    Two messages under one id are no duplicates if they say different things: both are kept.

    Args:
        rows: rows of silver.
        first: place of the first one in its file.
    """
    places = pc.indices_nonzero(pc.not_equal(rows.column("kind"), "bytes"))
    chosen = rows.take(places)
    names = ("stream", "partition", "event_id", "content", "data")
    digests: list[tuple[Any, ...]] = []
    for stream, partition, event, content, data in zip(
        *(chosen.column(name).to_pylist() for name in names), strict=True
    ):
        name = f"{len(stream)} {len(event)} {partition} {stream}{event}".encode()
        said = (data or b"") if content is None else content.encode()
        digests.append(_DIGEST.unpack(blake2b(name + said, digest_size=_DIGEST.size).digest()))
    fields = [KEYS.field(name) for name in ("row", "a", "b")]
    halves = np.array(digests, np.int64).reshape(-1, 2).T
    numbers = places.to_numpy().astype(np.int32) + np.int32(first)
    arrays = [pa.array(one) for one in (numbers, *halves)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


_TABLES: Final = """
CREATE TABLE IF NOT EXISTS seen (a BIGINT, b BIGINT, landed_at BIGINT);
CREATE TABLE IF NOT EXISTS fresh (a BIGINT, b BIGINT, landed_at BIGINT, step BIGINT);
"""
_REPEATED: Final = """
CREATE OR REPLACE TEMP TABLE told AS
SELECT k.*, row_number() OVER (PARTITION BY a, b ORDER BY number) > 1
    OR EXISTS (SELECT 1 FROM seen s WHERE s.a = k.a AND s.b = k.b) AS is_repeated
FROM keys k
"""


class Seen:
    """Remembers events, in a database on the disk.

    The events of a step are *fresh* until the next one finds that the table has them. So whatever
    is killed, none is taken for known whose row is nowhere.

    Args:
        directory: where the database is; None for one in memory, which forgets with its process.
    """

    def __init__(self, directory: Path | None) -> None:
        self._file = None if directory is None else directory / "seen.duckdb"

    @cached_property
    def _database(self) -> duckdb.DuckDBPyConnection:
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
        database = connect_to(self._file)
        database.execute(_TABLES)
        return database

    def repeated(
        self, keys: pa.Table, *, step: int, made: int | None, at_ms: int, since_ms: int
    ) -> dict[str, list[int]]:
        """The rows of events that have come before, by file; from now on the others have.

        Args:
            keys: what tells the events apart, in the order in which they have come.
            step: of which step they are, a number that no other has.
            made: the last step that the table has; None where it has none.
            at_ms: when the events came, ms since 1970.
            since_ms: what came before then is forgotten.

        Raises:
            StoreError: `spark.checkpoint`, the database cannot be used.
        """
        numbers = pa.array(range(keys.num_rows), pa.int64())
        try:
            with self._database.cursor() as database:
                database.begin()
                if made is None:
                    database.execute("DELETE FROM seen")
                settled = "SELECT a, b, landed_at FROM fresh WHERE step = ?"
                database.execute(f"INSERT INTO seen {settled}", [made])
                database.execute("DELETE FROM fresh")
                database.execute("DELETE FROM seen WHERE landed_at < ?", [since_ms])
                database.register("keys", keys.append_column("number", numbers))
                database.execute(_REPEATED)
                new = "SELECT a, b, ?, ? FROM told WHERE NOT is_repeated"
                database.execute(f"INSERT INTO fresh {new}", [at_ms, step])
                asked = 'SELECT file, "row" FROM told WHERE is_repeated'
                found: list[tuple[str, int]] = database.execute(asked).fetchall()
                database.commit()
        except duckdb.Error as error:
            text = f"{self._file}: {first_line(error)}. Remove it: silver goes on where it ends"
            raise StoreError("spark.checkpoint", f"{text}, and forgets what has come") from error
        rows: dict[str, list[int]] = {}
        for name, row in found:
            rows.setdefault(name, []).append(row)
        return rows

    def close(self) -> None:
        """Let go of the database."""
        if "_database" in self.__dict__:
            self._database.close()
            del self._database


def settle(
    table: str, batch: str, files: Sequence[TableFile], repeated: Mapping[str, Sequence[int]]
) -> Iterator[TableFile]:
    """The files without rows that have come before; those that have any are written anew."""
    system, root = filesystem(table)
    for file in files:
        if not (rows := repeated.get(file.name)):
            yield file
            continue
        mask = np.ones(file.rows, np.bool_)
        mask[list(rows)] = False
        with pq.ParquetFile(f"{root}/{file.name}", filesystem=system) as parquet:
            yield from write_files(table, _masked(parquet, mask), name=batch)
        remove_files(table, [file.name])


def _masked(parquet: pq.ParquetFile, mask: npt.NDArray[np.bool_]) -> Iterator[pa.RecordBatch]:
    first = 0
    for batch in parquet.iter_batches(batch_size=_READ_ROWS, use_threads=False):
        chosen = pa.array(mask[first : first + batch.num_rows])
        yield from pa.Table.from_batches([batch]).filter(chosen).to_batches()
        first += batch.num_rows


_SCHEMA: Final = Schema.from_arrow(SILVER_SCHEMA)
_STEP: Final = "rillnode.silver"
"""As what the table's transactions tell which step was the last."""


class SilverQuery:
    """Makes the silver table.

    Args:
        config: the tables.
        engine: does the work of tasks.
        tasks_max: tasks of a step that is large enough for them.

    Attributes:
        position: how far in bronze the table has come, as the last step saw it.
    """

    def __init__(self, config: DerivedConfig, engine: Engine, tasks_max: int = 1) -> None:
        self.position: Position | None = None
        self._config = config
        self._engine = engine
        self._tasks_max = tasks_max
        self._location = absolute(config.silver_dir)
        self._bronze = TableLog(absolute(config.bronze_dir))
        self._silver = TableLog(self._location)
        self._erasures = Erasures(self._bronze.location)
        self._maintenance = Maintenance(self._location, config.compact_commits)
        self._seen = Seen(local_path(config.checkpoint_dir))

    @property
    def followed(self) -> str:
        """Directory or URI of bronze."""
        return self._bronze.location

    def figures(self) -> dict[str, object]:
        """Nothing is told of the table but how far it is."""
        return {}

    def step(self) -> bool:
        """Take in the next part of bronze; returns whether there was any.

        Raises:
            ConfigError: the table has other columns, or a file of keys cannot be read.
            StoreError: bronze's log does not reach back, or what is remembered is damaged.
        """
        bronze = self._bronze.open()
        if bronze is None:
            return False
        table = self._silver.open()
        if table is not None and (done := self._maintenance.step(table)):
            print(f"silver: {done}", file=sys.stderr, flush=True)
        start = saved_position(table, str(bronze.metadata().id))
        self.position = start
        end = self._bronze.plan(start, self._config.batch_rows_max)
        if end == start:
            return False
        name = uuid.uuid4()
        step = name.int >> 72
        try:
            files = self._once(start, end, f"part-{name}", step)
        except BaseException:
            # Of several tasks, others than the one that has failed may have written files.
            remove_begun(self._location, f"part-{name}")
            raise
        self._commit(files, start, end, step)
        self.position = end
        return True

    def close(self) -> None:
        """Let go of what is remembered."""
        self._seen.close()

    def _once(self, start: Position, end: Position, batch: str, step: int) -> list[TableFile]:
        """The files of the rows between two positions, without what has come before."""
        written = self._written(start, end, batch)
        table = self._silver.open()
        repeated = self._seen.repeated(
            pa.concat_tables([KEYS.empty_table(), *(_keys(one) for one in written)]),
            step=step,
            made=None if table is None else table.transaction_version(_STEP),
            at_ms=end.time_ms,
            since_ms=end.time_ms - round(1_000 * self._config.duplicate_seconds),
        )
        files = [file for one in written for file in one.files]
        return list(settle(self._location, batch, files, repeated))

    def _written(self, start: Position, end: Position, batch: str) -> list[Written]:
        """What tasks have written of the files between two positions."""
        Readers(self._config.key_files)  # what is wrong with a key is told better here
        files = self._bronze.files_between(start, end)
        gone, holders = (self._bronze.uris(some) for some in self._bronze.files_left(files))
        tasks = [
            Task(
                table=self._location,
                batch=batch,
                files=self._bronze.uris(share),
                gone=gone,
                holders=holders,
                landed_at_ms=end.time_ms,
                key_files=self._config.key_files,
            )
            for share in share_files(files, self._tasks_max)
        ]
        done = self._engine([msgspec.msgpack.encode(one) for one in tasks]) if tasks else []
        return [msgspec.msgpack.decode(one, type=Written) for one in done]

    def _commit(self, files: list[TableFile], start: Position, end: Position, step: int) -> None:
        with committing(self._location):
            table = open_to_write(self._location, _SCHEMA)
            if saved_position(table, end.table) != start:
                # Another process has done the work.
                remove_files(self._location, [one.name for one in files])
                return
            # Some may hold entries that were erased after they were read of bronze.
            files = self._erasures.keep_out(self._location, files)
            numbers = [Transaction(_STEP, step), *end.transactions()]
            told = {"batch": summary("silver", step, files)}
            commit(self._location, table, add_actions(files, data_change=True), numbers, told)


def _keys(written: Written) -> pa.Table:
    return ipc.open_stream(written.keys).read_all()
