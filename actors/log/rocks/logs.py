"""The writer's knowledge of where each log ends, and how to find a log's blocks."""

from collections.abc import Iterator
from typing import Final

from rocksdict import RdictIter

from rillnode.actors.log.producers import Numbers, rows_prefix
from rillnode.actors.log.rocks.layout import BLOCK_KEY, INDEX_MAX, LOG_KEY, LogState, record_key
from rillnode.actors.log.rocks.tables import Tables
from rillnode.codecs.entries import HEADER_BYTES, Block, data_bytes, decode_header, sizes_of
from rillnode.codecs.errors import StoreError

_BLOCK_KEY_BYTES: Final = BLOCK_KEY.size


NOTED_MAX: Final = 131_072
"""Runs of producers that are kept in memory, some 50 MB. Own choice."""


class LogTable:
    """States of the logs in use, as they are once everything planned is written.

    A log that is not known is read from the database. There are two generations: when the young
    one is full it becomes the old one, and what has not been used since then is forgotten. So
    idle logs cost nothing beyond a bounded number of them, and no use is recorded one by one. Where
    producers have begun too many runs all logs are forgotten, as those in use may have them.

    Attributes:
        noted: so many runs were begun, or loaded, since.
    """

    def __init__(self, tables: Tables, logs_max: int) -> None:
        self._tables = tables
        self._logs_max = logs_max
        self.noted = 0
        self._young: dict[int, LogState] = {}
        self._old: dict[int, LogState] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def find(self, log: int) -> LogState | None:
        """The state of a log in use; the caller changes it in place as it plans."""
        state = self._young.get(log)
        if state is None:
            state = self._old.pop(log, None)
            if state is not None:
                self._young[log] = state
        return state

    def load(self, log: int) -> LogState:
        """The same of a log that is not in use yet."""
        # Not with a cursor kept: it would step over all that was written since it was made.
        state = load_state(self._tables.blocks_cursor(), log)
        rows = _values(self._tables.records_cursor(), record_key(rows_prefix(log)))
        numbers = state.numbers = Numbers.load(rows, state.next_index)
        if numbers is not None:
            self.noted += numbers.runs
        self._young[log] = state
        return state

    def forget(self, log: int) -> None:
        """The log is no more."""
        self._young.pop(log, None)
        self._old.pop(log, None)

    def age(self) -> None:
        """Forget idle logs where there are too many; only between groups, when all is written."""
        if self.noted > NOTED_MAX:
            self.noted, self._young, self._old = 0, {}, {}
        elif len(self._young) > self._logs_max:
            self._old = self._young
            self._young = {}


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
