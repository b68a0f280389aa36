"""Applications on simulated nodes, as users test theirs."""

import asyncio
import time

import pytest

from rillnode.codecs.errors import ConfigError, HandshakeError
from rillnode.node.config import Config, GrantTable
from rillnode.node.simulation.loop import SimulationStuck
from rillnode.testing import Network


def test_a_confirmed_entry_survives_a_power_cut(rillnode_network: Network) -> None:
    network = rillnode_network
    network.add_node("a")

    async def application() -> list[bytes]:
        client = await network.client("a")
        stream = await client.stream("orders")
        await stream.push(b"first")
        network.cut_power("a")
        await asyncio.sleep(5.0)
        network.restart("a")
        await stream.push(b"second")
        found = [bytes(entry.data) for entry in await stream.pull()]
        await client.close()
        return found

    assert network.run(application()) == [b"first", b"second"]


def test_an_hour_takes_no_time() -> None:
    started = time.monotonic()
    with Network() as network:
        network.run(asyncio.sleep(3_600.0))
        assert network.now == pytest.approx(3_600.0)
    assert time.monotonic() - started < 60.0


def test_delays_are_those_of_the_network() -> None:
    with Network(latency_ms=50.0, sync_ms=0.0) as network:
        network.add_node("a")

        async def application() -> float:
            async with await network.client("a") as client:
                stream = await client.stream("orders")
                before = network.now
                await stream.push(b"one")
                return network.now - before

        assert network.run(application()) == pytest.approx(0.1)


def test_nodes_of_one_log_have_the_same_streams() -> None:
    with Network(shared=True) as network:
        network.add_node("a")
        network.add_node("b")

        async def application() -> list[bytes]:
            async with await network.client("a") as one, await network.client("b") as other:
                stream = await one.stream("orders")
                async with (await other.stream("orders")).batches() as batches:
                    await stream.push(b"first")
                    return [bytes(entry.data) for entry in await anext(batches)]

        assert network.run(application()) == [b"first"]


def test_messages_travel_through_peers() -> None:
    with Network() as network:
        network.add_node("a")
        network.add_node("b", peers=["a"])

        async def application() -> bytes:
            async with await network.client("b") as client:
                return bytes((await client.ask("peer/a;echo", b"hello")).payload)

        assert network.run(application()) == b"hello"


def test_a_partition_stops_everything_until_it_is_over() -> None:
    with Network() as network:
        network.add_node("a")

        async def application() -> float:
            async with await network.client("a") as client:
                stream = await client.stream("orders")
                with network.partition("a"):
                    push = stream.push_nowait(b"late")
                    await asyncio.sleep(10.0)
                    assert not push.done()
                await push
            return network.now

        assert 10.0 < network.run(application()) < 15.0


def test_a_client_that_closes_waits_for_what_was_pushed_just_before() -> None:
    with Network() as network:
        network.add_node("a")

        async def application() -> list[int]:
            async with await network.client("a") as client:
                stream = await client.stream("orders")
                pushes = [stream.push_nowait(b"%d" % number) for number in range(3)]
            return [await push for push in pushes]

        assert network.run(application()) == [0, 1, 2]


def test_two_programs_meet_at_a_node() -> None:
    with Network() as network:
        network.add_node("a")

        async def producer() -> None:
            async with await network.client("a") as client:
                await (await client.stream("orders")).push(b"made")

        async def application() -> bytes:
            other = network.start("producer", producer)
            await other.wait()
            async with await network.client("a") as client:
                return bytes((await (await client.stream("orders")).pull())[0].data)

        assert network.run(application()) == b"made"


def test_grants_name_programs_by_their_identity() -> None:
    with Network() as network:
        known = GrantTable(
            who=f"noise:{network.program_identity('friend')}", streams="*", may=("admin",)
        )
        network.add_node("a", config=Config(name="a", grants=(known,)))

        async def friend() -> None:
            await (await network.client("a")).close()

        async def stranger() -> None:
            with pytest.raises(HandshakeError):
                await network.client("a", reconnect=False)

        network.run(friend(), program="friend")
        network.run(stranger(), program="stranger")


def test_a_seed_gives_the_same_run_again() -> None:
    assert _hash_of(1) == _hash_of(1) != _hash_of(2)


def _hash_of(seed: int) -> str:
    with Network(seed=seed, jitter_ms=5.0, loss=0.05) as network:
        network.add_node("a")

        async def application() -> None:
            async with await network.client("a") as client:
                stream = await client.stream("orders", partitions=2)
                for number in range(20):
                    await stream.push(b"%d" % number, partition=number % 2)

        network.run(application())
        return network.trace_hash


def test_a_program_that_waits_for_nothing_is_told_so() -> None:
    with Network() as network, pytest.raises(SimulationStuck):
        network.run(asyncio.Event().wait())


def test_hosts_have_names_of_their_own() -> None:
    with Network() as network:
        network.add_node("a")
        with pytest.raises(ConfigError):
            network.add_node("a")
        with pytest.raises(ConfigError):
            network.add_node("b", peers=["c"])
