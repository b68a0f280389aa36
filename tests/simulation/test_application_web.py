"""Listeners that speak HTTP and WebSocket on simulated nodes, and who dials them."""

import asyncio
import os
import random
import time

import aiohttp
import pytest
from msgspec.structs import replace

from rillnode import nextgraph, streamr
from rillnode.actors.core.access import VERBS
from rillnode.codecs.errors import ConfigError, TransportError
from rillnode.codecs.keys import Identity
from rillnode.node.config import Config, GrantTable, HttpListener, StreamTable
from rillnode.node.nextgraph.config import NextgraphListener
from rillnode.node.overlay.config import (
    OverlayTable,
    StreamrNetworkListener,
    TrackerTable,
)
from rillnode.node.simulated.history import EPOCH_MS
from rillnode.node.streamr.config import StreamrListener
from rillnode.testing import Network
from rillnode.transports.clock import SystemClock

KEY = "11" * 32
EVERYBODY = (
    GrantTable(who="eth:*", streams="*", may=("create", "push", "pull", "subscribe")),
    GrantTable(who="noise:*", streams="*", may=VERBS),
)
CONFIG = Config(
    name="a",
    grants=EVERYBODY,
    http=HttpListener(listen="127.0.0.1:80"),
    tables=[StreamrListener(), NextgraphListener(registration="open")],
)
URL = "ws://a:8890"


def test_streamr_clients_survive_a_power_cut() -> None:
    with Network(latency_ms=20.0) as network:
        network.add_node("a", config=CONFIG)

        async def application() -> list[object]:
            async with await streamr.connect(URL, private_key=KEY) as client:
                await client.create_stream("sensors")
                subscription = await client.subscribe("sensors")
                await client.publish("sensors", 1)
                await client.flush()
                network.cut_power("a")
                await asyncio.sleep(100.0)
                network.restart("a")
                await client.publish("sensors", 2)
                live = [(await anext(subscription)).content for _ in range(2)]
                stored = [one.content async for one in client.resend("sensors", streamr.Last(5))]
            native = await (await network.client("a")).stream("sensors")
            texts = [entry.data.decode() for entry in await native.pull()]
            assert len(texts) == 2
            assert all(text.startswith('[32,["sensors",0,') for text in texts)
            return [*live, *stored]

        assert network.run(application()) == [1, 2, 1, 2]


def test_what_was_lost_with_a_connection_is_not_taken_for_stored() -> None:
    with Network(sync_ms=20.0) as network:
        network.add_node("a", config=CONFIG)

        async def application() -> int:
            async with await streamr.connect(URL, private_key=KEY) as client:
                await client.create_stream("sensors")
                await client.publish("sensors", "lost", partition=0)
                await asyncio.sleep(0.0025)  # it has arrived, and is not durable yet
                network.kill("a")
                await asyncio.sleep(1.0)
                network.restart("a")
                await asyncio.sleep(5.0)  # the client has connected again
                with pytest.raises(TransportError):
                    await client.flush()
                await client.publish("sensors", "stored", partition=0)
                await client.flush()
                return len([one async for one in client.resend("sensors", streamr.Last(5))])

        assert network.run(application()) == 1


def test_nextgraph_clients_meet_a_node_whose_key_outlives_it() -> None:
    with Network() as network:
        network.add_node("a", config=CONFIG)
        user = Identity.from_seed(b"u" * 32)

        async def application() -> set[str | None]:
            found: set[str | None] = set()
            for _ in range(2):
                broker = network.running("a").facts["nextgraph_peer_id"]
                assert broker is not None
                found.add(broker)
                url = "ws://a:1440"
                async with await nextgraph.connect(url, broker=bytes.fromhex(broker), user=user):
                    network.kill("a")
                    network.restart("a")
                    await asyncio.sleep(1.0)
            return found

        with pytest.raises(ConfigError):
            network.running("a")
        assert len(network.run(application())) == 1


def test_nodes_share_a_stream_as_released_streamr_nodes_do() -> None:
    grants = (GrantTable(who="*", streams="*", may=VERBS),)
    tracker = Config(
        name="t", grants=grants, tables=[TrackerTable(enabled=True), StreamrNetworkListener()]
    )
    node = Config(
        name="a",
        grants=grants,
        streams=(StreamTable(name="s"),),
        tables=[OverlayTable(streams=("s",)), StreamrNetworkListener(trackers=("ws://t:30300",))],
    )
    with Network() as network:
        network.add_node("t", config=tracker)
        for name in ("a", "b"):
            network.add_node(name, config=replace(node, name=name))

        async def application() -> list[bytes]:
            await asyncio.sleep(20.0)
            async with await network.client("a") as client:
                await (await client.stream("s")).push(b"hello")
            await asyncio.sleep(5.0)
            overlays = [network.running(name).status()["overlay"] for name in ("a", "b")]
            links = [link for one in overlays for link in one["links"].values()]
            assert [link["speaks"] for link in links] == ["streamr_network"]  # one has dialled
            async with await network.client("b") as client:
                return [bytes(entry.data) for entry in await (await client.stream("s")).pull()]

        assert network.run(application()) == [b"hello"]


