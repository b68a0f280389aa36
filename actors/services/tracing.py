"""The tracing service: a watcher that sends a copy of each payload that passes it.

A request's payload is sent back from a new watcher's address. What is sent through the watcher
goes on with the watcher in its return route, so that the answer comes through it as well; of both
the asker gets the payload, unless it has much to read still. The watcher ends with the connection
that it was asked for through.

Source: the Elixir nodes of 2021 to 2024 (`tracing_service`, later `tracing`).
"""

from functools import partial
from typing import Final

from thespian.actors import ChildActorExited

from rillnode.actors.delivery import Delivery, Origin
from rillnode.actors.return_routes import leads_out
from rillnode.actors.router import Router
from rillnode.actors.services.context import Allowance, ServiceContext
from rillnode.actors.system import Cell
from rillnode.actors.worker import Worker
from rillnode.codecs.ockam.routing import Route, WireMessage, local

PREFIX: Final = b"TRC_"


class Watcher(Worker):
    """One watcher."""

    on_failure = "stop"

    def __init__(
        self, router: Router, own_address: bytes, receiver: Origin, tracing_route: Route
    ) -> None:
        self._router = router
        self._receiver = receiver
        self._own_address = own_address
        self._own = (local(own_address),)
        self._tracing_route = tracing_route

    def handle(self, message: object, sender: Cell | None) -> None:
        """Send on, then send the copies."""
        if not isinstance(message, Delivery):
            return
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

    def stopped(self) -> None:
        """Give the address back."""
        self._router.unregister(self._own_address)


class TracingService(Worker):
    """Makes watchers."""

    on_failure = "resume"

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._allowance = Allowance()

    def handle(self, message: object, sender: Cell | None) -> None:
        """Take requests and the ends of watchers."""
        match message:
            case Delivery(origin=origin, messages=messages):
                for wire in messages:
                    self._make_watcher(origin, wire)
            case ChildActorExited(childAddress=Cell() as cell):
                self._allowance.give_back(cell)
            case _:
                pass

    def _make_watcher(self, origin: Origin, wire: WireMessage) -> None:
        context, route = self._context, wire.return_route
        if not leads_out(context.router, origin, route):
            context.refuse("tracing", "return_route", origin, wire)
        elif not self._allowance.permits(origin):
            context.refuse("tracing", "too_many_watchers", origin, wire)
        else:
            address = PREFIX + context.entropy(8).hex().encode()
            factory = partial(Watcher, context.router, address, origin, route)
            cell = context.system.spawn(factory, parent=self.address)
            context.router.register(address, cell)
            self._allowance.take(origin, cell)
            context.router.reply(origin, address, [(route, wire.payload)])
