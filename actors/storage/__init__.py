"""LogStore: the interface of the durable log under all streams.

Work is submitted as operation objects. The store completes each exactly once, by setting its
result fields (or `error`) and handing it to `complete`, the callable given at construction,
together with all others of its group; the node's `complete` posts each operation to the actor
named by its `reply_to`. A store may therefore be another thread or another machine.

Promises of every LogStore:

- Operations of one log are applied in the order of submission; indexes are dense from 0.
- A write completes without error only when it would survive a power cut.
- When a write or sync fails, every write not yet completed gets a StoreError; the store repairs
  itself with backoff and tells `on_health`. Until then no reader sees anything of those writes.
  After the repair the ones that were still waiting have left no trace, but of the group under way
  the first writes, in order and each whole, may have reached the disk, and then are there for
  good, as after a crash. Indexes are dense and all that was confirmed is there in either case:
  who got an error may send again.
- Reads see only what is durable. They never block the caller: an answer out of the tail cache
  comes at once, any other through `complete`.

`submit` and `read` are called by one thread at a time, usually the event loop's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from rillnode.codecs.entries import Block, EntryKind
from rillnode.codecs.errors import StoreError

FORMAT_VERSION = 1
"""Version of the store's layout; a newer one is refused, an older one is migrated forward."""


def log_id(stream_id: int, partition: int) -> int:
    """Identify one partition's log: stream id in the high 32 bits, partition in the low ones."""
    return stream_id << 32 | partition


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How long a stream keeps its entries; None means for ever. The tightest limit wins."""

    seconds: float | None = None
    entries_max: int | None = None
    bytes_max: int | None = None


FOR_EVER = Retention()


class StreamRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored of a stream.

    Attributes:
        id: 0 until the store has given one; never used again after a removal.
        created_at: milliseconds since 1970.
        owner: principal that created it.
    """

    name: str
    id: int = 0
    partitions: int = 1
    created_at: int = 0
    owner: str = ""
    retention: Retention = FOR_EVER


class SavedIndexKey(msgspec.Struct, frozen=True, order=True):
    """Whose position it is, and where; the stream need not exist."""

    stream: str
    partition: int
    client_id: str


@dataclass(frozen=True, slots=True)
class LogExtent:
    """The committed extent of a log.

    Attributes:
        first_index: first index still kept.
        next_index: index that the next entry gets.
        data_bytes: data bytes kept.
    """

    first_index: int = 0
    next_index: int = 0
    data_bytes: int = 0


@dataclass(slots=True, eq=False)
class Operation:
    """One piece of work; a store sets the fields named under Results, once.

    Attributes:
        reply_to: whom `complete` hands it to; the store does not look at it.
        token: the submitter's own; the store does not look at it.
        error: result: None, or why nothing of it was done.
    """

    reply_to: Any = None
    token: Any = None
    error: StoreError | None = None


@dataclass(slots=True, eq=False)
class Append(Operation):
    """Add the entries of one checked body to a log.

    Attributes:
        keys: secondary keys, written in the same batch: (key, value) pairs; the store prefixes
            each key with the log.
        first_index: result: index of the first entry.
    """

    log: int = 0
    kind: EntryKind = EntryKind.BYTES
    flags: int = 0
    received_at: int = 0
    count: int = 0
    body: bytes | memoryview = b""
    keys: Sequence[tuple[bytes, bytes]] = ()
    first_index: int = -1


@dataclass(slots=True, eq=False)
class Trim(Operation):
    """Drop the oldest entries of a log, as far as every limit given allows or asks.

    Attributes:
        before: drop all below this index, whatever the limits say.
        retention: drop what is over these limits.
        now_ms: time against which `retention.seconds` is measured.
        hold: keep everything from this index on (a sink has not committed it).
        keys_before: drop the log's secondary keys that sort below this one as well. The store
            does not know what they mean, so it drops none of its own accord.
        extent: result: what is left.
        trimmed: result: number of entries dropped.
    """

    log: int = 0
    before: int = 0
    retention: Retention = FOR_EVER
    now_ms: int = 0
    hold: int | None = None
    keys_before: bytes = b""
    extent: LogExtent = LogExtent()
    trimmed: int = 0


@dataclass(slots=True, eq=False)
class PutStream(Operation):
    """Create a stream (record.id 0) or replace its record; `record` comes back with its id.

    Errors: `store.exists` (a stream of this name was created before), `store.unknown` (no stream
    has this id and name: a stream keeps its name).
    """

    record: StreamRecord = field(default_factory=lambda: StreamRecord(name=""))


