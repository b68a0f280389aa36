"""A consumer: hands out entries, keeps how far they are processed, and has that saved.

What it reads from and saves to is its feed: a stream of a node, or of an Ockam hub.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, Literal, Protocol, Self, TypeVar

from rillnode.codecs import arguments
from rillnode.codecs.errors import (
    ConsumerError,
    ConsumerStopped,
    RequestError,
    RillnodeError,
    StreamRemoved,
)
from rillnode.codecs.events import event_logger
from rillnode.node.iteration import Iteration, Source

logger = event_logger("rillnode.node.client")

IN_FLIGHT: Final = 1_000
"""Entries that a consumer hands out before the first of them is acknowledged."""

SAVE_SECONDS: Final = 1.0
"""After which positions are saved."""

FULL_SECONDS: Final = 30.0
"""After which it is logged that nothing is acknowledged, where an entry is waited for."""

LAPSED_SECONDS: Final = 0.05
"""How often it is looked whether what was taken before may be handed out."""

LATE: Final = "The partition is another member's by now: what was processed since is not saved"
"""Why a position is not saved."""

Ack = Literal["next", "explicit"]
"""What makes an entry count as processed; see `Stream.consumer`."""


class Placed(Protocol):
    """An entry, as far as a consumer looks at it."""

    @property
    def partition(self) -> int:
        """Of the stream."""
        ...

    @property
    def index(self) -> int:
        """In the partition."""
        ...


E = TypeVar("E", bound=Placed)
E_co = TypeVar("E_co", bound=Placed, covariant=True)


class _Tracked(Generic[E]):
    """The entries of a partition that were handed out, from the first that is not processed on."""

    def __init__(self) -> None:
        self.order: deque[int] = deque()
        self.entries: dict[int, E | None] = {}  # None: acknowledged

    def advance(self) -> int | None:
        """Forget those that are processed without a gap; return the index behind them."""
        behind: int | None = None
        while self.order and self.entries[self.order[0]] is None:
            index = self.order.popleft()
            del self.entries[index]
            behind = index + 1
        return behind


class Ledger(Generic[E]):
    """The book of one consumer: what waits, what is in flight, and how far all is processed.

    Attributes:
        ready: entries that came and were not handed out yet.
        current: what `hand_next` has handed out, while nothing else was handed out later; None
            otherwise.
        room: set when less is in flight, as a partition is gone, or an entry acknowledged.
        positions: by partition, the index behind the last entry before which all are processed. It
            never goes back.
    """

    def __init__(self) -> None:
        self.ready: deque[E] = deque()
        self.current: E | None = None
        self.room = asyncio.Event()
        self.positions: dict[int, int] = {}
        self._begins: dict[int, int] = {}
        self._handed: list[E] = []  # not tracked yet: mostly all are processed together
        self._tracked: dict[int, _Tracked[E]] = {}
        self._tracked_count = 0

    @property
    def in_flight(self) -> int:
        """Entries that were handed out and are not acknowledged."""
        return len(self._handed) + self._tracked_count + (self.current is not None)

    def assign(self, partition: int, position: int) -> None:
        """Take a partition on, all before `position` being processed."""
        self._begins[partition] = self.positions[partition] = position

    def revoke(self, partition: int) -> None:
        """Forget a partition, and its entries that wait or are in flight."""
        self._keep_current()
        self.positions.pop(partition, None)
        self._begins.pop(partition, None)
        tracked = self._tracked.pop(partition, None)
        if tracked is not None:
            self._tracked_count -= sum(one is not None for one in tracked.entries.values())
        self._handed = [one for one in self._handed if one.partition != partition]
        self.recall(partition)
        self.room.set()

    def recall(self, partition: int) -> None:
        """Forget a partition's entries that wait; those in flight stay so."""
        left = [one for one in self.ready if one.partition != partition]
        self.ready.clear()
        self.ready += left

    def is_out(self, partition: int) -> bool:
        """Whether entries of a partition are in flight."""
        self._keep_current()
        tracked = self._tracked.get(partition)
        return any(one.partition == partition for one in self._handed) or (
            tracked is not None and any(one is not None for one in tracked.entries.values())
        )

    def has(self, entry: E) -> bool:
        """Whether an entry was handed out here, and does not count as processed."""
        self._keep_current()
        tracked = self._tracked.get(entry.partition)
        return any(one is entry for one in self._handed) or (
            tracked is not None and tracked.entries.get(entry.index) is entry
        )

    def hand(self) -> E:
        """Hand out the next entry that waits."""
        self._keep_current()
        entry = self.ready.popleft()
        self._handed.append(entry)
        return entry

    def hand_some(self, n: int) -> list[E]:
        """Hand out the next entries that wait: `n` of them, or all."""
        self._keep_current()
        ready = self.ready
        if n < len(ready):
            taken = [ready.popleft() for _ in range(n)]
        else:
            taken = list(ready)
            ready.clear()
        self._handed += taken
        return taken

    def hand_next(self) -> E:
        """Count all that is in flight as processed, and hand out the next entry that waits.

        Most consumers do only this, so that it is done without a list and a call.
        """
        current = self.current
        if current is None:
            self.settle()
        else:
            self.positions[current.partition] = current.index + 1
        self.current = entry = self.ready.popleft()
        return entry

    def settle(self) -> None:
        """Count all that is in flight as processed."""
        self._keep_current()
        if self._tracked_count:
            self._track()
            for partition, tracked in self._tracked.items():
                tracked.entries = dict.fromkeys(tracked.entries)
                self._advance(partition, tracked)
            self._tracked_count = 0
        self.positions |= {entry.partition: entry.index + 1 for entry in self._handed}
        self._handed.clear()

    def ack(self, entry: E) -> None:
        """Count one entry as processed; again does nothing.

        Raises:
            ConsumerError: `consumer.foreign`, it was not handed out here.
        """
        if not isinstance(getattr(entry, "partition", None), int):
            raise arguments.refused("entry", "is one that the consumer has handed out", entry)
        self._track()
        partition, index = entry.partition, entry.index
        tracked = self._tracked.get(partition)
        if tracked is not None and index in tracked.entries:
            known = tracked.entries[index]
            if known is None:
                return
            if known == entry:
                tracked.entries[index] = None
                self._tracked_count -= 1
                self._advance(partition, tracked)
                return
        elif self._begins.get(partition, index + 1) <= index < self.positions.get(partition, 0):
            return
        raise ConsumerError(
            "consumer.foreign",
            f"entry {index} of partition {partition} was not handed out by this consumer",
        )

    def _keep_current(self) -> None:
        if self.current is not None:
            self._handed.append(self.current)
            self.current = None

    def _track(self) -> None:
        self._keep_current()
        for entry in self._handed:
            tracked = self._tracked.get(entry.partition)
            if tracked is None:
                tracked = self._tracked[entry.partition] = _Tracked()
            tracked.order.append(entry.index)
            tracked.entries[entry.index] = entry
        self._tracked_count += len(self._handed)
        self._handed.clear()

    def _advance(self, partition: int, tracked: _Tracked[E]) -> None:
        behind = tracked.advance()
        if behind is not None:
            self.positions[partition] = behind


