"""A peer's actor between fakes: a dialer that does as it is told, and time moved by hand."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast

from actor_support import run
from core_support import Core
from link_support import ManualClock
from rillnode.actors.core.access import Access
from rillnode.actors.core.delivery import Delivery, Origin, Slice
from rillnode.actors.core.links.connection import PeerContext
from rillnode.actors.core.links.dialling import (
    AcceptedEvents,
    DialledEvents,
    PeerActor,
    PeerSettings,
    PeerStatus,
)
from rillnode.actors.engine.system import AsyncioSystemBase, Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.ports import LinkEvents
from rillnode.codecs import native
from rillnode.codecs.errors import RillnodeError, TransportError
from rillnode.codecs.links import LinkInfo
from rillnode.codecs.routing.routes import WireMessage, decode_message, local

HOP = local("peer/core")
DOWN = TransportError("link.refused", "nothing listens there")


class FakeLink:
    """A link that notes what is sent over it."""

    def __init__(self, events: LinkEvents) -> None:
        self.info = LinkInfo(
            principal="noise:aa",
            remote="test",
            transport="noise",
            dialled=True,
            message_bytes_max=4_194_304,
        )
        self.events = events
        self.sent: list[WireMessage] = []
        self.buffered_bytes = 0
        self.closed = False
        events.link_opened(self)

    def send(self, messages: Any) -> None:
        self.sent += map(decode_message, messages)

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self, reason: str) -> None:
        if not self.closed:
            self.closed = True
            self.events.link_closed(reason)


class Attempt:
    """One call of the dialer."""

    def __init__(self, events: DialledEvents, on_failure: Callable[[RillnodeError], None]) -> None:
        self._events = events
        self.fail = on_failure
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True

    def open(self) -> FakeLink:
        return FakeLink(self._events)

    def share(self, accepted: AcceptedEvents) -> None:
        accepted.share(self._events)


class Notes(Worker):
    """Keeps what is routed to it."""

    def __init__(self, notes: list[WireMessage]) -> None:
        self._notes = notes

    def handle(self, message: Any, sender: Any) -> None:
        if isinstance(message, Delivery):
            self._notes += message.messages


class Bench:
    """A peer, a client that sends to it, and a dialer that does as it is told."""

    def __init__(self, core: Core, *, kept: bool, passing: bool) -> None:
        self.core = core
        self.attempts: list[Attempt] = []
        self.ended = 0
        self.may_dial = True
        self.refusal: RillnodeError | None = None
        self.answers: list[WireMessage] = []
        self.status = PeerStatus("h:1", "noise")
        self.origin = Origin("friend", 4_194_304, True)
        self.part = Slice()
        context = self.context = PeerContext(
            core.system, core.router, cast(Any, core.store), Access(), lambda size: b"\x80" * size
        )
        settings = PeerSettings(
            name="core",
            prefix=b"NX_C_",
            dial=self._dial,
            kept=kept,
            may_dial=lambda: self.may_dial,
            on_end=self._end if passing else None,
        )
        core.router.register(b"me", core.system.spawn(partial(Notes, self.answers)))
        self.cell: Cell = core.system.spawn(partial(PeerActor, context, settings, self.status))
        core.router.register(HOP.value, self.cell)

    def _dial(self, events: DialledEvents, on_failure: Callable[[RillnodeError], None]) -> Attempt:
        if self.refusal is not None:
            raise self.refusal
        self.attempts.append(Attempt(events, on_failure))
        return self.attempts[-1]

    def _end(self) -> None:
        self.ended += 1

    async def send(self, *payloads: bytes, origin: Origin | None = None) -> None:
        messages = [
            WireMessage((HOP, local("worker")), (local("me"),), payload) for payload in payloads
        ]
        self.core.router.route(origin or self.origin, messages, tracked=self.part)
        await self.core.settle()

    async def fail(self, error: RillnodeError = DOWN) -> None:
        self.attempts[-1].fail(error)
        await self.core.settle()

    async def open(self) -> FakeLink:
        link = self.attempts[-1].open()
        await self.core.settle()
        return link

    async def accept(self) -> tuple[AcceptedEvents, FakeLink]:
        """A link that the peer has made itself."""
        accepted = AcceptedEvents(self.context, prefix=b"NX_H_")
        link = FakeLink(accepted)
        await self.core.settle()
        return accepted, link

    async def share(self, accepted: AcceptedEvents) -> None:
        self.attempts[-1].share(accepted)
        await self.core.settle()

    async def pass_time(self, seconds: float) -> None:
        self.core.clock.advance(seconds)
        await self.core.settle()

    def failures(self) -> list[str]:
        """The codes of what came back, which is forgotten then."""
        found = [native.decode_response(answer.payload) for answer in self.answers]
        self.answers.clear()
        assert all(isinstance(one, native.Failure) for one in found)
        return [one.code for one in found if isinstance(one, native.Failure)]


def with_bench(
    test: Callable[[Bench], Awaitable[None]], *, kept: bool = False, passing: bool = False
) -> None:
    async def main(system: AsyncioSystemBase, clock: ManualClock) -> None:
        bench = Bench(Core(system, clock), kept=kept, passing=passing)
        await bench.core.settle()
        await test(bench)

    run(main)
