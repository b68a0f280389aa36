"""The static forwarding service: aliases with a wished name, kept over a reconnect.

A request's payload is a name; the alias is `forward_to_<name>`, and its answer is the name again,
sent from the alias. Another request for a name gives its alias a new route where it comes

- through the connection that holds the alias, or
- from the principal that holds it, unless that is `anonymous`: so a device that reconnects has
  its alias at once, even if its old connection has not been found dead yet, or
- after the connection that holds it has ended: from anybody if `anonymous` held it, else for
  ALIAS_KEPT_SECONDS from its principal only, and from anybody then.

Any other is refused, so that nobody takes over an alias in use. Over plain TCP all peers are
`anonymous`: there a device gets its alias back when its old connection has ended (see
`idle_close_seconds` of the listener). While nobody is connected the alias is an unknown address.

Source: the Elixir nodes of 2021-08 to 2024-10, which let anybody take any alias at any time.
"""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final

from thespian.actors import ChildActorExited

from rillnode.actors.access import ANONYMOUS
from rillnode.actors.delivery import Delivery, Origin
from rillnode.actors.return_routes import leads_out
from rillnode.actors.services.context import Allowance, ServiceContext
from rillnode.actors.services.forwarder import Forwarder
from rillnode.actors.system import Cell
from rillnode.actors.worker import Worker
from rillnode.codecs.errors import CodecError
from rillnode.codecs.limits import ALIAS_KEPT_SECONDS
from rillnode.codecs.ockam.hub import TEXT, decode_name
from rillnode.codecs.ockam.routing import WireMessage

PREFIX: Final = b"forward_to_"


@dataclass(slots=True)
class _Alias:
    """Who holds a name: a principal, through a connection whose forwarder is `cell`.

    Both are None while it is not connected.
    """

    principal: str
    origin: Origin | None
    cell: Cell | None


@dataclass(frozen=True, slots=True)
class _Release:
    """A principal that has not come back loses its alias."""

    name: str
    alias: _Alias


class StaticForwardingService(Worker):
    """Gives names to routes."""

    on_failure = "resume"

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._aliases: dict[str, _Alias] = {}
        self._names: dict[Cell, str] = {}

    @cached_property
    def _allowance(self) -> Allowance:
        """Made for the first who asks: at most nodes nobody does."""
        return Allowance()

    def handle(self, message: object, sender: Cell | None) -> None:
        """Take requests, the ends of routes, and of the time that a name is kept."""
        match message:
            case Delivery(origin=origin, messages=messages):
                for wire in messages:
                    self._request(origin, wire)
            case ChildActorExited(childAddress=Cell() as cell):
                self._ended(cell)
            case _Release(name=name, alias=alias):
                if self._aliases.get(name) is alias and alias.cell is None:
                    self._forget(name, alias)
            case _:
                pass

    def _request(self, origin: Origin, wire: WireMessage) -> None:
        context = self._context
        try:
            name = decode_name(wire.payload)
        except CodecError as error:
            context.refuse("static_forwarding", error.code, origin, wire)
            return
        held = self._aliases.get(name)
        if not leads_out(context.router, origin, wire.return_route):
            context.refuse("static_forwarding", "return_route", origin, wire)
        elif held is not None and not _may_replace(held, origin):
            context.refuse("static_forwarding", "alias_taken", origin, wire)
        elif not (held or self._allowance.permits(origin)):
            context.refuse("static_forwarding", "too_many_aliases", origin, wire)
        else:
            if held is not None:
                self._forget(name, held)
            self._assign(origin, wire, name)

    def _assign(self, origin: Origin, wire: WireMessage, name: str) -> None:
        context = self._context
        address = PREFIX + name.encode()
        factory = partial(Forwarder, context.router, address, origin, wire.return_route)
        cell = context.system.spawn(factory, parent=self.address)
        context.router.register(address, cell)
        self._allowance.take(origin, cell)
        self._aliases[name] = _Alias(origin.principal, origin, cell)
        self._names[cell] = name
        context.router.reply(origin, address, [(wire.return_route, TEXT.encode(name))])

    def _forget(self, name: str, alias: _Alias) -> None:
        del self._aliases[name]
        if alias.cell is None:
            self._allowance.release(alias.principal)
        else:
            del self._names[alias.cell]
            self._allowance.give_back(alias.cell)
            self._context.system.exit(alias.cell)

    def _ended(self, cell: Cell) -> None:
        """A connection has ended, unless its alias was given a new route before."""
        name = self._names.get(cell)
        if name is None:
            return
        alias = self._aliases[name]
        self._forget(name, alias)
        if alias.principal != ANONYMOUS:
            kept = self._aliases[name] = _Alias(alias.principal, None, None)
            self._allowance.reserve(alias.principal)
            self.wake_after(ALIAS_KEPT_SECONDS, _Release(name, kept))


def _may_replace(held: _Alias, origin: Origin) -> bool:
    if held.origin is origin:
        return True
    return held.principal == origin.principal != ANONYMOUS
