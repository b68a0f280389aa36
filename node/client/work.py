"""Work queues as a client sees them: jobs that come, and a word on each that goes back.

What is said about jobs in one turn of the event loop travels together, and while some of that is on
its way what is said next gathers; so a worker that is fast needs few requests. A request that has
no answer when a link is lost is asked again on the next, and done once.
"""

import asyncio
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Final, NamedTuple, Self

import msgspec

from rillnode.actors.core.queues.names import parse_queue_address
from rillnode.codecs import arguments, native
from rillnode.codecs.entries import Entry
from rillnode.codecs.errors import RequestError, RillnodeError, TransportError
from rillnode.codecs.events import event_logger
from rillnode.codecs.limits import WORK_SECONDS_MAX, WORK_SECONDS_MIN, WORK_SETTLEMENTS_MAX
from rillnode.codecs.routing.routes import Route, local
from rillnode.node.client.session import Session
from rillnode.node.client.subscription import AGAIN_SECONDS, PASSING
from rillnode.node.iteration import kept

logger = event_logger("rillnode.node.client")

IN_FLIGHT: Final = 16
"""Jobs that a worker has at a time, those that wait at the client included."""

ATTEMPTS: Final = 5
VISIBILITY_SECONDS: Final = 30.0

REPEAT_SECONDS: Final = 30.0
"""How long it is said again what the node could not write."""

ASKINGS_MAX: Final = 4
"""Requests about jobs that are under way at a time: a node knows the last 8."""

JOIN_SECONDS: Final = 60.0
LEAVE_SECONDS: Final = 10.0

_DONE, _RETRY, _REJECT, _EXTEND, _RELEASE = range(5)

_IS_DONE: Final[tuple[int, int | None, str]] = (_DONE, None, "")
"""What is said of a job that is done: the outcome, and neither a time nor a reason."""

_TOKEN_BYTES: Final = 16

_REASON_CHARACTERS_MAX: Final = 1_000
"""Of a reason that is sent; a node keeps less."""

Place = tuple[int, int, int]
"""Partition, index and attempt."""


class QueuePartition(msgspec.Struct, frozen=True):
    """Progress of a queue in one partition.

    Attributes:
        partition: its number.
        low: all entries below it are done, dead or trimmed.
        next: the first index not yet looked at.
        end: the index that the next entry of the partition gets.
    """

    partition: int
    low: int
    next: int
    end: int


class QueueWorker(msgspec.Struct, frozen=True):
    """A worker of a queue.

    Attributes:
        worker: its id.
        principal: its principal; empty if it is not connected to this node.
        in_flight: jobs that it has.
        connected: whether it is connected to this node.
    """

    worker: str
    principal: str
    in_flight: int
    connected: bool


class QueueInfo(msgspec.Struct, frozen=True):
    """The state of a work queue.

    Attributes:
        stream: the stream that it is of.
        queue: its name.
        depth: entries that are neither done nor dead.
        in_flight: those that workers have.
        waiting: those that wait for a pause, or behind others of their key.
        dying: those that are about to become dead letters.
        oldest_at: when the oldest of them was received, milliseconds since 1970; 0: none.
        done: entries that are done.
        dead: dead letters that were not given out again.
        dead_kept: entries in the stream of dead letters, including those of other queues.
        trimmed: entries that retention removed before they were done.
        workers: workers that are connected to this node.
        held: why no further entries are given out; empty: they are.
        attempts: attempts after which an entry becomes a dead letter.
        in_flight_max: jobs that all workers together may have; 0: any number.
        by_key: whether entries of one key are given out in order.
        partitions: its progress in each.
        with_workers: its workers, at other nodes too if they have jobs.
    """

    stream: str
    queue: str
    depth: int
    in_flight: int
    waiting: int
    dying: int
    oldest_at: int
    done: int
    dead: int
    dead_kept: int
    trimmed: int
    workers: int
    held: str
    attempts: int
    in_flight_max: int
    by_key: bool
    partitions: list[QueuePartition]
    with_workers: list[QueueWorker]


def _stopped() -> RequestError:
    return RequestError("queue.stopped", "This worker was stopped: open the queue again")


