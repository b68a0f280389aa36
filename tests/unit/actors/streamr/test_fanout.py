"""Many subscribers, some of which never read: they cost their links, and nobody else waits."""

from rillnode.codecs.limits import STREAMR_BACKLOG_HIGH_BYTES
from streamr_support import StreamrCore, array, message, publish, with_streamr

SUBSCRIBERS = 1_000
SLOW = 100
MESSAGES = 20


def test_slow_subscribers_hold_nobody_up() -> None:
    async def test(node: StreamrCore) -> None:
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

    with_streamr(test)


def test_what_comes_waits_for_the_fastest_subscriber() -> None:
    """Of many partitions over one link, each is slower than its publishers: that is no failure."""
    sent = [message(number + 1, key=None) for number in range(MESSAGES)]
    over = STREAMR_BACKLOG_HIGH_BYTES + 1

    async def test(node: StreamrCore) -> None:
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

    with_streamr(test)


def test_a_subscriber_whose_link_was_closed_is_let_go() -> None:
    async def test(node: StreamrCore) -> None:
        await node.stream()
        slow, other = node.client(), node.client()
        await slow.subscribe()
        await other.subscribe()
        slow.link.close("the peer reads too slowly")
        slow.close()
        assert len(await other.ask(publish(message(1_000)))) == 1
        assert not slow.link.taken

    with_streamr(test)
