"""LogStore: the interface of the durable log under all streams.

Work is submitted as operation objects. The store completes each exactly once, watches at most once,
by setting its result fields (or `error`) and handing it to `complete`, the callable given at
construction, together with all others of its group; the node's `complete` posts each operation to
the actor named by its `reply_to`. A store may therefore be another thread or another machine.

Promises of every LogStore:

- Operations of one log are applied in the order of submission; indexes are dense from 0.
- A write completes without error only when it would survive a crash of the store and, unless
  `describe` says that it is `unsynced`, the loss of power everywhere at once.
- When a write or sync fails, every write not yet completed gets a StoreError; the store repairs
  itself with backoff and tells `on_health`. Until then no reader sees anything of those writes.
  After the repair the ones that were still waiting have left no trace, but of the group under way
  the first writes, in order and each whole, may have reached the disk, and then are there for
  good, as after a crash. Indexes are dense and all that was confirmed is there in either case:
  who got an error may send again.
- A removal is whole: after a crash the stream is there with all that it held, or nothing of it.
- Reads see only what is durable. They never block the caller: an answer out of the tail cache
  comes at once, any other through `complete`.
- What a producer has numbered is stored once (`Append.producer`): an append whose numbers are
  stored already is answered with the index that they have, also while those are under way, after
  the store was closed, has failed or was copied, when the entries were trimmed, and whichever of
  the others has stored them. A log knows a bounded number of producers, and each for a while.
- Others may write, too: other nodes, whose stores have the same logs. What one was confirmed stands
  before what another appends later. A look-up says whether what it found can change so (`Lookup`);
  a watch is complete when others have done what it waits for, and stays open where nobody does,
  and when the store is closed; a write that follows from what others have changed since (`seen`)
  is refused with `store.fenced`, and leaves no trace.

`submit` and `read` are called by one thread at a time, usually the event loop's.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from msgspec import Struct, field

from rillnode.actors.log.records import (
    DEAD_SUFFIX as DEAD_SUFFIX,
    FIRST_KEY as FIRST_KEY,
    FOR_EVER as FOR_EVER,
    NO_ENTRIES as NO_ENTRIES,
    LogExtent as LogExtent,
    Retention as Retention,
    SavedIndexKey as SavedIndexKey,
    StreamRecord as StreamRecord,
    key_after as key_after,
    log_id as log_id,
    logs_of as logs_of,
    version_of as version_of,
)
from rillnode.codecs.entries import Block, EntryKind
from rillnode.codecs.errors import StoreError

INDEX_MAX: Final = 2**64 - 1

FORMAT_VERSION = 1
"""Version of the store's layout; a newer one is refused, an older one is migrated forward."""


@dataclass(frozen=True, slots=True)
class StoreHealth:
    """A store's health: whether it takes writes, and if not, why and what to do."""

    writable: bool
    reason: str = ""

    def merged(self, later: "StoreHealth") -> "StoreHealth":
        """The later one is all that counts."""
        return later


OnHealth = Callable[[StoreHealth], None]
"""Told of each change of health; called from any thread."""


class Operation(Struct, eq=False):
    """One piece of work; a store sets the fields named under Results, once.

    A Struct, as all that is made for each message: in three quarters of a dataclass's time.

    Attributes:
        reply_to: whom it is told to, None: nobody; the store does not look at it.
        then: what goes on with it there (`Worker.then`); the store does not look at it.
        token: the submitter's own; the store does not look at it.
        error: result: None, or why nothing of it was done.
    """

    reply_to: Any = None
    then: Any = None
    token: Any = None
    error: StoreError | None = None


EVERY_ENTRY = -1
"""In place of an entry's offset: the key leads to every entry of the body, which costs no more than
to lead to one."""