def late_error(place: Place) -> RequestError:
    """The answer to a word on a job that is the worker's no more."""
    partition, index, attempt = place
    text = (
        f"Attempt {attempt} at entry {index} of partition {partition} is over: it was not answered "
        "in time and given again, or it is settled"
    )
    return RequestError("queue.late", text)


class Job(msgspec.Struct, eq=False, weakref=True):
    """An entry for a worker to process; it is answered once, by one of these calls.

    As an async context manager it is done at the end of the block. If an exception leaves the
    block, it is given out again after the queue's pause, or at once after a cancellation. An answer
    within the block stands.

        async with job:
            await print_page(job.data)

    Attributes:
        entry: the entry, with its key and headers.
        attempt: how often it was given to a worker, from 1.
    """

    # A Struct, as entries are: one is made for each.
    entry: Entry
    attempt: int
    _given: "_Given"
    _worker: "_Worker"
    _queue: "WorkQueue"  # which goes on to work as long as one of its jobs is in use

    def __repr__(self) -> str:
        entry = self.entry
        return f"<Job {entry.partition}/{entry.index}, attempt {self.attempt}>"

    @property
    def data(self) -> bytes:
        """The entry's bytes."""
        return self.entry.data

    @property
    def key(self) -> bytes | None:
        """The entry's key, if it has one."""
        return self.entry.key

    @property
    def headers(self) -> dict[str, bytes]:
        """The entry's headers."""
        return self.entry.headers

    @property
    def partition(self) -> int:
        """The partition that the entry is in."""
        return self.entry.partition

    @property
    def index(self) -> int:
        """The entry's place there."""
        return self.entry.index

    @property
    def is_answered(self) -> bool:
        """Whether one of the calls below has answered it, other than `extend`."""
        return not self._worker.has(self._given)

    async def done(self) -> None:
        """Mark it as done; returns once that is durable.

        Raises:
            JobLate: `queue.late`, it was not answered in time and now belongs to another, or it was
                answered already.
            RillnodeError: it is unknown whether that is durable.
        """
        await self._worker.done(self._given)

    def done_nowait(self) -> asyncio.Future[None]:
        """Mark it as done without waiting; the future is done once that is durable.

        Answers given in one turn of the event loop travel together. Errors as of `done`; for a job
        that was answered already at once.
        """
        return self._worker.done(self._given)

    async def retry(self, after: float | None = None, *, reason: str = "") -> None:
        """Give it out again, to any worker; after the last attempt it becomes a dead letter.

        Args:
            after: seconds to wait; None: 1 s after the first attempt, doubling with each, up to 10
                minutes.
            reason: text for people; a dead letter has that of its last attempt.

        Raises:
            JobLate: as of `done`.
            QueueError: `queue.limit`, `after` is negative or over 12 hours.
            RillnodeError: as of `done`.
        """
        if after is not None:
            arguments.seconds("after", after)
        await self._worker.say(self._given, _RETRY, after, reason)

    async def reject(self, reason: str = "") -> None:
        """Make it a dead letter, at once; errors as of `done`."""
        await self._worker.say(self._given, _REJECT, reason=reason)

    async def extend(self, seconds: float) -> None:
        """Have so many seconds for it, from now on; errors as of `retry`."""
        await self._worker.say(self._given, _EXTEND, arguments.seconds("seconds", seconds))

    async def __aenter__(self) -> Self:
        """It is there already."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Answer it, unless that was done within the block."""
        if self.is_answered:
            return
        if error is None:
            await self.done()
            return
        # What has failed in the block counts for more than that this comes too late.
        with suppress(RillnodeError):
            if isinstance(error, Exception):
                await self.retry(reason=f"{type(error).__name__}: {error}")
            else:
                await self._worker.say(self._given, _RELEASE)


class _Given(msgspec.Struct, eq=False):
    """An entry that the node has given, for one attempt.

    Attributes:
        until: when it is this worker's no more.
        told: told what has come of it that it was said to be done.
    """

    entry: Entry
    attempt: int
    until: float
    told: asyncio.Future[None] | None = None


class _Word(msgspec.Struct, eq=False):
    """What was said about one job other than that it is done, and who is told what came of it.

    Nobody is where it was given back unseen.
    """

    job: _Given
    outcome: int
    milliseconds: int | None
    reason: str
    told: asyncio.Future[None] | None


