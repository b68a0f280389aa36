"""RocksDB as the store uses it: opened with our options, written in slices, synced, closed.

The binding (rocksdict) holds Python's interpreter lock in every call but `flush_wal`, `flush`,
`compact_range` and `close`. A synced write would therefore stop the event loop for as long as the
disk takes. So a write only fills memory (`manual_wal_flush`), and `sync` hands the log to the disk
with the lock released; what a write holds is bounded by the slices its caller makes, and it does
not wait where RocksDB would (`no_slowdown`): it is repeated after a pause.
"""

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, NamedTuple

from rocksdict import (
    AccessType,
    Cache,
    Checkpoint,
    ColumnFamily,
    Env,
    Options,
    Rdict,
    RdictIter,
    WriteBatch,
    WriteOptions,
)

from rillnode.actors.log.rocks.current import CURRENT, use_earlier_manifest
from rillnode.codecs.errors import StoreError
from rillnode.codecs.events import event_logger

logger = event_logger("rillnode.actors.log")

BLOCKS: Final = "blocks"
KEYS: Final = "keys"
RECORDS: Final = "default"

_SPARE_BYTES: Final = 16_777_216
"""Room beyond its log that a full store needs before it is worth opening it again."""

STALL_SECONDS_MAX: Final = 30.0
_STALL_PAUSE_SECONDS: Final = 0.002


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Sizes of a store; the defaults suit a node of a few cores.

    Attributes:
        group_bytes_max: appends that share one sync; bounds latency and what a failure undoes.
        slice_bytes_max: appends that are put into memory in one call, which holds the
            interpreter for about 1 ms per MiB.
        memtable_bytes: entries kept in memory before a table is written; up to three of them.
        wal_bytes_max: log that is replayed at a start after a crash.
        cache_bytes: RocksDB's own cache; larger reads rely on the operating system's.
        tail_bytes_max: recently appended blocks kept for readers.
        logs_max: logs whose ends are kept in memory as they are used, where several producers have
            appended (twice as many at most, 200 bytes each, and 700 for a producer).
        packed_bytes_max: ends of further logs, packed: 200 bytes each, and 70 for a producer.
        readers: reader threads. Two, so that a look-up does not wait for a long range read.
        reads_max: reads that may wait for them.
        compression: of tables on disk.
        repair_seconds_min: first pause before a failed store is reopened; doubled up to the next.
        repair_seconds_max: longest pause.
    """

    group_bytes_max: int = 8_388_608
    slice_bytes_max: int = 1_048_576
    memtable_bytes: int = 67_108_864
    wal_bytes_max: int = 268_435_456
    cache_bytes: int = 33_554_432
    tail_bytes_max: int = 33_554_432
    logs_max: int = 8_192
    packed_bytes_max: int = 67_108_864
    readers: int = 2
    reads_max: int = 10_000
    compression: Literal["none", "lz4", "zstd"] = "none"
    repair_seconds_min: float = 0.1
    repair_seconds_max: float = 5.0


class Cursors(NamedTuple):
    """A view of the whole store at one moment: an iterator over each column family."""

    blocks: RdictIter
    keys: RdictIter
    records: RdictIter


@dataclass(slots=True)
class Changes:
    """The changes of one write: `ranges` are deleted first, then `puts` apply in order."""

    ranges: list[tuple[bytes, bytes, ColumnFamily]] = field(
        default_factory=list[tuple[bytes, bytes, ColumnFamily]]
    )
    puts: list[tuple[bytes, bytes | None, ColumnFamily]] = field(
        default_factory=list[tuple[bytes, bytes | None, ColumnFamily]]
    )


class Tables:
    """An open database. Not for use by several threads, but for `cursors`.

    Read only, nothing of it is changed, and nobody else is kept from it.
    """

    def __init__(self, path: Path, tuning: Tuning, *, read_only: bool = False) -> None:
        self._path = path
        self._records = _open_to_read(path, tuning) if read_only else _open(path, tuning)
        self._blocks = self._records.get_column_family(BLOCKS)
        self._keys = self._records.get_column_family(KEYS)
        self.blocks = self._records.get_column_family_handle(BLOCKS)
        self.keys = self._records.get_column_family_handle(KEYS)
        self.records = self._records.get_column_family_handle(RECORDS)
        self._no_wait = WriteOptions()
        self._no_wait.no_slowdown = True

    def cursors(self) -> Cursors:
        """Everything written so far, synced or not."""
        return Cursors(self._blocks.iter(), self._keys.iter(), self._records.iter())

    def blocks_cursor(self) -> RdictIter:
        """The blocks written so far, synced or not."""
        return self._blocks.iter()

    def records_cursor(self) -> RdictIter:
        """Likewise the small values."""
        return self._records.iter()

    def record(self, key: bytes) -> bytes | None:
        """A small value as written last, synced or not."""
        value: bytes | None = self._records.get(key)
        return value

    def write(self, changes: Changes) -> None:
        """Apply changes in memory, whole or not at all; `sync` makes them durable."""
        deadline = time.monotonic() + STALL_SECONDS_MAX
        while True:
            try:
                self._records.write(_batch(changes), self._no_wait)
                return
            except Exception as error:
                if "Write stall" not in str(error) or time.monotonic() > deadline:
                    raise
            time.sleep(_STALL_PAUSE_SECONDS)

    def sync(self) -> None:
        """Return once everything written would survive a power cut."""
        self._records.flush_wal(sync=True)

    def flush_all(self) -> None:
        """Begin to write all that is in memory as tables, which frees it; does not wait."""
        for family in (self._blocks, self._keys, self._records):
            family.flush(wait=False)

    def flush_blocks(self) -> None:
        """Begin to write the blocks in memory, and what was deleted, as a table; does not wait."""
        self._blocks.flush(wait=False)

    def checkpoint(self, path: Path) -> None:
        """Make a second database of all that was written, where no file of that name is yet.

        What cannot change any more is linked, not copied, on the same file system. The path is
        there whole or not at all, also after a power cut.
        """
        # First, with the interpreter's lock released; the checkpoint has little left to write.
        for family in (self._blocks, self._keys, self._records):
            family.flush(wait=True)
        Checkpoint(self._records).create_checkpoint(str(path))

    def has_room(self) -> bool:
        """Whether the disk would take what opening it anew writes: its log, as tables."""
        probe = self._path / "probe.tmp"
        try:
            needed = sum(log.stat().st_size for log in self._path.glob("*.log")) + _SPARE_BYTES
            with probe.open("wb") as file:
                try:
                    os.posix_fallocate(file.fileno(), 0, needed)
                    os.fsync(file.fileno())
                finally:
                    probe.unlink()
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Write out what is in memory and let the files go; never raises."""
        for family in (self._blocks, self._keys, self._records):
            try:
                family.close()
            except Exception as error:
                # Nothing is lost: what was confirmed is in the write-ahead log.
                logger.warning("store_close_failed", extra={"reason": str(error)})
        # Handles keep the database open.
        del self.blocks, self.keys, self.records


