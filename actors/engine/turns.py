"""Turns: how actors are given their messages, and what becomes of handlers that wait.

It knows a loop only as something that calls back soon, and time only as it is given, so that it
runs the same under a simulated loop.
"""

from asyncio import AbstractEventLoop
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from types import CoroutineType
from typing import Any, Final

from thespian.actors import (
    Actor,
    ActorExitRequest,
    ActorSystemMessage,
    Thespian_StatusReq,
)

from rillnode.actors.engine.cell import EMPTY, FAILURES, GONE, Cell
from rillnode.actors.engine.dead_letters import DeadLetters
from rillnode.actors.engine.faults import FAULTS, fail_at
from rillnode.actors.engine.kinds import TURN_USUAL_SECONDS
from rillnode.actors.engine.lifecycle import FINISH, START, Finish, Lifecycle, Start
from rillnode.actors.engine.mailboxes import Held, Mailboxes
from rillnode.actors.engine.outside import Asker, Nobody
from rillnode.actors.engine.supervision import Supervision
from rillnode.actors.engine.thespian_api import status_of
from rillnode.actors.engine.waiting import Continuation, Role, Then, Work
from rillnode.actors.ports import Timing
from rillnode.codecs.errors import ActorError, RillnodeError

SLICE_SECONDS: Final = 0.000_5
"""How long actors run before the loop gets its turn."""

PUMP_MESSAGES_MAX: Final = 1_024
"""Messages handled before the loop gets its turn, however fast they are."""

NOTHING: Final[frozenset[type]] = frozenset()

NOBODY: Final = Nobody("system")

FAILED_TEXT: Final = "The node failed at this request: its log says why"

Failed = Callable[[RillnodeError], object]


