"""One stream partition as Streamr's clients see it: publishing, subscribing, broadcasts."""

import json
from typing import Any

import pytest

from core_support import encode
from rillnode.actors.core.streams.context import stream_address
from rillnode.actors.log import Read, log_id
from rillnode.actors.streamr import relay
from rillnode.actors.streamr.stored import read_entry
from rillnode.codecs import entries, native
from rillnode.codecs.entries import Entry, EntryKind, entries_of
from rillnode.codecs.routing.stream import PushRequest
from rillnode.codecs.streamr.ethereum import EthereumKey
from rillnode.codecs.streamr.stream_message import StreamMessage
from streamr_support import ALICE, BOB, STREAM, StreamrCore, array, dump, message, publish


def stored(node: StreamrCore) -> list[bytes]:
    operation = Read(log=log_id(1, 0))
    assert node.core.store.read(operation)
    return [entry.data for block in operation.blocks for entry in entries_of(block)]


async def test_what_is_published_comes_to_every_subscriber_and_to_the_publisher_too(
    node: StreamrCore,
) -> None:
    await node.stream()
    publisher, other = node.client(), node.client()
    await publisher.subscribe()
    await other.subscribe()
    made = message(1_000)
    assert await publisher.ask(publish(made)) == [[2, 0, "", array(made)]]
    assert await other.heard() == [[2, 0, "", array(made)]]


async def test_a_message_is_stored_as_exactly_its_own_text(node: StreamrCore) -> None:
    await node.stream()
    text = dump(array(message(1_000))).replace(b",", b" ,")
    client = node.client()
    await client.ask(b'[2,8,"p",' + text + b",null]")
    assert stored(node) == [text]
    operation = Read(log=log_id(1, 0))
    node.core.store.read(operation)
    (entry,) = entries_of(operation.blocks[0])
    assert (entry.kind, entry.meta) == (EntryKind.STREAMR, b"")


async def test_a_message_of_another_version_is_stored_as_version_32(node: StreamrCore) -> None:
    await node.stream()
    made = message(1_000)
    assert await node.client(1, 31).ask([1, 8, array(made, 31), None]) == []
    assert [json.loads(text) for text in stored(node)] == [array(made)]


@pytest.mark.parametrize("ready_bytes", [0, relay.READ_BYTES])
async def test_what_was_just_decoded_is_sent_as_what_is_read_back_would_be(
    node: StreamrCore, monkeypatch: pytest.MonkeyPatch, ready_bytes: int
) -> None:
    read: list[bytes] = []

    def noting(entry: Entry, stream: str, partition: int, key: EthereumKey) -> StreamMessage | None:
        read.append(entry.data)
        return read_entry(entry, stream, partition, key)

    monkeypatch.setattr(relay, "read_entry", noting)
    monkeypatch.setattr(relay, "READ_BYTES", ready_bytes)
    await node.stream()
    client = node.client()
    await client.subscribe()
    made = [message(1_000 + number) for number in range(3)]
    heard = await client.ask(*map(publish, made))
    heard += await client.ask([2, 8, "p", array(message(2_000), 31), None])
    assert heard == [[2, 0, "", array(one)] for one in (*made, message(2_000))]
    # What is stored in another version than it came in is always read back.
    assert len(read) == (4 if ready_bytes == 0 else 1)


async def test_what_is_published_and_pushed_meanwhile_is_sent_in_the_order_of_the_log(
    node: StreamrCore,
) -> None:
    await node.stream()
    client, other, peer = node.client(), node.client(), node.core.peer()
    await client.subscribe()
    heard = list[Any]()
    for number in range(4):
        (client, other)[number % 2].send(publish(message(1_000 + number)))
        peer.send(stream_address(STREAM, 0), encode(PushRequest(number, b"%d" % number)))
        if number == 1:
            heard += await client.heard()
    heard += await client.heard()
    kept = [text.decode() for text in stored(node)]
    assert len(kept) == 8
    sent = [text if text.isdecimal() else json.loads(text)[7] for text in kept]
    assert [one[3][7] for one in heard] == sent


async def test_two_subscriptions_of_one_connection_bring_one_broadcast(node: StreamrCore) -> None:
    await node.stream()
    client = node.client()
    await client.subscribe()
    await client.subscribe()
    made = message(1_000)
    assert await client.ask(publish(made)) == [[2, 0, "", array(made)]]


async def test_a_frame_is_made_once_for_each_dialect(node: StreamrCore) -> None:
    await node.stream()
    clients = [node.client(*versions) for versions in ((2, 32), (2, 32), (1, 31), (1, 31))]
    for client in clients:
        await client.subscribe()
    made = message(1_000)
    await node.client().ask(publish(made))
    assert sum(client.link.framed for client in clients) == 2


async def test_a_subscriber_that_leaves_hears_nothing_more(node: StreamrCore) -> None:
    await node.stream()
    client, other = node.client(), node.client()
    await client.subscribe()
    await other.subscribe()
    assert await client.ask([2, 10, "u", STREAM, 0]) == [[2, 3, "u", STREAM, 0]]
    other.close()
    await node.core.settle()
    third = node.client()
    assert await third.ask(publish(message(1_000))) == []
    assert await client.heard() == await other.heard() == []


