"""Services that give an alias with a random name to whoever asks: forwarding, and tracing.

A request's payload is sent back to it from the new alias, whose address is so the answer's return
route. The alias ends with the connection that the request came through.

Source: the Elixir nodes of 2021 to 2024 (`forwarding_service`, `tracing_service`; later also
`forwarding`, `tracing`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final

from rillnode.actors.core.delivery import Delivery, Origin
from rillnode.actors.core.return_routes import leads_out
from rillnode.actors.core.router import Router
from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.ockam.context import Allowance, Ended, ServiceContext
from rillnode.actors.ockam.forwarder import Forwarder
from rillnode.actors.ockam.watcher import Watcher
from rillnode.codecs.routing.routes import Route, WireMessage


@dataclass(frozen=True, slots=True)
class AliasKind:
    """A kind of alias.

    Attributes:
        service: the service that makes it, for the log.
        prefix: its address begins so.
        make: the actor behind it, given its address, the origin of who asked, the route to it, and
            who is to be told of its end.
    """

    service: str
    prefix: bytes
    make: Callable[[Router, bytes, Origin, Route, Ended], Worker]


FORWARDING: Final = AliasKind("forwarding", b"FWD_", Forwarder)
TRACING: Final = AliasKind("tracing", b"TRC_", Watcher)


class AliasService(Worker):
    """Makes aliases; each is an actor of its own, as every worker with an address is."""

    on_failure = "resume"

    def __init__(self, context: ServiceContext, kind: AliasKind) -> None:
        self._context = context
        self._kind = kind

    @cached_property
    def _allowance(self) -> Allowance:
        """Made for the first who asks: at most nodes nobody does."""
        return Allowance()

    def handle(self, message: Delivery, sender: Cell | None) -> None:
        """Take requests."""
        for wire in message.messages:
            self._make_alias(message.origin, wire)

    def _make_alias(self, origin: Origin, wire: WireMessage) -> None:
        context, kind, route = self._context, self._kind, wire.return_route
        if not leads_out(context.router, origin, route):
            context.refuse(kind.service, "return_route", origin, wire)
        elif not self._allowance.permits(origin):
            context.refuse(kind.service, "too_many_aliases", origin, wire)
        else:
            alias = kind.prefix + context.entropy(8).hex().encode()
            ended = self._allowance.give_back
            factory = partial(kind.make, context.router, alias, origin, route, ended)
            cell = context.system.spawn(factory, parent=self.address)
            self._allowance.take(origin, cell)
            context.router.register(alias, cell)
            context.router.reply(origin, alias, [(route, wire.payload)])
