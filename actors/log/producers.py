"""Remembers what producers have numbered, so that nothing is stored twice; pure, for every store.

A producer numbers the entries that it appends to a log, upwards. Entries that stand one after the
other in the log, with numbers that do so, too, are a run: while one goes on there is nothing to
note, for its end is the log's. So what a log's only producer appends costs the comparison of two
numbers. Where a run begins or ends, its producer's row is written in the same batch as the entries.

What is decided follows from the operations and from those before them alone.
"""

from collections.abc import Callable, Iterable
from itertools import islice
from struct import Struct, error
from typing import Any, Final, Protocol

import msgspec

from rillnode.actors.log import Append, OpenProducer
from rillnode.actors.log.records import beside_log
from rillnode.codecs.errors import StoreError
from rillnode.codecs.limits import APPENDS_UNDER_WAY_MAX, ONCE_EPOCH, SEQUENCE_MAX

PRODUCERS_MAX: Final = 1_024
"""Producers of one kind, with or without a name, that a log knows: the one that has appended
nothing for longest is forgotten first. Own choice."""

AUTOMATIC_MILLISECONDS: Final = 86_400_000
"""A producer without a name is forgotten when others have appended since for a day: it lives as
long as its process, and is known for as long as that may have no link. Own choice."""

NAMED_MILLISECONDS: Final = 30 * 86_400_000
"""Likewise for one with a name. Own choice."""

ONCE_MAX: Final = 4_096
ONCE_MILLISECONDS: Final = 86_400_000
"""How many keys a log knows under which something was pushed once, and for how long. Own choice."""

Put = Callable[[str, bytes | None], object]
"""Writes a named value, or removes it."""

_Run = tuple[int, int, int]
"""The number and index of a run's first entry, and the index after its last; 0: it goes on."""


class _Known(msgspec.Struct, array_like=True):
    """A producer that a log knows, as its row holds it.

    Attributes:
        producer: its id, or its name.
        turn: higher than that of all who had something noted before.
        used_at: when another one followed it, or it was noted last, in milliseconds since 1970.
        epoch: which of the openings of its name counts; 0: it has none.
        since: the first number that is of this opening.
        next: the number after its last one; of a run that goes on, as of when that began.
        runs: the last of its runs.
    """

    producer: bytes
    turn: int
    used_at: int
    epoch: int
    since: int = 0
    next: int = 0
    runs: list[_Run] = []


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Known)
_unpacker = msgspec.msgpack.Decoder(list[_Known])
_ONE_ROW: Final = b"\x91"
"""Before a row in MessagePack: a list of one."""
_FEW_BYTES: Final = 256
"""Rows of so many bytes are of one producer, or of few that have begun little."""
_HEAD: Final = Struct("<qQH")
"""Before what is packed: offset and epoch of the run that goes on, and its producer's length."""


class Log(Protocol):
    """A log's state, as far as producers are concerned."""

    next_index: int
    numbers: "Numbers | None"


