"""The cell: an actor's address, its mailbox, and what Thespian calls its reference.

The three are one small object, because a node keeps a cell for every actor that it knows while
the actor's instance comes and goes. A cell never looks at messages; its system does.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, Protocol

from thespian.actors import Actor, ActorAddress, WakeupMessage

from rillnode.actors.engine.kinds import ActorKind
from rillnode.codecs.errors import ActorError, RillnodeError
from rillnode.codecs.events import event_logger

logger = event_logger("rillnode.actors.engine.system")

FAILURES: Final = BaseException
"""What an actor may raise without harm to others: a cancelled future's result and a panic of native
code are no Exceptions, but as much the actor's own."""

HOSTS: Final = (SystemExit, KeyboardInterrupt, GeneratorExit)
"""What asks the process to end. It is an actor's failure too, so that who waits has his outcome."""

Factory = Callable[[], Actor]

Period = timedelta | float | None


def seconds_of(period: Period) -> float | None:
    """What Thespian takes as a time, in seconds."""
    return period.total_seconds() if isinstance(period, timedelta) else period


Envelope = tuple[Any, Any]
"""A message and the address of its sender, or None where nobody waits for an answer.

Of a completed operation the second is the `Continuation` that goes on with it.
"""

Tell = Callable[[Any, RillnodeError], None]
"""Tells whoever waits for a message why nothing comes of it."""


class Owned(Protocol):
    """Something that an instance has under way: a timer, waiting work, a question."""

    def drop(self, error: ActorError, /) -> None:
        """The instance is given up: end, and tell whoever waits."""
        ...


class _Gone(tuple[()]):
    """A class of its own, because all empty tuples are one object."""

    __slots__ = ()


EMPTY: Final[tuple[()]] = ()
"""Mailbox of an actor that has nothing to do: it is in no queue."""

GONE: Final[tuple[()]] = _Gone()
"""Mailbox of an actor that has exited, for ever."""


def refuse(*_: Any) -> Any:
    """Refuse what Thespian offers besides.

    Code is never loaded from messages, and other nodes are reached by routes.

    Raises:
        ActorError: always, `actor.unsupported`.
    """
    raise ActorError("actor.unsupported", "No source archives are loaded, nor systems joined")


