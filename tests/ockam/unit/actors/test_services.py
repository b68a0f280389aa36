"""The hub's services: what they forward, what they keep and for how long, what they refuse."""

from collections.abc import Callable

import pytest

from core_support import Core
from coroutines import run_with
from hub_support import HubPeer, slow, with_hub
from rillnode.actors.core.delivery import Slice
from rillnode.actors.ockam.catalog import addresses_of
from rillnode.actors.ockam.names import SERVICE_NAMES
from rillnode.codecs.limits import RECORDED_ROUTE_BYTES_MAX
from rillnode.codecs.ockam.hub import TEXT
from rillnode.codecs.ockam.limits import ALIAS_KEPT_SECONDS, ALIASES_PER_LINK_MAX
from rillnode.codecs.routing.routes import Address, Route, WireMessage, local

DEVICE = "noise:" + "11" * 32
STRANGER = "noise:" + "22" * 32

REGISTRATIONS: dict[str, Callable[[int], bytes]] = {
    "forwarding": lambda number: b"%d" % number,
    "static_forwarding": lambda number: TEXT.encode(f"alias {number}"),
    "pub_sub": lambda number: TEXT.encode(f"name {number}:topic"),
    "tracing": lambda number: b"%d" % number,
}
"""Requests to the services that keep something, each for something else."""

registering = pytest.mark.parametrize("service", REGISTRATIONS)


async def register(peer: HubPeer, service: str, number: int = 0) -> Address:
    """Register, and return the address that answered."""
    payload = REGISTRATIONS[service](number)
    (answer,) = await peer.ask(service, payload)
    assert answer.onward_route == (local("me"),)
    assert answer.payload == payload
    (address,) = answer.return_route
    return address


async def registers(peer: HubPeer, service: str, number: int = 0) -> bool:
    """Whether a registration is answered."""
    return bool(await peer.ask(service, REGISTRATIONS[service](number)))


# What comes through ------------------------------------------------------------------------------


@pytest.mark.parametrize("service", ["forwarding", "static_forwarding", "pub_sub"])
async def test_a_message_gets_the_route_in_place_of_the_alias(core: Core, service: str) -> None:
    device, sender = HubPeer(core), HubPeer(core)
    alias = await register(device, service)
    device.received.clear()
    sender.send((alias, local("inner"), Address(1, b"host:1")), b"payload", (local("asker"),))
    await core.settle()
    (message,) = device.received
    assert message.onward_route == (local("me"), local("inner"), Address(1, b"host:1"))
    assert message.return_route == (sender.link, local("asker"))
    assert message.payload == b"payload"


async def test_a_watcher_stands_in_the_way_and_tells(core: Core) -> None:
    watching, asking = HubPeer(core), HubPeer(core)
    watcher = await register(watching, "tracing")
    (answer,) = await asking.ask((watcher, local("echo")), b"payload")
    assert answer.onward_route == (local("me"),)
    assert answer.return_route == (watcher, local("echo"))
    assert [one.payload for one in watching.received] == [b"0", b"payload", b"payload"]
    # What goes nowhere is told as well.
    assert await asking.ask(watcher, b"nowhere") == []
    assert watching.received[-1].payload == b"nowhere"


async def test_messages_of_one_batch_keep_their_order(core: Core) -> None:
    device, sender = HubPeer(core), HubPeer(core)
    alias = await register(device, "forwarding")
    device.received.clear()
    for number in range(50):
        sender.send(alias, b"%d" % number)
    await core.settle()
    assert [one.payload for one in device.received] == [b"%d" % n for n in range(50)]


@pytest.mark.parametrize("service", ["forwarding", "pub_sub", "tracing"])
async def test_a_sender_is_held_until_the_receiver_has_taken_it(core: Core, service: str) -> None:
    device, sender = HubPeer(core), HubPeer(core)
    alias = await register(device, service)
    message = [one._replace(onward_route=(alias, local("echo"))) for one in device.received]
    part = Slice()
    core.router.route(sender.origin, message, tracked=part)
    assert part.unhandled == 1
    await core.settle()
    assert part.unhandled == 0


