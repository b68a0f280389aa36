"""Endpoints: each stands at an address while instances of its actor come and go."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec import Struct
from thespian.actors import ActorAddress

from rillnode.actors.apps.messages import Answer, Message
from rillnode.actors.apps.policy import Policy
from rillnode.actors.apps.questions import Question
from rillnode.actors.core.threads import Threads
from rillnode.actors.engine.cell import Cell
from rillnode.actors.engine.system import AsyncioSystemBase
from rillnode.actors.ports import Clock
from rillnode.codecs.errors import RillnodeError
from rillnode.codecs.routing.routes import Address

if TYPE_CHECKING:
    from rillnode.actors.core.access import Grant
    from rillnode.actors.core.delivery import Origin
    from rillnode.codecs.routing.routes import WireMessage

ASK_SECONDS = 10.0
STOP_SECONDS = 10.0

Reason = Literal["stopped", "failed", "parent", "node"]
"""Why an actor has ended: somebody stopped it, or it itself; it failed too often, or could not
start; the actor that has spawned it ended, or that one's instance; the node stopped."""


class Call(Struct, eq=False):
    """A message on its way to an actor of an application, and who waits for an answer to it.

    Attributes:
        message: what the actor is given.
        wire: how it came from a link; None: from this node.
        origin: where that has come from.
        question: of whom on this node waits for an answer.
        sender: the address of an actor, or of whoever asks one, that is no endpoint.
        answered: it has been answered, or handed on: its failure is told nobody.
        refused: why it was not taken at all.
    """

    message: Message
    wire: "WireMessage | None" = None
    origin: "Origin | None" = None
    question: Question | None = None
    sender: ActorAddress | None = None
    answered: bool = False
    refused: RillnodeError | None = None

    def size(self) -> int:
        """Bytes of its payload."""
        return len(self.message.payload)


@dataclass(frozen=True, slots=True)
class Ended:
    """An actor has ended; the `value` of a message to whoever watches it.

    Attributes:
        ref: which actor.
        reason: why it has ended.
        error: what it has failed with, last.
    """

    ref: "ActorRef"
    reason: Reason
    error: BaseException | None = None


class Houses(Protocol):
    """The keeper of all endpoints, as those see it that it makes; see `Hosting`.

    Attributes:
        system: where actors live.
        clock: tells them the time.
        threads: makes those of blocking actors.
        node: the node, as its application has it.
        loop: the loop that they are on.
    """

    system: AsyncioSystemBase
    clock: Clock
    threads: Threads
    node: object
    loop: asyncio.AbstractEventLoop

    @property
    def random(self) -> Random:
        """Chance for the application."""
        ...

    # What applications ask for ---------------------------------------------------------------

    async def ask(
        self,
        asker: "Endpoint | None",
        to: Any,
        payload: bytes,
        value: object,
        seconds: float,
        *,
        waiting: bool,
    ) -> Answer:
        """Ask somebody, wherever he is."""
        ...

    async def tell(self, endpoint: "Endpoint", payload: bytes, value: object) -> None:
        """Send to an actor of this node, as its policy has it."""
        ...

    def send(
        self, sender: "Endpoint", to: Any, payload: bytes, value: object, answers: bool
    ) -> None:
        """Send a message; see `Context.send`."""
        ...

    def forward(
        self,
        own: "Endpoint",
        call: Call,
        before: Sequence[Address | str],
        payload: bytes | None,
        stay: bool,
    ) -> None:
        """Pass a message on; see `Context.forward`."""
        ...

    async def spawn_child(
        self,
        parent: "Endpoint",
        actor: Any,
        args: Sequence[Any],
        name: str | None,
        allow: Sequence[str],
        settings: Mapping[str, Any],
    ) -> "ActorRef":
        """Make a child of an actor; see `Context.spawn`."""
        ...

    def watch(self, watcher: "Endpoint", ref: "ActorRef") -> None:
        """Have an actor told of another's end."""
        ...

    def begin_stop(self, endpoint: "Endpoint") -> None:
        """Have an actor end after what waits."""
        ...

    async def stop(self, endpoint: "Endpoint", seconds: float, reason: Reason) -> None:
        """End an actor when it has worked off what waits."""
        ...

    # What its actors tell it -----------------------------------------------------------------

    def answer(self, call: Call, own: Address, payload: bytes, value: object) -> None:
        """Send an answer back along the route that a message came with.

        Raises:
            ActorReply: `message.size`, its way takes no such large answer.
            TypeError: it is an object, and does not stay on the node.
        """
        ...

    def not_handled(self, call: Call, error: RillnodeError) -> None:
        """Nothing comes of a message: whoever waits for it is told, or it is counted."""
        ...

    def dropped(self, reason: str) -> None:
        """Count a message that nobody waits for."""
        ...

    def instance_gone(self, endpoint: "Endpoint") -> None:
        """An actor's instance goes: its children end."""
        ...


