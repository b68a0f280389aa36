"""Tests that a broker that dies amid much work loses nothing that was acknowledged."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from coroutines import handed_by
from nextgraph_devices import BrokerProcess
from rillnode import nextgraph
from rillnode.codecs.errors import TransportError
from rillnode.codecs.nextgraph.blocks import BlockContent
from rillnode.codecs.nextgraph.events import Event

pytestmark = pytest.mark.long

SECONDS: Final = 600.0
IDS: Final = 16_000
"""Blocks that one request asks after."""


def identity(name: str) -> nextgraph.Identity:
    return nextgraph.Identity.from_seed(name.encode().ljust(32, b"."))


ALICE: Final = identity("alice")
STORE: Final = identity("store").public_key
SECRET: Final = b"s" * 32
INNER: Final = nextgraph.inner_overlay(STORE, SECRET)
ACCESS: Final = nextgraph.ReadWriteAccess(INNER, nextgraph.outer_overlay(STORE))
CONVERGENCE: Final = nextgraph.convergence_key(STORE, SECRET)


def branch(name: str) -> nextgraph.Branch:
    key = identity(name).public_key
    return nextgraph.Branch(repo_id=key, id=key, read_cap_key=b"r" * 32)


BRANCH: Final = branch("repo")
REPO: Final = nextgraph.repo_hash(BRANCH.repo_id)
TOPIC: Final = identity("topic")


def commit(body: bytes, after: list[bytes], where: nextgraph.Branch = BRANCH) -> nextgraph.Object:
    return nextgraph.make_commit(
        body,
        author=ALICE,
        branch=where,
        overlay=INNER,
        convergence_key=CONVERGENCE,
        unix_seconds=1_700_000_000,
        header=nextgraph.CommitHeader(acks=after),
    )


def with_broker(test: Callable[[BrokerProcess], Awaitable[None]], directory: Path) -> None:
    async def main() -> None:
        async with asyncio.timeout(SECONDS), BrokerProcess(directory) as broker:
            await test(broker)

    asyncio.run(main())


broker = handed_by(with_broker)


async def connect(broker: BrokerProcess) -> nextgraph.Client:
    peer_id = bytes.fromhex(broker.peer_id)
    return await nextgraph.connect(f"ws://{broker.address}", broker=peer_id, user=ALICE)


async def test_a_synchronization_that_a_kill_cuts_goes_on_where_it_was(
    broker: BrokerProcess,
) -> None:
    sent: list[Event] = []
    ids: list[bytes] = []
    async with await connect(broker) as writer:
        await writer.pin(REPO, ACCESS, publish=[TOPIC])
        for number in range(100):
            made = commit(number.to_bytes(4, "big") * 16_000, ids[-1:])
            sent.append((await writer.publish(INNER, TOPIC, BRANCH, made)).event)
            ids.append(made.reference.id)
    got: list[Event] = []
    async with await connect(broker) as reader:
        # What was on its way by then may come all the same, up to the last event.
        with suppress(TransportError):
            async for event in reader.sync(INNER, TOPIC.public_key):
                got.append(event)
                if len(got) == 10:
                    await broker.kill()
    assert len(got) >= 10
    assert got == sent[: len(got)]
    await broker.start()
    async with await connect(broker) as reader:
        known = [ids[len(got) - 1]]
        got += [event async for event in reader.sync(INNER, TOPIC.public_key, known=known)]
    assert got == sent


def test_an_object_of_a_hundred_thousand_blocks_outlives_a_kill(tmp_path: Path) -> None:
    width = 316

    def block(children: list[bytes], content: bytes) -> nextgraph.Block:
        return nextgraph.Block(None, BlockContent(None, children, content))

    blocks: list[nextgraph.Block] = []
    nodes: list[bytes] = []
    for row in range(width):
        leaves = [block([], b"%d/%d" % (row, column)) for column in range(width)]
        node = block([nextgraph.block_id(leaf) for leaf in leaves], b"")
        blocks += [*leaves, node]
        nodes.append(nextgraph.block_id(node))
    root = block(nodes, b"")
    blocks.append(root)
    ids = [nextgraph.block_id(one) for one in blocks]
    assert len(set(ids)) == width * width + width + 1

    async def test(broker: BrokerProcess) -> None:
        async with await connect(broker) as writer:
            await writer.pin(REPO, ACCESS, publish=[TOPIC])
            await writer.put_blocks(INNER, blocks)
        await broker.kill()
        await broker.start()
        async with await connect(broker) as reader:
            for at in range(0, len(ids), IDS):
                found = await reader.find_blocks(INNER, ids[at : at + IDS])
                assert found.missing == []
            tree = reader.get_blocks(INNER, ids[-1:], children=True)
            got = [nextgraph.block_id(one) async for one in tree]
        assert got[:2] == [ids[-1], nodes[0]]
        assert sorted(got) == sorted(ids)

    with_broker(test, tmp_path)


async def test_another_device_restores_a_thousand_topics_after_a_kill(
    broker: BrokerProcess,
) -> None:
    repos = {f"repo {n}": [identity(f"topic {n}/{m}") for m in range(10)] for n in range(100)}
    sent: dict[bytes, list[Event]] = {}
    async with await connect(broker) as writer:
        for name, topics in repos.items():
            where = branch(name)
            await writer.pin(nextgraph.repo_hash(where.repo_id), ACCESS, publish=topics)
            for topic in topics:
                made = commit(topic.public_key, [], where)
                event = (await writer.publish(INNER, topic, where, made)).event
                sent[topic.public_key] = [event]
    await broker.kill()
    await broker.start()
    async with await connect(broker) as reader:
        for name, topics in repos.items():
            repo = nextgraph.repo_hash(branch(name).repo_id)
            status = await reader.pin_status(INNER, repo)
            assert status is not None
            assert {found.topic for found in status.topics} == {
                topic.public_key for topic in topics
            }
            for found in status.topics:
                assert (found.commits_nbr, found.publisher) == (1, True)
                stored = [event async for event in reader.sync(INNER, found.topic)]
                assert stored == sent[found.topic]
        assert await reader.pin_status(INNER, b"?" * 32) is None
