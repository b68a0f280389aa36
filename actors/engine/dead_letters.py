"""Dead letters: messages that no actor has handled, and how those who wait for them are told."""

import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from thespian.actors import (
    ActorAddress,
    ActorExitRequest,
    ActorSystemMessage,
    ChildActorExited,
    DeadEnvelope,
    PoisonMessage,
)

from rillnode.actors.engine.cell import FAILURES, Cell, Tell
from rillnode.actors.engine.outside import Asker
from rillnode.codecs.errors import ActorError, RillnodeError
from rillnode.codecs.events import event_logger

logger = event_logger("rillnode.actors.engine.system")

Reason = Literal["gone", "unhandled", "poison", "unwanted", "unknown", "busy", "undeclared"]
"""Why nobody handled it: its target had exited; its target exited first; it made the target fail
and has no sender to go back to; it went to an address that is no actor and did not want it, such as
an answer that came too late; its target is an address of nothing here; the target's mailbox was
full; the target's class does not declare to take such messages."""

KEPT_MAX: Final = 100
"""Dead letters kept to look at, the newest."""

STOPPED: Final = "actor.stopped"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One message that was not handled."""

    target: ActorAddress
    message: Any
    sender: ActorAddress | None
    reason: Reason


class DeadLetters:
    """Counts all dead letters and keeps the newest; iterates over those kept, oldest first.

    Attributes:
        outcomes: how to tell who waits for a message, by the class of those that bear who does.
        post: for who is told; set by the mailboxes.
    """

    def __init__(self) -> None:
        self.reasons: Counter[Reason] = Counter()
        self.outcomes: dict[type, Tell] = {}
        self.post: Callable[..., None]
        self._kept: list[DeadLetter] = []
        self._handler: Cell | None = None

    @property
    def count(self) -> int:
        """How many there have been."""
        return self.reasons.total()

    def add(self, letter: DeadLetter) -> None:
        """Count and keep one."""
        self.reasons[letter.reason] += 1
        self._kept.append(letter)
        del self._kept[:-KEPT_MAX]

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[DeadLetter]:
        return iter(tuple(self._kept))

    def handle(self, cell: Cell, enable: bool) -> None:
        """Make an actor the one that gets each new one in a DeadEnvelope, or end that."""
        if enable:
            self._handler = cell
        elif self._handler is cell:
            self._handler = None

    def bury(
        self, target: ActorAddress, message: Any, sender: ActorAddress | None, reason: Reason
    ) -> None:
        """Make a message a dead letter; whoever waits for it is told.

        Who waits is told, too, of a message of the system that is none: a request to exit to who
        has exited, and what a class does not declare.
        """
        if reason != "poison":
            self.tell(message, sender, error_of(target, reason))
        if isinstance(message, ActorExitRequest) or (
            reason == "undeclared" and isinstance(message, ActorSystemMessage)
        ):
            return
        self.add(DeadLetter(target, message, sender, reason))
        if self._handler is not None and not isinstance(message, DeadEnvelope):
            self.post(self._handler, DeadEnvelope(target, message), sender)

    def tell(self, message: Any, sender: object, error: RillnodeError) -> None:
        """Tell who waits for a message, if anybody does, that nothing comes of it."""
        if isinstance(sender, Asker):
            sender.fail(error)
        elif (told := self.outcomes.get(message.__class__)) is not None:
            try:
                told(message, error)
            except FAILURES:  # the end of an actor must not fail for what it leaves
                logger.exception("not_told")

    def poison(
        self, cell: Cell, message: Any, sender: ActorAddress | None, error: BaseException
    ) -> None:
        """A message has made its actor fail: its sender gets it back in a PoisonMessage."""
        lines = "".join(traceback.format_exception_only(error)).strip().rpartition("\n")[2]
        failed = ActorError("actor.failed", f"{cell} failed to answer: {lines}")
        self.tell(message, sender, failed)
        # Neither is bad news about bad news, nor does a child hear that its end was bad news.
        if sender is None or isinstance(message, PoisonMessage | ChildActorExited):
            self.bury(cell, message, sender, "poison")
        elif not isinstance(sender, Asker):
            details = "".join(traceback.format_exception(error))
            self.post(sender, PoisonMessage(message, details), cell)


def error_of(target: ActorAddress, reason: Reason) -> ActorError:
    """What who waits for a dead letter is told."""
    match reason:
        case "busy":
            return ActorError("actor.busy", f"{target} has too much waiting: try again")
        case "undeclared":
            return ActorError("actor.failed", f"{target} does not take such messages")
        case _:
            return ActorError(STOPPED, f"{target} has exited")
