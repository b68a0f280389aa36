"""Many subscribers, some of which never read: they cost their links, and nobody else waits."""

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
