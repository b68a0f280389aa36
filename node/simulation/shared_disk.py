"""A machine whose node keeps its streams in a log that all nodes share, and that log's servers."""

from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Final

from rillnode.actors.log import (
    Complete,
    ListIndexes,
    ListStreams,
    LogStore,
    OnHealth,
    ReadExtents,
    ReadOperation,
    logs_of,
)
from rillnode.actors.log.shared.applying import ApplyFrame
from rillnode.actors.log.shared.frames import FrameError, checksum_of, decode_frame
from rillnode.actors.log.shared.memory_log import LogFaults, MemoryLog, MemoryServers
from rillnode.actors.log.shared.memory_view import MemoryView, ViewTables
from rillnode.actors.log.shared.placement import CATALOGUE, Placement
from rillnode.actors.log.shared.shard import SharedOptions, View
from rillnode.actors.log.shared.store import SharedLogStore
from rillnode.actors.ports import Clock
from rillnode.node.simulation.disk import Disk
from rillnode.node.simulation.loop import ProcessLoop
from rillnode.node.simulation.scenario import DiskTable, FaultKind, StoreTable
from rillnode.node.stores import places

SLOW_FACTOR: Final = 40.0
"""How much longer answers of the servers take, at most."""

UNANSWERED_MAX: Final = 10
DELAYED_MAX: Final = 5
"""Frames that such a fault strikes, at most."""

_ANSWER_SIGMA: Final = 0.3

_RETRY_SECONDS: Final = 0.25
_SNAPSHOT_SECONDS: Final = 1.0


class SharedServers(MemoryServers):
    """The servers of a log that all nodes of a run share; they lose nothing.

    They keep what was trimmed for the oracle: views of its own, on which all frames are carried
    out in their order.
    """

    def __init__(self, identity: bytes) -> None:
        super().__init__(identity)
        self._frames: dict[int, list[bytes]] = {}
        self._views: dict[int, ViewTables] = {}

    def store(self, shard: int, data: bytes) -> int:
        """Store a frame."""
        self._frames.setdefault(shard, []).append(data)
        return super().store(shard, data)

    @property
    def placement(self) -> Placement:
        """Where names lie."""
        return Placement(len(self.shards), places())

    def oracle(self, shard: int) -> ViewTables:
        """What a view is that has all frames of a shard."""
        tables = self._views.get(shard)
        if tables is None:
            tables = self._views[shard] = ViewTables(shard, len(self.shards))
        frames = self._frames.get(shard, [])
        for at in range(tables.applier.progress.sequence, len(frames)):
            tables.apply(_frame(at + 1, frames[at]))
        return tables

    def look(self, operation: ReadOperation) -> None:
        """Answer a read out of what the servers have."""
        if not self.shards:
            return  # nothing was ever stored
        match operation:
            case ListIndexes(stream=""):
                self._list_indexes(operation)
            case ListStreams():
                self._list_streams(operation)
            case ReadExtents(logs=logs):
                operation.extents = [self._extents([log])[0] for log in logs]
            case _:
                shard = self.placement.of_read(operation)
                assert shard is not None, "all others are of one"
                self.oracle(shard).answer(operation)

    def _extents(self, logs: list[int]) -> Any:
        extents = ReadExtents(logs=logs)
        self.oracle(self.placement.of_log(logs[0])).answer(extents)
        return extents.extents

    def _list_streams(self, operation: ListStreams) -> None:
        page = ListStreams(after=operation.after, prefix=operation.prefix, limit=operation.limit)
        self.oracle(CATALOGUE).answer(page)
        for record in page.records:
            logs = list(logs_of(record.id, record.partitions))
            operation.take(record, [] if operation.names_only else self._extents(logs))
        operation.more = page.more

    def _list_indexes(self, operation: ListIndexes) -> None:
        for shard in range(len(self.shards)):
            page = ListIndexes(after=operation.after, limit=operation.limit)
            self.oracle(shard).answer(page)
            operation.indexes += page.indexes
        operation.indexes = sorted(operation.indexes)[: operation.limit]