class Feed(Source[E_co], Protocol[E_co]):
    """The source that a consumer reads from, and saves its positions to.

    `fetch` assigns the ledger the partitions whose entries it gives. `close` saves what is
    processed by then.
    """

    async def open(self) -> None:
        """Find out where to begin; called again, and cancelled, it goes on."""
        ...

    def stop(self) -> None:
        """Bring nothing more: who waits in `fetch` is told so, and so is who comes later."""
        ...

    async def save(self) -> None:
        """Save the positions."""
        ...

    @property
    def ready(self) -> bool:
        """Whether `fetch` would give something at once."""
        ...

    @property
    def lag(self) -> int | None:
        """Entries that are not processed; None: not known."""
        ...


class _Saved:
    """How far a partition is saved, from when it was taken on until it is lost."""

    __slots__ = ("index",)

    def __init__(self, index: int = -1) -> None:
        self.index = index


class Saving:
    """Saves the positions of a ledger that have changed.

    Args:
        positions: of the ledger.
        save: saves one of a partition.
    """

    def __init__(
        self, positions: dict[int, int], save: Callable[[int, int], Awaitable[object]]
    ) -> None:
        self._positions = positions
        self._save = save
        self._saved: dict[int, _Saved] = {}
        self._task: asyncio.Task[None] | None = None

    def loaded(self, partition: int, position: int) -> None:
        """Note what was saved before, of a partition that is taken on."""
        self._saved[partition] = _Saved(position)

    def forget(self, partition: int) -> None:
        """Know nothing of a partition any more."""
        self._saved.pop(partition, None)

    def every(self, seconds: float, also: Callable[[], Awaitable[None]] | None = None) -> None:
        """Begin to save from time to time, and do something else with it."""
        self._task = asyncio.get_running_loop().create_task(self._every(seconds, also))

    def end(self) -> None:
        """Save no more by itself."""
        if self._task is not None:
            self._task.cancel()

    async def save(self) -> None:
        """Save what has changed; returns once it is durable.

        Raises:
            RillnodeError: a position could not be saved. Where it was refused, as a partition is
                another consumer's by now, the others are saved all the same.
        """
        refusal: RequestError | None = None
        begun = [
            (partition, index, self._saved.setdefault(partition, _Saved()))
            for partition, index in self._positions.items()
        ]
        for partition, index, saved in begun:
            if index <= saved.index:
                continue  # also by another call, since this one began
            try:
                if self._saved.get(partition) is not saved:
                    # It was lost since this began. It may have come again: that begins before this.
                    raise RequestError("group.generation", LATE)
                await self._save(partition, index)
            except StreamRemoved:
                raise
            except RequestError as error:
                refusal = refusal or error
            else:
                saved.index = max(saved.index, index)
        if refusal is not None:
            raise refusal

    async def _every(self, seconds: float, also: Callable[[], Awaitable[None]] | None) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await self.save()
                if also is not None:
                    await also()
            except RillnodeError as error:
                logger.warning("position_not_saved", extra={"code": error.code})
                if isinstance(error, StreamRemoved):
                    return  # with it all positions went


