"""Probes of silent peers, where a socket asks for them."""

import asyncio

import pytest

from rillnode import nextgraph
from rillnode.codecs.errors import TransportError
from rillnode.node.config import Config
from rillnode.node.nextgraph.broker import IDLE_SECONDS
from rillnode.node.nextgraph.config import NextgraphListener
from rillnode.testing import Network

USER = nextgraph.Identity.from_seed(b"user".ljust(32, b"."))
CONFIG = Config(name="a", tables=[NextgraphListener(listen="127.0.0.1:1440", registration="open")])
TOPIC = nextgraph.Identity.from_seed(b"topic".ljust(32, b"."))
INNER = nextgraph.inner_overlay(USER.public_key, b"s" * 32)
ACCESS = nextgraph.ReadWriteAccess(INNER, nextgraph.outer_overlay(USER.public_key))
REPO = nextgraph.repo_hash(USER.public_key)

GIVEN_UP_SECONDS = IDLE_SECONDS + 61.0
"""A connection ends a minute after the first probe that is not answered."""


def network() -> Network:
    made = Network(latency_ms=20.0)
    made.add_node("a", config=CONFIG)
    return made


async def connect(world: Network) -> nextgraph.Client:
    broker = bytes.fromhex(world.running("a").facts["nextgraph_peer_id"])
    return await nextgraph.connect("ws://a:1440", broker=broker, user=USER)


def connections(world: Network) -> int:
    found: int = world.running("a").status()["nextgraph"]["connections"]
    return found


@pytest.mark.parametrize("cut", [False, True])
def test_a_node_forgets_a_client_that_is_gone_without_a_word(cut: bool) -> None:
    with network() as world:

        async def stay() -> None:
            await connect(world)
            await asyncio.sleep(1_000.0)

        async def watch() -> list[int]:
            world.start("sensor", stay)
            await asyncio.sleep(3 * IDLE_SECONDS)
            found = [connections(world)]
            if cut:
                with world.partition("sensor"):
                    await asyncio.sleep(GIVEN_UP_SECONDS)
            else:
                world.cut_power("sensor")
                await asyncio.sleep(GIVEN_UP_SECONDS)
            return [*found, connections(world)]

        assert world.run(watch()) == [1, 0]


def test_a_client_finds_out_that_its_node_has_started_again() -> None:
    with network() as world:

        async def follow() -> float:
            async with await connect(world) as client:
                await client.pin(REPO, ACCESS, publish=[TOPIC])
                async with await client.subscribe(INNER, REPO, TOPIC.public_key) as events:
                    world.cut_power("a")
                    began = world.now
                    world.restart("a")
                    with pytest.raises(TransportError):
                        await anext(events)
                    return world.now - began

        assert world.run(follow()) < IDLE_SECONDS