def _frame(sequence: int, data: bytes) -> ApplyFrame:
    frame = ApplyFrame(sequence=sequence, checksum=checksum_of(data))
    try:
        contents = frame.contents = decode_frame(data)
    except FrameError:
        return frame
    frame.operations = contents.operations
    return frame


class _View(MemoryView):
    """One that takes as long over a frame as a disk does."""

    sync_seconds: Callable[[], float]

    def apply(self, frame: ApplyFrame) -> None:
        """Queue a frame."""
        self.faults.sync_seconds = self.sync_seconds()
        super().apply(frame)


class SharedDisk(Disk):
    """With views in memory, which are gone with their process, of a log that is elsewhere.

    Attributes:
        store: of the last process.
    """

    store: SharedLogStore

    def __init__(
        self,
        table: DiskTable,
        make_random: Callable[[], Random],
        servers: SharedServers,
        options: StoreTable,
        directory: Path,
        *,
        answer_seconds: float,
    ) -> None:
        super().__init__(table, make_random)
        self._servers = servers
        self._options = SharedOptions(
            shards=options.shards,
            frame_bytes_max=options.frame_bytes,
            patience_seconds=options.patience_seconds,
            retry_seconds=_RETRY_SECONDS,
            idle_seconds=options.idle_seconds,
            late_frames=options.late_frames,
            snapshot_bytes=options.snapshot_bytes,
            snapshot_seconds=_SNAPSHOT_SECONDS,
        )
        self._directory = directory
        self._answer_seconds = answer_seconds
        self._log_slow = 1.0
        self._log_faults = LogFaults(seconds=self._seconds)
        self._logs: list[MemoryLog] = []
        self._lives = count()

    def _seconds(self) -> float:
        slow = self._log_slow
        return self._answer_seconds * slow * self.random.lognormvariate(0.0, _ANSWER_SIGMA)

    def make_store(
        self, loop: ProcessLoop, clock: Clock, complete: Complete, on_health: OnHealth
    ) -> LogStore:
        """The store, for a process that begins."""
        log = MemoryLog(self._servers, self._log_faults)
        self._logs.append(log)

        def make_view(path: Path, identity: bytes, shard: int, shards: int, **calls: Any) -> View:
            del identity
            view = _View(
                path, shard, shards, post=loop.call_soon, clock=clock, faults=self.faults, **calls
            )
            view.sync_seconds = self.sync_seconds
            return view

        store = self.store = SharedLogStore(
            log,
            log,
            self._directory / str(next(self._lives)),
            make_view,
            entropy=self.random.randbytes,
            now_ms=clock.now_ms,
            complete=complete,
            on_health=on_health,
            loop=loop,
            options=self._options,
            places=places(),
        )
        return store

    def crash(self) -> None:
        """The process ends: the servers have no such client any more."""
        self._servers.clients.pop(self._logs[-1], None)

    def replace(self) -> bool:
        """A new disk, which changes nothing: a process begins without views anyway."""
        return False

    def look(self, operation: ReadOperation) -> None:
        """Answer a read out of what the servers have."""
        self._servers.look(operation)

    @property
    def durable_bytes(self) -> int:
        """Views are in memory."""
        return 0

    def harm_log(self, kind: FaultKind, strength: float) -> None:
        """Begin a fault of the link to the servers."""
        faults = self._log_faults
        match kind:
            case "log_cut":
                faults.is_cut = True
            case "log_slow":
                self._log_slow = 1.0 + (SLOW_FACTOR - 1.0) * strength
            case "log_unanswered":
                frames = 1 + int(UNANSWERED_MAX * strength)
                faults.lost, faults.late = frames // 2, frames - frames // 2
            case _:
                faults.delayed = 1 + int(DELAYED_MAX * strength)

    def heal_log(self) -> None:
        """End all faults of that link, and store what was delayed."""
        faults = self._log_faults
        faults.is_cut, self._log_slow = False, 1.0
        faults.lost = faults.late = faults.delayed = 0
        for log in self._logs:
            log.deliver()
