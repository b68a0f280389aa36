"""Follows a Delta table: which files its log has added since, version by version.

    bronze = TableLog("data/tables")
    end = bronze.plan(start, rows_max=100_000)
    files = bronze.files_between(start, end)

A first reader gets the whole content of the version that it finds, file by file in the order in
which they were added, then what each later version adds. Versions that only rearrange rows (merged
files) or delete some add nothing: a delete writes the files that it touches anew, but with no row
that was not in the table before. A version that may have changed rows is refused: what was made of
the old ones would stay.

A *position* says how far the log was read. It holds the table's id and no path, so that a table
may be moved; a table that was made anew has another id.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Protocol, cast
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError

from rillnode.codecs.errors import ConfigError, StoreError
from rillnode.node.spark.files import filesystem

TIME_COLUMN: Final = "received_at"
"""The column whose range in a file lets readers skip it."""

ANEW: Final = (
    "Make what depends on this table anew: `rillnode sink pause NAME`, `rillnode pipeline replay "
    "NAME`, `rillnode sink resume NAME`; in an object store remove silver, its checkpoint and gold "
    "in place of the replay"
)
"""What helps where a table can no longer be followed."""
PLACE: Final = ("stream", "partition", "index", "received_at")
"""The columns that tell the rows of bronze apart: of two that agree in all, one is a repeat."""
ERASURE: Final = "rillnode.erasure"
"""As what a version says that rows were erased in it, and a table up to which erasure they were."""
_DELETE: Final = "DELETE"
"""What delta-rs and Spark call a version that rows were deleted in."""


class LogFile(NamedTuple):
    """A file of a table: its path below the table's directory, and what its statistics say.

    Attributes:
        rows: number of rows; 0 where nobody has counted them.
        low: smallest `received_at`, None where it is not known.
        high: largest `received_at`, None where it is not known.
    """

    path: str
    rows: int
    low: datetime | None
    high: datetime | None

    def meets(self, low: datetime, high: datetime) -> bool:
        """Whether the file may hold rows with `low <= received_at <= high`."""
        if self.low is None or self.high is None:
            return True
        return self.low <= high and low <= self.high


class Position(NamedTuple):
    """A position in a table's log.

    Attributes:
        table: the table's id.
        base: version whose whole content came first; -1 before anything was planned.
        version: the last version that was read of.
        files: how many files of `base` were read; later versions are read whole.
        time_ms: when the latest of what was read was committed, ms since 1970; never goes back.
    """

    table: str
    base: int = -1
    version: int = -1
    files: int = 0
    time_ms: int = 0

    def transactions(self) -> list[Transaction]:
        """The position for a commit of a table that is made of the one that was read.

        It becomes true with the rows or not at all, and Delta keeps it when it shortens the log.
        """
        values = self._asdict()
        return [Transaction(f"{self.table}.{name}", values[name]) for name in _NUMBERS]


_NUMBERS: Final = ("base", "version", "files", "time_ms")


class Version(NamedTuple):
    """One version of a table's log.

    Attributes:
        files: the files that it has added rows in.
        time_ms: when it was committed, ms since 1970.
        operation: what it is called in the table's history.
        is_rewrite: it may have changed rows that were in the table before.
        come: paths of all files that rows have come in, or in which they were left.
        gone: paths of files that rows have gone with, or that others have come in the place of.
    """

    files: list[LogFile]
    time_ms: int
    operation: str
    is_rewrite: bool
    come: list[str]
    gone: list[str]


def mark(name: str, text: str) -> Transaction:
    """What a commit leaves under a name to tell whether a text, by its digest, was another."""
    digest = hashlib.blake2b(text.encode(), digest_size=7).digest()
    return Transaction(name, int.from_bytes(digest))


class Numbered(Protocol):
    """A table whose commits leave numbers, such as positions."""

    def transaction_version(self, app_id: str) -> int | None:
        """A number that a commit has left; None where none has."""
        ...


def saved_position(target: Numbered | None, table: str) -> Position:
    """The position in table `table` that `target` has been made up to; its start if none."""
    if target is None:
        return Position(table)
    values = [target.transaction_version(f"{table}.{name}") for name in _NUMBERS]
    return Position(table, *(value for value in values if value is not None))


def sizes(table: DeltaTable) -> dict[str, int]:
    """A table's files and bytes, and when it was committed to last, in ms since 1970."""
    found: list[int] = [file["size_bytes"] for file in added_files(table)]
    committed_ms = int(table.history(1)[0].get("timestamp", 0))
    return {"files": len(found), "bytes": sum(found), "committed_at": committed_ms}


def open_table(location: str) -> DeltaTable | None:
    """The table as of now; None before its first commit.

    Raises:
        ConfigError: the table needs more of its reader than a list of files.
    """
    try:
        table = DeltaTable(location)
    except TableNotFoundError:
        return None
    if table.protocol().min_reader_version > 1:
        text = f"{location} uses features of Delta that need Delta's own reader"
        raise ConfigError("spark.table", text)
    return table


