"""Turns: how actors are given their messages, and what becomes of handlers that wait.

It knows a loop only as something that calls back soon, and time only as it is given, so that it
runs the same under a simulated loop.
"""

from asyncio import CancelledError
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from functools import partial
from types import CoroutineType
from typing import Any, Final

from thespian.actors import (
    Actor,
    ActorExitRequest,
    ActorSystemMessage,
    Thespian_StatusReq,
)

from rillnode.actors.engine.cell import EMPTY, FAILURES, GONE, Cell, Envelope
from rillnode.actors.engine.dead_letters import DeadLetters
from rillnode.actors.engine.faults import FAULTS, fail_at
from rillnode.actors.engine.kinds import TURN_USUAL_SECONDS
from rillnode.actors.engine.lifecycle import FINISH, Finish, Lifecycle, Start
from rillnode.actors.engine.mailboxes import Held, Mailboxes
from rillnode.actors.engine.outside import Reply
from rillnode.actors.engine.supervision import Supervision
from rillnode.actors.engine.thespian_api import status_of
from rillnode.actors.engine.waiting import Continuation, Then, Work
from rillnode.actors.ports import Timing
from rillnode.codecs.errors import ActorError, RillnodeError

PUMP_MESSAGES_MAX: Final = 1_024
"""Messages handled before the loop gets its turn, however fast they are."""

NOTHING: Final[frozenset[type]] = frozenset()

FAILED_TEXT: Final = "The node failed at this request: its log says why"

Failed = Callable[[RillnodeError], object]


