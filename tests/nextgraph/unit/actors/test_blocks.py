"""Blocks: putting, finding, pinning and deleting what is not of an event."""

from typing import Any

from coroutines import run_with
from nextgraph_broker import INNER, OUTER, READ_ONLY, TOPIC_A, Broker, Client, pin
from nextgraph_support import CONVERGENCE_KEY
from rillnode.actors.core.quotas import Quota
from rillnode.codecs.nextgraph.blocks import Block, BlockContent, block_id
from rillnode.codecs.nextgraph.objects import Object, split_object
from rillnode.codecs.nextgraph.requests import (
    BlocksExist,
    BlocksGet,
    BlocksPut,
    ObjectDel,
    ObjectPin,
    ObjectUnpin,
)
from rillnode.codecs.nextgraph.responses import BlocksFound
from rillnode.codecs.nextgraph.results import ResultCode


def file(size: int, *, seed: int = 0) -> Object:
    """A file of blocks that all differ."""
    content = b"".join((seed + at).to_bytes(8, "big") for at in range(size // 8))
    return split_object(content, CONVERGENCE_KEY)


def ids(blocks: list[Block]) -> list[bytes]:
    return [block_id(block) for block in blocks]


async def get(client: Client, *wanted: bytes, children: bool = False) -> list[Block]:
    """The blocks of a stream of answers, checked to be one; none where there are none."""
    answers: list[tuple[int, Any]] = await client.ask(
        INNER, BlocksGet(list(wanted), children, None)
    )
    if [result for result, _ in answers] == [ResultCode.NOT_FOUND]:
        return []
    assert answers[-1][0] == ResultCode.END_OF_STREAM
    assert all(result == ResultCode.PARTIAL_CONTENT for result, _ in answers[:-1])
    return [content for _, content in answers[:-1]]


async def writer(broker: Broker, user: str = "alice") -> Client:
    client = await broker.client(user)
    await client.pin(TOPIC_A, repo=user.encode().ljust(32))
    return client


async def test_blocks_that_were_put_are_found_and_got(broker: Broker) -> None:
    client = await writer(broker)
    made = file(50_000)
    names = ids(made.blocks)
    ((result, content),) = await client.ask(INNER, BlocksExist([*names, b"?" * 32]))
    assert (result, content) == (ResultCode.OK, BlocksFound([], [*names, b"?" * 32]))
    for block in made.blocks[1:]:
        assert await client.result(INNER, BlocksPut([block])) == ResultCode.OK
    ((_, content),) = await client.ask(INNER, BlocksExist(names))
    assert content == BlocksFound(names[1:], names[:1])
    await client.ask(INNER, BlocksPut(made.blocks))
    await broker.restart()
    client = await broker.client()
    assert await get(client, made.reference.id, children=True) == made.blocks
    assert await get(client, names[2], b"?" * 32, names[1]) == [made.blocks[2], made.blocks[1]]
    assert await get(client, b"?" * 32) == []


async def test_a_block_that_stands_in_a_tree_many_times_is_sent_once(broker: Broker) -> None:
    client = await writer(broker)
    leaf = Block(None, BlockContent(None, [], b"leaf"))
    blocks = [leaf]
    for _ in range(30):
        child = block_id(blocks[-1])
        blocks.append(Block(None, BlockContent(None, [child] * 40, b"node")))
    await client.ask(INNER, BlocksPut(blocks))
    assert await get(client, block_id(blocks[-1]), children=True) == blocks[::-1]


async def test_an_event_s_block_is_given_with_its_key_whoever_put_it_before(broker: Broker) -> None:
    client = await writer(broker)
    event, commit = client.event(after=[b"1" * 32])
    root = event.content.blocks[0]
    await client.ask(INNER, BlocksPut([Block(None, root.content)]))
    assert await get(client, commit) == [Block(None, root.content)]
    assert await client.result(INNER, event) == ResultCode.OK
    assert await get(client, commit) == [root]
    await client.ask(INNER, BlocksPut([Block(b"w" * 32, root.content)]))
    assert await get(client, commit) == [root]


async def test_blocks_are_put_by_writers_and_none_is_too_large(broker: Broker) -> None:
    client = await broker.client()
    block = Block(None, BlockContent(None, [], b"x"))
    assert await client.result(INNER, BlocksPut([block])) == ResultCode.OVERLAY_NOT_FOUND
    await client.pin(TOPIC_A, expose=True)
    await client.pin(access=READ_ONLY)
    assert await client.result(OUTER, BlocksPut([block])) == ResultCode.OVERLAY_MISMATCH
    for size, result in ((1_048_568, ResultCode.OK), (1_100_000, ResultCode.INVALID_REQUEST)):
        block = Block(None, BlockContent(None, [], b"x" * size))
        assert await client.result(INNER, BlocksPut([block])) == result


async def test_a_client_that_goes_in_the_midst_of_putting_leaves_whole_blocks(
    broker: Broker,
) -> None:
    client = await writer(broker)
    made = file(40_000)
    for block in made.blocks:
        client.post(INNER, BlocksPut([block]))
    client.leave()
    await broker.core.settle()
    other = await writer(broker, "bob")
    ((_, content),) = await other.ask(INNER, BlocksExist(ids(made.blocks)))
    assert len(content.found) + len(content.missing) == len(made.blocks)
    found = await get(other, *content.found) if content.found else []
    assert ids(found) == content.found


# Pins and deletion -------------------------------------------------------------------------------


async def test_an_object_is_deleted_with_all_that_nothing_else_holds(broker: Broker) -> None:
    client = await writer(broker)
    one, two = file(40_000), file(60_000)  # the second begins as the first does
    await client.ask(INNER, BlocksPut([*one.blocks, *two.blocks]))
    assert await client.result(INNER, ObjectDel(two.reference.id)) == ResultCode.OK
    assert await get(client, one.reference.id, children=True) == one.blocks
    rest = set(ids(two.blocks)) - set(ids(one.blocks))
    ((_, content),) = await client.ask(INNER, BlocksExist(list(rest)))
    assert (content.found, len(content.missing)) == ([], len(rest))
    assert await client.result(INNER, ObjectDel(two.reference.id)) == ResultCode.NOT_FOUND
    assert await client.result(INNER, ObjectDel(one.reference.id)) == ResultCode.OK
    ((_, content),) = await client.ask(INNER, BlocksExist(ids(one.blocks)))
    assert content.found == []
    # Nothing of them is left anywhere but what their user keeps: nothing.
    await client.ask(INNER, BlocksPut(one.blocks))
    assert await get(client, one.reference.id, children=True) == one.blocks


async def test_what_another_user_has_pinned_stays(broker: Broker) -> None:
    alice, bob = await writer(broker), await writer(broker, "bob")
    made = file(40_000)
    root, child = made.reference.id, ids(made.blocks)[1]
    await alice.ask(INNER, BlocksPut(made.blocks))
    for client in (alice, bob):
        assert await client.result(INNER, ObjectPin(root)) == ResultCode.OK
    assert await bob.result(INNER, ObjectPin(child)) == ResultCode.OK
    assert await alice.result(INNER, ObjectDel(root)) == ResultCode.ACCESS_DENIED
    assert await bob.result(INNER, ObjectUnpin(root)) == ResultCode.OK
    assert await bob.result(INNER, ObjectUnpin(root)) == ResultCode.NOT_FOUND
    assert await alice.result(INNER, ObjectDel(root)) == ResultCode.OK
    ((_, content),) = await alice.ask(INNER, BlocksExist(ids(made.blocks)))
    assert content.found == [child]


async def test_what_an_event_brought_is_not_deleted_and_what_there_is_not_is_not_pinned(
    broker: Broker,
) -> None:
    client, stranger = await writer(broker), await broker.client("bob")
    event, commit = client.event()
    await client.ask(INNER, event)
    assert await client.result(INNER, ObjectDel(commit)) == ResultCode.ACCESS_DENIED
    assert await client.result(INNER, ObjectPin(commit)) == ResultCode.OK
    assert await client.result(INNER, ObjectPin(b"?" * 32)) == ResultCode.NOT_FOUND
    for request in (ObjectPin(commit), ObjectUnpin(commit), ObjectDel(commit)):
        assert await stranger.result(INNER, request) == ResultCode.ACCESS_DENIED


@run_with(quotas=[Quota(who="nextgraph:*", bytes_max=50000)])
async def test_blocks_are_charged_to_who_put_them_until_they_are_deleted(broker: Broker) -> None:
    client = await broker.client()
    await client.ask(INNER, pin(TOPIC_A))
    made = file(60_000)
    half = made.blocks[: len(made.blocks) // 2]
    assert await client.result(INNER, BlocksPut(half)) == ResultCode.OK
    for _ in range(3):
        assert await client.result(INNER, BlocksPut(half)) == ResultCode.OK
    other = file(40_000, seed=10**9)
    assert await client.result(INNER, BlocksPut(other.blocks)) == ResultCode.STORAGE_ERROR
    await broker.restart()
    client = await broker.client()
    assert await client.result(INNER, BlocksPut(other.blocks)) == ResultCode.STORAGE_ERROR
    assert await client.result(INNER, ObjectDel(made.reference.id)) == ResultCode.OK
    assert await client.result(INNER, BlocksPut(other.blocks)) == ResultCode.OK