@pytest.mark.parametrize("service", ["forwarding", "static_forwarding"])
async def test_senders_are_held_while_the_receiver_is_slow(core: Core, service: str) -> None:
    device, sender = HubPeer(core), HubPeer(core)
    alias = await register(device, service)
    link = slow(device)
    for _ in range(3):
        sender.send(alias, bytes(1_000))
    await core.settle()
    assert len(device.received) == 4  # nothing is lost
    assert sender.origin.reserved_bytes == 3_000
    core.clock.advance(1.0)
    await core.settle()
    assert sender.origin.reserved_bytes == 3_000
    link.buffered_bytes = 0
    core.clock.advance(1.0)
    await core.settle()
    assert sender.origin.reserved_bytes == 0
    slow(device)
    sender.send(alias, bytes(1_000))
    await core.settle()
    await device.close()
    assert sender.origin.reserved_bytes == 0


@pytest.mark.parametrize("service", ["pub_sub", "tracing"])
async def test_a_slow_receiver_of_copies_misses_some_and_holds_nobody(
    core: Core, service: str
) -> None:
    receiver, sender = HubPeer(core), HubPeer(core)
    address = await register(receiver, service)
    link = slow(receiver)
    for _ in range(2):
        sender.send((address, sender.link), b"payload")
        await core.settle()
        link.buffered_bytes = 0
    assert [one.payload for one in receiver.received[1:]] == [b"payload"]
    assert core.router.undelivered["congested"] == 1
    assert sender.origin.reserved_bytes == 0
    assert len(sender.received) == 2 * (service == "tracing")


# How long it is kept -----------------------------------------------------------------------------


@registering
async def test_what_was_registered_ends_with_its_connection(core: Core, service: str) -> None:
    device = HubPeer(core)
    actors = core.system.life.population
    address = await register(device, service)
    assert core.router.lookup(address.value)
    await device.close()
    assert core.router.lookup(address.value) is None
    assert core.system.life.population == actors - 1  # the connection
    assert not device.origin.attached


@registering
async def test_a_connection_registers_only_so_many(core: Core, service: str) -> None:
    device, other = HubPeer(core, DEVICE), HubPeer(core, STRANGER)
    for number in range(ALIASES_PER_LINK_MAX):
        await register(device, service, number)
    assert not await registers(device, service, ALIASES_PER_LINK_MAX)
    assert core.router.undelivered["refused"] == 1
    await register(other, service, ALIASES_PER_LINK_MAX)
    await device.close()
    await register(HubPeer(core, STRANGER), service, ALIASES_PER_LINK_MAX + 1)