class Append(Operation, eq=False):
    """Add the entries of one checked body to a log.

    Errors: `stream.removed` (the log's stream was removed), `store.fenced` (see `seen`, `follows`),
    `producer.stale` (its number is not new, and not of the same opening or not where the entries
    of this body are; `index` of the error's context is the one that it has, where that is known),
    `producer.order` (see `after`), `producer.fenced` (the producer's name was opened once more
    since).

    Attributes:
        log: of a stream that was made before, or of an id that no stream is ever given: a store
            takes the logs of a stream that it makes for empty ones.
        received_at: in milliseconds since 1970; result: no less than that of the entry before, as
            clocks differ, and are set back.
        keys: secondary keys, written in the same batch: each leads to an entry of the body, whose
            offset in it stands beside it, or to `EVERY_ENTRY`. A key does not begin with a zero
            byte, and several entries may have the same. The store does not know what keys mean,
            but none that leads to every entry may begin with another one that does.
        timed: so many of them, the last ones, end with `received_at` as u64, big-endian, whatever
            it becomes; None: it stays, as in a copy.
        records: named values, written in the same batch; None removes one.
        seen: this follows from what others have appended up to this index, and is refused where
            they have appended more; None: from nothing.
        follows: named values that this follows from, as `seen` of PutRecords has them.
        producer: who has numbered the entries; empty: nobody.
        epoch: of the opening of the producer's name (`OpenProducer`); 0: it has none, and is known
            by its id.
        sequence: the first entry's number; those of the others follow. Numbers go up, and may
            leave gaps.
        after: the number after that of the entry which a name's producer has pushed before: this
            is refused where that is not stored, so that what was refused is not passed over.
        first_index: result: index of the first entry.
        is_double: result: it was stored before, and nothing was done. That may be news all the
            same, as who has stored it may have been told that it failed: see `next_index`.
        next_index: result, of a double: the index after the log's last entry.
        kept_bytes: result: data bytes that the log keeps, these included.
    """

    log: int = 0
    kind: EntryKind = EntryKind.BYTES
    flags: int = 0
    received_at: int = 0
    count: int = 0
    body: bytes | memoryview = b""
    keys: Sequence[tuple[bytes, int]] = ()
    timed: int | None = 0
    records: Sequence[tuple[str, bytes | None]] = ()
    seen: int | None = None
    follows: Sequence[tuple[str, int]] = ()
    producer: bytes = b""
    epoch: int = 0
    sequence: int = 0
    after: int = 0
    first_index: int = -1
    is_double: bool = False
    next_index: int = 0
    kept_bytes: int = 0


class OpenProducer(Operation, eq=False):
    """Let a producer's numbers in a log go on: only who has opened it last may append.

    Errors: `stream.removed`.

    Attributes:
        log: the log.
        producer: its name.
        received_at: as an Append has it.
        epoch: result: of this opening, higher than of those before.
        next_sequence: result: the number after its last one; 0 where there is none.
        last_index: result: the index that the last one has; -1 where it is not known.
    """

    log: int = 0
    producer: bytes = b""
    received_at: int = 0
    epoch: int = 0
    next_sequence: int = 0
    last_index: int = -1


class Trim(Operation, eq=False):
    """Drop the oldest entries of a log, as far as every limit given allows or asks.

    Their secondary keys go with them, a block's when the last of its entries does.

    Errors: `stream.removed`.

    Attributes:
        before: drop all below this index, whatever the limits say.
        retention: drop what is over these limits.
        now_ms: time against which `retention.seconds` is measured.
        hold: keep everything from this index on (a sink has not committed it).
        at_hand: do nothing where the store does not have the log at hand; see ListStreams. Such a
            trim is a sweep's: appends that are submitted after it may be applied before it.
        extent: result: what is left; of a log that is not at hand, nothing.
        trimmed: result: number of entries dropped.
        oldest_ms: result: when the first entry that is left was received, if the store has looked
            that up for `retention.seconds`.
    """

    log: int = 0
    before: int = 0
    retention: Retention = FOR_EVER
    now_ms: int = 0
    hold: int | None = None
    at_hand: bool = False
    extent: LogExtent = NO_ENTRIES
    trimmed: int = 0
    oldest_ms: int | None = None


