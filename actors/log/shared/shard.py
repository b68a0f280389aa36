"""One shard as a node uses it: what it writes there, and its view of what all have written.

Writes wait in a queue, travel in frames, and are complete when the view has carried their frame out
at its place in the log. A frame is known to be there when the engine says so, or when it comes back
in what is read of the log; where neither happens it is sent again, and all but one are void.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from rillnode.actors.log import (
    Complete,
    OnHealth,
    Operation,
    ReadOperation,
    StoreHealth,
    written_bytes,
)
from rillnode.actors.log.completion import closed_error
from rillnode.actors.log.rocks.checkpoint import Checkpoint
from rillnode.actors.log.shared.applying import ApplyFrame, Progress
from rillnode.actors.log.shared.frames import (
    HEADER_BYTES,
    OPERATION_BYTES,
    WRITER_BYTES,
    Contents,
    FrameError,
    Session,
    SharedOperation,
    checksum_of,
    decode_frame,
    decode_session,
    encode_frame,
)
from rillnode.actors.log.shared.port import Frame, LogLost, SharedLog, unreachable
from rillnode.codecs.errors import StoreError

logger = logging.getLogger("rillnode.actors.log")

APPLYING_BYTES_MAX: Final = 16_777_216
APPLYING_FRAMES_MAX: Final = 256
"""What may wait to be carried out on the view: while it is that much, no more is read."""

REOPEN_SECONDS: Final = 1.0
"""Pause before a view that could not be opened is opened again."""

T = TypeVar("T")

CHECK_FRAMES: Final = 1_024
"""Views are compared at each so many frames."""

CHECKS_KEPT: Final = 8
"""Digests that are kept to be compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedOptions:
    """How a store uses its log.

    Attributes:
        shards: how many are made, where there are none yet.
        frame_bytes_max: writes that make one frame; at most what the engine takes.
        frame_bytes_min: writes that are worth a frame while others of their shard are under way.
        frames_max: frames of a shard that are under way at one time.
        frames_free: frames of all shards that are under way while fewer writes make one as well.
        read_bytes_max: frames that are read at one time.
        pending_bytes_max: writes are refused while so much waits.
        patience_seconds: writes wait so long for the engine before they are refused: longer than
            an election of its leader takes.
        retry_seconds: pause before something is tried again.
        idle_seconds: a view that nobody has used for so long is closed.
        late_frames: a view that lacks so many takes a snapshot, where there is a newer one.
        snapshot_bytes: frames behind the newest snapshot, by which another one is made.
        snapshot_seconds: a node waits up to so long before it makes one, so that one of them does.
    """

    shards: int = 16
    frame_bytes_max: int = 524_288
    frame_bytes_min: int = 16_384
    frames_max: int = 4
    frames_free: int = 8
    read_bytes_max: int = 4_194_304
    pending_bytes_max: int = 268_435_456
    patience_seconds: float = 15.0
    retry_seconds: float = 0.25
    idle_seconds: float = 600.0
    late_frames: int = 4_096
    snapshot_bytes: int = 268_435_456
    snapshot_seconds: float = 10.0


class View(Protocol):
    """What the frames of a shard are carried out on."""

    @property
    def progress(self) -> Progress:
        """How far it was when it was opened last."""
        ...

    @property
    def health(self) -> StoreHealth:
        """Whether it carries frames out."""
        ...

    def open(self) -> None:
        """Open or create it. Blocks. Raises StoreError."""
        ...

    def close(self) -> None:
        """Carry out what waits, and close. Blocks."""
        ...

    def apply(self, frame: ApplyFrame) -> None:
        """Queue a frame; completed in order, with an error where the view has failed."""
        ...

    def checkpoint(self, operation: Checkpoint) -> None:
        """Queue a copy of the view as it is between two frames."""
        ...

    def read(self, operation: ReadOperation) -> bool:
        """Answer at once (True), or later through `complete`."""
        ...


MakeView = Callable[[int, Complete, OnHealth], View]
"""Makes the view of a shard, which is not open yet."""