class LiveTable:
    """A table that is kept open, so that a look at it takes no more than what is new in its log.

    Args:
        location: the table's directory or URI.
    """

    def __init__(self, location: str) -> None:
        self._location = location
        self._table: DeltaTable | None = None
        self._version = -1
        self._commit: tuple[int, int] | None = None

    def open(self) -> DeltaTable | None:
        """The table as of now, the same object as long as it is the same table; None without one.

        Raises:
            ConfigError: the table needs more of its reader than a list of files.
        """
        # Whatever fails now, the next look begins anew.
        table, self._table = self._table, None
        if table is not None:
            noted, after = self._commits(self._version, table.version() + 1)
            if noted is None or noted != self._commit:
                table = None  # it was removed, or made anew, or its log was shortened
            elif after is not None:
                table.update_incremental()
        if table is None:
            table = open_table(self._location)
        if table is not None:
            self._version = table.version()
            (self._commit,) = self._commits(self._version)
        self._table = table
        return table

    def _commits(self, *versions: int) -> list[tuple[int, int] | None]:
        """When the commits of some versions were written, and their sizes; None where none is."""
        system, root = filesystem(self._location)
        infos = system.get_file_info([f"{root}/_delta_log/{one:020}.json" for one in versions])
        return [(one.mtime_ns or 0, one.size) if one.is_file else None for one in infos]


class TableLog:
    """A table that another one is made of.

    Args:
        location: the table's directory or URI.
        takes_rewrites: whether versions are read that may have changed rows.

    Attributes:
        location: the same.
        erased_at: the newest version, of those that were read, that rows were erased in; -1 for
            none.
    """

    def __init__(self, location: str, *, takes_rewrites: bool = False) -> None:
        self.location = location
        self.erased_at = -1
        self._takes_rewrites = takes_rewrites
        self._live = LiveTable(location)
        self._table: DeltaTable | None = None
        self._base: tuple[int, list[LogFile]] | None = None

    def open(self) -> DeltaTable | None:
        """The table as of now; None before its first commit."""
        table = self._live.open()
        if table is not self._table:
            self._table, self._base = table, None
        return table

    def plan(
        self, start: Position, rows_max: int | None, version_max: int | None = None
    ) -> Position:
        """The position after the next files: at least one, about `rows_max` rows; `start` if none.

        Args:
            start: where the last ones ended.
            rows_max: number of rows, None for all.
            version_max: the last version to look at, None for the latest.

        Raises:
            ConfigError: the table is another than the position's.
            StoreError: the log does not reach back that far, or rows were rewritten.
        """
        table = self.open()
        if table is None:
            return start
        self._check(start, table)
        start = start._replace(table=str(table.metadata().id))
        latest = table.version() if version_max is None else min(table.version(), version_max)
        if latest < 0:
            return start
        base = start.base if start.base >= 0 else latest
        end = start._replace(base=base, version=max(start.version, base))
        rows = 0
        # Once a later version was read, the base may be gone from the log.
        base_files = self._base_files(base) if end.version == base else []
        while end.files < len(base_files):
            rows += base_files[end.files].rows
            end = end._replace(files=end.files + 1)
            if rows_max is not None and rows >= rows_max:
                return self._timed(end)
        for version in range(end.version + 1, latest + 1):
            files, time_ms = self.added(version)
            rows += sum(file.rows for file in files)
            if rows_max is not None and rows > rows_max and end != start:
                break
            end = end._replace(version=version, time_ms=max(end.time_ms, time_ms))
        return end if end.version > base else self._timed(end)

    def files_between(self, start: Position, end: Position) -> list[LogFile]:
        """The files that were added after `start` and up to `end`, in order.

        Raises:
            ConfigError: the table is another than the positions'.
            StoreError: the log does not reach back that far, or rows were rewritten.
        """
        if start == end:
            return []
        table = self.open()
        if table is None:
            raise _lost(self.location, end.version)
        self._check(end, table)
        found: list[LogFile] = []
        if start.files < end.files:
            found += self._base_files(end.base)[start.files : end.files]
        for version in range(max(start.version, end.base) + 1, end.version + 1):
            found += self.added(version)[0]
        return found

    def files_at(self, end: Position) -> list[LogFile]:
        """All files that hold what lies before `end`, as the table had them then."""
        if end.version < 0:
            return []
        if end.version == end.base:
            return self._base_files(end.base)[: end.files]
        return live_files(self.at(end.version))

    def files_left(self, files: Sequence[LogFile]) -> tuple[list[LogFile], list[LogFile]]:
        """Those of some files that the table no longer has, and the files that have their rows.

        Files are merged, and rows of them deleted, before who follows the log has come to them.
        """
        table = self.open()
        if table is None:
            return list(files), []
        paths = {file["path"] for file in added_files(table)}
        gone = [file for file in files if file.path not in paths]
        live = live_files(table) if gone else []
        return gone, [one for one in live if any(_may_share(one, file) for file in gone)]

    def rows_left_of_base(self, position: Position) -> int:
        """Rows of the version whose whole content comes first that a position does not cover.

        Raises:
            StoreError: the log does not reach back that far.
        """
        if position.base < 0 or position.version > position.base:
            return 0
        return sum(file.rows for file in self._base_files(position.base)[position.files :])

    def added(self, version: int) -> tuple[list[LogFile], int]:
        """The files that one version has added rows in, and its time, ms since 1970.

        Raises:
            StoreError: the log does not reach back that far, or rows were rewritten.
        """
        found = self.version(version)
        if found.is_rewrite and not self._takes_rewrites:
            raise StoreError(
                "spark.log",
                f"version {version} of {self.location} rewrites rows ({found.operation}), and "
                f"what was made of the old ones would stay. {ANEW}",
            )
        return found.files, found.time_ms

    def version(self, version: int) -> Version:
        """What one version of the log says.

        Raises:
            StoreError: the log does not reach back that far.
        """
        system, root = filesystem(self.location)
        try:
            with system.open_input_stream(f"{root}/_delta_log/{version:020}.json") as stream:
                lines = stream.read().splitlines()
        except FileNotFoundError:
            raise _lost(self.location, version) from None
        files: list[LogFile] = []
        removed: list[str] = []
        time_ms, operation, erases = 0, "", False
        for line in lines:
            action: dict[str, dict[str, Any]] = json.loads(line)
            if "add" in action and action["add"].get("dataChange"):
                files.append(_logged_file(action["add"]))
            elif "remove" in action and action["remove"].get("dataChange"):
                removed.append(unquote(action["remove"]["path"]))
            elif "commitInfo" in action:
                time_ms = int(action["commitInfo"].get("timestamp", 0))
                operation = str(action["commitInfo"].get("operation", ""))
                erases = ERASURE in action["commitInfo"]
        if erases:
            self.erased_at = max(self.erased_at, version)
        come = [one.path for one in files]
        if removed and (erases or operation == _DELETE):
            return Version([], time_ms, operation, False, come, removed)
        return Version(files, time_ms, operation, bool(files and removed), come, removed)

    def uris(self, files: Sequence[LogFile]) -> list[str]:
        """Where files lie, for Spark or pyarrow."""
        return [f"{self.location.rstrip('/')}/{file.path}" for file in files]

    def _timed(self, end: Position) -> Position:
        """The position with the time of its base; all of the base came at one time."""
        return end._replace(time_ms=max(end.time_ms, self.version(end.base).time_ms))

    def _check(self, position: Position, table: DeltaTable) -> None:
        if position.table and position.table != str(table.metadata().id):
            raise ConfigError("spark.table", f"the table {self.location} was made anew. {ANEW}")

    def _base_files(self, base: int) -> list[LogFile]:
        if self._base is None or self._base[0] != base:
            self._base = (base, live_files(self.at(base)))
        return list(self._base[1])

    def at(self, version: int) -> DeltaTable:
        """The table as of a version.

        Raises:
            StoreError: the log does not reach back that far.
        """
        try:
            return DeltaTable(self.location, version=version)
        except (DeltaError, OSError) as error:
            raise _lost(self.location, version) from error


