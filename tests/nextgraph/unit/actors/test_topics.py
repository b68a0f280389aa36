"""Topics: publishing, forwarding, heads, synchronization, and what a crash leaves."""

from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from core_support import Core
from nextgraph_broker import (
    INNER,
    OUTER,
    PRIVATE,
    READ_ONLY,
    TOPIC_A,
    TOPIC_B,
    WRITE_ONLY,
    Broker,
    Client,
    subscribe,
    with_broker,
)
from rillnode.actors.core.quotas import Quota
from rillnode.actors.core.streams.context import stream_address
from rillnode.actors.nextgraph.names import topic_stream
from rillnode.codecs import native
from rillnode.codecs.entries import EntryKind, entries_of
from rillnode.codecs.limits import LINK_BUFFER_HIGH_BYTES
from rillnode.codecs.nextgraph.blocks import Block, BlockContent
from rillnode.codecs.nextgraph.bloom import BloomFilter, make_filter
from rillnode.codecs.nextgraph.commits import CommitHeader
from rillnode.codecs.nextgraph.events import EVENT, Event, sign_event
from rillnode.codecs.nextgraph.limits import NEXTGRAPH_BLOCKS_MAX
from rillnode.codecs.nextgraph.requests import CommitGet, TopicSyncReq, TopicUnsub
from rillnode.codecs.nextgraph.responses import EmptyResponse, TopicSyncRes
from rillnode.codecs.nextgraph.results import ResultCode
from rillnode.codecs.nextgraph.types import GlobalOverlay
from rillnode.codecs.routing.stream import PushRequest, Status


def sync(
    known: tuple[bytes, ...] = (), *, targets: tuple[bytes, ...] = (), have: Any = None
) -> TopicSyncReq:
    return TopicSyncReq(TOPIC_A.public_key, list(known), list(targets), have)


def events(answers: list[tuple[int, Any]]) -> list[Event]:
    """The events of a stream of answers, checked to be one."""
    assert answers[-1] == (ResultCode.END_OF_STREAM, EmptyResponse())
    assert all(result == ResultCode.PARTIAL_CONTENT for result, _ in answers[:-1])
    found = [content.item for _, content in answers[:-1] if isinstance(content, TopicSyncRes)]
    return [item for item in found if isinstance(item, Event)]


async def publish(client: Client, count: int) -> tuple[list[Event], list[bytes]]:
    """Publish a line of events."""
    made: list[Event] = []
    commits: list[bytes] = []
    for number in range(count):
        event, commit = client.event(b"%d" % number, after=commits[-1:])
        assert await client.result(INNER, event) == ResultCode.OK
        made.append(event)
        commits.append(commit)
    return made, commits


async def heads(client: Client) -> tuple[list[bytes], int]:
    ((_, content),) = await client.ask(INNER, subscribe(TOPIC_A))
    return content.known_heads, content.commits_nbr


async def test_an_event_is_an_entry_of_the_topic_s_stream_byte_for_byte(broker: Broker) -> None:
    client = await broker.client()
    await client.pin(TOPIC_A)
    made, _ = await publish(client, 2)
    stream = topic_stream(INNER.id, TOPIC_A.public_key)
    peer = broker.core.peer()
    (read,) = await peer.ask(stream_address(stream, 0), native.ReadRequest(1, 0, 10, 1_000_000))
    entries = [entry for block in read.blocks for entry in entries_of(block)]
    assert [entry.kind for entry in entries] == [EntryKind.NEXTGRAPH] * 2
    assert [entry.data for entry in entries] == [EVENT.encode(event) for event in made]


async def test_heads_and_count_follow_the_commits(broker: Broker) -> None:
    client = await broker.client()
    await client.pin(TOPIC_A)
    assert await heads(client) == ([], 0)
    _, (first, second) = await publish(client, 2)
    assert await heads(client) == ([second], 2)
    event, fork = client.event(b"fork", after=[first])
    await client.ask(INNER, event)
    assert await heads(client) == ([second, fork], 3)
    event, merge = client.event(b"x", header=CommitHeader(acks=[second], nacks=[fork]))
    await client.ask(INNER, event)
    assert await heads(client) == ([merge], 4)


async def test_an_event_goes_to_every_other_subscribed_connection_and_never_back(
    broker: Broker,
) -> None:
    writer, device = await broker.client("alice"), await broker.client("alice", "phone")
    reader, other = await broker.client("bob"), await broker.client("carol")
    await writer.pin(TOPIC_A)
    await device.ask(INNER, subscribe(TOPIC_A))
    await reader.pin(reads=[TOPIC_A])
    await other.pin(reads=[TOPIC_B])
    event, _ = writer.event()
    assert await writer.result(INNER, event) == ResultCode.OK
    for client, expected in ((writer, []), (device, [event]), (reader, [event]), (other, [])):
        await client.settle()
        assert client.heard() == expected


