"""The watcher behind an alias of the tracing service: it sends on, and sends copies to the asker.

What is sent through the watcher goes on with the watcher in its return route, so that the answer
comes through it as well; of both the asker gets the payload, unless it has much to read still.

Source: the Elixir nodes of 2021 to 2024 (`tracing_service`, later `tracing`).
"""

from functools import partial

from rillnode.actors.core.delivery import Delivery, Origin
from rillnode.actors.core.router import Router
from rillnode.actors.engine.described import Described
from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.ockam.context import Ended
from rillnode.codecs.routing.routes import Route, WireMessage, local


class Watcher(Worker):
    """A watcher of the tracing service, at `TRC_...`."""

    on_failure = "resume"

    def __init__(
        self,
        router: Router,
        own_address: bytes,
        receiver: Origin,
        tracing_route: Route,
        ended: Ended,
    ) -> None:
        self._router = router
        self._receiver = receiver
        self._own_address = own_address
        self._own = (local(own_address),)
        self._tracing_route = tracing_route
        self._ended = ended

    def handle(self, message: Delivery, sender: Cell | None) -> None:
        """Send on, then send the copies."""
        origin, tracked = message.origin, message.tracked
        traced = [
            WireMessage(wire.onward_route[1:], self._own + wire.return_route, wire.payload)
            for wire in message.messages
        ]
        copies = [
            WireMessage(self._tracing_route, self._own, wire.payload) for wire in message.messages
        ]
        self._router.route(origin, traced, tracked=tracked)
        if self._receiver.congested:
            self._router.undelivered["congested"] += len(copies)
            return
        self._router.route(origin, copies, tracked=tracked)

    def described(self, address: bytes) -> Described:
        """The alias."""
        return Described(
            "alias",
            owner=self._receiver.principal,
            origin=self._receiver,
            stop=partial(self.system.exit, self.address),
        )

    def stopped(self) -> None:
        """Give the address back."""
        self._router.unregister(self._own_address)
        self._ended(self.address)
