"""Limits: each that the protocol's page lists is answered as it says, and the largest is taken."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from nextgraph_broker import INNER, READ_WRITE, TOPIC_A, Broker, Client, identity, subscribe
from nextgraph_support import make_commit
from rillnode.codecs.limits import ENTRY_BYTES_MAX, LIST_ITEMS_MAX
from rillnode.codecs.nextgraph.blocks import BLOCK, Block, BlockContent
from rillnode.codecs.nextgraph.client import ClientMessage
from rillnode.codecs.nextgraph.commits import CommitHeader
from rillnode.codecs.nextgraph.events import EVENT, Event, EventContent, sign_event
from rillnode.codecs.nextgraph.limits import (
    NEXTGRAPH_BLOCK_BYTES_MAX,
    NEXTGRAPH_BLOCKS_MAX,
    NEXTGRAPH_IDS_MAX,
    NEXTGRAPH_PARENTS_MAX,
    NEXTGRAPH_TOPICS_MAX,
)
from rillnode.codecs.nextgraph.messages import encode_message
from rillnode.codecs.nextgraph.requests import (
    BlocksExist,
    BlocksGet,
    BlocksPut,
    ClientRequest,
    OpenRepo,
    PinRepo,
    RequestContent,
    TopicSyncReq,
)
from rillnode.codecs.nextgraph.types import ForwardedPeer

PAGE: Final = Path(__file__).parents[4] / "docs" / "protocols" / "nextgraph.md"
TABLE: Final = re.search(r"^## Limits$(.*?)^## ", PAGE.read_text(), re.MULTILINE | re.DOTALL)
assert TABLE is not None
ROWS: Final = dict(re.findall(r"^\| (.*) \| (result [0-9]+|close [0-9]+) \|$", TABLE[1], re.M))

KEY: Final = b"?" * 32


def keys(count: int) -> list[bytes]:
    return [number.to_bytes(32, "big") for number in range(count)]


def block(size: int) -> Block:
    return Block(None, BlockContent(None, [], bytes(size)))


def event(client: Client, blocks: list[Block]) -> Event:
    publisher = ForwardedPeer(client.key.public_key)
    content = EventContent(TOPIC_A.public_key, publisher, 1, blocks, [], b"k" * 32)
    return sign_event(content, TOPIC_A, client.key)


def of_blocks(client: Client, count: int) -> Event:
    _, blocks = make_commit(b"body", CommitHeader())
    return event(client, blocks + [block(1)] * (count - len(blocks)))


def of_bytes(client: Client, size: int) -> Event:
    _, blocks = make_commit(b"body", CommitHeader())
    near = ENTRY_BYTES_MAX - 100_000
    around = len(EVENT.encode(event(client, [*blocks, block(near)]))) - near
    return event(client, [*blocks, block(size - around)])


def of_parents(client: Client, count: int) -> Event:
    return client.event(header=CommitHeader(acks=keys(count)))[0]


def put_one(_: Client, size: int) -> BlocksPut:
    around = len(BLOCK.encode(block(size - 100))) - (size - 100)
    return BlocksPut([block(size - around)])


def exist(_: Client, count: int) -> BlocksExist:
    return BlocksExist(keys(count))


Make = Callable[[Client, int], RequestContent]
LIMITS: Final[dict[str, tuple[int, Make]]] = {
    "BlocksExist of more than 16,384 ids": (NEXTGRAPH_IDS_MAX, exist),
    "BlocksGet of more than 16,384 ids": (
        NEXTGRAPH_IDS_MAX,
        lambda _, count: BlocksGet(keys(count), False, None),
    ),
    "PinRepo of more than 1,024 topics": (
        NEXTGRAPH_TOPICS_MAX,
        lambda _, count: PinRepo(b"2" * 32, READ_WRITE, None, False, [], 0, keys(count), []),
    ),
    "OpenRepo of more than 1,024 topics": (
        NEXTGRAPH_TOPICS_MAX,
        lambda _, count: OpenRepo(b"2" * 32, READ_WRITE, [], 0, keys(count), []),
    ),
    "PublishEvent of more than 4,096 blocks": (NEXTGRAPH_BLOCKS_MAX, of_blocks),
    "PublishEvent of more than 2 MiB": (ENTRY_BYTES_MAX, of_bytes),
    "PublishEvent of a commit after more than 4,096 others": (NEXTGRAPH_PARENTS_MAX, of_parents),
    "BlocksPut of more than 4,096 blocks": (
        NEXTGRAPH_BLOCKS_MAX,
        lambda _, count: BlocksPut([block(1)] * count),
    ),
    "BlocksPut of a block of more than 1 MiB": (NEXTGRAPH_BLOCK_BYTES_MAX, put_one),
}


async def pinned(broker: Broker) -> Client:
    client = await broker.client()
    await client.pin(TOPIC_A)
    return client


@pytest.mark.parametrize("row", LIMITS)
async def test_what_is_beyond_a_limit_is_refused_as_the_page_says(broker: Broker, row: str) -> None:
    limit, make = LIMITS[row]
    client = await pinned(broker)
    within, beyond = make(client, limit), make(client, limit + 1)
    result = await client.result(INNER, beyond)
    assert f"result {result}" == ROWS[row]
    taken = await client.ask(INNER, within)
    # Of 16,384 blocks that are not there, none is found.
    assert taken[-1][0] == (7 if isinstance(within, BlocksGet) else 0)
    assert client.wire.closed is None


async def test_topics_that_are_subscribed_to_count_with_those_of_the_pin(broker: Broker) -> None:
    client = await pinned(broker)
    more = [identity(str(number)) for number in range(NEXTGRAPH_TOPICS_MAX - 1)]
    await client.pin(reads=more[:-1])
    assert await client.result(INNER, subscribe(more[-1])) == 0
    result = await client.result(INNER, subscribe(identity("one more")))
    assert f"result {result}" == ROWS["TopicSub of a topic more than 1,024 of one repo"]


def raw(content: RequestContent) -> bytes:
    return encode_message(ClientMessage(INNER, ClientRequest(2, content)))


def of_one_item_more() -> bytes:
    """A list of 65,537 ids, which the encoder of this project does not write."""
    count, more = b"\x80\x80\x04", b"\x81\x80\x04"
    before, found, after = raw(BlocksExist(keys(LIST_ITEMS_MAX))).partition(count)
    assert found
    return before + more + b"\x00" + KEY + after


def of_another_kind_of_key() -> bytes:
    message = raw(TopicSyncReq(KEY, [], [], None))
    assert b"\x00" + KEY in message
    return message.replace(b"\x00" + KEY, b"\x01" + KEY)


CLOSING: Final = {
    "a list of more than 65,536 items": of_one_item_more,
    "a key that is no Ed25519 key, but X25519": of_another_kind_of_key,
}


@pytest.mark.parametrize("row", CLOSING)
async def test_what_cannot_be_read_closes_as_the_page_says(broker: Broker, row: str) -> None:
    client = await pinned(broker)
    client.events.messages_received([client.dialogue.seal(CLOSING[row]())])
    await client.settle()
    assert client.wire.closed is not None
    assert f"close {client.wire.closed[0]}" == ROWS[row]


def test_every_limit_of_the_page_is_tried() -> None:
    subscribing = "TopicSub of a topic more than 1,024 of one repo"
    assert {*LIMITS, *CLOSING, subscribing} == set(ROWS)
