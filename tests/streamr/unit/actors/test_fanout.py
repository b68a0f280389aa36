"""Many subscribers, some of which never read: they cost their links, and nobody else waits."""

import pytest

from core_support import encode
from rillnode.actors.streamr import stored
from rillnode.actors.streamr.fanout import SLICE_CLIENTS, Fanout
from rillnode.actors.streamr.outlet import Outlet
from rillnode.actors.streamr.relay import SLICE_SIGNED
from rillnode.codecs.routing.stream import PushRequest
from rillnode.codecs.streamr.limits import STREAMR_BACKLOG_HIGH_BYTES
from rillnode.codecs.streamr.stream_message import Layout
from streamr_support import STREAM, ClientLink, StreamrCore, array, message, publish
from turn_support import counted_by_turn

SUBSCRIBERS = 1_000
SLOW = 100
MESSAGES = 20


async def test_slow_subscribers_hold_nobody_up(node: StreamrCore) -> None:
    await node.stream()
    clients = [node.client() for _ in range(SUBSCRIBERS)]
    for client in clients[:SLOW]:
        client.link.is_slow = True
    request = [2, 9, "s", "0x01/weather", 0, None]
    for client in clients:
        client.send(request)
    for _ in range(10):
        await node.core.settle()
    assert all(len(client.link.taken) == 1 for client in clients)
    sent = [message(number + 1, key=None) for number in range(MESSAGES)]
    node.client().send(*map(publish, sent))
    for _ in range(10):
        await node.core.settle()
    wanted = [[2, 0, "", array(made)] for made in sent]
    for client in clients[SLOW:]:
        assert len(client.link.taken) == 1 + MESSAGES
    assert (await clients[-1].heard())[1:] == wanted
    # One frame for each message, whatever the number of subscribers.
    assert sum(client.link.framed for client in clients) == MESSAGES


async def test_what_comes_waits_for_the_fastest_subscriber(node: StreamrCore) -> None:
    """Of many partitions over one link, each is slower than its publishers: that is no failure."""
    sent = [message(number + 1, key=None) for number in range(MESSAGES)]
    over = STREAMR_BACKLOG_HIGH_BYTES + 1
    await node.stream()
    slow, slower = node.client(), node.client()
    for client in (slow, slower):
        await client.subscribe()
        client.link.buffered_bytes = over
    node.client().send(*map(publish, sent))
    for client in (slow, slower):
        assert await client.heard() == []
    slow.link.buffered_bytes = 0
    node.core.clock.advance(0.1)
    wanted = [[2, 0, "", array(made)] for made in sent]
    assert await slow.heard() == wanted
    assert await slower.heard() == wanted  # whose limits close it, should it be far behind
    # It goes on without those for whom it has waited.
    slow.link.buffered_bytes = over
    node.client().send(publish(message(MESSAGES + 1, key=None)))
    await node.core.settle()
    slow.close()
    slower.close()
    other = node.client()
    await other.subscribe()
    node.core.clock.advance(0.1)
    answers = await other.ask(publish(message(MESSAGES + 2, key=None)))
    assert [answer[3][1][2] for answer in answers] == [MESSAGES + 2]


async def test_a_subscriber_whose_link_was_closed_is_let_go(node: StreamrCore) -> None:
    await node.stream()
    slow, other = node.client(), node.client()
    await slow.subscribe()
    await other.subscribe()
    slow.link.close("the peer reads too slowly")
    slow.close()
    assert len(await other.ask(publish(message(1_000)))) == 1
    assert not slow.link.taken


async def test_a_broadcast_is_written_to_a_slice_of_the_clients_in_each_turn(
    node: StreamrCore,
) -> None:
    await node.stream()
    clients = [node.client() for _ in range(SUBSCRIBERS)]
    for client in clients:
        client.send([2, 9, "s", STREAM, 0, None])
    await settled(node)
    with counted_by_turn(ClientLink, "send_framed") as written:
        node.client().send(*(publish(message(number + 1)) for number in range(3)))
        await settled(node)
    assert {len(client.link.taken) for client in clients} == {1 + 3}
    assert written.total <= 3 * SUBSCRIBERS
    assert written.most <= SLICE_CLIENTS