class Cell(ActorAddress):
    """An actor's address; two are equal when they are the same object.

    The methods in mixed case are those that `thespian.actors.Actor` calls on its `_myRef`.

    Attributes:
        base: the `AsyncioSystemBase` that it belongs to, which is made of cells and imports them.
        kind: policy and counters of its actor class.
        factory: makes the instance, and again after a restart or a passivation; Thespian's
            Actor once there will be no other instance.
        instance: None before the first turn, while passivated and after the exit.
        mailbox: messages in order of arrival; `EMPTY` when idle, `GONE` after the exit. The
            system takes the whole list for a turn.
        parent: who is told of the exit.
        waiting_bytes: of those messages whose size is known, without the first.
        children: in order of creation; None while there are none.
        owned: what the instance has under way, oldest first: timers that have not fired, work that
            waits, questions to be answered; None while there is nothing.
        active: whether it had a turn since the last look for idle instances; None when it is not
            looked at.
    """

    __slots__ = (
        "_name", "active", "base", "children", "factory", "instance", "kind", "mailbox", "owned",
        "parent", "waiting_bytes",
    )  # fmt: skip

    def __init__(
        self,
        base: Any,
        kind: ActorKind,
        factory: Factory,
        parent: "Cell | None",
        name: str | None,
    ) -> None:
        self.base = base
        self.kind = kind
        self.factory = factory
        self.parent = parent
        self._name = name
        self.instance: Actor | None = None
        self.mailbox: list[Envelope] | tuple[()] = EMPTY
        self.children: dict[Cell, None] | None = None
        self.owned: dict[Owned, None] | None = None
        self.waiting_bytes = 0
        self.active: bool | None = None

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"<Cell {self.name}>"

    @property
    def name(self) -> str:
        """Name for people; made up when first asked for where none was given."""
        if self._name is None:
            self._name = f"{self.kind.name.rpartition('.')[2]}-{self.base.next_serial()}"
        return self._name

    @property
    def is_full(self) -> bool:
        """Whether as much waits as may."""
        return len(self.mailbox) >= self.kind.mailbox_messages_max

    @property
    def exited(self) -> bool:
        """Whether the actor has ended, and takes no message any more."""
        return self.mailbox is GONE

    def own(self, one: Owned) -> None:
        """Keep something with the instance, to be dropped when that goes; now, where it has gone.

        So nothing that work begins while it is tidied up outlives it, or meets another instance.
        """
        if self.instance is None:
            one.drop(ActorError("actor.stopped", f"{self} was given up"))
            return
        if self.owned is None:
            self.owned = {one: None}
        else:
            self.owned[one] = None

    def disown(self, one: Owned) -> None:
        """Undo `own`; harmless when it is not there."""
        owned = self.owned
        if owned is not None:
            owned.pop(one, None)
            if not owned:
                self.owned = None

    def drop_instance(self) -> None:
        """Have no instance any more; what it had under way is the caller's to drop."""
        self.instance = None
        self.kind.instances -= 1

    def drop_owned(self, error: ActorError) -> None:
        """End all that the instance had under way; work that tidies up stays until it has ended."""
        for one in tuple(self.owned or ()):
            one.drop(error)

    def logged(self, **more: object) -> dict[str, object]:
        """What the log says of the actor."""
        return {"actor": self.name, "actor_class": self.kind.name, **more}

    def failed(self, doing: str, error: BaseException) -> None:
        """Count a failure and log its reason.

        One of `HOSTS` goes to the loop besides, which raises it once all that follows from the
        failure is done.

        Args:
            doing: what its code was doing: the class of the message, or the name of a hook.
            error: what it raised.
        """
        self.kind.failed(error)
        extra = self.logged(doing=doing, policy=self.kind.on_failure)
        logger.warning("actor_failed", exc_info=error, extra=extra)
        if isinstance(error, HOSTS):
            asyncio.get_running_loop().call_soon(_raise, error)

    @property
    def _aaddr(self) -> str:
        return self.name

    # What an Actor asks of its reference -----------------------------------------------------

    @property
    def address(self) -> "Cell":
        """Itself."""
        return self

    @property
    def globalName(self) -> str | None:
        """The name under which `createActor` finds it, or None."""
        name = self._name
        return name if name and self.base.names.get(name) is self else None

    def createActor(self, *arguments: Any) -> "Cell":
        """Make a child; the arguments are those of Thespian's `createActor`."""
        child: Cell = self.base.create_child(self, *arguments)
        return child

    def actor_send(self, target: ActorAddress, message: Any) -> None:
        """Send a message from this actor."""
        self.base.post(target, message, self)

    def wakeupAfter(self, period: timedelta | float, payload: Any = None) -> None:
        """Send the actor a WakeupMessage after `period` (seconds, or a timedelta)."""
        message = WakeupMessage(period, payload)
        self.base.wake_after(self, seconds_of(period) or 0.0, message)

    def handleDeadLetters(self, address: "Cell", enable: bool = True) -> None:
        """Make the actor the one that gets dead letters, or end that."""
        self.base.handle_dead_letters(address, enable)

    def updateCapability(self, name: str, value: Any = None) -> None:
        """Set a capability of the system; None removes it."""
        self.base.updateCapability(name, value)

    def actorSystemShutdown(self) -> None:
        """Begin to shut the whole system down."""
        self.base.begin_shutdown()

    def notifyOnSystemRegistrationChanges(self, address: "Cell", enable: bool = True) -> None:
        """Thespian's conventions do not exist here, so there is never anything to notify of."""

    loadActorSource = unloadActorSource = registerSourceAuthority = refuse
    notifyOnSourceAvailability = preRegisterRemoteSystem = deRegisterRemoteSystem = refuse


class Cells(dict[Cell, None]):
    """Cells, each once, oldest first; a plain set's order would depend on memory addresses."""

    __slots__ = ()

    def add(self, cell: Cell) -> None:
        """Add a cell; harmless when it is there."""
        self[cell] = None

    def discard(self, cell: Cell) -> None:
        """Remove a cell; harmless when it is not there."""
        self.pop(cell, None)


def _raise(error: BaseException) -> None:
    raise error
