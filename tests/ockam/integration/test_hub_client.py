"""Streams of a hub over real sockets: of released nodes as captured, and of other nodes."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from nodes import connect_to, node_config
from peer_support import granted, linked, with_peers
from replayed_hub import LEVELS, Exchange, ReplayedHub
from rillnode.codecs.channel_key import ChannelKey
from rillnode.codecs.errors import RequestError, TransportError
from rillnode.codecs.routing.dialects import Dialect
from rillnode.codecs.routing.routes import Address
from rillnode.codecs.routing.stream import (
    CreatePartitionedRequest,
    CreatePartitionedResponse,
    CreateRequest,
    CreateResponse,
    GetIndexRequest,
    GetPartitionIndexRequest,
    IndexResponse,
    PartitionIndexResponse,
    PullRequest,
    PullResponse,
    PushConfirm,
    PushRequest,
    SaveIndexRequest,
    SavePartitionIndexRequest,
)
from rillnode.node.config import PeerTable
from rillnode.node.ockam.client.channel import ChannelLevel, SecureChannel
from rillnode.node.ockam.client.hub import Hub
from rillnode.node.ockam.client.hub_stream import HubEntry, HubStream
from rillnode.node.runtime import Node

PATIENT: Any = {"answer_seconds": 60.0}
WAIT_SECONDS = 120.0


async def consumed(stream: HubStream, count: int, client_id: str = "c") -> list[bytes]:
    """The next entries of a consumer; all of them count as processed."""
    found: list[bytes] = []
    consumer = stream.consumer(client_id, poll_seconds=0.01)

    async def read() -> None:
        async for entry in consumer:
            found.append(entry.data)

    reading = asyncio.get_running_loop().create_task(read())
    async with asyncio.timeout(WAIT_SECONDS):
        while len(found) < count and not reading.done():
            await asyncio.sleep(0.01)
    reading.cancel()
    (ended,) = await asyncio.gather(reading, return_exceptions=True)
    assert isinstance(ended, asyncio.CancelledError), ended
    await consumer.aclose()
    return found


# Released nodes, as captured -----------------------------------------------------------------


class _Repeated:
    """Asks through the client what was asked at the capture."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._streams: dict[Address, tuple[HubStream, int]] = {}

    async def ask(self, asked: Exchange) -> None:
        """Ask it; the result must be what the captured answers say."""
        responses = asked.responses
        match asked.request:
            case CreateRequest(stream_name=name):
                stream = await self._hub.stream(name)
                assert responses == [CreateResponse(stream.name)]
                self._streams[asked.answers[0].return_route[-1]] = (stream, 0)
            case CreatePartitionedRequest(stream_name=name, partitions=partitions):
                stream = await self._hub.stream(name, partitions=partitions)
                for answer, response in zip(asked.answers, responses, strict=True):
                    assert isinstance(response, CreatePartitionedResponse)
                    self._streams[answer.return_route[-1]] = (stream, response.partition)
            case PushRequest(data=data):
                stream, partition = self._streams[asked.address]
                (confirm,) = responses
                assert isinstance(confirm, PushConfirm)
                assert await stream.push(data, partition=partition) == confirm.index
            case PullRequest(index=index, limit=limit):
                stream, partition = self._streams[asked.address]
                (pulled,) = responses
                assert isinstance(pulled, PullResponse)
                entries = [HubEntry(partition, *message) for message in pulled.messages]
                assert await stream.pull(index, limit, partition=partition) == entries
            case GetIndexRequest() | GetPartitionIndexRequest():
                (position,) = responses
                assert isinstance(position, IndexResponse | PartitionIndexResponse)
                place = getattr(asked.request, "partition", None)
                request = asked.request
                found = self._hub.get_index(request.client_id, request.stream_name, partition=place)
                assert await found == position.index
            case _:
                raise AssertionError(asked.request)

    async def save(self, asked: Exchange, asked_then: Exchange) -> None:
        """Save, and get back what the next captured answer says."""
        (answer,) = asked_then.responses
        assert isinstance(answer, IndexResponse | PartitionIndexResponse)
        request = asked.request
        assert isinstance(request, SaveIndexRequest | SavePartitionIndexRequest)
        held = self._hub.set_index(
            request.client_id,
            request.stream_name,
            request.index,
            partition=getattr(request, "partition", None),
        )
        assert await held == answer.index


@pytest.mark.parametrize("level", LEVELS)
async def test_released_nodes_are_asked_as_their_clients_ask_and_understood(
    tmp_path: Path, level: str
) -> None:
    async with asyncio.timeout(WAIT_SECONDS), ReplayedHub(level) as far:
        table = PeerTable(name="hub", ockam=far.address, dialect=far.dialect)
        config = with_peers(node_config(tmp_path, *granted()), table)
        async with Node(config) as node, await connect_to(node) as client:
            repeated = _Repeated(Hub(client, "peer/hub", **PATIENT))
            exchanges = iter(far.exchanges)
            for asked in exchanges:
                if isinstance(asked.request, SaveIndexRequest | SavePartitionIndexRequest):
                    await repeated.save(asked, next(exchanges))
                else:
                    await repeated.ask(asked)
        assert len(far.exchanges) >= 15
        assert far.finished, far.wrong


