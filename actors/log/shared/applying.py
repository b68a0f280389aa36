"""Applies a frame to a view of its shard; the same at every node, or views differ.

What is decided here follows from the frame and from the shard's frames before it alone: whether it
counts, whether what it builds on still holds, and what its operations do. Beside the tables of a
store of one node a view has, among its records:

    "ws"                      -> sequence u64 | operations done u32 | digest u32 | checksum u32
    "wi"                      -> identity of the log | shard u32 | shards u32: what it is a view of
    "wf"                      -> sequence u64: who was forgotten has written nothing after it
    "ww" writer               -> epoch u32 | number u64 | sequence u64: his last frame that counted
    "wl" log u64              -> writer | epoch u32 | first index u64: who appends since which entry
    "wg" name                 -> generation u64 of a stream in the catalogue
"""

from collections.abc import Sequence
from struct import Struct, error as StructError
from typing import Final, NamedTuple, Protocol, Self
from zlib import crc32

import msgspec

from rillnode.actors.log import (
    Append,
    OpenProducer,
    Operation,
    PutRecords,
    PutStream,
    RemoveStream,
    SavedIndexKey,
    SaveIndex,
    Trim,
    logs_of,
    version_of,
)
from rillnode.actors.log.rocks.layout import LOG_KEY, LogState, utf8
from rillnode.actors.log.shared.frames import (
    WRITER_BYTES,
    BeginLog,
    Contents,
    PutListing,
    Session,
    SharedOperation,
)
from rillnode.codecs.entries import table_bytes
from rillnode.codecs.errors import CodecError, StoreError

PREFIX: Final = b"w"
PROGRESS_KEY: Final = PREFIX + b"s"
IDENTITY_KEY: Final = PREFIX + b"i"
FORGOTTEN_KEY: Final = PREFIX + b"f"
WRITER_PREFIX: Final = PREFIX + b"w"
LOG_PREFIX: Final = PREFIX + b"l"
LISTING_PREFIX: Final = PREFIX + b"g"

WRITERS_MAX: Final = 4_096
"""Writers that a shard knows: each start of a node is one. The one that has written nothing for
longest is forgotten first."""

AUTHORS_MAX: Final = 32_768
"""Logs whose authors are kept in memory."""

STREAM_ID_MAX: Final = 2**32 - 1

WHOLE: Final = 2**32 - 1
"""Operations done of a frame that is done."""

_PROGRESS: Final = Struct(">QIII")
_WRITER: Final = Struct(">IQQ")
_LOG: Final = Struct(f">{WRITER_BYTES + 4}sQ")
_NUMBER: Final = Struct(">Q")
_IDENTITY: Final = Struct(">II")

WRONG: Final = (
    ArithmeticError,
    CodecError,
    LookupError,
    TypeError,
    ValueError,
    StructError,
    msgspec.MsgspecError,
)
"""What an operation with wrong contents raises; a disk that fails raises nothing of these."""


class ApplyFrame(Operation, eq=False):
    """Carry out the next frame of a shard on its view; never refused for what the frame says.

    Attributes:
        sequence: of the frame; higher than that of the one before.
        checksum: of the frame, to know it again.
        contents: what it says; None: it cannot be read.
        operations: its operations, whose results and errors are set.
        counts: result: whether they were carried out, or else it is a copy, or out of its order.
        progress: result: how far the view is.
    """

    sequence: int = 0
    checksum: int = 0
    contents: Contents | None = None
    operations: Sequence[SharedOperation] = msgspec.field(default_factory=list[SharedOperation])
    counts: bool = False
    progress: "Progress | None" = None