async def test_an_event_is_forwarded_on_the_overlay_that_its_follower_knows(broker: Broker) -> None:
    writer, outside = await broker.client("alice"), await broker.client("bob")
    await writer.pin(TOPIC_A, expose=True)
    await outside.pin(access=READ_ONLY, reads=[TOPIC_A])
    event, _ = writer.event()
    await writer.ask(INNER, event)
    await outside.settle()
    (message,) = outside.said
    assert (message.overlay, message.content) == (OUTER, event)


async def test_who_follows_on_both_overlays_gets_an_event_on_each_until_it_is_left(
    broker: Broker,
) -> None:
    writer, reader = await broker.client("alice"), await broker.client("bob")
    await writer.pin(TOPIC_A, expose=True)
    await reader.pin(reads=[TOPIC_A])
    await reader.pin(access=READ_ONLY, reads=[TOPIC_A])
    await publish(writer, 1)
    await reader.settle()
    assert {message.overlay for message in reader.said} == {INNER, OUTER}
    reader.said.clear()
    await reader.ask(INNER, TopicUnsub(TOPIC_A.public_key, b"h" * 32))
    event, _ = writer.event(b"more")
    await writer.ask(INNER, event)
    await reader.settle()
    assert [message.overlay for message in reader.said] == [OUTER]


async def test_a_follower_that_has_gone_or_unsubscribed_gets_nothing(broker: Broker) -> None:
    writer, gone, quiet = [await broker.client(name) for name in ("a", "b", "c")]
    await writer.pin(TOPIC_A)
    for client in (gone, quiet):
        await client.pin(reads=[TOPIC_A])
    gone.leave()
    unsubscribe = TopicUnsub(TOPIC_A.public_key, b"h" * 32)
    assert await quiet.result(INNER, unsubscribe) == ResultCode.OK
    assert await quiet.result(INNER, unsubscribe) == ResultCode.SUBSCRIPTION_NOT_FOUND
    await publish(writer, 1)
    await quiet.settle()
    assert quiet.heard() == []
    assert broker.core.system.dead_letters.count == 0


async def test_the_same_event_is_stored_and_forwarded_once_however_often_it_comes(
    broker: Broker,
) -> None:
    writer, reader = await broker.client("alice"), await broker.client("bob")
    await writer.pin(TOPIC_A)
    await reader.pin(reads=[TOPIC_A])
    event, commit = writer.event()
    for _ in range(3):
        assert await writer.result(INNER, event) == ResultCode.OK
    await reader.settle()
    assert reader.heard() == [event]
    assert await heads(writer) == ([commit], 1)


async def test_the_first_thing_wrong_with_a_publication_is_what_is_told(broker: Broker) -> None:
    client, reader = await broker.client("alice"), await broker.client("bob")
    event, _ = client.event()
    assert await client.result(OUTER, event) == ResultCode.OVERLAY_MISMATCH
    assert await client.result(GlobalOverlay(), event) == ResultCode.OVERLAY_MISMATCH
    assert await client.result(INNER, event) == ResultCode.OVERLAY_NOT_FOUND
    await client.pin(TOPIC_B)
    assert await client.result(INNER, event) == ResultCode.TOPIC_NOT_FOUND
    await client.pin(TOPIC_A)
    await reader.pin(reads=[TOPIC_A])
    event, _ = reader.event()
    assert await reader.result(INNER, event) == ResultCode.ACCESS_DENIED
    # The key of a header is not covered by the block's id, but by the signatures.
    event, _ = client.event(after=[b"1" * 32])
    event.content.blocks[0].commit_header_key = b"w" * 32
    signed = sign_event(event.content, TOPIC_A, client.key)
    assert await client.result(INNER, signed) == ResultCode.INVALID_HEADER
    assert (await heads(client))[1] == 0


async def test_everything_acknowledged_is_there_after_a_power_cut(broker: Broker) -> None:
    client = await broker.client()
    await client.pin(TOPIC_A)
    made, commits = await publish(client, 5)
    await broker.restart()
    again = await broker.client()
    assert await heads(again) == ([commits[-1]], 5)
    assert events(await again.ask(INNER, sync())) == made
    # The right to publish has stayed as well.
    event, _ = again.event(b"after", after=commits[-1:])
    assert await again.result(INNER, event) == ResultCode.OK


async def test_what_the_disk_refuses_is_neither_acknowledged_nor_forwarded(broker: Broker) -> None:
    writer, reader = await broker.client("alice"), await broker.client("bob")
    await writer.pin(TOPIC_A)
    await reader.pin(reads=[TOPIC_A])
    event, commit = writer.event()
    broker.core.store.faults.failing_syncs = 1
    assert await writer.result(INNER, event) == ResultCode.STORAGE_ERROR
    broker.core.clock.advance(1.0)
    await reader.settle()
    assert reader.heard() == []
    assert await writer.result(INNER, event) == ResultCode.OK
    assert await heads(writer) == ([commit], 1)


