"""Nodes of one log that divide its streams: native clients go where a stream is served.

Clients of other protocols are told in their own words that this node does not serve it.
"""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from msgspec.structs import replace

from coroutines import handed_by
from memory_nodes import Log, with_log
from nextgraph_document import ACCESS, ALICE, INNER, REPO, TOPIC, identity
from nodes import CLIENT, connect_to, node_config
from rillnode import nextgraph, streamr
from rillnode.actors.log import GetRecord, PutRecord
from rillnode.actors.log.nodes import NODES, NodeRecord
from rillnode.actors.log.shared.placement import Placement
from rillnode.actors.nextgraph.names import topic_stream
from rillnode.codecs.errors import RequestError
from rillnode.codecs.keys import Identity
from rillnode.node.client import connect_blocking
from rillnode.node.config import GrantTable, NoiseListener
from rillnode.node.keys.files import write_key
from rillnode.node.nextgraph.config import NextgraphListener, nextgraph_key_file
from rillnode.node.ockam.client.hub import Hub
from rillnode.node.runtime import Node
from rillnode.node.stores import places
from store_support import eventually
from streamr_rest_support import Server, streamr_config

BROKER: Final = identity("broker")


async def tell(node: Node, key: str, value: bytes | None) -> None:
    """Write what a node is told of others."""
    store: Any = node._store  # pyright: ignore[reportPrivateUsage]
    await store.shards.wait_for(put := PutRecord(key=key, value=value), store.shards[0].submit)
    assert put.error is None


log = handed_by(with_log)


def opened(node: Node) -> set[int]:
    """The shards that a node has a view of."""
    log: Any = node.status()["store"]["log"]
    return {view["shard"] for view in log["views"]}


async def test_a_native_client_goes_where_its_stream_is_served_and_works_on(log: Log) -> None:
    never = await log.node("never", "!logs*")
    always = await log.node("always", "logs*", "!*")
    await log.node("third", "!*")
    async with await connect_to(never) as client:
        stream = await client.stream("logs-1", partitions=2)
        tail = stream.tail(start="start", partitions=[0])
        assert [await stream.push(b"%d" % number) for number in range(3)] == [0, 1, 2]
        assert await stream.push_many([b"x"] * 5, partition=1) == 5
        assert [entry.data for entry in await stream.pull(1)] == [b"1", b"2"]
        assert [(await anext(tail)).data for _ in range(3)] == [b"0", b"1", b"2"]
        async with stream.consumer("c", partitions=[0]) as entries:
            assert [(await anext(entries)).index for _ in range(3)] == [0, 1, 2]
        assert await client.get_index("c", "logs-1") == 2
        assert [one.index for one in await client.indexes("logs-1")] == [2]
        assert (await client.describe("logs-1")).partitions[1].next_index == 5
        await stream.push(b"3")
        assert (await anext(tail)).data == b"3"
        # What both serve stays where the client is.
        own = await client.stream("mine")
        assert await own.push(b"x") == 0
        await client.remove("logs-1")
        with pytest.raises(RequestError) as caught:
            await anext(tail)
        assert caught.value.code == "stream.removed"

    async def left() -> bool:
        return bool(always.status()["listeners"]["noise"]["links"] == 0)

    await eventually(left)
    served = {info.name for node in (never, always) for info in await node.client.streams()}
    assert served == {"mine"}


async def test_what_is_pushed_to_many_streams_at_once_is_stored_where_each_is_served(
    log: Log,
) -> None:
    never = await log.node("never", "!logs*")
    await log.node("always", "logs*", "!*")
    async with await connect_to(never) as client:
        names = [f"{kind}-{number}" for number in range(4) for kind in ("logs", "mine")]
        streams = await client.open_streams(names)
        for turn in range(3):
            pushed = [stream.push_nowait(b"%d" % turn) for stream in streams]
            pushed += [stream.push_nowait(b"again") for stream in streams]
            indexes = await asyncio.gather(*pushed)
            assert indexes == [2 * turn] * len(names) + [2 * turn + 1] * len(names)
        for stream in streams:
            found = [entry.data for entry in await stream.pull()]
            assert found == [b"0", b"again", b"1", b"again", b"2", b"again"]
    served = {info.name for info in await never.client.streams()}
    assert served == {name for name in names if name.startswith("mine")}


async def test_a_blocking_client_goes_there_too(log: Log) -> None:
    never = await log.node("never", "!logs*")
    await log.node("always", "logs*")

    def work() -> list[bytes]:
        url = f"noise://{never.addresses()['noise']}"
        with connect_blocking(url, identity=CLIENT, node_identity=never.identity) as client:
            stream = client.stream("logs-1")
            stream.push(b"x")
            return [entry.data for entry in stream.pull()]

    assert await asyncio.to_thread(work) == [b"x"]


async def test_a_client_goes_on_when_the_node_that_serves_it_stops(log: Log) -> None:
    never = await log.node("never", "!logs*")
    first = log.make("first", "logs*")
    await first.start()
    await eventually(partial(log.known, never, first))
    async with await connect_to(never) as client:
        stream = await client.stream("logs-1")
        tail = stream.tail(start="start")
        assert await stream.push(b"0") == 0
        assert (await anext(tail)).data == b"0"
        await log.node("second")
        await first.stop()
        assert not await log.known(never, first)
        assert await stream.push(b"1") == 1
        assert (await anext(tail)).data == b"1"