_Words = Sequence[_Given | _Word]
"""What was said, in order; what was given stands for that it is done."""


def _place_of(job: _Given) -> Place:
    """What tells a job from others, and from what was given of its entry before."""
    return job.entry.partition, job.entry.index, job.attempt


def _settlements(words: _Words) -> list[native.Settlement]:
    """What was said, put together where the same was said of jobs that follow each other."""
    items: list[native.Settlement] = []
    last = native.Settlement(0, 0, 0, _RELEASE, count=0)
    last_said = _IS_DONE
    behind = -1  # the index behind those of the last
    for word in words:
        if isinstance(word, _Given):
            job, said = word, _IS_DONE
        else:
            job, said = word.job, (word.outcome, word.milliseconds, word.reason)
        entry = job.entry
        index = entry.index
        if (
            index == behind
            and said == last_said
            and job.attempt == last.attempt
            and entry.partition == last.partition
        ):
            last.count += 1
        else:
            last = native.Settlement(*_place_of(job), *said)
            last_said = said
            items.append(last)
        behind = index + 1
    return items


class _Asking(NamedTuple):
    """A request that is under way."""

    number: int
    words: _Words
    begun: list[native.JobRef] | None
    until: float


class _Worker:
    """The part of a `WorkQueue` that its session knows, and that goes on until it is stopped.

    A job's time runs from when the node gave it, while it waits here for somebody to ask for it.
    What has waited for half of it is given back, which costs no attempt: it goes to a worker that
    has time for it, and whoever gets it here has half of its time left at least.
    """

    def __init__(
        self,
        session: Session,
        address: bytes,
        *,
        created_at: int,
        attempts: int,
        visibility_seconds: float,
        in_flight: int,
        queue_in_flight: int | None,
        by_key: bool,
    ) -> None:
        self._created_at = created_at
        self._in_flight = in_flight
        self._session = session
        self._address = address
        self._attempts = attempts
        self._visibility_seconds = visibility_seconds
        self._queue_in_flight = queue_in_flight
        self._by_key = by_key
        self._token = session.messages.entropy(_TOKEN_BYTES)
        self._id = 0
        self._route: Route = ()
        self.joined = False
        self._ready: deque[_Given] = deque()
        self._open: set[_Given] = set()
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._error: RillnodeError | None = None
        self._words: list[_Given | _Word] = []
        self._number = 0
        self._askings: dict[int, _Asking] = {}
        self._is_gathering = False
        self._again: asyncio.TimerHandle | None = None
        self._looking: asyncio.TimerHandle | None = None
        self.stopping: asyncio.Task[None] | None = None
        self._leaving: asyncio.Future[None] | None = None
        session.to_close.add(self)

    @property
    def open_count(self) -> int:
        """Jobs that are here and not answered."""
        return len(self._open)

    def begin(self) -> None:
        """Ask to be a worker, where that was not done yet."""
        if not self._id and self._error is None and self.stopping is None:
            self._subscribe()

    async def close(self) -> None:
        """Take no more jobs; those that were not answered are given to others."""
        if self.stopping is None:
            self._wake.set()
            self.stopping = kept(self._stop())
        await asyncio.shield(self.stopping)

    def has(self, job: _Given) -> bool:
        """Whether a job is this worker's, and not answered."""
        return job in self._open

    def done(self, job: _Given) -> asyncio.Future[None]:
        """Say that a job is done."""
        try:
            self._open.remove(job)
        except KeyError:
            raise late_error(_place_of(job)) from None
        told = job.told = asyncio.Future(loop=self._loop)
        self._words.append(job)
        if not self._is_gathering:
            self._send_soon()
        return told

    def say(
        self, job: _Given, outcome: int, seconds: float | None = None, reason: str = ""
    ) -> asyncio.Future[None]:
        """Say something else about a job, as its calls do."""
        arguments.text("reason", reason, as_utf8=False)
        if job not in self._open:
            raise late_error(_place_of(job))
        if seconds is not None and not 0 <= seconds <= WORK_SECONDS_MAX:
            text = f"A pause, or more time, is 0 to {WORK_SECONDS_MAX:,.0f} s, not {seconds:g}"
            raise RequestError("queue.limit", text)
        milliseconds = None if seconds is None else round(1_000 * seconds)
        if outcome != _EXTEND:
            self._open.remove(job)
        told: asyncio.Future[None] = self._loop.create_future()
        # A file's name in it may be no text; what is said together with it would fail, too.
        reason = reason[:_REASON_CHARACTERS_MAX].encode("utf-8", "backslashreplace").decode()
        self._words.append(_Word(job, outcome, milliseconds, reason, told))
        if not self._is_gathering:
            self._send_soon()
        return told

    def take(self) -> _Given | None:
        """The next job that is there, and of whose time enough is left."""
        ready = self._ready
        while ready and self.joined:
            job = ready.popleft()
            if job.until - self._session.elapsed() < self._visibility_seconds / 2:
                self._give_back(job)
            elif job in self._open:
                return job
        return None

    def _give_back(self, job: _Given) -> None:
        """Have a job given again, to whoever has time for it."""
        if job in self._open:
            self._open.remove(job)
            self._words.append(_Word(job, _RELEASE, None, "", None))
            self._send_soon()

    def _look(self) -> None:
        """Give back what has waited for too long, and look again when the next one has."""
        self._looking = None
        half = wait = self._visibility_seconds / 2
        while self._ready and self.joined:
            spare = self._ready[0].until - self._session.elapsed() - half
            if spare > 0:
                wait = spare
                break
            self._give_back(self._ready.popleft())
        if self._ready:
            self._looking = self._loop.call_later(wait, self._look)

    async def change(self) -> None:
        """Wait until something has come.

        Raises:
            RillnodeError: it is over.
        """
        if self._error is not None:
            raise self._error
        self._wake.clear()
        await self._wake.wait()
        if self._error is not None:
            raise self._error

    async def _stop(self) -> None:
        for timer in (self._again, self._looking):
            if timer is not None:
                timer.cancel()
        if self.joined and self._error is None:
            self._leaving = self._loop.create_future()
            self._send_soon()
            with suppress(TimeoutError):
                async with asyncio.timeout(LEAVE_SECONDS):
                    await self._leaving
        if self._id:
            self._session.unsubscribe(self._id, self._route or (local(self._address),))
        self._ready.clear()
        self._open.clear()

    # The node's side -------------------------------------------------------------------------

    def _subscribe(self) -> None:
        self._again = None
        self._id = self._session.next_id()
        self._session.subscribe(self._id, self)

    def resume(self) -> tuple[bytes, native.WorkRequest]:
        """Ask to be a worker, with what this one has already."""
        self.joined = False
        self._route = ()
        saying = [word for asking in self._askings.values() for word in asking.words]
        said = [word if isinstance(word, _Given) else word.job for word in (*saying, *self._words)]
        places = {_place_of(job) for job in (*self._open, *said)}
        return self._address, native.WorkRequest(
            self._id,
            self._token,
            [native.JobRef(*place) for place in places],
            max(0, self._in_flight),
            max(0, self._queue_in_flight or 0),
            max(0, self._attempts),
            max(0, round(1_000 * self._visibility_seconds)),
            self._by_key,
            self._created_at,
        )

    def link_lost(self) -> None:
        """Hand out nothing until the node has said what is this worker's still."""
        self.joined = False

    def received(self, response: native.Response, route: Route) -> None:
        """Take jobs, and what is this worker's no more."""
        if not isinstance(response, native.JobsResponse):
            return
        self._route = route
        self.joined = True
        if response.gone:
            gone = {(one.partition, one.index, one.attempt) for one in response.gone}
            self._open = {job for job in self._open if _place_of(job) not in gone}
        until = self._session.elapsed() + self._visibility_seconds
        for run in response.jobs:
            jobs = [_Given(entry, run.attempt, until) for entry in native.entries_of_run(run)]
            self._open.update(jobs)
            self._ready += jobs
        if self._looking is None and self._ready:
            self._looking = self._loop.call_later(self._visibility_seconds / 2, self._look)
        self._wake.set()

    def failed(self, error: RillnodeError) -> None:
        """Ask anew where the node failed, after a pause; all else ends it."""
        self.joined = False
        passes = error.code in PASSING or error.retryable
        if passes and self.stopping is None and not isinstance(error, TransportError):
            self._session.unanswered += 2
            self._again = self._loop.call_later(AGAIN_SECONDS, self._subscribe)
            return
        self._error = error
        # Nobody is given what the node gives to others by now.
        self._open.difference_update(self._ready)
        self._ready.clear()
        self._wake.set()

    # What is said ----------------------------------------------------------------------------

    def _send_soon(self) -> None:
        if self._is_gathering:
            return
        # The last of all is said when the others are answered.
        leaves = self._leaving is not None and not self._askings
        if leaves or (self._words and len(self._askings) < ASKINGS_MAX):
            self._is_gathering = True
            self._session.gather(self._send)

    def _send(self) -> None:
        """Send what has gathered; the last of it says that no more jobs are wanted."""
        self._is_gathering = False
        words, self._words = self._words[:WORK_SETTLEMENTS_MAX], self._words[WORK_SETTLEMENTS_MAX:]
        begun: list[native.JobRef] | None = None
        if self._leaving is not None and not (self._words or self._askings):
            begun = [native.JobRef(*_place_of(job)) for job in self._open.difference(self._ready)]
        self._number += 1
        until = self._loop.time() + REPEAT_SECONDS
        asking = self._askings[self._number] = _Asking(self._number, words, begun, until)
        self._ask(asking)

    def _ask(self, asking: _Asking) -> None:
        number = self._session.next_id()
        request = native.SettleRequest(
            number, self._token, asking.number, _settlements(asking.words), asking.begun
        )
        try:
            self._session.ask(self._address, request, partial(self._answered, asking))
        except RillnodeError as error:
            self._settled(asking, error)

    def _answered(self, asking: _Asking, response: native.Response | RillnodeError) -> None:
        if isinstance(response, RillnodeError):
            passes = response.code in PASSING or response.retryable
            if (
                passes
                and self._loop.time() < asking.until
                and not isinstance(response, TransportError)
            ):
                # With its number it may be asked again, whatever has become of it.
                self._loop.call_later(AGAIN_SECONDS, self._ask, asking)
            else:
                self._settled(asking, response)
        elif isinstance(response, native.SettledResponse):
            self._settled(asking, None, response.late)
        else:
            error = RequestError("client.answer", "the node gave another kind of answer")
            self._settled(asking, error)

    def _settled(
        self, asking: _Asking, error: RillnodeError | None, late: Sequence[int] = ()
    ) -> None:
        """Tell who waits what has become of their words, and send the next."""
        del self._askings[asking.number]
        refused = set(late)
        unheard: list[asyncio.Future[None]] = []
        for at, word in enumerate(asking.words):
            told = word.told
            if error is None and at not in refused:
                if told is not None and not told.done():  # else who has waited was cancelled
                    told.set_result(None)
                continue
            job = word if isinstance(word, _Given) else word.job
            if error is None:
                self._open.discard(job)
            elif told is not None and (isinstance(word, _Given) or word.outcome != _EXTEND):
                self._open.add(job)  # it may be said again
            if told is not None and not told.done():
                told.set_exception(error or late_error(_place_of(job)))
                if isinstance(error, TransportError):
                    unheard.append(told)
                else:
                    told.exception()  # nobody has to look at it
        if unheard and error is not None:
            stream, _ = parse_queue_address(self._address) or ("", "")
            self._session.appends.unheard.add(stream, unheard, error)
        if asking.begun is None:
            self._send_soon()
        elif self._leaving is not None and not self._leaving.done():
            self._leaving.set_result(None)


