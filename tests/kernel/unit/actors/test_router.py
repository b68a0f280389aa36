"""The router: who gets what, and what is said of messages that reach nobody."""

from functools import partial
from typing import Any

import pytest

from core_support import Core
from rillnode.actors.apps.admission import address_guard
from rillnode.actors.core.access import Grant
from rillnode.actors.core.delivery import Delivery, Origin, Slice
from rillnode.actors.core.router import UNKNOWN
from rillnode.actors.core.streams.answers import not_done
from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.codecs import native
from rillnode.codecs.routing.routes import TCP, UDP, Address, Route, WireMessage, local
from rillnode.codecs.routing.stream import (
    PushConfirm,
    PushRequest,
    Status,
    decode_response,
    encode_request,
)

FRIEND = Origin("friend", 4_194_304, True)
STRANGER = Origin("stranger", 65_000, False)
ME = (local("me"),)


class Notes(Worker):
    def __init__(self, notes: list[WireMessage]) -> None:
        self._notes = notes

    def handle(self, message: Any, sender: Any) -> None:
        if isinstance(message, Delivery):
            self._notes += message.messages


class Returns(Worker):
    """Answers everything, whatever it is."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def handle(self, message: Any, sender: Any) -> None:
        if isinstance(message, Delivery):
            answers = [(wire.return_route, wire.payload) for wire in message.messages]
            self._core.router.reply(message.origin, b"returns", answers)


def register(core: Core, name: bytes) -> list[WireMessage]:
    notes: list[WireMessage] = []
    core.router.register(name, core.system.spawn(partial(Notes, notes)))
    return notes


def to(*route: Address, back: Route = ME, payload: bytes = b"x") -> WireMessage:
    return WireMessage(route, back, payload)


async def test_addresses_of_a_transport_are_resolved_for_each_origin(core: Core) -> None:
    register(core, b"me")
    found: list[WireMessage] = []
    cell = core.system.spawn(partial(Notes, found))
    asked: list[tuple[bytes, str]] = []

    def resolve(address: bytes, origin: Origin) -> Cell | None:
        asked.append((address, origin.principal))
        return cell if origin is FRIEND else None

    core.router.register_transport(TCP, resolve)
    hop = Address(TCP, b"h:1")
    for origin in (FRIEND, STRANGER, FRIEND):
        core.router.route(origin, [to(hop), to(hop), to(Address(UDP, b"h:1"))])
    await core.settle()
    assert asked == [(b"h:1", "friend"), (b"h:1", "stranger"), (b"h:1", "friend")]
    assert len(found) == 4
    assert core.router.undelivered == {"unknown_address": 5}
    # The same value as the name of a worker is another address.
    worker = register(core, b"h:1")
    core.router.route(STRANGER, [to(local("h:1"))])
    await core.settle()
    assert (len(worker), len(found)) == (1, 4)


async def test_who_understands_it_is_told_what_reached_nobody(core: Core) -> None:
    answers = register(core, b"me")
    request = native.encode(native.StatusRequest(9))
    core.router.route(FRIEND, [to(local("nobody")), to(local("nobody"), payload=request)])
    core.router.route(STRANGER, [to(local("nobody"))])
    await core.settle()
    failures = [native.decode_response(answer.payload) for answer in answers]
    text = "No such address, or it is not yours to use"
    assert failures == [native.Failure(n, "address.unknown", text) for n in (0, 9)]
    assert {answer.return_route for answer in answers} == {()}


@pytest.mark.parametrize("back", ["nobody", "returns"])
async def test_a_failure_is_never_answered_with_another(core: Core, back: str) -> None:
    core.router.register(b"returns", core.system.spawn(partial(Returns, core)))
    core.router.route(FRIEND, [to(local("nobody"), back=(local(back),))])
    core.router.route(FRIEND, [to(local("returns"), back=(local("nobody"),))])
    core.router.route(FRIEND, [to(local("nobody"), back=())])
    core.router.route(FRIEND, [to(back=(local(back),))])
    await core.settle()
    assert core.router.undelivered.total() < 10
    seen = core.router.undelivered.copy()
    await core.settle()
    assert core.router.undelivered == seen


# Actors that are made by their first message -----------------------------------------------------


class Failing(Worker):
    """Fails at each message as long as it is told to; answers all others."""

    on_failure = "stop"

    def __init__(self, core: Core, wants: list[bool], address: bytes) -> None:
        self._core = core
        self._wants = wants
        self._address = address

    def handle(self, message: Delivery, sender: Cell | None) -> None:
        if self._wants[0]:
            raise RuntimeError("planted")
        answers = [(wire.return_route, wire.payload) for wire in message.messages]
        self._core.router.reply(message.origin, self._address, answers)


class Demand:
    """Actors under `demand/`, and who asks them."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.fails = [True]
        self.made = 0
        self.answers = register(core, b"me")
        core.router.register_resolver(b"demand/", self.make)

    def make(self, address: bytes, _: Origin) -> Cell:
        self.made += 1
        return self.core.system.spawn(partial(Failing, self.core, self.fails, address))

    async def ask(self, address: str = "demand/a") -> native.Response:
        request = native.encode(native.StatusRequest(9))
        self.core.router.route(FRIEND, [to(local(address), payload=request)])
        await self.core.settle()
        (answer,) = self.answers
        self.answers.clear()
        if answer.payload == request:
            return native.DoneResponse(9)
        return native.decode_response(answer.payload)

    async def refused(self, address: str = "demand/a") -> float:
        """Seconds until the address may be asked again."""
        failure = await self.ask(address)
        assert isinstance(failure, native.Failure)
        assert (failure.code, failure.retryable) == ("actor.busy", True)
        return failure.retry_milliseconds / 1_000

    async def failed(self, address: str = "demand/a") -> None:
        failure = await self.ask(address)
        assert isinstance(failure, native.Failure)
        assert (failure.code, failure.retryable) == ("actor.failed", False)


