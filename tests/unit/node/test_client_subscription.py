"""A subscriber's credit: what it takes is granted again in large lots, and all of it."""

import asyncio
from dataclasses import dataclass, field
from typing import cast

import pytest

from rillnode.codecs import native
from rillnode.codecs.entries import EntryKind, encode_block, pack_body
from rillnode.codecs.ockam.routing import Route, local
from rillnode.node.client.session import Session
from rillnode.node.client.subscription import CREDIT_BYTES, GRANT_BYTES, Follower

ROUTE: Route = (local(b"SUB_1"),)


@dataclass
class Node:
    """Stands for a session: notes what the node is told."""

    granted: list[int] = field(default_factory=list[int])

    def next_id(self) -> int:
        return 1

    def subscribe(self, subscription_id: int, subscriber: object) -> None:
        self.subscriber = subscriber

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
    follower.follow(cast(Session, node), b"stream", 0, 0)
    partition = follower._partitions[0]  # pyright: ignore[reportPrivateUsage]
    taken = 0
    for index in range(3 * CREDIT_BYTES // data_bytes):
        response = blocks(index, data_bytes)
        taken += len(response.blocks[0].value)
        partition.blocks_received(response, ROUTE)
        assert [entry.index for entry in await follower.batch()] == [index]
        # What the node may not send for want of a grant is never more than one lot.
        assert 0 <= taken - sum(node.granted) < GRANT_BYTES
    assert all(size >= GRANT_BYTES for size in node.granted)


def test_on_a_new_link_all_that_is_not_held_is_credit_again() -> None:
    asyncio.run(_ask_again())


async def _ask_again() -> None:
    node, follower = Node(), Follower()
    follower.follow(cast(Session, node), b"stream", 0, 0)
    partition = follower._partitions[0]  # pyright: ignore[reportPrivateUsage]
    for index in range(2):
        partition.blocks_received(blocks(index, 1_000), ROUTE)
    held = len(blocks(1, 1_000).blocks[0].value)
    await follower.batch()
    assert node.granted == []
    _, request = partition.resume()
    assert (request.index, request.credit_bytes) == (2, CREDIT_BYTES - held)