OpenTables = Callable[[Path, Tuning], Tables]


def open_error(path: Path, error: Exception) -> StoreError:
    """Say what an error on opening means to the operator."""
    text = getattr(error, "strerror", None) or str(error)  # of RocksDB, or of the system
    if "LOCK" in text and ("lock hold" in text or "temporarily unavailable" in text):
        return StoreError(
            "store.locked",
            f"the store in {path} is in use: stop the node that has it, or give this one its "
            "own data_dir",
            retryable=False,
            path=str(path),
        )
    if is_full(text):
        wanted = f"the disk of {path} is full: free space on it first"
        return StoreError("store.full", wanted, path=str(path))
    return StoreError(
        "store.unreadable",
        f"the store in {path} cannot be opened ({text}): check the directory's permissions and "
        "disk, or restore it from a backup",
        retryable=False,
        path=str(path),
    )


def is_full(text: str) -> bool:
    """Whether a RocksDB or system error says that there is no room."""
    return any(
        sign in text for sign in ("No space left", "File too large", "quota exceeded", "NoSpace")
    )


def full_error(path: Path) -> StoreError:
    """There is no room on the disk."""
    return StoreError(
        "store.full",
        f"the disk of {path} is full: free space on it; the store takes writes again by itself",
        path=str(path),
    )


def _batch(changes: Changes) -> WriteBatch:
    batch = WriteBatch(raw_mode=True)
    for begin, end, family in changes.ranges:
        batch.delete_range(begin, end, family)
    put = batch.put
    for key, value, family in changes.puts:
        if value is None:
            batch.delete(key, family)
        else:
            put(key, value, family)
    return batch