async def test_who_has_no_grant_at_the_other_node_is_told(log: Log, tmp_path: Path) -> None:
    never = await log.node("never", "!logs*")
    config = replace(node_config(tmp_path / "strict"), grants=())
    await log.node("strict", config=config)
    async with await connect_to(never) as client:
        with pytest.raises(Exception, match="does not know") as caught:
            await client.stream("logs-1")
        assert getattr(caught.value, "code", "") == "noise.unknown_identity"


async def test_a_node_that_proves_another_identity_is_not_talked_to(log: Log) -> None:
    never = await log.node("never", "!logs*")
    liar = await log.node("liar")
    told = NodeRecord(
        name="x", identity=Identity.generate().public_hex, address=liar.addresses()["noise"]
    )
    await tell(never, NODES + liar.identity, None)
    await tell(never, told.key, told.encode())
    async with await connect_to(never) as client:
        with pytest.raises(Exception, match="identity") as caught:
            await client.stream("logs-1")
        assert getattr(caught.value, "code", "") == "noise.wrong_node"
    assert await liar.client.streams() == []


async def test_a_client_in_the_process_and_one_with_nowhere_to_go_are_told(log: Log) -> None:
    never = await log.node("never", "!logs*")
    async with await connect_to(never) as client:
        with pytest.raises(RequestError, match="no other node") as caught:
            await client.stream("logs-1")
        assert (caught.value.code, caught.value.retryable) == ("store.elsewhere", False)
    third = await log.node("third")
    with pytest.raises(RequestError, match=f"third at {third.addresses()['noise']}") as caught:
        await never.client.stream("logs-1")
    assert caught.value.code == "store.elsewhere"


async def test_a_node_tells_of_an_address_that_is_configured_and_of_no_wildcard(
    log: Log, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name, public, expected in (("a", "edge:4100", "edge:4100"), ("b", None, "")):
        config = node_config(tmp_path / name)
        noise = NoiseListener(listen="0.0.0.0:0", public=public)
        node = await log.node(name, config=replace(config, noise=noise))
        found = GetRecord(key=NODES + node.identity)
        store: Any = node._store  # pyright: ignore[reportPrivateUsage]
        await store.shards.ask(0, found)
        assert found.value is not None
        record = NodeRecord.decode(found.value)
        assert record is not None
        assert (record.name, record.address) == (name, expected)
    assert [one.msg for one in caplog.records].count("node_not_public") == 1


# Other protocols -----------------------------------------------------------------------------


async def test_clients_of_ockam_are_told(log: Log) -> None:
    never = await log.node("never", "!logs*")
    await log.node("always", "logs*")
    async with await connect_to(never) as client:
        hub = Hub(client)
        with pytest.raises(RequestError, match="does not serve stream logs-1"):
            await hub.stream("logs-1")


async def test_clients_of_streamr_are_told(log: Log, tmp_path: Path) -> None:
    may = GrantTable(who="eth:*", streams="*", may=("create", "subscribe"))
    config = streamr_config(tmp_path / "never", may)
    never = await log.node("never", "!logs*", config=config)
    always = await log.node("always", "logs*")
    await always.client.stream("logs-1")
    async with aiohttp.ClientSession() as http:
        server = Server(never, http)
        user = await server.user()
        for path in ("", "/data/partitions/0/last", "/permissions"):
            answer = await user.get(f"/streams/logs-1{path}")
            assert answer.refusal == (421, "SERVED_ELSEWHERE")
            assert "ask always at" in answer.body["message"]
        key = streamr.EthereumKey(b"\1" * 32)
        url = f"ws://{never.addresses()['streamr']}"
        async with await streamr.connect(url, private_key=key) as client:
            with pytest.raises(RequestError) as caught:
                await client.subscribe("logs-1")
            assert "does not serve" in str(caught.value)


async def test_clients_of_nextgraph_are_told(log: Log, tmp_path: Path) -> None:
    shard = Placement(4, places()).of_stream(topic_stream(INNER.id, TOPIC.public_key))
    assert shard, "another overlay is needed: every node holds shard 0"
    listener = NextgraphListener(listen="127.0.0.1:0", registration="open")
    config = node_config(tmp_path / "never").having(listener)
    write_key(nextgraph_key_file(config), BROKER)
    never = await log.node("never", f"!shard:{shard}", config=config)
    url = f"ws://{never.addresses()['nextgraph']}"
    async with await nextgraph.connect(url, broker=BROKER.public_key, user=ALICE) as client:
        with pytest.raises(RequestError, match="overlay_not_found"):
            await client.pin(REPO, ACCESS, publish=[TOPIC])
    assert shard not in opened(never)


async def test_readers_of_http_are_told(log: Log) -> None:
    never = await log.node("never", "!logs*")
    async with (
        aiohttp.ClientSession() as http,
        http.get(f"http://{never.addresses()['http']}/v1/streams/logs-1") as answer,
    ):
        said = await answer.json()
        assert (answer.status, said["code"]) == (421, "store.elsewhere")