async def test_who_leaves_or_comes_during_a_broadcast_gets_what_belongs_to_a_subscriber(
    node: StreamrCore,
) -> None:
    await node.stream()
    fanout = Fanout(node.context.counters, STREAM, 0)
    links = [ClientLink() for _ in range(SLICE_CLIENTS + 3)]
    outlets = [Outlet(link, 2, 32, (Layout.RELEASED,)) for link in links]
    late = ClientLink()
    for outlet in outlets:
        fanout.add(outlet)
    fanout.broadcast([message(1_000)])
    assert fanout.is_behind
    fanout.remove(outlets[-1])
    fanout.add(outlets[-2])  # subscribed once more
    fanout.add(Outlet(late, 2, 32, (Layout.RELEASED,)))
    while fanout.is_behind:
        fanout.go_on()
    assert [len(link.taken) for link in links] == [1] * (SLICE_CLIENTS + 2) + [0]
    assert late.taken == []
    fanout.broadcast([message(2_000)])
    while fanout.is_behind:
        fanout.go_on()
    assert len(late.taken) == 1
    for outlet in [*fanout._dialects]:  # pyright: ignore[reportPrivateUsage]
        fanout.broadcast([message(3_000)])
        fanout.remove(outlet)
    assert not fanout.is_behind


@pytest.mark.parametrize(
    ("subscribers", "sync_ticks", "fails", "heard"),
    [
        (SUBSCRIBERS, 4, False, [(8, 2)]),
        (SUBSCRIBERS, 30, False, [(41, 1), (60, 1)]),
        (SUBSCRIBERS, 4, True, [(15, 1)]),
        (1, 4, False, [(5, 1), (8, 1)]),
    ],
)
async def test_a_broadcast_waits_for_what_is_on_its_way_to_the_disk_as_long_as_its_writes_take(
    node: StreamrCore, subscribers: int, sync_ticks: int, fails: bool, heard: object
) -> None:
    tick = 2**-10
    await node.stream()
    clients = [node.client() for _ in range(subscribers)]
    for client in clients:
        client.send([2, 9, "s", STREAM, 0, None])
    publisher, taken = node.client(), clients[-1].link.taken
    await publisher.ask(publish(message(1)))  # so that the relay has found the stream
    await settled(node)
    node.core.store.faults.sync_seconds = sync_ticks * tick
    seen, found = len(taken), list[tuple[int, int]]()
    for now in range(100):
        if now < 2:
            publisher.send(publish(message(2 + now)))
        node.core.store.faults.failing_syncs = fails and now > sync_ticks
        await settled(node)
        if len(taken) > seen:
            found.append((now, len(taken) - seen))
            seen = len(taken)
        node.core.clock.advance(tick)
    assert found == heard


async def test_what_others_push_is_signed_in_slices_and_sent_together(node: StreamrCore) -> None:
    await node.stream()
    client = node.client()
    await client.subscribe()
    count = 3 * SLICE_SIGNED + 1
    with (
        counted_by_turn(stored, "sign_message") as signed,
        counted_by_turn(ClientLink, "send_framed") as written,
    ):
        native_peer = node.core.peer()
        native_peer.send(f"ST_S_0_{STREAM}", *(encode(PushRequest(1, b"{}")) for _ in range(count)))
        heard = await client.heard()
    assert [one[3][1][3] for one in heard] == list(range(count))
    assert signed.total == count
    assert signed.most <= SLICE_SIGNED
    assert written.total == 1


async def settled(node: StreamrCore) -> None:
    for _ in range(20):
        await node.core.settle()
