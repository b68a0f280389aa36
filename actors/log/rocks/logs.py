"""The writer's knowledge of where each log ends, and how to find a log's blocks."""

from collections.abc import Iterator
from itertools import islice
from struct import Struct, error
from typing import Final

from rocksdict import RdictIter

from rillnode.actors.log import INDEX_MAX
from rillnode.actors.log.producers import Numbers, rows_prefix
from rillnode.actors.log.rocks.layout import BLOCK_KEY, LOG_KEY, LogState, record_key
from rillnode.actors.log.rocks.tables import Tables
from rillnode.codecs.entries import HEADER_BYTES, Block, data_bytes, decode_header, sizes_of
from rillnode.codecs.errors import StoreError

_BLOCK_KEY_BYTES: Final = BLOCK_KEY.size


NOTED_MAX: Final = 131_072
"""Runs of producers that are kept in memory, some 50 MB. Own choice."""

_UNPACKED_MAX: Final = 64
"""Groups, or logs, for which what is used stays as it is: a log may be in each of them."""

_PACKED: Final = Struct("<4Qq")
_FORGOTTEN_SHARE: Final = 16
_PACKED_OVERHEAD_BYTES: Final = 160
"""Of a packed state, beside what it is packed into: the table's part, its key, the object."""


class LogTable:
    """States of the logs in use, as they are once everything planned is written.

    Most have had one producer at most, whose first run goes on: what is known of them fits into
    some hundred bytes, and is unpacked only for some groups from the one that it is used in. So an
    append takes as long with many logs as with few, and the garbage collector sees none of them.

    The others stay unpacked while they are used. There are two generations of them: when the young
    one is full it becomes the old one, and what is not used any more is packed, a few at a time.
    Where producers have begun too many runs all that is not packed is forgotten, as those in use
    may have them.

    Where there are too many packed ones, those that came first are forgotten, and are read from the
    database when they are used again, which takes ten times as long as to unpack them. So idle logs
    cost nothing beyond a bounded number of bytes, and no use is recorded one by one.

    Args:
        tables: what is not known is read from.
        logs_max: logs of a generation of those that stay unpacked.
        packed_bytes_max: of all packed ones together.

    Attributes:
        noted: so many runs were begun, or unpacked, since the generation began.
        has_forgotten: whether logs that were known are known no more, since it was set to False.
    """

    def __init__(self, tables: Tables, logs_max: int, packed_bytes_max: int) -> None:
        self._tables = tables
        self._logs_max = logs_max
        self._packed_bytes_max = packed_bytes_max
        self.noted = 0
        self.has_forgotten = False
        self._noted_before = 0
        # In the latest groups, and not among the young.
        self._used: dict[int, LogState] = {}
        self._groups = 0  # since it was empty
        self._young: dict[int, LogState] = {}
        self._old: dict[int, LogState] = {}
        self._come = 0  # to the young ones since it was looked at last
        self._packed: dict[int, bytes] = {}
        self._packed_bytes = 0

    def __len__(self) -> int:
        """Logs whose state is known."""
        return len({**self._old, **self._young, **self._used, **self._packed})

    def find(self, log: int) -> LogState | None:
        """The state of a log in use; the caller changes it in place as it plans."""
        state = self._used.get(log) or self._young.get(log)
        if state is None:
            state = self._old.pop(log, None)
            if state is not None:
                self._young[log] = state
                self._come += 1
            else:
                state = self._unpack(log)
        return state

    def load(self, log: int) -> LogState:
        """The same of a log that is not in use yet."""
        # Not with a cursor kept: it would step over all that was written since it was made.
        state = load_state(self._tables.blocks_cursor(), log)
        rows = _values(self._tables.records_cursor(), record_key(rows_prefix(log)))
        state.numbers = Numbers.load(rows)
        self._used[log] = state
        return state

    def begin(self, log: int) -> LogState:
        """The state of a log to which nothing was written yet."""
        state = self._used[log] = LogState()
        return state

    def note(self, log: int) -> None:
        """Count a run that was begun in a log in use."""
        self.noted += log in self._young

    def forget(self, log: int) -> None:
        """The log is no more."""
        for known in (self._used, self._young, self._old):
            known.pop(log, None)
        self._drop(log)

    def age(self) -> None:
        """Pack or forget idle logs; only between groups, when all is written."""
        self._groups += 1
        if self._groups < _UNPACKED_MAX and len(self._used) < _UNPACKED_MAX:
            return
        for log, state in self._used.items():
            numbers = state.numbers
            if numbers is None or numbers.is_small:
                self._keep(log, state)
            else:
                self._drop(log)
                self._young[log] = state
                self._come += 1
                self.noted += numbers.runs
        self._used, self._groups = {}, 0
        # Two for each that has come: when the young generation is full, the old one is empty.
        self._pack(2 * self._come)
        self._come = 0
        if self.noted + self._noted_before > NOTED_MAX:
            self.has_forgotten = True
            self.noted, self._noted_before, self._young, self._old = 0, 0, {}, {}
        elif len(self._young) > self._logs_max:
            self._pack(len(self._old))
            self._old, self._young = self._young, {}
            self._noted_before, self.noted = self.noted, 0
        if self._packed_bytes > self._packed_bytes_max:
            self._forget_some()

    def _pack(self, count: int) -> None:
        """Pack so many of the old generation, if there are as many."""
        old = self._old
        for _ in range(min(count, len(old))):
            self._keep(*old.popitem())

    def _keep(self, log: int, state: LogState) -> None:
        """Keep what is known of a log, packed."""
        try:
            packed = _PACKED.pack(
                state.first_index,
                state.next_index,
                state.first_position,
                state.next_position,
                state.received_at,
            )
            if state.numbers is not None:
                packed += state.numbers.pack()
        except error:
            # Who may write to a shared log may write anything: it is read again.
            self.has_forgotten = True
            self._drop(log)
            return
        before = self._packed.get(log)
        self._packed[log] = packed
        if before is not None:
            self._packed_bytes += len(packed) - len(before)
        else:
            self._packed_bytes += len(packed) + _PACKED_OVERHEAD_BYTES

    def _forget_some(self) -> None:
        """Forget the packed ones that came first, down to what there may be."""
        self.has_forgotten = True
        # Many at once, as a dictionary passes over all places whose keys have gone before.
        share = len(self._packed) // _FORGOTTEN_SHARE + 1
        while self._packed_bytes > self._packed_bytes_max:
            for log in list(islice(self._packed, share)):
                self._drop(log)

    def _drop(self, log: int) -> None:
        """Know a log no more as it was packed before."""
        packed = self._packed.pop(log, None)
        if packed is not None:
            self._packed_bytes -= len(packed) + _PACKED_OVERHEAD_BYTES

    def _unpack(self, log: int) -> LogState | None:
        # It stays where it is, and is replaced when the group is over.
        packed = self._packed.get(log)
        if packed is None:
            return None
        state = self._used[log] = LogState(*_PACKED.unpack_from(packed))
        if len(packed) > _PACKED.size:
            state.numbers = Numbers.unpack(packed[_PACKED.size :])
        return state


