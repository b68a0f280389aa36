"""A client goes to the nodes that its own has named, and works on as if nothing were."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from far_end import FarLink
from rillnode.codecs import native
from rillnode.codecs.entries import EntryKind, encode_block, pack_body
from rillnode.codecs.errors import HandshakeError, RequestError, RillnodeError, TransportError
from rillnode.codecs.routing.routes import WireMessage, local
from rillnode.node.client import session as session_module
from rillnode.node.client.producer import Producer
from rillnode.node.client.session import Connect, Session
from rillnode.node.client.subscription import Follower, Wanted
from rillnode.node.testing.contract.base import until
from rillnode.transports.links import LinkEvents

STREAM = b"ST_S_0_s"


class FarNode(FarLink):
    """A node's end of links: notes requests, and answers by what `reply` makes of each."""

    def __init__(self, reply: Callable[[native.Request], native.Response | None]) -> None:
        super().__init__()
        self.reply: Callable[[native.Request], native.Response | None] = reply
        self.requests: list[native.Request] = []
        self.refusal: RillnodeError | None = None

    async def connect(self, events: LinkEvents) -> object:
        if self.refusal is not None:
            raise self.refusal
        return await super().connect(events)

    def received(self, message: WireMessage) -> None:
        request = native.decode_request(message.payload)
        self.requests.append(request)
        response = self.reply(request)
        if response is not None:
            self.say(message, response)

    def say(self, message: WireMessage, response: native.Response) -> None:
        payload = native.encode(response)
        self.send(WireMessage(message.return_route, (local(b"SUB"),), payload))

    def drop(self) -> None:
        """Lose the link, as a node that dies does."""
        self.links[-1].close("lost")


def elsewhere(*names: str) -> Callable[[native.Request], native.Response]:
    """Refuses all, naming other nodes."""

    def reply(request: native.Request) -> native.Response:
        nodes = [native.NodeAddress(name, f"identity of {name}") for name in names]
        text = "not here"
        return native.Failure(request.request_id, "store.elsewhere", text, False, 0, nodes)

    return reply


def stores() -> Callable[[native.Request], native.Response | None]:
    """Takes appends, each at the next index, and answers reads with that."""
    count = 0

    def reply(request: native.Request) -> native.Response | None:
        nonlocal count
        match request:
            case native.AppendRequest():
                count += 1
                return native.PositionResponse(request.request_id, count - 1)
            case native.SubscribeRequest():
                body = pack_body([b"x"])
                value = encode_block(
                    count=1, kind=EntryKind.BYTES, received_at=0, position=0, body=body
                )
                item = native.BlockItem(request.index, value)
                return native.BlocksResponse(request.request_id, 0, request.index + 1, [item])
            case native.CreditRequest() | native.UnsubscribeRequest():
                return None
            case _:
                return native.PositionResponse(request.request_id, count)

    return reply


Test = Callable[[Session, FarNode, dict[str, FarNode]], Awaitable[None]]


def with_nodes(test: Test, *names: str, follow: bool = True) -> None:
    """Run a test of a session whose node names others."""

    async def main() -> None:
        first = FarNode(elsewhere(*names))
        others = {name: FarNode(stores()) for name in names}

        def way(node: native.NodeAddress) -> Connect:
            assert node.identity == f"identity of {node.address}"
            return others[node.address].connect

        session = Session(first.connect, follow=way if follow else None)
        await session.open()
        async with asyncio.timeout(5):
            await test(session, first, others)
            await session.close(timeout_seconds=5.0)
        assert session.open_requests == frozenset()
        assert session.unasked <= session.unanswered

    asyncio.run(main())


def numbers(node: FarNode, kind: type[Any]) -> list[int]:
    return [one.request_id for one in node.requests if isinstance(one, kind)]


def test_a_request_is_answered_by_the_node_that_was_named() -> None:
    async def test(session: Session, first: FarNode, others: dict[str, FarNode]) -> None:
        for _ in range(2):
            request = native.LoadIndexRequest(session.next_id(), "c", "s", 0)
            answer = await session.request(b"stream_index", request, native.PositionResponse)
            assert answer == native.PositionResponse(request.request_id, 0)
        # Of a service's other requests nothing is known: each is asked of the first node.
        assert numbers(first, native.LoadIndexRequest) == [1, 2]
        assert numbers(others["b"], native.LoadIndexRequest) == [1, 2]
        assert len(others["b"].links) == 1

    with_nodes(test, "b")


