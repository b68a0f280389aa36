"""The state of a work queue: which entries are open, who has them, and what was settled.

Of each partition there is a mark, `next`: every entry below it was looked at, and is settled unless
it is among the open ones. So what is kept does not grow with what is done, in whatever order that
is: an entry that takes for ever holds up no other. There are at most `OPEN_MAX` open entries.

An open entry waits, is with a worker, or is to become a dead letter. Where the order by key is
asked for, one entry of a key is *at the head*, the others wait behind it, in order.

All of this is plain computing: time is an argument, and who calls writes down what has changed.
"""

from bisect import insort
from collections import Counter, OrderedDict
from collections.abc import Container, Iterator, Sequence
from enum import IntEnum
from hashlib import blake2b
from heapq import heappop, heappush
from typing import Final, Literal

import msgspec

from rillnode.codecs.errors import StoreError

OPEN_MAX: Final = 10_000
"""Entries of a queue that are open at a time: with workers, waiting or dying."""

WORKERS_MAX: Final = 1_000
"""Workers of a queue that are known at a time."""

WORKER_KEPT_MS: Final = 600_000
WORKER_LEFT_MS: Final = 60_000
"""How long a worker is known that has nothing, and one that has left: so long a settlement is known
that it says again."""

PAUSE_MS: Final = 1_000
PAUSE_MS_MAX: Final = 600_000
"""Before an entry is given again: twice as long each time, within these bounds."""

SETTLEMENTS_KEPT: Final = 8
"""Of so many settlements of a worker, by number, it is known what became of them: it may have that
many under way, and say them again in any order."""

DYING_MAX: Final = 256
"""Entries that wait to become dead letters; above it no others are given."""

REASON_CHARACTERS_MAX: Final = 256
"""Of why an entry failed; more is cut off."""

Place = tuple[int, int]
"""Partition and index of an entry."""


class Outcome(IntEnum):
    """A worker's word on a job, as `Settlement` has it."""

    DONE = 0
    RETRY = 1
    REJECT = 2
    EXTEND = 3
    RELEASE = 4


class Open(msgspec.Struct, array_like=True):
    """An open entry.

    Attributes:
        attempts: how often it was given.
        at: with a worker: when that is taken to have failed; else not given before; milliseconds
            since 1970.
        span: how much time that was when it was set, by which a clock that has gone back shows.
        worker: who has it; 0: nobody.
        key: stands for its key where the order by key is asked for.
        reason: it is to become a dead letter, and why.
    """

    attempts: int = 0
    at: int = 0
    span: int = 0
    worker: int = 0
    key: int = 0
    reason: str = ""


class KnownWorker(msgspec.Struct, array_like=True):
    """A worker.

    Attributes:
        token: it is known by.
        seen_at: when it was last heard of, more or less.
        number: the highest of its settlements.
        late: what was refused of that.
        before: what was refused of those carried out before it, by number.
    """

    token: bytes
    seen_at: int = 0
    number: int = 0
    late: Sequence[int] = ()
    before: dict[int, Sequence[int]] = {}


class Settings(msgspec.Struct, array_like=True, frozen=True):
    """The settings of a whole queue, as the latest worker to join has them.

    Attributes:
        attempts: after so many an entry is a dead letter.
        in_flight: jobs of all workers together; 0: no limit.
        by_key: one entry of a key at a time, in order.
    """

    attempts: int = 5
    in_flight: int = 0
    by_key: bool = False


class _Partition(msgspec.Struct, array_like=True):
    next: int = 0
    open: dict[int, Open] = {}


class _Stored(msgspec.Struct, array_like=True):
    """The record of a queue."""

    version: Literal[1]
    stamp: int
    settings: Settings
    partitions: list[_Partition]
    workers: dict[int, KnownWorker]
    done: int
    dead: int
    trimmed: int
    taken_back: int
    letters_at: int = 0


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Stored)


def key_number(key: bytes | None) -> int:
    """What stands for a key; two keys may, once in a very long time, have the same. 0: none."""
    if key is None:
        return 0
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "big") | 1