class Numbers(msgspec.Struct, eq=False, gc=False):
    """The numbers of one log's producers.

    It stays packed until more than the run that goes on is asked for: most of many logs have had
    one producer, whose first run goes on.
    """

    # By how much the numbers of the run that the log ends with are higher than its indexes; whose
    # run that is.
    _offset: int = 0
    _epoch: int = 0
    _producer: bytes = b""
    _packed: bytes = b""  # rows, while `_producers` is None
    _producers: "_Producers | None" = None
    _whole: bytes = b""  # what it was unpacked from, while nothing else was looked at: all of it

    @classmethod
    def load(cls, rows: Iterable[bytes]) -> "Numbers | None":
        """What the values of a log's rows say; None where there are none."""
        known = [_decoder.decode(row) for row in rows]
        if not known:
            return None
        numbers = cls()
        numbers._producers = _Producers(known)
        numbers._follow(numbers._producers)
        return numbers

    @classmethod
    def unpack(cls, packed: bytes) -> "Numbers":
        """What `pack` has packed, if that was anything."""
        return cls(_whole=packed)

    def pack(self) -> bytes:
        """Everything, as `unpack` takes it; b"": nothing."""
        if self._whole:
            return self._whole
        packed = self._packed if self._producers is None else self._producers.pack()
        if not packed:
            return b""
        return _HEAD.pack(self._offset, self._epoch, len(self._producer)) + self._producer + packed

    @property
    def is_small(self) -> bool:
        """Whether it takes next to no time to pack it, as it is packed already and has few rows."""
        return self._producers is None and len(self._whole or self._packed) <= _FEW_BYTES

    @property
    def runs(self) -> int:
        """How many runs are remembered."""
        return self._opened().runs

    def goes_on(self, append: Append, index: int) -> bool:
        """Whether an append at this index has nothing to be looked up, nor noted."""
        producer = append.producer
        if self._whole and producer:
            try:
                head = _HEAD.pack(append.sequence - index, append.epoch, len(producer))
            except error:
                pass  # there are no such numbers
            else:
                return self._whole.startswith(head + producer)
        self._open_whole()
        return producer == self._producer and (
            not producer
            or (append.sequence - index == self._offset and append.epoch == self._epoch)
        )

    def stored(self, append: Append, index: int) -> int | None:
        """The index that an append's first entry has already; None: it is to be stored at `index`.

        Raises:
            StoreError: `producer.stale`, `producer.order`, `producer.fenced`.
            ValueError: its number is none.
        """
        if not append.producer:
            return None
        _check_number(append.sequence, SEQUENCE_MAX - append.count)
        _check_number(append.epoch, SEQUENCE_MAX)
        self._open_whole()
        if self._producers is None and not self._packed:
            return None
        return self._opened().stored(append, index)

    def add(self, append: Append, index: int, put: Put) -> None:
        """Note an append that is stored at this index and does not go on with the last run."""
        self._open_whole()
        if self._producers is None and not self._packed:
            self._begin(append, index, put)
            return
        producers = self._opened()
        producers.add(append, index, put)
        self._follow(producers)

    def open(self, opening: OpenProducer, index: int, put: Put) -> None:
        """Let a name's numbers go on in a new epoch: those before it count no more.

        Args:
            opening: its results are set.
            index: the log's next one.
            put: writes rows.

        Raises:
            ValueError: its time is none.
        """
        producers = self._opened()
        producers.open(opening, index, put)
        self._follow(producers)

    def _begin(self, append: Append, index: int, put: Put) -> None:
        """Note the first of all runs, which is what many logs have for good."""
        producer, epoch, sequence = append.producer, append.epoch, append.sequence
        first = _Known(producer, 1, append.received_at, epoch, runs=[(sequence, index, 0)])
        row = _encoder.encode(first)
        self._producer, self._epoch, self._offset = producer, epoch, sequence - index
        self._packed = _ONE_ROW + row
        put(_row_name(append.log, producer, epoch), row)

    def _open_whole(self) -> None:
        if self._whole:
            packed, self._whole = self._whole, b""
            self._offset, self._epoch, size = _HEAD.unpack_from(packed)
            end = _HEAD.size + size
            self._producer, self._packed = packed[_HEAD.size : end], packed[end:]

    def _opened(self) -> "_Producers":
        self._open_whole()
        producers = self._producers
        if producers is None:
            known = _unpacker.decode(self._packed) if self._packed else []
            producers, self._packed = _Producers(known), b""
            self._producers = producers
        return producers

    def _follow(self, producers: "_Producers") -> None:
        going_on = producers.going_on
        self._producer, self._epoch = (b"", 0) if going_on is None else going_on
        self._offset = producers.offset