@registering
def test_a_principal_registers_only_so_many(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rillnode.actors.ockam.context.ALIASES_PER_PRINCIPAL_MAX", 3)

    async def test(core: Core) -> None:
        peers = [HubPeer(core, DEVICE) for _ in range(4)]
        for number, peer in enumerate(peers[:3]):
            await register(peer, service, number)
        assert not await registers(peers[3], service, 3)
        await register(HubPeer(core, STRANGER), service, 4)

    with_hub(test)


@registering
@pytest.mark.parametrize(
    "route",
    [
        (),
        (local("echo"), local("me")),
        (local("forward_to_x"),),
        (Address(1, b"127.0.0.1:4000"),),
        (local(b"TCP_H_0000000000000000"),),
    ],
)
async def test_a_route_is_kept_only_if_it_leads_out_through_its_own_connection(
    core: Core, service: str, route: Route
) -> None:
    device = HubPeer(core)
    messages = [
        (await device.ask("echo", REGISTRATIONS[service](0)))[0]._replace(
            onward_route=(local(service),), return_route=route
        )
    ]
    actors = core.system.life.population
    core.router.route(device.origin, messages)
    await core.settle()
    assert core.system.life.population == actors
    assert core.router.undelivered["refused"] == 1


@registering
async def test_what_comes_out_of_a_secure_channel_is_kept_as_long_as_that(
    core: Core, service: str
) -> None:
    carrier, channel = HubPeer(core), HubPeer(core, "ockam:" + "44" * 32)
    channel.origin.carrier = carrier.origin
    address = await register(channel, service)
    assert not carrier.origin.attached
    await channel.close()
    assert core.router.lookup(address.value) is None
    # Channels of one connection share its allowance.
    for number in range(ALIASES_PER_LINK_MAX):
        await register(carrier, service, number + 1)
    again = HubPeer(core, "ockam:" + "44" * 32)
    again.origin.carrier = carrier.origin
    assert not await registers(again, service, ALIASES_PER_LINK_MAX + 1)


@registering
async def test_a_long_route_is_not_kept(core: Core, service: str) -> None:
    device = HubPeer(core)
    hop = local("x" * 2_000)
    hops = RECORDED_ROUTE_BYTES_MAX // 2_000 + 1
    device.send(service, REGISTRATIONS[service](0), (hop,) * hops)
    await core.settle()
    assert device.received == []
    device.send(service, REGISTRATIONS[service](0), (hop,))
    await core.settle()
    assert len(device.received) == 1


# Static aliases ----------------------------------------------------------------------------------


async def test_a_principal_takes_its_alias_along_before_the_old_connection_ends(core: Core) -> None:
    old, new, sender = HubPeer(core, DEVICE), HubPeer(core, DEVICE), HubPeer(core)
    alias = await register(old, "static_forwarding")
    await register(new, "static_forwarding")
    await old.close()
    sender.send(alias, b"hello")
    await core.settle()
    assert new.received[-1].payload == b"hello"


@pytest.mark.parametrize("thief", ["anonymous", STRANGER])
@pytest.mark.parametrize("holder", ["anonymous", DEVICE])
async def test_a_stranger_cannot_take_an_alias_in_use(core: Core, holder: str, thief: str) -> None:
    device, stranger = HubPeer(core, holder), HubPeer(core, thief)
    alias = await register(device, "static_forwarding")
    assert not await registers(stranger, "static_forwarding")
    stranger.send(alias, b"hello")
    await core.settle()
    assert device.received[-1].payload == b"hello"


async def test_an_alias_is_kept_for_its_principal_for_a_while(core: Core) -> None:
    device, stranger = HubPeer(core, DEVICE), HubPeer(core, STRANGER)
    alias = await register(device, "static_forwarding")
    await device.close()
    assert core.router.lookup(alias.value) is None
    core.clock.advance(ALIAS_KEPT_SECONDS - 1.0)
    assert not await registers(stranger, "static_forwarding")
    again = HubPeer(core, DEVICE)
    await register(again, "static_forwarding")
    # The time runs anew from the end of the new connection.
    core.clock.advance(ALIAS_KEPT_SECONDS)
    await again.close()
    core.clock.advance(ALIAS_KEPT_SECONDS - 1.0)
    assert not await registers(stranger, "static_forwarding")
    core.clock.advance(1.0)
    await core.settle()
    await register(stranger, "static_forwarding")


def test_aliases_kept_for_a_principal_count_and_can_be_taken_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rillnode.actors.ockam.context.ALIASES_PER_PRINCIPAL_MAX", 2)

    async def test(core: Core) -> None:
        device = HubPeer(core, DEVICE)
        for number in range(2):
            await register(device, "static_forwarding", number)
        await device.close()
        again = HubPeer(core, DEVICE)
        assert not await registers(again, "static_forwarding", 2)
        await register(again, "static_forwarding", 1)
        core.clock.advance(ALIAS_KEPT_SECONDS)
        await core.settle()
        await register(again, "static_forwarding", 2)

    with_hub(test)


async def test_an_alias_that_nobody_has_named_is_free_when_its_connection_ends(core: Core) -> None:
    device = HubPeer(core)
    await register(device, "static_forwarding")
    await device.close()
    await register(HubPeer(core, STRANGER), "static_forwarding")


# Topics ------------------------------------------------------------------------------------------


async def test_a_subscription_replaces_the_one_of_its_name_and_principal(core: Core) -> None:
    first, second = HubPeer(core, DEVICE), HubPeer(core, DEVICE)
    other, publisher = HubPeer(core, STRANGER), HubPeer(core)
    topic = local("pub_sub_t_topic")
    for peer in (first, second, other):
        assert await register(peer, "pub_sub") == topic
        peer.received.clear()
    publisher.send(topic, b"news")
    await core.settle()
    assert [len(peer.received) for peer in (first, second, other)] == [0, 1, 1]
    await first.close()
    await second.close()
    publisher.send(topic, b"news")
    await core.settle()
    assert len(other.received) == 2
    await other.close()
    assert core.router.lookup(topic.value) is None


@pytest.mark.parametrize("text", ["", ":", "name:", ":topic", "name", "a:b:c", "n:" + "t" * 513])
async def test_a_subscription_needs_a_name_and_a_topic(core: Core, text: str) -> None:
    assert await HubPeer(core).ask("pub_sub", TEXT.encode(text)) == []
    assert core.router.undelivered["refused"] == 1


# Which there are ---------------------------------------------------------------------------------


@run_with(enabled=("discovery", "uppercase"))
async def test_only_enabled_services_are_there(core: Core) -> None:
    peer = HubPeer(core)
    for name in SERVICE_NAMES:
        for address in addresses_of(name):
            known = core.router.lookup(address) is not None
            assert known == (name in ("uppercase", "discovery"))
    (listed,) = await peer.ask("discovery_service", b"\x00\x00")
    assert listed.payload[1] == 4
    assert b"echo" not in listed.payload
    assert listed.return_route == (local("discovery_service"),)


async def test_what_a_service_cannot_read_is_silent(core: Core) -> None:
    peer = HubPeer(core)
    for name in ("uppercase", "discovery"):
        assert await peer.ask(name, b"\xff\xff\xff") == []
    (answer,) = await peer.ask("uppercase", TEXT.encode("straße"))
    assert answer.payload == TEXT.encode("STRASSE")


# Interfaces --------------------------------------------------------------------------------------

API = "static_forwarding_api"


def post(name: bytes, *, method: int = 1, path: bytes = b"") -> bytes:
    """{1: 9, 2: path, 3: method, 4: true} and a body, as BARE data."""
    header = b"\xa4\x01\x09\x02" + bytes((0x60 + len(path),)) + path
    request = header + b"\x03" + bytes((method,)) + b"\x04\xf5" + name
    return bytes((len(request),)) + request


def answered(answer: WireMessage, status: int, body: bytes) -> bool:
    """Whether an answer is {1: any, 2: 9, 3: status, 4: true} and a body, from the interface."""
    head, _, rest = answer.payload.partition(b"\x02\x09\x03")
    code = bytes((0x18, status)) if status < 256 else b"\x19" + status.to_bytes(2, "big")
    assert answer.payload[0] == len(answer.payload) - 1
    assert head[1:].startswith(b"\xa4\x01")
    assert answer.return_route == (local(API),)
    return rest == code + b"\x04\xf5" + body


def text(reason: str) -> bytes:
    return bytes((0x60 + len(reason),)) + reason.encode()


async def test_the_interface_of_static_forwarding_gives_an_alias(core: Core) -> None:
    device, sender = HubPeer(core), HubPeer(core)
    (answer,) = await device.ask(API, post(b"lamp"))
    assert answered(answer, 200, b"forward_to_lamp")
    device.received.clear()
    sender.send("forward_to_lamp", b"payload")
    await core.settle()
    assert [one.payload for one in device.received] == [b"payload"]
    # It is the alias of the plain service, under the same rules.
    (refused,) = await sender.ask(API, post(b"lamp"))
    assert answered(refused, 409, text(":alias_taken"))
    assert await sender.ask("static_forwarding", TEXT.encode("lamp")) == []
    (again,) = await device.ask("static_forwarding", TEXT.encode("lamp"))
    assert again.return_route == (local("forward_to_lamp"),)


@pytest.mark.parametrize(
    ("request_", "status", "reason"),
    [
        (post(b"", method=0), 405, ":method_not_allowed"),
        (post(b"lamp", method=2), 405, ":method_not_allowed"),
        (post(b""), 400, ":bad_request"),
        (post(b"lamp").replace(b"\xf5", b"\xf4"), 400, ":bad_request"),
        (post(b"\xff"), 400, ":bad_request"),
        (post(b"lamp", path=b"/"), 400, ":bad_request"),
    ],
)
async def test_the_interface_answers_what_it_does_not_do(
    core: Core, request_: bytes, status: int, reason: str
) -> None:
    (answer,) = await HubPeer(core).ask(API, request_)
    assert answered(answer, status, text(reason))
    assert core.router.lookup(b"forward_to_lamp") is None
    assert core.router.undelivered["refused"] == 1
    assert await HubPeer(core).ask(API, b"\x05hello") == []


async def test_the_interface_has_the_service_s_limits(core: Core) -> None:
    peer = HubPeer(core)
    for number in range(ALIASES_PER_LINK_MAX):
        assert await registers(peer, "static_forwarding", number)
    (answer,) = await peer.ask(API, post(b"one more"))
    assert answered(answer, 500, text(":too_many_aliases"))
    peer.send(API, post(b"far"), (Address(0, b"x" * (RECORDED_ROUTE_BYTES_MAX + 1)),))
    await core.settle()
    assert answered(peer.received[-1], 400, text(":return_route"))