class Owner(Protocol):
    """The store that a shard is of."""

    @property
    def log(self) -> SharedLog:
        """Where frames are kept."""
        ...

    @property
    def options(self) -> SharedOptions:
        """How it is used."""
        ...

    @property
    def under_way(self) -> int:
        """Frames of all shards that are not carried out yet."""
        ...

    def entropy(self, count: int, /) -> bytes:
        """Random bytes."""
        ...

    def completed(self, shard: int, operations: Sequence[SharedOperation], sequence: int) -> None:
        """Operations of this node were carried out; each once."""
        ...

    def refused(self, operations: Sequence[SharedOperation], error: StoreError) -> None:
        """Operations of this node end so, though what is under way may come yet."""
        ...

    def landed(self, shard: int, frame: ApplyFrame, *, is_own: bool) -> None:
        """A frame that counts was carried out on the view."""
        ...

    def answered(self, shard: int, operations: Sequence[Operation]) -> None:
        """Reads, or checkpoints, of a view are complete; called from any thread."""
        ...

    def opened(self, number: int, /) -> None:
        """The view of a shard has all that was in the log when it was opened."""
        ...

    def health_changed(self) -> None:
        """Whether some shard takes writes."""
        ...

    async def restore(self, shard: int, after: int, /) -> bool:
        """Put the newest snapshot of a shard, past a sequence, in the place of its closed view.

        Returns whether there was one. Raises LogLost, StoreError.
        """
        ...

    def discard(self, shard: int, /) -> None:
        """Put a view aside, which is not open, so that another one is made."""
        ...

    def make_view(self, shard: int, complete: Complete, on_health: OnHealth, /) -> View:
        """The view of a shard, not open yet."""
        ...