class PutStream(Operation, eq=False):
    """Create a stream (record.id 0) or replace its record; `record` comes back with its id.

    Errors: `store.exists` (a stream of this name was created before), `store.unknown` (no stream
    has this id and name: a stream keeps its name).
    """

    record: StreamRecord = field(default_factory=lambda: StreamRecord(name=""))


class RemoveStream(Operation, eq=False):
    """Remove a stream: its record, logs, secondary keys, and the indexes saved under its name.

    Its id is never given again. What was submitted before is removed with it; appends and trims
    that come after it are refused, while an index saved after it is kept under the name.

    Errors: `store.unknown` (no stream has this name).

    Attributes:
        record: result: what was removed.
    """

    name: str = ""
    record: StreamRecord | None = None


class SaveIndex(Operation, eq=False):
    """Save a consumer's position.

    The caller keeps it monotonic: one actor of a node owns each key. Where others save the same,
    the highest counts.

    Errors: `store.fenced` (see `seen`), `stream.removed` (see `created_at`).

    Attributes:
        index: the position; result: what is saved, which may be a higher one of others.
        seen: as of PutRecords: named values that lie with the stream.
        created_at: that of the stream that the position is in: it is refused where that has been
            removed, also if another has the name. 0: whichever has the name, or will have it.
    """

    key: SavedIndexKey = field(default_factory=lambda: SavedIndexKey("", 0, ""))
    index: int = 0
    seen: Sequence[tuple[str, int]] = ()
    created_at: int = 0


class PutRecord(Operation, eq=False):
    """Store a small named value (None removes it): sink state, keys, markers."""

    key: str = ""
    value: bytes | None = None


class PutRecords(Operation, eq=False):
    """Store named values (None removes one) in the order given: all of them or none.

    Errors: `store.fenced` (see `seen`).

    Attributes:
        seen: names that this follows from, each with its version as it was read; it is refused
            where others have changed one since. 0: it was none.
    """

    records: Sequence[tuple[str, bytes | None]] = ()
    seen: Sequence[tuple[str, int]] = ()


class Checkpoint(Operation, eq=False):
    """Copy the store, with all that was submitted before, to a directory that is not there yet.

    Writes wait meanwhile, for as long as the disk takes to write what is in memory; what is on
    disk already is linked. The directory is there whole, or not at all.

    Errors: `store.full`, `store.checkpoint` (it could not be made; the store goes on), and those of
    a write where what was submitted before could not be made durable.

    Attributes:
        path: the new directory, on the store's file system.
    """

    path: Path = field(default_factory=Path)


class Read(Operation, eq=False):
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
    until: int = INDEX_MAX
    entries_max: int = 2**32
    bytes_max: int = 1_048_576
    blocks: list[Block] = field(default_factory=list[Block])
    extent: LogExtent = NO_ENTRIES


class Locate(Operation, eq=False):
    """Find the first entry of a log that came at a time or later, by halving the range of indexes.

    As arrivals ascend (`Append.received_at`), all that stand behind it came no earlier either.

    Attributes:
        at_ms: the time, in milliseconds since 1970.
        index: result: the entry's; the log's end where nothing came so late, and its first entry
            where all did.
    """

    log: int = 0
    at_ms: int = 0
    index: int = 0


class ListKeys(Operation, eq=False):
    """List secondary keys of a log from `start` up to `end` (exclusive; None: to the last).

    `start` and `end` are compared with keys and the indexes behind them, 8 bytes big-endian, so
    that a listing can go on where another has ended: `key_after` of its last pair begins it. A key
    may lead to an entry that was trimmed: compare with the log's extent.

    Attributes:
        reverse: from the last of the range downwards.
        pairs: result: at most `limit` pairs (key, index of the entry) in that order.
    """

    log: int = 0
    start: bytes = FIRST_KEY
    end: bytes | None = None
    limit: int = 1_000
    reverse: bool = False
    pairs: list[tuple[bytes, int]] = field(default_factory=list[tuple[bytes, int]])