class WorkQueue:
    """A worker of a queue, made by `Stream.work`: an async context manager that iterates over jobs.

        async with stream.work("printing") as queue:
            async for job in queue:
                async with job:
                    ...

    A cancelled wait loses no job, and lost links are survived. Several tasks can ask for jobs and
    process them in parallel. At the end of the `async with`, and when nothing refers to it or its
    jobs any more, unanswered jobs are given to others at once.

    Attributes:
        name: of the queue.
        stream: of the stream.
        in_flight: jobs that it has at a time.
    """

    def __init__(self, worker: _Worker, *, name: str, stream: str, in_flight: int) -> None:
        self.name = name
        self.stream = stream
        self.in_flight = in_flight
        self._worker = worker
        loop = asyncio.get_running_loop()
        self._dropped = weakref.finalize(self, _stop_dropped, loop, worker)
        self._dropped.atexit = False

    def __repr__(self) -> str:
        worker = self._worker
        ended = "stopped" if worker.stopping else f"{worker.open_count} in flight"
        return f"<WorkQueue {self.name!r} of {self.stream!r}: {ended}>"

    async def __aenter__(self) -> Self:
        """Wait until the node has taken it as a worker.

        Raises:
            QueueError: `queue.name`, the name is a consumer's of this stream, or too long;
                `queue.limit`, a number that cannot be; `queue.order`, the queue keeps the order of
                keys and this asks for none, or the other way, and entries of it are open.
            QueueStopped: `queue.stopped`, it was stopped meanwhile.
            StreamUnknown: `stream.unknown`.
            TransportError: the node has not answered in time.
        """
        worker = self._worker
        worker.begin()
        try:
            async with asyncio.timeout(JOIN_SECONDS):
                while not worker.joined:
                    if worker.stopping is not None:
                        raise _stopped()
                    await worker.change()
        except TimeoutError:
            await self.stop()
            text = f"the node has not answered in {JOIN_SECONDS:.0f} s"
            raise TransportError("request.timeout", text) from None
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop."""
        await self.stop()

    def __aiter__(self) -> Self:
        """Itself."""
        return self

    async def __anext__(self) -> Job:
        """Wait for the next job; errors as of entering it, and as `next`.

        Asking for the next job says nothing about the ones before.
        """
        worker = self._worker
        while worker.stopping is None:
            job = worker.take()
            if job is not None:
                return Job(job.entry, job.attempt, job, worker, self)
            worker.begin()
            await worker.change()
        raise StopAsyncIteration

    async def next(self, *, timeout: float | None = None) -> Job:
        """Wait for the next job.

        Args:
            timeout: seconds; None: for ever.

        Raises:
            TimeoutError: no job came in time.
            QueueStopped: `queue.stopped`, it was stopped.
            StreamRemoved: `stream.removed`, and the queue with it.
            QueueError: `queue.revoked`, the right to pull the stream has ended.
        """
        try:
            async with asyncio.timeout(arguments.timeout("timeout", timeout)):
                return await anext(self)
        except StopAsyncIteration:
            raise _stopped() from None

    async def stop(self) -> None:
        """Take no more jobs; those that were not answered are given to others."""
        self._dropped.detach()
        await self._worker.close()


def _stop_dropped(loop: asyncio.AbstractEventLoop, worker: _Worker) -> None:
    """Whoever breaks out of a loop stops nothing, and its jobs would only wait for their time."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(_stop_later, worker)


