"""A blocking face of the client, for notebooks and scripts: the same verbs, own loop.

Verbs are made of the client's own, whose arguments, results and errors they have: `blocking` says
so to type checkers, `help` and the reference as well.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial, wraps
from math import inf
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from rillnode.actors.apps.messages import Message
from rillnode.codecs import arguments
from rillnode.codecs.entries import Entry
from rillnode.codecs.errors import ConsumerStopped, TransportError
from rillnode.codecs.keyed import Headers, Key
from rillnode.codecs.keys import Identity
from rillnode.codecs.routing.routes import Route
from rillnode.node.client.client import (
    Client,
    connect,
)
from rillnode.node.client.consumer import Consumer, E, timed_out
from rillnode.node.client.following import Followed, Following
from rillnode.node.client.lookup import About
from rillnode.node.client.loop_thread import Kept, LoopThread
from rillnode.node.client.mailbox import Mailbox
from rillnode.node.client.messages import Answer
from rillnode.node.client.producer import Data, NamedProducer
from rillnode.node.client.pusher import Pusher
from rillnode.node.client.serving import CALLS_MAX, LEASE_SECONDS, Service
from rillnode.node.client.session import CLOSE_SECONDS, OnDisconnect, OnReconnect
from rillnode.node.client.stream import Start, Stream
from rillnode.node.client.typed import TypedStream
from rillnode.node.client.work import (
    Job,
    WorkQueue,
)
from rillnode.node.iteration import kept

Item = TypeVar("Item")
T = TypeVar("T")


S_co = TypeVar("S_co", covariant=True)
P = ParamSpec("P")
F = TypeVar("F")
C = TypeVar("C", Job, Pusher, Service)


class _Face(Generic[S_co]):
    """A blocking face of something that lives on the loop of a thread."""

    def __init__(self, behind: S_co, loop: LoopThread) -> None:
        self._behind = behind
        self._loop = loop

    def __repr__(self) -> str:
        return repr(self._behind)


class _Context(_Face[C]):
    """A blocking face that is a context manager, as what is behind it is an asynchronous one."""

    def __enter__(self) -> Self:
        """It is open already."""
        return self

    def __exit__(self, *raised: Any) -> None:
        """End it, as after the block of what is behind it."""
        self._loop.run(self._behind.__aexit__(*raised))


def blocking(
    verb: Callable[Concatenate[S_co, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[_Face[S_co], P], T]:
    """The same verb of a blocking face: it is run on the loop and waited for."""

    @wraps(verb)
    def run(face: _Face[S_co], /, *args: P.args, **kwargs: P.kwargs) -> T:
        loop, behind = _parts(face)
        return loop.run(verb(behind, *args, **kwargs))

    return run


def opening(
    verb: Callable[Concatenate[S_co, P], T], face_of: Callable[[T, LoopThread], F]
) -> Callable[Concatenate[_Face[S_co], P], F]:
    """The same verb of a blocking face, which returns a blocking face as well."""

    @wraps(verb)
    def run(face: _Face[S_co], /, *args: P.args, **kwargs: P.kwargs) -> F:
        loop, behind = _parts(face)

        async def opened() -> T:
            return verb(behind, *args, **kwargs)

        return face_of(loop.run(opened()), loop)

    run.__annotations__ = {**run.__annotations__, "return": face_of}
    return run


def _parts(face: _Face[S_co]) -> tuple[LoopThread, S_co]:
    return face._loop, face._behind  # pyright: ignore[reportPrivateUsage]


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
        enter: Callable[[], Coroutine[Any, Any, object]] | None = None,
    ) -> None:
        self._loop = loop
        self._fetch = fetch
        self._close = close
        self._enter = enter
        self._items: deque[Item] = deque()
        self._fetching: Kept[Sequence[Item]] | None = None

    def __iter__(self) -> Self:
        """Itself."""
        return self

    def __next__(self) -> Item:
        """Wait for the next item; raises what the call that made the iteration says."""
        if not self._items:
            if self._fetching is None:
                self._fetching = Kept(self._loop, self._fetch)
            try:
                # What it brings after an interrupt is for the next call.
                items = self._fetching.wait()
            except StopAsyncIteration:
                self._fetching = None
                raise StopIteration from None
            except Exception:
                self._fetching = None
                raise
            self._fetching, self._items = None, deque(items)
        item = self._items[0]
        del self._items[0]  # without a call, after which an interrupt could lose it
        return item

    def __enter__(self) -> Self:
        """Find out where to begin; raises what the iteration would."""
        if self._enter is not None:
            self._loop.run(self._enter())
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def __del__(self) -> None:
        """Nobody waits any more for what an interrupt has left under way."""
        if self._fetching is not None:
            self._fetching.drop()

    def close(self) -> None:
        """End it; what was not taken is forgotten. The close of its client has ended it, too."""
        try:
            self._loop.run(self._close())
        except TransportError as error:
            if error.code != "client.closed":
                raise
        finally:
            # Also what was fetched since an interrupt.
            self._fetching = None
            self._items.clear()


def _each(source: AsyncIterator[Item]) -> Callable[[], Coroutine[Any, Any, tuple[Item]]]:
    """What fetches items one by one."""

    async def one() -> tuple[Item]:
        return (await anext(source),)

    return one


class BlockingJob(_Context[Job]):
    """An entry to work on; see `Job` for what each verb does. A context manager.

    At the end of its `with` it is done, and given again where an exception leaves that.

    Attributes:
        entry: the entry, with its key and headers.
        attempt: how often it was given to a worker, from 1.
    """

    def __init__(self, job: Job, loop: LoopThread) -> None:
        super().__init__(job, loop)
        self.entry = job.entry
        self.attempt = job.attempt

    @property
    def data(self) -> bytes:
        """The entry's bytes."""
        return self._behind.data

    @property
    def is_answered(self) -> bool:
        """Whether it is answered; see `Job.is_answered`."""
        return self._behind.is_answered

    done = blocking(Job.done)
    retry = blocking(Job.retry)
    reject = blocking(Job.reject)
    extend = blocking(Job.extend)