def added_files(table: DeltaTable) -> list[dict[str, Any]]:
    """A table's files, as `get_add_actions` has them, with their paths as they are."""
    files: list[dict[str, Any]] = pa.table(table.get_add_actions()).to_pylist()
    return [{**one, "path": unquote(one["path"])} for one in files]


def arrow_schema_of(table: DeltaTable) -> pa.Schema:
    """A table's columns as an Arrow schema."""
    return pa.schema(table.schema().to_arrow())


def file_schema_of(table: DeltaTable) -> pa.Schema:
    """The columns of a table that its files have: those that it is not partitioned by."""
    parted = table.metadata().partition_columns
    return pa.schema([one for one in arrow_schema_of(table) if one.name not in parted])


def live_files(table: DeltaTable, time_column: str = TIME_COLUMN) -> list[LogFile]:
    """The files of a version in the order in which they were added."""
    rows = added_files(table)
    rows.sort(key=lambda row: (row["modification_time"], row["path"]))
    return [
        LogFile(
            row["path"],
            row.get("num_records") or 0,
            _bound(row, "min", time_column),
            _bound(row, "max", time_column),
        )
        for row in rows
    ]


def _may_share(one: LogFile, other: LogFile) -> bool:
    """Whether two files may hold the same row."""
    return other.low is None or other.high is None or one.meets(other.low, other.high)


def _logged_file(add: Mapping[str, Any]) -> LogFile:
    stats: dict[str, Any] = json.loads(add.get("stats") or "{}")
    low, high = (_bound(stats, name, TIME_COLUMN) for name in ("minValues", "maxValues"))
    return LogFile(unquote(add["path"]), stats.get("numRecords") or 0, low, high)


def _bound(stats: Mapping[str, Any], name: str, column: str) -> datetime | None:
    """One end of a column's range, where it is known: a text in the log, a time elsewhere."""
    value = cast("dict[str, Any]", stats.get(name) or {}).get(column)
    if isinstance(value, str):
        return datetime.fromisoformat(value).astimezone(UTC)
    return cast("datetime | None", value)


def _lost(location: str, version: int) -> StoreError:
    return StoreError(
        "spark.log",
        f"the log of {location} no longer has version {version}: what depends on the table was "
        f"stopped for too long. {ANEW}",
    )