class _Producers:
    """All that is known of the producers of one log.

    Args:
        known: what their rows hold.

    Attributes:
        offset: by how much the numbers of the run that goes on are higher than its indexes.
    """

    __slots__ = ("_automatic", "_named", "_once", "_open", "_turn", "offset")

    def __init__(self, known: list[_Known]) -> None:
        # In the order of their turns.
        self._automatic: dict[bytes, _Known] = {}
        self._named: dict[bytes, _Known] = {}
        self._once: dict[bytes, _Known] = {}
        # Whose run the log ends with.
        self._open: _Known | None = None
        self.offset = 0
        known.sort(key=lambda one: one.turn)
        for one in known:
            self._kind(one.epoch)[one.producer] = one
            if one.runs and not one.runs[-1][2]:
                self._continue(one)
        self._turn = known[-1].turn if known else 0

    def pack(self) -> bytes:
        """Everything, as a list of rows; b"": nothing."""
        everything = self._all()
        return _encoder.encode(everything) if everything else b""

    @property
    def runs(self) -> int:
        """How many runs are remembered."""
        return sum([max(1, len(one.runs)) for one in self._all()])

    @property
    def going_on(self) -> tuple[bytes, int] | None:
        """The producer, and its epoch, whose run the log ends with."""
        return None if self._open is None else (self._open.producer, self._open.epoch)

    def _all(self) -> list[_Known]:
        return [*self._automatic.values(), *self._named.values(), *self._once.values()]

    def stored(self, append: Append, index: int) -> int | None:
        """The index that an append's first entry has, as `Numbers.stored` tells it."""
        known = self._find(append.producer, append.epoch, append.received_at)
        if known is None:
            return None
        if append.epoch != known.epoch:
            raise _other(append) if append.epoch >= ONCE_EPOCH else _fenced(append)
        following = self._next(known, index)
        if append.sequence >= following:
            if append.after > following and append.epoch < ONCE_EPOCH:
                raise _out_of_order(append, following)
            return None
        first = _index_in(known, append.sequence, index)
        last = _index_in(known, append.sequence + append.count - 1, index)
        whole = first is not None and last == first + append.count - 1
        if not whole or append.sequence < known.since:
            raise _stale(append, first, following - 1)
        return first

    def add(self, append: Append, index: int, put: Put) -> None:
        """Note an append, as `Numbers.add` does."""
        log, now = append.log, append.received_at
        ended = self._end_run(index, now)
        known: _Known | None = None
        if append.producer:
            known = self._find(append.producer, append.epoch, now)
            if known is None:
                known = _Known(append.producer, 0, now, append.epoch)
            known.runs = [*known.runs[1 - APPENDS_UNDER_WAY_MAX :], (append.sequence, index, 0)]
            self._note(log, known, now, put)
            self._continue(known)
        if ended is not None and ended is not known:
            put(_name(log, ended), _encoder.encode(ended))

    def open(self, opening: OpenProducer, index: int, put: Put) -> None:
        """Begin a new epoch, as `Numbers.open` does."""
        now = opening.received_at
        _check_number(now, SEQUENCE_MAX)
        known = self._find(opening.producer, 1, now)
        if known is None:
            # Higher than any that was given before the producer was forgotten.
            known = _Known(opening.producer, 0, now, now)
        known.epoch += 1
        known.since = known.next = self._next(known, index)
        self._note(opening.log, known, now, put)
        opening.epoch, opening.next_sequence = known.epoch, known.next
        last = _index_in(known, known.next - 1, index)
        opening.last_index = -1 if last is None else last

    def _continue(self, known: _Known) -> None:
        sequence, index, _ = known.runs[-1]
        self._open, self.offset = known, sequence - index

    def _end_run(self, index: int, now: int) -> _Known | None:
        """The producer whose run ends before this index; its row is to be written."""
        known, self._open = self._open, None
        if known is not None:
            first, at, _ = known.runs[-1]
            known.runs[-1] = (first, at, index)
            known.next, known.used_at = self.offset + index, now
        return known

    def _note(self, log: int, known: _Known, now: int, put: Put) -> None:
        """Write a producer's row, as the last one; forget others where there are too many."""
        kind, most = self._kind(known.epoch), _limits(known.epoch)[0]
        kind.pop(known.producer, None)
        self._turn += 1
        known.turn, known.used_at = self._turn, now
        kind[known.producer] = known
        put(_name(log, known), _encoder.encode(known))
        for other in list(islice(kind.values(), 2)):  # more go than come, where many are too old
            if other is not self._open and other is not known:
                if len(kind) <= most and not self._is_over(other, now):
                    break
                del kind[other.producer]
                put(_name(log, other), None)

    def _kind(self, epoch: int) -> dict[bytes, _Known]:
        if epoch >= ONCE_EPOCH:
            return self._once
        return self._named if epoch else self._automatic

    def _find(self, producer: bytes, epoch: int, now: int) -> _Known | None:
        known = self._kind(epoch).get(producer)
        return None if known is None or self._is_over(known, now) else known

    def _is_over(self, known: _Known, now: int) -> bool:
        limit = _limits(known.epoch)[1]
        return known is not self._open and now - known.used_at > limit

    def _next(self, known: _Known, index: int) -> int:
        """The number after a producer's last one."""
        return self.offset + index if known is self._open else known.next