class _Sent:
    """A frame of this node that is not carried out yet."""

    __slots__ = ("copies", "data", "number", "operations", "places", "session", "waiters")

    def __init__(
        self,
        session: Session,
        operations: Sequence[SharedOperation],
        data: bytes,
        waiters: Sequence["asyncio.Future[None]"],
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


class Shard:
    """A shard's queue, frames and view. All calls on the loop, but for those of the view's threads.

    Attributes:
        number: which it is.
        view: what reads are answered from; None: it is not open.
        applied: sequence of the last frame that was carried out.
        known: the last sequence that is known to be in the log.
        history: the last one that was there when the view was first opened.
        refusal: why no writes are taken; None: they are, or wait until it is open.
        last_used: when it was asked for something.
        pending_bytes: of writes that wait.
        unsaved_bytes: of the frames that were carried out since a snapshot was made, here or, as
            far as this node has seen it, elsewhere.
    """

    def __init__(self, number: int, owner: Owner) -> None:
        self.number = number
        self.view: View | None = None
        self.applied = self.known = 0
        self.history = -1
        self.refusal: StoreError | None = None
        self.pending_bytes = self.unsaved_bytes = 0
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self.last_used = self._loop.time()
        self._tasks: set[asyncio.Task[None]] = set()
        self._queue: deque[SharedOperation] = deque()
        self._queued_bytes = 0
        self._waiters: list[asyncio.Future[None]] = []
        self._sent: dict[int, _Sent] = {}
        self._sends: set[asyncio.Task[None]] = set()
        self._session = Session(b"\0" * WRITER_BYTES, 0, 0)
        self._is_pumping = self._is_ready = self._is_closed = False
        # Held by who opens the view, or closes it.
        self._door = asyncio.Lock()
        self._opening: asyncio.Task[None] | None = None
        self._repairing: asyncio.Task[None] | None = None
        self._fetching: asyncio.Task[None] | None = None
        # Frames that are known and not given to the view yet, by their sequences.
        self._ahead: dict[int, _Sent] = {}
        self._handed = 0
        # Counts how often it was begun with a view: what was read before that is over.
        self._life = 0
        self._applying: deque[tuple[ApplyFrame, int]] = deque()
        self._applying_bytes = 0
        self._room = asyncio.Event()
        self._stirred = asyncio.Event()
        self._view_failed: StoreError | None = None
        # By sequence, what the view was there; and what is to be told of it with the next frame.
        self._checks: dict[int, int] = {}
        self._differed: set[int] = set()
        self._check: tuple[int, int] = (0, 0)

    # Opening and closing ---------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether the view is open, and has all that was in the log when it was opened."""
        return self._is_ready

    @property
    def handed(self) -> int:
        """Sequence of the last frame that the view was given: what it is given next comes after."""
        return self._handed

    @property
    def under_way(self) -> int:
        """Frames of this node that are not carried out yet."""
        return len(self._sent)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way."""
        return not (self._queue or self._sent or self._waiters or self._repairing)

    def ensure(self) -> "asyncio.Task[None]":
        """Open the view, if it is not open; the task ends, or fails, as this attempt does."""
        if self._opening is None:
            self._opening = self._loop.create_task(self._open())
            # Whoever wants to know asks it; the others are told by what they wait for.
            self._opening.add_done_callback(_look_at)
        return self._opening

    async def ready(self) -> None:
        """Wait until reads can be answered.

        Raises:
            StoreError: the view cannot be opened now.
        """
        self.last_used = self._loop.time()
        if not self._is_ready:
            await asyncio.shield(self.ensure())

    async def _open(self) -> None:
        try:
            async with self._door:
                await self._open_view()
        except Exception as reason:
            error = _failure(reason)
            logger.error("shard_not_opened", extra={"shard": self.number, "code": error.code})
            await self._drop_view()
            self._opening = None
            self._refuse(error)
            if error.retryable:
                self._loop.call_later(REOPEN_SECONDS, self._open_again)
            raise error from None
        self._is_ready = True
        self._clear_refusal()
        self._owner.opened(self.number)
        self._pump()

    def _open_again(self) -> None:
        if not self._is_closed:
            self.ensure()

    async def _open_view(self) -> None:
        owner, log = self._owner, self._owner.log
        await self._drop_view()
        span = await self._patiently(lambda: log.span(self.number))
        await self._show_view()
        late = span.last - self._handed > owner.options.late_frames
        if late or span.first > self._handed + 1:
            await self._restore(span.first)
            span = await self._patiently(lambda: log.span(self.number))
        await self._check_log()
        self.known = max(span.last, self.known)
        if self.history < 0:
            self.history = self.known
        self._session = Session(owner.entropy(WRITER_BYTES), 1, 0, max(span.last, self._handed))
        before = self._handed
        # An empty frame: when it is carried out, all that was confirmed before is here.
        frame = self._make_frame([], self._take_waiters())
        sequence = await self._patiently(lambda: log.append(self.number, frame.data))
        if sequence <= before:
            raise _lost(self.number, before)
        self._found(sequence, frame)
        self._advance()
        while self._sent:
            # It may have failed before this waits.
            if self._view_failed is not None:
                raise self._view_failed
            await self._stirring()

    async def _check_log(self) -> None:
        """See that the log has the last frame of the view where that says.

        Raises:
            StoreError: `store.lost`.
        """
        view, log = self.view, self._owner.log
        assert view is not None
        sequence, checksum = view.progress.sequence, view.progress.checksum
        if not sequence:
            return
        found = await self._patiently(lambda: log.read(self.number, sequence - 1, 1))
        # Where there is none, it was trimmed, or who has answered is behind.
        if found and found[0].sequence == sequence and checksum_of(found[0].data) != checksum:
            raise _lost(self.number, sequence)

    async def _show_view(self) -> None:
        view = self._owner.make_view(self.number, self._completed, self._on_health)
        try:
            await _blocking(view.open)
        except BaseException:
            await _blocking(view.close)
            raise
        self.view, self._view_failed = view, None
        self._begin_at(view.progress)

    def _begin_at(self, progress: Progress) -> None:
        # A frame that is begun is given to it again, and it goes on where it was.
        self._handed = self.applied = progress.sequence - (not progress.is_whole)
        self._applying.clear()
        self._applying_bytes = 0
        self._ahead.clear()
        self._checks.clear()
        self._check = (0, 0)
        for frame in self._sent.values():
            frame.copies = 0
        self._life += 1
        self._room.set()

    async def _restore(self, first: int) -> None:
        """Take a snapshot, where there is one: it is less to read, or the log has no more the rest.

        Raises:
            StoreError: `store.trimmed`, there must be one and is none.
        """
        after, late = self._handed, self._owner.options.late_frames
        must = first > after + 1
        await self._drop_view()
        newest = max(after + 1, first - 1) if must else after + late
        taken = False
        try:
            taken = await self._patiently(lambda: self._owner.restore(self.number, newest))
        except StoreError as error:
            if must:
                raise
            # It is but more to read.
            extra = {"shard": self.number, "code": error.code}
            logger.warning("shard_not_restored", extra=extra)
        if must and not taken:
            raise StoreError(
                "store.trimmed",
                f"the log of shard {self.number} begins at frame {first}, and no snapshot reaches "
                f"it: this node has it up to {after}; restore the log's servers from a backup",
            )
        await self._show_view()

    async def _drop_view(self) -> None:
        view, self.view = self.view, None
        if view is not None:
            await _blocking(view.close)

    async def rest(self) -> None:
        """Close the view until somebody needs it again."""
        self._is_ready, self._opening = False, None
        async with self._door:
            await self._drop_view()

    async def close(self, seconds: float = 0.0) -> None:
        """Wait a while for what is under way, refuse what is left, and close the view."""
        deadline = self._loop.time() + seconds
        while not self.is_idle and self._loop.time() < deadline and self._repairing is None:
            await asyncio.sleep(0.01)
        self._is_closed, self._is_ready = True, False
        tasks = {*self._tasks, *self._sends}
        if self._opening is not None:
            tasks.add(self._opening)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # First, as it ends what it was given.
        await self._drop_view()
        self._refuse(closed_error())

    # Writes ----------------------------------------------------------------------------------

    def submit(self, operation: SharedOperation) -> None:
        """Queue a write."""
        if self.refusal is not None:
            self._owner.refused((operation,), self.refusal)
            return
        self.last_used = self._loop.time()
        self._queue.append(operation)
        size = written_bytes(operation)
        self.pending_bytes += size
        self._queued_bytes += size
        if self._is_ready:
            self._pump_soon()
        else:
            self.ensure()

    async def fresh(self) -> None:
        """Wait until the view has all that was confirmed anywhere before this was called.

        Raises:
            StoreError: the engine does not answer.
        """
        await self.ready()
        if self.refusal is not None:
            raise self.refusal
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append(waiter)
        self._pump_soon()
        await waiter

    def checkpoint(self, operation: Checkpoint) -> None:
        """Copy the view as it is behind the frames that it was given.

        Raises:
            StoreError: it is not open.
        """
        if self.view is None:
            raise self.refusal or closed_error()
        self.view.checkpoint(operation)

    def _pump_soon(self) -> None:
        # What is submitted in one turn of the loop goes together.
        if not self._is_pumping:
            self._is_pumping = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._is_pumping = False
        if not self._is_ready or self._repairing is not None:
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

    def _next_frames(self) -> Sequence[_Sent]:
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
        self, operations: Sequence[SharedOperation], waiters: Sequence["asyncio.Future[None]"]
    ) -> Sequence[_Sent]:
        """One frame; several where one is too large; without what cannot be written."""
        session = self._session
        try:
            frame = self._make_frame(operations, waiters)
        except UnicodeEncodeError:
            code, reason = "store.name", "a name is not valid Unicode text"
        except OverflowError as error:
            code, reason = "store.void", f"it cannot be carried out ({error})"
        else:
            if len(frame.data) <= self._owner.log.frame_bytes_max:
                return (frame,)
            del self._sent[frame.number]
            code = "store.too_large"
            reason = f"{len(frame.data)} bytes are more than the log's servers take"
        self._session = session
        if len(operations) > 1:
            half = len(operations) // 2
            first = self._framed(operations[:half], ())
            return (*first, *self._framed(operations[half:], waiters))
        self._forget(operations)
        self._owner.refused(operations, StoreError(code, reason, retryable=False))
        return self._framed((), waiters) if waiters else ()

    def _take_waiters(self) -> Sequence["asyncio.Future[None]"]:
        waiters, self._waiters = self._waiters, []
        return waiters

    def _make_frame(
        self, operations: Sequence[SharedOperation], waiters: Sequence["asyncio.Future[None]"]
    ) -> _Sent:
        last = self._session
        session = Session(last.writer, last.epoch, last.number + 1, last.since)
        mark, digest = self._check
        data = encode_frame(Contents(session, mark, digest, operations))
        self._check = (0, 0)
        self._session = session
        frame = self._sent[session.number] = _Sent(session, operations, data, waiters)
        return frame

    def _send(self, frame: _Sent) -> None:
        task = self._loop.create_task(self._sending(frame))
        self._sends.add(task)
        task.add_done_callback(self._sends.discard)

    async def _sending(self, frame: _Sent) -> None:
        try:
            sequence = await self._owner.log.append(self.number, frame.data)
        except LogLost as error:
            self._repair_later(str(error))
        except StoreError as error:
            self._repair_later(error.text)
        except Exception as error:
            self._begin(self._leave(_failure(error)))
        else:
            self._found(sequence, frame)
            self._advance()

    # What is missing -------------------------------------------------------------------------

    def _repair_later(self, reason: str) -> None:
        if self._repairing is None and self._is_ready and not self._is_closed:
            logger.info("shard_repairing", extra={"shard": self.number, "reason": reason})
            self._repairing = self._begin(self._repair())

    async def _repair(self) -> None:
        """Send again, in order, what is not carried out; give it up after a while, and go on."""
        options = self._owner.options
        since = self._loop.time()
        while True:
            await asyncio.gather(*self._sends, return_exceptions=True)
            before, life = next(iter(self._sent), None), self._life
            failure: StoreError | None = None
            try:
                await self._send_again(options.patience_seconds)
            except (LogLost, TimeoutError) as error:
                failure = unreachable(str(error) or "no answer in time")
            except StoreError as error:
                failure = error
            if failure is None and not self._sent:
                break
            if failure is None and self._can_apply and self._life == life and before in self._sent:
                # It was carried out after all before it, and does not count: nor will another copy.
                self._give_up(unreachable("frames of this node count no more"))
            elif failure is not None and self._loop.time() - since > options.patience_seconds:
                while any(frame.copies for frame in self._sent.values()):
                    await self._stirring()  # they are there, and end by themselves
                self._give_up(failure)
            await asyncio.sleep(options.retry_seconds)
        self._repairing = None
        self._clear_refusal()
        self._pump()

    async def _send_again(self, seconds: float) -> None:
        for frame in list(self._sent.values()):
            if self._sent.get(frame.number) is frame and not frame.copies:
                sequence = await self._owner.log.append(self.number, frame.data)
                self._found(sequence, frame)
                self._advance()
        async with asyncio.timeout(seconds):
            while any(frame.copies for frame in self._sent.values()):
                await self._stirring()

    def _give_up(self, error: StoreError) -> None:
        """End what is under way, though it may come yet; then see whether the engine answers."""
        abandoned, self._sent = list(self._sent.values()), {}
        for frame in abandoned:
            self._settle_waiters(frame, error)
            self._forget(frame.operations)
            self._owner.refused(frame.operations, error)
        self._refuse(error)
        # Of an epoch of its own: what comes late is of one that is over.
        last, since = self._session, max(self.applied, self.known)
        self._session = Session(last.writer, last.epoch + 1, 0, since)
        self._make_frame([], ())

    def _refuse(self, error: StoreError) -> None:
        """End what waits, and take no writes."""
        self.refusal = error
        waiting = list(self._queue)
        self._queue.clear()
        self._queued_bytes = 0
        for waiter in self._take_waiters():
            _fail(waiter, error)
        if self._is_closed or not self._is_ready:
            for frame in self._sent.values():
                waiting += frame.operations
                self._settle_waiters(frame, error)
            self._sent.clear()
        self._forget(waiting)
        if waiting:
            self._owner.refused(waiting, error)
        self._owner.health_changed()

    def _clear_refusal(self) -> None:
        if self.refusal is not None and self._view_failed is None and not self._is_closed:
            self.refusal = None
            self._owner.health_changed()

    def _settle_waiters(self, frame: _Sent, error: StoreError | None = None) -> None:
        for waiter in frame.waiters:
            if error is not None:
                _fail(waiter, error)
            elif not waiter.done():
                waiter.set_result(None)

    def _forget(self, operations: Sequence[SharedOperation]) -> None:
        self.pending_bytes -= sum(map(written_bytes, operations))

    # Reading the log -------------------------------------------------------------------------

    def heard(self, sequence: int) -> None:
        """The log has reached a sequence."""
        self.known = max(self.known, sequence)
        # It may be a frame of this node, which is about to be told of.
        if self.view is not None and not self._sends:
            self._advance()

    def _found(self, sequence: int, frame: _Sent) -> None:
        """An own frame stands there."""
        self.known = max(self.known, sequence)
        if sequence > self._handed:
            if sequence not in self._ahead:
                self._ahead[sequence] = frame
                frame.copies += 1
        elif self._sent.get(frame.number) is frame and sequence not in frame.places:
            # The view has another frame there.
            self._begin(self._leave(_lost(self.number, sequence)))

    def _advance(self) -> None:
        """Give to the view what comes next, and read what is not known."""
        while self._has_room and (frame := self._ahead.pop(self._handed + 1, None)):
            self._hand(self._handed + 1, frame.data, frame)
        if self._handed < self.known and self._fetching is None and self._can_apply:
            self._fetching = self._begin(self._fetch())

    @property
    def _can_apply(self) -> bool:
        return self.view is not None and self._view_failed is None

    @property
    def _has_room(self) -> bool:
        return (
            self._can_apply
            and self._applying_bytes < APPLYING_BYTES_MAX
            and len(self._applying) < APPLYING_FRAMES_MAX
        )

    async def _fetch(self) -> None:
        """Read what others have stored, and what of this node is not known to be there."""
        options, log = self._owner.options, self._owner.log
        pause = options.retry_seconds / 8
        try:
            while self._handed < self.known and self._can_apply:
                life = self._life
                try:
                    found = await log.read(self.number, self._handed, options.read_bytes_max)
                except LogLost:
                    await asyncio.sleep(options.retry_seconds)
                    continue
                if not found:
                    # Who has answered is behind; or nothing is there, and who has told so erred.
                    if pause > options.patience_seconds:
                        self.known = self._handed
                        break
                    await asyncio.sleep(pause)
                    pause *= 2
                    continue
                pause = options.retry_seconds / 8
                await self._take(found, life)
        except StoreError as error:
            self._begin(self._leave(error))
            return
        finally:
            self._fetching = None
        if self._ahead or self._handed < self.known:
            self._advance()

    async def _take(self, found: Sequence[Frame], life: int) -> None:
        for sequence, data in found:
            if self._life != life:
                return
            if sequence <= self._handed:
                continue
            if sequence != self._handed + 1:
                raise StoreError(
                    "store.trimmed",
                    f"frame {self._handed + 1} of shard {self.number} is not in the log any more",
                )
            while not self._has_room:
                if not self._can_apply:
                    return
                self._room.clear()
                await self._room.wait()
                if self._life != life:
                    return
            self._hand(sequence, data, self._ahead.pop(sequence, None))

    def _own(self, data: bytes) -> _Sent | None:
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

    def _hand(self, sequence: int, data: bytes, frame: _Sent | None) -> None:
        """Give a frame to the view. Raises StoreError: a later version has written it."""
        apply = ApplyFrame(sequence=sequence, checksum=checksum_of(data))
        frame = frame or self._own(data)
        if frame is not None and self._sent.get(frame.number) is frame:
            frame.places.add(sequence)
            apply.token = frame
            apply.contents = Contents(frame.session)
            apply.operations = frame.operations
        else:
            try:
                contents = apply.contents = decode_frame(data)
                apply.operations = contents.operations
            except FrameError as error:
                extra = {"shard": self.number, "sequence": sequence, "reason": str(error)}
                logger.error("frame_damaged", extra=extra)
        self._handed = sequence
        self._applying.append((apply, len(data)))
        self._applying_bytes += len(data)
        assert self.view is not None
        self.view.apply(apply)

    # Carried out -----------------------------------------------------------------------------

    def _completed(self, operations: Sequence[Operation]) -> None:
        """The view's threads tell of frames; reads go to who has asked."""
        frames = [one for one in operations if isinstance(one, ApplyFrame)]
        others = [one for one in operations if not isinstance(one, ApplyFrame)]
        if others:
            self._owner.answered(self.number, others)
        if frames:
            self._on_loop(partial(self._landed, frames))

    def _on_loop(self, call: Callable[[], None]) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            with suppress(RuntimeError):  # the loop is closed, and nobody waits
                self._loop.call_soon_threadsafe(call)
        else:
            call()

    def _landed(self, frames: Sequence[ApplyFrame]) -> None:
        for apply in frames:
            if not self._applying or self._applying[0][0] is not apply:
                continue  # of a view that was closed
            if apply.error is not None:
                self._fail_view(apply.error)
                break
            _, size = self._applying.popleft()
            self._applying_bytes -= size
            self.unsaved_bytes += size
            self._carried_out(apply)
        self._room.set()
        self._stirred.set()
        if self._can_apply:
            self._advance()
            if (self._queue or self._waiters) and not self._is_pumping:
                self._pump()

    def _carried_out(self, apply: ApplyFrame) -> None:
        sequence = self.applied = apply.sequence
        frame: _Sent | None = apply.token
        if frame is not None:
            frame.copies -= 1
            is_under_way = self._sent.get(frame.number) is frame
            if is_under_way and apply.counts:
                del self._sent[frame.number]
                self._forget(frame.operations)
                self._owner.completed(self.number, frame.operations, sequence)
                self._settle_waiters(frame)
            elif is_under_way and not frame.copies:
                # One before it is missing.
                self._repair_later("a frame before it is missing")
        if apply.counts:
            self._owner.landed(self.number, apply, is_own=frame is not None)
        self._compare(apply)

    def _compare(self, apply: ApplyFrame) -> None:
        """Keep what the view is now and then, and see whether others' was the same there."""
        progress, contents = apply.progress, apply.contents
        if progress is not None and progress.sequence % CHECK_FRAMES == 0:
            self._checks[progress.sequence] = progress.digest
            self._check = (progress.sequence, progress.digest)
            if len(self._checks) > CHECKS_KEPT:
                del self._checks[next(iter(self._checks))]
        if contents is not None and contents.mark and apply.token is None:
            mine = self._checks.get(contents.mark)
            if mine is not None and mine != contents.digest:
                self._differs(contents.mark)

    def _differs(self, sequence: int) -> None:
        """Another node has decided differently: one of the two views is wrong, and is made anew."""
        again = sequence in self._differed
        extra = {"shard": self.number, "sequence": sequence, "again": again}
        logger.critical("views_differ", extra=extra)
        if again:
            return  # it was made anew, and is the same: the other one is wrong
        self._differed.add(sequence)
        self._begin(
            self._leave(
                StoreError(
                    "store.differs",
                    f"at frame {sequence} of shard {self.number} another node has another view of "
                    "the log: this node makes its view anew; report what has happened",
                )
            )
        )

    # The view fails --------------------------------------------------------------------------

    def _fail_view(self, error: StoreError) -> None:
        """What was given to the view is not carried out; it is read again when it can be."""
        if self._view_failed is None:
            self._stop(error)

    def _stop(self, error: StoreError) -> None:
        """Carry out nothing more, and answer what is under way; it may be in the log."""
        self._view_failed = error
        self._applying.clear()
        self._applying_bytes = 0
        frames = [frame for frame in self._sent.values() if frame.copies]
        for frame in frames:
            del self._sent[frame.number]
            self._settle_waiters(frame, error)
            self._forget(frame.operations)
            self._owner.refused(frame.operations, error)
        self._refuse(error)
        self._stirred.set()
        self._room.set()

    async def _leave(self, error: StoreError) -> None:
        """Close the view, as it cannot go on with the log as that is."""
        if self._is_closed:
            return
        if not self._is_ready:
            # It is being opened: that fails with this.
            self._view_failed = error
            self._stirred.set()
            return
        self._is_ready, self._opening = False, None
        async with self._door:
            await self._drop_view()
            if error.code == "store.differs":
                await _blocking(partial(self._owner.discard, self.number))
        self._stop(error)
        if error.code in ("store.differs", "store.failed", "store.trimmed"):
            # It is made anew, or a snapshot may reach what is kept.
            self._loop.call_later(REOPEN_SECONDS, self._open_again)

    def _on_health(self, health: StoreHealth) -> None:
        """The view's writer tells that it has failed, or takes frames again."""
        if health.writable:
            self._on_loop(self._resume)

    def _resume(self) -> None:
        view = self.view
        if view is None or self._view_failed is None or not self._view_failed.retryable:
            return
        self._view_failed = None
        self._begin_at(view.progress)
        self._clear_refusal()
        self._advance()

    # Waiting ---------------------------------------------------------------------------------

    async def _stirring(self) -> None:
        """Wait until something was carried out, or has failed."""
        self._stirred.clear()
        await self._stirred.wait()

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask the engine until it answers, for as long as a write would wait.

        Raises:
            StoreError: it does not, or says why not.
        """
        options = self._owner.options
        deadline = self._loop.time() + options.patience_seconds
        while True:
            try:
                return await ask()
            except LogLost as error:
                if self._loop.time() > deadline:
                    raise unreachable(str(error)) from None
            await asyncio.sleep(options.retry_seconds)

    def _begin(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """Work has ended; where it has failed, which it must not, the view is opened anew."""
        self._tasks.discard(task)
        if task is self._repairing:
            self._repairing = None
        if not task.cancelled() and (error := task.exception()) is not None:
            self._begin(self._leave(_failure(error)))


def _failure(error: BaseException) -> StoreError:
    """What is told of an error that ends the use of a view."""
    if isinstance(error, StoreError):
        return error
    logger.critical("shard_failed", exc_info=error)
    return StoreError("store.failed", f"the node failed at a shard of the log ({error!r})")


def _fail(waiter: "asyncio.Future[None]", error: StoreError) -> None:
    if not waiter.done():
        waiter.set_exception(error)


def _look_at(task: "asyncio.Task[None]") -> None:
    """Take note of how a task has ended, so that nobody has to."""
    if not task.cancelled():
        task.exception()


async def _blocking(call: Callable[[], None]) -> None:
    """Call what blocks, off the loop; it is over when this is, also where this is cancelled."""
    calling = asyncio.ensure_future(asyncio.to_thread(call))
    try:
        await asyncio.shield(calling)
    except asyncio.CancelledError:
        await asyncio.wait((calling,))
        raise


def _lost(shard: int, sequence: int) -> StoreError:
    return StoreError(
        "store.lost",
        f"the log of shard {shard} is not what it was: this node has seen frame {sequence}, and "
        "the servers have lost what they confirmed; restore them from a backup, or accept the loss "
        "by deleting this node's directory of the shard",
        retryable=False,
    )
