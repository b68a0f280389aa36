"""Actors of bi-directional streams fail at each kind of message: what is in a stream goes on."""

from typing import get_args

import pytest

from bidirectional_support import create, entries, friend, item, publishers, push, saved, subscribe
from core_support import Core
from hub_support import ME, with_hub
from rillnode.actors.core.delivery import Delivery
from rillnode.actors.core.streams.index_service import AskPosition, IndexService
from rillnode.actors.engine.faults import When
from rillnode.actors.log import LoadIndex, SaveIndex
from rillnode.actors.ockam.bidirectional import SubscriptionService
from rillnode.actors.ockam.bidirectional_consumer import ConsumerActor
from rillnode.actors.ockam.bidirectional_publisher import LOOK_SECONDS, PublisherActor
from rillnode.codecs.ockam.limits import STREAM_SUBSCRIBER_AWAY_SECONDS_MAX
from rillnode.codecs.routing.routes import local
from rillnode.testing import fail, message_types

at_both_times = pytest.mark.parametrize("when", get_args(When))

CONSUMED = sorted(one.__name__ for one in message_types(ConsumerActor) or ())
PUBLISHED = sorted(one.__name__ for one in message_types(PublisherActor) or ())


@at_both_times
@pytest.mark.parametrize("name", CONSUMED)
def test_a_consumer_that_fails_once_delivers_all_and_saves_its_index(name: str, when: When) -> None:
    (kind,) = (one for one in message_types(ConsumerActor) or () if one.__name__ == name)

    async def test(core: Core) -> None:
        peer = friend(core)
        await create(peer, "s")
        with fail(ConsumerActor, kind, when=when):
            await subscribe(peer, "s")
            await push(peer, "s", *(item((peer.link, local("me")), b"%d" % n) for n in range(5)))
            for _ in range(3):
                core.clock.advance(LOOK_SECONDS)
                await core.settle()
        await subscribe(peer, "s")
        await push(peer, "s", item((peer.link, local("me")), b"last"))
        for _ in range(4):
            core.clock.advance(LOOK_SECONDS)
            await core.settle()
        delivered = [one.payload for one in peer.received if one.onward_route == ME]
        assert b"last" in delivered
        assert await saved(peer, "s") == 6

    with_hub(test)


@at_both_times
@pytest.mark.parametrize(
    ("actor_class", "kind"),
    [(IndexService, AskPosition), (IndexService, SaveIndex), (IndexService, LoadIndex)],
)
async def test_a_consumer_asks_again_for_an_index_that_its_service_has_failed_at(
    core: Core, actor_class: type[IndexService], kind: type, when: When
) -> None:
    peer = friend(core)
    await create(peer, "s")
    with fail(actor_class, kind, when=when) as fault:
        await subscribe(peer, "s")
        await push(peer, "s", item((peer.link, local("me")), b"first"))
        for _ in range(3):
            core.clock.advance(LOOK_SECONDS)
            await core.settle()
    assert fault.hits == 1
    await push(peer, "s", item((peer.link, local("me")), b"last"))
    for _ in range(3):
        core.clock.advance(LOOK_SECONDS)
        await core.settle()
    assert await saved(peer, "s") == 2


@at_both_times
@pytest.mark.parametrize("name", PUBLISHED)
async def test_a_publisher_that_fails_is_gone_and_made_anew_when_asked_for(
    core: Core, name: str, when: When
) -> None:
    (kind,) = (one for one in message_types(PublisherActor) or () if one.__name__ == name)
    peer = friend(core)
    await create(peer, "to", "back")
    (address,) = await publishers(peer, "to", "back")
    with fail(PublisherActor, kind, when=when) as fault:
        peer.send((address, local("there")), b"perhaps")
        await core.settle()
        core.clock.advance(LOOK_SECONDS)
        await core.settle()
    (again,) = await publishers(peer, "to", "back")
    assert (again == address) == (fault.hits == 0)
    peer.send((again, local("there")), b"surely")
    await core.settle()
    assert any(b"surely" in entry for entry in await entries(peer, "to"))
    assert peer.origin.reserved_bytes == 0


@at_both_times
def test_the_service_serves_the_next_and_counts_nobody_who_has_ended(
    when: When, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = "rillnode.actors.ockam.bidirectional.STREAM_SUBSCRIPTIONS_PER_PRINCIPAL_MAX"
    monkeypatch.setattr(limit, 1)

    async def test(core: Core) -> None:
        peer = friend(core)
        await create(peer, "s", "t")
        with fail(SubscriptionService, when=when) as fault:
            await subscribe(peer, "s")
        assert fault.hits == 1
        await subscribe(peer, "s")
        consumers = [one for one in core.router.table if one.startswith(b"STB_C_")]
        assert len(consumers) == 1
        cell = core.router.lookup(consumers[0])
        assert cell is not None
        core.system.exit(cell)
        await core.settle()
        await subscribe(peer, "t")
        consumers = [one for one in core.router.table if one.startswith(b"STB_C_")]
        assert len(consumers) == 1

    with_hub(test)


async def test_consumers_are_not_kept_for_ever(core: Core) -> None:
    peer = friend(core)
    await create(peer, "s")
    await subscribe(peer, "s")
    (look,) = (one for one in message_types(ConsumerActor) or () if one.__name__ == "_Look")
    with fail(ConsumerActor, look) as fault:
        core.clock.advance(LOOK_SECONDS)
        await core.settle()
    assert fault.hits == 1
    await peer.close()
    for _ in range(3 + int(STREAM_SUBSCRIBER_AWAY_SECONDS_MAX // LOOK_SECONDS)):
        core.clock.advance(LOOK_SECONDS)
        await core.settle()
    assert not [one for one in core.router.table if one.startswith(b"STB_C_")]


async def test_answers_go_on_after_the_end_of_their_publisher(core: Core) -> None:
    peer = friend(core)
    await create(peer, "s", "back")
    await subscribe(peer, "s")
    with fail(PublisherActor, Delivery) as ended:
        await push(peer, "s", item((local("echo"),), b"first"))
        await core.settle()
    assert ended.hits == 1
    for number in range(3):
        await push(peer, "s", item((local("echo"),), b"later %d" % number))
        core.clock.advance(LOOK_SECONDS)
        await core.settle()
    assert any(b"later 2" in entry for entry in await entries(peer, "back"))