def _stop_later(worker: _Worker) -> None:
    if worker.stopping is None:
        kept(worker.close())


def work_queue(
    session: Session,
    address: bytes,
    *,
    name: str,
    stream: str,
    created_at: int,
    attempts: int,
    visibility_seconds: float,
    in_flight: int,
    queue_in_flight: int | None,
    by_key: bool,
) -> WorkQueue:
    """Make a worker of a queue, as `Stream.work` says."""
    arguments.whole("attempts", attempts)
    arguments.whole("in_flight", in_flight)
    arguments.seconds("visibility_seconds", visibility_seconds)
    if queue_in_flight is not None and arguments.whole("queue_in_flight", queue_in_flight) < 1:
        text = f"queue_in_flight is at least 1, or None for no limit, not {queue_in_flight}"
        raise RequestError("queue.limit", text)
    if not WORK_SECONDS_MIN <= visibility_seconds <= WORK_SECONDS_MAX:
        text = f"A job is a worker's for {WORK_SECONDS_MIN:g} to {WORK_SECONDS_MAX:,.0f} s"
        raise RequestError("queue.limit", text)
    worker = _Worker(
        session,
        address,
        created_at=created_at,
        attempts=attempts,
        visibility_seconds=visibility_seconds,
        in_flight=in_flight,
        queue_in_flight=queue_in_flight,
        by_key=by_key,
    )
    return WorkQueue(worker, name=name, stream=stream, in_flight=in_flight)
