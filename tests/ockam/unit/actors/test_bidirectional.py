"""Bi-directional streams: consumers and publishers on a memory store and a clock moved by hand."""

import asyncio
from functools import partial

import pytest
from hypothesis import given, strategies as st

from bidirectional_support import (
    FRIEND,
    SERVICE,
    create,
    entries,
    friend,
    grant,
    item,
    publishers,
    push,
    saved,
    subscribe,
)
from core_support import Core
from coroutines import run_with
from hub_support import HubPeer, slow, with_hub
from rillnode.actors.core.quotas import Quota
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import LoadIndex, ReadOperation, SaveIndex, WriteOperation
from rillnode.actors.ockam.bidirectional_items import ITEM_HELD_SECONDS_MAX
from rillnode.actors.ockam.bidirectional_publisher import ANSWER_SECONDS, LOOK_SECONDS
from rillnode.codecs.errors import StoreError
from rillnode.codecs.ockam.hub import TEXT
from rillnode.codecs.ockam.limits import (
    STREAM_PUBLISHERS_PER_SUBSCRIPTION_MAX,
    STREAM_SUBSCRIBER_AWAY_SECONDS_MAX,
)
from rillnode.codecs.ockam.stream_item import StreamMessage, decode_entry
from rillnode.codecs.routing.routes import Route, WireMessage, encode_message, local
from rillnode.codecs.routing.stream import (
    BidirectionalPublisherRequest,
    BidirectionalRequest,
    CreateRequest,
    PullRequest,
    PushRequest,
    encode_request,
)
from rillnode.codecs.routing.stream_admin import (
    AdminRequest,
    Delete,
    encode_request as encode_admin,
)


class Mute(Worker):
    """Takes what it gets."""

    def handle(self, message: object, sender: object) -> None:
        pass


class Stuck(Worker):
    """Never comes to an end with what it got."""

    async def handle(self, message: object, sender: object) -> None:
        await asyncio.get_running_loop().create_future()


class Slow(Worker):
    """Is done with what it gets when its test says so."""

    def __init__(self, done: asyncio.Event) -> None:
        self._done = done

    async def handle(self, message: object, sender: object) -> None:
        await self._done.wait()


# Subscriptions -----------------------------------------------------------------------------------


async def test_subscribing_again_makes_no_second_consumer(core: Core) -> None:
    peer = friend(core)
    for _ in range(3):
        assert await subscribe(peer, "s") == []
    again = HubPeer(core, FRIEND)
    await subscribe(again, "s")
    await push(peer, "s", item((peer.link, local("me"))))
    assert [one.payload for one in peer.received] == [peer.received[0].payload, b"hi"]
    # Another id is another subscription, with an index of its own; "" is the default one.
    await subscribe(again, "s", "")
    assert await saved(peer, "s", "foo") == 1
    assert await saved(peer, "s", "default") == 1


async def test_consuming_goes_on_from_the_saved_index(core: Core) -> None:
    peer = friend(core)
    await create(peer, "s")
    await push(peer, "s", *(item((peer.link,), b"%d" % number) for number in range(200)))
    messages = await subscribe(peer, "s")
    assert [one.payload for one in messages] == [b"%d" % number for number in range(200)]
    assert await saved(peer, "s") == 200
    # Whoever has the same subscription id goes on where the first one was.
    grant(core, "anonymous")
    other = HubPeer(core)
    await push(peer, "s", item((other.link,), b"next"))
    assert other.received[0].payload == b"next"
    assert await subscribe(other, "s") == []


async def test_an_item_for_an_ended_connection_waits_for_its_subscriber(core: Core) -> None:
    peer, pusher = friend(core), friend(core)
    await subscribe(peer, "s")
    old = peer.link
    await peer.close()
    await push(pusher, "s", item((old, local("worker"), local("inner")), b"kept"))
    core.clock.advance(STREAM_SUBSCRIBER_AWAY_SECONDS_MAX / 2)
    await core.settle()
    assert await saved(pusher, "s") is None
    again = HubPeer(core, FRIEND)
    (message,) = await subscribe(again, "s")
    assert message.onward_route == (local("worker"), local("inner"))
    assert await saved(pusher, "s") == 1


