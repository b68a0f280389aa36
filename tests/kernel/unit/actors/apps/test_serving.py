"""Addresses that clients serve: what comes to whom, who may, and that each call has one outcome."""

from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from core_support import Core, with_core
from coroutines import handed_by
from hub_support import HubPeer
from rillnode.actors.apps import serving
from rillnode.actors.apps.addresses import check_address
from rillnode.actors.core.access import ANONYMOUS, Grant
from rillnode.actors.core.delivery import Delivery
from rillnode.actors.core.router import UNKNOWN
from rillnode.actors.engine.faults import When
from rillnode.codecs import native
from rillnode.codecs.errors import RequestError
from rillnode.codecs.limits import (
    CALLS_OPEN_BYTES_MAX,
    CALLS_OPEN_MAX,
    LEASE_SECONDS_MAX,
    SERVED_MEMBERS_MAX,
    SERVED_PER_LINK_MAX,
)
from rillnode.codecs.routing.routes import Route, WireMessage, local
from rillnode.testing import fail

HOLDER, OTHER, CALLER, STRANGER = "noise:aa", "noise:bb", "noise:cc", "noise:dd"
LEASE = 10.0
NAME = b"printer"
LARGE = 4_194_304

GRANTS = (
    Grant(who=HOLDER, addresses="*", may=frozenset({"serve"})),
    Grant(who=OTHER, addresses="printer*", may=frozenset({"serve", "send"})),
    Grant(who=CALLER, addresses="*", may=frozenset({"send"})),
    Grant(who=ANONYMOUS, addresses="*", may=frozenset({"serve", "send"})),
)


class Client(HubPeer):
    """A native client: serves, calls, and notes what comes."""

    def __init__(self, core: Core, principal: str = CALLER, *, speaks_native: bool = True) -> None:
        super().__init__(core, principal, LARGE if speaks_native else 65_000)
        self.origin.native = speaks_native
        self.control = b""
        self.back: Route = (local("me"),)
        self.given: list[native.Call] = []
        self._taken = 0

    def token(self, number: int = 1) -> bytes:
        """Of its service with this number."""
        return bytes(8) + id(self).to_bytes(7, "big") + bytes([number % 256])

    async def requested(self, to: str | bytes, request: native.Request) -> native.Response:
        """Ask, and return the one answer that is no call."""
        self.received.clear()
        self.send(to, native.encode(request), self.back)
        await self.core.settle()
        answers = self.received[:]
        responses = [(native.decode_response(one.payload), one) for one in answers]
        ((response, wire),) = [
            one for one in responses if not isinstance(one[0], native.CallsResponse)
        ]
        if isinstance(response, native.DoneResponse) and wire.return_route:
            self.control = wire.return_route[0].value
        return response

    async def serve(
        self,
        address: bytes = NAME,
        *,
        number: int = 1,
        token: bytes = b"",
        group: bool = False,
        calls_max: int = 64,
        lease: float = LEASE,
    ) -> str:
        """Serve an address; return the code of the refusal, or an empty text."""
        token = token or self.token(number)
        request = native.ServeRequest(number, address, token, group, calls_max, round(lease * 1000))
        response = await self.requested("serve", request)
        assert response.request_id == number
        return response.code if isinstance(response, native.Failure) else ""

    def calls(self) -> list[native.Call]:
        """What has come since the last look."""
        fresh, self.received[:] = self.received[:], []
        found = [native.decode_response(one.payload) for one in fresh]
        calls = [
            call for one in found if isinstance(one, native.CallsResponse) for call in one.calls
        ]
        self.given += calls
        return calls

    async def answer(
        self,
        call: native.Call,
        payload: bytes | None,
        code: str = "",
        text: str = "",
        *,
        number: int = 1,
    ) -> None:
        answer = native.AnswerRequest(number, call.call_id, payload, code, text)
        self.send(self.control, native.encode(answer))
        await self.core.settle()

    async def call(self, payload: bytes = b"page", *, to: bytes = NAME, back: str = "me") -> None:
        """Send a message to a served address."""
        self.send(to, payload, (local(back),))
        await self.core.settle()

    def outcomes(self) -> list[bytes | str]:
        """Answers, and codes of failures, that have come since the last look."""
        fresh, self.received[:] = self.received[:], []
        return [_outcome(one) for one in fresh]


