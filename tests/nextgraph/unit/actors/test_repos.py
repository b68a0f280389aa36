"""Repos: pinning, opening, subscribing, and the two sides of an overlay."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from nextgraph_broker import (
    INNER,
    OUTER,
    PRIVATE,
    READ_ONLY,
    READ_WRITE,
    REPO_HASH,
    TOPIC_A,
    TOPIC_B,
    WRITE_ONLY,
    Broker,
    Client,
    identity,
    pin,
    subscribe,
)
from nextgraph_support import CONVERGENCE_KEY
from rillnode.codecs.keys import Identity
from rillnode.codecs.nextgraph.adverts import sign_publisher_advert
from rillnode.codecs.nextgraph.blocks import block_id
from rillnode.codecs.nextgraph.events import Event, sign_event
from rillnode.codecs.nextgraph.limits import NEXTGRAPH_TOPICS_MAX
from rillnode.codecs.nextgraph.objects import split_object
from rillnode.codecs.nextgraph.requests import (
    BlocksExist,
    BlocksGet,
    BlocksPut,
    CommitGet,
    OpenRepo,
    PinRepo,
    RepoPinStatusReq,
    RequestContent,
    TopicSyncReq,
    TopicUnsub,
    UnpinRepo,
)
from rillnode.codecs.nextgraph.responses import RepoOpened, RepoPinStatus, TopicSubRes
from rillnode.codecs.nextgraph.results import ResultCode
from rillnode.codecs.nextgraph.types import (
    GlobalOverlay,
    InnerOverlay,
    OuterOverlay,
    OverlayAccess,
    OverlayId,
    ReadOnlyAccess,
    ReadWriteAccess,
    WriteOnlyAccess,
)

STATUS = RepoPinStatusReq(REPO_HASH)
OTHER = InnerOverlay(b"m" * 32)


def topics(content: RepoOpened | RepoPinStatus) -> dict[bytes, bool]:
    return {topic.topic: topic.publisher for topic in content.topics}


def opened(answers: list[tuple[int, Any]]) -> dict[bytes, bool]:
    """The topics of a repo that was opened: key -> whether as publisher."""
    ((result, content),) = answers
    assert result == ResultCode.OK
    assert isinstance(content, RepoOpened)
    return topics(content)


def open_repo(*writes: Identity, access: OverlayAccess = READ_WRITE) -> OpenRepo:
    asked = pin(*writes, access=access)
    return OpenRepo(asked.hash, access, [], 0, [], asked.rw_topics)


A, B = TOPIC_A.public_key, TOPIC_B.public_key


async def test_a_pin_lists_its_topics_and_is_there_for_every_device_of_its_user_only(
    broker: Broker,
) -> None:
    client, phone = await broker.client("alice"), await broker.client("alice", "phone")
    other = await broker.client("bob")
    assert await client.result(INNER, STATUS) == ResultCode.FALSE
    assert opened(await client.pin(TOPIC_A, reads=[TOPIC_B])) == {A: True, B: False}
    for device in (client, phone):
        ((result, content),) = await device.ask(INNER, STATUS)
        assert result == ResultCode.OK
        assert content.hash == REPO_HASH
        assert topics(content) == {A: True, B: False}
    assert await other.result(INNER, STATUS) == ResultCode.FALSE
    assert await client.result(INNER, RepoPinStatusReq(b"?" * 32)) == ResultCode.FALSE


async def test_lists_left_out_mean_unchanged_and_nobody_is_demoted(broker: Broker) -> None:
    client = await broker.client()
    await client.pin(TOPIC_A, reads=[TOPIC_B])
    assert opened(await client.pin()) == {A: True, B: False}
    assert opened(await client.pin(reads=[TOPIC_A])) == {A: True, B: False}
    assert opened(await client.pin(TOPIC_B)) == {A: True, B: True}


async def test_what_is_pinned_outlives_the_connection_and_the_node(broker: Broker) -> None:
    client = await broker.client()
    await client.pin(TOPIC_A)
    client.leave()
    await broker.restart()
    again = await broker.client("alice", "phone")
    ((_, content),) = await again.ask(INNER, STATUS)
    assert topics(content) == {A: True}
    event, _ = again.event()
    assert await again.result(INNER, event) == ResultCode.OK


async def test_a_pin_is_not_answered_before_it_is_durable(broker: Broker) -> None:
    client = await broker.client()
    await client.pin(TOPIC_A)
    broker.core.store.faults.failing_syncs = 1
    assert await client.result(INNER, pin(TOPIC_A, repo=b"2" * 32)) == ResultCode.STORAGE_ERROR
    broker.core.clock.advance(1.0)
    asked = RepoPinStatusReq(b"2" * 32)
    assert await client.result(INNER, asked) == ResultCode.FALSE


async def test_what_is_open_lasts_as_long_as_the_connection(broker: Broker) -> None:
    client = await broker.client()
    assert opened(await client.ask(INNER, open_repo(TOPIC_A))) == {A: True}
    assert opened(await client.ask(INNER, open_repo(TOPIC_B))) == {A: True, B: True}
    event, _ = client.event()
    assert await client.result(INNER, event) == ResultCode.OK
    assert await client.result(INNER, subscribe(TOPIC_B)) == ResultCode.OK
    assert await client.result(INNER, STATUS) == ResultCode.FALSE
    client.leave()
    again = await broker.client()
    event, _ = again.event(b"2")
    assert await again.result(INNER, event) == ResultCode.ACCESS_DENIED
    assert await again.result(INNER, subscribe(TOPIC_A)) == ResultCode.NOT_FOUND


async def test_an_open_repo_is_pinned_with_all_that_was_opened(broker: Broker) -> None:
    client = await broker.client()
    await client.ask(INNER, open_repo(TOPIC_A))
    assert opened(await client.pin()) == {A: True}
    ((_, content),) = await client.ask(INNER, STATUS)
    assert topics(content) == {A: True}


async def test_a_repo_that_is_unpinned_is_forgotten(broker: Broker) -> None:
    client, writer = await broker.client("alice"), await broker.client("bob")
    await writer.pin(TOPIC_A)
    unpin = UnpinRepo(REPO_HASH)
    assert await client.result(INNER, unpin) == ResultCode.NOT_FOUND
    await client.pin(TOPIC_A)
    assert await client.result(INNER, unpin) == ResultCode.OK
    assert await client.result(INNER, unpin) == ResultCode.NOT_FOUND
    assert await client.result(INNER, STATUS) == ResultCode.FALSE
    event, _ = client.event()
    assert await client.result(INNER, event) == ResultCode.ACCESS_DENIED
    event, _ = writer.event()
    await writer.ask(INNER, event)
    await client.settle()
    assert client.heard() == []
    await broker.restart()
    assert await (await broker.client()).result(INNER, STATUS) == ResultCode.FALSE


async def test_a_topic_is_subscribed_to_in_a_repo_that_is_pinned_or_open(broker: Broker) -> None:
    client = await broker.client()
    await client.pin(TOPIC_A)
    assert await client.result(INNER, subscribe(TOPIC_A, repo=b"?" * 32)) == ResultCode.NOT_FOUND
    ((result, content),) = await client.ask(INNER, subscribe(TOPIC_B))
    assert (result, content) == (ResultCode.OK, TopicSubRes(B, [], False, 0))
    ((_, content),) = await client.ask(INNER, subscribe(TOPIC_B, publisher=True))
    assert content.publisher
    ((_, content),) = await client.ask(INNER, subscribe(TOPIC_B))
    assert content.publisher
    event, _ = client.event(topic=TOPIC_B)
    assert await client.result(INNER, event) == ResultCode.OK
    assert await client.result(INNER, TopicUnsub(B, REPO_HASH)) == ResultCode.OK
    ((_, content),) = await client.ask(INNER, STATUS)
    assert topics(content) == {A: True}


# Once a repo is opened or pinned -----------------------------------------------------------------


async def one_event(broker: Broker) -> tuple[Client, Client, Event]:
    """Alice, who has pinned a topic and published an event, and Bob, who has pinned nothing."""
    writer, reader = await broker.client("alice"), await broker.client("bob")
    await writer.pin(TOPIC_A)
    event, _ = writer.event()
    await writer.ask(INNER, event)
    return writer, reader, event


async def once_open(client: Client, event: Event, overlay: OverlayId = INNER) -> list[list[int]]:
    """The results of all requests that ask for a repo that is open."""
    commit = block_id(event.content.blocks[0])
    requests: list[RequestContent] = [
        BlocksExist([commit]),
        BlocksGet([commit], False, None),
        CommitGet(commit, None),
        TopicSyncReq(event.content.topic, [], [], None),
        BlocksPut([event.content.blocks[1]]),
    ]
    return [
        [int(result) for result, _ in await client.ask(overlay, request)] for request in requests
    ]


UNKNOWN = [[14], [7], [7], [14], [14]]
SERVED = [[0], [1, 2], [1, 1, 2], [1, 2], [0]]
READ_OUTSIDE = [*SERVED[:-1], [13]]


async def test_who_has_no_repo_of_an_overlay_open_sees_no_difference_to_one_that_there_is_not(
    broker: Broker,
) -> None:
    writer, reader, event = await one_event(broker)
    assert await once_open(writer, event) == SERVED
    assert await once_open(writer, event, OTHER) == UNKNOWN
    assert await once_open(reader, event) == UNKNOWN
    # A repo of another overlay is none of this one.
    await reader.pin(TOPIC_A, access=WRITE_ONLY)
    assert await once_open(reader, event) == UNKNOWN
    await reader.pin(reads=[TOPIC_A])
    assert await once_open(reader, event) == SERVED
    await reader.ask(INNER, UnpinRepo(REPO_HASH))
    assert await once_open(reader, event) == UNKNOWN


async def test_a_pin_is_its_users_on_all_devices_and_what_is_open_is_one_connections(
    broker: Broker,
) -> None:
    _, reader, event = await one_event(broker)
    assert await once_open(await broker.client("alice", "phone"), event) == SERVED
    await reader.ask(INNER, open_repo())
    assert await once_open(reader, event) == SERVED
    assert await once_open(await broker.client("bob", "phone"), event) == UNKNOWN
    await reader.ask(INNER, UnpinRepo(REPO_HASH))
    assert await once_open(reader, event) == UNKNOWN


async def test_a_pin_on_the_inner_overlay_reads_on_the_outer_one_and_not_the_other_way(
    broker: Broker,
) -> None:
    writer, reader, event = await one_event(broker)
    hidden = [*UNKNOWN[:-1], [ResultCode.OVERLAY_MISMATCH]]
    assert await once_open(writer, event, OUTER) == hidden
    await writer.pin(TOPIC_A, expose=True)
    assert await once_open(writer, event, OUTER) == READ_OUTSIDE
    assert await once_open(reader, event, OUTER) == hidden
    await reader.pin(access=READ_ONLY, reads=[TOPIC_A])
    assert await once_open(reader, event, OUTER) == READ_OUTSIDE
    assert await once_open(reader, event) == UNKNOWN


async def test_a_topic_that_is_named_is_one_of_a_repo_that_is_open(broker: Broker) -> None:
    writer, reader = await broker.client("alice"), await broker.client("bob")
    await writer.pin(TOPIC_A)
    event, commit = writer.event()
    await writer.ask(INNER, event)
    requests: list[Callable[[bytes], RequestContent]] = [
        lambda topic: TopicSyncReq(topic, [], [], None),
        lambda topic: CommitGet(commit, topic),
        lambda topic: BlocksGet([commit], False, topic),
    ]
    for make in requests:
        await reader.pin(reads=[TOPIC_B], repo=b"2" * 32)
        assert await reader.result(INNER, make(A)) == ResultCode.TOPIC_NOT_FOUND
        # A repo that was pinned without topics may have any of those that there are.
        await reader.pin()
        assert (await reader.ask(INNER, make(A)))[-1][0] == ResultCode.END_OF_STREAM
        assert await reader.result(INNER, make(b"?" * 32)) == ResultCode.TOPIC_NOT_FOUND
        await reader.ask(INNER, UnpinRepo(REPO_HASH))


async def test_a_commit_that_stands_in_two_topics_is_read_from_the_one_that_is_named(
    broker: Broker,
) -> None:
    client = await broker.client()
    await client.pin(TOPIC_A, TOPIC_B)
    brief, commit = client.event()
    more = split_object(b"more", CONVERGENCE_KEY).blocks
    content = replace(brief.content, topic=B, blocks=[*brief.content.blocks, *more])
    for event in (brief, sign_event(content, TOPIC_B, client.key)):
        assert await client.result(INNER, event) == ResultCode.OK
    last, _ = client.event(b"last", topic=TOPIC_B)
    await client.ask(INNER, last)
    for topic, blocks in ((A, brief.content.blocks), (B, content.blocks)):
        *answers, _ = await client.ask(INNER, CommitGet(commit, topic))
        assert [block for _, block in answers] == blocks
    # The topic says where to look first: what is not there is looked for as without one.
    one = block_id(last.content.blocks[0])
    requests: list[RequestContent] = [CommitGet(one, A), BlocksGet([one], False, A)]
    for request in requests:
        (_, block), *_ = await client.ask(INNER, request)
        assert block == last.content.blocks[0]


GLOBAL = GlobalOverlay()
STRANGE_ADVERT = replace(
    pin(access=READ_ONLY), rw_topics=[sign_publisher_advert(TOPIC_A, identity("x").public_key)]
)
WRONG_PINS: list[tuple[OverlayId, PinRepo]] = [
    (OUTER, pin(TOPIC_A, access=READ_ONLY)),
    (OUTER, pin(access=READ_ONLY, expose=True)),
    (INNER, pin(access=READ_ONLY)),
    (INNER, pin(access=ReadOnlyAccess(INNER))),
    (OUTER, pin(TOPIC_A, access=READ_WRITE)),
    (OTHER, pin(TOPIC_A, access=READ_WRITE)),
    (INNER, pin(TOPIC_A, access=ReadWriteAccess(INNER, OTHER))),
    (INNER, pin(TOPIC_A, access=ReadWriteAccess(INNER, GLOBAL))),
    (INNER, pin(access=READ_WRITE, expose=True)),
    (PRIVATE, pin(TOPIC_A, access=WRITE_ONLY, expose=True)),
    (OUTER, pin(TOPIC_A, access=WriteOnlyAccess(OUTER))),
    (INNER, pin(TOPIC_A, access=WRITE_ONLY)),
    (OUTER, pin(access=WRITE_ONLY)),
    (OUTER, STRANGE_ADVERT),
    (GLOBAL, pin(access=READ_ONLY)),
    (GLOBAL, pin(access=ReadOnlyAccess(GLOBAL))),
    (GLOBAL, pin(TOPIC_A, access=WriteOnlyAccess(GLOBAL))),
    (INNER, pin(reads=[identity(str(n)) for n in range(NEXTGRAPH_TOPICS_MAX + 1)])),
]


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("case", range(len(WRONG_PINS)))
async def test_a_pin_that_its_access_does_not_allow_is_refused(
    broker: Broker, case: int, known: bool
) -> None:
    overlay, asked = WRONG_PINS[case]
    opened = OpenRepo(asked.hash, asked.overlay, [], 0, asked.ro_topics, asked.rw_topics)
    client = await broker.client()
    if known:
        await client.pin(TOPIC_A, expose=True)
        await client.pin(TOPIC_A, access=WRITE_ONLY)
    requests: list[RequestContent] = [asked] if asked.expose_outer else [asked, opened]
    for request in requests:
        assert await client.result(overlay, request) == ResultCode.INVALID_REQUEST
    # Nobody publishes outside, be anything there or not.
    publishing = subscribe(TOPIC_A, publisher=True)
    assert await client.result(OUTER, publishing) == ResultCode.INVALID_REQUEST


async def test_an_overlay_keeps_its_outer_one(broker: Broker) -> None:
    client = await broker.client()
    await client.pin(TOPIC_A)
    other = ReadWriteAccess(INNER, OuterOverlay(b"x" * 32))
    for access in (other, WriteOnlyAccess(INNER)):
        asked = pin(TOPIC_A, access=access)
        assert await client.result(INNER, asked) == ResultCode.OVERLAY_MISMATCH


# The outer side ----------------------------------------------------------------------------------


async def test_nothing_is_read_outside_before_it_is_exposed(broker: Broker) -> None:
    writer, reader = await broker.client("alice"), await broker.client("bob")
    await writer.pin(TOPIC_A)
    event, commit = writer.event()
    await writer.ask(INNER, event)
    assert await reader.result(OUTER, pin(access=READ_ONLY)) == ResultCode.NOT_FOUND
    assert await reader.result(OUTER, CommitGet(commit, None)) == ResultCode.NOT_FOUND
    assert await reader.result(OUTER, STATUS) == ResultCode.FALSE
    await writer.pin(TOPIC_A, expose=True)
    ((_, content),) = await writer.ask(INNER, STATUS)
    assert content.expose_outer
    # Topics that there are not are left out, and not made.
    asked = pin(access=READ_ONLY, reads=[TOPIC_A, TOPIC_B])
    assert opened(await reader.ask(OUTER, asked)) == {A: False}


async def test_the_two_sides_are_pinned_apart(broker: Broker) -> None:
    client = await broker.client()
    await client.pin(TOPIC_A, expose=True)
    assert await client.result(OUTER, STATUS) == ResultCode.FALSE
    await client.ask(OUTER, pin(access=READ_ONLY, reads=[TOPIC_A]))
    ((_, outer),), ((_, inner),) = (
        await client.ask(OUTER, STATUS),
        await client.ask(INNER, STATUS),
    )
    assert topics(outer) == {A: False}
    assert (outer.expose_outer, inner.expose_outer) == (False, True)
    assert await client.result(INNER, UnpinRepo(REPO_HASH)) == ResultCode.OK
    ((result, _),) = await client.ask(OUTER, STATUS)
    assert result == ResultCode.OK


async def test_commits_are_read_outside_without_the_keys_of_their_headers(broker: Broker) -> None:
    writer, reader = await broker.client("alice"), await broker.client("bob")
    await writer.pin(TOPIC_A, expose=True)
    event, commit = writer.event(after=[b"1" * 32])
    await writer.ask(INNER, event)
    await reader.pin(access=READ_ONLY)
    assert event.content.blocks[0].commit_header_key is not None
    for request in (CommitGet(commit, None), BlocksGet([commit], False, None)):
        for overlay, shown in ((INNER, True), (OUTER, False)):
            client = writer if shown else reader
            (_, block), *_ = await client.ask(overlay, request)
            assert block.content == event.content.blocks[0].content
            assert (block.commit_header_key is not None) is shown


async def test_nobody_gets_at_a_store_by_naming_its_outer_overlay(broker: Broker) -> None:
    writer, mallory = await broker.client("alice"), await broker.client("mallory")
    await writer.pin(TOPIC_A, expose=True)
    event, commit = writer.event()
    await writer.ask(INNER, event)
    stolen = ReadWriteAccess(OTHER, OUTER)
    await mallory.ask(OTHER, pin(TOPIC_B, access=stolen))
    assert await mallory.result(OTHER, CommitGet(commit, None)) == ResultCode.NOT_FOUND
    asked = pin(TOPIC_B, access=stolen, expose=True)
    assert await mallory.result(OTHER, asked) == ResultCode.OVERLAY_MISMATCH
    as_inner = InnerOverlay(OUTER.id)
    await mallory.ask(as_inner, pin(TOPIC_B, access=WriteOnlyAccess(as_inner)))
    assert await mallory.result(as_inner, CommitGet(commit, None)) == ResultCode.NOT_FOUND


async def test_readers_outside_publish_nothing(broker: Broker) -> None:
    writer, reader = await broker.client("alice"), await broker.client("bob")
    await writer.pin(TOPIC_A, expose=True)
    await reader.pin(access=READ_ONLY, reads=[TOPIC_A])
    asked = subscribe(TOPIC_A, publisher=True)
    assert await reader.result(OUTER, asked) == ResultCode.INVALID_REQUEST
    assert await reader.result(OUTER, subscribe(TOPIC_B)) == ResultCode.TOPIC_NOT_FOUND
    event, _ = reader.event()
    assert await reader.result(OUTER, event) == ResultCode.OVERLAY_MISMATCH


async def test_an_overlay_that_nobody_has_made_is_not_kept_in_mind(broker: Broker) -> None:
    client = await broker.client()
    for number in range(50):
        overlay = InnerOverlay(number.to_bytes(32, "big"))
        outer = OuterOverlay(overlay.id)
        assert await client.result(overlay, STATUS) == ResultCode.FALSE
        assert await client.result(outer, STATUS) == ResultCode.FALSE
    assert len(broker.context.overlays) == len(broker.context.outers) == 50
    broker.core.clock.advance(61.0)
    await broker.core.settle()
    assert len(broker.context.overlays) == len(broker.context.outers) == 0
    assert await client.result(INNER, STATUS) == ResultCode.FALSE
    assert opened(await client.pin(TOPIC_A)) == {A: True}
    broker.core.clock.advance(200.0)
    await broker.core.settle()
    assert len(broker.context.overlays) == 1