class Progress(NamedTuple):
    """The progress of a view.

    Attributes:
        sequence: of the last frame.
        done: how many of its operations were carried out.
        digest: a checksum over the results of all operations since the log began: two views at one
            place that have another have decided differently.
        checksum: of the last frame: a log that has another one there is not what it was.
    """

    sequence: int = 0
    done: int = WHOLE
    digest: int = 0
    checksum: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether the last frame is done."""
        return self.done == WHOLE

    def encode(self) -> bytes:
        """The row of it."""
        return _PROGRESS.pack(*self)

    @classmethod
    def decode(cls, row: bytes | None) -> Self:
        """Read the row; a view without one is new."""
        return cls() if row is None else cls(*_PROGRESS.unpack(row))


def encode_identity(identity: bytes, shard: int, shards: int) -> bytes:
    """The row that says what a view is of."""
    return identity + _IDENTITY.pack(shard, shards)


def check_empty(operation: BeginLog, state: LogState) -> None:
    """See that a log can begin where it is to begin.

    Raises:
        StoreError: `copy.changed`.
    """
    if state.first_index < state.next_index or operation.index < state.next_index:
        raise StoreError(
            "copy.changed",
            f"log {operation.log:#x} of the target has entries already",
            retryable=False,
        )


def fenced(what: str) -> StoreError:
    """The answer to what follows from something that another store has changed since."""
    return StoreError("store.fenced", f"another node has {what} meanwhile: read it, and try again")


class Tables(Protocol):
    """A view's tables, as the operations before have left them."""

    def row(self, key: bytes) -> bytes | None:
        """A row beside the tables of a store."""
        ...

    def put_row(self, key: bytes, value: bytes | None) -> None:
        """Change one, or remove it."""
        ...

    def rows(self, prefix: bytes) -> Sequence[tuple[bytes, bytes]]:
        """All rows whose keys begin so."""
        ...

    def log_end(self, log: int) -> int:
        """The index after a log's last entry. Raises StoreError: `stream.removed`."""
        ...

    def saved_index(self, key: SavedIndexKey) -> int | None:
        """A position that is saved."""
        ...

    def value(self, name: str) -> bytes | None:
        """A named value."""
        ...

    def carry_out(self, operation: SharedOperation) -> None:
        """Carry an operation out as a store of one node does, or change the catalogue.

        Raises:
            StoreError: it cannot be, and nothing of it was done.
            Exception: the same, where it is of `WRONG`; else the tables have failed.
        """
        ...

    def settled(self) -> None:
        """An operation is done, with all that is noted of it: now it may be written."""
        ...


class Applier:
    """Carries out frames on the tables of one view, in the order of their sequences.

    It lives as long as what has opened the tables: after a failure another one takes up what the
    tables say.

    Args:
        tables: the view's.
        shard: which shard they are a view of.
        shards: how many there are.

    Attributes:
        progress: how far it is; the tables write it down with what it covers.
    """

    def __init__(self, tables: Tables, shard: int, shards: int) -> None:
        self._tables = tables
        self._shard = shard
        self._shards = shards
        self.progress = Progress.decode(tables.row(PROGRESS_KEY))
        # In the order of their last frames.
        found = [
            (key[-WRITER_BYTES:], _WRITER.unpack(row)) for key, row in tables.rows(WRITER_PREFIX)
        ]
        self._writers = dict(sorted(found, key=lambda one: one[1][2]))
        forgotten = tables.row(FORGOTTEN_KEY)
        self._forgotten = 0 if forgotten is None else _NUMBER.unpack(forgotten)[0]
        self._authors: dict[int, tuple[bytes, int] | None] = {}

    def apply(self, frame: ApplyFrame) -> None:
        """Carry a frame out, or what is left of it; its results are set.

        Raises:
            StoreError: one before it was not carried out.
            Exception: the tables have failed.
        """
        progress = self.progress
        if (frame.sequence, WHOLE) <= (progress.sequence, progress.done):
            frame.progress = progress
            return
        if frame.sequence != progress.sequence + progress.is_whole:
            # What was given to a view that had just failed, and is given to it again in order.
            at = f"frame {frame.sequence} does not follow {progress.sequence}"
            raise StoreError("store.failed", f"{at}: the store tries again by itself")
        contents = frame.contents
        if contents is not None and self._counts(contents.session):
            frame.counts = True
            if progress.sequence != frame.sequence:
                self.progress = Progress(frame.sequence, 0, progress.digest, frame.checksum)
            for operation in frame.operations[self.progress.done :]:
                self._carry_out(operation, _author(contents.session))
            self._note_session(contents.session, frame.sequence)
        digest = self.progress.digest
        self.progress = Progress(frame.sequence, WHOLE, digest, frame.checksum)
        frame.progress = self.progress

    # Sessions --------------------------------------------------------------------------------

    def _counts(self, session: Session) -> bool:
        """Whether a frame is its writer's next one, or the first of a newer epoch."""
        known: tuple[int, int, int] = self._writers.get(session.writer, (0, 0, 0))
        epoch, number, _ = known
        if session.epoch == epoch and epoch:
            return session.number == number + 1
        # What a writer that was forgotten has sent may still come once more.
        return session.number == 1 and session.epoch > epoch and session.since >= self._forgotten

    def _note_session(self, session: Session, sequence: int) -> None:
        writers, tables = self._writers, self._tables
        writers.pop(session.writer, None)
        known = writers[session.writer] = (session.epoch, session.number, sequence)
        tables.put_row(WRITER_PREFIX + session.writer, _WRITER.pack(*known))
        if len(writers) > WRITERS_MAX:
            idle = next(iter(writers))
            self._forgotten = writers.pop(idle)[2]
            tables.put_row(WRITER_PREFIX + idle, None)
            tables.put_row(FORGOTTEN_KEY, _NUMBER.pack(self._forgotten))

    # Operations ------------------------------------------------------------------------------

    def _carry_out(self, operation: SharedOperation, author: bytes) -> None:
        tables = self._tables
        try:
            if self._is_left(operation, author):
                tables.carry_out(operation)
        except StoreError as error:
            # Without its traceback, whose frames hold cursors: they keep the tables open.
            operation.error = error.with_traceback(None)
        except WRONG as error:
            operation.error = StoreError("store.void", f"it cannot be carried out ({error})")
        else:
            if isinstance(operation, Append):
                if not operation.is_double:
                    self._note_author(operation, author)
            elif isinstance(operation, RemoveStream) and operation.record is not None:
                for log in logs_of(operation.record.id, operation.record.partitions):
                    self._authors.pop(log, None)
                    tables.put_row(LOG_PREFIX + LOG_KEY.pack(log), None)
        at = self.progress
        digest = crc32(_result_of(operation), at.digest)
        self.progress = at._replace(done=at.done + 1, digest=digest)
        tables.settled()

    def _is_left(self, operation: SharedOperation, author: bytes) -> bool:
        """Whether an operation is still to be carried out. Raises StoreError: it must not be."""
        tables = self._tables
        match operation:
            case Append(log=log, seen=seen, follows=follows):
                self._check_place(log)
                _check_count(operation)
                if seen is not None and seen < self._others_end(log, author):
                    raise fenced("appended to this log")
                self._check_seen(follows)
            case Trim(log=log) | BeginLog(log=log) | OpenProducer(log=log):
                self._check_place(log)
            case SaveIndex(seen=seen):
                self._check_seen(seen)
                saved = tables.saved_index(operation.key)
                if saved is not None and saved >= operation.index:
                    operation.index = saved
                    return False
            case PutRecords(seen=seen):
                self._check_seen(seen)
            case PutListing(name=name, generation=generation):
                _check_listing(operation)
                key = LISTING_PREFIX + utf8(name)
                known = tables.row(key)
                if known is not None and _NUMBER.unpack(known)[0] >= generation:
                    return False
                tables.put_row(key, _NUMBER.pack(generation))
                operation.is_newest = True
            case _:
                pass
        return True

    def _check_seen(self, seen: Sequence[tuple[str, int]]) -> None:
        for name, version in seen:
            if version != version_of(self._tables.value(name)):
                raise fenced(f"changed {name}")

    def _check_place(self, log: int) -> None:
        if log < 0 or (log >> 32) % self._shards != self._shard:
            raise StoreError("store.misplaced", f"log {log:#x} is not of shard {self._shard}")

    def _author_of(self, log: int) -> tuple[bytes, int] | None:
        known = self._authors.get(log)
        if known is None:
            row = self._tables.row(LOG_PREFIX + LOG_KEY.pack(log))
            known = None if row is None else _LOG.unpack(row)
            if len(self._authors) > AUTHORS_MAX:
                self._authors.clear()
            self._authors[log] = known
        return known

    def _others_end(self, log: int, author: bytes) -> int:
        """Up to which index somebody else than this author has appended."""
        known = self._author_of(log)
        if known is None:
            return 0
        return known[1] if known[0] == author else self._tables.log_end(log)

    def _note_author(self, append: Append, author: bytes) -> None:
        known = self._author_of(append.log)
        if known is None or known[0] != author:
            known = self._authors[append.log] = (author, append.first_index)
            self._tables.put_row(LOG_PREFIX + LOG_KEY.pack(append.log), _LOG.pack(*known))