def load_state(cursor: RdictIter, log: int) -> LogState:
    """Read where a log begins and ends.

    Raises:
        StoreError: the log's last value is no block.
    """
    prefix = LOG_KEY.pack(log)
    last = seek_back(cursor, BLOCK_KEY.pack(log, INDEX_MAX))
    if last is None or not last.startswith(prefix):
        return LogState()
    if len(last) != _BLOCK_KEY_BYTES:
        return LogState.decode(cursor.value())
    block = block_here(cursor, last)
    header = decode_header(block.value)
    body = memoryview(block.value)[HEADER_BYTES:]
    end = header.position + data_bytes(header.count, body, header.flags)
    if seek(cursor, prefix) == prefix:
        state = LogState.decode(cursor.value())
        state.next_index, state.next_position = block.next_index, end
        state.received_at = header.received_at
        return state
    return LogState(0, block.next_index, 0, end, header.received_at)


def _values(cursor: RdictIter, prefix: bytes) -> Iterator[bytes]:
    """The values of the rows whose keys begin so."""
    key = seek(cursor, prefix)
    while key is not None and key.startswith(prefix):
        yield cursor.value()
        key = step(cursor)


def block_at(cursor: RdictIter, log: int, index: int) -> Block:
    """Move to the block that holds an entry known to be kept, and read it.

    Raises:
        StoreError: there is none: the log has a hole.
    """
    key = seek_back(cursor, BLOCK_KEY.pack(log, index))
    if key is not None and len(key) == _BLOCK_KEY_BYTES and key.startswith(LOG_KEY.pack(log)):
        block = block_here(cursor, key)
        if index < block.next_index:
            return block
    raise hole_error(log, index)


def block_here(cursor: RdictIter, key: bytes) -> Block:
    """The block under a cursor."""
    log, first_index = BLOCK_KEY.unpack(key)
    value: bytes = cursor.value()
    if len(value) < HEADER_BYTES:
        raise hole_error(log, first_index)
    return Block(first_index, value)


def block_position(block: Block, index: int) -> int:
    """Data bytes of the log before `index`, an entry of the block."""
    before = sizes_of(block.value)[: index - block.first_index]
    return decode_header(block.value).position + sum(before)


def hole_error(log: int, index: int) -> StoreError:
    """An entry is missing that must be there."""
    return StoreError(
        "store.corrupt",
        f"entry {index} of log {log:#x} is missing or damaged: restore the store from a backup, "
        "or trim the stream beyond this entry",
        retryable=False,
        log=log,
        index=index,
    )


def seek(cursor: RdictIter, key: bytes) -> bytes | None:
    """Move to the first key at or after `key`, and return it."""
    cursor.seek(key)
    return key_here(cursor)


def seek_back(cursor: RdictIter, key: bytes) -> bytes | None:
    """Move to the last key at or before `key`, and return it."""
    cursor.seek_for_prev(key)
    return key_here(cursor)


def step(cursor: RdictIter) -> bytes | None:
    """Move to the next key, and return it."""
    cursor.next()
    return key_here(cursor)


def step_back(cursor: RdictIter) -> bytes | None:
    """Move to the key before, and return it."""
    cursor.prev()
    return key_here(cursor)


def key_here(cursor: RdictIter) -> bytes | None:
    """The key under a cursor, or None past the end; an iterator that failed ends too, so ask."""
    key: bytes | None = cursor.key()
    if key is None:
        cursor.status()
    return key