async def test_an_item_for_an_alias_waits_until_somebody_holds_it(core: Core) -> None:
    peer, device = friend(core), HubPeer(core)
    await subscribe(peer, "s")
    await push(peer, "s", item((local("forward_to_device"),)), item((peer.link,), b"behind"))
    assert peer.received[-1].payload != b"behind"
    await device.ask("static_forwarding", TEXT.encode("device"))
    core.clock.advance(2.0)
    await core.settle()
    assert [one.payload for one in device.received] == [TEXT.encode("device"), b"hi"]
    assert peer.received[-1].payload == b"behind"


async def test_an_item_waits_for_an_alias_within_a_bound(core: Core) -> None:
    peer = friend(core)
    await subscribe(peer, "s")
    await push(peer, "s", item((local("forward_to_nobody"),)), item((peer.link,), b"behind"))
    for _ in range(round(ITEM_HELD_SECONDS_MAX)):
        assert peer.received[-1].payload != b"behind"
        core.clock.advance(1.0)
        await core.system.drain()
    core.clock.advance(1.0)
    await core.settle()
    assert peer.received[-1].payload == b"behind"
    assert core.router.undelivered["unknown_address"] == 1


async def test_a_slow_subscriber_gets_no_more_than_it_takes(core: Core) -> None:
    peer = friend(core)
    await subscribe(peer, "s")
    link = slow(peer)
    await push(peer, "s", item((peer.link,), b"later"))
    assert peer.received[-1].payload != b"later"
    link.buffered_bytes = 0
    core.clock.advance(1.0)
    await core.settle()
    assert peer.received[-1].payload == b"later"


async def test_a_subscription_ends_when_its_subscriber_stays_away(core: Core) -> None:
    peer, pusher = friend(core), friend(core)
    actors = core.system.life.population
    await subscribe(peer, "s")
    await publishers(peer, "s", "back")
    await peer.close()
    for _ in range(round(STREAM_SUBSCRIBER_AWAY_SECONDS_MAX / LOOK_SECONDS) + 2):
        core.clock.advance(LOOK_SECONDS)
        await core.settle()
    await push(pusher, "s", item((pusher.link,), b"late"))
    assert pusher.received[-1].payload != b"late"
    again = HubPeer(core, FRIEND)
    await subscribe(again, "s")
    assert pusher.received[-1].payload == b"late"
    # What is left: no connection, its successor, a consumer with a subscription and a publisher
    # into the return stream, and the actors of stream and index.
    assert core.system.life.population <= actors + 5


async def test_a_removed_stream_ends_its_subscription_and_is_not_made_again(core: Core) -> None:
    peer = friend(core)
    await subscribe(peer, "s")
    await peer.ask("stream", encode_admin(AdminRequest(1, Delete("s"))))
    core.clock.advance(5 * LOOK_SECONDS)
    await core.settle()
    await create(peer, "s")
    await push(peer, "s", item((peer.link,), b"new life"))
    assert peer.received[-1].payload != b"new life"
    assert (await subscribe(peer, "s"))[0].payload == b"new life"


def test_a_principal_has_only_so_many_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    module = "rillnode.actors.ockam.bidirectional"
    monkeypatch.setattr(f"{module}.STREAM_SUBSCRIPTIONS_PER_PRINCIPAL_MAX", 2)
    monkeypatch.setattr(f"{module}.STREAM_PUBLISHERS_PER_PRINCIPAL_MAX", 2)

    async def test(core: Core) -> None:
        peer = friend(core)
        grant(core, "anonymous")
        for number in range(4):
            await subscribe(peer, f"s{number}")
            made = await publishers(peer, f"s{number}", "back")
            assert len(made) == (number < 2)
        assert core.router.undelivered["refused"] == 4
        assert await publishers(peer, "s0", "back")
        assert await publishers(HubPeer(core), "s3", "back")

    with_hub(test)