def _check_count(append: Append) -> None:
    """See that a body has the lengths of its entries: less would have the log go backwards."""
    if append.count < 1 or len(append.body) < table_bytes(append.count, append.flags):
        raise ValueError(f"{len(append.body)} bytes are no body of {append.count} entries")


def _check_listing(listing: PutListing) -> None:
    """See that a listing is of a stream that can be: all nodes would fail to list it."""
    record = listing.record
    if record is not None and (record.name != listing.name or not 0 < record.id <= STREAM_ID_MAX):
        raise ValueError(f"{listing.name!r} is listed as stream {record.id} {record.name!r}")


def _author(session: Session) -> bytes:
    """Who a frame's appends are of: a writer is another one in each of its epochs.

    What it was told to have failed in one may have come all the same, and is to be looked at.
    """
    return session.writer + session.epoch.to_bytes(4, "big")


def _result_of(operation: Operation) -> bytes:
    """What must be the same at every node of an operation that was carried out."""
    if operation.error is not None:
        return operation.error.code.encode()
    match operation:
        case Append(first_index=index) | SaveIndex(index=index):
            return _NUMBER.pack(index)
        case OpenProducer(epoch=epoch):
            return _NUMBER.pack(epoch)
        case Trim(extent=extent):
            return _NUMBER.pack(extent.first_index)
        case PutStream(record=record):
            return _NUMBER.pack(record.id)
        case RemoveStream(record=record) if record is not None:
            return _NUMBER.pack(record.id)
        case _:
            return b""
