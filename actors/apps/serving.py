"""Addresses that clients serve: messages become calls, and their answers go back.

A client asks the address `serve` for an address. From then on a message to that is a call: it goes
to the client with an id, and the client's answer goes out from the address along the message's own
return route. So callers know the address and nothing of who serves it, how often its link was lost,
or whether others share it.

Each call has one outcome: the client's answer, its refusal, or `call.lost` when its link is lost,
it gives up the address, or the actor here fails. A call that cannot be given to the client (too
many are open, or it is away) is refused at once: a slow client holds up nobody's link.

A client that is away keeps its address for the lease. It comes again with the token of its service,
or at least with the same principal; others are told that the address is taken.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import ClassVar, Final, assert_never

from msgspec import Struct

from rillnode.actors.apps.addresses import check_address
from rillnode.actors.apps.admission import address_guard
from rillnode.actors.core.access import ANONYMOUS, Access
from rillnode.actors.core.delivery import Delivery, LinkLost, Origin
from rillnode.actors.core.return_routes import leads_out
from rillnode.actors.core.rights import RightsChanged
from rillnode.actors.core.router import UNKNOWN, Router, told
from rillnode.actors.core.streams.answers import failed, invalid_request, is_error
from rillnode.actors.core.tally import Tally
from rillnode.actors.engine.described import Described
from rillnode.actors.engine.system import AsyncioSystemBase, Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.ports import Entropy, TimerHandle
from rillnode.codecs import native
from rillnode.codecs.errors import CodecError, RequestError, RillnodeError
from rillnode.codecs.events import event_logger
from rillnode.codecs.limits import (
    CALLS_OPEN_BYTES_MAX,
    CALLS_OPEN_MAX,
    CONNECTIONS_MAX,
    LEASE_SECONDS_MAX,
    SERVED_MEMBERS_MAX,
    SERVED_PER_LINK_MAX,
    SERVED_PER_PRINCIPAL_MAX,
)
from rillnode.codecs.requests import decode_request
from rillnode.codecs.routing.routes import Route, WireMessage, local
from rillnode.codecs.routing.wire import message_bytes, overhead_bytes_max

logger = event_logger("rillnode.actors.apps.serving")

ADDRESS: Final = b"serve"

PREFIX: Final = b"SRV_"
"""Begins the address of each service, to which only its clients send."""

TOKEN_BYTES: Final = 16

CODE_CHARACTERS_MAX: Final = 64
TEXT_CHARACTERS_MAX: Final = 1_000
"""Of why a client refuses a call; more is cut off."""

SMALL_BYTES: Final = 32_768
"""Answers up to this fit every link."""

_CALLS_BYTES: Final = 64
"""What a message with calls has at most beside them and its routes."""

_CALL_BYTES: Final = 48
"""What a call has at most beside its principal, routes and payload."""

_HOP_BYTES: Final = 12

_DIRECT_HOPS: Final = 2
"""Of the way back to a client: its connection, and its own address."""

_EARLY_SECONDS: Final = 0.01
"""A timer may be so much before its time, by rounding: there is none after it."""

_TAKEN: Final = RequestError(
    "address.taken",
    "Another client serves this address: choose another one, or let all of them say group=True",
)
_REVOKED: Final = RequestError(
    "serve.revoked",
    "The right to serve this address has ended: ask for a grant, and serve it again",
)
_STOPPED: Final = RequestError("serve.stopped", "This service was stopped at its address")
_DRAINING: Final = RequestError("node.draining", "The node is stopping: try again", retryable=True)
_AWAY: Final = RequestError(
    "peer.unreachable", "The client that serves this address is away: try again", retryable=True
)
_BUSY: Final = RequestError(
    "actor.busy", "Whoever serves this address has all calls open: try again", retryable=True
)
_LOST: Final = RequestError(
    "call.lost", "The client that had this call is gone; it may have done what was asked"
)


@dataclass(slots=True)
class ServingContext:
    """The node's parts that services work with.

    Attributes:
        draining: the node is stopping: no new calls are taken.
        open_calls: of all services.
        served: the actors of addresses, which take themselves out.
        links: how many addresses each link serves.
        principals: how many each principal keeps.
    """

    system: AsyncioSystemBase
    router: Router
    access: Access
    entropy: Entropy
    draining: bool = False
    open_calls: int = 0
    served: dict[bytes, Cell] = field(default_factory=dict[bytes, Cell])
    links: Tally[Origin] = field(default_factory=Tally)
    principals: Tally[str] = field(default_factory=Tally)

    def __post_init__(self) -> None:
        """Have askers told of whose request nothing comes."""
        self.system.outcomes[Join] = self._not_joined

    def answer(self, join: "Join", payload: bytes, own_address: bytes = ADDRESS) -> None:
        """Answer who asks for an address."""
        self.router.reply(join.origin, own_address, [(join.return_route, payload)])

    def _not_joined(self, join: "Join", error: RillnodeError) -> None:
        self.answer(join, failed(join.request.request_id, told(error)))


class Join(Struct, frozen=True):
    """A client wants to serve an address, and may."""

    origin: Origin
    return_route: Route
    request: native.ServeRequest


class ServingService(Worker):
    """Gives addresses to clients, at `serve`; each is an actor of its own."""

    on_failure = "resume"

    def __init__(self, context: ServingContext) -> None:
        self._context = context

    def handle(self, message: Delivery, sender: Cell | None) -> None:
        """Take requests."""
        for wire in message.messages:
            self._request(message.origin, wire)

    def _request(self, origin: Origin, wire: WireMessage) -> None:
        router = self._context.router
        try:
            request = decode_request(wire.payload, speaks_native=origin.native)
        except CodecError as error:
            if not is_error(error):
                router.reply(origin, ADDRESS, [(wire.return_route, invalid_request(error))])
            return
        if not isinstance(request, native.ServeRequest):
            router.reply(origin, ADDRESS, [(wire.return_route, invalid_request(request))])
            return
        join = Join(origin, wire.return_route, request)
        refusal = self._refusal(join)
        if refusal is not None:
            self._context.answer(join, failed(request.request_id, refusal))
        else:
            self.system.post(self._cell(request.address, origin.principal), join)

    def _refusal(self, join: Join) -> RequestError | None:
        """Why a client may not have an address, whoever has it now."""
        context, request = self._context, join.request
        address, principal = request.address, join.origin.principal
        if "serve" not in context.access.address_verbs(principal, address):
            return UNKNOWN
        try:
            check_address(address.decode(errors="replace"))
        except RequestError as error:
            return error
        if not leads_out(context.router, join.origin, join.return_route):
            return RequestError("serve.route", "Calls can only go back the way that this came")
        if len(request.token) != TOKEN_BYTES:
            return RequestError("serve.limit", f"A service's token has {TOKEN_BYTES} bytes")
        if not 0 < request.calls_max <= CALLS_OPEN_MAX:
            text = f"A service has 1 to {CALLS_OPEN_MAX:,} open calls, not {request.calls_max:,}"
            return RequestError("serve.limit", text)
        if request.lease_milliseconds > 1_000 * LEASE_SECONDS_MAX:
            text = f"An address is kept for at most {LEASE_SECONDS_MAX:,.0f} s"
            return RequestError("serve.limit", text)
        if _is_far(join) and not request.lease_milliseconds:
            return RequestError("serve.limit", "From behind other nodes a service needs a lease")
        if context.draining:
            return _DRAINING
        found = context.router.lookup(address)
        if found is not None and found is not context.served.get(address):
            return _TAKEN
        if found is None and context.router.makes(address):
            return _TAKEN
        if found is None and context.principals[principal] >= SERVED_PER_PRINCIPAL_MAX:
            text = f"{principal} serves {SERVED_PER_PRINCIPAL_MAX:,} addresses already"
            return RequestError("serve.limit", text)
        return None

    def _cell(self, address: bytes, principal: str) -> Cell:
        """The actor of an address; a new one where nobody serves it."""
        served = self._context.served
        cell = served.get(address)
        if cell is None or cell.exited:
            factory = partial(ServedActor, self._context, address, principal)
            cell = served[address] = self.system.spawn(factory, parent=self.address)
        return cell


@dataclass(slots=True, eq=False)
class _Member:
    """A client that serves an address.

    Attributes:
        room: bytes of calls in one message to it.
        expires: when it is taken for lost unless it asks again; never, where its link tells.
        leaving: it takes no more calls.
    """

    origin: Origin
    return_route: Route
    request: native.ServeRequest
    room: int
    expires: float
    calls: "dict[int, _Call]" = field(default_factory=dict[int, "_Call"])
    calls_bytes: int = 0
    leaving: bool = False

    def renewed_by(self, join: Join) -> bool:
        """Whether it asks as before, over the same way: what it has it will answer."""
        same_id = join.request.request_id == self.request.request_id
        return same_id and self.is_at(join.origin, join.return_route)

    def is_at(self, origin: Origin, route: Route) -> bool:
        """Whether a message that leads back there is from it."""
        return origin is self.origin and route == self.return_route

    def takes(self, size: int) -> bool:
        """Whether a call of this size may be given to it."""
        calls = self.calls
        if self.leaving or len(calls) >= self.request.calls_max:
            return False
        fits = self.calls_bytes + size <= CALLS_OPEN_BYTES_MAX
        link = self.origin.account.link
        return not calls or (fits and (link is None or link.buffered_bytes < CALLS_OPEN_BYTES_MAX))


class _Call(Struct, eq=False):
    """A message that a client has, and has not answered.

    Attributes:
        origin: of the message.
        asked: the message, without its payload unless that is a request of ours.
        size: of its payload.
        member: who has it.
        delivery: with what it came.
    """

    call_id: int
    origin: Origin
    asked: WireMessage
    size: int
    member: _Member
    delivery: Delivery


@dataclass(frozen=True, slots=True)
class _LeaseOver:
    """Whoever is away has not come back."""


ServedMessage = Delivery | Join | LinkLost | RightsChanged | _LeaseOver
"""What the actor of a served address takes."""


class ServedActor(Worker):
    """One served address: its clients, and the calls that they have.

    It ends when nobody serves it any more and the lease is over, and at its first failure: its
    clients are told, and serve anew.

    Args:
        context: the node's parts.
        own_address: what it is called.
        principal: who keeps it while nobody is connected.
    """

    mailbox_messages_max = 8_192
    spare: ClassVar = {LinkLost: CONNECTIONS_MAX}
    on_failure = "stop"

    def __init__(self, context: ServingContext, own_address: bytes, principal: str) -> None:
        self._context = context
        self._own_address = own_address
        self._control = PREFIX + context.entropy(8).hex().encode()
        self._own = (local(own_address),)
        self._principal = principal
        self._group = False
        self._lease_seconds = 0.0
        self._members: dict[bytes, _Member] = {}
        self._calls: dict[int, _Call] = {}
        self._next_id = 1
        self._lease: TimerHandle | None = None
        self._kept_until = 0.0
        self._made_at = 0.0
        self._taking: Delivery | None = None

    def started(self) -> None:
        """Take both addresses."""
        self._made_at = self.system.timing.monotonic()
        context = self._context
        admits = address_guard(context.access)
        context.router.register(self._own_address, self.address, admits)
        context.router.register(self._control, self.address)
        context.access.rights.watch(self._own_address, self.address)
        context.principals[self._principal] += 1

    def handle(self, message: ServedMessage, sender: Cell | None) -> None:
        """Take calls, answers, clients that come and go, and the end of the lease."""
        match message:
            case Delivery():
                self._taking = message
                if message.messages[0].onward_route[0].value == self._control:
                    self._answers(message)
                else:
                    self._take(message)
                self._taking = None
            case Join():
                self._join(message)
            case LinkLost(origin=origin):
                lost = [one for one in self._members.values() if one.origin is origin]
                for member in lost:
                    self._remove(member)
                self._look(kept=not all(member.leaving for member in lost))
            case RightsChanged():
                self._revise()
            case _LeaseOver():
                due = self.system.timing.monotonic() + _EARLY_SECONDS
                for member in [one for one in self._members.values() if one.expires <= due]:
                    self._remove(member)
                if self._kept_until <= due:
                    self._lease = None
                self._look(kept=False)
            case _:
                assert_never(message)

    def stopped(self) -> None:
        """Tell whoever waits, and give the addresses back."""
        context = self._context
        members = list(self._members.values())
        # Those of the message at which it has failed are told by the actor system.
        for call in [one for one in self._calls.values() if one.delivery is self._taking]:
            self._forget(call)
        for member in members:
            text = "The node has ended this service: serve anew"
            self._dismiss(member, RequestError("actor.stopped", text, retryable=True))
        for address in (self._own_address, self._control):
            if context.router.table.get(address) is self.address:
                context.router.unregister(address)
        if context.served.get(self._own_address) is self.address:
            del context.served[self._own_address]
        context.access.rights.unwatch(self._own_address, self.address)
        context.principals.drop(self._principal)

    def described(self, address: bytes) -> Described | None:
        """The served address; that to which only its clients send is nobody's to know."""
        if address != self._own_address:
            return None
        name = f"group of {len(self._members)}" if self._group else "one client"
        return Described(
            "served",
            name,
            self._principal,
            made_at=self._made_at,
            open_to="granted",
            stop=self._stop_all,
        )

    def _stop_all(self) -> None:
        """End the service: its clients are told, and do not serve anew."""
        for member in list(self._members.values()):
            self._dismiss(member, _STOPPED)
        self.system.exit(self.address)

    # Clients ---------------------------------------------------------------------------------

    def _may(self, principal: str) -> bool:
        return "serve" in self._context.access.address_verbs(principal, self._own_address)

    def _revise(self) -> None:
        """Somebody has lost a right: perhaps a client, or whoever keeps the address."""
        for member in list(self._members.values()):
            if not self._may(member.origin.principal):
                self._dismiss(member, _REVOKED)
        if self._lease is not None and not self._may(self._principal):
            self._lease.cancel()
            self._lease = None
        self._look(kept=False)

    @property
    def _serving(self) -> Iterator[_Member]:
        """Those that take calls."""
        return (member for member in self._members.values() if not member.leaving)

    def _join(self, join: Join) -> None:
        request, origin, context = join.request, join.origin, self._context
        refusal = self._not_joining(join)
        if refusal is not None:
            context.answer(join, failed(request.request_id, refusal))
            self._look()
            return
        before = self._members.get(request.token)
        if before is not None and not before.renewed_by(join):
            self._remove(before)
            before = None
        self._group, self._principal = request.group, self._held_by(origin.principal)
        self._lease_seconds = request.lease_milliseconds / 1_000
        own = (local(self._control),)
        room = origin.message_bytes_max - overhead_bytes_max(join.return_route, own) - _CALLS_BYTES
        expires = self._expires(join)
        if before is not None:
            before.expires = expires
        else:
            member = _Member(origin, join.return_route, request, room, expires)
            self._members[request.token] = member
            context.links[origin.account] += 1
        if self._lease is not None:
            self._lease.cancel()
            self._lease = None
        done = native.encode(native.DoneResponse(request.request_id))
        context.answer(join, done, self._control)
        origin.watch(self.address)  # also where the link is gone by now

    def _expires(self, join: Join) -> float:
        """When a client is taken for lost that is farther away than its link tells of."""
        if not _is_far(join):
            return inf
        self.wake_after(self._lease_seconds, _LeaseOver())
        return self.system.timing.monotonic() + self._lease_seconds

    def _held_by(self, principal: str) -> str:
        """Have the address held by a principal."""
        principals = self._context.principals
        if principal != self._principal:
            principals.drop(self._principal)
            principals[principal] += 1
        return principal

    def _not_joining(self, join: Join) -> RequestError | None:
        request, principal = join.request, join.origin.principal
        before = self._members.get(request.token)
        if before is not None and before.origin.principal != principal:
            return _TAKEN
        others = [one for one in self._serving if one is not before]
        shared = self._group and request.group
        if others and not shared:
            return _TAKEN
        if self._lease is not None and not (shared or principal == self._principal):
            return _TAKEN
        account = join.origin.account
        known = before is not None and before.origin.account is account
        if not known and self._context.links[account] >= SERVED_PER_LINK_MAX:
            text = f"A link serves {SERVED_PER_LINK_MAX} addresses at most"
            return RequestError("serve.limit", text)
        if len(others) >= SERVED_MEMBERS_MAX:
            text = f"{SERVED_MEMBERS_MAX} clients share this address already"
            return RequestError("serve.limit", text)
        return None

    def _dismiss(self, member: _Member, error: RequestError) -> None:
        """Tell a client that it does not serve any more."""
        answer = (member.return_route, failed(member.request.request_id, error))
        self._remove(member)
        if not member.origin.ended:
            self._context.router.reply(member.origin, self._control, [answer])

    def _remove(self, member: _Member) -> None:
        """Forget a client; whoever waits for it is told."""
        del self._members[member.request.token]
        self._context.links.drop(member.origin.account)
        if not any(one.origin is member.origin for one in self._members.values()):
            member.origin.unwatch(self.address)
        for call in list(member.calls.values()):
            self._forget(call)
            delivery = Delivery(call.origin, [call.asked])
            self._context.router.refuse("lost", delivery, _LOST)

    def _look(self, *, kept: bool = True) -> None:
        """End where nobody is left, after the lease where somebody may come back."""
        if self._members or self._lease is not None:
            return
        seconds = 0.0 if self._principal == ANONYMOUS else self._lease_seconds
        if kept and seconds > 0.0:
            self._kept_until = self.system.timing.monotonic() + seconds
            self._lease = self.wake_after(seconds, _LeaseOver())
        else:
            self.system.exit(self.address)

    # Calls -----------------------------------------------------------------------------------

    def _take(self, delivery: Delivery) -> None:
        """Give each message to a client, or refuse it."""
        context, origin = self._context, delivery.origin
        router = context.router
        if context.draining:
            router.refuse("draining", delivery, _DRAINING)
            return
        given: dict[_Member, list[tuple[native.Call, int]]] = {}
        for wire in delivery.messages:
            call = native.Call(
                self._next_id,
                origin.principal,
                _hops(wire.onward_route[1:]),
                _hops(wire.return_route),
                wire.payload,
            )
            size = _call_bytes(call)
            member = self._free(size)
            if isinstance(member, RequestError):
                self._refuse(delivery, wire, member)
                continue
            self._next_id += 1
            asked = wire if native.is_native(wire.payload) else wire._replace(payload=b"")
            open_call = _Call(call.call_id, origin, asked, len(wire.payload), member, delivery)
            self._calls[call.call_id] = member.calls[call.call_id] = open_call
            member.calls_bytes += len(wire.payload)
            context.open_calls += 1
            given.setdefault(member, []).append((call, size))
        for member, calls in given.items():
            self._give(member, calls)

    def _free(self, size: int) -> _Member | RequestError:
        """The client with the fewest calls that takes one more, each in turn; or why none does."""
        found: _Member | None = None
        serving, fitting = False, False
        for member in self._serving:
            serving = True
            if size > member.room:
                continue
            fitting = True
            if member.takes(size) and (found is None or len(member.calls) < len(found.calls)):
                found = member
        if found is not None:
            if self._group:
                token = found.request.token
                self._members[token] = self._members.pop(token)  # to the end of the row
            return found
        if not serving:
            return UNKNOWN if self._lease is None else _AWAY
        if fitting:
            return _BUSY
        return RequestError("message.size", "The message is too large for the link of who serves")

    def _refuse(self, delivery: Delivery, wire: WireMessage, error: RequestError) -> None:
        refused = Delivery(delivery.origin, [wire])
        if error is UNKNOWN:
            self._context.router.undeliverable("unknown_address", refused)
        else:
            self._context.router.refuse(error.code.rpartition(".")[2], refused, error)

    def _give(self, member: _Member, calls: Sequence[tuple[native.Call, int]]) -> None:
        """Send a client its calls, as many in a message as its link takes."""
        answers: list[tuple[Route, bytes]] = []
        together: list[native.Call] = []
        room = member.room
        for call, size in calls:
            if together and size > room:
                answers.append(self._packed(member, together))
                together, room = [], member.room
            together.append(call)
            room -= size
        answers.append(self._packed(member, together))
        self._context.router.reply(member.origin, self._control, answers)

    def _packed(self, member: _Member, calls: list[native.Call]) -> tuple[Route, bytes]:
        payload = native.encode(native.CallsResponse(member.request.request_id, calls))
        return member.return_route, payload

    def _forget(self, call: _Call) -> None:
        """A call has its outcome."""
        member = call.member
        del self._calls[call.call_id], member.calls[call.call_id]
        member.calls_bytes -= call.size
        self._context.open_calls -= 1

    # Answers ---------------------------------------------------------------------------------

    def _answers(self, delivery: Delivery) -> None:
        """Take what clients say: answers, and that they stop."""
        origin = delivery.origin
        for wire in delivery.messages:
            try:
                request = decode_request(wire.payload, speaks_native=origin.native)
            except CodecError as error:
                logger.info("bad_answer", extra={"code": error.code})
                continue
            match request:
                case native.AnswerRequest():
                    self._answer(origin, wire.return_route, request)
                case native.StopServingRequest():
                    self._stop(origin, wire, request)
                case _:
                    answer = (wire.return_route, invalid_request(request))
                    self._context.router.reply(origin, self._control, [answer])

    def _answer(self, origin: Origin, route: Route, request: native.AnswerRequest) -> None:
        call = self._calls.get(request.call_id)
        if call is None or not call.member.is_at(origin, route):
            return  # whoever waited was told that it is lost
        member = call.member
        self._forget(call)
        if request.code:
            code, text = request.code[:CODE_CHARACTERS_MAX], request.text[:TEXT_CHARACTERS_MAX]
            self._tell(call, RequestError(code, text))
        elif request.payload is not None:
            self._reply(call, request.payload)
        if member.leaving and not member.calls:
            self._remove(member)
            self._look(kept=False)

    def _reply(self, call: _Call, payload: bytes) -> None:
        route, origin = call.asked.return_route, call.origin
        if not route:
            return
        if len(payload) > SMALL_BYTES:
            limit = origin.message_bytes_max
            try:
                size = message_bytes(origin.wire_format, route[1:], self._own, len(payload))
            except CodecError:
                size = limit + 1
            if size > limit:
                text = (
                    f"The answer has {size:,} bytes with its routes, the next link takes {limit:,}"
                )
                self._tell(call, RequestError("message.size", text))
                return
        self._context.router.reply(origin, self._own_address, [(route, payload)])

    def _tell(self, call: _Call, error: RequestError) -> None:
        """Tell a caller why there is no answer, if he understands that."""
        if call.origin.native and call.asked.return_route:
            payload = native.failure_for(call.asked.payload, error)
            if payload is not None:
                answer = (call.asked.return_route, payload)
                self._context.router.reply(call.origin, self._own_address, [answer])

    def _stop(self, origin: Origin, wire: WireMessage, request: native.StopServingRequest) -> None:
        """Give a client no more calls; one that is away gives up its lease."""
        member = self._members.get(request.token)
        if member is not None and member.origin is origin:
            member.leaving = True
            if not member.calls:
                self._remove(member)
        done = native.encode(native.DoneResponse(request.request_id))
        self._context.router.reply(origin, self._control, [(wire.return_route, done)])
        if self._lease is not None and origin.principal == self._principal:
            self._lease.cancel()
            self._lease = None
        self._look(kept=False)


def _is_far(join: Join) -> bool:
    """Whether a client is behind other nodes than this one: its link is not this node's."""
    return len(join.return_route) > _DIRECT_HOPS


def _hops(route: Route) -> list[native.Hop]:
    return [native.Hop(*address) for address in route]


def _call_bytes(call: native.Call) -> int:
    hops = (*call.onward_route, *call.return_route)
    size = len(call.principal.encode()) + len(call.payload) + _CALL_BYTES
    return size + sum(_HOP_BYTES + len(hop.value) for hop in hops)