class Turns:
    """Gives actors their turns, all on one thread.

    An actor's turn takes its whole mailbox. Actors that have something to do have their turns in
    the order in which they got it. After `PUMP_MESSAGES_MAX` messages or `slice_seconds` the loop
    goes on; what a turn has not come to stays in front of the mailbox, and the actor goes to the
    end of the queue: no actor keeps others waiting longer than that for each actor before them.

    Attributes:
        handled: called with a message that was handled, by the class of those that ask for it.
    """

    def __init__(
        self,
        mailboxes: Mailboxes,
        letters: DeadLetters,
        life: Lifecycle,
        supervision: Supervision,
        timing: Timing,
        slice_seconds: float,
        idle: Callable[[], None],
    ) -> None:
        self._mailboxes = mailboxes
        self._letters = letters
        self._life = life
        self._supervision = supervision
        self._timing = timing
        self._slice_seconds = slice_seconds
        self._idle = idle
        self._finishing: list[Cell] = []
        self.handled: dict[type, Callable[[Any], None]] = {}
        mailboxes.pump = self._pump
        life.starting = self._starting

    def finish_later(self, cell: Cell) -> None:
        """Call a worker's `finish` at the end of this pump, before the loop goes on.

        For what its turns gather and is cheaper done once. Only ever called from such a turn.
        """
        self._finishing.append(cell)

    def _pump(self) -> None:
        mailboxes = self._mailboxes
        try:
            self._run()
            if self._finishing:
                self._finish()
        finally:
            if mailboxes.ready or self._finishing:
                mailboxes.pump_soon()
            else:
                mailboxes.pump_called = False
                self._idle()

    def _finish(self) -> None:
        finishing, self._finishing = self._finishing, []
        for cell in finishing:
            worker: Any = cell.instance
            if worker is None:
                continue
            try:
                if FAULTS:
                    fail_at(cell.kind.actor_class, FINISH, "before")
                worker.finish()
                if FAULTS:
                    fail_at(cell.kind.actor_class, FINISH, "after")
            except FAILURES as error:
                self._supervision.failed(cell, FINISH, None, error)

    def _run(self) -> None:
        mailboxes, take = self._mailboxes, self._take
        ready, full, handled = mailboxes.ready, mailboxes.full, self.handled
        monotonic, usual = self._timing.monotonic, TURN_USUAL_SECONDS
        before = monotonic()
        deadline = before + self._slice_seconds
        quota = PUMP_MESSAGES_MAX
        while ready and quota > 0 and before < deadline:
            cell = ready.popleft()
            batch: Any = cell.mailbox
            held = batch.__class__ is Held
            if held:
                batch = batch.take()
                if not batch:
                    continue
                count, waiting_bytes = len(batch), 0
            else:
                if not batch:
                    continue  # it has exited since it got in the queue
                cell.mailbox = EMPTY
                waiting_bytes, cell.waiting_bytes = cell.waiting_bytes, 0
                count = len(batch)
                if count > quota:
                    cell.mailbox = batch[quota:]
                    del batch[quota:]
                    count = quota
                    ready.append(cell)
            quota -= count
            kind = cell.kind
            instance: Any = cell.instance
            plain = NOTHING if instance is None or FAULTS else kind.plain
            left: list[Envelope] | None = None
            pending = iter(batch)
            begun = before
            for message, sender in pending:
                try:
                    message_class = message.__class__
                    if message_class in plain and sender is None:
                        result = instance.receiveMessage(message, None)
                        if result is not None and (
                            result.__class__ is CoroutineType or _refused(result)
                        ):
                            if self._waits(cell, result, message, None):
                                mailboxes.hold(cell)
                                left = list(pending)
                                mailboxes.put_back(cell, left)
                                break
                        elif message_class in handled:
                            handled[message_class](message)
                    else:
                        take(cell, message, sender)
                        instance, kind = cell.instance, cell.kind
                        plain = NOTHING if instance is None or FAULTS else kind.plain
                        if cell.mailbox is GONE or (not held and cell.mailbox.__class__ is Held):
                            left = list(pending)
                            mailboxes.put_back(cell, left)
                            break
                except _NotNow:
                    left = [(message, sender), *pending]
                    mailboxes.put_back(cell, left)
                    break
                except _NotStarted as unborn:
                    left = [(message, sender), *pending]
                    mailboxes.put_back(cell, left)
                    self._supervision.not_started(cell, unborn.error)
                    break
                except FAILURES as error:
                    left = list(pending)
                    mailboxes.put_back(cell, left)
                    self._failed(cell, message, sender, error)
                    break
                now = monotonic()
                if now - before > kind.slowest_seconds:
                    kind.slowest_seconds = now - before
                before = now
                if now >= deadline:
                    left = list(pending)
                    mailboxes.put_back(cell, left)
                    break
            if left is not None:
                before = monotonic()
                count -= len(left)
            if waiting_bytes and cell.mailbox:  # of those that the turn has not come to
                handled_bytes = sum(mailboxes.size_of(message) for message, _ in batch[:count])
                cell.waiting_bytes += max(0, waiting_bytes - handled_bytes)
            kind = cell.kind  # the first message may have shown which it is
            kind.handled += count
            kind.turns += 1
            spent = before - begun
            kind.turn_seconds += spent
            if spent > usual:
                kind.took_long(spent)
            if cell.active is False:
                cell.active = True
            if full and cell in full:
                mailboxes.relieve(cell)

    # One message -----------------------------------------------------------------------------

    def _take(self, cell: Cell, message: Any, sender: Any) -> None:
        """Give an actor one message of whatever kind.

        Raises:
            _NotStarted: it has no instance, and none could be made.
            _NotNow: it begins to start, or could not and was seen to.
            BaseException: whatever the handler raises.
        """
        if isinstance(sender, Continuation):
            self._complete(cell, message, sender)
            return
        if isinstance(message, ActorSystemMessage) and self._control(cell, message, sender):
            return
        instance = self._instance(cell)
        kind = cell.kind
        if (
            kind.takes is not None
            and message.__class__ not in kind.takes
            and not kind.admits(message)
        ):
            self._letters.bury(cell, message, sender, "undeclared")
            return
        if sender.__class__ is Reply:
            sender.handed_to(cell)
        if FAULTS:
            fail_at(kind.actor_class, message, "before")
        result: Any = instance.receiveMessage(message, sender)
        if result is not None and (result.__class__ is CoroutineType or _refused(result)):
            if self._waits(cell, result, message, sender):
                self._mailboxes.hold(cell)
            return
        if FAULTS:
            self._fail_after(cell, message)
        self._done_with(message)

    def _instance(self, cell: Cell) -> Actor:
        instance = cell.instance
        if instance is not None:
            return instance
        try:
            instance = self._life.instance_of(cell)
        except FAILURES as error:
            raise _NotStarted(error) from error
        if cell.mailbox.__class__ is Held:
            raise _NotNow
        return instance

    def _complete(self, cell: Cell, operation: Any, then: Continuation) -> None:
        if then.instance is None or then.instance is not cell.instance:
            self._mailboxes.too_late(cell, operation, then)
            return
        if then.counts:
            worker: Any = cell.instance
            worker.operations_due -= 1
        try:
            if FAULTS and operation is not None:
                fail_at(cell.kind.actor_class, operation, "before")
            then.run(operation)
        except FAILURES:
            self._mailboxes.too_late(cell, operation, then)
            raise
        if FAULTS and operation is not None:
            fail_at(cell.kind.actor_class, operation, "after")

    def _fail_after(self, cell: Cell, message: Any) -> None:
        """Raise what is planted, now that the message has had its effects and outcome."""
        try:
            fail_at(cell.kind.actor_class, message, "after")
        except FAILURES as error:
            self._done_with(message)
            raise _Afterwards(error) from error

    def _done_with(self, message: Any) -> None:
        handled = self.handled.get(message.__class__)
        if handled is not None:
            handled(message)

    def _failed(self, cell: Cell, message: Any, sender: Any, error: BaseException) -> None:
        if isinstance(error, _Afterwards):
            cell.failed(type(message).__name__, error.error)
            self._supervision.mend(cell, error.error)
            return
        self._supervision.failed(cell, message, sender, error)

    # Handlers that wait ----------------------------------------------------------------------

    def _waits(self, cell: Cell, coroutine: Any, message: Any, sender: Any) -> bool:
        """Run a handler until it waits or ends; whether the actor takes nothing else meanwhile.

        Raises:
            BaseException: what it raises before it waits.
        """
        holds = not cell.kind.interleaves
        work = Work(cell, coroutine, message, sender, self._tell, self._handled, holds)
        return self._first_step(work) and holds

    def begin(self, cell: Cell, coroutine: Coroutine[Any, Any, Any], failed: Failed) -> None:
        """Begin work beside the handlers of an actor; see `Worker.begin`."""
        tell = partial(_tell_beginner, failed)
        self._first_step(Work(cell, coroutine, None, None, tell, self._begun_ended, False))

    def _starting(self, cell: Cell, coroutine: Coroutine[Any, Any, Any]) -> None:
        work = Work(cell, coroutine, None, None, _tell_nobody, self._started_ended, True)
        if self._first_step(work):
            self._mailboxes.hold(cell)

    def _first_step(self, work: Work) -> bool:
        """Run work until it waits (True) or ends; raises what it then leaves in `error`."""
        work.cell.own(work)
        if not work.ended:
            work.step()
        if work.ended:
            error, work.error = work.error, None
            if error is not None:
                raise error
            return False
        work.begun = True
        return True

    def _tell(self, work: Work, error: RillnodeError) -> None:
        self._letters.tell(work.message, work.sender, error)

    def _handled(self, work: Work, error: BaseException | None) -> None:
        cell, message = work.cell, work.message
        if work.dropped:
            self._lingered(work, error)
            return
        if error is None and FAULTS:
            try:
                self._fail_after(cell, message)
            except FAILURES as planted:
                error = planted
        if error is None:
            self._done_with(message)
        if not work.begun:
            work.error = error  # raised where the handler was called
            return
        if work.holds:
            self._mailboxes.release(cell)
        if error is not None:
            self._failed(cell, message, work.sender, error)

    def _started_ended(self, work: Work, error: BaseException | None) -> None:
        cell = work.cell
        if work.dropped:
            self._lingered(work, error)
        elif not work.begun:
            work.error = error
        else:
            self._mailboxes.release(cell)
            if error is not None:
                self._supervision.not_started(cell, error)

    def _begun_ended(self, work: Work, error: BaseException | None) -> None:
        cell = work.cell
        if work.dropped:
            self._lingered(work, error)
        elif error is None:
            pass
        elif isinstance(error, RillnodeError):
            work.tell(error)
        else:
            cell.failed(work.get_name(), error)
            work.tell(ActorError("actor.failed", FAILED_TEXT))
            # Not now: it may have been begun by a handler that goes on.
            mend = Then(work.instance, lambda _: self._supervision.mend(cell, error))
            self._mailboxes.post(cell, None, mend)

    def _lingered(self, work: Work, error: BaseException | None) -> None:
        """Work of an instance that was given up has ended: was it the last that was waited for?"""
        cell = work.cell
        if error is not None and not isinstance(error, CancelledError):
            cell.failed(work.get_name(), error)
        held = cell.mailbox
        if cell.owned is None and isinstance(held, Held) and held.after is not None:
            after, held.after = held.after, None
            self._mailboxes.release(cell)
            after()

    # The system's own messages ---------------------------------------------------------------

    def _control(self, cell: Cell, message: ActorSystemMessage, sender: Any) -> bool:
        """Do what the system itself does about a message; False when that is nothing."""
        match message:
            case ActorExitRequest():
                if sender.__class__ is Reply:
                    sender.handed_to(cell)
                # Workers have `stopped`; who has no instance has nothing to say to its end.
                if cell.instance is not None and not cell.kind.is_worker:
                    try:
                        cell.instance.receiveMessage(message, sender)
                    except FAILURES as error:
                        cell.failed("ActorExitRequest", error)
                self._life.terminate(cell, recursive=message.isRecursive)
            case Start():
                self._instance(cell)
            case Finish():
                worker: Any = cell.instance
                if worker is not None:
                    worker.finish()
            case Thespian_StatusReq():
                if sender is not None:
                    status = status_of(cell, self._timing.monotonic())
                    self._mailboxes.post(sender, status, cell)
            case _:
                return False
        return True


def _tell_beginner(failed: Failed, _: Work, error: RillnodeError) -> None:
    failed(error)


def _tell_nobody(_: Work, __: RillnodeError) -> None:
    """Nobody waits for `started`."""


def _refused(result: Any) -> bool:
    """Always False: what a handler has returned, which is no coroutine, is not to be run.

    Raises:
        TypeError: it would have to be awaited, or iterated.
    """
    if isinstance(result, Awaitable | AsyncIterator):
        raise TypeError(f"a handler is a function or `async def`, and returned {result!r}")
    return False


class _NotNow(Exception):
    """The actor has no instance that takes messages yet."""


class _NotStarted(Exception):
    """The actor has no instance, because none could be made."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


class _Afterwards(Exception):
    """A planted failure of a message that has had its effects and outcome."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error
