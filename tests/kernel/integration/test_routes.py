"""Routes through three nodes over sockets: messages, streams, hops that are unknown or down."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from fake_client import Screen
from rillnode import Client, connect
from rillnode.actors.core.access import VERBS
from rillnode.codecs.errors import RequestError
from rillnode.codecs.keys import Identity
from rillnode.node.cli import main
from rillnode.node.config import Config, GrantTable, HttpListener, NoiseListener, PeerTable
from rillnode.node.keys.files import write_key
from rillnode.node.ockam.client.hub import Hub
from rillnode.node.ockam.config import ServicesTable
from rillnode.node.runtime import Node
from rillnode.node.testing.contract.ports import free_address

EVERYBODY = GrantTable(who="noise:*", streams="*", may=VERBS)

PATIENT_SECONDS = 600.0
"""For an answer: what is asked again because a busy machine is slow is there twice."""


def config(
    name: str, directory: Path, *, peers: tuple[PeerTable, ...] = (), listen: str = "127.0.0.1:0"
) -> Config:
    return Config(
        name=name,
        data_dir=directory / name,
        noise=NoiseListener(listen=listen),
        http=HttpListener(enabled=False),
        grants=(EVERYBODY,),
        peers=peers,
        tables=[ServicesTable()],
    )


def peer(name: str, node: Node) -> PeerTable:
    return PeerTable(name=name, noise=node.addresses()["noise"], identity=node.identity)


@asynccontextmanager
async def chain(directory: Path) -> AsyncGenerator[tuple[Client, Node, Node, Node]]:
    """A client at A, whose peer is C, whose peer is B."""
    async with AsyncExitStack() as stack:
        b = await stack.enter_async_context(Node(config("b", directory, listen=free_address())))
        c = await stack.enter_async_context(Node(config("c", directory, peers=(peer("b", b),))))
        a = await stack.enter_async_context(Node(config("a", directory, peers=(peer("c", c),))))
        client = await connect(
            f"noise://{a.addresses()['noise']}",
            identity=Identity.from_seed(bytes(range(32))),
            node_identity=a.identity,
        )
        yield await stack.enter_async_context(client), a, c, b


async def test_a_message_goes_through_and_its_answer_back(tmp_path: Path) -> None:
    async with chain(tmp_path) as (client, *_):
        answer = await client.ask("peer/c;peer/b;echo", b"hello", timeout_seconds=30.0)
        assert answer.payload == b"hello"
        again = await client.ask(answer.return_route, b"again", timeout_seconds=30.0)
        assert again.payload == b"again"


async def test_a_stream_two_nodes_away_is_made_pushed_to_and_consumed(tmp_path: Path) -> None:
    items = [b"%d" % number * 100 for number in range(500)]
    async with chain(tmp_path) as (client, _, _, b):
        hub = Hub(client, "peer/c;peer/b", answer_seconds=PATIENT_SECONDS)
        stream = await hub.stream("readings", partitions=2)
        await stream.push_many(items, partition=1)
        found: list[bytes] = []
        while len(found) < len(items):
            found += [bytes(one.data) for one in await stream.pull(len(found), 50, partition=1)]
        assert found == items
        own = await b.stream("readings")
        assert [bytes(one.data) for one in await own.pull(0, 1_000, partition=1)] == items


async def test_what_is_pushed_faster_than_hops_take_it_is_slowed_down_not_lost(
    tmp_path: Path,
) -> None:
    items = [number.to_bytes(4, "big") + bytes(20_000) for number in range(1_500)]  # 30 MB
    async with chain(tmp_path) as (client, _, _, b):
        hub = Hub(client, "peer/c;peer/b", answer_seconds=PATIENT_SECONDS)
        stream = await hub.stream("large", partitions=1)
        await stream.push_many(items)
        own = await b.stream("large")
        count = 0
        while entries := await own.pull(count, 200):
            assert [bytes(one.data) for one in entries] == items[count : count + len(entries)]
            count += len(entries)
        assert count == len(items)


async def test_an_unknown_hop_is_told_of(tmp_path: Path) -> None:
    async with chain(tmp_path) as (client, *_):
        with pytest.raises(RequestError) as caught:
            await client.ask("peer/c;peer/nobody;echo", b"x", timeout_seconds=30.0)
        assert caught.value.code == "address.unknown"


async def test_a_hop_that_is_down_is_told_of_and_used_again_when_it_is_back(tmp_path: Path) -> None:
    async with chain(tmp_path) as (client, _, _, b):
        route = "peer/c;peer/b;echo"
        await client.ask(route, b"x", timeout_seconds=30.0)
        await b.stop()
        with pytest.raises(RequestError) as caught:
            await client.ask(route, b"x", timeout_seconds=30.0)
        assert caught.value.code == "peer.unreachable"
        assert "b" in caught.value.text
        async with Node(b.config):
            async with asyncio.timeout(60.0):
                while True:
                    try:
                        answer = await client.ask(route, b"back", timeout_seconds=30.0)
                    except RequestError:
                        await asyncio.sleep(0.1)
                    else:
                        break
            assert answer.payload == b"back"


async def probe(directory: Path, node: Node, route: str) -> tuple[int, list[dict[str, object]]]:
    """Run `route probe` in a pipe."""
    key = directory / "probe.key"
    if not key.exists():
        write_key(key, Identity.from_seed(bytes(32)))
    screen = Screen(b"", tty=False)
    argv = ["route", "probe", route, "--node", f"noise://{node.addresses()['noise']}"]
    argv += ["--key", str(key), "--node-identity", node.identity, "--wait", "30"]
    code = await asyncio.to_thread(main, argv, screen.terminal)
    return code, [json.loads(line) for line in screen.out.splitlines()]


async def test_probing_shows_each_hop(tmp_path: Path) -> None:
    async with chain(tmp_path) as (_, a, *_):
        code, rows = await probe(tmp_path, a, "peer/c;peer/b;echo;stream")
        assert code == 0
        assert [row["state"] for row in rows] == [
            "answers",
            "answers",
            "answers",
            "a worker: not asked",
        ]
        assert all(isinstance(row["milliseconds"], float) for row in rows[:3])


async def test_probing_ends_at_the_first_hop_that_does_not_answer(tmp_path: Path) -> None:
    async with chain(tmp_path) as (_, a, *_):
        code, rows = await probe(tmp_path, a, "peer/c;peer/nobody;echo")
        assert code == 3
        assert [row["address"] for row in rows] == ["0#peer/c", "0#peer/nobody", "0#echo"]
        assert str(rows[1]["state"]).startswith("address.unknown")
        assert rows[2]["state"] == "not reached"