def _outcome(wire: WireMessage) -> bytes | str:
    if not native.is_native(wire.payload):
        return wire.payload
    response = native.decode_response(wire.payload)
    assert isinstance(response, native.Failure), response
    return response.code


def with_serving(test: Callable[[Core, serving.ServingContext], Awaitable[None]]) -> None:
    async def run(core: Core) -> None:
        for grant in GRANTS:
            core.access.add(grant)
        context = serving.ServingContext(
            core.system, core.router, core.access, core.context.entropy
        )
        service = core.system.spawn(lambda: serving.ServingService(context))
        core.router.register(serving.ADDRESS, service)
        await core.settle()
        await test(core, context)

    with_core(run)


core = handed_by(with_serving)
context = handed_by(with_serving, 1)


# Calls -------------------------------------------------------------------------------------------


async def test_a_message_comes_to_who_serves_and_its_answer_back(
    core: Core, context: serving.ServingContext
) -> None:
    printer, caller = Client(core, HOLDER), Client(core)
    assert await printer.serve() == ""
    caller.send((local(NAME), local("tray")), b"page")
    await core.settle()
    (call,) = printer.calls()
    assert (call.payload, call.principal) == (b"page", CALLER)
    assert call.onward_route == [native.Hop(0, b"tray")]
    assert call.return_route == [native.Hop(*caller.link), native.Hop(0, b"me")]
    assert context.open_calls == 1
    await printer.answer(call, b"printed")
    (answer,) = caller.received
    assert answer.onward_route == (local("me"),)
    assert answer.return_route == (local(NAME),)
    assert answer.payload == b"printed"
    assert context.open_calls == 0


async def test_a_client_may_refuse_or_not_answer_and_answers_once(
    core: Core, context: serving.ServingContext
) -> None:
    printer, caller = Client(core, HOLDER), Client(core)
    await printer.serve()
    for _ in range(3):
        await caller.call()
    first, second, third = printer.calls()
    await printer.answer(first, None, "printer.paper", "no paper")
    assert caller.outcomes() == ["printer.paper"]
    await printer.answer(second, None)
    await printer.answer(third, b"printed")
    for call in (first, second, third):
        await printer.answer(call, b"again")
    assert caller.outcomes() == [b"printed"]
    assert context.open_calls == 0


async def test_nobody_else_answers_a_call(core: Core, context: serving.ServingContext) -> None:
    printer, caller, other = Client(core, HOLDER), Client(core), Client(core, OTHER)
    await printer.serve()
    await caller.call()
    (call,) = printer.calls()
    other.control = printer.control
    await other.answer(call, b"forged")
    stop = native.StopServingRequest(2, printer.token())
    assert isinstance(await other.requested(printer.control, stop), native.DoneResponse)
    assert caller.outcomes() == []
    await printer.answer(call, b"printed")
    await caller.call()
    assert caller.outcomes() == [b"printed"]
    assert len(printer.calls()) == 1


async def test_what_is_no_answer_costs_nobody_anything(
    core: Core, context: serving.ServingContext
) -> None:
    printer, caller = Client(core, HOLDER), Client(core)
    await printer.serve()
    await caller.call()
    (call,) = printer.calls()
    printer.send(printer.control, b"garbage")
    printer.send(printer.control, b"\x0frillnode_answergarbage")
    response = await printer.requested(printer.control, native.StatusRequest(7))
    assert isinstance(response, native.Failure)
    assert (response.request_id, response.code) == (7, "request.invalid")
    assert await printer.ask("serve", b"garbage")
    await printer.answer(call, b"printed")
    assert caller.outcomes() == [b"printed"]