class Lookup(Operation, eq=False):
    """A read of what is not written once and for all, as entries are.

    Attributes:
        lasts: result: what was found stays so until this node changes it. Else others may change it
            at any time: who keeps it looks again, or watches.
    """

    lasts: bool = True


class FindStream(Lookup, eq=False):
    """Look a stream up by name, or by id where `name` is None; result: `record`, or None."""

    name: str | None = None
    id: int = 0
    record: StreamRecord | None = None
    extents: list[LogExtent] = field(default_factory=list[LogExtent])


PAGE_STREAMS = 64
PAGE_LOGS = 500
"""Streams of a page of them, and logs with which it ends: whoever takes it looks at all of them in
one turn, some 5 us each, or three times that on a busy machine."""


class ListStreams(Lookup, eq=False):
    """List a page of streams by name: those after `after` in byte order, with extents.

    It has at most `limit` streams, and ends early with the one by which it has `PAGE_LOGS` logs.

    Attributes:
        at_hand: only those whose logs the store has at hand: the work that some node must do on
            each stream is done where it is used.
        names_only: records are all that is wanted: `extents` has an empty list for each. Only so
            are streams listed that this node does not serve.
        logs: result: how many logs the streams have together.
        more: result: whether there are streams after the last of these.
    """

    after: str = ""
    prefix: str = ""
    limit: int = PAGE_STREAMS
    at_hand: bool = False
    names_only: bool = False
    records: list[StreamRecord] = field(default_factory=list[StreamRecord])
    extents: list[list[LogExtent]] = field(default_factory=list[list[LogExtent]])
    logs: int = 0
    more: bool = False

    @property
    def full(self) -> bool:
        """Whether the page takes no more."""
        return len(self.records) >= self.limit or self.logs >= PAGE_LOGS

    def take(self, record: StreamRecord, extents: list[LogExtent]) -> None:
        """Put one more stream into the page."""
        self.records.append(record)
        self.extents.append(extents)
        self.logs += len(extents)


class ReadExtents(Lookup, eq=False):
    """Read where logs begin and end; result: `extents`, one for each."""

    logs: list[int] = field(default_factory=list[int])
    extents: list[LogExtent] = field(default_factory=list[LogExtent])


class LoadIndex(Lookup, eq=False):
    """Read a saved index; result: `index`, or None when never saved."""

    key: SavedIndexKey = field(default_factory=lambda: SavedIndexKey("", 0, ""))
    index: int | None = None


class ListIndexes(Lookup, eq=False):
    """List saved indexes in key order after `after`, of one stream or of all (stream "")."""

    stream: str = ""
    after: SavedIndexKey | None = None
    limit: int = 1_000
    indexes: list[tuple[SavedIndexKey, int]] = field(
        default_factory=list[tuple[SavedIndexKey, int]]
    )


class GetRecord(Lookup, eq=False):
    """Read a small named value.

    Attributes:
        value: result: None where there is none.
        version: result: two values that differ have another; 0 where there is none, or where it
            lasts.
    """

    key: str = ""
    value: bytes | None = None
    version: int = 0


class GetRecords(Lookup, eq=False):
    """Read named values; result: `values`, one for each key, None where there is none."""

    keys: Sequence[str] = ()
    values: list[bytes | None] = field(default_factory=list[bytes | None])


class HasRecords(Lookup, eq=False):
    """Look whether named values are there, without reading them; result: `found`, for each key."""

    keys: Sequence[str] = ()
    found: list[bool] = field(default_factory=list[bool])