def test_pushes_keep_their_order_and_later_ones_go_there_at_once() -> None:
    async def test(session: Session, first: FarNode, others: dict[str, FarNode]) -> None:
        producer = Producer(session, STREAM)
        futures = [producer.push(b"0")]
        for number in range(1, 6):
            await asyncio.sleep(0)
            futures.append(producer.push(b"%d" % number))
        assert [await one for one in futures] == [0, 1, 2, 3, 4, 5]
        assert await producer.push(b"6") == 6
        there = numbers(others["b"], native.AppendRequest)
        assert there == sorted(there)
        assert len(there) == 7
        assert there[-1] not in numbers(first, native.AppendRequest)

    with_nodes(test, "b")


def test_a_subscription_goes_on_there_with_its_credit_and_its_end() -> None:
    async def test(session: Session, first: FarNode, others: dict[str, FarNode]) -> None:
        follower = Follower()
        follower.follow(session, Wanted(STREAM, 0, 7))
        assert [entry.index for entry in await follower.batch()] == [7]
        assert session.subscriptions_count == 1
        session.tell((local(b"SUB"),), native.CreditRequest(1, 5))
        await until(lambda: numbers(others["b"], native.CreditRequest))
        follower.close()
        await until(lambda: numbers(others["b"], native.UnsubscribeRequest))
        assert session.subscriptions_count == 0
        assert not numbers(first, native.CreditRequest)

    with_nodes(test, "b")


def test_the_next_one_is_asked_where_the_first_is_not_reached(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(session: Session, first: FarNode, others: dict[str, FarNode]) -> None:
        others["b"].refusal = TransportError("link.refused", "nobody listens")
        others["c"].refusal = HandshakeError("noise.identity", "another node")
        assert await Producer(session, STREAM).push(b"x") == 0
        assert numbers(others["d"], native.AppendRequest) == [1]

    with_nodes(test, "b", "c", "d")


def test_a_node_that_is_lost_costs_nothing_but_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "PAUSE_SECONDS", (0.01,))

    async def test(session: Session, first: FarNode, others: dict[str, FarNode]) -> None:
        first.reply = elsewhere("b")
        producer, follower = Producer(session, STREAM), Follower()
        assert await producer.push(b"x") == 0
        follower.follow(session, Wanted(STREAM, 0, 0))
        await follower.batch()
        others["b"].refusal = TransportError("link.refused", "nobody listens")
        others["b"].reply = lambda _: None
        lost = producer.push(b"y")
        await until(lambda: len(numbers(others["b"], native.AppendRequest)) == 2)
        others["b"].drop()
        await until(lambda: len(numbers(first, native.AppendRequest)) >= 4)
        assert not lost.done()
        first.reply = elsewhere("c")
        assert await lost == 0
        assert [entry.index for entry in await follower.batch()] == [1]
        follower.close()
        # It may be the one again.
        others["c"].drop()
        others["b"].refusal, others["b"].reply = None, stores()
        first.reply = elsewhere("b")
        assert await producer.push(b"z") == 0

    with_nodes(test, "b", "c")


def test_it_is_told_when_all_that_were_named_refuse_it() -> None:
    async def test(session: Session, first: FarNode, others: dict[str, FarNode]) -> None:
        others["b"].refusal = HandshakeError("noise.unknown_identity", "no grant names it")
        with pytest.raises(HandshakeError, match="no grant names it"):
            await Producer(session, STREAM).push(b"x")
        others["b"].refusal = None
        assert await Producer(session, STREAM).push(b"x") == 0

    with_nodes(test, "b")


@pytest.mark.parametrize("follow", [True, False])
def test_a_refusal_is_the_outcome_where_nobody_goes_on(follow: bool) -> None:
    async def test(session: Session, first: FarNode, others: dict[str, FarNode]) -> None:
        others["b"].reply = elsewhere("b")
        with pytest.raises(RequestError, match="not here") as caught:
            await Producer(session, STREAM).push(b"x")
        assert (caught.value.code, caught.value.retryable) == ("store.elsewhere", False)
        assert bool(others["b"].requests) is follow

    with_nodes(test, "b", follow=follow)


def test_a_client_that_is_closed_waits_for_what_is_asked_elsewhere_and_no_longer() -> None:
    async def main() -> None:
        first, other = FarNode(elsewhere("b")), FarNode(lambda _: None)
        session = Session(first.connect, follow=lambda _: other.connect)
        await session.open()
        pushed = Producer(session, STREAM).push(b"x")
        await until(lambda: other.requests)
        await session.close(timeout_seconds=0.05)
        with pytest.raises(TransportError, match="closed"):
            await pushed
        request = native.StatusRequest(9)
        with pytest.raises(TransportError, match="closed"):
            await session.request(b"node", request, native.DocumentResponse)

    asyncio.run(main())
