"""Streams shared by several simulated nodes: every entry reaches every node, once."""

import asyncio

import pytest

from overlay_support import STREAM, add_overlay, all_have, entries, push
from rillnode import Client
from rillnode.testing import Network

NAMES = [f"n{number}" for number in range(6)]


def numbered(name: str, count: int, first: int = 0) -> list[bytes]:
    """So many different entries."""
    return [f"{name} {number}".encode() for number in range(first, first + count)]


async def open_all(network: Network, names: list[str]) -> None:
    """Make the stream at each node, and let the overlay form."""
    for name in names:
        client = await network.client(name)
        await client.stream(STREAM)
        await client.close()
    await asyncio.sleep(5.0)


@pytest.mark.parametrize("count", [3, *(pytest.param(n, marks=pytest.mark.long) for n in (2, 6))])
def test_what_is_pushed_anywhere_is_everywhere_once_and_in_each_pushers_order(count: int) -> None:
    names = NAMES[:count]
    with Network(seed=count, jitter_ms=5.0) as network:
        add_overlay(network, names)

        async def application() -> None:
            await open_all(network, names)
            expected: list[bytes] = []
            for name in names:
                client = await network.client(name)
                await push(client, *numbered(name, 20))
                await client.close()
                expected += numbered(name, 20)
            found = await all_have(network, names, expected)
            for has in found.values():
                for name in names:
                    assert [one for one in has if one.startswith(name.encode())] == numbered(
                        name, 20
                    )

        network.run(application())


def test_bytes_arrive_exactly_as_they_were_pushed() -> None:
    items = [b"", b"\xff\x00raw", b'{"data":"aGk="}', b'{"a": 1}', "é".encode(), b'"', b"17"]
    with Network(seed=1) as network:
        add_overlay(network, ["a", "b"])

        async def application() -> None:
            await open_all(network, ["a", "b"])
            client = await network.client("a")
            await push(client, *items)
            await client.close()
            found = await all_have(network, ["a", "b"], items)
            assert found["b"] == items

        network.run(application())


def test_what_is_pushed_before_there_is_a_neighbour_waits_for_one() -> None:
    with Network(seed=1) as network:
        add_overlay(network, ["a", "b"])

        async def application() -> None:
            first = await network.client("a")
            await push(first, *numbered("a", 50))
            await asyncio.sleep(200.0)
            second = await network.client("b")
            await second.stream(STREAM)
            await all_have(network, ["a", "b"], numbered("a", 50))
            await first.close()
            await second.close()

        network.run(application())


def test_a_storage_node_keeps_streams_that_it_was_never_told_of_by_a_client() -> None:
    with Network(seed=1) as network:
        add_overlay(network, ["a", "b", "keeper"], storage=["keeper"])

        async def application() -> None:
            await open_all(network, ["a"])
            client = await network.client("a")
            await push(client, *numbered("a", 10))
            await all_have(network, ["a", "keeper"], numbered("a", 10))
            await client.close()

        network.run(application())


def test_the_tracker_may_take_part_itself() -> None:
    names = ["t", "a", "b"]
    with Network(seed=1) as network:
        add_overlay(network, names)

        async def application() -> None:
            await open_all(network, ["a", "b"])
            for name in ("a", "t", "b"):
                client = await network.client(name)
                await push(client, *numbered(name, 5))
                await client.close()
            await all_have(
                network, names, [*numbered("a", 5), *numbered("t", 5), *numbered("b", 5)]
            )

        network.run(application())


