"""Secure channels as actors: who speaks in them, and what does not belong."""

import logging
from functools import partial

import pytest
from hypothesis import given, strategies as st

from channel_peer import LEVELS, ChannelPeer, Name, data
from channel_support import (
    KEY,
    LISTENER,
    PAYLOADS,
    House,
    User,
    with_house,
)
from core_support import decode, encode
from rillnode.actors.core.access import VERBS, Grant
from rillnode.actors.core.delivery import Origin
from rillnode.actors.ockam.catalog import spawn_services
from rillnode.actors.ockam.channel_listener import ADDRESSES
from rillnode.actors.ockam.forwarder import Forwarder
from rillnode.codecs.limits import ROUTE_HOPS_MAX, U16_MESSAGE_BYTES_MAX
from rillnode.codecs.ockam.limits import CHANNEL_WINDOW_MESSAGES
from rillnode.codecs.routing.routes import (
    WireMessage,
    decode_message,
    encode_message,
    local,
)
from rillnode.codecs.routing.stream import (
    CreateRequest,
    CreateResponse,
    PullRequest,
    PullResponse,
    PushConfirm,
    PushRequest,
    Status,
)

# What a channel is for ---------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("listener", ADDRESSES)
async def test_answers_come_back_through_the_channel(
    house: House, level: Name, listener: bytes
) -> None:
    user = await User(house, level).open(listener=(local(listener),))
    first, second = await user.talk("echo", b"one", b"two")
    assert (first.payload, second.payload) == (b"one", b"two")
    assert first.onward_route == (local("app"),)
    # What the worker saw as the way back begins with the channel.
    assert first.return_route == (local("echo"),)
    assert house.counters == {"opened": 1}


@pytest.mark.parametrize("level", LEVELS)
async def test_what_comes_out_of_a_channel_is_its_key_s(house: House, level: Name) -> None:
    user = await User(house, level).open()
    await user.talk("echo", b"text")
    (origin,) = house.origins
    assert origin.principal == f"ockam:{user.end.key}"
    assert not origin.native
    assert origin.message_bytes_max < U16_MESSAGE_BYTES_MAX


@pytest.mark.parametrize("level", LEVELS)
async def test_the_largest_entry_that_a_channel_brings_comes_back_through_it(
    house: House, level: Name
) -> None:
    user = await User(house, level).open()
    limit = user.peer.origin.message_bytes_max
    house.core.access.add(Grant(who="anonymous", streams="*", may=frozenset(VERBS)))
    house.core.access.add(Grant(who=f"ockam:{user.end.key}", streams="*", may=frozenset(VERBS)))
    (made,) = await user.talk("stream", encode(CreateRequest("s")))

    def frame(size: int) -> int:
        sealed = user.inside(made.return_route, encode(PushRequest(1, bytes(size))))
        return len(encode_message(user.route, (local("me"),), sealed))

    largest = 2 * limit - frame(limit)
    assert frame(largest) == limit
    for index, size in enumerate((largest - 1, largest)):
        (confirm,) = await user.talk(made.return_route, encode(PushRequest(1, bytes(size))))
        assert decode(confirm.payload) == PushConfirm(1, Status.OK, index)
        (pulled,) = await user.talk(made.return_route, encode(PullRequest(1_000, index, 9)))
        assert decode(pulled.payload) == PullResponse(1_000, [(index, bytes(size))])
        (carrier,) = user.peer.answers
        assert len(encode_message((local("me"),), carrier.return_route, carrier.payload)) <= limit


async def test_only_who_has_a_grant_learns_of_a_stream(house: House) -> None:
    friend, stranger = User(house), User(house)
    house.core.access.add(Grant(who=f"ockam:{friend.end.key}", streams="s", may=frozenset(VERBS)))
    await friend.open()
    await stranger.open()

    (made,) = await friend.talk("stream", encode(CreateRequest("s")))
    assert decode(made.payload) == CreateResponse("s")
    stream = made.return_route[0].value
    (confirm,) = await friend.talk(stream, encode(PushRequest(1, b"secret")))
    assert decode(confirm.payload) == PushConfirm(1, Status.OK, 0)
    (pulled,) = await friend.talk(stream, encode(PullRequest(2, 0, 10)))
    assert decode(pulled.payload) == PullResponse(2, [(0, b"secret")])

    for request in (PullRequest(3, 0, 10), PushRequest(4, b"x")):
        assert await stranger.talk(stream, encode(request)) == []
    (known,) = await stranger.talk("stream", encode(CreateRequest("s")))
    (unknown,) = await stranger.talk("stream", encode(CreateRequest("t")))
    assert known.payload == unknown.payload
    # Not even to the connection that carries the channel.
    assert await stranger.ask((local(stream),), encode(PullRequest(3, 0, 10))) == []