async def test_a_sender_who_waits_for_nothing_is_told_nothing(
    core: Core, context: serving.ServingContext
) -> None:
    printer, caller = Client(core, HOLDER), Client(core)
    await printer.serve(calls_max=1)
    for _ in range(2):
        core.router.route(caller.origin, [WireMessage((local(NAME),), (), b"page")])
    await core.settle()
    (call,) = printer.calls()
    assert call.return_route == []
    await printer.answer(call, b"printed")
    assert (caller.received, context.open_calls) == ([], 0)
    assert core.router.undelivered["busy"] == 1


async def test_beyond_the_calls_that_may_be_open_callers_are_told_to_try_again(
    core: Core, context: serving.ServingContext
) -> None:
    printer, caller = Client(core, HOLDER), Client(core)
    await printer.serve(calls_max=2)
    for _ in range(3):
        await caller.call()
    first, _ = printer.calls()
    assert caller.outcomes() == ["actor.busy"]
    await printer.answer(first, b"printed")
    await caller.call()
    assert len(printer.calls()) == 1
    assert caller.outcomes() == [b"printed"]


async def test_a_service_has_so_many_open_calls_and_no_more(
    core: Core, context: serving.ServingContext
) -> None:
    printer, caller = Client(core, HOLDER), Client(core)
    assert await printer.serve(calls_max=CALLS_OPEN_MAX + 1) == "serve.limit"
    assert await printer.serve(calls_max=0) == "serve.limit"
    assert await printer.serve(calls_max=CALLS_OPEN_MAX) == ""
    message = WireMessage((local(NAME),), (caller.link, local("me")), b"page")
    core.router.route(caller.origin, [message] * (CALLS_OPEN_MAX + 3))
    await core.settle()
    assert len(printer.calls()) == context.open_calls == CALLS_OPEN_MAX
    assert caller.outcomes() == ["actor.busy"] * 3
    await printer.close()
    assert caller.outcomes() == ["call.lost"] * CALLS_OPEN_MAX
    assert context.open_calls == 0