async def test_an_event_that_reached_the_disk_of_a_failed_write_is_not_stored_twice(
    broker: Broker,
) -> None:
    writer, reader = await broker.client("alice"), await broker.client("bob")
    await writer.pin(TOPIC_A)
    await reader.pin(reads=[TOPIC_A])
    (event, commit), faults = writer.event(), broker.core.store.faults
    faults.failing_syncs = faults.surviving = 1
    assert await writer.result(INNER, event) == ResultCode.STORAGE_ERROR
    broker.core.clock.advance(1.0)
    assert await writer.result(INNER, event) == ResultCode.OK
    assert await heads(writer) == ([commit], 1)
    stream = topic_stream(INNER.id, TOPIC_A.public_key)
    (described,) = await broker.core.peer().ask("stream", native.DescribeRequest(1, stream))
    assert described.stream.partitions[0].next_index == 1
    more, _ = writer.event(b"more", after=[commit])
    for again in (event, more):
        assert await writer.result(INNER, again) == ResultCode.OK
    await reader.settle()
    assert reader.heard() == [event, more]


async def test_a_topic_outlives_its_passivation(broker: Broker) -> None:
    client = await broker.client()
    await client.pin(TOPIC_A)
    made, _ = await publish(client, 3)
    client.leave()
    for _ in range(5):
        broker.core.clock.advance(60.0)
        await broker.core.settle()
    again = await broker.client("alice", "phone")
    assert events(await again.ask(INNER, sync())) == made


# Synchronization ---------------------------------------------------------------------------------


async def test_what_a_client_has_not_is_sent_parents_first(broker: Broker) -> None:
    client = await broker.client()
    await client.pin(TOPIC_A)
    made, commits = await publish(client, 6)
    assert events(await client.ask(INNER, sync())) == made
    assert events(await client.ask(INNER, sync((commits[2],)))) == made[3:]
    assert events(await client.ask(INNER, sync(targets=(commits[3],)))) == made[:4]
    assert events(await client.ask(INNER, sync((b"?" * 32,)))) == made
    have = make_filter(commits[:4], 100)
    assert events(await client.ask(INNER, sync(have=have))) == made[4:]


async def test_events_that_came_in_another_order_are_sent_parents_first(broker: Broker) -> None:
    client = await broker.client()
    await client.pin(TOPIC_A)
    first, one = client.event(b"1")
    second, two = client.event(b"2", after=[one])
    third, _ = client.event(b"3", after=[two])
    for event in (third, first, second):
        assert await client.result(INNER, event) == ResultCode.OK
    assert events(await client.ask(INNER, sync())) == [first, second, third]


async def test_nothing_to_send_is_told_and_so_is_a_topic_without_anything(broker: Broker) -> None:
    client = await broker.client()
    assert await client.result(INNER, sync()) == ResultCode.OVERLAY_NOT_FOUND
    await client.pin(TOPIC_B)
    assert await client.result(INNER, sync()) == ResultCode.TOPIC_NOT_FOUND
    await client.pin(TOPIC_A)
    assert await client.result(INNER, sync()) == ResultCode.TOPIC_NOT_FOUND
    _, commits = await publish(client, 2)
    assert await client.result(INNER, sync((commits[-1],))) == ResultCode.EMPTY_STREAM
    for wrong in (b"", b"x" * 31):
        request = sync(have=BloomFilter(wrong))
        assert await client.result(INNER, request) == ResultCode.INVALID_REQUEST


async def test_a_long_synchronization_waits_for_a_client_that_does_not_read(broker: Broker) -> None:
    client = await broker.client()
    await client.pin(TOPIC_A)
    for number in range(110):
        event, _ = client.event(Random(number).randbytes(18_000))
        assert await client.result(INNER, event) == ResultCode.OK
    client.wire.stalls = True
    number = client.post(INNER, sync())
    await broker.core.settle()
    for _ in range(40):
        broker.core.clock.advance(0.1)
        await broker.core.settle()
    assert 0 < sum(map(len, client.wire.sent)) < LINK_BUFFER_HIGH_BYTES + 600_000
    assert not client.wire.reading
    client.wire.stalls = False
    for _ in range(40):
        broker.core.clock.advance(0.1)
        await client.settle()
    assert len(events(client.answers(number))) == 110


