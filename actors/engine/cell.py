"""The cell: an actor's address, its mailbox, and what Thespian calls its reference.

The three are one small object, because a node keeps a cell for every actor that it knows while
the actor's instance comes and goes. A cell never looks at messages; its system does.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from thespian.actors import Actor, ActorAddress

from rillnode.actors.engine.kinds import ActorKind
from rillnode.codecs.errors import ActorError

if TYPE_CHECKING:
    from rillnode.actors.engine.system import AsyncioSystemBase
    from rillnode.actors.engine.timers import Timer

Factory = Callable[[], Actor]

Envelope = tuple[Any, Any]
"""A message and the address of its sender, or None where nobody waits for an answer."""


class _Gone(tuple[()]):
    """A class of its own, because all empty tuples are one object."""

    __slots__ = ()


EMPTY: Final[tuple[()]] = ()
"""Mailbox of an actor that has nothing to do: it is in no queue."""

GONE: Final[tuple[()]] = _Gone()
"""Mailbox of an actor that has exited, for ever."""


class Cell(ActorAddress):
    """An actor's address; two are equal when they are the same object.

    The methods in mixed case are those that `thespian.actors.Actor` calls on its `_myRef`.

    Attributes:
        base: the system that it belongs to.
        kind: policy and counters of its actor class.
        factory: makes the instance, and again after a restart or a passivation; Thespian's
            Actor once there will be no other instance.
        instance: None before the first turn, while passivated and after the exit.
        mailbox: messages in order of arrival; `EMPTY` when idle, `GONE` after the exit. The
            system takes the whole list for a turn.
        parent: who is told of the exit.
        children: in order of creation; None while there are none.
        timers: those that have not fired; None while there are none.
        active: whether it had a turn since the last look for idle instances; None when it is not
            looked at.
    """

    __slots__ = (
        "_name",
        "active",
        "base",
        "children",
        "factory",
        "instance",
        "kind",
        "mailbox",
        "parent",
        "timers",
    )

    def __init__(
        self,
        base: "AsyncioSystemBase",
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
        self.timers: dict[Timer, None] | None = None
        self.active: bool | None = None

    def __eq__(self, other: object) -> bool:
        return self is other if isinstance(other, Cell) else NotImplemented

    def __ne__(self, other: object) -> bool:
        return self is not other if isinstance(other, Cell) else NotImplemented

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"<Cell {self.name}>"

    @property
    def name(self) -> str:
        """Name for people; made up when first asked for where none was given."""
        if self._name is None:
            self._name = self.base.next_name(self.kind)
        return self._name

    @property
    def exited(self) -> bool:
        """Whether the actor has ended, and takes no message any more."""
        return self.mailbox is GONE

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

    def createActor(
        self,
        actor_class: type[Actor] | str,
        requirements: dict[str, Any] | None = None,
        global_name: str | None = None,
        source_hash: str | None = None,
    ) -> "Cell":
        """Make a child, see `AsyncioSystemBase.create_child`."""
        return self.base.create_child(self, actor_class, requirements, global_name, source_hash)

    def actor_send(self, target: ActorAddress, message: Any) -> None:
        """Send a message from this actor."""
        self.base.post(target, message, self)

    def wakeupAfter(self, period: timedelta | float, payload: Any = None) -> None:
        """Send the actor a WakeupMessage after `period` (seconds, or a timedelta)."""
        self.base.wakeup_after(self, period, payload)

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

    def loadActorSource(self, *_: Any) -> Any:
        """Refuse: code is never loaded from messages.

        Raises:
            ActorError: always, `actor.unsupported`.
        """
        raise ActorError("actor.unsupported", "Actor code is never loaded from source archives")

    unloadActorSource = loadActorSource
    registerSourceAuthority = loadActorSource
    notifyOnSourceAvailability = loadActorSource

    def preRegisterRemoteSystem(self, *_: Any) -> None:
        """Refuse: other nodes are reached by routes, not by Thespian's conventions.

        Raises:
            ActorError: always, `actor.unsupported`.
        """
        raise ActorError("actor.unsupported", "Other systems are reached by routes only")

    deRegisterRemoteSystem = preRegisterRemoteSystem