async def test_large_calls_are_bounded_together_and_one_by_one(
    core: Core, context: serving.ServingContext
) -> None:
    printer, caller = Client(core, HOLDER), Client(core)
    await printer.serve()
    size = 4_000_000
    for _ in range(6):
        await caller.call(bytes(size))
    assert len(printer.calls()) == CALLS_OPEN_BYTES_MAX // size
    assert caller.outcomes() == ["actor.busy"] * (6 - CALLS_OPEN_BYTES_MAX // size)
    # Once they are answered others have room.
    for call in printer.given:
        await printer.answer(call, b"printed")
    assert caller.outcomes() == [b"printed"] * (CALLS_OPEN_BYTES_MAX // size)
    # What comes together goes on in messages that the link takes.
    message = WireMessage((local(NAME),), (caller.link, local("me")), bytes(size // 4))
    core.router.route(caller.origin, [message] * 9)
    await core.settle()
    assert len(printer.received) == 3
    assert all(len(one.payload) < LARGE for one in printer.received)
    assert len(printer.calls()) == 9
    # With what tells who has sent it, it does not fit the link of who serves.
    await caller.call(bytes(LARGE - 100))
    assert caller.outcomes() == ["message.size"]


async def test_an_answer_that_does_not_fit_the_link_of_who_asked_is_told(
    core: Core, context: serving.ServingContext
) -> None:
    printer, caller = Client(core, HOLDER), Client(core)
    caller.origin.message_bytes_max = 65_000
    await printer.serve()
    for size in (64_900, 65_000):
        await caller.call()
        (call,) = printer.calls()
        await printer.answer(call, bytes(size))
    assert caller.outcomes() == [bytes(64_900), "message.size"]


async def test_peers_that_speak_no_native_protocol_call_as_well_and_cannot_serve(
    core: Core, context: serving.ServingContext
) -> None:
    printer = Client(core, HOLDER)
    ockam = Client(core, ANONYMOUS, speaks_native=False)
    await printer.serve(calls_max=1)
    await ockam.call()
    await ockam.call()
    (call,) = printer.calls()
    await printer.answer(call, b"printed")
    await ockam.call()
    (call,) = printer.calls()
    await printer.answer(call, None, "printer.paper", "no paper")
    assert ockam.outcomes() == [b"printed"]
    request = native.ServeRequest(1, b"other", bytes(16), False, 1, 0)
    answers = await ockam.ask("serve", native.encode(request))
    assert not any(native.is_native(answer.payload) for answer in answers)
    assert core.router.lookup(b"other") is None


# Who may -----------------------------------------------------------------------------------------


async def test_without_a_grant_an_address_is_as_one_that_nobody_has(
    core: Core, context: serving.ServingContext
) -> None:
    printer, stranger = Client(core, HOLDER), Client(core, STRANGER)
    await printer.serve()
    request = native.encode(native.StatusRequest(7))
    for address in (NAME, b"nobody"):
        (answer,) = await stranger.ask(address, request)
        assert native.decode_response(answer.payload) == native.Failure.of(7, UNKNOWN)
    assert await stranger.serve(b"other") == "address.unknown"
    assert await Client(core, OTHER).serve(b"other") == "address.unknown"
    assert printer.calls() == []


def refused(address: str) -> str:
    with pytest.raises(RequestError) as caught:
        check_address(address)
    return caught.value.code


def test_addresses_that_a_node_uses_are_nobodys() -> None:
    nodes = [
        "node", "serve", "backup", "stream", "stream_index_service", "peer/core", "NX_H_00",
        "ST_S_0_events", "SRV_00", "0123456789abcdef",
    ]  # fmt: skip
    for address in nodes:
        assert refused(address) == "address.reserved", address
    for address in ("", "a" * 513, "a;b", "a=>b", "1#a", "a b", "a\n", "a*"):
        assert refused(address) == "address.invalid", address
    for address in ("printer", "site/m1", "Printer_2", "ä", "a" * 512):
        check_address(address)

    async def test(core: Core, context: serving.ServingContext) -> None:
        assert await Client(core, HOLDER).serve(b"peer/x") == "address.reserved"
        assert await Client(core, HOLDER).serve(b"a;b") == "address.invalid"

    with_serving(test)


async def test_an_address_that_is_served_is_taken(
    core: Core, context: serving.ServingContext
) -> None:
    printer, other, again = Client(core, HOLDER), Client(core, OTHER), Client(core, HOLDER)
    await printer.serve()
    assert await other.serve() == "address.taken"
    assert await other.serve(group=True) == "address.taken"
    assert await again.serve() == "address.taken"
    # Nor with the token of who shares it, should that be known.
    shared = Client(core, HOLDER)
    assert await shared.serve(b"printer-s", token=b"t" * 16, group=True) == ""
    refused = await other.serve(b"printer-s", token=b"t" * 16, group=True)
    assert refused == "address.taken"
    assert await other.serve(b"printer-s", group=True) == ""
    core.router.register(b"printer-2", printer.cell)
    assert await other.serve(b"printer-2") == "address.taken"
    core.router.register_resolver(b"printer/", lambda address, origin: None)
    assert await other.serve(b"printer/4") == "address.taken"
    assert await Client(core, HOLDER).serve(b"printer-3") == ""


async def test_a_link_serves_so_many_addresses(core: Core, context: serving.ServingContext) -> None:
    printer = Client(core, HOLDER)
    for number in range(SERVED_PER_LINK_MAX):
        assert await printer.serve(b"p%d" % number, number=number) == ""
    assert await printer.serve(b"more", number=200) == "serve.limit"
    assert core.router.lookup(b"more") is None
    # What it has it may renew.
    assert await printer.serve(b"p0", number=0) == ""
    assert await Client(core, HOLDER).serve(b"more") == ""
    await printer.close()
    assert context.links.total() == 1


@pytest.mark.parametrize(
    "wrong", [{"token": b"short"}, {"lease": LEASE_SECONDS_MAX + 1}, {"calls_max": 0}]
)
async def test_what_no_service_can_be_is_refused(
    core: Core, context: serving.ServingContext, wrong: dict[str, int]
) -> None:
    printer = Client(core, HOLDER)
    assert await printer.serve(**wrong) == "serve.limit"  # type: ignore[arg-type]
    assert core.router.lookup(NAME) is None


async def test_calls_only_go_back_the_way_that_the_request_came(
    core: Core, context: serving.ServingContext
) -> None:
    printer, victim = Client(core, HOLDER), Client(core)
    request = native.ServeRequest(1, NAME, bytes(16), False, 1, 0)
    wire = WireMessage((local("serve"),), (victim.link, local("me")), native.encode(request))
    core.router.route(printer.origin, [wire])
    await core.settle()
    assert victim.outcomes() == ["serve.route"]
    assert core.router.lookup(NAME) is None


async def test_a_right_that_ends_ends_the_service(
    core: Core, context: serving.ServingContext
) -> None:
    printer, caller = Client(core, HOLDER), Client(core)
    await printer.serve()
    await caller.call()
    printer.calls()
    core.access.replace([GRANTS[0]], [])
    await core.settle()
    assert printer.outcomes() == ["serve.revoked"]
    await caller.call()
    assert caller.outcomes() == ["call.lost", "address.unknown"]


async def test_a_right_that_ends_while_its_client_is_away_frees_the_address(
    core: Core, context: serving.ServingContext
) -> None:
    printer = Client(core, HOLDER)
    await printer.serve()
    await printer.close()
    core.access.replace([GRANTS[2]], [])
    await core.settle()
    assert await Client(core, OTHER).serve() == "address.taken"
    core.access.replace([GRANTS[0]], [])
    await core.settle()
    assert await Client(core, OTHER).serve() == ""


# Who comes and goes ------------------------------------------------------------------------------


async def test_a_client_that_vanishes_loses_its_calls_and_keeps_its_address_for_the_lease(
    core: Core, context: serving.ServingContext
) -> None:
    printer, caller = Client(core, HOLDER), Client(core)
    await printer.serve()
    await caller.call()
    (call,) = printer.calls()
    await printer.close()
    await caller.call()
    assert caller.outcomes() == ["call.lost", "peer.unreachable"]
    assert await Client(core, OTHER).serve() == "address.taken"
    # Its lateness changes nothing: who called was told.
    again = Client(core, HOLDER)
    assert await again.serve() == ""
    await again.answer(call, b"late")
    await caller.call()
    (call,) = again.calls()
    await again.answer(call, b"printed")
    assert caller.outcomes() == [b"printed"]
    await again.close()
    core.clock.advance(LEASE + 1)
    await core.settle()
    await caller.call()
    assert caller.outcomes() == ["address.unknown"]
    assert await Client(core, OTHER).serve() == ""
    assert context.principals.total() == 1


async def test_a_client_with_its_token_takes_its_own_place_over_another_link(
    core: Core, context: serving.ServingContext
) -> None:
    before, after, caller = Client(core, HOLDER), Client(core, HOLDER), Client(core)
    await before.serve(token=b"t" * 16)
    await caller.call()
    (call,) = before.calls()
    assert await after.serve(token=b"t" * 16) == ""
    assert caller.outcomes() == ["call.lost"]
    before.control = after.control
    await before.answer(call, b"late")
    await before.close()
    await caller.call()
    (call,) = after.calls()
    await after.answer(call, b"printed")
    assert caller.outcomes() == [b"printed"]


async def test_to_renew_keeps_open_calls(core: Core, context: serving.ServingContext) -> None:
    printer, caller = Client(core, HOLDER), Client(core)
    await printer.serve(token=b"t" * 16)
    await caller.call()
    (call,) = printer.calls()
    assert await printer.serve(token=b"t" * 16) == ""
    await printer.answer(call, b"printed")
    assert caller.outcomes() == [b"printed"]
    # Who asks anew, with another id, has forgotten what was open.
    await caller.call()
    assert await printer.serve(token=b"t" * 16, number=2) == ""
    assert caller.outcomes() == ["call.lost"]
    assert (context.links.total(), context.principals.total()) == (1, 1)


async def test_who_is_behind_other_nodes_has_to_renew(
    core: Core, context: serving.ServingContext
) -> None:
    printer, caller = Client(core, HOLDER), Client(core)
    printer.back = (local("connection there"), local("me"))
    assert await printer.serve(token=b"t" * 16, lease=0.0) == "serve.limit"
    assert await printer.serve(token=b"t" * 16) == ""
    for _ in range(3):
        core.clock.advance(LEASE - 1)
        await core.settle()
        assert await printer.serve(token=b"t" * 16) == ""
    await caller.call()
    assert len(printer.calls()) == 1
    core.clock.advance(LEASE + 1)
    await core.settle()
    assert caller.outcomes() == ["call.lost"]
    await caller.call()
    assert caller.outcomes() == ["address.unknown"]
    assert (context.links.total(), context.principals.total()) == (0, 0)


async def test_who_is_anonymous_keeps_no_address(
    core: Core, context: serving.ServingContext
) -> None:
    printer, caller = Client(core, ANONYMOUS), Client(core)
    await printer.serve()
    await printer.close()
    await caller.call()
    assert caller.outcomes() == ["address.unknown"]
    assert await Client(core, OTHER).serve() == ""


async def test_who_stops_is_given_no_call_and_answers_what_it_has(
    core: Core, context: serving.ServingContext
) -> None:
    printer, caller = Client(core, HOLDER), Client(core)
    await printer.serve()
    await caller.call()
    (call,) = printer.calls()
    stop = native.StopServingRequest(2, printer.token())
    assert await printer.requested(printer.control, stop) == native.DoneResponse(2)
    await caller.call()
    assert caller.outcomes() == ["address.unknown"]
    # Somebody else may serve it already.
    other = Client(core, OTHER)
    assert await other.serve() == ""
    await caller.call()
    assert (len(other.calls()), printer.calls()) == (1, [])
    await printer.answer(call, b"printed")
    assert caller.outcomes() == [b"printed"]
    stop = native.StopServingRequest(3, other.token())
    await other.answer(other.given[0], b"by the other")
    assert await other.requested(other.control, stop) == native.DoneResponse(3)
    await caller.call()
    assert caller.outcomes() == [b"by the other", "address.unknown"]
    assert core.router.lookup(other.control) is None
    assert (context.links.total(), context.principals.total()) == (0, 0)


async def test_a_group_shares_an_address_and_each_call_goes_to_one(
    core: Core, context: serving.ServingContext
) -> None:
    printers = [Client(core, principal) for principal in (HOLDER, OTHER, HOLDER)]
    caller = Client(core)
    for printer in printers:
        assert await printer.serve(group=True, calls_max=4) == ""
    assert await Client(core, OTHER).serve() == "address.taken"
    for number in range(12):
        await caller.call(b"%d" % number)
    taken = [[call.payload for call in printer.calls()] for printer in printers]
    assert [len(part) for part in taken] == [4, 4, 4]
    assert sorted(int(one) for part in taken for one in part) == list(range(12))
    await caller.call()
    assert caller.outcomes() == ["actor.busy"]
    # Who has the fewest open calls gets the next; who is gone, none.
    for call in printers[1].given[:2]:
        await printers[1].answer(call, b"printed")
    await printers[0].close()
    assert caller.outcomes() == [b"printed"] * 2 + ["call.lost"] * 4
    for _ in range(3):
        await caller.call()
    assert len(printers[1].calls()) == 2
    assert caller.outcomes() == ["actor.busy"]


async def test_who_is_as_free_as_others_takes_turns_with_them(
    core: Core, context: serving.ServingContext
) -> None:
    printers, caller = [Client(core, HOLDER) for _ in range(3)], Client(core)
    for printer in printers:
        await printer.serve(group=True)
    for _ in range(6):
        await caller.call()
        for printer in printers:
            for call in printer.calls():
                await printer.answer(call, b"printed")
    assert [len(printer.given) for printer in printers] == [2, 2, 2]


async def test_who_is_lost_after_it_has_stopped_keeps_nothing(
    core: Core, context: serving.ServingContext
) -> None:
    printer, caller = Client(core, HOLDER), Client(core)
    await printer.serve()
    await caller.call()
    printer.calls()
    await printer.requested(printer.control, native.StopServingRequest(2, printer.token()))
    await printer.close()
    assert caller.outcomes() == ["call.lost"]
    assert await Client(core, OTHER).serve() == ""


async def test_services_of_one_link_are_told_apart(
    core: Core, context: serving.ServingContext
) -> None:
    """They share an address, and came over one link, as all do that are behind one node."""
    link, caller = Client(core, HOLDER), Client(core)
    for number in (1, 2):
        link.back = (local(b"client %d" % number),)
        assert await link.serve(number=number, group=True) == ""
    await caller.call()
    (call,) = link.calls()
    mine, other = [(local(b"client %d" % number),) for number in (1, 2)]
    answer = native.encode(native.AnswerRequest(0, call.call_id, b"printed"))
    link.send(link.control, answer, other)
    await core.settle()
    assert caller.outcomes() == []
    link.send(link.control, answer, mine)
    await core.settle()
    assert caller.outcomes() == [b"printed"]
    await link.requested(link.control, native.StopServingRequest(3, link.token(1)))
    for _ in range(2):
        await caller.call()
    assert (len(link.calls()), caller.outcomes()) == (2, [])


async def test_a_group_has_a_limit(core: Core, context: serving.ServingContext) -> None:
    for _ in range(SERVED_MEMBERS_MAX):
        assert await Client(core, HOLDER).serve(group=True) == ""
    assert await Client(core, HOLDER).serve(group=True) == "serve.limit"


async def test_a_node_that_stops_takes_no_calls_and_lets_open_ones_be_answered(
    core: Core, context: serving.ServingContext
) -> None:
    printer, caller = Client(core, HOLDER), Client(core)
    await printer.serve()
    await caller.call()
    (call,) = printer.calls()
    context.draining = True
    await caller.call()
    assert caller.outcomes() == ["node.draining"]
    assert await Client(core, HOLDER).serve(b"other") == "node.draining"
    await printer.answer(call, b"printed")
    assert (caller.outcomes(), context.open_calls) == ([b"printed"], 0)


# Failures of the node's own ----------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
async def test_an_actor_that_fails_gives_each_call_one_outcome_and_tells_who_serves(
    core: Core, context: serving.ServingContext, when: When
) -> None:
    printer, caller = Client(core, HOLDER), Client(core)
    await printer.serve()
    await caller.call(b"1", back="first")
    with fail(serving.ServedActor, Delivery, when=when):
        message = WireMessage((local(NAME),), (caller.link, local("second")), b"2")
        core.router.route(caller.origin, [message, message])
        await core.settle()
    came = Counter((one.onward_route, _outcome(one)) for one in caller.received)
    second = "actor.failed" if when == "before" else "call.lost"
    assert came == {((local("first"),), "call.lost"): 1, ((local("second"),), second): 2}
    printer.calls()
    assert context.open_calls == 0
    assert (context.links.total(), context.principals.total()) == (0, 0)
    assert await printer.serve() == ""


def test_an_actor_that_fails_in_the_middle_of_a_batch_tells_each_caller_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free = serving.ServedActor._free  # pyright: ignore[reportPrivateUsage]
    asked: list[int] = []

    def failing(self: serving.ServedActor, size: int) -> object:
        asked.append(size)
        if len(asked) == 3:
            raise ValueError("as told")
        return free(self, size)

    monkeypatch.setattr(serving.ServedActor, "_free", failing)

    async def test(core: Core, context: serving.ServingContext) -> None:
        printer, caller = Client(core, HOLDER), Client(core)
        await printer.serve()
        routes: list[Route] = [(caller.link, local(b"%d" % number)) for number in range(4)]
        messages = [WireMessage((local(NAME),), route, b"page") for route in routes]
        core.router.route(caller.origin, messages)
        await core.settle()
        came = Counter((one.onward_route[0].value, _outcome(one)) for one in caller.received)
        assert came == {(b"%d" % number, "actor.failed"): 1 for number in range(4)}
        assert context.open_calls == 0

    with_serving(test)


async def test_a_client_is_told_when_the_actor_fails_at_its_coming(
    core: Core, context: serving.ServingContext
) -> None:
    printer = Client(core, HOLDER)
    with fail(serving.ServedActor, serving.Join):
        assert await printer.serve() == "actor.failed"
    assert await printer.serve() == ""
