"""Every iterator that a client gives out: a cancelled `anext` loses nothing, whenever it is."""

import asyncio
import inspect
import signal
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest

import rillnode
from iteration_support import read_impatiently
from nextgraph_document import ACCESS, ALICE, BRANCH, INNER, REPO, TOPIC, commit, identity
from nodes import CLIENT, connect_to, node_config
from rillnode import nextgraph, streamr
from rillnode.codecs.errors import RequestError
from rillnode.codecs.nextgraph.events import Event
from rillnode.codecs.streamr.ethereum import EthereumKey
from rillnode.node.config import GrantTable
from rillnode.node.nextgraph.config import NextgraphListener
from rillnode.node.ockam.client.hub import Hub
from rillnode.node.runtime import Node
from rillnode.node.streamr.client.client import Client as StreamrClient
from rillnode.node.streamr.client.endpoints import endpoints_of
from rillnode.node.streamr.config import StreamrListener
from streamr_keys_support import rsa_key

COUNT: Final = 120
SECONDS: Final = 60.0
PUBLIC: Final = ("rillnode", "rillnode.streamr", "rillnode.nextgraph")


@asynccontextmanager
async def running(directory: Path) -> AsyncGenerator[Node]:
    """A node that speaks everything, for at most a minute."""
    grants = (
        GrantTable(who="eth:*", streams="*", may=("create",)),
        GrantTable(who=f"noise:{CLIENT.public_hex}", streams="*", may=("admin",)),
        GrantTable(who="anonymous", streams="*", may=("create", "push", "pull", "subscribe")),
    )
    config = node_config(directory, *grants).having(
        NextgraphListener(listen="127.0.0.1:0", registration="open"),
        StreamrListener(listen="127.0.0.1:0"),
    )
    async with asyncio.timeout(SECONDS), Node(config) as node:
        yield node


@asynccontextmanager
async def linked(node: Node) -> AsyncGenerator[rillnode.Client]:
    async with await connect_to(node) as client:
        yield client


@asynccontextmanager
async def embedded(node: Node) -> AsyncGenerator[rillnode.Client]:
    yield node.client


FACES = pytest.mark.parametrize("face", [linked, embedded], ids=lambda face: face.__name__)


async def push_slowly(stream: rillnode.Stream, count: int) -> None:
    for number in range(count):
        await stream.push(b"%d" % number)


@FACES
async def test_entries_are_followed(face: Any, tmp_path: Path) -> None:
    async with running(tmp_path) as node, face(node) as client:
        stream = await client.stream("s")
        pushing = asyncio.ensure_future(push_slowly(stream, COUNT))
        found, cancelled = await read_impatiently(stream.tail(start="start"), COUNT)
        assert [(entry.index, entry.data) for entry in found] == [
            (number, b"%d" % number) for number in range(COUNT)
        ]
        assert cancelled
        await pushing


@FACES
async def test_batches_are_followed(face: Any, tmp_path: Path) -> None:
    async with running(tmp_path) as node, face(node) as client:
        stream = await client.stream("s")
        pushing = asyncio.ensure_future(push_slowly(stream, COUNT))
        indexes: list[int] = []
        async with stream.batches() as batches:
            while len(indexes) < COUNT:
                ((batch,), _) = await read_impatiently(batches, 1)
                indexes += [entry.index for entry in batch]
        assert indexes == list(range(COUNT))
        await pushing


@FACES
async def test_what_comes_after_the_first_look_is_not_passed_over(
    face: Any, tmp_path: Path
) -> None:
    """Where the end is, is asked once: what was pushed after a cancelled `anext` comes."""
    async with running(tmp_path) as node, face(node) as client:
        stream = await client.stream("s")
        await push_slowly(stream, 5)
        async with stream.tail() as entries:
            asking = asyncio.ensure_future(anext(entries))
            for _ in range(2):  # it has asked, and has no answer
                await asyncio.sleep(0)
            asking.cancel()
            await asyncio.wait((asking,))
            await asyncio.gather(*(stream.push(b"new %d" % number) for number in range(3)))
            found = [bytes((await anext(entries)).data) for _ in range(3)]
        assert found == [b"new 0", b"new 1", b"new 2"]