def _open(path: Path, tuning: Tuning) -> Rdict:
    while True:
        try:
            return _open_as_it_is(path, tuning)
        except Exception as error:
            # What a power cut in the midst of opening may leave.
            if "No such file" not in str(error) or not use_earlier_manifest(path):
                raise open_error(path, error) from error


def _open_as_it_is(path: Path, tuning: Tuning) -> Rdict:
    return Rdict(str(path), *_options_for(path, tuning))


def _open_to_read(path: Path, tuning: Tuning) -> Rdict:
    try:
        options = _options_for(path, tuning)
        return Rdict(str(path), *options, access_type=AccessType.read_only())
    except Exception as error:
        raise open_error(path, error) from error


def _options_for(path: Path, tuning: Tuning) -> tuple[Options, dict[str, Options]]:
    database, families = _options(tuning)
    if (path / CURRENT).exists():
        # Every column family must be opened, those of another version too.
        for name in Rdict.list_cf(str(path)):
            families.setdefault(name, Options(raw_mode=True))
    return database, families


# Options -------------------------------------------------------------------------------------

_OPTIONS_FILE: Final = """\
[Version]
  rocksdb_version=9.0.0
  options_file_version=1.1
[DBOptions]
  create_if_missing=true
  create_missing_column_families=true
  manual_wal_flush=true
  recycle_log_file_num=4
  wal_recovery_mode=kPointInTimeRecovery
  track_and_verify_wals_in_manifest=true
  writable_file_max_buffer_size={buffer_bytes}
  max_total_wal_size={wal_bytes}
  allow_concurrent_memtable_write=false
  max_background_jobs=2
  bytes_per_sync=1048576
  max_open_files=256
  keep_log_file_num=2
  max_log_file_size=4194304
  max_manifest_file_size=67108864
  stats_dump_period_sec=0
  stats_persist_period_sec=0
"""
"""RocksDB's own options file, because the binding has no setter for the most important of them,
`manual_wal_flush`. Writes either go at full speed or stop: a slowdown would be waited for with the
interpreter held. Level 0 may grow to 2.5 GB, which takes up bursts. Recycled logs are overwritten
in place, so that a sync need not make the file longer, which takes the file system's journal."""

_FAMILY: Final = """\
[CFOptions "{name}"]
  write_buffer_size={memtable_bytes}
  max_write_buffer_number=3
  memtable_max_range_deletions=1000
  compression={compression}
  level0_file_num_compaction_trigger={level0_files}
  level0_slowdown_writes_trigger=40
  level0_stop_writes_trigger=40
  soft_pending_compaction_bytes_limit=0
  hard_pending_compaction_bytes_limit=0
  max_bytes_for_level_base={level_bytes}
  target_file_size_base={file_bytes}
[TableOptions/BlockBasedTable "{name}"]
  block_size=16384
  format_version=6
  filter_policy={filter}
"""
"""A column family in that file."""

_COMPRESSION = {"none": "kNoCompression", "lz4": "kLZ4Compression", "zstd": "kZSTD"}


def _options(tuning: Tuning) -> tuple[Options, dict[str, Options]]:
    """The options of the database and of each column family."""
    small = min(tuning.memtable_bytes, 16_777_216)
    text = _OPTIONS_FILE.format(
        # A whole group and its framing stay in memory until `sync`.
        buffer_bytes=2 * tuning.group_bytes_max,
        wal_bytes=tuning.wal_bytes_max,
    )
    text += _family(RECORDS, tuning, small, level0_files=4, bloom=True)
    text += _family(BLOCKS, tuning, tuning.memtable_bytes, level0_files=8, bloom=False)
    text += _family(KEYS, tuning, small, level0_files=4, bloom=False)
    with tempfile.TemporaryDirectory(prefix="rillnode-") as directory:
        Path(directory, "OPTIONS-000001").write_text(text)
        return Options.load_latest(
            directory, env=Env(), ignore_unknown_options=True, cache=Cache(tuning.cache_bytes)
        )


def _family(
    name: str, tuning: Tuning, memtable_bytes: int, *, level0_files: int, bloom: bool
) -> str:
    """The options of a column family."""
    return _FAMILY.format(
        name=name,
        memtable_bytes=memtable_bytes,
        compression=_COMPRESSION[tuning.compression],
        level0_files=level0_files,
        level_bytes=8 * memtable_bytes,
        file_bytes=2 * memtable_bytes,
        filter="bloomfilter:10:false" if bloom else "nullptr",
    )
