"""A stream of a hub: pushed to, pulled from and followed by consumers at the end of a route."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from rillnode.codecs.errors import ActorError, RequestError, RillnodeError
from rillnode.codecs.events import event_logger
from rillnode.codecs.routing.routes import Route
from rillnode.codecs.routing.stream import (
    CreatePartitionedRequest,
    CreatePartitionedResponse,
    CreateRequest,
    CreateResponse,
    PullRequest,
    PullResponse,
    PushConfirm,
    PushRequest,
    Request,
    Response,
    Status,
)
from rillnode.node.client.consumer import (
    IN_FLIGHT,
    SAVE_SECONDS,
    Ack,
    Consumer,
    Ledger,
    check_seconds,
)
from rillnode.node.iteration import Steps, kept
from rillnode.node.ockam.client.hub_calls import HubCalls, T, Take, passes
from rillnode.node.ockam.client.hub_index import HubIndex

logger = event_logger("rillnode.node.ockam.client.hub")

PULL_LIMIT: Final = 10
"""Entries asked for at once, as released consumers do: an answer must fit one message."""
POLL_SECONDS: Final = 2.0
"""Pause after an answer without entries, as in released consumers."""
WINDOW_PUSHES: Final = 64
WINDOW_BYTES: Final = 1_048_576
"""Entries and their bytes that `push_many` leaves unconfirmed."""


@dataclass(frozen=True, slots=True)
class HubEntry:
    """One entry: where it stands, and exactly the bytes given.

    Attributes:
        partition: the partition that it is in.
        index: its place there, from 0.
        data: what was pushed.
    """

    partition: int
    index: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Found:
    """A stream as a hub has it now: its name, and the way to each partition."""

    name: str
    routes: dict[int, Route]


class HubStream:
    """A stream of a hub; made by `Hub.stream`.

    A push without a confirm is sent again, and hubs do not see that they have it already: what is
    pushed is stored at least once. Entries of one partition are stored in the order of the calls
    while none has to be sent again.

    Attributes:
        name: its name.
        partitions: number of its partitions, as of when it was asked for.
    """

    def __init__(self, calls: HubCalls, found: Found, partitions: int | None) -> None:
        self.name = found.name
        self.partitions = partitions or 1
        self._calls = calls
        self._asked_partitions = partitions
        self._request_ids = 0
        self._found: asyncio.Future[Found] | None = asyncio.get_running_loop().create_future()
        self._found.set_result(found)

    def __repr__(self) -> str:
        return f"<HubStream {self.name!r}, partitions {self.partitions}>"

    async def push(self, data: bytes, *, partition: int = 0) -> int:
        """Push one entry; return its index once the hub has confirmed it.

        What a confirm is worth is the hub's: released ones keep streams in memory.

        Raises:
            RequestError: `hub.not_stored`, the hub could not store it; else as `Hub.stream`.
            ActorError: `hub.timeout`, the entry may be stored; an entry that is too large for a
                link on the way gets no other answer.
            TransportError: the client or its channel is closed.
        """
        request = PushRequest(self._next_id(), data)
        confirm = await self._ask(partition, request, _confirm_of(request.request_id))
        if confirm.status is not Status.OK:
            raise RequestError("hub.not_stored", "the hub could not store it", retryable=True)
        return confirm.index

    async def push_many(self, items: Iterable[bytes], *, partition: int = 0) -> int:
        """Push entries, many of them at a time; return how many, once all are confirmed.

        Nothing is read ahead of what the window takes, so `items` may be endless.

        Raises:
            RequestError, ActorError, TransportError: as `push`; later entries may be stored.
        """
        loop = asyncio.get_running_loop()
        window: deque[tuple[int, asyncio.Task[int]]] = deque()
        pushed = unconfirmed = 0
        try:
            for data in items:
                while len(window) >= WINDOW_PUSHES or unconfirmed > WINDOW_BYTES:
                    await window[0][1]
                    unconfirmed -= window.popleft()[0]
                push = loop.create_task(self.push(data, partition=partition))
                window.append((len(data), push))
                unconfirmed += len(data)
                pushed += 1
            while window:
                await window[0][1]
                window.popleft()
        finally:
            for _, push in window:
                push.cancel()
            await asyncio.gather(*(push for _, push in window), return_exceptions=True)
        return pushed

    async def pull(
        self, index: int = 0, limit: int = PULL_LIMIT, *, partition: int = 0
    ) -> list[HubEntry]:
        """Read entries with an index of at least `index`, ascending; none past the end.

        Args:
            index: where to begin.
            limit: how many at most; a hub may give fewer, and released ones break the connection
                when an answer does not fit one message (65,000 bytes until 2024).
            partition: which.

        Raises:
            RequestError: `hub.answer`, other entries than asked for; else as `Hub.stream`.
            ActorError, TransportError: as `Hub.stream`.
        """
        request = PullRequest(self._next_id(), index, limit)
        answer = await self._ask(partition, request, _entries_of(request.request_id))
        indexes = [at for at, _ in answer.messages]
        # A consumer would read for ever, or pass over entries, if it went by these.
        if indexes and (indexes[0] < index or any(a >= b for a, b in pairwise(indexes))):
            raise RequestError("hub.answer", f"the hub gave other entries than those from {index}")
        return [HubEntry(partition, at, data) for at, data in answer.messages]

    def consumer(
        self,
        name: str,
        *,
        partition: int = 0,
        ack: Ack = "next",
        max_in_flight: int = IN_FLIGHT,
        save_seconds: float = SAVE_SECONDS,
        limit: int = PULL_LIMIT,
        poll_seconds: float = POLL_SECONDS,
    ) -> Consumer[HubEntry]:
        """A consumer of a partition that goes on where `name` stopped; as `Stream.consumer`.

        Positions are those of released consumers: what is saved is the next index to read, also
        before each pull; the position in a stream of one partition is the plain one. Nothing
        answers a save: after a crash or a lost connection, the entries since the last that arrived
        come again; so they do where the client is closed before the consumer is. A hub that was
        away and knows no position any more is read from its first entry. Its `lag` is not known.

        Args:
            name: whose position it is.
            partition: which; in memory, released hubs hold one position for all partitions of a
                stream, so that each needs a `name` of its own there.
            ack: what makes an entry count as processed: `next` or `explicit`.
            max_in_flight: entries that are handed out before one of them is acknowledged.
            save_seconds: how often positions are saved.
            limit: entries asked for at once.
            poll_seconds: pause after an answer without entries.

        Raises:
            ConsumerError: `consumer.invalid`, a value that cannot be.
            RequestError, ActorError, TransportError: as it goes on, as `pull`.
        """
        check_seconds(save_seconds)
        ledger: Ledger[HubEntry] = Ledger()
        place = partition if self.partitions > 1 else None
        position = HubIndex(self._calls, name, self.name, place)
        feed = _HubFeed(
            self,
            lambda: self._found,
            self._calls,
            partition,
            position,
            ledger,
            save_seconds=save_seconds,
            limit=limit,
            poll_seconds=poll_seconds,
        )
        return Consumer(feed, ledger, name=name, stream=self.name, ack=ack, in_flight=max_in_flight)

    async def _ask(self, partition: int, request: Request, take: Take[T]) -> T:
        """Ask a partition until it answers; find the stream again where it may have moved."""
        if not 0 <= partition < self.partitions:
            raise RequestError(
                "stream.partition",
                f"stream {self.name} has partitions 0 to {self.partitions - 1}, not {partition}",
            )

        async def attempt() -> T:
            found = self._found
            if found is None:
                # One search serves all that wait.
                search = create(self._calls, self.name, self._asked_partitions)
                found = self._found = asyncio.get_running_loop().create_task(search)
            try:
                routes = (await asyncio.shield(found)).routes
            except RillnodeError:
                self._lose(found)
                raise
            try:
                return await self._calls.ask(routes[partition], request, take)
            except RillnodeError as error:
                if passes(error):
                    self._lose(found)
                if error.code == "address.unknown":
                    # The connection that its route led over is gone.
                    self._lose(found)
                    text = f"the hub has no stream {self.name} there any more"
                    raise ActorError("hub.lost", text) from None
                raise

        return await self._calls.persist(attempt)

    def _lose(self, found: asyncio.Future[Found]) -> None:
        if self._found is found:
            self._found = None

    def _next_id(self) -> int:
        self._request_ids += 1
        return self._request_ids


class _HubFeed:
    """Pulls a partition from a consumer's position on, and saves that; satisfies `Feed`.

    `found` gives what the stream was found as, which is another once the hub was away.
    """

    lag = None
    ready = False

    def __init__(
        self,
        stream: HubStream,
        found: Callable[[], object],
        calls: HubCalls,
        partition: int,
        position: HubIndex,
        ledger: Ledger[HubEntry],
        *,
        save_seconds: float,
        limit: int,
        poll_seconds: float,
    ) -> None:
        self._stream = stream
        self._found = found
        self._calls = calls
        self._partition = partition
        self._position = position
        self._ledger = ledger
        self._save_seconds = save_seconds
        self._limit = limit
        self._poll_seconds = poll_seconds
        self._next = self._told = self._confirmed = 0
        self._saving: asyncio.Task[None] | None = None
        self._opened = False
        self._steps = Steps(self._pull())
        self.stop = self._steps.stop

    async def open(self) -> None:
        """Find out where to begin."""
        if not self._opened:
            with suppress(StopAsyncIteration):  # it was stopped, as who fetches is told
                await self._steps.fetch()
            self._opened = True

    async def fetch(self) -> Sequence[HubEntry]:
        """Wait for the next entries."""
        entries: Sequence[HubEntry] = ()
        while not entries:
            entries = await self._steps.fetch()
        return entries

    async def save(self) -> None:
        """Save the position until the hub says that it holds it."""
        await self._calls.persist(self._confirm)

    async def close(self) -> None:
        """End; save the position once, as a hub that is away must not hold this up."""
        await self._steps.close()
        if self._saving is None:
            return
        self._saving.cancel()
        try:
            await self._confirm()
        except RillnodeError as error:
            logger.warning("position_not_saved", extra={"code": error.code})

    async def _pull(self) -> AsyncGenerator[Sequence[HubEntry]]:
        stream, partition = self._stream, self._partition
        saved = await self._calls.persist(self._position.load)
        self._begin(saved or 0)
        self._saving = kept(self._tell_often())
        found = self._found()
        yield ()
        while True:
            self._tell()
            entries = await stream.pull(self._next, self._limit, partition=partition)
            if found is not self._found():
                # The hub was away. What it answers may be another stream of the name.
                found = self._found()
                if await self._calls.persist(self._position.load) is None:
                    self._begin(0)
            elif entries:
                self._next = entries[-1].index + 1
                yield entries
            else:
                await asyncio.sleep(self._poll_seconds)

    def _begin(self, index: int) -> None:
        self._ledger.revoke(self._partition)
        self._ledger.assign(self._partition, index)
        self._next = self._told = self._confirmed = index

    def _tell(self) -> None:
        """Send the position to be saved, where it is another one."""
        index = self._ledger.positions[self._partition]
        if index != self._told and self._position.tell(index):
            self._told = index

    async def _tell_often(self) -> None:
        while True:
            await asyncio.sleep(self._save_seconds)
            self._tell()

    async def _confirm(self) -> None:
        index = self._ledger.positions.get(self._partition, self._confirmed)
        if index != self._confirmed:
            await self._position.save(index)
            self._told = self._confirmed = index


async def create(calls: HubCalls, name: str | None, partitions: int | None) -> Found:
    """Create a stream, or find it; asks once. `partitions` None: a plain stream."""
    if partitions is None:
        return await calls.ask_service("", CreateRequest(name), _plain(name))
    request = CreatePartitionedRequest(name, partitions)
    return await calls.ask_service("", request, _partitioned(name, partitions))


def _plain(name: str | None) -> Take[Found]:
    def take(response: Response, route: Route) -> Found | None:
        if not isinstance(response, CreateResponse) or not route:
            return None
        if name not in (None, response.stream_name):
            return None
        return Found(response.stream_name, {0: route})

    return take


def _partitioned(name: str | None, partitions: int) -> Take[Found]:
    """Each partition answers for itself, in any order; the first names a stream without one."""
    names = [] if name is None else [name]
    routes: dict[int, Route] = {}

    def take(response: Response, route: Route) -> Found | None:
        if not isinstance(response, CreatePartitionedResponse) or not route:
            return None
        if not names:
            names.append(response.stream_name)
        if response.stream_name == names[0] and response.partition < partitions:
            routes[response.partition] = route
        return Found(names[0], routes) if len(routes) == partitions else None

    return take


def _confirm_of(request_id: int) -> Take[PushConfirm]:
    def take(response: Response, _: Route) -> PushConfirm | None:
        if isinstance(response, PushConfirm) and response.request_id == request_id:
            return response
        return None

    return take


def _entries_of(request_id: int) -> Take[PullResponse]:
    def take(response: Response, _: Route) -> PullResponse | None:
        if isinstance(response, PullResponse) and response.request_id == request_id:
            return response
        return None

    return take