class QueueState:
    """The state of one queue.

    Attributes:
        settings: see there.
        stamp: of who has written the record last; two writes have two.
        changed: whether it is another than what was written.
        done, dead, trimmed: entries that were settled so; `trimmed` of those that the stream does
            not keep any more.
        taken_back: the index in the stream of dead letters from which on none was given again.
        letters_at: when that stream was created: in a later one the index means nothing. 0: none
            was given again.
        dying: places of entries that are to become dead letters.
        given: how many jobs each worker has.
        given_count: all of them.
    """

    def __init__(self, stored: _Stored) -> None:
        self.settings = stored.settings
        self.stamp = stored.stamp
        self.done, self.dead, self.trimmed = stored.done, stored.dead, stored.trimmed
        self.taken_back, self.letters_at = stored.taken_back, stored.letters_at
        self.changed = False
        self._partitions = stored.partitions
        self._workers = stored.workers
        self._ids = {worker.token: number for number, worker in stored.workers.items()}
        self._ready: OrderedDict[Place, None] = OrderedDict()
        self._waiting: list[tuple[int, int, int]] = []
        self._behind: dict[tuple[int, int], list[int]] = {}
        self.dying: dict[Place, None] = {}
        self.given: Counter[int] = Counter()
        self.given_count = 0
        self._open_count = 0
        self._expires_at = 0  # no later than the first that expires
        for partition, part in enumerate(self._partitions):
            # What was given comes first: of a key that is at the head.
            given = [index for index, one in part.open.items() if one.worker or one.reason]
            others = sorted(part.open.keys() - set(given))
            for index in (*given, *others):
                self._take_up(partition, index, part.open[index])

    @classmethod
    def new(cls) -> "QueueState":
        """A queue that nobody has worked on yet."""
        return cls(_Stored(1, 0, Settings(), [], {}, 0, 0, 0, 0))

    @classmethod
    def decode(cls, value: bytes) -> "QueueState":
        """Read a record.

        Raises:
            StoreError: `queue.record`, it is none, or of a later version.
        """
        try:
            return cls(_decoder.decode(value))
        except msgspec.MsgspecError as error:
            text = f"the state of a work queue cannot be read ({error})"
            raise StoreError("queue.record", text, retryable=False) from None

    def encode(self, stamp: int) -> bytes:
        """Write the record."""
        self.stamp, self.changed = stamp, False
        return _encoder.encode(
            _Stored(
                1, stamp, self.settings, self._partitions, self._workers, self.done, self.dead,
                self.trimmed, self.taken_back, self.letters_at,
            )
        )  # fmt: skip

    # What it is ------------------------------------------------------------------------------

    @property
    def partitions(self) -> int:
        """How many it knows of."""
        return len(self._partitions)

    @property
    def open_count(self) -> int:
        """Open entries that were looked at."""
        return self._open_count

    @property
    def is_full(self) -> bool:
        """Whether no further entries are looked at until some are settled."""
        return self._open_count >= OPEN_MAX or len(self.dying) >= DYING_MAX

    @property
    def ready_count(self) -> int:
        """How many can be given now, as far as `ripen` has seen."""
        return len(self._ready)

    @property
    def workers(self) -> Iterator[tuple[int, bytes]]:
        """Workers that have jobs: their ids and tokens."""
        return ((number, self._workers[number].token) for number in self.given)

    def workers_of(self, tokens: Container[bytes]) -> list[tuple[int, bytes]]:
        """Workers that have jobs, or have one of these tokens: their ids and tokens."""
        return [
            (number, worker.token)
            for number, worker in self._workers.items()
            if self.given[number] or worker.token in tokens
        ]

    def next_index(self, partition: int) -> int:
        """The first entry of a partition that was not looked at."""
        return self._partitions[partition].next

    def low_mark(self, partition: int) -> int:
        """The entry below which all of a partition are settled."""
        part = self._partitions[partition]
        return min(part.open, default=part.next)

    def of(self, place: Place) -> Open | None:
        """What is known of an open entry; None: it is not open."""
        partition, index = place
        if partition >= len(self._partitions):
            return None
        return self._partitions[partition].open.get(index)

    def holds(self, worker: int, place: Place, attempt: int) -> bool:
        """Whether a worker has an entry, for the attempt of this number."""
        entry = self.of(place)
        return entry is not None and entry.worker == worker and entry.attempts == attempt

    def due_at(self) -> int | None:
        """When something happens by itself, milliseconds since 1970; None: nothing will."""
        found = [self._waiting[0][0]] if self._waiting else []
        if self.given_count:
            found.append(self._expires_at)
        return min(found, default=None)

    # Workers ---------------------------------------------------------------------------------

    def grow(self, partitions: int) -> None:
        """There are so many partitions at least."""
        while len(self._partitions) < partitions:
            self._partitions.append(_Partition(open={}))
            self.changed = True

    def worker_of(self, token: bytes) -> int | None:
        """The id of a worker, where it is known."""
        return self._ids.get(token)

    def join(self, token: bytes, now: int, connected: Container[bytes] = ()) -> int | None:
        """Have a worker known; return its id, or None where there are too many.

        Those that are connected stay known, however long there was nothing to do for them.
        """
        known = self._ids.get(token)
        if known is not None:
            self._workers[known].seen_at = now
        self._forget_workers(now, connected)
        if known is None:
            if len(self._workers) >= WORKERS_MAX:
                return None
            known = max(self._workers, default=0) + 1
            self._workers[known] = KnownWorker(token, now)
            self._ids[token] = known
        self.changed = True
        return known

    def set_settings(self, settings: Settings) -> bool:
        """Let these hold; False: the order cannot change while entries are open."""
        if settings.by_key != self.settings.by_key and self._open_count:
            return False
        self.changed |= settings != self.settings
        self.settings = settings
        return True

    def leave(self, worker: int, now: int) -> None:
        """A worker says that it is none any more, and has nothing."""
        self._workers[worker].seen_at = now - WORKER_KEPT_MS + WORKER_LEFT_MS

    def _forget_workers(self, now: int, connected: Container[bytes]) -> None:
        idle = [
            number
            for number, worker in self._workers.items()
            if not self.given[number] and worker.seen_at < now - WORKER_KEPT_MS
        ]
        for number in idle:
            if self._workers[number].token not in connected:
                del self._ids[self._workers.pop(number).token]

    # Entries ---------------------------------------------------------------------------------

    def look_at(self, partition: int, index: int, key: int) -> None:
        """Take the next entry of a partition among those that are open."""
        part = self._partitions[partition]
        assert index == part.next, "entries are looked at in their order"
        part.next = index + 1
        entry = part.open[index] = Open(key=key if self.settings.by_key else 0)
        self._take_up(partition, index, entry)
        self.changed = True

    def pass_over(self, partition: int, first: int) -> None:
        """A partition keeps nothing below `first`."""
        part = self._partitions[partition]
        if first > part.next:
            self.trimmed += first - part.next
            part.next = first
            self.changed = True

    def ripen(self, now: int) -> None:
        """See which of those that wait can be given by now."""
        while self._waiting and self._waiting[0][0] <= now:
            at, partition, index = heappop(self._waiting)
            entry = self.of((partition, index))
            if entry is not None and entry.at == at and not (entry.worker or entry.reason):
                self._ready[partition, index] = None

    def give_new(self, partition: int, count: int, worker: int, now: int, span: int) -> None:
        """Give the next entries of a partition, which were not looked at, to a worker.

        Only where no order of keys is asked for.
        """
        part = self._partitions[partition]
        deadline = now + span
        entries = part.open
        for index in range(part.next, part.next + count):
            entries[index] = Open(1, deadline, span, worker)
        part.next += count
        self._open_count += count
        self._count(worker, deadline, count)
        self.changed = True

    def take_ready(self) -> Place | None:
        """The next one that can be given; it is given, put back or settled by who takes it."""
        while self._ready:
            place, _ = self._ready.popitem(last=False)
            entry = self.of(place)
            if entry is not None and not (entry.worker or entry.reason):
                return place
        return None

    def put_back(self, place: Place) -> None:
        """It is not given now."""
        self._ready[place] = None
        self._ready.move_to_end(place, last=False)

    def give(self, place: Place, worker: int, now: int, span: int) -> int:
        """Give an entry to a worker for some time; return which attempt at it this is."""
        entry = self._partitions[place[0]].open[place[1]]
        entry.attempts += 1
        deadline = now + span
        entry.worker, entry.at, entry.span = worker, deadline, span
        self._count(worker, deadline)
        self.changed = True
        return entry.attempts

    def settle_done(self, worker: int, first: Place, count: int, attempt: int) -> list[int]:
        """Take a worker's word that entries which follow each other are done; return the late ones.

        These are numbers from 0.
        """
        partition, index = first
        entries = self._partitions[partition].open if partition < len(self._partitions) else {}
        late: list[int] = []
        in_order = 0
        get = entries.get
        for at in range(index, index + count):
            entry = get(at)
            if entry is None or entry.worker != worker or entry.attempts != attempt:
                late.append(at - index)
            elif entry.key:
                self._close((partition, at))
                in_order += 1
            else:
                del entries[at]
        closed = count - len(late) - in_order
        if closed:
            self._open_count -= closed
            self._uncount(worker, closed)
        self.done += count - len(late)
        self.changed |= count > len(late)
        return late

    def settle(
        self,
        worker: int,
        place: Place,
        attempt: int,
        outcome: Outcome,
        milliseconds: int | None,
        reason: str,
        now: int,
    ) -> bool:
        """Take a worker's word on a job; False: it is not the worker's any more."""
        entry = self.of(place)
        if entry is None or not self.holds(worker, place, attempt):
            return False
        self.changed = True
        match outcome:
            case Outcome.DONE:
                self.settle_done(worker, place, 1, attempt)
            case Outcome.RETRY:
                self._failed(place, entry, reason or "its worker gave it back", now, milliseconds)
            case Outcome.REJECT:
                self._leave(entry)
                self._doom(place, entry, reason or "its worker rejected it")
            case Outcome.EXTEND:
                entry.span = milliseconds or 0
                entry.at = now + entry.span
                self._expires_at = min(self._expires_at, entry.at)
            case Outcome.RELEASE:
                entry.attempts -= 1
                self._again(place, entry, now, 0)
        return True

    def note_settled(self, worker: int, number: int, late: Sequence[int], now: int) -> None:
        """A worker's settlement was carried out."""
        known = self._workers[worker]
        known.seen_at = now
        self.changed = True
        if number < known.number:
            known.before = {**known.before, number: late}
            return
        oldest = max(0, number - SETTLEMENTS_KEPT)
        before = {**known.before, known.number: known.late}
        known.before = {at: refused for at, refused in before.items() if at > oldest}
        known.number, known.late = number, late

    def settled(self, worker: int, number: int, count: int) -> Sequence[int] | None:
        """What was refused of a worker's settlement of `count` jobs; None: it is to be carried out.

        Of one that is too old to be known all is.
        """
        known = self._workers[worker]
        if number == known.number:
            return known.late
        if number <= max(0, known.number - SETTLEMENTS_KEPT):
            return range(count)
        return known.before.get(number)

    def look_at_clock(self, now: int) -> None:
        """See that nothing waits for longer than it was to, as where a clock was ahead before."""
        for partition, part in enumerate(self._partitions):
            for index, entry in part.open.items():
                if entry.at > now + entry.span:
                    entry.at = now + entry.span
                    self.changed = True
                    if entry.worker:
                        self._expires_at = min(self._expires_at, entry.at)
                    elif not entry.reason and self._is_ahead(partition, index, entry):
                        heappush(self._waiting, (entry.at, partition, index))

    def _is_ahead(self, partition: int, index: int, entry: Open) -> bool:
        """Whether no other entry of its key is to be given before it."""
        return not entry.key or index not in self._behind[partition, entry.key]

    def expire(self, now: int) -> None:
        """Take back what was not answered in time."""
        if not self.given_count or now < self._expires_at:
            return
        self._expires_at = 2**63
        for place, entry in tuple(self._with_workers()):
            if entry.at <= now:
                self._failed(place, entry, "its worker did not answer in time", now, 0)
                self.changed = True
            else:
                self._expires_at = min(self._expires_at, entry.at)

    def adopt(self, worker: int, place: Place, now: int, span: int) -> bool:
        """Take a worker's word that it was given an entry for the first time; False: it cannot be.

        So it is where the record was lost that says so. No order of keys is kept.
        """
        partition, index = place
        if partition >= len(self._partitions):
            return False
        part = self._partitions[partition]
        if self._open_count + index + 1 - part.next > OPEN_MAX:
            return False
        for one in range(part.next, index + 1):
            self.look_at(partition, one, 0)
        entry = part.open.get(index)
        if entry is None or entry.worker or entry.attempts or entry.reason:
            return False
        self.give(place, worker, now, span)
        return True

    def return_all(self, worker: int, now: int, *, but: frozenset[tuple[int, int, int]]) -> None:
        """Take back what a worker has but says that it has not got: it was lost on its way."""
        for place, entry in tuple(self._with_workers()):
            if entry.worker == worker and (*place, entry.attempts) not in but:
                entry.attempts -= 1
                self._again(place, entry, now, 0)
                self.changed = True

    def lose(self, worker: int, now: int, reason: str) -> None:
        """Take back all that a worker has: it is gone."""
        for place, entry in tuple(self._with_workers()):
            if entry.worker == worker:
                self._failed(place, entry, reason, now, 0)
                self.changed = True

    def pass_one_over(self, place: Place) -> None:
        """The stream does not keep an entry any more that waits."""
        self._close(place)
        self.trimmed += 1
        self.changed = True

    def bury(self, place: Place) -> None:
        """An entry is a dead letter now."""
        self._close(place)
        self.dead += 1
        self.changed = True

    def take_back(self, place: Place, key: int) -> bool:
        """Have a dead letter's entry given again; False: it is open already."""
        if place[0] >= len(self._partitions):
            return False
        part = self._partitions[place[0]]
        if place[1] in part.open or place[1] >= part.next:
            return False
        entry = part.open[place[1]] = Open(key=key if self.settings.by_key else 0)
        self._take_up(*place, entry)
        self.dead -= 1
        self.changed = True
        return True

    # Within ----------------------------------------------------------------------------------

    def _with_workers(self) -> Iterator[tuple[Place, Open]]:
        for partition, part in enumerate(self._partitions):
            for index, entry in part.open.items():
                if entry.worker:
                    yield (partition, index), entry

    def _count(self, worker: int, deadline: int, count: int = 1) -> None:
        self._expires_at = min(self._expires_at, deadline) if self.given_count else deadline
        self.given[worker] = self.given.get(worker, 0) + count
        self.given_count += count

    def _uncount(self, worker: int, count: int = 1) -> None:
        self.given_count -= count
        left = self.given[worker] - count
        if left:
            self.given[worker] = left
        else:
            del self.given[worker]

    def _take_up(self, partition: int, index: int, entry: Open) -> None:
        """Put an open entry where it belongs."""
        self._open_count += 1
        if entry.worker:
            self._count(entry.worker, entry.at)
        if entry.reason:
            self.dying[partition, index] = None
        if entry.key:
            behind = self._behind.get((partition, entry.key))
            if behind is not None:
                insort(behind, index)
                return
            self._behind[partition, entry.key] = []
        if not (entry.worker or entry.reason):
            heappush(self._waiting, (entry.at, partition, index))

    def _leave(self, entry: Open) -> None:
        """Its worker has it no more."""
        worker, entry.worker = entry.worker, 0
        self._uncount(worker)

    def _again(self, place: Place, entry: Open, now: int, span: int) -> None:
        if entry.worker:
            self._leave(entry)
        entry.at, entry.span = now + span, span
        heappush(self._waiting, (entry.at, *place))

    def _failed(
        self, place: Place, entry: Open, reason: str, now: int, milliseconds: int | None
    ) -> None:
        """An attempt has failed: another one follows, after a pause, or it is a dead letter."""
        if entry.attempts >= self.settings.attempts:
            self._leave(entry)
            self._doom(place, entry, reason)
            return
        if milliseconds is None:
            doublings = min(entry.attempts - 1, 20)
            milliseconds = min(PAUSE_MS << doublings, PAUSE_MS_MAX)
        self._again(place, entry, now, milliseconds)

    def _doom(self, place: Place, entry: Open, reason: str) -> None:
        entry.reason = reason[:REASON_CHARACTERS_MAX]
        self.dying[place] = None

    def _close(self, place: Place) -> None:
        """An entry is settled; who waits behind it is at the head."""
        partition, index = place
        entry = self._partitions[partition].open.pop(index)
        self._open_count -= 1
        if entry.worker:
            self._leave(entry)
        self.dying.pop(place, None)
        if not entry.key:
            return
        behind = self._behind[partition, entry.key]
        if not behind:
            del self._behind[partition, entry.key]
            return
        head = behind.pop(0)
        at = self._partitions[partition].open[head].at
        heappush(self._waiting, (at, partition, head))