@pytest.mark.parametrize(
    "request_",
    [
        BidirectionalRequest("", "foo"),
        BidirectionalRequest("s" * 513, "foo"),
        BidirectionalRequest("s", "f" * 513),
        BidirectionalPublisherRequest("", "s", "foo"),
        BidirectionalPublisherRequest("s", "", "foo"),
        BidirectionalPublisherRequest("s", "s" * 513, "foo"),
        CreateRequest("s"),
    ],
)
async def test_what_the_service_does_not_do_is_silent(
    core: Core, request_: BidirectionalRequest | BidirectionalPublisherRequest | CreateRequest
) -> None:
    peer = friend(core)
    assert await peer.ask(SERVICE, encode_request(request_)) == []
    assert core.router.undelivered["refused"] == 1


# Rights ------------------------------------------------------------------------------------------


async def test_an_item_has_none_of_its_consumers_rights(core: Core) -> None:
    peer = friend(core)
    await create(peer, "secret", "back")
    await push(peer, "secret", b"for the friend only")
    grant(core, "anonymous", "open")
    attacker = HubPeer(core)
    await subscribe(peer, "open")
    theft = encode_request(PullRequest(1, 0, 9))
    damage = encode_request(PushRequest(1, b"forged"))
    create_ = encode_request(CreateRequest("made by an item"))
    await push(attacker, "open", item((local("ST_S_0_secret"),), theft))
    await push(attacker, "open", item((local("ST_S_0_secret"),), damage))
    await push(attacker, "open", item((local("stream"),), create_))
    assert await entries(peer, "secret") == [b"for the friend only"]
    # The one answer is the refusal to create.
    (answer,) = await entries(peer, "back")
    assert decode_entry(answer).message.payload.endswith(b"Invalid request")


async def test_a_return_stream_is_not_made_for_an_item(core: Core) -> None:
    peer = friend(core)
    await subscribe(peer, "s")
    await push(peer, "s", item((local("echo"),), back="named by an item"))
    assert core.router.undelivered["stream.unknown"] == 1
    # Once it is there, it is used.
    await create(peer, "named by an item")
    await push(peer, "s", item((local("echo"),), back="named by an item"))
    assert len(await entries(peer, "named%20by%20an%20item")) == 1


async def test_consuming_ends_with_the_right_to_it(core: Core) -> None:
    peer, pusher = friend(core), HubPeer(core)
    grant(core, "anonymous", "s", "push")
    await subscribe(peer, "s")
    core.access.revoke(FRIEND)
    await push(pusher, "s", item((peer.link,), b"not for you"))
    assert peer.received == []


# Loops -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("service", ["echo", "uppercase_service", "stream", "ST_S_0_s"])
@pytest.mark.parametrize("back", ["s", "t"])
async def test_services_do_not_answer_each_other_through_streams(
    core: Core, service: str, back: str
) -> None:
    peer = friend(core)
    grant(core, "anonymous")
    for stream in ("s", "t"):
        await subscribe(peer, stream)
    watcher = (await peer.ask("tracing", b"watch"))[0].return_route[0]
    loops: tuple[Route, ...] = ((local(service),), (watcher, local(service)))
    for onward in loops:
        for sender in (*loops, ()):
            await push(peer, "s", item(onward, sender=sender, back=back))
            # Bare wire messages have no publisher in their way.
            await push(peer, "s", encode_message(onward, sender, b"x"))
    for _ in range(50):
        await core.settle()
    assert len(await entries(peer, "s")) + len(await entries(peer, "t")) <= 30


async def test_publishers_in_a_circle_end_by_the_length_of_routes(core: Core) -> None:
    peer = friend(core)
    await subscribe(peer, "s")
    (publisher,) = await publishers(peer, "s", "s")
    peer.send((publisher,) * 60, b"round and round")
    for _ in range(100):
        await core.settle()
    assert len(await entries(peer, "s")) <= 60