class Turns:
    """Gives actors their turns, all on one thread.

    An actor's turn takes its whole mailbox. Actors that have something to do have their turns in
    the order in which they got it. After `PUMP_MESSAGES_MAX` messages or `SLICE_SECONDS` the loop
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
        idle: Callable[[], None],
        loop: AbstractEventLoop,
    ) -> None:
        self._mailboxes = mailboxes
        self._letters = letters
        self._life = life
        self._supervision = supervision
        self._timing = timing
        self._idle = idle
        self._finishing: list[Cell] = []
        self._in_turns = False
        self._ending: list[Callable[[], None]] = []
        self.handled: dict[type, Callable[[Any], None]] = {}
        self._handlers = Role(loop, self._tell_sender, self._handled)
        self._begun = Role(loop, _tell_asker, self._ended)
        mailboxes.pump = self._pump
        life.starting = self._starting

    def finish_later(self, cell: Cell) -> None:
        """Call a worker's `finish` at the end of this pump, before the loop goes on.

        For what its turns gather and is cheaper done once. Only ever called from such a turn.
        """
        self._finishing.append(cell)

    def at_end(self, work: Callable[[], None]) -> bool:
        """Do something when the turns that are given now have ended; False: none are.

        What it brings about has its turns in the same pump.
        """
        if self._in_turns:
            self._ending.append(work)
        return self._in_turns

    def _pump(self) -> None:
        mailboxes = self._mailboxes
        try:
            self._in_turns = True
            self._run()
            if self._finishing:
                self._finish()
            self._in_turns = False
            if self._ending:
                self._end()
                self._run()
                if self._finishing:
                    self._finish()
        finally:
            if self._ending:  # turns that were cut short
                self._in_turns = False
                self._end()
            if mailboxes.ready or self._finishing:
                mailboxes.pump_soon()
            else:
                mailboxes.pump_called = False
                self._idle()

    def _end(self) -> None:
        ending, self._ending = self._ending, []
        for work in ending:
            work()

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
        mailboxes, monotonic = self._mailboxes, self._timing.monotonic
        ready, full, handled = mailboxes.ready, mailboxes.full, self.handled
        failure: BaseException | None
        quota, before = PUMP_MESSAGES_MAX, monotonic()
        deadline = before + SLICE_SECONDS
        while ready and quota > 0 and before < deadline:
            cell = ready.popleft()
            batch: Any = cell.mailbox
            held = batch.__class__ is Held
            waiting_bytes = 0
            if held:
                batch = batch.take()
            elif batch:
                cell.mailbox = EMPTY
                waiting_bytes, cell.waiting_bytes = cell.waiting_bytes, 0
            if not batch:
                continue  # it has exited since it got in the queue, or goes on already
            count = len(batch)
            if count > quota:
                mailboxes.put_back(cell, batch[quota:])
                del batch[quota:]
                count = quota
            quota -= count
            kind = cell.kind
            instance: Any = cell.instance  # None: then nothing is plain
            plain = NOTHING if instance is None or FAULTS else kind.plain
            pending = iter(batch)
            failure, over, begun = None, False, before
            for message, sender in pending:
                try:
                    message_class = message.__class__
                    if message_class in plain and (sender is None or sender.__class__ is Cell):
                        result = instance.receiveMessage(message, sender)  # pyright: ignore[reportOptionalMemberAccess]
                        if result is not None:
                            self._waits(cell, result, message, sender)
                            over = cell.mailbox.__class__ is Held
                        elif message_class in handled:
                            handled[message_class](message)
                    else:
                        if isinstance(sender, Continuation):
                            self._complete(cell, message, sender)
                        else:
                            self._take(cell, message, sender)
                        instance, kind, mailbox = cell.instance, cell.kind, cell.mailbox
                        plain = NOTHING if instance is None or FAULTS else kind.plain
                        over = mailbox is GONE or (not held and mailbox.__class__ is Held)
                except FAILURES as error:
                    failure, over = error, True
                now = monotonic()
                if now - before > kind.slowest_seconds:
                    kind.slowest_seconds = now - before
                before = now
                if over or now >= deadline:
                    left = [*pending]
                    if isinstance(failure, _NotStarted):
                        left.insert(0, (message, sender))
                    count -= len(left)
                    mailboxes.put_back(cell, left, mailboxes.known(batch, count))
                    if failure is not None:
                        self._failed(cell, message, sender, failure)
                        failure = None  # it leads back to here
                    before = monotonic()
                    break
            if waiting_bytes and cell.mailbox:  # of those that the turn has not come to
                handled_bytes = sum(mailboxes.size_of(message) for message, _ in batch[:count])
                cell.waiting_bytes += max(0, waiting_bytes - handled_bytes)
            kind = cell.kind  # the first message may have shown which it is
            kind.handled += count
            kind.turns += 1
            spent = before - begun
            kind.turn_seconds += spent
            if spent > TURN_USUAL_SECONDS:
                kind.took_long(spent)
            if cell.active is False:
                cell.active = True
            if full and cell in full:
                mailboxes.relieve(cell)

    # One message -----------------------------------------------------------------------------

    def _take(self, cell: Cell, message: Any, sender: Any) -> None:
        """Give an actor one message of whatever kind.

        Raises:
            _NotStarted: it has no instance that takes messages yet.
            BaseException: whatever the handler raises.
        """
        if isinstance(message, ActorSystemMessage) and self._control(cell, message, sender):
            return
        instance: Any = cell.instance
        if instance is None:
            instance = self._instance(cell)
        kind = cell.kind
        if sender is None and not kind.is_worker:
            sender = NOBODY
        if message.__class__ not in kind.plain and not kind.admits(message):
            self._letters.bury(cell, message, sender, "undeclared")
            return
        if isinstance(sender, Asker):
            sender.handed_to(cell)
        if FAULTS:
            fail_at(kind.actor_class, message, "before")
        result = instance.receiveMessage(message, sender)
        if result is None:
            self._done(cell, message)
        else:
            self._waits(cell, result, message, sender)

    def _instance(self, cell: Cell) -> Actor:
        try:
            instance = self._life.instance_of(cell)
        except FAILURES as error:
            raise _NotStarted(error) from error
        if cell.mailbox.__class__ is Held:
            raise _NotStarted(None)
        return instance

    def _complete(self, cell: Cell, operation: Any, then: Continuation) -> None:
        worker: Any = cell.instance
        if worker is None or worker is not then.instance:
            self._mailboxes.too_late(cell, operation, then)
            return
        if then.counts:
            worker.operations_due -= 1
        planted = FAULTS and operation is not None
        try:
            if planted:
                fail_at(cell.kind.actor_class, operation, "before")
            then.run(operation)
        except FAILURES:
            self._mailboxes.too_late(cell, operation, then)
            raise
        if planted:
            fail_at(cell.kind.actor_class, operation, "after")

    def _done(self, cell: Cell, message: Any) -> None:
        """A message was handled; raises what is planted, now that it has had its effects."""
        try:
            if FAULTS:
                fail_at(cell.kind.actor_class, message, "after")
        except FAILURES as error:
            raise _Afterwards(error) from error
        finally:
            handled = self.handled.get(message.__class__)
            if handled is not None:
                handled(message)

    def _failed(self, cell: Cell, message: Any, sender: Any, error: BaseException) -> None:
        if isinstance(error, _NotStarted):
            if error.error is not None:
                self._supervision.not_started(cell, error.error)
        elif isinstance(error, _Afterwards):
            cell.failed(type(message).__name__, error.error)
            self._supervision.mend(cell, error.error)
        else:
            self._supervision.failed(cell, message, sender, error)

    # Handlers that wait ----------------------------------------------------------------------

    def _waits(self, cell: Cell, result: Any, message: Any, sender: Any) -> None:
        """Run a handler until it waits or ends; where it waits its actor may take nothing else.

        Raises:
            BaseException: what it raises before it waits.
        """
        if result.__class__ is not CoroutineType:
            if hasattr(result, "__await__") or hasattr(result, "__anext__"):
                text = f"a handler is a function or `async def`, and returned {result!r}"
                raise TypeError(text)
            self._done(cell, message)
            return
        holds = not cell.kind.interleaves
        role, context = self._handlers, copy_context()
        work = Work(role, cell, cell.instance, result, context, message, sender, holds)
        if not work.begin():
            self._done(cell, message)
        elif holds or self._handles_most(cell):
            self._mailboxes.hold(cell)

    def _handles_most(self, cell: Cell) -> bool:
        """Whether as many handlers wait as may at a time."""
        most = cell.kind.handlers_max
        if most is None or cell.owned is None:
            return False
        return (
            sum(isinstance(one, Work) and one.role is self._handlers for one in cell.owned) >= most
        )

    def _tell_sender(self, work: Work, error: RillnodeError) -> None:
        self._letters.tell(work.message, work.asker, error)

    def _handled(self, work: Work, error: BaseException | None) -> None:
        if self._life.lingered(work, error):
            return
        cell, started = work.cell, work.message is START
        if error is None and not started:
            try:
                self._done(cell, work.message)
            except FAILURES as planted:
                error = planted
        if work.holds or cell.kind.handlers_max is not None:
            self._mailboxes.release(cell)
        if error is None and started:
            self._life.has_started(cell)
        if error is not None:
            failure = _NotStarted(error) if started else error
            self._failed(cell, work.message, work.asker, failure)

    def _starting(self, cell: Cell, started: Coroutine[Any, Any, Any]) -> None:
        role, context = self._handlers, copy_context()
        if Work(role, cell, cell.instance, started, context, START, holds=True).begin():
            self._mailboxes.hold(cell)

    def begin(self, cell: Cell, coroutine: Coroutine[Any, Any, Any], failed: Failed) -> None:
        """Begin work beside the handlers of an actor; see `Worker.begin`."""
        work = Work(self._begun, cell, cell.instance, coroutine, copy_context(), None, failed)
        if cell.instance is None:
            cell.own(work)
            return
        try:
            work.begin()
        except FAILURES as error:
            self._ended(work, error)

    def _ended(self, work: Work, error: BaseException | None) -> None:
        cell = work.cell
        if self._life.lingered(work, error) or error is None:
            return
        if isinstance(error, RillnodeError):
            work.tell(error)
            return
        cell.failed(work.get_name(), error)
        work.tell(ActorError("actor.failed", FAILED_TEXT))
        # Not now: it may have been begun by a handler that goes on.
        mend = Then(work.instance, lambda _: self._supervision.mend(cell, error))
        self._mailboxes.post(cell, None, mend)

    # The system's own messages ---------------------------------------------------------------

    def _control(self, cell: Cell, message: ActorSystemMessage, sender: Any) -> bool:
        """Do what the system itself does about a message; False when that is nothing."""
        match message:
            case ActorExitRequest():
                if isinstance(sender, Asker):
                    sender.handed_to(cell)
                # Workers have `stopped`; who has no instance has nothing to say to its end.
                if cell.instance is not None and not cell.kind.is_worker:
                    try:
                        cell.instance.receiveMessage(message, sender or NOBODY)
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


def _tell_asker(work: Work, error: RillnodeError) -> None:
    work.asker(error)


class _NotStarted(Exception):
    """There is no instance that takes messages: none could be made, or its `started` waits."""

    def __init__(self, error: BaseException | None) -> None:
        super().__init__(error)
        self.error = error


class _Afterwards(Exception):
    """A planted failure of a message that has had its effects and outcome."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error