async def test_after_an_actor_that_was_given_up_another_follows_after_growing_pauses(
    core: Core,
) -> None:
    demand = Demand(core)
    for pause in (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0):
        await demand.failed()
        made = demand.made
        assert await demand.refused() == pytest.approx(pause, abs=0.002)
        core.clock.advance(pause / 2)
        assert await demand.refused() == pytest.approx(pause / 2, abs=0.002)
        assert demand.made == made
        core.clock.advance(pause)
    demand.fails[0] = False
    assert await demand.ask() == native.DoneResponse(9)
    core.clock.advance(60.0)
    demand.fails[0] = True
    await demand.failed()
    assert await demand.refused() == pytest.approx(0.1, abs=0.002)
    assert core.router.undelivered["busy"] == 2 * 11 + 1


async def test_a_pause_is_one_address_s_alone(core: Core) -> None:
    demand = Demand(core)
    await demand.failed("demand/a")
    await demand.refused("demand/a")
    demand.fails[0] = False
    assert await demand.ask("demand/b") == native.DoneResponse(9)


async def test_an_actor_that_has_ended_by_itself_is_followed_at_once(core: Core) -> None:
    demand = Demand(core)
    demand.fails[0] = False
    for made in (1, 2, 3):
        assert await demand.ask() == native.DoneResponse(9)
        assert demand.made == made
        cell = core.router.lookup(b"demand/a")
        assert cell is not None
        core.system.exit(cell)
        await core.settle()


async def test_who_speaks_ockam_s_protocols_is_told_of_a_pause_in_their_words(core: Core) -> None:
    demand = Demand(core)
    core.router.register_refusal(b"demand/", not_done)
    await demand.failed()
    push = encode_request(PushRequest(7, b"x"))
    core.router.route(STRANGER, [to(local("demand/a"), payload=push)])
    await core.settle()
    (answer,) = demand.answers
    assert decode_response(answer.payload) == PushConfirm(7, Status.ERROR, 0)


async def test_an_address_that_is_nobody_s_to_make_is_unknown_when_its_actor_is_given_up(
    core: Core,
) -> None:
    demand = Demand(core)
    core.router.register(b"fixed", demand.make(b"fixed", FRIEND))
    await demand.failed("fixed")
    for _ in range(2):
        failure = await demand.ask("fixed")
        assert isinstance(failure, native.Failure)
        assert failure.code == "address.unknown"
    assert b"fixed" not in core.router.table


async def test_a_mailbox_that_is_full_refuses_and_says_so(core: Core) -> None:
    class Full(Failing):
        mailbox_messages_max = 2

    demand = Demand(core)
    demand.fails[0] = False
    cell = core.system.spawn(partial(Full, core, demand.fails, b"full"))
    core.router.register(b"full", cell)
    await core.settle()
    origin, part = Origin("friend", 4_194_304, True), Slice()
    for number in range(4):
        request = native.encode(native.StatusRequest(number))
        core.router.route(origin, [to(local("full"), payload=request)], tracked=part)
    await core.settle()
    refused = [
        response.request_id
        for answer in demand.answers
        if native.is_native(answer.payload)
        and not answer.return_route
        and isinstance(response := native.decode_response(answer.payload), native.Failure)
        and response.code == "actor.busy"
    ]
    assert refused == [2, 3]
    assert len(demand.answers) == 4
    assert part.unhandled == 0


async def test_who_may_not_send_to_an_address_is_answered_as_if_nobody_had_it(core: Core) -> None:
    told = register(core, b"me")
    core.access.add(Grant(who="friend", addresses="greeter*", may=frozenset({"send"})))
    found: list[WireMessage] = []
    cell = core.system.spawn(partial(Notes, found))
    core.router.register(b"greeter", cell, address_guard(core.access))
    stranger = Origin("stranger", 4_194_304, True)
    request = native.encode(native.StatusRequest(7))
    for name in ("greeter", "nobody"):
        core.router.route(stranger, [to(local(name), payload=request)])
    await core.settle()
    assert not found
    first, second = told
    assert first == second
    assert native.decode_response(first.payload) == native.Failure.of(7, UNKNOWN)
    core.router.route(FRIEND, [to(local("greeter"), payload=request)])
    await core.settle()
    assert len(found) == 1
    assert core.router.undelivered == {"refused": 1, "unknown_address": 1}
    core.router.unregister(b"greeter")
    core.router.route(FRIEND, [to(local("greeter"))])
    assert core.router.undelivered == {"refused": 1, "unknown_address": 2}
