"""A blocking face of the client, for notebooks and scripts: the same verbs, own loop."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from threading import Lock
from time import monotonic
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, overload

from rillnode.actors.apps.messages import Message
from rillnode.codecs.entries import Entry
from rillnode.codecs.errors import ConsumerStopped
from rillnode.codecs.keyed import Headers, Key
from rillnode.codecs.keys import Identity
from rillnode.codecs.routing.routes import Route
from rillnode.codecs.times import Time
from rillnode.node.client.client import (
    TAKE_BACK_ENTRIES,
    Client,
    GroupInfo,
    SavedIndex,
    TakenBack,
    connect,
)
from rillnode.node.client.consumer import IN_FLIGHT, SAVE_SECONDS, Ack, Consumer, E, timed_out
from rillnode.node.client.following import Followed, Following, FollowStart
from rillnode.node.client.group import OnPartitions
from rillnode.node.client.lookup import About
from rillnode.node.client.loop_thread import LoopThread
from rillnode.node.client.mailbox import MAILBOX_MESSAGES, Mailbox
from rillnode.node.client.messages import ANSWER_SECONDS, Answer
from rillnode.node.client.producer import Data, NamedProducer
from rillnode.node.client.pusher import IN_FLIGHT as PUSHES_IN_FLIGHT
from rillnode.node.client.pusher import Pusher
from rillnode.node.client.serving import CALLS_MAX, LEASE_SECONDS, STOP_SECONDS, Service
from rillnode.node.client.session import OnDisconnect, OnReconnect
from rillnode.node.client.stream import Start, Stream, StreamInfo
from rillnode.node.client.typed import BlockingTypedStream
from rillnode.node.client.work import (
    ATTEMPTS,
    VISIBILITY_SECONDS,
    Job,
    QueueInfo,
    WorkQueue,
)
from rillnode.node.client.work import IN_FLIGHT as WORK_IN_FLIGHT

Item = TypeVar("Item")
T = TypeVar("T")


class BlockingIteration(Generic[Item]):
    """An iteration over what a client reads: an iterator and a context manager.

    Ctrl-C while it waits leaves it as it is: the next `next` goes on, and no item is lost or comes
    twice. It ends with `close`, with the end of its `with`, or when nothing refers to it any more.
    """

    def __init__(
        self,
        loop: LoopThread,
        fetch: Callable[[], Coroutine[Any, Any, Sequence[Item]]],
        close: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        self._loop = loop
        self._fetch = fetch
        self._close = close
        self._items: deque[Item] = deque()
        self._fetching: Future[Sequence[Item]] | None = None

    def __iter__(self) -> Self:
        """Itself."""
        return self

    def __next__(self) -> Item:
        """Wait for the next item; raises what the call that made the iteration says."""
        if not self._items:
            # What it brings after an interrupt is for the next call.
            self._fetching = self._fetching or self._loop.start(self._fetch())
            try:
                items = self._loop.result(self._fetching)
            except StopAsyncIteration:
                self._fetching = None
                raise StopIteration from None
            except Exception:
                self._fetching = None
                raise
            self._fetching, self._items = None, deque(items)
        return self._items.popleft()

    def __enter__(self) -> Self:
        """It is open already."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def __del__(self) -> None:
        """Nobody waits any more for what an interrupt has left under way."""
        if self._fetching is not None:
            self._fetching.cancel()

    def close(self) -> None:
        """End it; what was not taken is forgotten."""
        try:
            self._loop.run(self._close())
        finally:
            # Also what was fetched since an interrupt.
            self._fetching = None
            self._items.clear()


