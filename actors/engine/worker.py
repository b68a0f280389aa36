"""The base class of rillnode's actors: Thespian's Actor with typed shortcuts and life hooks."""

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from thespian.actors import Actor, ActorAddress

from rillnode.actors.delivery import Delivery
from rillnode.actors.ports import TimerHandle
from rillnode.codecs.limits import MAILBOX_MESSAGES_MAX

if TYPE_CHECKING:
    from rillnode.actors.engine.cell import Cell
    from rillnode.actors.engine.system import AsyncioSystemBase

OnFailure = Literal["resume", "restart", "stop"]


class Worker(Actor):
    """An actor; subclasses handle messages in `handle`.

    One message at a time, on the loop's thread, in the order in which each sender sent them. A
    handler must not block and cannot await: what waits is a task or a thread that posts its
    result. The constructor knows neither address nor system yet; `started` does. The end comes
    as `stopped`; an ActorExitRequest is not handed to `handle`.

    Attributes:
        mailbox_messages_max: waiting messages above which senders are told or made to wait.
        on_failure: what follows when a handler raises. `resume`: the instance goes on. `restart`:
            a new instance from the same factory goes on, without the old one's timers. `stop`:
            the actor exits. Except after `stop` the failed message is tried once more; then it
            goes back to its sender in a PoisonMessage.
        restarts_max: restarts within `restart_window_seconds` after which a failure stops it.
        stands_for: the class that it is counted as; None: itself.
        idle_seconds: how long without a message before the instance is given up, while its
            address stays; None for never. It goes after one to two such periods.
    """

    mailbox_messages_max: ClassVar[int] = MAILBOX_MESSAGES_MAX
    on_failure: ClassVar[OnFailure] = "restart"
    restarts_max: ClassVar[int] = 5
    restart_window_seconds: ClassVar[float] = 60.0
    idle_seconds: ClassVar[float | None] = None
    stands_for: ClassVar[type[Actor] | None] = None

    _myRef: "Cell"

    @property
    def system(self) -> "AsyncioSystemBase":
        """The actor system that it lives in."""
        return self._myRef.base

    @property
    def address(self) -> "Cell":
        """Its own address."""
        return self._myRef

    def started(self) -> None:
        """A new instance is in place: called before its first message.

        That is in the first turn after `spawn`, after a restart, and after a passivation.
        """

    def handle(self, message: Any, sender: Any) -> None:
        """Handle one message.

        Args:
            message: what was sent; messages of the system (`ActorSystemMessage`) that it does
                not know must be ignored.
            sender: address for the answer, or None where nobody waits for one.
        """
        raise NotImplementedError

    def finish(self) -> None:
        """Do what turns have gathered: called once at the end of a pump after `finish_later`."""

    def stopped(self) -> None:
        """The instance is given up for good: at the actor's exit, or before a restart."""

    def may_passivate(self) -> bool:
        """Whether the instance may go now that it is idle and has no timer pending."""
        return True

    def wake_after(self, seconds: float, message: object) -> TimerHandle:
        """Send `message` to itself after `seconds`, unless cancelled; the timer keeps it awake."""
        return self.system.wake_after(self._myRef, seconds, message)

    def finish_later(self) -> None:
        """Have `finish` called when the actors that have something to do had their turns."""
        cell = self._myRef
        cell.base.finish_later(cell)

    def send(self, targetAddr: ActorAddress, msg: Any) -> None:
        """Send a message from this actor."""
        cell = self._myRef
        cell.base.post(targetAddr, msg, cell)

    def receiveMessage(self, msg: Any, sender: Any) -> None:
        """Thespian's entry to `handle`."""
        self.handle(msg, sender)
        if type(msg) is Delivery and msg.tracked:
            msg.handled()
