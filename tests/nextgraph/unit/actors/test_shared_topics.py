"""Topics whose log other nodes write, too."""

from typing import Any

import pytest

from coroutines import handed_by
from nextgraph_broker import INNER, REPO_HASH, TOPIC_A, Broker, Client, subscribe
from nextgraph_nodes import STREAM, OtherNode, with_nodes
from rillnode.actors.log import Append, PutStream, Read, StreamRecord, log_id
from rillnode.actors.nextgraph.actor import FENCED_MAX
from rillnode.actors.nextgraph.topic import RETRY_SECONDS
from rillnode.codecs.entries import EntryKind, pack_body
from rillnode.codecs.errors import StoreError
from rillnode.codecs.nextgraph.events import EVENT, Event
from rillnode.codecs.nextgraph.requests import TopicSyncReq, TopicUnsub
from rillnode.codecs.nextgraph.responses import TopicSyncRes
from rillnode.codecs.nextgraph.results import ResultCode

broker = handed_by(with_nodes)


async def heard(client: Client) -> list[Any]:
    await client.settle()
    return client.heard()


async def synced(client: Client) -> list[Event]:
    request = TopicSyncReq(TOPIC_A.public_key, [], [], None)
    contents = [content for _, content in await client.ask(INNER, request)]
    items = [content.item for content in contents if isinstance(content, TopicSyncRes)]
    return [item for item in items if isinstance(item, Event)]


async def followers(broker: Broker) -> tuple[Client, Client]:
    writer, reader = await broker.client(), await broker.client("bob")
    await writer.pin(TOPIC_A)
    await reader.pin(reads=[TOPIC_A])
    return writer, reader


async def test_what_others_publish_is_forwarded_once_in_the_order_of_the_log(
    broker: Broker, other: OtherNode
) -> None:
    writer, reader = await followers(broker)
    made = [writer.event(b"%d" % number) for number in range(6)]
    for number, one in enumerate(made):
        if number % 2:
            await other.publish(one)
        else:
            assert await writer.result(INNER, one[0]) == ResultCode.OK
    assert await heard(reader) == [event for event, _ in made]
    assert await heard(writer) == [event for event, _ in made[1::2]]
    assert await synced(reader) == [event for event, _ in made]


async def test_what_nobody_told_of_is_there_for_who_asks_and_forwarded_before(
    broker: Broker, other: OtherNode
) -> None:
    writer, reader = await followers(broker)
    first, second, third = [writer.event(b"%d" % number) for number in range(3)]
    await other.publish(first, tells=False)
    ((_, content),) = await writer.ask(INNER, subscribe(TOPIC_A))
    assert (content.known_heads, content.commits_nbr) == ([first[1]], 1)
    await other.publish(second, tells=False)
    assert await synced(writer) == [first[0], second[0]]
    # One that is there already is not stored again.
    assert await writer.result(INNER, second[0]) == ResultCode.OK
    assert await writer.result(INNER, third[0]) == ResultCode.OK
    assert (await other.found()).extents[0].next_index == 3
    assert await heard(reader) == [first[0], second[0], third[0]]


async def test_an_event_that_stands_behind_others_is_forwarded_behind_them(
    broker: Broker, other: OtherNode
) -> None:
    writer, reader = await followers(broker)
    theirs, ours = writer.event(b"theirs"), writer.event(b"ours")
    number = writer.post(INNER, ours[0])
    # The store appends it while the topic knows of nothing.
    find = await other.found()
    assert find.record is not None
    other.submit(
        Append(
            log=log_id(find.record.id, 0),
            kind=EntryKind.NEXTGRAPH,
            count=1,
            body=pack_body([EVENT.encode(theirs[0])]),
            reply_to=broker.core.streams,
        )
    )
    await writer.settle()
    assert [result for result, _ in writer.answers(number)] == [ResultCode.OK]
    assert await heard(reader) == await synced(reader)
    assert await heard(writer) == [theirs[0]]


async def test_a_log_is_watched_only_while_somebody_follows(
    broker: Broker, other: OtherNode
) -> None:
    writer, reader = await followers(broker)
    assert len(other.watches) == 1
    for client in (writer, reader):
        left = TopicUnsub(topic=TOPIC_A.public_key, repo_hash=REPO_HASH)
        assert await client.result(INNER, left) == ResultCode.OK
    await other.publish(writer.event(b"1"))
    assert other.watches == []
    assert await heard(writer) == await heard(reader) == []
    await writer.ask(INNER, subscribe(TOPIC_A))
    assert len(other.watches) == 1
    # Neither for who has gone.
    writer.leave()
    await broker.core.settle()
    await other.publish(reader.event(b"2"))
    assert other.watches == []


async def test_what_is_no_event_is_passed_over(broker: Broker, other: OtherNode) -> None:
    writer, reader = await followers(broker)
    event = writer.event()
    await other.publish(None, event)
    assert await heard(reader) == [event[0]]
    # An event that stands there twice is forwarded once.
    await other.publish(event)
    assert await heard(reader) == []