class ListRecords(Lookup, eq=False):
    """List named values whose names begin with `prefix`, those after `after` in byte order.

    Attributes:
        records: result: at most `limit` pairs (key, value).
        versions: result: the version of each; none where they last.
    """

    prefix: str = ""
    after: str = ""
    limit: int = 1_000
    records: list[tuple[str, bytes]] = field(default_factory=list[tuple[str, bytes]])
    versions: list[int] = field(default_factory=list[int])


class Watch(Operation, eq=False):
    """Wait until a log holds an entry of others at `index` or behind; it may be an own one, too.

    One at a time of each log: a later one takes the place of one that is not complete, which then
    never is. Nor is it when the log's stream is removed.

    Attributes:
        next_index: result: the index after the log's last entry.
    """

    log: int = 0
    index: int = 0
    next_index: int = 0


class WatchRecords(Operation, eq=False):
    """Wait until others have changed streams' records since the last one was completed.

    One at a time.

    Attributes:
        changed: result: the records as they are now, of new streams, too.
        removed: result: the last records of streams that are no more.
    """

    changed: list[StreamRecord] = field(default_factory=list[StreamRecord])
    removed: list[StreamRecord] = field(default_factory=list[StreamRecord])


class WatchValues(Operation, eq=False):
    """Wait until others have changed named values since the last one was completed.

    One at a time of each prefix. What came before the first one is not told of: ask for it with
    ListRecords, after the first watch.

    Attributes:
        prefix: of the names.
        changed: result: names, and what they stand for now; None: nothing any more.
    """

    prefix: str = ""
    changed: list[tuple[str, bytes | None]] = field(default_factory=list[tuple[str, bytes | None]])


WriteOperation = (
    Append | OpenProducer | Trim | PutStream | RemoveStream | SaveIndex | PutRecord | PutRecords
)
ReadOperation = (
    Read
    | Locate
    | ListKeys
    | FindStream
    | ListStreams
    | ReadExtents
    | LoadIndex
    | ListIndexes
    | GetRecord
    | GetRecords
    | HasRecords
    | ListRecords
)
AnyWatch = Watch | WatchRecords | WatchValues


def written_bytes(operation: Operation) -> int:
    """What a write has of entries and named values: what groups and back-pressure count."""
    match operation:
        case Append(body=body, records=records):
            if not records:  # as mostly
                return len(body)
            return len(body) + sum(len(value or b"") for _, value in records)
        case PutRecords(records=records):
            return sum(len(value or b"") for _, value in records)
        case _:
            return 0


Complete = Callable[[Sequence[Operation]], None]
"""Takes completed operations, in order of completion; called from any thread."""


def check_same(save: SaveIndex, record: StreamRecord | None) -> None:
    """See that a position is in the stream that has the name now.

    Raises:
        StoreError: `stream.removed`.
    """
    if save.created_at and (record is None or record.created_at != save.created_at):
        raise removed_error(0 if record is None else record.id)


def removed_error(stream_id: int) -> StoreError:
    """The answer to what is written to a stream that is no more."""
    return StoreError(
        "stream.removed", "The stream was removed: create it again", retryable=False, id=stream_id
    )


class LogStore(Protocol):
    """A durable log of many streams; see the module's promises."""

    @property
    def health(self) -> StoreHealth:
        """The state now."""
        ...

    @property
    def pending_bytes(self) -> int:
        """Bytes submitted and not yet completed: what back-pressure looks at."""
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

    def watch(self, operation: AnyWatch) -> None:
        """Complete the operation as soon as others have done what it waits for.

        It may be given before the store is open, and is never complete with an error.
        """
        ...

    def rest(self) -> None:
        """Begin to let memory go that only speeds up what is under way, if there is any."""
        ...

    def describe(self) -> Mapping[str, Any]:
        """The log that others write, too, and what is seen of it here, for people; else nothing."""
        ...


@runtime_checkable
class Checkpointing(Protocol):
    """A store that can copy itself while it is in use; not every one can."""

    def checkpoint(self, operation: Checkpoint) -> None:
        """Queue a copy; it is completed through the store's `complete`."""
        ...
