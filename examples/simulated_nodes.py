"""An application's own test, on nodes that are simulated: an hour of trouble in a second.

    python -m pytest examples/simulated_nodes.py

`--rillnode-seed N` runs it with another seed.
"""

import asyncio

from rillnode.testing import Network

SITES = ("north", "south")
READINGS = 60


async def measure(network: Network, site: str) -> None:
    """The application, first part: every site notes a reading each minute."""
    async with await network.client(site) as client:
        stream = await client.stream("readings")
        for number in range(READINGS):
            stream.push_nowait(f"{site} {number}".encode())
            await asyncio.sleep(60.0)


async def collect(network: Network, site: str) -> None:
    """The application, second part: bring what a site has to the centre."""
    async with await network.client(site) as source, await network.client("centre") as target:
        stream = await target.stream("all-readings")
        readings = await source.stream("readings")
        async with readings.consumer("collector") as entries:
            async for entry in entries:
                await stream.push(bytes(entry.data))


def test_every_reading_reaches_the_centre(rillnode_network: Network) -> None:
    """Whatever fails meanwhile, the centre has each site's readings in their order."""
    network = rillnode_network
    for name in (*SITES, "centre"):
        network.add_node(name)

    async def an_hour() -> list[str]:
        for site in SITES:
            network.start(f"sensor-{site}", measure, network, site)
            network.start(f"collector-{site}", collect, network, site)
        await asyncio.sleep(600.0)
        network.cut_power("centre")
        await asyncio.sleep(300.0)
        network.restart("centre")
        with network.partition("north", "sensor-north"):
            await asyncio.sleep(900.0)
        network.kill("collector-south")
        network.restart("collector-south")
        await asyncio.sleep(2_400.0)
        async with await network.client("centre") as client:
            stream = await client.stream("all-readings")
            return [bytes(entry.data).decode() for entry in await stream.pull(limit=1_000)]

    found = network.run(an_hour())
    for site in SITES:
        # A collector that dies before it saved its position pushes again.
        once = list(dict.fromkeys(one for one in found if one.startswith(site)))
        assert once == [f"{site} {number}" for number in range(READINGS)]