class BlockingJob:
    """An entry to work on; see `Job` for what each verb does. A context manager.

    At the end of its `with` it is done, and given again where an exception leaves that.

    Attributes:
        entry: the entry, with its key and headers.
        attempt: how often it was given to a worker, from 1.
    """

    def __init__(self, job: Job, loop: LoopThread) -> None:
        self.entry = job.entry
        self.attempt = job.attempt
        self._job = job
        self._loop = loop

    def __repr__(self) -> str:
        return repr(self._job)

    @property
    def data(self) -> bytes:
        """The entry's bytes."""
        return self._job.data

    @property
    def is_answered(self) -> bool:
        """Whether it is answered; see `Job.is_answered`."""
        return self._job.is_answered

    def done(self) -> None:
        """Say that it is done."""
        self._loop.run(self._job.done())

    def retry(self, after: float | None = None, *, reason: str = "") -> None:
        """Have it given again."""
        self._loop.run(self._job.retry(after, reason=reason))

    def reject(self, reason: str = "") -> None:
        """Make it a dead letter."""
        self._loop.run(self._job.reject(reason))

    def extend(self, seconds: float) -> None:
        """Have so many seconds for it, from now on."""
        self._loop.run(self._job.extend(seconds))

    def __enter__(self) -> Self:
        """It is there already."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Answer it, unless that was done within the block."""
        self._loop.run(self._job.__aexit__(kind, error, trace))


class BlockingWorkQueue(BlockingIteration[BlockingJob]):
    """A worker of a queue; see `WorkQueue`: an iterator of jobs, and a context manager.

    Attributes:
        name: of the queue.
        stream: of the stream.
    """

    def __init__(self, queue: WorkQueue, loop: LoopThread) -> None:
        async def one() -> tuple[BlockingJob]:
            return (BlockingJob(await anext(queue), loop),)

        super().__init__(loop, one, queue.stop)
        self.name = queue.name
        self.stream = queue.stream
        self._queue = queue

    def __enter__(self) -> Self:
        """Wait until the node has taken it as a worker; errors as of `WorkQueue`."""
        self._loop.run(self._queue.__aenter__())
        return self

    def next(self, *, timeout: float | None = None) -> BlockingJob:
        """Wait for the next job; errors as of `WorkQueue.next`."""
        if self._fetching is not None or self._items:
            return next(self)  # an interrupt has left it
        return BlockingJob(self._loop.run(self._queue.next(timeout=timeout)), self._loop)


class BlockingMailbox(BlockingIteration[Answer]):
    """An address of the client for unasked messages; see `Mailbox`.

    Attributes:
        address: for `send(..., return_address=box.address)`.
    """

    def __init__(self, box: Mailbox, loop: LoopThread) -> None:
        async def one() -> tuple[Answer]:
            return (await anext(box),)

        super().__init__(loop, one, box.aclose)
        self.address = box.address
        self._box = box

    @property
    def dropped(self) -> int:
        """Messages that came while it was full."""
        return self._box.dropped