async def test_a_log_that_cannot_be_read_is_read_later(
    broker: Broker, other: OtherNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, reader = await followers(broker)
    store = broker.core.store
    read = store.read

    def fails(operation: Any) -> bool:
        if not isinstance(operation, Read):
            return read(operation)
        operation.error = StoreError("store.unreachable", "no answer")
        return True

    monkeypatch.setattr(store, "read", fails)
    event = writer.event()
    await other.publish(event)
    assert await heard(reader) == []
    assert await writer.result(INNER, event[0]) == ResultCode.STORAGE_ERROR
    monkeypatch.setattr(store, "read", read)
    broker.core.clock.advance(RETRY_SECONDS)
    assert await heard(reader) == [event[0]]


async def test_a_log_that_is_forgotten_while_it_is_read_is_read_all_the_same(
    broker: Broker, other: OtherNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, reader = await followers(broker)
    store = broker.core.store
    read = store.read
    held: list[Read] = []

    def later(operation: Any) -> bool:
        if not isinstance(operation, Read) or operation.reply_to is broker.core.streams:
            return read(operation)
        held.append(operation)
        return False

    def fails(operation: Any) -> None:
        operation.error = StoreError("store.unreachable", "no answer")
        broker.core.complete(operation)

    event, theirs = writer.event(b"ours"), writer.event(b"theirs")
    kept: list[Append] = []
    with monkeypatch.context() as patch:
        patch.setattr(store, "submit", kept.append)
        number = writer.post(INNER, event[0])
        await writer.settle()
    monkeypatch.setattr(store, "read", later)
    await other.publish(theirs)
    assert held
    # What was published fails while the log is read, so that the topic is looked for anew.
    fails(kept[0])
    await broker.core.settle()
    monkeypatch.setattr(store, "read", read)
    for operation in held:
        if read(operation):
            broker.core.complete(operation)
    assert await heard(reader) == [theirs[0]]
    await writer.settle()
    assert [result for result, _ in writer.answers(number)] == [ResultCode.STORAGE_ERROR]


async def test_a_topic_that_another_node_makes_at_the_same_time_is_the_same(
    broker: Broker, other: OtherNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = other.submit

    def behind(operation: Any) -> None:
        if isinstance(operation, PutStream):
            made = PutStream(record=StreamRecord(name=STREAM), reply_to=broker.core.streams)
            submit(made)
        submit(operation)

    with monkeypatch.context() as patch:
        patch.setattr(broker.core.store, "submit", behind)
        writer, _ = await followers(broker)
    event = writer.event()
    await other.publish(event)
    assert await heard(writer) == [event[0]]


async def test_a_topic_that_was_not_there_is_looked_for_again(
    broker: Broker, other: OtherNode
) -> None:
    client = await broker.client()
    await client.pin()
    request = TopicSyncReq(TOPIC_A.public_key, [], [], None)
    assert await client.result(INNER, request) == ResultCode.TOPIC_NOT_FOUND
    made = PutStream(record=StreamRecord(name=STREAM), reply_to=broker.core.streams)
    other.submit(made)
    await broker.core.settle()
    event = client.event()
    await other.publish(event)
    assert await synced(client) == [event[0]]


@pytest.mark.parametrize("times", [1, 10])
async def test_an_event_whose_log_another_node_has_written_first_is_tried_again(
    broker: Broker, other: OtherNode, times: int
) -> None:
    writer, reader = await followers(broker)
    first = writer.event(b"first")
    assert await writer.result(INNER, first[0]) == ResultCode.OK
    theirs = [writer.event(b"theirs %d" % n, after=[first[1]]) for n in range(times)]
    other.first = [*reversed(theirs)]
    event, commit = writer.event(b"ours", after=[first[1]])
    assert await writer.result(INNER, event) == ResultCode.OK
    assert other.refused == times
    # What the other node has written is known since, and forwarded before.
    known = [first[0], *(one for one, _ in theirs), event]
    assert await heard(reader) == known
    assert await heard(writer) == known[1:-1]
    ((_, content),) = await writer.ask(INNER, subscribe(TOPIC_A))
    assert content.known_heads == [*(one for _, one in theirs), commit]
    assert content.commits_nbr == 2 + times
    assert await synced(writer) == known


async def test_an_event_that_another_node_has_stored_first_is_not_stored_twice(
    broker: Broker, other: OtherNode
) -> None:
    writer, reader = await followers(broker)
    event, commit = writer.event(b"sent to two nodes")
    other.first = [(event, commit)]
    assert await writer.result(INNER, event) == ResultCode.OK
    assert other.refused == 1
    assert await synced(writer) == [event]
    assert await heard(reader) == [event]
    assert await heard(writer) == []


async def test_an_event_is_refused_where_other_nodes_are_always_first(
    broker: Broker, other: OtherNode
) -> None:
    writer, _ = await followers(broker)
    other.first = [writer.event(b"theirs %d" % number) for number in range(FENCED_MAX + 5)]
    event, _ = writer.event(b"ours")
    number = writer.post(INNER, event)
    for _ in range(FENCED_MAX // 10):
        await writer.settle()
    assert [result for result, _ in writer.answers(number)] == [ResultCode.STORAGE_ERROR]
    assert other.refused == FENCED_MAX + 1
