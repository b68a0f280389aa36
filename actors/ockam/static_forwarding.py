"""The static forwarding service: aliases with a wished name, kept over a reconnect.

A request's payload is a name; the alias is `forward_to_<name>`, and its answer is the name again,
sent from the alias. At `static_forwarding_api` the name is the body of a post to the path "" (see
`codecs/ockam/api`), the answer's body is the alias, and what is refused is answered, too. Another
request for a name gives its alias a new route where it comes

- through the connection that holds the alias, or
- from the principal that holds it, unless that is `anonymous`: so a device that reconnects has
  its alias at once, even if its old connection has not been found dead yet, or
- after the connection that holds it has ended: from anybody if `anonymous` held it, else for
  ALIAS_KEPT_SECONDS from its principal only, and from anybody then.

Any other is refused, so that nobody takes over an alias in use. Over plain TCP all peers are
`anonymous`: there a device gets its alias back when its old connection has ended (see
`idle_close_seconds` of the listener). While nobody is connected the alias is an unknown address.

Source: the Elixir nodes of 2021-08 to 2024-10, which let anybody take any alias at any time; the
interface is that of 2022-05 to 2023-10, before who asks had to prove an identity.
"""

from dataclasses import dataclass
from functools import cached_property, partial
from math import inf
from typing import Final, assert_never

from rillnode.actors.core.access import ANONYMOUS
from rillnode.actors.core.delivery import Delivery, Origin
from rillnode.actors.core.return_routes import leads_out
from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.ockam.context import Allowance, ServiceContext
from rillnode.actors.ockam.forwarder import Forwarder
from rillnode.codecs.errors import CodecError
from rillnode.codecs.ockam import api
from rillnode.codecs.ockam.hub import TEXT, decode_name, read_name
from rillnode.codecs.ockam.limits import ALIAS_KEPT_SECONDS
from rillnode.codecs.routing.routes import WireMessage

PREFIX: Final = b"forward_to_"

API_ADDRESS: Final = b"static_forwarding_api"
ADDRESSES: Final = (b"static_forwarding", b"static_forwarding_service", API_ADDRESS)

STATUSES: Final = {"return_route": api.BAD_REQUEST, "alias_taken": api.CONFLICT}
"""Of the reasons why an alias is not given; too many have none of their own in released nodes."""


@dataclass(slots=True)
class _Alias:
    """Who holds a name: a principal, through a connection whose forwarder is `cell`.

    Both are None while it is not connected, which it may be until `kept_until`.
    """

    principal: str
    origin: Origin | None
    cell: Cell | None
    kept_until: float = inf


@dataclass(frozen=True, slots=True)
class _Release:
    """A principal that has not come back loses its alias."""

    name: str
    alias: _Alias


class StaticForwardingService(Worker):
    """The static forwarding service: gives names to routes."""

    on_failure = "resume"

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._aliases: dict[str, _Alias] = {}
        self._names: dict[Cell, str] = {}

    @cached_property
    def _allowance(self) -> Allowance:
        """Made for the first who asks: at most nodes nobody does."""
        return Allowance()

    def handle(self, message: Delivery | _Release, sender: Cell | None) -> None:
        """Take requests, and the ends of the time that a name is kept."""
        match message:
            case Delivery(origin=origin, messages=messages):
                for wire in messages:
                    self._request(origin, wire)
            case _Release(name=name, alias=alias):
                if self._aliases.get(name) is alias and alias.cell is None:
                    self._forget(name, alias)
            case _:
                assert_never(message)

    def _request(self, origin: Origin, wire: WireMessage) -> None:
        context = self._context
        if wire.onward_route[0].value == API_ADDRESS:
            self._api_request(origin, wire)
            return
        try:
            name = decode_name(wire.payload)
        except CodecError as error:
            context.refuse("static_forwarding", error.code, origin, wire)
            return
        refusal = self._give(origin, wire, name)
        if refusal is not None:
            context.refuse("static_forwarding", refusal, origin, wire)
        else:
            answer = (wire.return_route, TEXT.encode(name))
            context.router.reply(origin, PREFIX + name.encode(), [answer])

    def _api_request(self, origin: Origin, wire: WireMessage) -> None:
        context = self._context
        try:
            request = api.decode_request(wire.payload)
        except CodecError as error:
            context.refuse("static_forwarding", error.code, origin, wire)
            return
        answer_id = int.from_bytes(context.entropy(2), "big")
        try:
            name = read_name(request.body or b"")
        except CodecError:
            name = ""
        refusal: str | None
        if request.method != api.POST:
            refusal, status = "method_not_allowed", api.METHOD_NOT_ALLOWED
        elif request.path or not name:
            refusal, status = "bad_request", api.BAD_REQUEST
        else:
            refusal = self._give(origin, wire, name)
            status = api.OK if refusal is None else STATUSES.get(refusal, api.SERVER_ERROR)
        if refusal is None:
            payload = api.encode_answer(request, answer_id, status, PREFIX + name.encode())
        else:
            context.refuse("static_forwarding", refusal, origin, wire)
            payload = api.encode_error(request, answer_id, status, refusal)
        context.router.reply(origin, API_ADDRESS, [(wire.return_route, payload)])

    def _give(self, origin: Origin, wire: WireMessage, name: str) -> str | None:
        """Give the asker an alias; return why not."""
        held = self._aliases.get(name)
        if not leads_out(self._context.router, origin, wire.return_route):
            return "return_route"
        if held is not None and not self._may_replace(held, origin):
            return "alias_taken"
        if not (held or self._allowance.permits(origin)):
            return "too_many_aliases"
        if held is not None:
            self._forget(name, held)
        self._assign(origin, wire, name)
        return None

    def _may_replace(self, held: _Alias, origin: Origin) -> bool:
        if held.origin is origin or self.system.timing.monotonic() >= held.kept_until:
            return True
        return held.principal == origin.principal != ANONYMOUS

    def _assign(self, origin: Origin, wire: WireMessage, name: str) -> None:
        context = self._context
        address = PREFIX + name.encode()
        factory = partial(
            Forwarder, context.router, address, origin, wire.return_route, self._ended
        )
        cell = context.system.spawn(factory, parent=self.address)
        self._allowance.take(origin, cell)
        self._aliases[name] = _Alias(origin.principal, origin, cell)
        self._names[cell] = name
        context.router.register(address, cell)

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
        if name is None or self.address.exited:
            return
        alias = self._aliases[name]
        self._forget(name, alias)
        if alias.principal != ANONYMOUS:
            until = self.system.timing.monotonic() + ALIAS_KEPT_SECONDS
            kept = self._aliases[name] = _Alias(alias.principal, None, None, until)
            self._allowance.reserve(alias.principal)
            self.wake_after(ALIAS_KEPT_SECONDS, _Release(name, kept))