def test_pages_are_served_by_the_virtual_clock() -> None:
    with Network() as network:
        network.add_node("a", config=CONFIG)

        async def application() -> list[str]:
            await asyncio.sleep(3_600.0)
            url = "http://a/livez"
            async with aiohttp.ClientSession() as http, http.get(url) as answer:
                return [await answer.text(), answer.headers["Date"]]

        text, date = network.run(application())
        assert text == "ok\n"
        assert date == "Thu, 01 Jan 2026 01:00:00 GMT"


def test_pages_have_no_listener_unless_they_are_asked_for() -> None:
    with Network() as network:
        network.add_node("a", config=Config(name="a", grants=EVERYBODY))

        async def application() -> None:
            async with aiohttp.ClientSession() as http:
                await http.get("http://a:8080/livez")

        with pytest.raises(aiohttp.ClientConnectorError):
            network.run(application())


def test_hosts_that_are_not_there_are_not_found() -> None:
    with Network() as network:
        network.add_node("a", config=CONFIG)

        async def application() -> None:
            with pytest.raises(TransportError) as caught:
                await streamr.connect("ws://nobody:8890", private_key=KEY)
            assert caught.value.code == "rest.unreachable"
            with pytest.raises(TransportError):
                await streamr.connect("wss://a:8890", private_key=KEY)  # no TLS

        network.run(application())


def test_a_tls_listener_is_plain_in_simulations() -> None:
    table = StreamrListener(tls_cert="no/cert.pem", tls_key="no/key.pem")  # type: ignore[arg-type]
    with Network() as network:
        network.add_node("a", config=Config(name="a", grants=EVERYBODY, tables=[table]))

        async def application() -> None:
            await (await streamr.connect(URL, private_key=KEY)).close()

        network.run(application())


def test_programs_have_clocks_of_their_own() -> None:
    with Network() as network:

        async def program() -> int:
            return SystemClock(asyncio.get_running_loop()).now_ms()

        async def application() -> None:
            await asyncio.sleep(10.0)
            other = network.start("other", program)
            assert await other.wait() == EPOCH_MS + 10_000
            network.set_clock("other", 60.0)
            other = network.start("other", program)
            assert await other.wait() == EPOCH_MS + 70_000
            assert await program() == EPOCH_MS + 10_000

        network.run(application())
    loop = asyncio.new_event_loop()
    assert abs(SystemClock(loop).now_ms() - time.time() * 1_000) < 10_000
    loop.close()


def test_chance_is_the_seeds_within_and_the_machines_outside() -> None:
    async def drawn() -> tuple[bytes, float]:
        return os.urandom(8), random.random()

    random.seed(5)
    expected = random.Random(5).random()
    found: list[list[tuple[bytes, float]]] = []
    for seed in (1, 1, 2):
        with Network(seed=seed) as network:
            found.append([network.run(drawn()), network.run(drawn())])
    assert found[0] == found[1]
    assert found[0] != found[2]
    assert found[0][0] != found[0][1]
    assert random.random() == expected
    assert len({os.urandom(8) for _ in range(3)}) == 3


def _hash_of(seed: int) -> str:
    with Network(seed=seed, jitter_ms=5.0, loss=0.05) as network:
        network.add_node("a", config=CONFIG)

        async def application() -> None:
            async with await streamr.connect(URL, private_key=KEY) as client:
                await client.create_stream("sensors", partitions=2)
                subscription = await client.subscribe("sensors", partition=1)
                for number in range(10):
                    await client.publish("sensors", number, partition=number % 2)
                await client.flush()
                for _ in range(5):
                    await anext(subscription)
                network.kill("a")
                await asyncio.sleep(0.5)
                network.restart("a")
                await client.publish("sensors", 11, partition=1)
                await anext(subscription)

        network.run(application())
        return network.trace_hash


def test_a_seed_gives_the_same_run_again() -> None:
    assert _hash_of(1) == _hash_of(1) != _hash_of(2)
