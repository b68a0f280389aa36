"""The dispatcher: mailboxes, the queue of actors that have something to do, and the pump.

It knows a loop only as something that calls back soon, and time only as it is given, so that it
runs the same under a simulated loop.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from thespian.actors import (
    ActorAddress,
    ActorExitRequest,
    ActorSystemMessage,
    DeadEnvelope,
    InvalidActorAddress,
    Thespian_StatusReq,
)

from rillnode.actors.engine.cell import EMPTY, GONE, Cell, Envelope
from rillnode.actors.engine.congestion import Congestion
from rillnode.actors.engine.dead_letters import DeadLetter, DeadLetters, Reason
from rillnode.actors.engine.failures import FAILURES, record_failure
from rillnode.actors.engine.kinds import TURN_USUAL_SECONDS, ActorKind, ActorStats
from rillnode.actors.engine.lifecycle import Finish, Lifecycle, Start
from rillnode.actors.engine.outside import Outside, Reply
from rillnode.actors.engine.supervision import Supervision
from rillnode.actors.engine.thespian_api import status_of
from rillnode.actors.engine.timers import Timing

logger = logging.getLogger("rillnode.actors.engine.system")

PUMP_MESSAGES_MAX: Final = 1_024
"""Messages handled before the loop gets its turn, however fast they are."""


_FINISH: Final = Finish()


class Receiver(Protocol):
    """What a turn hands messages to."""

    def receiveMessage(self, msg: Any, sender: Any) -> Any:
        """Handle one message."""
        ...


class _Unborn:
    """Stands for an instance until a message needs it, so that the factory fails as a handler."""

    __slots__ = ("_cell", "_life")

    def __init__(self, life: Lifecycle, cell: Cell) -> None:
        self._life = life
        self._cell = cell

    def receiveMessage(self, msg: Any, sender: Any) -> None:
        self._life.instance_of(self._cell).receiveMessage(msg, sender)


class Dispatcher:
    """Posts messages and gives actors their turns, all on one thread.

    An actor's turn takes its whole mailbox. Actors that have something to do have their turns in
    the order in which they got it. After `PUMP_MESSAGES_MAX` messages or `slice_seconds` the loop
    goes on; what a turn has not come to stays in front of the mailbox, and the actor goes to the
    end of the queue: no actor keeps others waiting longer than that for each actor before them.

    Messages of one sender to one actor are handled in the order in which they were posted.

    Attributes:
        address: the system's own, sender of what nobody sent.
        dead_letters: messages that nobody handled.
        poisoned: by the class of a message that bears who asked: called, to tell them, with one
            that has made its actor fail as often as it is tried (True), or waited when it ended.
        life: the actors; set by the system that this is a part of.
    """

    life: Lifecycle

    def __init__(
        self,
        call_soon: Callable[[Callable[[], object]], object],
        timing: Timing,
        slice_seconds: float,
        dead_letters_max: int,
    ) -> None:
        self.timing = timing
        self.address = Outside("system")
        self.dead_letters = DeadLetters(dead_letters_max)
        self.poisoned: dict[type, Callable[[Any, bool], None]] = {}
        self._congestion = Congestion(self.post)
        self._supervision = Supervision(self)
        self._ready: deque[Cell] = deque()
        self._finishing: list[Cell] = []
        self._call_soon = call_soon
        self._slice_seconds = slice_seconds
        self._pump_called = False
        self._dead_letter_handler: Cell | None = None

    # Posting ---------------------------------------------------------------------------------

    def post(self, target: ActorAddress, message: Any, sender: ActorAddress | None = None) -> None:
        """Put a message into an actor's mailbox; on the loop's thread, never waits.

        A mailbox takes messages over its bound too, and its sender is told (see `congestion`).

        Raises:
            InvalidActorAddress: `target` is no address at all.
        """
        cell: Any = target
        if cell.__class__ is not Cell or cell.base is not self:
            self._post_outside(target, message, sender)
            return
        mailbox = cell.mailbox
        if mailbox:
            mailbox.append((message, sender))
            if len(mailbox) > cell.kind.policy.mailbox_messages_max:
                self._congestion.signal(cell, sender)
        elif mailbox is EMPTY:
            cell.mailbox = [(message, sender)]
            self._ready.append(cell)
            if not self._pump_called:
                self._pump_called = True
                self._call_soon(self._pump)
        elif not isinstance(message, ActorExitRequest):
            self.bury(cell, message, sender, "gone")

    def at_once(self, bring: Callable[[], None]) -> None:
        """Let a callback of the loop post what it brings, and give turns now, not a round later.

        Within a turn, and where a pump is due already, it only posts.
        """
        if self._pump_called:
            bring()
            return
        self._pump_called = True
        try:
            bring()
        finally:
            self._pump()

    def _post_outside(self, target: Any, message: Any, sender: ActorAddress | None) -> None:
        if isinstance(target, Cell):
            target.base.enter([(target, message, sender)])
        elif isinstance(target, Outside):
            if not target.deliver(message):
                self.bury(target, message, sender, "unwanted")
        elif isinstance(target, ActorAddress):
            self.bury(target, message, sender, "unknown")
        else:
            raise InvalidActorAddress(target, "not an address")

    def bury(
        self, target: ActorAddress, message: Any, sender: ActorAddress | None, reason: Reason
    ) -> None:
        """Make a message a dead letter; who awaits its answer is told."""
        self.dead_letters.add(DeadLetter(target, message, sender, reason))
        if reason == "unhandled":
            self.poison(message, failed=False)
        if isinstance(sender, Reply):
            sender.lost()
        handler = self._dead_letter_handler
        if handler is not None and not isinstance(message, DeadEnvelope):
            self.post(handler, DeadEnvelope(target, message), sender)

    def poison(self, message: Any, *, failed: bool = True) -> None:
        """Tell whoever waits for a message that nothing comes of it; see `poisoned`."""
        tell = self.poisoned.get(type(message))
        if tell is not None:
            try:
                tell(message, failed)
            except FAILURES:  # the end of an actor must not fail for what it leaves
                logger.exception("not_told")

    def handle_dead_letters(self, cell: Cell, enable: bool) -> None:
        """Make an actor the one that gets each new dead letter in a DeadEnvelope, or end that."""
        if enable:
            self._dead_letter_handler = cell
        elif self._dead_letter_handler is cell:
            self._dead_letter_handler = None

    def forget(self, cell: Cell) -> None:
        """An actor has exited: let go of all that is known of it."""
        self._supervision.forget(cell)
        self._congestion.relieve(cell)
        self.handle_dead_letters(cell, enable=False)

    # Turns -----------------------------------------------------------------------------------

    def finish_later(self, cell: Cell) -> None:
        """Call a worker's `finish` at the end of this pump, before the loop goes on.

        For what its turns gather and is cheaper done once. Only ever called from such a turn.
        """
        self._finishing.append(cell)

    def _pump(self) -> None:
        try:
            self._run_turns()
            if self._finishing:
                self._finish()
        finally:
            if self._ready or self._finishing:
                self._call_soon(self._pump)
            else:
                self._pump_called = False
                self._idle()

    def _finish(self) -> None:
        finishing, self._finishing = self._finishing, []
        for cell in finishing:
            worker: Any = cell.instance
            if worker is None:
                continue
            try:
                worker.finish()
            except FAILURES as error:
                self._supervision.recover(cell, _FINISH, None, error)

    def _idle(self) -> None:
        """No actor has anything to do."""

    def _run_turns(self) -> None:
        ready, jams = self._ready, self._congestion.jams
        control, monotonic = self._control, self.timing.monotonic
        usual = TURN_USUAL_SECONDS
        before = monotonic()
        deadline = before + self._slice_seconds
        quota = PUMP_MESSAGES_MAX
        while ready and quota > 0 and before < deadline:
            cell = ready.popleft()
            batch = cell.mailbox
            if not batch:
                continue  # it has exited since it got in the queue
            cell.mailbox = EMPTY
            quota -= len(batch)
            if quota < 0:
                cell.mailbox = batch[quota:]
                del batch[quota:]
                ready.append(cell)
            kind = cell.kind
            instance: Receiver | None = cell.instance
            if instance is None:
                instance = self._receiver(cell)
            pending = iter(batch)
            begun = before
            for message, sender in pending:
                try:
                    if isinstance(message, ActorSystemMessage) and control(cell, message, sender):
                        if cell.mailbox is GONE:
                            break
                    else:
                        instance.receiveMessage(message, sender)
                except FAILURES as error:
                    if not self._supervision.recover(cell, message, sender, error):
                        break
                    instance = self._receiver(cell)
                except BaseException:
                    self._end_turn(cell, batch, pending)
                    raise
                now = monotonic()
                if now - before > kind.slowest_seconds:
                    kind.slowest_seconds = now - before
                before = now
                if now >= deadline:
                    break
            else:
                kind = cell.kind  # the first message may have shown which it is
                kind.handled += len(batch)
                kind.turns += 1
                spent = before - begun
                kind.turn_seconds += spent
                if spent > usual:
                    kind.took_long(spent)
                if cell.active is False:
                    cell.active = True
                if jams and cell in jams:
                    self._congestion.relieve(cell)
                continue
            self._end_turn(cell, batch, pending)
            before = monotonic()
            cell.kind.took(before - begun)

    def _receiver(self, cell: Cell) -> Receiver:
        return _Unborn(self.life, cell) if cell.instance is None else cell.instance

    def _end_turn(self, cell: Cell, batch: list[Envelope], pending: Iterator[Envelope]) -> None:
        """End a turn before its batch did: what is left waits on, first, or is a dead letter."""
        left = list(pending)
        cell.kind.handled += len(batch) - len(left)
        if cell.mailbox is GONE:
            for message, sender in left:
                self.bury(cell, message, sender, "unhandled")
            return
        if cell.active is False:
            cell.active = True
        if cell.mailbox:
            cell.mailbox[:0] = left
        elif left:
            cell.mailbox = left
            self._ready.append(cell)
        self._congestion.relieve(cell)

    def deliver(self, cell: Cell, message: Any, sender: ActorAddress | None) -> None:
        """Hand one message to an actor now, making its instance where there is none.

        Raises:
            Exception: whatever the factory or the handler raises.
        """
        if isinstance(message, ActorSystemMessage) and self._control(cell, message, sender):
            return
        self.life.instance_of(cell).receiveMessage(message, sender)

    def _control(self, cell: Cell, message: ActorSystemMessage, sender: Any) -> bool:
        """Do what the system itself does about a message; False when that is nothing."""
        match message:
            case ActorExitRequest():
                # Workers have `stopped`; who has no instance has nothing to say to its end.
                if cell.instance is not None and not cell.kind.policy.is_worker:
                    try:
                        cell.instance.receiveMessage(message, sender)
                    except FAILURES as error:
                        record_failure(cell, "ActorExitRequest", error)
                self.life.terminate(cell, recursive=message.isRecursive)
            case Start():
                self.life.instance_of(cell)
            case Finish():
                worker: Any = cell.instance
                if worker is not None:
                    worker.finish()
            case Thespian_StatusReq():
                self.post(sender, status_of(cell, self.timing.monotonic()), cell)
            case _:
                return False
        return True

    # Seeing ----------------------------------------------------------------------------------

    def stats(self) -> dict[str, ActorStats]:
        """What the actors did, by the name of their class."""
        depths: dict[ActorKind, int] = {}
        for cell in self._ready:
            depths[cell.kind] = depths.get(cell.kind, 0) + len(cell.mailbox)
        return {
            kind.policy.name: kind.stats(depths.get(kind, 0))
            for kind in self.life.kinds.values()
            if kind.cells or kind.handled
        }