async def test_a_lent_key_acts_as_whom_it_stands_for(house: House) -> None:
    user = User(house)
    house.core.access.lend(f"ockam:{user.end.key}", "sink/bronze")
    await user.open()
    await user.talk("echo", b"text")
    assert house.origins[0].principal == "sink/bronze"


async def test_a_channel_may_be_opened_inside_another(house: House) -> None:
    outer = await User(house, "elixir-2021").open()
    end = ChannelPeer("2022")
    (answer,) = await outer.talk("SC_listener", end.message_1())
    route = answer.return_route
    assert await outer.talk(route, end.message_3(answer.payload)) == []
    frame = encode_message((local("echo"),), (local("deep"),), b"text")
    (sealed,) = await outer.talk(route, end.seal(frame))
    answer = decode_message(end.open(sealed.payload))
    assert (answer.onward_route, answer.payload) == ((local("deep"),), b"text")
    (origin,) = house.origins
    assert origin.principal == f"ockam:{end.key}"
    assert origin.account is outer.peer.origin
    # The inner one ends with the one that carries it.
    outer.peer.origin.end()
    await house.core.settle()
    assert not house.context.open


async def test_a_channel_may_be_opened_through_a_forwarder(house: House) -> None:
    core = house.core
    alias = local("alias")
    receiver = Origin("", 0, native=False)
    forwarder = partial(Forwarder, core.router, None, receiver, LISTENER, lambda _: None)
    core.router.register(alias.value, core.system.spawn(forwarder))
    user = await User(house).open(listener=(alias,))
    assert [answer.payload for answer in await user.talk("echo", b"text")] == [b"text"]
    assert house.origins[0].principal == f"ockam:{user.end.key}"


async def test_a_peer_behind_a_channel_is_reached_by_its_alias(house: House) -> None:
    spawn_services(house.core.context, house.core.indexes, ["forwarding"])
    device = await User(house).open()
    (registered,) = await device.talk("forwarding", b"register")
    alias = registered.return_route

    device.peer.answers.clear()
    friend = await User(house).open()
    plain = house.core.peer("anonymous", native_too=False)
    message = WireMessage((*alias, local("app")), (local("plain"),), b"in clear")
    house.core.router.route(plain.origin, [message])
    await friend.talk((*alias, local("app")), b"through a channel of its own")
    texts = [message.payload for message in device.opened(device.peer.answers)]
    assert texts == [b"in clear", b"through a channel of its own"]

    # The alias ends with the channel that it was registered through.
    device.peer.origin.end()
    await house.core.settle()
    assert house.core.router.lookup(alias[0].value) is None


async def test_a_rust_peer_s_callback_is_told_of_the_channel(house: House) -> None:
    user = User(house, "rust-2021")
    (answer,) = await user.ask(LISTENER, user.end.message_1(b"\1\0" + data(b"echo")))
    user.route = answer.return_route
    answers = await user.ask(user.route, user.end.message_3(answer.payload))
    # The echo worker sent it to the channel, which sealed it as Rust of 2021 reads it; there
    # is no onward address left, as the notice came from the channel itself.
    (told,) = user.opened(answers)
    plain = user.end.payload_2
    assert told.payload[: 2 + len(plain)] == b"\0" + data(plain)
    assert len(told.payload) == 2 + len(plain) + 32
    assert told.onward_route == ()


async def test_message_3_and_what_follows_may_come_as_one_batch(house: House) -> None:
    user = User(house)
    (answer,) = await user.ask(LISTENER, user.end.message_1())
    message = user.end.message_3(answer.payload)
    sealed = user.inside("echo", b"text")
    (echoed,) = user.opened(await user.ask(answer.return_route, message, sealed))
    assert echoed.payload == b"text"


# What does not belong ----------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
async def test_what_does_not_open_is_counted_and_changes_nothing(house: House, level: Name) -> None:
    user = await User(house, level).open()
    message = user.inside("echo", b"text")
    flipped = message[:-1] + bytes((message[-1] ^ 1,))
    for wrong in (flipped, message[:-1], b"", b"x"):
        assert await user.ask(user.route, wrong) == []
    assert sum(house.counters.values()) == 5
    (answer,) = user.opened(await user.ask(user.route, message))
    assert answer.payload == b"text"
    assert await user.ask(user.route, message, message) == []
    assert house.counters["channel.replay"] == 2
    assert [echo.payload for echo in await user.talk("echo", b"more")] == [b"more"]