@dataclass(slots=True, eq=False)
class SaveIndex(Operation):
    """Save a consumer's position. The caller keeps it monotonic: one actor owns each key."""

    key: SavedIndexKey = field(default_factory=lambda: SavedIndexKey("", 0, ""))
    index: int = 0


@dataclass(slots=True, eq=False)
class PutRecord(Operation):
    """Store a small named value (None removes it): sink state, keys, markers."""

    key: str = ""
    value: bytes | None = None


@dataclass(slots=True, eq=False)
class Read(Operation):
    """Read whole blocks of a log that hold entries from `index` on.

    The first block may begin below `index` and the last may reach past what was asked: blocks
    are immutable and shared, never cut. At least one block is returned where there is one.

    Attributes:
        until: entries at or past this index are not wanted (the reader's committed end).
        entries_max: enough entries.
        bytes_max: enough bytes of blocks; exceeded by at most the first block.
        blocks: result: ascending, dense from max(index, first kept).
        extent: result: the log's extent when it was read.
    """

    log: int = 0
    index: int = 0
    until: int = 2**64 - 1
    entries_max: int = 2**32
    bytes_max: int = 1_048_576
    blocks: list[Block] = field(default_factory=list[Block])
    extent: LogExtent = LogExtent()


@dataclass(slots=True, eq=False)
class ListKeys(Operation):
    """List secondary keys of a log from `start` up to `end` (exclusive; None: to the last).

    A key may lead to an entry that was trimmed: compare with the log's extent.

    Attributes:
        pairs: result: at most `limit` (key, value) pairs in key order.
    """

    log: int = 0
    start: bytes = b""
    end: bytes | None = None
    limit: int = 1_000
    pairs: list[tuple[bytes, bytes]] = field(default_factory=list[tuple[bytes, bytes]])


@dataclass(slots=True, eq=False)
class FindStream(Operation):
    """Look a stream up by name, or by id where `name` is None; result: `record`, or None."""

    name: str | None = None
    id: int = 0
    record: StreamRecord | None = None
    extents: list[LogExtent] = field(default_factory=list[LogExtent])


@dataclass(slots=True, eq=False)
class ListStreams(Operation):
    """List streams by name: those after `after` in byte order, at most `limit`, with extents."""

    after: str = ""
    prefix: str = ""
    limit: int = 1_000
    records: list[StreamRecord] = field(default_factory=list[StreamRecord])
    extents: list[list[LogExtent]] = field(default_factory=list[list[LogExtent]])


@dataclass(slots=True, eq=False)
class LoadIndex(Operation):
    """Read a saved index; result: `index`, or None when never saved."""

    key: SavedIndexKey = field(default_factory=lambda: SavedIndexKey("", 0, ""))
    index: int | None = None


@dataclass(slots=True, eq=False)
class ListIndexes(Operation):
    """List saved indexes in key order after `after`, of one stream or of all (stream "")."""

    stream: str = ""
    after: SavedIndexKey | None = None
    limit: int = 1_000
    indexes: list[tuple[SavedIndexKey, int]] = field(
        default_factory=list[tuple[SavedIndexKey, int]]
    )


@dataclass(slots=True, eq=False)
class GetRecord(Operation):
    """Read a small named value; result: `value`, or None."""

    key: str = ""
    value: bytes | None = None


WriteOperation = Append | Trim | PutStream | SaveIndex | PutRecord
ReadOperation = Read | ListKeys | FindStream | ListStreams | LoadIndex | ListIndexes | GetRecord

Complete = Callable[[Sequence[Operation]], None]
"""Takes completed operations, in order of completion; called from any thread."""


@dataclass(frozen=True, slots=True)
class StoreHealth:
    """Whether the store takes writes, and if not, why and what to do."""

    writable: bool
    reason: str = ""


OnHealth = Callable[[StoreHealth], None]
"""Told of each change of health; called from any thread."""


class LogStore(Protocol):
    """A durable log of many streams; see the module's promises."""

    @property
    def health(self) -> StoreHealth:
        """The state now."""
        ...

    @property
    def pending_bytes(self) -> int:
        """Bytes of appends submitted and not yet completed: what back-pressure looks at."""
        ...

    def open(self) -> None:
        """Open or create, migrate, start the threads. Blocks; call it off the loop.

        Raises:
            StoreError: newer format, locked by another process, or unreadable.
        """
        ...

    def close(self) -> None:
        """Complete what was submitted, then close. Blocks; call it off the loop."""
        ...

    def submit(self, operation: WriteOperation) -> None:
        """Queue a write; it is completed through `complete`."""
        ...

    def read(self, operation: ReadOperation) -> bool:
        """Answer at once out of the tail cache (True), or later through `complete` (False)."""
        ...
