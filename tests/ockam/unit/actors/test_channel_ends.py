"""Secure channels as actors: how they end, and what they may cost."""

import pytest

from channel_peer import ChannelPeer
from channel_support import (
    HANDSHAKE_SECONDS,
    IDLE_SECONDS,
    LISTENER,
    FakeLink,
    House,
    User,
    connection,
    frame,
    with_house,
)
from coroutines import run_with
from rillnode.actors.core.access import Grant
from rillnode.actors.core.links.connection import ConnectionActor
from rillnode.codecs.limits import ROUTE_HOPS_MAX, U16_MESSAGE_BYTES_MAX
from rillnode.codecs.ockam.channel_cipher import Level
from rillnode.codecs.routing.routes import WireMessage, encode_message, local

# Ends --------------------------------------------------------------------------------------------


async def test_an_unfinished_handshake_ends_in_time(house: House) -> None:
    user = User(house)
    (answer,) = await user.ask(LISTENER, user.end.message_1())
    house.core.clock.advance(HANDSHAKE_SECONDS)
    await house.core.settle()
    assert house.counters == {"channel.handshake_time": 1}
    assert not house.context.open
    assert house.core.router.lookup(answer.return_route[0].value) is None


async def test_a_channel_ends_when_it_is_idle_and_not_before(house: House) -> None:
    user = await User(house).open()
    for _ in range(5):
        house.core.clock.advance(IDLE_SECONDS - 1)
        await house.core.settle()
        assert len(await user.talk("echo", b"text")) == 1
    for _ in range(2):
        assert house.context.open
        house.core.clock.advance(IDLE_SECONDS)
        await house.core.settle()
    assert not house.context.open
    assert house.counters["channel.idle"] == 1
    assert await user.ask(user.route, user.inside("echo", b"text")) == []


def test_a_channel_ends_with_its_last_nonce(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Level, "nonce_end", property(lambda _: 3))

    async def test(house: House) -> None:
        user = await User(house, "elixir-2021").open()
        for number in range(3):
            sealed = user.end.seal(
                encode_message((local("echo"),), (local("app"),), b"a"), nonce=number
            )
            assert len(await user.ask(user.route, sealed)) == 1
        origin = house.origins[0]
        (cell,) = house.context.open
        plain = user.end.payload_2
        house.core.router.route(origin, [WireMessage((local(plain),), (), b"one too many")])
        await house.core.settle()
        assert house.counters == {"opened": 1, "channel.exhausted": 1}
        assert cell not in house.context.open

    with_house(test)


async def test_what_comes_for_the_peer_before_it_is_let_in_is_dropped(house: House) -> None:
    user = User(house)
    (answer,) = await user.ask(LISTENER, user.end.message_1())
    message = user.end.message_3(answer.payload)
    assert await user.ask((local(user.end.payload_2),), b"early") == []
    assert house.counters == {"channel.early": 1}
    assert await user.ask(answer.return_route, message) == []
    (sent,) = user.opened(await user.ask((local(user.end.payload_2), local("app")), b"now"))
    assert (sent.onward_route, sent.payload) == ((local("app"),), b"now")


async def test_a_message_whose_routes_are_too_long_is_dropped(house: House) -> None:
    user = await User(house).open()
    back = tuple(local(b"%d" % n) for n in range(ROUTE_HOPS_MAX + 1))
    message = WireMessage((local(user.end.payload_2),), back, b"text")
    house.core.router.route(user.peer.origin, [message])
    await house.core.settle()
    assert house.counters == {"opened": 1, "codec.limit": 1}
    assert len(await user.talk("echo", b"text")) == 1


async def test_channels_end_with_the_connection_that_carries_them(house: House) -> None:
    link = FakeLink()
    events = connection(house, link)
    end = ChannelPeer("2022")
    events.messages_received([frame("SC_listener", end.message_1())])
    await house.core.settle()
    answer = link.sent()
    events.messages_received([frame(answer.return_route, end.message_3(answer.payload))])
    await house.core.settle()
    assert len(house.context.open) == 1
    events.link_closed("gone")
    await house.core.settle()
    assert not house.context.open
    assert house.core.router.lookup(answer.return_route[0].value) is None


async def test_a_channel_ends_when_no_grant_names_its_principal_any_more(house: House) -> None:
    link = FakeLink()
    events = connection(house, link)
    ends = [ChannelPeer("2022"), ChannelPeer("2022"), ChannelPeer("2022")]
    access, channels = house.core.access, house.context.open
    access.rights.links = lambda: tuple(channels)
    granted = [
        Grant(who=f"ockam:{end.key}", streams="s", may=frozenset(["pull"])) for end in ends[:2]
    ]
    for grant in granted:
        access.add(grant)
    for end in ends:
        events.messages_received([frame("SC_listener", end.message_1())])
        await house.core.settle()
        answer = link.sent()
        events.messages_received([frame(answer.return_route, end.message_3(answer.payload))])
        await house.core.settle()
    access.replace(granted[:1], [])
    await house.core.settle()
    # Who never had any keeps its channel: what it may do was not taken away.
    assert len(channels) == 2
    assert house.counters == {"opened": 3, "channel.revoked": 1}


