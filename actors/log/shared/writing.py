"""Writes to a shard: a queue, frames under way, and what is sent again.

A frame is known to be there when the engine says so, or when it comes back in what is read of the
log; where neither happens it is sent again, and all but one are void.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

from rillnode.actors.log import written_bytes
from rillnode.actors.log.shared.frames import (
    HEADER_BYTES,
    OPERATION_BYTES,
    WRITER_BYTES,
    Contents,
    FrameError,
    Session,
    SharedOperation,
    TooNewError,
    decode_session,
    encode_frame,
)
from rillnode.actors.log.shared.owner import Owner
from rillnode.actors.log.shared.port import LogLost, unreachable
from rillnode.codecs.errors import StoreError
from rillnode.codecs.events import event_logger

logger = event_logger("rillnode.actors.log")

Waiter = asyncio.Future[None]

NO_CHECK: Final = (0, 0)


class Sent:
    """A frame of this node that is not carried out yet."""

    __slots__ = ("copies", "data", "number", "operations", "places", "session", "waiters")

    def __init__(
        self,
        session: Session,
        operations: Sequence[SharedOperation],
        data: bytes,
        waiters: Sequence[Waiter],
    ) -> None:
        self.session = session
        self.number = session.number
        self.operations = operations
        self.data = data
        self.waiters = waiters
        # Known to be in the log, and not carried out yet: one of them counts, or none.
        self.copies = 0
        # Sequences at which it was found.
        self.places: set[int] = set()


class Reader(Protocol):
    """Reads the log, and has the view carry it out.

    Attributes:
        check: a place, and what the view was there, which other nodes are told once.
        failed: why nothing is carried out; None: nothing is wrong.
        applied: sequence of the last frame that was carried out.
        known: the last sequence that is known to be in the log.
        life: how often it has begun.
    """

    check: tuple[int, int]
    failed: StoreError | None
    applied: int
    known: int
    life: int

    @property
    def can_apply(self) -> bool:
        """Whether it does."""
        ...

    def found(self, sequence: int, frame: Sent) -> None:
        """An own frame stands there."""
        ...

    async def stirring(self) -> None:
        """Wait until something was carried out, or has failed."""
        ...


class Writing:
    """The frames that this node writes. All calls on the loop.

    Args:
        number: of the shard.
        owner: the store.
        reader: of the same shard.
        begin: has work done until the shard is closed.
        fail: told of what must not happen.

    Attributes:
        is_open: whether frames are sent: the view has all that was there when it was opened.
        refusal: why no writes are taken; None: they are, or wait until it is open.
        pending_bytes: of writes that wait.
    """

    def __init__(
        self,
        number: int,
        owner: Owner,
        reader: Reader,
        begin: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"],
        fail: Callable[[Exception], None],
    ) -> None:
        self.is_open = False
        self.refusal: StoreError | None = None
        self.pending_bytes = 0
        self.sends: set[asyncio.Task[None]] = set()
        self._number = number
        self._owner = owner
        self._reader = reader
        self._begin = begin
        self._fail = fail
        self._loop = asyncio.get_running_loop()
        self._queue: deque[SharedOperation] = deque()
        self._queued_bytes = 0
        self._waiters: list[Waiter] = []
        self._sent: dict[int, Sent] = {}
        self._session = Session(b"\0" * WRITER_BYTES, 0, 0)
        self._is_pumping = False
        self._repairing: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way."""
        return not (self._queue or self._sent or self._waiters or self._repairing)

    @property
    def is_repairing(self) -> bool:
        """Whether something is sent again."""
        return self._repairing is not None

    @property
    def under_way(self) -> int:
        """How many frames are not carried out yet."""
        return len(self._sent)

    # Taking writes ---------------------------------------------------------------------------

    def submit(self, operation: SharedOperation) -> None:
        """Queue a write."""
        self._queue.append(operation)
        size = written_bytes(operation)
        self.pending_bytes += size
        self._queued_bytes += size
        self.pump_soon()

    async def fresh(self) -> None:
        """Wait until the view has all that was confirmed anywhere before this was called.

        Raises:
            StoreError: the engine does not answer.
        """
        if self.refusal is not None:
            raise self.refusal
        waiter: Waiter = self._loop.create_future()
        self._waiters.append(waiter)
        self.pump_soon()
        await waiter

    def begin_session(self, since: int) -> Sent:
        """Be a new writer; returns its first frame, which is empty and has to be sent.

        Whoever waits for that of another, which has come to nothing, waits for this one.
        """
        assert not any(frame.operations for frame in self._sent.values()), "written before opening"
        waiters = [waiter for frame in self._sent.values() for waiter in frame.waiters]
        self._sent.clear()
        self._session = Session(self._owner.entropy(WRITER_BYTES), 1, 0, since)
        return self._make_frame([], [*waiters, *self._take_waiters()])

    def pump_soon(self) -> None:
        """Send what waits, with all else that is submitted in this turn of the loop."""
        if self.is_open and not self._is_pumping:
            self._is_pumping = True
            self._loop.call_soon(self.pump)

    def go_on(self) -> None:
        """Something was carried out: send what waits for that."""
        if not self._is_pumping:
            self.pump()

    def pump(self) -> None:
        """Send what waits, as far as frames may be under way."""
        self._is_pumping = False
        if not self.is_open or self._repairing is not None:
            return
        while (self._queue or self._waiters) and self._may_send:
            for frame in self._next_frames():
                self._send(frame)

    @property
    def _may_send(self) -> bool:
        """Whether what waits makes a frame now, and not with what comes while others are under way.

        A frame costs the servers and every node more than what is in it, where that is little.
        """
        under_way, options = len(self._sent), self._owner.options
        return not under_way or (
            under_way < options.frames_max
            and (
                self._queued_bytes >= options.frame_bytes_min
                or self._owner.under_way < options.frames_free
            )
        )

    # Frames ----------------------------------------------------------------------------------

    def _next_frames(self) -> Sequence[Sent]:
        """Take what makes a frame out of the queue."""
        operations: list[SharedOperation] = []
        size, size_max = HEADER_BYTES, self._owner.options.frame_bytes_max
        queue = self._queue
        while queue:
            size += written_bytes(queue[0]) + OPERATION_BYTES
            if operations and size > size_max:
                break
            operations.append(queue.popleft())
        self._queued_bytes -= sum(map(written_bytes, operations))
        return self._framed(operations, self._take_waiters())

    def _framed(
        self, operations: Sequence[SharedOperation], waiters: Sequence[Waiter]
    ) -> Sequence[Sent]:
        """One frame; several where one is too large; without what cannot be written."""
        session = self._session
        try:
            frame = self._make_frame(operations, waiters)
        except UnicodeEncodeError:
            refusal = StoreError("store.name", "a name is not valid Unicode text", retryable=False)
        except OverflowError as error:
            text = f"it cannot be carried out ({error})"
            refusal = StoreError("store.void", text, retryable=False)
        except TooNewError as error:
            refusal = self._owner.versions.outdated(error.version)
        else:
            if len(frame.data) <= self._owner.log.frame_bytes_max:
                return (frame,)
            del self._sent[frame.number]
            text = f"{len(frame.data)} bytes are more than the log's servers take"
            refusal = StoreError("store.too_large", text, retryable=False)
        self._session = session
        if len(operations) > 1:
            half = len(operations) // 2
            first = self._framed(operations[:half], ())
            return (*first, *self._framed(operations[half:], waiters))
        self._refused(operations, refusal)
        return self._framed((), waiters) if waiters else ()

    def _make_frame(self, operations: Sequence[SharedOperation], waiters: Sequence[Waiter]) -> Sent:
        last = self._session
        session = Session(last.writer, last.epoch, last.number + 1, last.since)
        contents = Contents(session, *self._reader.check, operations)
        data = encode_frame(contents, self._owner.versions.common)
        self._reader.check = NO_CHECK
        self._session = session
        frame = self._sent[session.number] = Sent(session, operations, data, waiters)
        return frame

    def _send(self, frame: Sent) -> None:
        task = self._loop.create_task(self._sending(frame))
        self.sends.add(task)
        task.add_done_callback(self.sends.discard)

    async def _sending(self, frame: Sent) -> None:
        try:
            sequence = await self._owner.log.append(self._number, frame.data)
        except LogLost as error:
            self._repair_later(str(error))
        except StoreError as error:
            self._repair_later(error.text)
        except Exception as error:
            self._fail(error)
        else:
            self._reader.found(sequence, frame)

    # What becomes of them --------------------------------------------------------------------

    def is_under_way(self, frame: Sent) -> bool:
        """Whether a frame was not carried out yet, nor given up."""
        return self._sent.get(frame.number) is frame

    def own(self, data: bytes) -> Sent | None:
        """The frame of this node that this is one of, where that is under way."""
        try:
            session = decode_session(data)
        except (FrameError, StoreError):
            return None
        mine = self._session
        if session.writer != mine.writer or session.epoch != mine.epoch:
            return None
        frame = self._sent.get(session.number)
        if frame is not None:
            frame.copies += 1
        return frame

    def carried_out(self, frame: Sent, sequence: int, *, counts: bool) -> None:
        """A frame was carried out, or is void where it stands."""
        frame.copies -= 1
        if not self.is_under_way(frame):
            return
        if counts:
            del self._sent[frame.number]
            self._forget(frame.operations)
            self._owner.completed(self._number, frame.operations, sequence)
            _settle(frame.waiters)
        elif not frame.copies:
            # One before it is missing.
            self._repair_later("a frame before it is missing")

    def begun_anew(self) -> None:
        """The view is given again what it has not carried out."""
        for frame in self._sent.values():
            frame.copies = 0

    # What is missing -------------------------------------------------------------------------

    def _repair_later(self, reason: str) -> None:
        if self._repairing is None and self.is_open:
            logger.info("shard_repairing", extra={"shard": self._number, "reason": reason})
            self._repairing = self._begin(self._repair())
            self._repairing.add_done_callback(self._repaired)

    def _repaired(self, task: "asyncio.Task[None]") -> None:
        if self._repairing is task:
            self._repairing = None

    async def _repair(self) -> None:
        """Send again, in order, what is not carried out; give it up after a while, and go on."""
        options, reader = self._owner.options, self._reader
        since = self._loop.time()
        while True:
            await asyncio.gather(*self.sends, return_exceptions=True)
            before, life = next(iter(self._sent), None), reader.life
            failure: StoreError | None = None
            try:
                await self._send_again(options.patience_seconds)
            except (LogLost, TimeoutError) as error:
                failure = unreachable(str(error) or "no answer in time")
            except StoreError as error:
                failure = error
            if failure is None and not self._sent:
                break
            goes_on = reader.can_apply and reader.life == life
            if failure is None and goes_on and before in self._sent:
                # It was carried out after all before it, and does not count: nor will another copy.
                self._give_up(unreachable("frames of this node count no more"))
            elif failure is not None and self._loop.time() - since > options.patience_seconds:
                # What is there ends by itself, unless what comes before it cannot be read.
                with suppress(TimeoutError):
                    async with asyncio.timeout(options.patience_seconds):
                        await self._known_ended()
                self._give_up(failure)
            await asyncio.sleep(options.retry_seconds)
        self._repairing = None
        self.clear_refusal()
        self.pump()

    async def _send_again(self, seconds: float) -> None:
        for frame in list(self._sent.values()):
            if self.is_under_way(frame) and not frame.copies:
                sequence = await self._owner.log.append(self._number, frame.data)
                self._reader.found(sequence, frame)
        async with asyncio.timeout(seconds):
            await self._known_ended()

    async def _known_ended(self) -> None:
        while any(frame.copies for frame in self._sent.values()):
            await self._reader.stirring()

    def _give_up(self, error: StoreError) -> None:
        """End what is under way, though it may come yet; then see whether the engine answers."""
        self._end(list(self._sent.values()), error)
        self.refuse(error)
        # Of an epoch of its own: what comes late is of one that is over.
        last = self._session
        since = max(self._reader.applied, self._reader.known)
        self._session = Session(last.writer, last.epoch + 1, 0, since)
        self._make_frame([], ())

    # Refusing --------------------------------------------------------------------------------

    def refuse(self, error: StoreError) -> None:
        """End what waits, and take no writes."""
        self.refusal = error
        queue = list(self._queue)
        self._queue.clear()
        self._queued_bytes = 0
        _settle(self._take_waiters(), error)
        if not self.is_open:
            self._end(list(self._sent.values()), error)
        self._refused(queue, error)
        self._owner.health_changed()

    def end_known(self, error: StoreError) -> None:
        """End what is known to be in the log: the view does not carry it out."""
        self._end([frame for frame in self._sent.values() if frame.copies], error)

    def end_sent(self, error: StoreError) -> None:
        """End what was sent, as nobody knows whether it is carried out; what was not waits on."""
        sent = list(self._sent.values())
        for frame in sent:
            self._waiters += frame.waiters
            frame.waiters = ()
        self._end(sent, error)

    def clear_refusal(self) -> None:
        """Take writes again, where the view is well."""
        if self.refusal is not None and self._reader.failed is None:
            self.refusal = None
            self._owner.health_changed()

    def _end(self, frames: Sequence[Sent], error: StoreError) -> None:
        for frame in frames:
            del self._sent[frame.number]
        for frame in frames:
            _settle(frame.waiters, error)
            self._refused(frame.operations, error)

    def _refused(self, operations: Sequence[SharedOperation], error: StoreError) -> None:
        self._forget(operations)
        if operations:
            self._owner.refused(operations, error)

    def _forget(self, operations: Sequence[SharedOperation]) -> None:
        self.pending_bytes -= sum(map(written_bytes, operations))

    def _take_waiters(self) -> Sequence[Waiter]:
        waiters, self._waiters = self._waiters, []
        return waiters


def _settle(waiters: Sequence[Waiter], error: StoreError | None = None) -> None:
    for waiter in waiters:
        if waiter.done():
            continue
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(error)