def numbers_for(append: Append, log: Log) -> Numbers | None:
    """What an append is to be looked up, and noted, in; None: there is nothing to do so with.

    A copy of a log has its producers' rows by themselves.
    """
    numbers = log.numbers
    if append.timed is None:
        return None
    if numbers is None:
        if append.producer:
            numbers = log.numbers = Numbers()
    elif numbers.goes_on(append, log.next_index):
        return None
    return numbers


def open_producer(opening: OpenProducer, log: Log, put: Put) -> None:
    """Carry out an opening, and set its results."""
    if log.numbers is None:
        log.numbers = Numbers()
    log.numbers.open(opening, log.next_index, put)


def in_row(row: bytes, append: Append, index: int) -> bool:
    """Whether a log has an append already, as its producer's row shows (`row_name`).

    Args:
        row: the value of that.
        append: what may have been stored before.
        index: the log's next one; a later one may show a little more than there is.
    """
    known = _decoder.decode(row)
    if known.epoch != append.epoch or append.sequence < known.since:
        return False
    first = _index_in(known, append.sequence, index)
    last = _index_in(known, append.sequence + append.count - 1, index)
    return first is not None and last == first + append.count - 1


def row_name(append: Append) -> str:
    """The name of the row of an append's producer."""
    return _row_name(append.log, append.producer, append.epoch)


def _index_in(known: _Known, sequence: int, index: int) -> int | None:
    """The index that a number was given, where that is known; `index` is the log's next one."""
    for first, at, end in reversed(known.runs):
        if 0 <= sequence - first < (end or index) - at:
            return at + sequence - first
    return None


def rows_prefix(log: int) -> str:
    """Begins the names of the rows of a log's producers."""
    return f"{beside_log(log)}producer/"


def _check_number(number: int, most: int) -> None:
    if not 0 <= number <= most:
        raise ValueError(f"{number} is not from 0 to {most}")


def _name(log: int, known: _Known) -> str:
    return _row_name(log, known.producer, known.epoch)


def _row_name(log: int, producer: bytes, epoch: int) -> str:
    kind = "once" if epoch >= ONCE_EPOCH else "named" if epoch else "automatic"
    return f"{rows_prefix(log)}{kind}/{producer.hex()}"


def _limits(epoch: int) -> tuple[int, int]:
    """How many producers of a kind are known, and for how many milliseconds."""
    if epoch >= ONCE_EPOCH:
        return ONCE_MAX, ONCE_MILLISECONDS
    return PRODUCERS_MAX, NAMED_MILLISECONDS if epoch else AUTOMATIC_MILLISECONDS


def _other(append: Append) -> StoreError:
    text = "Something else was stored under this key: what is new has a key of its own"
    return StoreError("once.other", text, retryable=False, log=append.log)


def _stale(append: Append, index: int | None, last: int) -> StoreError:
    where = "" if index is None else f", and entry {index} has it"
    context: dict[str, Any] = {} if index is None else {"index": index}
    return StoreError(
        "producer.stale",
        f"Number {append.sequence} is not new: the producer's last one is {last}{where}",
        retryable=False,
        **context,
    )


def _out_of_order(append: Append, following: int) -> StoreError:
    last = f"the last one that is stored is {following - 1}" if following else "none is stored"
    return StoreError(
        "producer.order",
        f"Number {append.sequence} comes after {append.after - 1}, which was not stored: {last}",
        retryable=False,
    )


def _fenced(append: Append) -> StoreError:
    return StoreError(
        "producer.fenced",
        f"Producer {append.producer.decode(errors='backslashreplace')} was opened once more since: "
        "only who has opened it last may push",
        retryable=False,
    )