class Reads(Protocol):
    """Reads the messages of one endpoint's actor; see `Wire`."""

    def take(self, endpoint: "Endpoint", call: Call, sender: Cell | None = None) -> None:
        """Put a message into the actor's mailbox; one that cannot be read is refused."""
        ...


@dataclass(eq=False, slots=True)
class Endpoint:
    """One address of an application, and the actor behind it.

    Attributes:
        address: as people and routes have it.
        made_at: when it was made, by the system's monotonic clock.
        policy: its actor's settings.
        houses: who keeps it.
        cell: the actor, for the engine.
        parent: whose child it is.
        children: by name.
        serial: how many children had no name.
        watchers: who is told of its end.
        asking: questions that it waits for, and takes no other message meanwhile.
        grants: those that end with it.
        starting: settled when its first instance has started, or could not.
        closing: it takes nothing new.
        ending: has its actor end, once somebody has asked for that.
        reason: why it ends, where that is known before.
        error: what it has failed with, last.
        ended: how it has ended.
        wire: how its messages are read and written, where it is one of Thespian's own.
    """

    address: str
    policy: Policy
    houses: Houses
    made_at: float
    parent: "Endpoint | None" = None
    children: "dict[str, Endpoint]" = field(default_factory=dict["str", "Endpoint"])
    serial: int = 0
    watchers: "dict[Endpoint, None]" = field(default_factory=dict["Endpoint", None])
    asking: dict[Question, None] = field(default_factory=dict[Question, None])
    grants: "Sequence[Grant]" = ()
    starting: "asyncio.Future[None] | None" = None
    closing: bool = False
    ending: "asyncio.Task[None] | None" = None
    reason: Reason | None = None
    error: BaseException | None = None
    ended: Ended | None = None
    cell: Cell = field(init=False)
    wire: Reads | None = None
    _waiters: "list[asyncio.Future[Ended]]" = field(default_factory=list["asyncio.Future[Ended]"])

    @property
    def key(self) -> bytes:
        """The address as routes have it."""
        return self.address.encode()

    @property
    def ref(self) -> "ActorRef":
        """For who sends to it."""
        return ActorRef(self)

    def has_started(self, error: BaseException | None = None) -> None:
        """Its first instance has started, or cannot."""
        waiter, self.starting = self.starting, None
        if waiter is not None and not waiter.done():
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)

    def end(self, ended: Ended) -> None:
        """Its actor has ended."""
        self.ended = ended
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(ended)

    async def wait(self) -> Ended:
        """Wait until its actor has ended."""
        if self.ended is not None:
            return self.ended
        waiter: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        return await waiter


@dataclass(frozen=True, slots=True)
class ActorRef:
    """A reference to an actor of this node's application, to send, ask, or wait for its end."""

    _endpoint: Endpoint

    def __repr__(self) -> str:
        return f"<ActorRef {self.address}>"

    @property
    def address(self) -> str:
        """Its address on the node: a route of one hop."""
        return self._endpoint.address

    @property
    def cell(self) -> ActorAddress:
        """Its Thespian address, for actors that are Thespian's."""
        return self._endpoint.cell

    async def ask(
        self,
        payload: bytes = b"",
        *,
        value: object = None,
        timeout_seconds: float = ASK_SECONDS,
    ) -> Answer:
        """Send it a message and wait for its answer; with `hold`, for room in its mailbox first.

        Raises:
            RequestError: the actor's own refusal, an `ActorReply`.
            ActorError: `actor.failed`, `actor.busy`, `actor.stopped`; `message.timeout`.
        """
        endpoint = self._endpoint
        return await endpoint.houses.ask(None, self, payload, value, timeout_seconds, waiting=False)

    async def send(self, payload: bytes = b"", *, value: object = None) -> None:
        """Send it a message; with `hold`, wait for room in its mailbox first.

        Raises:
            ActorError: `actor.busy`, its mailbox is full; `actor.stopped`, it has ended.
        """
        await self._endpoint.houses.tell(self._endpoint, payload, value)

    async def stop(self, timeout_seconds: float = STOP_SECONDS) -> None:
        """Have it work off what waits, then end, its children first; it takes nothing new.

        After `timeout_seconds` what it is still at is cancelled. An actor that stops itself does
        not wait for its end here. Cancelled, it ends all the same.
        """
        await self._endpoint.houses.stop(self._endpoint, timeout_seconds, "stopped")

    async def wait(self) -> Ended:
        """Wait until it has ended, and tell why."""
        return await self._endpoint.wait()