def check_seconds(save_seconds: float) -> None:
    """Refuse a time after which nothing can be saved over and over.

    Raises:
        ConsumerError: `consumer.invalid`.
    """
    if not arguments.seconds("save_seconds", save_seconds) > 0:
        text = f"save_seconds is more than 0, not {save_seconds:g}"
        raise ConsumerError("consumer.invalid", text)


class Consumer(Iteration[E]):
    """A reader of a stream that remembers under its name how far it is; made by `Stream.consumer`.

        async with stream.consumer("worker") as c:
            async for entry in c:
                ...

    It goes on over lost links, and any wait for an entry may be cancelled or time out: the next
    call goes on, no entry is lost, and none comes twice. Positions are saved from time to time and
    at the end of the `async with`; one saved never goes back. After a crash, what was processed
    since comes again.

    One task takes entries, or with `ack="explicit"` any number.

    Attributes:
        name: under which positions are saved.
        stream: name of the stream.
        max_in_flight: entries that are handed out before one of them is acknowledged.
    """

    def __init__(
        self,
        feed: Feed[E],
        ledger: Ledger[E],
        *,
        name: str,
        stream: str,
        ack: Ack,
        in_flight: int,
        lapsed: Callable[[], bool] | None = None,
    ) -> None:
        super().__init__(feed)
        if not arguments.text("name", name):
            raise ConsumerError("consumer.invalid", "a consumer has a name: positions go by it")
        if arguments.whole("max_in_flight", in_flight) < 1:
            text = f"max_in_flight is at least 1, not {in_flight}"
            raise ConsumerError("consumer.invalid", text)
        if ack not in ("next", "explicit"):
            raise ConsumerError("consumer.invalid", f'ack is "next" or "explicit", not {ack!r}')
        self.name = name
        self.stream = stream
        self.max_in_flight = in_flight
        self._feed = feed
        self._ledger = ledger
        self._items = ledger.ready
        self._settles = ack == "next"
        self._stopped = False
        # Whether others may have by now what is here, so that none may be handed out; None: nobody
        # else gets it.
        self._lapsed = lapsed

    def __repr__(self) -> str:
        ended = "closed" if self._closing else "stopped" if self._stopped else ""
        state = ended or f"{self.in_flight} in flight, lag {self.lag}"
        return f"<Consumer {self.name!r} of {self.stream!r}: {state}>"

    # Taking entries --------------------------------------------------------------------------

    async def __anext__(self) -> E:
        """Wait for the next entry; what was handed out before counts as processed.

        Raises:
            StopAsyncIteration: it was stopped or closed.
            RillnodeError: as `Stream.consumer` says; again at each further call.
        """
        ledger = self._ledger
        if self._lapsed is None and (current := ledger.current) is not None and ledger.ready:
            # As `hand_next`: to call it takes a tenth of what an entry takes in all.
            ledger.positions[current.partition] = current.index + 1
            ledger.current = entry = ledger.ready.popleft()
            return entry
        if self._settles:
            if not ledger.ready or (self._lapsed is not None and self._lapsed()):
                ledger.settle()
                await self._fill()
            # Without waiting, from here on: a cancellation would lose what is handed out.
            return ledger.hand_next()
        if not self._may_hand():
            await self._fill()
        return ledger.hand()

    async def next(self, *, timeout: float | None = None) -> E:
        """Wait for the next entry, as the iteration does.

        Args:
            timeout: seconds, after which `TimeoutError` is raised; the next call goes on.

        Raises:
            TimeoutError: nothing has come, or too much is in flight; the text says which.
            ConsumerStopped: it was stopped or closed.
            RillnodeError: as the iteration.
        """
        return (await self._take(1, arguments.timeout("timeout", timeout)))[0]

    async def batch(self, n: int, *, timeout: float | None = None) -> list[E]:
        """Wait for the next entries: as many as are there by then, at most `n`.

        All that was handed out before counts as processed, with `ack="next"`.

        Args:
            n: how many at most; not more than there is room for in flight.
            timeout: seconds to wait for the first; then the batch is empty.

        Raises:
            ConsumerStopped: it was stopped or closed.
            RillnodeError: as the iteration.
        """
        arguments.timeout("timeout", timeout)
        if arguments.whole("n", n) < 1:
            raise ConsumerError("consumer.invalid", f"a batch has at least 1 entry, not {n}")
        try:
            return await self._take(n, timeout)
        except TimeoutError:
            return []

    async def still(self, taken: Sequence[E], n: int) -> list[E]:
        """Return those of `taken` that are still this consumer's, or else the next batch of `n`.

        For callers that take entries ahead of who processes them, as the blocking client does: a
        group may have moved their partition meanwhile.
        """
        ledger = self._ledger
        while self._lapsed is not None and self._lapsed() and self._closing is None:
            await asyncio.sleep(LAPSED_SECONDS)
        return [entry for entry in taken if ledger.has(entry)] or await self.batch(n)

    def stop(self) -> None:
        """Take no more entries: the iteration ends when it is asked for the next one.

        What is in flight can be acknowledged until the `async with` is left, which saves it.
        """
        self._stopped = True
        self._feed.stop()
        self._ledger.ready.clear()
        self._ledger.room.set()

    async def _take(self, n: int, timeout: float | None) -> list[E]:
        ledger = self._ledger
        if self._settles:
            ledger.settle()
        try:
            async with asyncio.timeout(timeout):
                await self._fill()
                n = min(n, self.max_in_flight - ledger.in_flight)
                while len(ledger.ready) < n and self._feed.ready:
                    ledger.ready += await self._feed.fetch()  # is there, and does not wait
                return ledger.hand_some(n)
        except StopAsyncIteration:
            raise ConsumerStopped("consumer.stopped", "the consumer was stopped") from None
        except TimeoutError:
            raise timed_out(self, timeout) from None

    def _may_hand(self) -> bool:
        """Whether an entry can be handed out now."""
        ledger = self._ledger
        return (
            bool(ledger.ready)
            and ledger.in_flight < self.max_in_flight
            and (self._lapsed is None or not self._lapsed())
        )

    async def _fill(self) -> None:
        """Wait until an entry can be handed out."""
        ledger = self._ledger
        while not self._may_hand():
            if self._closing is not None:
                raise self._error or StopAsyncIteration
            if self._stopped:
                raise StopAsyncIteration
            self._close_when_dropped()
            if ledger.in_flight >= self.max_in_flight:
                await self._wait_for_room()
                continue
            try:
                ledger.ready += await self._feed.fetch()
            except StopAsyncIteration:
                raise
            except Exception as error:
                await self._fail(error)
                raise

    async def _wait_for_room(self) -> None:
        self._ledger.room.clear()
        try:
            async with asyncio.timeout(FULL_SECONDS):
                await self._ledger.room.wait()
        except TimeoutError:
            extra = {"consumer": self.name, "stream": self.stream, "in_flight": self.in_flight}
            logger.warning("nothing_acknowledged", extra=extra)

    # What is processed -----------------------------------------------------------------------

    def ack(self, entry: E) -> None:
        """Acknowledge an entry: it counts as processed. Again does nothing.

        Entries may be acknowledged in any order. What is saved is the index before which all are:
        those behind the first that is not come again after a crash.

        Raises:
            ConsumerError: `consumer.foreign`, this consumer has not handed it out, or the partition
                is no longer its own; `consumer.closed`, it would not be saved any more.
        """
        if self._closing is not None:
            raise ConsumerError("consumer.closed", "the consumer is closed: nothing is saved")
        self._ledger.ack(entry)
        self._ledger.room.set()

    async def save(self) -> None:
        """Save now what is processed; returns once it is durable.

        Raises:
            RillnodeError: it could not be saved.
        """
        await self._feed.save()

    @property
    def partitions(self) -> tuple[int, ...]:
        """The partitions that it reads; of a member of a group those that it has at the moment."""
        return tuple(sorted(self._ledger.positions))

    @property
    def in_flight(self) -> int:
        """Entries that were handed out and do not count as processed."""
        return self._ledger.in_flight

    @property
    def lag(self) -> int | None:
        """Entries up to the end of the log that are not processed, as the node has told last.

        While there are any it is asked anew whenever positions are saved. None: not known yet; or
        never, as a hub does not tell where its log ends.
        """
        return self._feed.lag

    # Beginning and end -----------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Find out where to begin; raises what the iteration would."""
        self._close_when_dropped()
        try:
            await self._feed.open()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(self, *raised: object) -> None:
        """Close. An error of the block counts for more than one of saving, which is logged."""
        try:
            await self.aclose()
        except RillnodeError as failure:
            if not any(raised):
                raise
            logger.warning("position_not_saved", extra={"code": failure.code})

    async def aclose(self) -> None:
        """Save what is processed, and end. Cancelled, it goes on to close.

        Raises:
            RillnodeError: it could not be saved.
        """
        self._ledger.room.set()
        await super().aclose()


def timed_out(consumer: Consumer[E], timeout: float | None) -> TimeoutError:
    """An error that says for what a call has waited in vain."""
    if consumer.in_flight < consumer.max_in_flight:
        return TimeoutError(f"no entry has come in {timeout:g} s")
    text = f"none of {consumer.in_flight} entries in flight was acknowledged in {timeout:g} s"
    return TimeoutError(text)


def behind(ends: dict[int, int], positions: dict[int, int]) -> int | None:
    """Entries between positions and ends; None: not all ends are known."""
    found = 0
    # Also other threads ask, while partitions may be taken on.
    for partition, position in tuple(positions.items()):
        if partition not in ends:
            return None
        found += max(0, ends[partition] - position)
    return found