async def test_of_an_event_that_was_trimmed_the_blocks_are_sent(broker: Broker) -> None:
    client = await broker.client()
    await client.pin(TOPIC_A)
    made, commits = await publish(client, 3)
    stream = topic_stream(INNER.id, TOPIC_A.public_key)
    (trimmed,) = await broker.core.peer().ask("stream", native.TrimRequest(1, stream, 0, 2))
    assert isinstance(trimmed, native.PositionResponse)
    for known in range(2):
        # Of the first trimmed event nothing is known any more after a restart; of the second,
        # that it comes before the one that is kept.
        answers = await client.ask(INNER, sync())
        items = [content.item for _, content in answers[:-1]]
        expected = [made[1].content.blocks[0], made[2]]
        assert items == (expected if known else [made[0].content.blocks[0], *expected])
        assert await heads(client) == ([commits[2]], 1 if known else 3)
        await broker.restart()
        client = await broker.client()


async def test_a_commit_is_sent_as_its_event_had_it(broker: Broker) -> None:
    client = await broker.client()
    await client.pin(TOPIC_A, access=WRITE_ONLY)
    event, commit = client.event(after=[b"1" * 32])
    await client.ask(PRIVATE, event)
    answers = await client.ask(PRIVATE, CommitGet(commit, None))
    assert [content for _, content in answers[:-1]] == event.content.blocks
    assert answers[-1][0] == ResultCode.END_OF_STREAM
    assert await client.result(PRIVATE, CommitGet(b"?" * 32, None)) == ResultCode.NOT_FOUND
    assert await client.result(INNER, CommitGet(commit, None)) == ResultCode.NOT_FOUND


# The common log ----------------------------------------------------------------------------------


async def test_nobody_else_pushes_into_a_topic(broker: Broker) -> None:
    client = await broker.client()
    await client.pin(TOPIC_A)
    stream = topic_stream(INNER.id, TOPIC_A.public_key)
    peer = broker.core.peer()
    (confirm,) = await peer.ask(stream_address(stream, 0), PushRequest(1, b"foreign"))
    assert confirm.status is Status.ERROR


async def test_nobody_else_makes_or_grows_a_topic_s_stream(broker: Broker) -> None:
    client, peer = await broker.client(), broker.core.peer()
    stream = topic_stream(INNER.id, TOPIC_A.public_key)
    (refused,) = await peer.ask("stream", native.OpenRequest(1, stream, 1))
    assert isinstance(refused, native.Failure)
    await client.pin(TOPIC_A)
    (opened,) = await peer.ask("stream", native.OpenRequest(2, stream, 4))
    assert isinstance(opened, native.StreamResponse)
    assert len(opened.stream.partitions) == 1


async def test_an_event_is_bounded_in_blocks_and_bytes(broker: Broker) -> None:
    client = await broker.client()
    await client.pin(TOPIC_A)
    event, _ = client.event()
    spare = Block(None, BlockContent(None, [], b"x"))
    large = Block(None, BlockContent(None, [], bytes(1_048_500)))
    for blocks in ([spare] * NEXTGRAPH_BLOCKS_MAX, [large, large]):
        content = replace(event.content, blocks=[*event.content.blocks, *blocks])
        signed = sign_event(content, TOPIC_A, client.key)
        assert await client.result(INNER, signed) == ResultCode.INVALID_REQUEST
    assert await client.result(INNER, event) == ResultCode.OK


async def test_a_topic_whose_stream_was_removed_begins_anew(broker: Broker) -> None:
    client = await broker.client()
    await client.pin(TOPIC_A)
    await publish(client, 2)
    await remove(broker.core, topic_stream(INNER.id, TOPIC_A.public_key))
    event, commit = client.event(b"again")
    result = await client.result(INNER, event)
    assert result in (ResultCode.STORAGE_ERROR, ResultCode.TOPIC_NOT_FOUND)
    assert await client.result(INNER, event) == ResultCode.TOPIC_NOT_FOUND
    assert await heads(client) == ([], 0)
    assert await client.result(INNER, event) == ResultCode.OK
    assert await heads(client) == ([commit], 1)


async def remove(core: Core, stream: str) -> None:
    (done,) = await core.peer().ask("stream", native.RemoveRequest(1, stream))
    assert isinstance(done, native.DoneResponse)
    core.clock.advance(2.0)
    await core.settle()


@pytest.mark.parametrize(
    ("quota", "result"),
    [
        (Quota(who="nextgraph:*", streams_max=1), ResultCode.ACCESS_DENIED),
        (Quota(who="nextgraph:*", bytes_max=1), ResultCode.STORAGE_ERROR),
    ],
)
def test_topics_and_bytes_are_charged_to_their_user(quota: Quota, result: ResultCode) -> None:
    async def test(broker: Broker) -> None:
        client = await broker.client()
        if quota.streams_max:
            answers = await client.pin(TOPIC_A, TOPIC_B)
            assert [found for found, _ in answers] == [result]
            assert (await client.pin(TOPIC_A))[0][0] == ResultCode.OK
        else:
            await client.pin(TOPIC_A)
            event, _ = client.event()
            assert await client.result(INNER, event) == result

    with_broker(test, quotas=[quota])
