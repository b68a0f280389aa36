"""The router: who gets what, and what is said of messages that reach nobody."""

from functools import partial
from typing import Any

import pytest

from core_support import Core, with_core
from rillnode.actors.delivery import Delivery, Origin
from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.codecs import native
from rillnode.codecs.ockam.routing import TCP, UDP, Address, Route, WireMessage, local

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


def test_addresses_of_a_transport_are_resolved_for_each_origin() -> None:
    async def test(core: Core) -> None:
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

    with_core(test)


def test_who_understands_it_is_told_what_reached_nobody() -> None:
    async def test(core: Core) -> None:
        answers = register(core, b"me")
        request = native.encode(native.StatusRequest(9))
        core.router.route(FRIEND, [to(local("nobody")), to(local("nobody"), payload=request)])
        core.router.route(STRANGER, [to(local("nobody"))])
        await core.settle()
        failures = [native.decode_response(answer.payload) for answer in answers]
        text = "No such address, or it is not yours to use"
        assert failures == [native.Failure(n, "address.unknown", text) for n in (0, 9)]
        assert {answer.return_route for answer in answers} == {()}

    with_core(test)


@pytest.mark.parametrize("back", ["nobody", "returns"])
def test_a_failure_is_never_answered_with_another(back: str) -> None:
    async def test(core: Core) -> None:
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

    with_core(test)
