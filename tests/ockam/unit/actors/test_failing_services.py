"""A service that fails at a message fails at nothing else: what it counts and keeps stays true."""

from typing import get_args

import pytest

from core_support import Core
from hub_support import HubPeer, slow, with_hub
from rillnode.actors.engine.faults import When
from rillnode.actors.engine.worker import Worker
from rillnode.actors.ockam.forwarder import Forwarder
from rillnode.actors.ockam.forwarding import AliasService
from rillnode.actors.ockam.pub_sub import PubSubService
from rillnode.actors.ockam.static_forwarding import StaticForwardingService
from rillnode.actors.ockam.watcher import Watcher
from rillnode.codecs.ockam.hub import TEXT
from rillnode.codecs.ockam.limits import ALIAS_KEPT_SECONDS
from rillnode.node.simulation.leftovers import remembered
from rillnode.testing import fail, message_types

DEVICE = "noise:" + "11" * 32
STRANGER = "noise:" + "22" * 32

SERVICES: dict[str, tuple[type[Worker], bytes]] = {
    "forwarding": (AliasService, b"hello"),
    "tracing": (AliasService, b"hello"),
    "static_forwarding": (StaticForwardingService, TEXT.encode("alias")),
    "pub_sub": (PubSubService, TEXT.encode("name:topic")),
}

at_both_times = pytest.mark.parametrize("when", get_args(When))
at_each_service = pytest.mark.parametrize("service", SERVICES)


@at_both_times
@at_each_service
async def test_a_service_that_fails_at_a_request_serves_the_next(
    core: Core, service: str, when: When
) -> None:
    actor_class, request = SERVICES[service]
    device = HubPeer(core, DEVICE)
    with fail(actor_class, when=when) as fault:
        answers = await device.ask(service, request)
    assert fault.hits == 1
    assert len(answers) == (when == "after")
    (answer,) = await device.ask(service, request)
    assert answer.payload == request
    await device.close()
    assert list(remembered(core.system)) == []


@at_both_times
@pytest.mark.parametrize("service", ["forwarding", "static_forwarding", "pub_sub", "tracing"])
def test_an_alias_that_fails_at_a_message_hands_on_the_next(
    service: str, when: When, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rillnode.actors.ockam.context.ALIASES_PER_PRINCIPAL_MAX", 1)
    alias_class = Watcher if service == "tracing" else Forwarder
    assert message_types(alias_class)

    async def test(core: Core) -> None:
        device, sender = HubPeer(core, DEVICE), HubPeer(core)
        (answer,) = await device.ask(service, SERVICES[service][1])
        (alias,) = answer.return_route
        with fail(alias_class, when=when) as fault:
            sender.send(alias, b"lost")
            await core.settle()
        assert fault.hits == 1
        sender.send(alias, b"arrives")
        await core.settle()
        assert device.received[-1].payload == b"arrives"
        # Its end is noticed as if nothing had been.
        await device.close()
        assert core.router.lookup(alias.value) is None
        assert list(remembered(core.system)) == []

    with_hub(test)


@at_both_times
async def test_senders_are_let_go_on_by_a_forwarder_that_fails_while_it_holds_them(
    core: Core, when: When
) -> None:
    device, sender = HubPeer(core, DEVICE), HubPeer(core)
    (answer,) = await device.ask("forwarding", b"hello")
    link = slow(device)
    sender.send(answer.return_route[0], bytes(1_000))
    await core.settle()
    assert sender.origin.reserved_bytes == 1_000
    with fail(Forwarder, when=when) as fault:
        sender.send(answer.return_route[0], bytes(1_000))
        await core.settle()
    assert fault.hits == 1
    link.buffered_bytes = 0
    core.clock.advance(1.0)
    await core.settle()
    assert sender.origin.reserved_bytes == 0
    assert list(remembered(core.system)) == []


@at_both_times
async def test_a_name_is_free_after_its_time_though_the_service_failed_at_its_end(
    core: Core, when: When
) -> None:
    device, stranger = HubPeer(core, DEVICE), HubPeer(core, STRANGER)
    request = SERVICES["static_forwarding"][1]
    await device.ask("static_forwarding", request)
    await device.close()
    types = message_types(StaticForwardingService) or ()
    (release,) = (one for one in types if one.__name__ == "_Release")
    with fail(StaticForwardingService, release, when=when) as fault:
        core.clock.advance(ALIAS_KEPT_SECONDS)
        await core.settle()
    assert fault.hits == 1
    (answer,) = await stranger.ask("static_forwarding", request)
    assert answer.payload == request
