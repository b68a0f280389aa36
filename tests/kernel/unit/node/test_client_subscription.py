"""A subscriber: its credit, granted again in large lots, and how it goes on after failures."""

import asyncio
from dataclasses import dataclass, field
from typing import cast

import pytest

from rillnode.codecs import native
from rillnode.codecs.entries import EntryKind, encode_block, pack_body
from rillnode.codecs.errors import RequestError, TransportError
from rillnode.codecs.routing.routes import Route, local
from rillnode.node.client import subscription
from rillnode.node.client.session import Session
from rillnode.node.client.subscription import CREDIT_BYTES, GRANTS, PASSING, Follower, Wanted
from rillnode.transports.links import LinkEvents

ROUTE: Route = (local(b"SUB_1"),)


@dataclass
class Node:
    """Stands for a session: notes what the node is told."""

    granted: list[int] = field(default_factory=list[int])
    subscribed: list[int] = field(default_factory=list[int])
    unanswered: int = 0

    def next_id(self) -> int:
        return len(self.subscribed) + 1

    def subscribe(self, subscription_id: int, subscriber: object) -> None:
        self.subscribed.append(subscription_id)

    def unsubscribe(self, subscription_id: int, route: Route) -> None:
        pass

    def tell(self, route: Route, request: native.CreditRequest) -> None:
        assert route == ROUTE
        self.granted.append(request.credit_bytes)


def blocks(index: int, data_bytes: int) -> native.BlocksResponse:
    body = pack_body([bytes(data_bytes)])
    value = encode_block(count=1, kind=EntryKind.BYTES, received_at=0, position=0, body=body)
    return native.BlocksResponse(1, 0, index + 1, [native.BlockItem(index, value)])


@pytest.mark.parametrize("data_bytes", [1_000, 100_000])
def test_credit_is_granted_again_in_large_lots(data_bytes: int) -> None:
    asyncio.run(_take_all(data_bytes))


async def _take_all(data_bytes: int) -> None:
    node, follower = Node(), Follower()
    follower.follow(cast(Session, node), Wanted(b"stream", 0, 0))
    (partition,) = follower._partitions.values()  # pyright: ignore[reportPrivateUsage]
    taken = 0
    for index in range(3 * CREDIT_BYTES // data_bytes):
        response = blocks(index, data_bytes)
        taken += len(response.blocks[0].value)
        partition.received(response, ROUTE)
        assert [entry.index for entry in await follower.batch()] == [index]
        # What the node may not send for want of a grant is never more than one lot.
        assert 0 <= taken - sum(node.granted) < CREDIT_BYTES // GRANTS
    assert all(size >= CREDIT_BYTES // GRANTS for size in node.granted)


def test_on_a_new_link_all_that_is_not_held_is_credit_again() -> None:
    asyncio.run(_ask_again())


async def _ask_again() -> None:
    node, follower = Node(), Follower()
    follower.follow(cast(Session, node), Wanted(b"stream", 0, 0))
    (partition,) = follower._partitions.values()  # pyright: ignore[reportPrivateUsage]
    for index in range(2):
        partition.received(blocks(index, 1_000), ROUTE)
    held = len(blocks(1, 1_000).blocks[0].value)
    await follower.batch()
    assert node.granted == []
    _, request = partition.resume()
    assert (request.index, request.credit_bytes) == (2, CREDIT_BYTES - held)


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("code", sorted(PASSING))
def test_a_subscription_that_the_node_fails_at_goes_on_where_it_was(
    code: str, closed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription, "AGAIN_SECONDS", 0.001)
    asyncio.run(_fail(code, closed))


async def _fail(code: str, closed: bool) -> None:
    node, follower = Node(), Follower()
    follower.follow(cast(Session, node), Wanted(b"stream", 0, 0))
    (partition,) = follower._partitions.values()  # pyright: ignore[reportPrivateUsage]
    partition.received(blocks(0, 1_000), ROUTE)
    partition.failed(RequestError(code, "the node failed"))
    assert node.subscribed == [1]
    if closed:
        follower.close()
    await asyncio.sleep(0.05)
    assert node.subscribed == ([1] if closed else [1, 2])
    _, request = partition.resume()
    assert (request.request_id, request.index) == (node.subscribed[-1], 1)


def test_what_does_not_pass_ends_the_iteration_behind_what_has_come() -> None:
    asyncio.run(_refuse())


async def _refuse() -> None:
    node, follower = Node(), Follower()
    follower.follow(cast(Session, node), Wanted(b"stream", 0, 0))
    (partition,) = follower._partitions.values()  # pyright: ignore[reportPrivateUsage]
    partition.received(blocks(0, 1_000), ROUTE)
    partition.failed(RequestError("stream.removed", "The stream was removed"))
    assert [entry.index for entry in await follower.batch()] == [0]
    with pytest.raises(RequestError, match="removed"):
        await follower.batch()
    assert node.subscribed == [1]


def test_who_follows_in_a_session_that_has_ended_is_told_at_once() -> None:
    asyncio.run(_too_late())


async def _too_late() -> None:
    async def connect(_: LinkEvents) -> None:
        pytest.fail("nothing is opened")

    session, follower = Session(connect), Follower()
    await session.close()
    follower.follow(session, Wanted(b"stream", 0, 0))
    with pytest.raises(TransportError):
        await follower.batch()


def test_with_a_condition_it_goes_on_where_the_node_has_looked() -> None:
    asyncio.run(_search_on())


async def _search_on() -> None:
    node, follower = Node(), Follower()
    follower.follow(cast(Session, node), Wanted(b"stream", 0, 7, where="mag > 5"))
    (partition,) = follower._partitions.values()  # pyright: ignore[reportPrivateUsage]
    address, request = partition.resume()
    assert address == b"stream"
    assert request == native.SubscribeRequest(1, 7, CREDIT_BYTES, where="mag > 5")
    found = blocks(9, 10).blocks
    partition.received(native.FoundResponse(1, 0, 99, 12, found), ROUTE)
    assert [entry.index for entry in await follower.batch()] == [9]
    assert partition.resume()[1].index == 12
    # Nothing has matched, and all before it may be trimmed: none of that is missed.
    partition.received(native.FoundResponse(1, 0, 99, 90, []), ROUTE)
    partition.received(native.FoundResponse(1, 90, 99, 99, []), ROUTE)
    assert partition.resume()[1].index == 99
    assert follower.skipped == 0


def test_a_position_beyond_the_end_is_logged_and_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asyncio.run(_begin_beyond())
    (told,) = caplog.records
    assert told.msg == "position_beyond_end"
    text = "position_beyond_end address=stream partition=0 index=7 end=2; next: "
    assert told.getMessage().startswith(text)


async def _begin_beyond() -> None:
    node, follower = Node(), Follower()
    follower.follow(cast(Session, node), Wanted(b"stream", 0, 7))
    (partition,) = follower._partitions.values()  # pyright: ignore[reportPrivateUsage]
    partition.received(native.BlocksResponse(1, 0, 2, []), ROUTE)
    assert not follower.ready
    assert partition.resume()[1].index == 7
    partition.received(blocks(7, 10), ROUTE)
    assert [entry.index for entry in await follower.batch()] == [7]