async def test_messages_of_a_chain_are_taken_once_and_in_their_numbering(node: StreamrCore) -> None:
    await node.stream()
    client = node.client()
    await client.subscribe()
    first, second = message(1_000), message(2_000, previous=(1_000, 0))
    third = message(3_000, previous=(2_000, 0))
    heard = await client.ask(
        publish(first), publish(first), publish(third), publish(second), publish(second)
    )
    assert [one[3][1][2] for one in heard] == [1_000, 3_000, 2_000]
    assert node.context.counters["duplicate"] == 2


async def test_an_unsigned_message_cannot_make_anothers_look_old(node: StreamrCore) -> None:
    await node.stream()
    client = node.client()
    await client.subscribe()
    signed = message(1_000)
    forged = message(9_000, key=None, publisher=signed.id.publisher_id)
    heard = await client.ask(publish(forged), publish(signed))
    assert [one[3][1][2] for one in heard] == [9_000, 1_000]


async def test_chains_are_numbered_apart_and_publishers_without_case(node: StreamrCore) -> None:
    await node.stream()
    client = node.client()
    await client.subscribe()
    lower = message(1_000, publisher=ALICE.address.lower())
    heard = await client.ask(
        publish(message(1_000)),
        publish(lower),
        publish(message(1_000, chain="another")),
        publish(message(1_000, key=BOB)),
    )
    assert len(heard) == 3
    assert heard[0][3][1][4] == ALICE.address


async def test_old_messages_of_one_millisecond_are_all_taken(node: StreamrCore) -> None:
    await node.stream()
    old = [29, STREAM, 0, 1_000, 0, None, None, 27, '{"a":1}', 0, None, None]
    await node.client(1, 31).ask([1, 8, old, None], [1, 8, old, None])
    assert len(stored(node)) == 2


async def test_messages_that_could_not_be_stored_may_come_again(node: StreamrCore) -> None:
    await node.stream()
    client = node.client()
    await client.subscribe()
    node.core.store.faults.failing_syncs = 1
    (error,) = await client.ask(publish(message(1_000), "first"))
    assert (error[:3], error[4]) == ([2, 7, "first"], "REQUEST_FAILED")
    node.core.clock.advance(1.0)
    assert len(await client.ask(publish(message(1_000)))) == 1


async def test_a_message_that_is_too_large_to_be_stored_is_refused_each_time(
    node: StreamrCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.stream()
    client = node.client()
    await client.subscribe()
    monkeypatch.setattr(entries, "ENTRY_BYTES_MAX", 100)
    for _ in range(2):
        (error,) = await client.ask(publish(message(1_000), "p"))
        assert (error[:3], error[4]) == ([2, 7, "p"], "REQUEST_FAILED")
    monkeypatch.undo()
    assert len(await client.ask(publish(message(1_000)))) == 1


async def test_a_relay_goes_when_there_is_no_stream_and_comes_back_with_it(
    node: StreamrCore,
) -> None:
    client = node.client()
    (error,) = await client.ask([2, 9, "s", STREAM, 0, None])
    assert error == [2, 7, "s", f"Stream {STREAM} was not found", "NOT_FOUND"]
    relays = len([kind for kind in node.core.system.stats() if "RelayActor" in kind])
    assert relays == 1
    node.core.clock.advance(1.1)
    await node.core.settle()
    await node.stream()
    await client.subscribe()
    assert len(await client.ask(publish(message(1_000)))) == 1


async def test_nothing_is_left_of_the_relays_of_removed_streams(node: StreamrCore) -> None:
    admin = node.core.peer()
    await node.stream()
    client = node.client()
    await client.subscribe()
    await admin.ask("stream", native.RemoveRequest(1, STREAM))
    node.core.clock.advance(5.0)
    await node.core.settle()
    client.close()
    await node.core.settle()
    node.core.clock.advance(5.0)
    await node.core.settle()
    for name, kind in node.core.system.stats().items():
        if name.endswith(("RelayActor", "StreamActor")):
            assert kind.cells == 0, name


async def test_an_idle_relay_is_given_up_and_works_as_before(node: StreamrCore) -> None:
    await node.stream()
    client = node.client()
    await client.ask(publish(message(1_000)))
    node.core.clock.advance(2_000.0)
    await node.core.settle()
    await client.subscribe()
    heard = await client.ask(publish(message(2_000)))
    assert [one[3][1][2] for one in heard] == [2_000]


async def test_subscribers_hear_a_stream_that_was_removed_and_made_again(node: StreamrCore) -> None:
    await node.stream()
    client, admin = node.client(), node.core.peer()
    await client.subscribe()
    await client.ask(publish(message(1_000)))
    await admin.ask("stream", native.RemoveRequest(1, STREAM))
    (error,) = await client.ask(publish(message(2_000)))
    assert error[4] == "NOT_FOUND"
    await node.stream()
    heard = await client.ask(publish(message(3_000)))
    assert [one[3][1][2] for one in heard] == [3_000]