async def test_messages_may_be_out_of_order_within_the_window(house: House) -> None:
    user = await User(house).open()
    messages = [user.inside("echo", b"%d" % n) for n in range(CHANNEL_WINDOW_MESSAGES + 1)]
    answers = user.opened(await user.ask(user.route, *reversed(messages[1:])))
    assert [int(answer.payload) for answer in answers] == list(
        range(CHANNEL_WINDOW_MESSAGES, 0, -1)
    )
    assert await user.ask(user.route, messages[0]) == []
    assert house.counters["channel.replay"] == 1


async def test_an_authentic_message_that_is_none_is_dropped(house: House) -> None:
    user = await User(house).open()
    for frame in (b"", b"\1", b"\1\1\0\377", bytes(50)):
        assert await user.ask(user.route, user.end.seal(frame)) == []
    assert len(await user.talk("echo", b"text")) == 1


async def test_another_connection_cannot_use_the_channel(house: House) -> None:
    user = await User(house).open()
    other = User(house)
    assert await other.ask(user.route, user.inside("echo", b"text"), b"x") == []
    assert house.counters["channel.other_connection"] == 2
    assert not house.origins


def test_only_keys_of_the_allow_list_are_let_in() -> None:
    friend = ChannelPeer("2022")

    async def test(house: House) -> None:
        user = User(house)
        user.end = friend
        await user.open()
        assert len(await user.talk("echo", b"text")) == 1

        stranger = await User(house).open()
        assert stranger.end.remote_key == KEY.public_hex
        assert await stranger.ask(stranger.route, stranger.inside("echo", b"text")) == []
        assert house.counters["channel.not_allowed"] == 1
        assert len(house.context.open) == 1

    with_house(test, allow=frozenset({bytes.fromhex(friend.key)}))


async def test_the_handshake_of_2023_is_refused_with_its_reason(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    user = User(house)
    with caplog.at_level(logging.INFO, "rillnode"):
        assert await user.ask(LISTENER, data(bytes(range(32)))) == []
    assert house.counters == {"channel.identities": 1}
    assert "channel_refused" in [record.msg for record in caplog.records]
    assert not house.context.open


async def test_a_message_3_that_is_none_ends_the_channel(house: House) -> None:
    for wrong in (b"", bytes(64), bytes(80), bytes(3_000)):
        user = User(house, "elixir-2021")
        (answer,) = await user.ask((local("api"),), user.end.message_1())
        await user.ask(answer.return_route, wrong)
        assert not house.context.open
    assert house.counters == {"codec.truncated": 1, "codec.limit": 1, "noise.handshake": 2}


@given(
    st.lists(
        st.tuples(st.sampled_from(["listener", "pending", "open", "plain"]), PAYLOADS), max_size=12
    )
)
def test_nothing_that_strangers_send_harms_an_open_channel(sent: list[tuple[str, bytes]]) -> None:
    async def test(house: House) -> None:
        user = await User(house).open()
        pending = User(house)
        (answer,) = await pending.ask(LISTENER, pending.end.message_1())
        routes = {
            "listener": LISTENER,
            "pending": answer.return_route,
            "open": user.route,
            "plain": (local(user.end.payload_2),),
        }
        for target, payload in sent:
            await pending.ask(routes[target], payload)
            if target == "open":
                assert await user.ask(user.route, payload) == []
        assert len(house.context.open) <= 12
        assert not any(stats.failures for stats in house.core.system.stats().values())
        (echoed,) = await user.talk("echo", b"text")
        assert echoed.payload == b"text"

    with_house(test)


async def test_a_way_back_that_is_too_long_ends_the_channel(house: House) -> None:
    user = User(house)
    (answer,) = await user.ask(LISTENER, user.end.message_1())
    back = tuple(local(b"%d" % n) for n in range(ROUTE_HOPS_MAX + 1))
    message = WireMessage(answer.return_route, back, user.end.message_3(answer.payload))
    house.core.router.route(user.peer.origin, [message])
    await house.core.settle()
    assert house.counters == {"codec.limit": 1}
    assert not any(stats.failures for stats in house.core.system.stats().values())
