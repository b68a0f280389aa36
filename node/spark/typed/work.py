"""The work of one task of a typed table: files of bronze in, files of the table and rejects out.

Work and outcome are JSON, so that any process may do it: a Spark task, the job's own process for
what is too little to be worth one, or a process without Spark.
"""

import datetime
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rillnode.actors.core.patterns import matcher
from rillnode.node.spark.bronze import read_file, read_rest
from rillnode.node.spark.files import filesystem
from rillnode.node.spark.parquet import ROW_GROUP_BYTES, TableFile, write_files, write_parted
from rillnode.node.spark.typed.arrays import OWN_NAMES
from rillnode.node.spark.typed.columns import Columns, merge_new, read_columns, written_columns
from rillnode.node.spark.typed.decode import Lander, Plan
from rillnode.node.spark.typed.judging import EXPIRED, LATE, Unexpected, summed
from rillnode.node.spark.typed.layout import PLAIN
from rillnode.node.spark.typed.store import Place
from rillnode.node.spark.typed.times import timed

Engine = Callable[[Sequence[bytes]], list[bytes]]
"""Does all of some work, whatever runs it; the outcomes are in the same order."""

_LANDERS_MAX: Final = 64


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """The work of one task.

    Attributes:
        plan: how entries are landed.
        streams: patterns of the streams that are landed.
        files: files of bronze, as URIs.
        gone: those of the files that bronze no longer has.
        holders: the files that have what is left of their rows.
        table: where files of the table go.
        rejects: where files of the rejects go.
        retried: whether the files are those of rejects, that are landed again.
    """

    plan: Plan | None = None
    streams: tuple[str, ...]
    files: tuple[str, ...]
    gone: tuple[str, ...] = ()
    holders: tuple[str, ...] = ()
    table: Place = Place(directory="")
    rejects: Place = Place(directory="")
    retried: bool = False


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a task.

    Attributes:
        files: files of the table.
        rejects: files of the rejects.
        found: columns that entries have and the schema has not, as in TOML.
        wide: paths of columns of whole numbers in which there are others.
        pause: why the table has to wait for people; empty where it need not.
        reject: what is wrong with the first entry that does not fit, with its place.
        unexpected: how many rows did not meet an expectation.
        counts: how many rows were late, and how many entries were too old.
    """

    files: list[dict[str, Any]] = []
    rejects: list[dict[str, Any]] = []
    found: dict[str, Any] = {}
    wide: list[list[str]] = []
    pause: str = ""
    reject: str = ""
    unexpected: Unexpected = {}
    counts: dict[str, int] = {}

    @property
    def unsettled(self) -> bool:
        """Whether entries wait for the table to take in what was found."""
        return bool(self.found or self.wide)


def table_files(files: Sequence[dict[str, Any]]) -> list[TableFile]:
    """Files as an outcome names them."""
    return [TableFile(**one) for one in files]


def in_process(works: Sequence[bytes]) -> list[bytes]:
    """The engine that does all work here."""
    return [do(one) for one in works]


def do(work: bytes) -> bytes:
    """Do some work; the files are durable when its outcome is there.

    Raises:
        ConfigError: the schema does not load here.
        StoreError: a file of bronze is gone for good.
    """
    return msgspec.json.encode(_Landing(msgspec.json.decode(work, type=Work)).outcome())


@lru_cache(_LANDERS_MAX)
def _lander(plan: bytes) -> Lander:
    return Lander(msgspec.json.decode(plan, type=Plan))


class _Landing:
    def __init__(self, work: Work) -> None:
        self._work = work
        self._lander = _lander(msgspec.json.encode(work.plan))
        self._matches = [matcher(one) for one in work.streams]
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._rejects: list[TableFile] = []
        self._found: Columns = ()
        self._wide: set[tuple[str, ...]] = set()
        self._pause = self._reject = ""
        self._unexpected: Unexpected = {}
        self._layout = PLAIN if work.plan is None else work.plan.layout
        self._counts: Counter[str] = Counter()

    def outcome(self) -> Outcome:
        place = self._work.table
        # What is to be merged by key is not parted yet.
        parted = [] if self._layout.key else [one.name for one in self._layout.partitions]
        written = write_parted(place.directory, self._batches(), parted, place.ids)
        files = [asdict(one) for one in written]
        self._flush()
        return Outcome(
            files=files,
            rejects=[asdict(one) for one in self._rejects],
            found=written_columns(self._found),
            wide=[list(one) for one in sorted(self._wide)],
            pause=self._pause,
            reject=self._reject,
            unexpected=self._unexpected,
            counts=dict(self._counts),
        )

    def _batches(self) -> Iterator[pa.RecordBatch]:
        now = datetime.datetime.now(datetime.UTC)
        for rows in self._rows():
            landed = self._lander.land(rows, now)
            self._found = merge_new(self._found, landed.found.columns)
            self._wide |= landed.found.wide
            self._pause = self._pause or landed.pause
            self._unexpected = summed([self._unexpected, landed.unexpected])
            if landed.rejects.num_rows:
                self._reject = self._reject or _first(landed.rejects)
                self._hold(landed.rejects)
            found = timed(landed.rows, self._layout, now)
            self._counts.update({LATE: found.late, EXPIRED: found.expired})
            yield self._lander.marker.mark(found.rows)

    def _rows(self) -> Iterator[pa.RecordBatch]:
        gone = frozenset(self._work.gone)
        for uri in self._work.files:
            if not self._may_have(uri):
                continue
            file = read_rest(uri, self._work.holders) if uri in gone else read_file(uri)
            for read in file:
                rows = self._chosen(_entries(read) if self._work.retried else read)
                if rows.num_rows:
                    yield rows

    def _may_have(self, uri: str) -> bool:
        """Whether a file may hold streams of the table's; one that is gone is read anyway."""
        if self._work.retried or any(
            sign in pattern for pattern in self._work.streams for sign in "*?"
        ):
            return True
        system, path = filesystem(uri)
        try:
            with pq.ParquetFile(path, filesystem=system) as parquet:
                at = parquet.schema_arrow.get_field_index("stream")
                groups = range(parquet.metadata.num_row_groups)
                ranges = [parquet.metadata.row_group(one).column(at).statistics for one in groups]
        except FileNotFoundError:
            return True
        return any(
            one is None or not one.has_min_max or one.min <= name <= one.max
            for one in ranges
            for name in self._work.streams
        )

    def _chosen(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of the table's streams."""
        streams = rows.column("stream")
        names: list[str] = pc.unique(streams).to_pylist()
        mine = [name for name in names if any(one(name) for one in self._matches)]
        if len(mine) == len(names):
            return rows
        return rows.filter(pc.is_in(streams, value_set=pa.array(mine, pa.string())))

    def _hold(self, rejects: pa.RecordBatch) -> None:
        self._held.append(rejects)
        self._held_bytes += rejects.nbytes
        if self._held_bytes >= ROW_GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        place = self._work.rejects
        self._rejects += write_files(place.directory, self._held, place.ids)
        self._held, self._held_bytes = [], 0


def _entries(rejects: pa.RecordBatch) -> pa.RecordBatch:
    """Rejects as the rows of bronze that they were made of."""
    names = [OWN_NAMES.get(one, one).removeprefix("_") for one in rejects.schema.names]
    return pa.RecordBatch.from_arrays(rejects.columns, names=names)


def _first(rejects: pa.RecordBatch) -> str:
    one = rejects.slice(0, 1).to_pylist()[0]
    return f"the entry {one['_stream']}/{one['_partition']}/{one['_index']}: {one['reason']}"


def merged_found(outcomes: Sequence[Outcome]) -> Columns:
    """The columns that the entries of several tasks have and the schema has not."""
    found: Columns = ()
    for one in outcomes:
        if one.found:
            found = merge_new(found, read_columns(one.found))
    return found