# Publishers --------------------------------------------------------------------------------------


async def test_publishers_into_return_streams_are_few(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = friend(core)
    await subscribe(peer, "s")
    await core.settle()
    actors = core.system.life.population
    many = STREAM_PUBLISHERS_PER_SUBSCRIPTION_MAX * 2
    await push(peer, "s", *(item((peer.link,), back=f"b{n}") for n in range(many)))
    grown = core.system.life.population - actors
    assert grown >= STREAM_PUBLISHERS_PER_SUBSCRIPTION_MAX
    assert grown <= STREAM_PUBLISHERS_PER_SUBSCRIPTION_MAX + 2  # an index, a subscription


@run_with(quotas=[Quota(who=FRIEND, push_bytes_per_second=1000)])
async def test_items_over_a_quota_are_counted_and_do_not_hold_up_later_ones(core: Core) -> None:
    peer = friend(core)
    (publisher,) = await publishers(peer, "s", "back")
    peer.send((publisher, local("x")), bytes(2_000))
    await core.settle()
    core.clock.advance(60.0)
    await core.settle()
    peer.send((publisher, local("x")), b"small")
    await core.settle()
    assert [decode_entry(one).message.payload for one in await entries(peer, "s")][-1] == (b"small")
    assert peer.origin.reserved_bytes == 0


async def test_what_no_item_can_carry_is_counted(core: Core) -> None:
    peer = friend(core)
    (publisher,) = await publishers(peer, "s", "back")
    long = tuple(local("x") for _ in range(64))
    peer.send((publisher, local("x")), b"", long)
    peer.send((publisher, local("x")), bytes(2_200_000))
    await core.settle()
    assert core.router.undelivered["codec.limit"] == 1
    assert core.router.undelivered["item_too_large"] == 1
    assert await entries(peer, "s") == []


async def test_a_publisher_keeps_only_so_much(core: Core) -> None:
    peer = friend(core)
    (publisher,) = await publishers(peer, "s", "back")
    messages = [WireMessage((publisher,), (peer.link,), bytes(1_000_000)) for _ in range(10)]
    core.router.route(peer.origin, messages)
    await core.settle()
    assert core.router.undelivered["publisher_full"] == 6
    assert peer.origin.reserved_bytes == 0
    assert await saved(peer, "s") is None


# Failures ----------------------------------------------------------------------------------------


async def test_a_publisher_sends_again_what_the_store_could_not_take(core: Core) -> None:
    peer = friend(core)
    (publisher,) = await publishers(peer, "s", "back")
    core.store.faults.failing_syncs = 2
    for number in range(3):
        peer.send((publisher, local("x")), b"%d" % number)
    await core.settle()
    assert peer.origin.reserved_bytes > 0
    for _ in range(5):
        core.clock.advance(1.0)
        await core.settle()
    pushed = [decode_entry(one).message.payload for one in await entries(peer, "s")]
    assert pushed == [b"0", b"1", b"2"]
    assert peer.origin.reserved_bytes == 0


async def test_a_publisher_whose_stream_does_not_answer_asks_again(core: Core) -> None:
    peer = friend(core)
    (publisher,) = await publishers(peer, "s", "back")
    core.router.register(b"ST_S_0_s", core.system.spawn(Mute))
    peer.send((publisher, local("x")), b"hello")
    await core.settle()
    core.router.unregister(b"ST_S_0_s")
    core.clock.advance(ANSWER_SECONDS)
    await core.settle()
    assert len(await entries(peer, "s")) == 1


async def test_an_index_that_could_not_be_saved_is_saved_later(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = core.store.submit
    saves: list[int] = []

    def failing_at_first(operation: WriteOperation) -> None:
        if isinstance(operation, SaveIndex):
            core.store.faults.failing_syncs = not saves
            saves.append(operation.index)
        submit(operation)

    monkeypatch.setattr(core.store, "submit", failing_at_first)
    peer = friend(core)
    await subscribe(peer, "s")
    await push(peer, "s", item((peer.link,)))
    assert await saved(peer, "s") is None
    core.clock.advance(1.0)
    await core.settle()
    assert await saved(peer, "s") == 1
    assert saves == [1, 1]


async def test_a_consumer_waits_for_a_store_that_takes_no_streams(core: Core) -> None:
    peer = friend(core)
    core.store.faults.failing_syncs = 2
    await subscribe(peer, "s")
    for _ in range(4):
        core.clock.advance(1.0)
        await core.settle()
    await push(peer, "s", item((peer.link,), b"at last"))
    assert peer.received[-1].payload == b"at last"


async def test_a_consumer_begins_with_no_index_that_it_does_not_know(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = core.store.read
    failures = iter([True])

    def failing_at_first(operation: ReadOperation) -> bool:
        if isinstance(operation, LoadIndex) and next(failures, False):
            operation.error = StoreError("store.failed", "as told")
            return True
        return read(operation)

    monkeypatch.setattr(core.store, "read", failing_at_first)
    peer = friend(core)
    await create(peer, "s")
    await push(peer, "s", item((peer.link,), b"waits"))
    assert await subscribe(peer, "s") == []
    core.clock.advance(1.0)
    await core.settle()
    assert peer.received[-1].payload == b"waits"


def test_a_consumer_that_fails_goes_on_from_the_saved_index(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failures = iter([True])

    def failing(data: bytes) -> StreamMessage:
        if data.endswith(b"unlucky") and next(failures, False):
            raise RuntimeError("as told")
        return decode_entry(data)

    async def test(core: Core) -> None:
        peer = friend(core)
        await subscribe(peer, "s")
        actors = core.system.life.population
        texts = [b"first", b"unlucky", b"last"]
        seen: list[bytes] = []
        for text in texts:
            await push(peer, "s", item((peer.link,), text))
            seen += [one.payload for one in peer.received if one.payload in texts]
        assert seen == texts
        assert await saved(peer, "s") == 3
        # The subscription of the failed instance has ended.
        assert core.system.life.population == actors + 1  # the publisher

    monkeypatch.setattr("rillnode.actors.ockam.bidirectional_items.decode_entry", failing)
    with_hub(test)


async def test_a_worker_that_never_handles_an_item_stops_no_other(core: Core) -> None:
    peer = friend(core)
    core.router.register(b"stuck", core.system.spawn(Stuck))
    await subscribe(peer, "s")
    await push(peer, "s", item((local("stuck"),)))
    await push(peer, "s", item((peer.link,), b"next"))
    assert peer.received[-1].payload != b"next"
    core.clock.advance(1.0)
    await core.settle()
    assert peer.received[-1].payload == b"next"


async def test_the_index_is_saved_up_to_what_is_handled(core: Core) -> None:
    """However long that takes: else a crash lost what a slow worker was at."""
    peer = friend(core)
    done = asyncio.Event()
    core.router.register(b"slow", core.system.spawn(partial(Slow, done)))
    await subscribe(peer, "s")
    await push(peer, "s", item((peer.link,), b"first"), item((local("slow"),)))
    await push(peer, "s", item((peer.link,), b"next"))
    for _ in range(10):
        core.clock.advance(1.0)
        await core.settle()
    assert await saved(peer, "s") == 1
    done.set()
    await core.settle()
    assert await saved(peer, "s") == 3


# Anything ----------------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=80), max_size=20))
def test_no_entry_stops_a_consumer(entries_: list[bytes]) -> None:
    async def test(core: Core) -> None:
        peer = friend(core)
        await subscribe(peer, "s")
        await push(peer, "s", *entries_, item((peer.link,), b"last"))
        assert peer.received[-1].payload == b"last"
        assert await saved(peer, "s") == len(entries_) + 1

    with_hub(test)