@FACES
async def test_a_consumer_goes_on_and_its_position_with_it(face: Any, tmp_path: Path) -> None:
    async with running(tmp_path) as node, face(node) as client:
        stream = await client.stream("s", partitions=2)
        taken: list[int] = []
        for part in range(3):
            for number in range(COUNT):
                stream.push_nowait(b"%d" % (part * COUNT + number), partition=number % 2)
            async with stream.consumer("c") as entries:
                found, cancelled = await read_impatiently(entries, COUNT)
                taken += [int(entry.data) for entry in found]
                assert cancelled
                with pytest.raises(TimeoutError):  # all are processed: the next is asked for
                    await asyncio.wait_for(anext(entries), 0.01)
            saved = [await client.get_index("c", "s", partition=at) for at in range(2)]
            assert saved == [(part + 1) * COUNT // 2] * 2
        assert sorted(taken) == list(range(3 * COUNT))


async def test_a_consumer_that_is_left_at_an_entry_gets_that_again(tmp_path: Path) -> None:
    """However it is left: by its end, without one, or with the whole client."""
    async with running(tmp_path) as node:
        async with linked(node) as client:
            stream = await client.stream("s")
            await push_slowly(stream, 10)
            async with stream.consumer("c") as entries:
                assert (await anext(entries)).index == 0
            assert await client.get_index("c", "s") is None
            async for entry in stream.consumer("c"):
                if entry.index == 3:
                    break
            while await client.get_index("c", "s") != 3:
                await asyncio.sleep(0.01)
        async with linked(node) as client:
            async for entry in (await client.stream("s")).consumer("c"):
                if entry.index == 5:
                    break
        assert await node.client.get_index("c", "s") == 5


async def test_a_client_that_is_closed_while_an_iteration_closes_saves_all_its_positions(
    tmp_path: Path,
) -> None:
    """However far the iteration, which nothing refers to any more, has come with it."""
    partitions, entries, turns_max = 4, 3, 12
    async with running(tmp_path) as node:
        stream = await node.client.stream("s", partitions=partitions)
        for partition in range(partitions):
            await stream.push_many([b"x"] * entries, partition=partition)
        for turns in range(turns_max):
            name = f"c{turns}"
            async with linked(node) as client:
                count = 0
                async for _ in (await client.stream("s")).consumer(name, save_seconds=1000):
                    count += 1
                    if count == partitions * entries:
                        break
                for _ in range(turns):
                    await asyncio.sleep(0)
            indexes = [one for one in await node.client.indexes("s") if one.client_id == name]
            assert sum(one.index for one in indexes) == partitions * entries - 1, turns


async def test_partitions_that_there_are_not_cannot_be_followed(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        stream = await node.client.stream("s", partitions=2)
        for partition in (-1, 2):
            for follow in (stream.tail, stream.batches, partial(stream.consumer, "c")):
                with pytest.raises(RequestError) as caught:
                    follow(partitions=[0, partition])
                assert caught.value.code == "stream.partition"


async def test_streams_are_listed(tmp_path: Path) -> None:
    async with running(tmp_path) as node, linked(node) as client:
        names = [f"s{number:03}" for number in range(300)]
        await asyncio.gather(*map(client.stream, names))
        found, cancelled = await read_impatiently(client.iterate_streams(), len(names))
        assert [info.name for info in found] == names
        assert cancelled


async def test_entries_of_a_hub_are_consumed(tmp_path: Path) -> None:
    async with running(tmp_path) as node, linked(node) as client:
        stream = await Hub(client).stream("s")
        await stream.push_many(b"%d" % number for number in range(COUNT))
        async with stream.consumer("c", poll_seconds=0.01) as entries:
            found, cancelled = await read_impatiently(entries, COUNT)
            assert [entry.data for entry in found] == [b"%d" % n for n in range(COUNT)]
            assert cancelled
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(entries), 0.01)
        assert await Hub(client).get_index("c", "s") == COUNT


@FACES
async def test_messages_to_a_mailbox_are_taken(face: Any, tmp_path: Path) -> None:
    async with running(tmp_path) as node, face(node) as client:
        box = client.mailbox()
        for number in range(COUNT):
            await client.send("echo", b"%d" % number, return_address=box.address)
        found, cancelled = await read_impatiently(box, COUNT)
        assert [message.payload for message in found] == [b"%d" % n for n in range(COUNT)]
        assert cancelled
        # What has sent them is told by their return route.
        assert (await client.ask(found[0].return_route, b"again")).payload == b"again"


# Streamr and NextGraph -----------------------------------------------------------------------


async def test_streamr_messages_are_followed_and_resent(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        url = f"ws://{node.addresses()['streamr']}"
        key = EthereumKey(bytes([1]) * 32)
        client = StreamrClient(endpoints_of(url), key=key, make_rsa_key=rsa_key)
        await client.open()
        async with client:
            await client.create_stream("s")
            async with await client.subscribe("s") as messages:
                for number in range(COUNT):
                    await client.publish("s", number)
                found, cancelled = await read_impatiently(messages, COUNT)
                assert [message.content for message in found] == list(range(COUNT))
                assert cancelled
            async with client.resend("s", streamr.From(0)) as stored:
                found, cancelled = await read_impatiently(stored, COUNT)
                assert [message.content for message in found] == list(range(COUNT))
                assert cancelled
                assert await anext(stored, None) is None


@asynccontextmanager
async def device(node: Node) -> AsyncGenerator[nextgraph.Client]:
    url = f"ws://{node.addresses()['nextgraph']}"
    broker = bytes.fromhex(node.facts["nextgraph_peer_id"])
    async with await nextgraph.connect(url, broker=broker, user=ALICE) as client:
        await client.pin(REPO, ACCESS, publish=[TOPIC])
        yield client


async def test_nextgraph_events_are_followed_and_read(tmp_path: Path) -> None:
    async with running(tmp_path) as node, device(node) as laptop, device(node) as phone:
        sent: list[Event] = []
        async with await phone.subscribe(INNER, REPO, TOPIC.public_key) as events:
            for number in range(COUNT):
                made = commit(b"%d" % number)
                published = await laptop.publish(INNER, TOPIC, BRANCH, made)
                sent.append(published.event)
            found, cancelled = await read_impatiently(events, COUNT)
            assert found == sent
            assert cancelled
        async with phone.sync(INNER, TOPIC.public_key) as stored:
            found, cancelled = await read_impatiently(stored, COUNT)
            assert {event.content.seq for event in found} == {e.content.seq for e in sent}
            assert cancelled
            assert await anext(stored, None) is None


async def test_nextgraph_blocks_are_read(tmp_path: Path) -> None:
    made = nextgraph.split_object(bytes(range(256)) * 1_000, b"k" * 32, block_bytes=4_096)
    async with running(tmp_path) as node, device(node) as phone:
        await phone.put_blocks(INNER, made.blocks)
        ids = {nextgraph.block_id(block) for block in made.blocks}
        async with phone.get_blocks(INNER, [made.reference.id], children=True) as blocks:
            found, cancelled = await read_impatiently(blocks, len(ids))
            assert {nextgraph.block_id(block) for block in found} == ids
            assert cancelled
            assert await anext(blocks, None) is None


async def test_nextgraph_letters_are_taken(tmp_path: Path) -> None:
    box = identity("box")
    async with running(tmp_path) as node, device(node) as reader, device(node) as writer:
        inbox = await reader.inboxes.register(ACCESS.outer, box)
        letters = [b"%d" % number for number in range(COUNT)]
        for letter in letters:
            await writer.inboxes.post(ACCESS.outer, box.public_key, letter)
        found, cancelled = await read_impatiently(inbox, COUNT)
        assert [one.msg.body.msg for one in found] == letters
        assert cancelled


# Without a loop ------------------------------------------------------------------------------


@contextmanager
def interrupted_soon() -> Generator[None]:
    """Ctrl-C in a moment."""

    def interrupt(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.02)
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def node_in_a_thread(directory: Path) -> Generator[Node]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start() -> Node:
        node = Node(node_config(directory))
        await node.start()
        return node

    node = asyncio.run_coroutine_threadsafe(start(), loop).result(SECONDS)
    try:
        yield node
    finally:
        asyncio.run_coroutine_threadsafe(node.stop(), loop).result(SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_an_interrupt_leaves_a_blocking_iteration_as_it_is(tmp_path: Path) -> None:
    with (
        node_in_a_thread(tmp_path) as node,
        rillnode.connect_blocking(
            f"noise://{node.addresses()['noise']}", identity=CLIENT, node_identity=node.identity
        ) as client,
    ):
        stream = client.stream("s")
        with stream.tail(start="start") as tail, stream.consumer("c") as entries:
            for part in range(3):
                with interrupted_soon():
                    next(tail)
                with interrupted_soon():
                    next(entries)
                assert stream.push_many([b"%d" % part] * 5) == 5 * (part + 1)
                expected = [(5 * part + at, b"%d" % part) for at in range(5)]
                for iteration in (tail, entries):
                    found = [next(iteration) for _ in range(5)]
                    assert [(entry.index, entry.data) for entry in found] == expected
            with interrupted_soon():
                next(entries)
        assert client.get_index("c", "s") == 15
        # Nothing comes after it was closed: neither what an interrupt has left under way.
        tail = stream.tail(start="end")
        with interrupted_soon():
            next(tail)
        stream.push(b"late")
        another = stream.tail(start=15)
        assert next(another).data == b"late"
        for iteration in (tail, entries, another):
            iteration.close()
            with pytest.raises(StopIteration):
                next(iteration)
        # Dropped, it is closed as well.
        for entry in stream.consumer("d"):
            if entry.index == 7:
                break
        while client.get_index("d", "s") != 7:
            pass


# All of them ---------------------------------------------------------------------------------


@pytest.mark.parametrize("module", PUBLIC)
def test_no_public_method_is_a_generator(module: str) -> None:
    """A generator is over once a step of it is cancelled or has failed."""
    public = import_module(module)
    generators = [
        f"{name}.{method}"
        for name in public.__all__
        if inspect.isclass(one := getattr(public, name))
        for method, function in inspect.getmembers(one, inspect.isfunction)
        if not method.startswith("_")
        and (inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function))
    ]
    assert not generators