# What channels may cost --------------------------------------------------------------------------


@run_with(channels_max=4, channels_per_connection_max=2)
async def test_channels_of_a_connection_and_of_the_node_are_limited(house: House) -> None:
    users = [User(house), User(house)]
    for user in users:
        for _ in range(2):
            await User(house, peer=user.peer).open()
        assert await user.ask(LISTENER, ChannelPeer("2022").message_1()) == []
    assert house.counters == {"opened": 4, "channel.limit": 2}
    third = User(house)
    assert await third.ask(LISTENER, third.end.message_1()) == []
    assert house.counters["channel.limit"] == 3

    users[0].peer.origin.end()
    await house.core.settle()
    await User(house).open()


async def test_many_handshakes_of_one_read_are_done_one_in_a_turn(house: House) -> None:
    user = User(house)
    ends = [ChannelPeer("2022") for _ in range(8)]
    answers = await user.ask(LISTENER, *(end.message_1() for end in ends))
    for end, answer in zip(ends, answers, strict=True):
        end.message_3(answer.payload)
    handled = house.core.system.stats()["rillnode.actors.ockam.channel_listener.ChannelListener"]
    assert handled.handled >= len(ends)


@run_with(channels_per_connection_max=1)
async def test_a_channel_inside_another_counts_for_the_connection(house: House) -> None:
    outer = await User(house).open()
    assert await outer.talk("SC_listener", ChannelPeer("2022").message_1()) == []
    assert house.counters == {"opened": 1, "channel.limit": 1}


async def test_a_hundred_channels_leave_nothing_behind(house: House) -> None:
    peer = house.core.peer("anonymous", native_too=False)
    before = house.population
    for number in range(100):
        # Every second one is given up before message 3.
        user = User(house, "2022", peer)
        (answer,) = await user.ask(LISTENER, user.end.message_1())
        if number % 2:
            await user.ask(answer.return_route, user.end.message_3(answer.payload))
        (cell,) = house.context.open
        house.core.system.exit(cell)
        await house.core.settle()
        assert house.core.router.lookup(answer.return_route[0].value) is None
        if number % 2:
            assert house.core.router.lookup(user.end.payload_2) is None
    assert not house.context.open
    assert not peer.origin.attached
    assert house.population == before


async def test_messages_too_large_for_the_peer_are_dropped_and_the_rest_fits(house: House) -> None:
    user = await User(house).open()
    await user.talk("echo", b"")
    limit = house.origins[0].message_bytes_max
    plain = (local(user.end.payload_2),)
    header = encode_message(plain[1:], (), b"")
    fits, over = (bytes(limit - len(header) + 1 - n) for n in (3, 2))
    messages = [WireMessage(plain, (), payload) for payload in (over, fits)]
    user.peer.answers.clear()
    house.core.router.route(house.origins[0], messages)
    await house.core.settle()
    (answer,) = user.peer.answers
    assert house.counters["channel.too_large"] == 1
    # The connection takes itself off the onward route before it sends.
    sent = encode_message(answer.onward_route[1:], answer.return_route, answer.payload)
    assert len(sent) == U16_MESSAGE_BYTES_MAX


async def test_work_inside_a_channel_holds_its_connection(house: House) -> None:
    """A connection hands on nothing more while what came out of its channel is unhandled."""
    link = FakeLink()
    events = connection(house, link)
    end = ChannelPeer("2022")
    events.messages_received([frame("SC_listener", end.message_1())])
    await house.core.settle()
    answer = link.sent()
    route = answer.return_route
    events.messages_received([frame(route, end.message_3(answer.payload))])
    await house.core.settle()

    text = encode_message((local("echo"),), (local("app"),), b"text")
    events.messages_received([frame(route, end.seal(text)) for _ in range(200)])
    await house.core.settle()
    assert len(link.frames) == 200
    # While a worker has its part of a slice, the connection knows of it.
    assert all(origin.account.connection for origin in house.origins)
    assert min(house.unhandled) >= 1
    cells = house.core.system.life.roots
    actors = [one for cell in cells if isinstance(one := cell.instance, ConnectionActor)]
    assert [actor.unhandled for actor in actors] == [0]

    # What workers prepare for it counts for the connection too.
    inner = house.origins[0]
    assert inner.carrier is not None
    inner.account.reserved_bytes += 1 << 40
    events.messages_received([frame(route, end.seal(text))])
    await house.core.settle()
    assert link.paused
    assert len(link.frames) == 200