class BlockingWorkQueue:
    """A worker of a queue; see `WorkQueue`: an iterator of jobs, and a context manager.

    Ctrl-C while it waits leaves it as it is; a job that comes at that moment is given out again at
    once, which costs no attempt.

    Attributes:
        name: of the queue.
        stream: of the stream.
    """

    def __init__(self, queue: WorkQueue, loop: LoopThread) -> None:
        self.name = queue.name
        self.stream = queue.stream
        self._queue = queue
        self._loop = loop

    def __repr__(self) -> str:
        return repr(self._queue)

    def __iter__(self) -> Self:
        """Itself."""
        return self

    def __next__(self) -> BlockingJob:
        """Wait for the next job; errors as of `WorkQueue`."""
        try:
            return self._taken(self._queue.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None

    def __enter__(self) -> Self:
        """Wait until the node has taken it as a worker; errors as of `WorkQueue`."""
        self._loop.run(self._queue.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.close()

    def next(self, *, timeout: float | None = None) -> BlockingJob:
        """Wait for the next job; errors as of `WorkQueue.next`."""
        return self._taken(partial(self._queue.next, timeout=timeout))

    def close(self) -> None:
        """Stop, as `WorkQueue.stop` does; the close of its client has done so, too."""
        try:
            self._loop.run(self._queue.stop())
        except TransportError as error:
            if error.code != "client.closed":
                raise

    def _taken(self, take: Callable[[], Coroutine[Any, Any, Job]]) -> BlockingJob:
        async def taken() -> BlockingJob:
            return BlockingJob(await take(), self._loop)

        taking = Kept(self._loop, taken)
        try:
            return taking.wait()
        except BaseException:  # of Ctrl-C, or of another signal's handler
            taking.drop(_give_back)
            raise


def _give_back(job: BlockingJob) -> None:
    """Have a job that nobody was given go to a worker at once, as of a task that is cancelled."""

    async def cancelled(job: Job) -> None:
        async with job:
            raise asyncio.CancelledError

    kept(cancelled(_parts(job)[1]))


class BlockingMailbox(BlockingIteration[Answer]):
    """An address of the client for unasked messages; see `Mailbox`.

    Attributes:
        address: for `send(..., return_address=box.address)`.
    """

    def __init__(self, box: Mailbox, loop: LoopThread) -> None:
        super().__init__(loop, _each(box), box.aclose)
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
        self._taking: Kept[list[E]] | None = None
        self._items: list[E] = []
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

    def __exit__(self, *raised: object) -> None:
        """Close."""
        try:
            self._loop.run(self._consumer.__aexit__(*raised))
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
        self._taking, self._items = None, []

    def __del__(self) -> None:
        """Nobody waits any more for what an interrupt has left under way."""
        if self._taking is not None:
            self._taking.drop()

    def _take(self, n: int, timeout: float | None) -> list[E]:
        arguments.whole("n", n)
        if arguments.timeout("timeout", timeout) == inf:
            timeout = None
        until = None if timeout is None else monotonic() + timeout
        while True:
            with self._turn:
                begins = self._taking is None
                if begins:
                    self._taking, self._items = self._next_batch(n), []
                taking = self._taking
            assert taking is not None
            try:
                found = taking.wait(None if until is None else max(0.0, until - monotonic()))
            except TimeoutError:
                raise timed_out(self._consumer, timeout) from None
            except Exception:
                with self._turn:
                    if self._taking is taking:
                        self._taking = None
                raise
            # What another call has left may be another consumer's by now: it is looked at again.
            mine, left = (found[:n], found[n:]) if begins else ([], found)
            handed: list[E] = []
            try:
                with self._turn:
                    if self._taking is taking:
                        self._taking, self._items, handed = None, [*self._items, *left], mine
            except KeyboardInterrupt:
                self._items = [*handed, *self._items]
                raise
            if handed:
                return handed

    def _next_batch(self, n: int) -> Kept[list[E]]:
        """What is still this consumer's of what was taken, or else comes next."""
        if self._items:
            return Kept(self._loop, partial(self._consumer.still, self._items, n))
        return Kept(self._loop, partial(self._consumer.batch, n))


class BlockingPusher(_Context[Pusher]):
    """Pushes entries and waits only while too many are unconfirmed; see `Pusher`."""

    def push(
        self,
        data: Data,
        *,
        key: Key | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> "Future[int]":
        """Push one entry; arguments and errors as of `Pusher.push`.

        Returns:
            A future of `concurrent.futures`, whose `result()` waits for the index; it need not be
            asked.
        """
        pushed = _confirming(self._behind.push(data, key=key, headers=headers, partition=partition))
        return self._loop.run(pushed)

    flush = blocking(Pusher.flush)


async def _confirming(push: Coroutine[Any, Any, asyncio.Future[int]]) -> "Future[int]":
    """A future for other threads, of what the pusher's tells those of its loop."""
    confirmed: Future[int] = Future()

    def settle(done: asyncio.Future[int]) -> None:
        if done.cancelled():
            confirmed.cancel()
        elif (error := done.exception()) is not None:
            confirmed.set_exception(error)
        else:
            confirmed.set_result(done.result())

    (await push).add_done_callback(settle)
    return confirmed


class BlockingFollowing(BlockingIteration[Followed]):
    """Entries of all streams of a pattern; see `Following`."""

    def __init__(self, following: Following, loop: LoopThread) -> None:
        self._fetched: list[Followed] = []
        fetch = _next_of(following, self._fetched)
        super().__init__(loop, fetch, following.aclose, following.__aenter__)
        self._following = following

    def __next__(self) -> Followed:
        """Wait for the next entry."""
        found = super().__next__()
        self._fetched.clear()
        return found

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that it follows at the moment; see `Following.streams`."""
        return self._told(lambda: self._following.streams)

    @property
    def position(self) -> dict[str, dict[str, int]]:
        """Where it is in each stream; see `Following.position`."""

        def found() -> dict[str, dict[str, int]]:
            position = self._following.position
            for stream, entry in self._fetched:  # since an interrupt; it is not handed out
                of, number = position.get(stream, {}), str(entry.partition)
                if of.get(number) == entry.index + 1:
                    of[number] = entry.index
            return position

        return self._told(found)

    def _told(self, tell: Callable[[], T]) -> T:
        """What it says on its loop, where nothing changes meanwhile; after its end, here."""

        async def told() -> T:
            return tell()

        try:
            return self._loop.run(told())
        except TransportError:
            return tell()


def _next_of(
    following: Following, fetched: list[Followed]
) -> Callable[[], Coroutine[Any, Any, tuple[Followed]]]:
    """What fetches entries one by one, and notes which."""

    async def one() -> tuple[Followed]:
        found = await anext(following)
        fetched.append(found)
        return (found,)

    return one


class BlockingService(_Context[Service]):
    """An address that the client serves; see `Service`. A context manager."""

    def __init__(self, service: Service, loop: LoopThread) -> None:
        super().__init__(service, loop)
        self.address = service.address

    wait = blocking(Service.wait)
    stop = blocking(Service.stop)


class BlockingProducer(_Face[NamedProducer]):
    """A producer that has a name; see `NamedProducer`.

    Attributes:
        name: its name.
        partition: where it pushes to.
    """

    def __init__(self, producer: NamedProducer, loop: LoopThread) -> None:
        super().__init__(producer, loop)
        self.name = producer.name
        self.partition = producer.partition

    @property
    def last_sequence(self) -> int | None:
        """The highest number of what is stored; None: there is nothing."""
        return self._behind.last_sequence

    @property
    def last_index(self) -> int | None:
        """The index that this has; None: it is not known."""
        return self._behind.last_index

    push = blocking(NamedProducer.push)
    push_all = blocking(NamedProducer.push_all)


class BlockingStream(_Face[Stream]):
    """A stream; see `Stream` for what each verb does.

    `on_assigned` and `on_revoked` of a consumer are called in another thread, and must not block.
    """

    def __init__(self, stream: Stream, loop: LoopThread) -> None:
        super().__init__(stream, loop)
        self.name = stream.name
        self.partitions = stream.partitions

    push = blocking(Stream.push)
    push_many = blocking(Stream.push_many)
    pusher = opening(Stream.pusher, BlockingPusher)
    pull = blocking(Stream.pull)
    index_at = blocking(Stream.index_at)
    work = opening(Stream.work, BlockingWorkQueue)
    consumer = opening(Stream.consumer, BlockingConsumer[Entry])

    def producer(self, name: str, *, partition: int = 0) -> BlockingProducer:
        """Open a producer, whose numbers go on where it stopped; see `Stream.producer`."""
        producer = self._loop.run(self._behind.producer(name, partition=partition))
        return BlockingProducer(producer, self._loop)

    def partition_of(self, key: Key | None) -> int:
        """The partition that entries with a key are pushed to; errors as of `Stream`."""
        return self._behind.partition_of(key)

    def tail(
        self,
        *,
        start: Start = "end",
        where: str = "",
        partitions: Sequence[int] | None = None,
    ) -> BlockingIteration[Entry]:
        """Follow for ever; see `Stream.tail`."""
        batches = self._behind.batches(start=start, where=where, partitions=partitions)
        return BlockingIteration(self._loop, batches.__anext__, batches.aclose, batches.__aenter__)


class BlockingTypedStream(_Face[TypedStream[T]]):
    """A stream of entries of one class; see `TypedStream` for what each verb does."""

    def __init__(self, stream: TypedStream[T], loop: LoopThread) -> None:
        super().__init__(stream, loop)
        self.name = stream.name
        self.partitions = stream.partitions

    push = blocking(TypedStream[T].push)
    push_many = blocking(TypedStream[T].push_many)
    pull = blocking(TypedStream[T].pull)

    def decode(self, entry: Entry) -> T:
        """What an entry of the stream says."""
        return self._behind.decode(entry)


class BlockingClient(_Face[Client]):
    """A client; see `Client` for what each verb does. A context manager."""

    @property
    def connected(self) -> bool:
        """Whether there is a link to the node now."""
        return self._behind.connected

    def __enter__(self) -> Self:
        """Nothing more to do."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def close(self, *, timeout_seconds: float = CLOSE_SECONDS) -> None:
        """Wait for what is unconfirmed, and end the link; see `Client.close`."""
        arguments.seconds("timeout_seconds", timeout_seconds)
        self._loop.stop(self._behind.close(timeout_seconds=timeout_seconds))

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
            typed = self._behind.stream(name, partitions=partitions, schema=schema)
            return BlockingTypedStream(self._loop.run(typed), self._loop)
        stream = self._loop.run(self._behind.stream(name, partitions=partitions))
        return BlockingStream(stream, self._loop)

    def open_streams(self, names: Sequence[str], *, partitions: int = 1) -> list[BlockingStream]:
        """Open many streams, or create them."""
        streams = self._loop.run(self._behind.open_streams(names, partitions=partitions))
        return [BlockingStream(stream, self._loop) for stream in streams]

    streams = blocking(Client.streams)
    describe = blocking(Client.describe)
    trim = blocking(Client.trim)
    remove = blocking(Client.remove)
    queues = blocking(Client.queues)
    queue = blocking(Client.queue)
    take_back = blocking(Client.take_back)
    indexes = blocking(Client.indexes)
    get_index = blocking(Client.get_index)
    set_index = blocking(Client.set_index)
    groups = blocking(Client.groups)
    status = blocking(Client.status)
    send = blocking(Client.send)
    ask = blocking(Client.ask)
    about = blocking(Client.about)
    watch = blocking(Client.watch)
    stop = blocking(Client.stop)
    mailbox = opening(Client.mailbox, BlockingMailbox)
    follow = opening(Client.follow, BlockingFollowing)

    def routes(
        self, pattern: str = "*", *, kind: str = "", at: Route | str = ""
    ) -> BlockingIteration[About]:
        """All that has a route; see `Client.routes`."""
        found = self._behind.routes(pattern, kind=kind, at=at)
        return BlockingIteration(self._loop, _each(found), found.aclose)

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
        """Serve an address at the node; arguments and errors as of `Client.serve`.

        The handler may block. It is called in threads, for up to `calls_max` calls at once.
        """
        arguments.called("handler", handler)
        # Its own: the loop's threads also look up host names, and a handler may wait for a link.
        threads = ThreadPoolExecutor(max(1, arguments.whole("calls_max", calls_max)), address)

        def in_thread(message: Message) -> Awaitable[bytes | None]:
            call = partial(copy_context().run, handler, message)
            return asyncio.get_running_loop().run_in_executor(threads, call)

        async def begun() -> Service:
            service = await self._behind.serve(
                address,
                in_thread,
                at=at,
                group=group,
                calls_max=calls_max,
                lease_seconds=lease_seconds,
            )
            service.on_end(lambda _: threads.shutdown(wait=False))
            return service

        return BlockingService(self._loop.run(begun()), self._loop)


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
