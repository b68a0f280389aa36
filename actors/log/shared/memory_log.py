"""An engine in memory, for tests and simulations: servers that many stores append to.

Calls are answered after a time that its user gives, on whatever clock the loop has.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rillnode.actors.log.shared.port import Blob, Frame, Heard, LogLost, Opened, Span
from rillnode.codecs.errors import StoreError

FRAME_BYTES_MAX: Final = 1_048_576

ENDS_SECONDS: Final = 1.0
"""How often each client is told of the ends of all shards."""


@dataclass(slots=True)
class _Shard:
    frames: list[bytes] = field(default_factory=list[bytes])
    trimmed: int = 0

    @property
    def last(self) -> int:
        return self.trimmed + len(self.frames)


class MemoryServers:
    """The kept frames, and who is told of them.

    Attributes:
        shards: the logs.
        blobs: by name.
        damaged: names of those whose bytes are others than were put, as far as clients can tell.
        identity: drawn once.
        clients: those that are connected.
    """

    def __init__(self, identity: bytes) -> None:
        self.identity = identity
        self.shards: list[_Shard] = []
        self.blobs: dict[str, bytes] = {}
        self.damaged: set[str] = set()
        self.clients: dict[MemoryLog, None] = {}

    def store(self, shard: int, data: bytes) -> int:
        """Store a frame."""
        log = self.shards[shard]
        log.frames.append(data)
        return log.last

    def trim(self, shard: int, before: int) -> None:
        """Drop frames."""
        log = self.shards[shard]
        drop = min(before - 1 - log.trimmed, len(log.frames))
        if drop > 0:
            del log.frames[:drop]
            log.trimmed += drop


@dataclass(slots=True, kw_only=True)
class LogFaults:
    """The servers' behaviour toward one client; may be changed at any time.

    Attributes:
        is_cut: nothing comes through.
        lost: so many of the next frames are lost.
        late: so many of the next frames are stored, and nobody is told.
        delayed: so many of the next frames are stored only when `deliver` is called.
        seconds: what an answer takes.
    """

    is_cut: bool = False
    lost: int = 0
    late: int = 0
    delayed: int = 0
    seconds: Callable[[], float] = lambda: 0.0


class MemoryLog:
    """A client of the servers: a SharedLog, and Blobs."""

    def __init__(self, servers: MemoryServers, faults: LogFaults | None = None) -> None:
        self.faults = faults or LogFaults()
        self._servers = servers
        self._delayed: list[tuple[int, bytes]] = []
        self._is_open = False
        self._loop: asyncio.AbstractEventLoop
        self._heard: Heard
        self._ends: asyncio.TimerHandle

    @property
    def frame_bytes_max(self) -> int:
        """The largest frame that is taken."""
        return FRAME_BYTES_MAX

    async def open(self, shards: int, heard: Heard) -> Opened:
        """Connect; see the port."""
        self._is_open = True
        await self._answer()
        servers = self._servers
        if not servers.shards:
            servers.shards = [_Shard() for _ in range(shards)]
        self._loop, self._heard = asyncio.get_running_loop(), heard
        servers.clients[self] = None
        self._tell_ends()
        return Opened(servers.identity, len(servers.shards))

    async def close(self) -> None:
        """Let go."""
        self._is_open = False
        if self in self._servers.clients:
            del self._servers.clients[self]
            self._ends.cancel()

    async def append(self, shard: int, data: bytes) -> int:
        """Store a frame now, and say so after a while."""
        self._check()
        if len(data) > FRAME_BYTES_MAX:
            raise StoreError("store.too_large", f"a frame has at most {FRAME_BYTES_MAX} bytes")
        faults = self.faults
        if faults.lost:
            faults.lost -= 1
            await self._answer()
            raise LogLost("lost")
        if faults.delayed:
            faults.delayed -= 1
            self._delayed.append((shard, data))
            await self._answer()
            raise LogLost("delayed")
        sequence = self._store(shard, data)
        late = faults.late
        faults.late = max(0, late - 1)
        await self._answer()
        if late:
            raise LogLost("late")
        return sequence

    def deliver(self) -> None:
        """Store what was delayed."""
        delayed, self._delayed = self._delayed, []
        for shard, data in delayed:
            self._store(shard, data)

    async def read(self, shard: int, after: int, bytes_max: int) -> Sequence[Frame]:
        """The frames after a sequence."""
        await self._answer()
        log = self._servers.shards[shard]
        found: list[Frame] = []
        size = 0
        for at in range(max(after - log.trimmed, 0), len(log.frames)):
            data = log.frames[at]
            size += len(data)
            if found and size > bytes_max:
                break
            found.append(Frame(log.trimmed + at + 1, data))
        return found

    async def span(self, shard: int) -> Span:
        """What is kept."""
        await self._answer()
        log = self._servers.shards[shard]
        return Span(log.trimmed + 1, log.last)

    async def trim(self, shard: int, before: int) -> None:
        """Drop frames."""
        await self._answer()
        self._servers.trim(shard, before)

    def describe(self) -> Mapping[str, Any]:
        """The engine's state for people."""
        connected = self._is_open and not self.faults.is_cut
        return {"engine": "memory", "connected": connected, "unsynced": ""}

    # Blobs -----------------------------------------------------------------------------------

    async def put(self, name: str, path: Path) -> None:
        """Store a file."""
        data = path.read_bytes()
        for _ in range(0, max(len(data), 1), FRAME_BYTES_MAX):  # it goes in parts
            await self._answer()
        self._servers.blobs[name] = data
        self._servers.damaged.discard(name)

    async def get(self, name: str, path: Path) -> None:
        """Write a blob to a file."""
        await self._answer()
        data = self._servers.blobs.get(name)
        if data is None:
            raise StoreError("store.unknown", f"there is no blob {name}", retryable=False)
        if name in self._servers.damaged:
            raise StoreError("store.corrupt", f"the blob {name} is damaged", retryable=False)
        with path.open("xb") as file:
            file.write(data)

    async def list(self, prefix: str) -> Sequence[Blob]:
        """All blobs whose names begin so."""
        await self._answer()
        blobs = sorted(self._servers.blobs.items())
        return [Blob(name, len(data)) for name, data in blobs if name.startswith(prefix)]

    async def delete(self, name: str) -> None:
        """Remove a blob."""
        await self._answer()
        self._servers.blobs.pop(name, None)

    # The connection --------------------------------------------------------------------------

    def _store(self, shard: int, data: bytes) -> int:
        servers = self._servers
        sequence = servers.store(shard, data)
        for client in servers.clients:
            if client is not self:
                client.hear(shard, sequence)
        return sequence

    def hear(self, shard: int, sequence: int) -> None:
        """Be told of what another client has stored; that may be on another loop."""
        if not self.faults.is_cut:
            self._loop.call_soon_threadsafe(self._hear, shard, sequence)

    def _hear(self, shard: int, sequence: int) -> None:
        self._loop.call_later(self.faults.seconds(), self._heard, shard, sequence)

    def _tell_ends(self) -> None:
        if not self.faults.is_cut:
            for number, shard in enumerate(self._servers.shards):
                self._heard(number, shard.last)
        self._ends = self._loop.call_later(ENDS_SECONDS, self._tell_ends)

    async def _answer(self) -> None:
        self._check()
        await asyncio.sleep(self.faults.seconds())
        self._check()

    def _check(self) -> None:
        if self.faults.is_cut or not self._is_open:
            raise LogLost("there is no connection")