# Other nodes ---------------------------------------------------------------------------------


async def use(hub: Hub, name: str) -> None:
    """Do everything that a hub is for."""
    stream = await hub.stream(name, partitions=2)
    assert await stream.push_many(b"%d" % number for number in range(200)) == 200
    assert await stream.push(b"other", partition=1) == 0
    assert [entry.data for entry in await stream.pull(198)] == [b"198", b"199"]
    assert await consumed(stream, 200) == [b"%d" % number for number in range(200)]
    assert await hub.get_index("c", name, partition=0) == 200
    assert await hub.get_index("c", name, partition=1) is None
    assert await hub.set_index("c", name, 1, partition=1) == 1
    plain = await hub.stream(f"{name}-plain")
    assert await plain.push(b"x") == 0
    assert await consumed(plain, 1) == [b"x"]
    assert await hub.get_index("c", f"{name}-plain") == 1
    with pytest.raises(RequestError) as caught:
        await hub.stream("")
    assert caught.value.code == "hub.refused"


@pytest.mark.parametrize("dialect", ["u16", "2024"])
@pytest.mark.parametrize("by", ["name", "address"])
async def test_a_hub_behind_a_node_is_used(tmp_path: Path, dialect: Dialect, by: str) -> None:
    async with linked(tmp_path, dialect=dialect) as (a, b), await connect_to(a) as client:
        route = "peer/plain" if by == "name" else f"1#{b.addresses()['ockam']}"
        await use(Hub(client, route, **PATIENT), "s")
        # It is one log, whoever asks.
        there = await (await b.stream("s", partitions=2)).pull(limit=1_000)
        assert [entry.data for entry in there] == [b"%d" % number for number in range(200)]


async def test_the_next_node_is_a_hub_too(tmp_path: Path) -> None:
    async with Node(node_config(tmp_path)) as node, await connect_to(node) as client:
        for services in ("stream", "stream_service", "auto"):
            await use(Hub(client, services=services, **PATIENT), services)


@pytest.mark.parametrize("level", ["elixir-2021", "2022"])
async def test_a_hub_is_used_through_a_secure_channel(tmp_path: Path, level: ChannelLevel) -> None:
    friend = ChannelKey(b"a friend's key".ljust(32, b"."))
    far_config = node_config(tmp_path / "b", *granted(f"ockam:{friend.public_hex}"))
    async with Node(far_config) as far:
        table = PeerTable(name="hub", ockam=far.addresses()["ockam"])
        config = with_peers(node_config(tmp_path / "a", *granted()), table)
        async with Node(config) as node, await connect_to(node) as client:
            route = "peer/hub;SC_listener"
            async with await SecureChannel.open(client, route, level=level, key=friend) as channel:
                hub = Hub(channel, **PATIENT)
                await use(hub, "s")
            with pytest.raises(TransportError) as closed:
                await hub.stream("s")
            assert closed.value.code == "channel.closed"
            async with await SecureChannel.open(client, route, level=level) as channel:
                with pytest.raises(RequestError) as caught:
                    await Hub(channel, **PATIENT).stream("s")
                # Nobody has granted this key anything.
                assert caught.value.code == "hub.refused"


async def test_a_restarted_hub_is_used_on(tmp_path: Path) -> None:
    async with linked(tmp_path) as (a, b), await connect_to(a) as client:
        hub = Hub(client, "peer/plain", answer_seconds=1.0, patience_seconds=WAIT_SECONDS)
        stream = await hub.stream("s")
        await stream.push(b"before")
        found: list[HubEntry] = []

        async def read() -> None:
            async for entry in stream.consumer("c", poll_seconds=0.01):
                found.append(entry)

        reading = asyncio.get_running_loop().create_task(read())
        async with asyncio.timeout(WAIT_SECONDS):
            while await hub.get_index("c", "s") != 1:
                await asyncio.sleep(0.01)
            await b.stop()
            pushes = [asyncio.ensure_future(stream.push(b"%d" % n)) for n in range(5)]
            async with Node(b.config):
                await asyncio.gather(*pushes)
                wanted = {b"before", *(b"%d" % n for n in range(5))}
                while {entry.data for entry in found} != wanted:
                    await asyncio.sleep(0.01)
                # It kept its stream: nothing comes again, and nothing is passed over.
                assert [entry.index for entry in found] == list(range(len(found)))
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
                await client.close()


async def test_a_hub_that_stays_away_is_given_up(tmp_path: Path) -> None:
    config = node_config(tmp_path, *granted())
    async with Node(config) as node, await connect_to(node) as client:
        hub = Hub(client, "1#127.0.0.1:1", patience_seconds=0.5)
        with pytest.raises(RequestError) as caught:
            await hub.stream("s")
        assert caught.value.code == "peer.unreachable"
        with pytest.raises(RequestError) as caught:
            await Hub(client, "peer/nobody").stream("s")
        assert caught.value.code == "address.unknown"