@pytest.mark.parametrize("power", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_node_that_was_down_gets_what_it_missed_and_nothing_twice(power: bool) -> None:
    with Network(seed=4) as network:
        add_overlay(network, NAMES, storage=["n0"])

        async def application() -> None:
            await open_all(network, NAMES)
            client = await network.client("n1")
            await push(client, *numbered("before", 20))
            await asyncio.sleep(1.0)
            if power:
                network.cut_power("n3")
            else:
                network.kill("n3")
            await push(client, *numbered("meanwhile", 20))
            await asyncio.sleep(300.0)
            network.restart("n3")
            expected = numbered("before", 20) + numbered("meanwhile", 20)
            await all_have(network, NAMES, expected)
            await push(client, *numbered("after", 20))
            await all_have(network, NAMES, expected + numbered("after", 20))
            await client.close()

        network.run(application())


def test_two_nodes_that_tell_each_other_much_at_once_do_not_wait_for_each_other() -> None:
    names = NAMES[:2]
    large = [[entry + bytes(200_000) for entry in numbered(name, 20)] for name in names]
    with Network(seed=6) as network:
        add_overlay(network, names)

        async def application() -> None:
            await open_all(network, names)
            with network.partition("n0", "application"):
                other = network.start("other", push_at, "n1", large[1])
                await push_at("n0", large[0])
                await other.wait()
            await all_have(network, names, [*large[0], *large[1]], within=30.0)

        async def push_at(name: str, items: list[bytes]) -> None:
            client = await network.client(name)
            await push(client, *items)
            await client.close()

        network.run(application())


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_both_sides_of_a_partition_have_everything_after_it(seed: int) -> None:
    cut = NAMES[:3]
    with Network(seed=seed) as network:
        add_overlay(network, NAMES, storage=["n5"])

        async def application() -> None:
            await open_all(network, NAMES)
            clients: dict[str, Client] = {}
            expected: list[bytes] = []
            for name in NAMES:
                clients[name] = await network.client(name)
                await push(clients[name], *numbered(name, 5))
                expected += numbered(name, 5)
            await asyncio.sleep(5.0)
            programs = ["application"]
            with network.partition(*cut, *programs):
                for name in cut:
                    await push(clients[name], *numbered(name, 20, first=5))
                    expected += numbered(name, 20, first=5)
                await asyncio.sleep(150.0)
            for name in NAMES[3:]:
                await push(clients[name], *numbered(name, 20, first=5))
                expected += numbered(name, 20, first=5)
            await all_have(network, NAMES, expected, within=300)
            for client in clients.values():
                await client.close()

        network.run(application())


def test_the_tracker_may_be_away_and_come_again() -> None:
    with Network(seed=5) as network:
        add_overlay(network, NAMES)

        async def application() -> None:
            await open_all(network, NAMES)
            network.kill("t")
            client = await network.client("n0")
            await push(client, *numbered("without", 20))
            await all_have(network, NAMES, numbered("without", 20))
            network.restart("t")
            network.kill("n1")
            await asyncio.sleep(60.0)
            network.restart("n1")
            await push(client, *numbered("with", 20))
            await all_have(network, NAMES, numbered("without", 20) + numbered("with", 20))
            await client.close()

        network.run(application())


@pytest.mark.long
def test_nodes_come_and_go_and_nothing_is_lost_or_doubled() -> None:
    with Network(seed=6, jitter_ms=2.0) as network:
        add_overlay(network, NAMES, storage=["n0"])

        async def application() -> None:
            await open_all(network, NAMES)
            expected: list[bytes] = []
            for turn in range(12):
                victim = NAMES[1 + turn % 5]
                network.kill(victim)
                for name in NAMES:
                    if name != victim:
                        client = await network.client(name)
                        items = numbered(f"{name} {turn}", 3)
                        await push(client, *items)
                        expected += items
                        await client.close()
                await asyncio.sleep(3.0)
                network.restart(victim)
                await asyncio.sleep(2.0)
            await all_have(network, NAMES, expected, within=300)

        network.run(application())


def test_a_run_with_an_overlay_repeats_itself() -> None:
    def run() -> str:
        with Network(seed=9, jitter_ms=3.0) as network:
            add_overlay(network, NAMES[:4])

            async def application() -> None:
                await open_all(network, NAMES[:4])
                client = await network.client("n0")
                await push(client, *numbered("n0", 10))
                await all_have(network, NAMES[:4], numbered("n0", 10))
                await client.close()

            network.run(application())
            return network.trace_hash

    assert run() == run()


def test_removing_a_stream_at_one_node_leaves_the_others_theirs() -> None:
    with Network(seed=2) as network:
        add_overlay(network, ["a", "b", "c"])

        async def application() -> None:
            await open_all(network, ["a", "b", "c"])
            client = await network.client("a")
            await push(client, *numbered("a", 5))
            await all_have(network, ["a", "b", "c"], numbered("a", 5))
            await client.remove(STREAM)
            await asyncio.sleep(5.0)
            other = await network.client("b")
            await push(other, *numbered("b", 5))
            await all_have(network, ["b", "c"], numbered("a", 5) + numbered("b", 5))
            assert await entries(client) in ([], numbered("a", 5) + numbered("b", 5))
            await client.close()
            await other.close()

        network.run(application())


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 2))])
def test_bursts_over_ways_of_changing_length_stay_whole_and_in_order(seed: int) -> None:
    with Network(seed=seed, latency_ms=20.0, jitter_ms=60.0, loss=0.02) as network:
        add_overlay(network, NAMES, degree=2)

        async def application() -> None:
            for name in NAMES:
                client = await network.client(name)
                await client.stream(STREAM)
                await client.close()
            await asyncio.sleep(3.0)
            expected: list[bytes] = []
            for name in NAMES[:3]:
                client = await network.client(name)
                for number in range(10):
                    await push(client, *numbered(f"{name}", 5, first=5 * number))
                await client.close()
                expected += numbered(name, 50)
            found = await all_have(network, NAMES, expected, within=300)
            for has in found.values():
                for name in NAMES[:3]:
                    own = [one for one in has if one.startswith(name.encode())]
                    assert own == numbered(name, 50)

        network.run(application())
