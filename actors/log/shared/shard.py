"""One shard as a node uses it: what it writes there, and its view of what all have written.

Writes wait in a queue, travel in frames (`writing`), and are complete when the view has carried
their frame out at its place in the log (`following`). Here a view is opened, restored and closed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeVar

from rillnode.actors.log import Checkpoint, StoreHealth
from rillnode.actors.log.completion import closed_error
from rillnode.actors.log.shared.following import Following, behind_error, check_same, lost_frames
from rillnode.actors.log.shared.frames import SharedOperation
from rillnode.actors.log.shared.owner import Owner, SharedOptions as SharedOptions, View as View
from rillnode.actors.log.shared.port import LogLost, Span, unreachable
from rillnode.actors.log.shared.writing import Writing
from rillnode.codecs.errors import StoreError
from rillnode.codecs.events import event_logger

logger = event_logger("rillnode.actors.log")

REOPEN_SECONDS: Final = 1.0
"""Pause before a view that could not be opened is opened again."""

_LASTING: Final = ("store.foreign", "store.lost", "store.newer")
"""What ends only when the node is started anew. All else, at servers or disks, may be mended while
it runs, whatever those who have asked were told of trying again."""

T = TypeVar("T")


class Shard:
    """A shard's frames and view. All calls on the loop, but for those of the view's threads.

    Attributes:
        number: which it is.
        follows: its view, and how far that is.
        writes: what this node writes there.
        history: the last sequence that was in the log when the view was first opened.
        news_after: since it is open, the view has told of what came behind this sequence.
        last_used: when it was asked for something.
    """

    def __init__(self, number: int, owner: Owner) -> None:
        self.number = number
        self.history = self.news_after = -1
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self.last_used = self._loop.time()
        self._tasks: set[asyncio.Task[None]] = set()
        self.follows = Following(number, owner, self._begin, self._leave_soon, self._stop)
        self.writes = Writing(number, owner, self.follows, self._begin, self._leave_soon)
        self.follows.writing = self.writes
        self._is_closed = False
        # Why it was not opened, as was logged last.
        self._told = ""
        # Held by who opens the view, or closes it.
        self._door = asyncio.Lock()
        self._opening: asyncio.Task[None] | None = None
        # One for all who have asked in vain.
        self._again: asyncio.TimerHandle | None = None

    @property
    def view(self) -> View | None:
        """What reads are answered from; None: it is not open."""
        return self.follows.view

    @property
    def refusal(self) -> StoreError | None:
        """Why no writes are taken; None: they are, or wait until it is open."""
        return self.writes.refusal

    @property
    def is_ready(self) -> bool:
        """Whether the view is open, and has all that was in the log when it was opened."""
        return self.writes.is_open

    # What it is asked ------------------------------------------------------------------------

    async def ready(self) -> None:
        """Wait until reads can be answered.

        Raises:
            StoreError: the view cannot be opened now.
        """
        self.last_used = self._loop.time()
        if not self.is_ready:
            await asyncio.shield(self.ensure())

    async def fresh(self) -> None:
        """Wait until the view has all that was confirmed anywhere before this was called.

        Raises:
            StoreError: the engine does not answer.
        """
        await self.ready()
        await self.writes.fresh()

    def submit(self, operation: SharedOperation) -> None:
        """Queue a write."""
        if self.refusal is not None:
            self._owner.refused((operation,), self.refusal)
            return
        self.last_used = self._loop.time()
        self.writes.submit(operation)
        if not self.is_ready:
            self.ensure()

    def checkpoint(self, operation: Checkpoint) -> None:
        """Copy the view as it is behind the frames that it was given.

        Raises:
            StoreError: it is not open.
        """
        if self.view is None:
            raise self.refusal or closed_error()
        self.view.checkpoint(operation)

    # Opening ---------------------------------------------------------------------------------

    def ensure(self) -> "asyncio.Task[None]":
        """Open the view, if it is not open; the task ends, or fails, as this attempt does."""
        if self._opening is None:
            self._opening = self._loop.create_task(self._open())
            # Whoever wants to know asks it; the others are told by what they wait for.
            self._opening.add_done_callback(_look_at)
        return self._opening

    async def _open(self) -> None:
        try:
            async with self._door:
                await self._open_view()
        except Exception as reason:
            error = _failure(reason)
            if error.code != self._told:  # each who needs it tries again
                logger.error("shard_not_opened", extra={"shard": self.number, "code": error.code})
                self._told = error.code
            await self._put_aside(error)
            self._opening = None
            self.writes.refuse(error)
            self._open_later(error)
            raise error from None
        self._told = ""
        self.writes.is_open = True
        self.writes.clear_refusal()
        self._owner.opened(self.number)
        self.writes.pump()

    def _open_later(self, error: StoreError) -> None:
        if self._again is None and (error.retryable or error.code not in _LASTING):
            self._again = self._loop.call_later(REOPEN_SECONDS, self._open_again)

    def _open_again(self) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None
        if not self._is_closed:
            self.ensure()

    async def _open_view(self) -> None:
        owner, follows = self._owner, self.follows
        await self._drop_view()
        await _blocking(partial(owner.check_loss, self.number))
        span = await self._span()
        try:
            await self._show_view()
        except StoreError as reason:
            if reason.code != "store.unreadable":
                raise
            # Nothing of a view is synced: a power cut may leave files that do not fit together.
            logger.error("shard_not_opened", extra={"shard": self.number, "code": reason.code})
            await _blocking(partial(owner.discard, self.number, reason.code))
            await self._show_view()
        # Before a snapshot takes the view's place, and nobody could see it any more.
        await self._check_log(span)
        late = span.last - follows.handed > owner.options.late_frames
        while True:
            while late or span.first > follows.handed + 1:
                await self._restore(span.first)
                late = False
                span = await self._span()
                await self._check_log(span)
            error = await self._catch_up(span)
            if error is None:
                return
            # Other nodes may have made newer snapshots, and dropped what this one was to read.
            span = await self._span()
            if error.code != "store.trimmed" or span.first <= follows.handed + 1:
                raise error

    async def _catch_up(self, span: Span) -> StoreError | None:
        """Have the view carry out all that is in the log; returns what it has failed at."""
        log, follows = self._owner.log, self.follows
        follows.known = max(span.last, follows.known)
        if self.history < 0:
            self.history = follows.known
        before = follows.handed
        self.news_after = max(self.history, before)
        # An empty frame: when it is carried out, all that was confirmed before is here.
        frame = self.writes.begin_session(max(span.last, before))
        sequence = await self._patiently(lambda: log.append(self.number, frame.data))
        if sequence <= before:
            raise lost_frames(self.number, before)
        follows.found(sequence, frame)
        # What has failed is under way no more, and yet not carried out.
        while self.writes.under_way or follows.applied < sequence:
            # It may have failed before this waits.
            if follows.failed is not None:
                return follows.failed
            await follows.stirring()
        return None

    async def _span(self) -> Span:
        return await self._patiently(lambda: self._owner.log.span(self.number))

    async def _check_log(self, span: Span) -> None:
        """See that the log has the last frame of the view, unless that was trimmed.

        Raises:
            StoreError: `store.lost`.
        """
        view, options = self.view, self._owner.options
        assert view is not None
        sequence, checksum = view.progress.sequence, view.progress.checksum
        deadline = self._loop.time() + options.patience_seconds
        while span.first <= sequence <= span.last:
            found = await self._patiently(
                lambda: self._owner.log.read(self.number, sequence - 1, 1)
            )
            if found:
                check_same(self.number, found[0], sequence, checksum)
            # Else who has answered is behind; or somebody has taken away the last frame of all.
            if found or self._loop.time() > deadline:
                return
            await asyncio.sleep(options.retry_seconds)

    async def _show_view(self) -> None:
        view = self._owner.make_view(self.number, self.follows.completed, self._on_health)
        try:
            await _blocking(view.open)
        except BaseException:
            await _blocking(view.close)
            raise
        self.follows.begin(view)

    async def _restore(self, first: int) -> None:
        """Take a snapshot, where there is one: it is less to read, or the log has no more the rest.

        Raises:
            StoreError: `store.trimmed`, there must be one and is none.
        """
        after, late = self.follows.handed, self._owner.options.late_frames
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
                f"it: this node has it up to {after}; start a node that has more of it, which "
                "makes one, or restore the log's servers from a backup",
            )
        await self._show_view()

    # Closing ---------------------------------------------------------------------------------

    async def _drop_view(self) -> None:
        view, self.follows.view = self.follows.view, None
        if view is not None:
            await _blocking(view.close)

    async def _put_aside(self, error: StoreError) -> None:
        """Close the view, and do with it what its error says."""
        await self._drop_view()
        if error.code == "store.differs":
            await _blocking(partial(self._owner.discard, self.number, error.code))
        elif error.code == "store.lost":
            await _blocking(partial(self._owner.note_loss, self.number, error))

    async def rest(self) -> None:
        """Close the view until somebody needs it again."""
        self.writes.is_open, self._opening = False, None
        async with self._door:
            await self._drop_view()

    async def close(self, seconds: float = 0.0) -> None:
        """Wait a while for what is under way, refuse what is left, and close the view."""
        deadline, writing = self._loop.time() + seconds, self.writes
        while not writing.is_idle and self._loop.time() < deadline and not writing.is_repairing:
            await asyncio.sleep(0.01)
        self._is_closed, writing.is_open = True, False
        tasks = {*self._tasks, *writing.sends}
        if self._opening is not None:
            tasks.add(self._opening)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # First, as it ends what it was given.
        await self._drop_view()
        writing.refuse(closed_error())

    # The view fails --------------------------------------------------------------------------

    def _stop(self, error: StoreError) -> None:
        """Carry out nothing more, and answer what is under way; it may be in the log."""
        self.follows.fail(error)
        self.writes.end_known(error)
        self.writes.refuse(error)

    def _leave_soon(self, error: Exception) -> None:
        self._begin(self._leave(_failure(error)))

    async def _leave(self, error: StoreError) -> None:
        """Close the view, as it cannot go on with the log as that is."""
        if self._is_closed:
            return
        if not self.is_ready:
            # It is being opened: that fails with this.
            self.follows.fail(error)
            return
        self.writes.is_open, self._opening = False, None
        async with self._door:
            await self._put_aside(error)
        if error.code == "store.trimmed":
            # A snapshot may reach what is kept: whoever can wait for that does.
            self.follows.fail(error)
            self.writes.end_sent(error)
            self._open_again()
            return
        self._stop(error)
        self._open_later(error)

    def _on_health(self, health: StoreHealth) -> None:
        """The view's writer tells that it has failed, or takes frames again."""
        if health.writable:
            self.follows.on_loop(self._resume)

    def _resume(self) -> None:
        follows = self.follows
        view, failed = follows.view, follows.failed
        if view is None or failed is None or not failed.retryable:
            return
        shown = follows.applied
        follows.begin(view)
        if follows.applied < shown:
            # Its disk has not kept all that readers were shown: they wait until it is here again.
            self._leave_soon(behind_error())
            return
        self.writes.clear_refusal()
        follows.advance()

    # Waiting ---------------------------------------------------------------------------------

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
        if not task.cancelled() and (error := task.exception()) is not None:
            self._begin(self._leave(_failure(error)))


def _failure(error: BaseException) -> StoreError:
    """What is told of an error that ends the use of a view."""
    if isinstance(error, StoreError):
        return error
    logger.critical("shard_failed", exc_info=error)
    return StoreError("store.failed", f"the node failed at a shard of the log ({error!r})")


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