class BlockingConsumer(Generic[E]):
    """A reader of a stream that remembers under its name how far it is; see `Consumer`.

        with stream.consumer("worker") as c:
            for entry in c:
                ...

    Ctrl-C while it waits leaves it as it is, as does a timeout. One thread takes entries, or with
    `ack="explicit"` any number.

    Attributes:
        name: under which positions are saved.
        stream: name of the stream.
        max_in_flight: entries that are handed out before one of them is acknowledged.
    """

    def __init__(self, consumer: Consumer[E], loop: LoopThread) -> None:
        self.name = consumer.name
        self.stream = consumer.stream
        self.max_in_flight = consumer.max_in_flight
        self._consumer = consumer
        self._loop = loop
        self._taking: Future[list[E]] | None = None
        self._items: deque[E] = deque()
        self._turn = Lock()

    def __repr__(self) -> str:
        return repr(self._consumer)

    def __iter__(self) -> Self:
        """Itself."""
        return self

    def __next__(self) -> E:
        """Wait for the next entry; what was handed out before counts as processed."""
        try:
            return self._take(1, None)[0]
        except ConsumerStopped:
            raise StopIteration from None

    def next(self, *, timeout: float | None = None) -> E:
        """Wait for the next entry; arguments and errors as of `Consumer.next`."""
        return self._take(1, timeout)[0]

    def batch(self, n: int, *, timeout: float | None = None) -> list[E]:
        """Wait for the next entries; arguments and errors as of `Consumer.batch`."""
        try:
            return self._take(n, timeout)
        except TimeoutError:
            return []

    def stop(self) -> None:
        """Take no more entries: the iteration ends; also in a signal's handler."""
        self._loop.post(self._consumer.stop)

    def ack(self, entry: E) -> None:
        """Acknowledge an entry; see `Consumer.ack`."""

        async def ack() -> None:
            self._consumer.ack(entry)

        self._loop.run(ack())

    def save(self) -> None:
        """Save now what is processed; returns once it is durable."""
        self._loop.run(self._consumer.save())

    @property
    def partitions(self) -> tuple[int, ...]:
        """The partitions that it reads; see `Consumer.partitions`."""
        return self._consumer.partitions

    @property
    def in_flight(self) -> int:
        """Entries that were handed out and do not count as processed."""
        return self._consumer.in_flight

    @property
    def lag(self) -> int | None:
        """Entries up to the end of the log that are not processed; see `Consumer.lag`."""
        return self._consumer.lag

    def __enter__(self) -> Self:
        """Find out where to begin; raises what the iteration would."""
        self._loop.run(self._consumer.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        try:
            self._loop.run(self._consumer.__aexit__(kind, error, trace))
        finally:
            self._forget()

    def close(self) -> None:
        """Save what is processed, and end; what was not taken is forgotten."""
        try:
            self._loop.run(self._consumer.aclose())
        finally:
            self._forget()

    def _forget(self) -> None:
        """Also what came since an interrupt."""
        self._taking = None
        self._items.clear()

    def __del__(self) -> None:
        """Nobody waits any more for what an interrupt has left under way."""
        if self._taking is not None:
            self._taking.cancel()

    def _take(self, n: int, timeout: float | None) -> list[E]:
        until = None if timeout is None else monotonic() + timeout
        if not self._turn.acquire(timeout=-1 if timeout is None else max(0.0, timeout)):
            raise timed_out(self._consumer, timeout)
        try:
            if not self._items:
                # What it brings after an interrupt or a timeout is for the next call.
                self._taking = self._taking or self._loop.start(self._consumer.batch(n))
                left = None if until is None else until - monotonic()
                found = self._loop.result(self._taking, left)
                self._taking, self._items = None, deque(found)
            return [self._items.popleft() for _ in range(min(n, len(self._items)))]
        except TimeoutError:
            raise timed_out(self._consumer, timeout) from None
        except Exception:
            self._taking = None
            raise
        finally:
            self._turn.release()


class BlockingPusher:
    """Pushes entries and waits only while too many are unconfirmed; see `Pusher`."""

    def __init__(self, pusher: Pusher, loop: LoopThread) -> None:
        self._pusher = pusher
        self._loop = loop

    def __repr__(self) -> str:
        return repr(self._pusher)

    def push(
        self,
        data: Data,
        *,
        key: Key | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> None:
        """Push one entry; waits while the window is full. Errors as of `Pusher.push`."""
        pushing = self._pusher.push(data, key=key, headers=headers, partition=partition)
        self._loop.run(pushing)

    def flush(self) -> None:
        """Wait until all that was pushed is confirmed; raises the first error."""
        self._loop.run(self._pusher.flush())

    def __enter__(self) -> Self:
        """Nothing more to do."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait for all confirms and raise the first error; after one of the block, do neither."""
        self._loop.run(self._pusher.__aexit__(kind, error, trace))


class BlockingFollowing(BlockingIteration[Followed]):
    """Entries of all streams of a pattern; see `Following`."""

    def __init__(self, following: Following, loop: LoopThread) -> None:
        async def one() -> tuple[Followed]:
            return (await anext(following),)

        super().__init__(loop, one, following.aclose)
        self._following = following

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that it follows at the moment; see `Following.streams`."""
        return self._following.streams

    @property
    def position(self) -> dict[str, dict[str, int]]:
        """Where it is in each stream; see `Following.position`."""
        return self._following.position


class BlockingService:
    """An address that the client serves; see `Service`. A context manager."""

    def __init__(self, service: Service, loop: LoopThread) -> None:
        self.address = service.address
        self._service = service
        self._loop = loop

    def __enter__(self) -> Self:
        """Nothing more to do."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()

    def wait(self) -> None:
        """Wait until it has ended; raises as `Service.wait` does."""
        self._loop.run(self._service.wait())

    def stop(self, *, timeout_seconds: float = STOP_SECONDS) -> None:
        """Take no more calls, answer those that are open, and give the address up."""
        self._loop.run(self._service.stop(timeout_seconds=timeout_seconds))


class BlockingProducer:
    """A producer that has a name; see `NamedProducer`.

    Attributes:
        name: its name.
        partition: where it pushes to.
    """

    def __init__(self, producer: NamedProducer, loop: LoopThread) -> None:
        self.name = producer.name
        self.partition = producer.partition
        self._producer = producer
        self._loop = loop

    @property
    def last_sequence(self) -> int | None:
        """The highest number of what is stored; None: there is nothing."""
        return self._producer.last_sequence

    @property
    def last_index(self) -> int | None:
        """The index that this has; None: it is not known."""
        return self._producer.last_index

    def push(
        self,
        data: Data,
        *,
        sequence: int | None = None,
        key: Key | None = None,
        headers: Headers | None = None,
    ) -> int:
        """Push one entry; return its index once it is durable; see `NamedProducer.push`."""
        pushing = self._producer.push(data, sequence=sequence, key=key, headers=headers)
        return self._loop.run(pushing)


class BlockingStream:
    """A stream; see `Stream` for what each verb does."""

    def __init__(self, stream: Stream, loop: LoopThread) -> None:
        self.name = stream.name
        self.partitions = stream.partitions
        self._stream = stream
        self._loop = loop

    def __repr__(self) -> str:
        return repr(self._stream)

    def push(
        self,
        data: bytes,
        *,
        key: Key | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> int:
        """Push one entry; return its index once it is durable. Arguments as of `Stream.push`."""
        return self._loop.run(
            self._stream.push(data, key=key, headers=headers, partition=partition)
        )

    def push_many(
        self,
        items: Iterable[bytes],
        *,
        keys: Iterable[Key | None] | None = None,
        headers: Iterable[Headers | None] | None = None,
        partition: int | None = None,
    ) -> int:
        """Push entries; return the index after the last, once all are durable.

        Arguments as of `Stream.push_many`.
        """
        return self._loop.run(
            self._stream.push_many(items, keys=keys, headers=headers, partition=partition)
        )

    def partition_of(self, key: Key | None) -> int:
        """The partition that entries with a key are pushed to; errors as of `Stream`."""
        return self._stream.partition_of(key)

    def producer(self, name: str, *, partition: int = 0) -> "BlockingProducer":
        """Open a producer, whose numbers go on where it stopped; see `Stream.producer`."""
        producer = self._loop.run(self._stream.producer(name, partition=partition))
        return BlockingProducer(producer, self._loop)

    def pull(
        self,
        index: int = 0,
        limit: int = 100,
        *,
        start: Time | None = None,
        until: int | Time | None = None,
        where: str = "",
        partition: int = 0,
    ) -> list[Entry]:
        """Read at most `limit` entries from `index` and `start` on; see `Stream.pull`."""
        pull = self._stream.pull(
            index, limit, start=start, until=until, where=where, partition=partition
        )
        return self._loop.run(pull)

    def index_at(self, time: Time, *, partition: int = 0) -> int:
        """Tell the index of the first entry that came at a time or later."""
        return self._loop.run(self._stream.index_at(time, partition=partition))

    def work(
        self,
        queue: str,
        *,
        attempts: int = ATTEMPTS,
        visibility_seconds: float = VISIBILITY_SECONDS,
        in_flight: int = WORK_IN_FLIGHT,
        queue_in_flight: int | None = None,
        by_key: bool = False,
    ) -> BlockingWorkQueue:
        """Be a worker of a queue; arguments and errors as of `Stream.work`."""

        async def made() -> WorkQueue:
            return self._stream.work(
                queue,
                attempts=attempts,
                visibility_seconds=visibility_seconds,
                in_flight=in_flight,
                queue_in_flight=queue_in_flight,
                by_key=by_key,
            )

        return BlockingWorkQueue(self._loop.run(made()), self._loop)

    def pusher(self, *, in_flight: int = PUSHES_IN_FLIGHT) -> BlockingPusher:
        """Push with a bound on what is unconfirmed; see `Stream.pusher`."""
        return BlockingPusher(self._stream.pusher(in_flight=in_flight), self._loop)

    def consumer(
        self,
        name: str,
        *,
        start: Start = "start",
        partitions: Sequence[int] | None = None,
        group: bool = False,
        ack: Ack = "next",
        max_in_flight: int = IN_FLIGHT,
        save_seconds: float = SAVE_SECONDS,
        on_assigned: OnPartitions | None = None,
        on_revoked: OnPartitions | None = None,
    ) -> BlockingConsumer[Entry]:
        """A consumer that goes on where `name` stopped; see `Stream.consumer`.

        `on_assigned` and `on_revoked` are called in another thread, and must not block.
        """
        consumer = self._stream.consumer(
            name,
            start=start,
            partitions=partitions,
            group=group,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            ack=ack,
            max_in_flight=max_in_flight,
            save_seconds=save_seconds,
        )
        return BlockingConsumer(consumer, self._loop)

    def tail(
        self,
        *,
        start: Start = "end",
        where: str = "",
        partitions: Sequence[int] | None = None,
    ) -> BlockingIteration[Entry]:
        """Follow for ever; see `Stream.tail`."""
        batches = self._stream.batches(start=start, where=where, partitions=partitions)
        return BlockingIteration(self._loop, batches.__anext__, batches.aclose)


class BlockingClient:
    """A client; see `Client` for what each verb does. A context manager."""

    def __init__(self, client: Client, loop: LoopThread) -> None:
        self._client = client
        self._loop = loop

    def __repr__(self) -> str:
        return repr(self._client)

    @property
    def connected(self) -> bool:
        """Whether there is a link to the node now."""
        return self._client.connected

    def __enter__(self) -> Self:
        """Nothing more to do."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Wait for what is unconfirmed, and end the link."""
        self._loop.stop(self._client.close())

    @overload
    def stream(self, name: str | None = None, *, partitions: int = 1) -> BlockingStream: ...

    @overload
    def stream(
        self, name: str | None = None, *, partitions: int = 1, schema: type[T]
    ) -> BlockingTypedStream[T]: ...

    def stream(
        self, name: str | None = None, *, partitions: int = 1, schema: type[T] | None = None
    ) -> BlockingStream | BlockingTypedStream[T]:
        """Open a stream, or create it."""
        if schema is not None:
            typed = self._client.stream(name, partitions=partitions, schema=schema)
            return BlockingTypedStream(self._loop.run(typed), self._loop)
        stream = self._loop.run(self._client.stream(name, partitions=partitions))
        return BlockingStream(stream, self._loop)

    def open_streams(self, names: Sequence[str], *, partitions: int = 1) -> list[BlockingStream]:
        """Open many streams, or create them."""
        streams = self._loop.run(self._client.open_streams(names, partitions=partitions))
        return [BlockingStream(stream, self._loop) for stream in streams]

    def streams(self, prefix: str = "") -> list[StreamInfo]:
        """All streams that this client may use."""
        return self._loop.run(self._client.streams(prefix))

    def describe(self, name: str) -> StreamInfo:
        """Tell about one stream."""
        return self._loop.run(self._client.describe(name))

    def follow(self, pattern: str, *, start: FollowStart = "end") -> "BlockingFollowing":
        """Follow all streams of a pattern; see `Client.follow`."""
        return BlockingFollowing(self._client.follow(pattern, start=start), self._loop)

    def trim(self, name: str, *, partition: int = 0, before: int) -> int:
        """Drop entries below `before`."""
        return self._loop.run(self._client.trim(name, partition=partition, before=before))

    def remove(self, name: str) -> None:
        """Remove a stream with everything in it, for ever."""
        self._loop.run(self._client.remove(name))

    def queues(self, stream: str = "") -> list[tuple[str, str]]:
        """All work queues: stream and queue."""
        return self._loop.run(self._client.queues(stream))

    def queue(self, stream: str, queue: str) -> QueueInfo:
        """Tell how a work queue stands."""
        return self._loop.run(self._client.queue(stream, queue))

    def take_back(
        self, stream: str, queue: str, *, entries_max: int = TAKE_BACK_ENTRIES
    ) -> TakenBack:
        """Have dead letters given to workers again."""
        return self._loop.run(self._client.take_back(stream, queue, entries_max=entries_max))

    def indexes(self, stream: str = "") -> list[SavedIndex]:
        """Saved positions."""
        return self._loop.run(self._client.indexes(stream))

    def get_index(self, client_id: str, stream: str, *, partition: int = 0) -> int | None:
        """A consumer's saved position."""
        return self._loop.run(self._client.get_index(client_id, stream, partition=partition))

    def set_index(self, client_id: str, stream: str, index: int, *, partition: int = 0) -> int:
        """Save a consumer's position."""
        return self._loop.run(self._client.set_index(client_id, stream, index, partition=partition))

    def groups(self, stream: str = "") -> list[GroupInfo]:
        """Groups of consumers; see `Client.groups`."""
        return self._loop.run(self._client.groups(stream))

    def status(self) -> dict[str, Any]:
        """The node's status document."""
        return self._loop.run(self._client.status())

    def send(
        self, route: Route | str, payload: bytes, *, return_address: bytes | None = None
    ) -> None:
        """Send a message along a route; nothing tells whether it arrives."""
        self._loop.run(self._client.send(route, payload, return_address=return_address))

    def ask(
        self, route: Route | str, payload: bytes, *, timeout_seconds: float = ANSWER_SECONDS
    ) -> Answer:
        """Send a message along a route and wait for what comes back."""
        return self._loop.run(self._client.ask(route, payload, timeout_seconds=timeout_seconds))

    def about(self, route: Route | str) -> About:
        """What is at the end of a route; see `Client.about`."""
        return self._loop.run(self._client.about(route))

    def routes(
        self, pattern: str = "*", *, kind: str = "", at: Route | str = ""
    ) -> BlockingIteration[About]:
        """All that has a route; see `Client.routes`."""
        found = self._client.routes(pattern, kind=kind, at=at)

        async def one() -> tuple[About]:
            return (await anext(found),)

        return BlockingIteration(self._loop, one, found.aclose)

    def watch(self, route: Route | str) -> About:
        """Wait until what is at the end of a route has ended; see `Client.watch`."""
        return self._loop.run(self._client.watch(route))

    def stop(self, route: Route | str) -> None:
        """Have what is at the end of a route stop; see `Client.stop`."""
        self._loop.run(self._client.stop(route))

    def serve(
        self,
        address: str,
        handler: Callable[[Message], bytes | None],
        *,
        at: Route | str = "",
        group: bool = False,
        calls_max: int = CALLS_MAX,
        lease_seconds: float = LEASE_SECONDS,
    ) -> BlockingService:
        """Have an address at the node; arguments and errors as of `Client.serve`.

        The handler may block. It is called in threads, for several calls at once unless `calls_max`
        is 1.
        """

        def in_thread(message: Message) -> Awaitable[bytes | None]:
            return asyncio.to_thread(handler, message)

        serving = self._client.serve(
            address,
            in_thread,
            at=at,
            group=group,
            calls_max=calls_max,
            lease_seconds=lease_seconds,
        )
        return BlockingService(self._loop.run(serving), self._loop)

    def mailbox(self, *, messages_max: int = MAILBOX_MESSAGES) -> BlockingMailbox:
        """Have an address to which messages come unasked: an iterator of them."""

        async def made() -> Mailbox:
            return self._client.mailbox(messages_max=messages_max)

        return BlockingMailbox(self._loop.run(made()), self._loop)


def connect_blocking(
    url: str | None = None,
    *,
    key_file: str | Path | None = None,
    identity: Identity | None = None,
    node_identity: str | None = None,
    context: str | None = None,
    on_disconnect: OnDisconnect | None = None,
    on_reconnect: OnReconnect | None = None,
) -> BlockingClient:
    """Connect to a node; arguments and errors as of `connect`.

    What is to be called when the link is lost, and when there is one again, is called in another
    thread; the client's own verbs would wait for ever there.
    """
    loop = LoopThread()
    try:
        client = loop.run(
            connect(
                url,
                key_file=key_file,
                identity=identity,
                node_identity=node_identity,
                context=context,
                on_disconnect=on_disconnect,
                on_reconnect=on_reconnect,
            )
        )
    except BaseException:
        loop.stop()
        raise
    return BlockingClient(client, loop)
