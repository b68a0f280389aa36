"""An order service on two nodes, a mistake that only a kill shows, and the service without it.

    rillnode sim run examples/order_service.py:scenario --seeds 0..99
    rillnode sim run examples/order_service.py:mended --seeds 0..99

Customers order at the shop, which passes orders on to the warehouse. That sells what it has, and
keeps what it has sold in a stream: so it knows what is left when it starts again.
"""

import asyncio

import rillnode
from rillnode.testing import Network

ITEMS = 100
CUSTOMERS = 3


class Warehouse(rillnode.Actor):
    """Sells each order one item, once, however often it is asked."""

    async def started(self, ctx: rillnode.Context) -> None:
        """Learn from the stream what was sold before."""
        self.stream: rillnode.Stream = await ctx.node.stream("sold")
        self.sold = {bytes(entry.data) for entry in await self.stream.pull(limit=ITEMS)}

    async def receive(self, message: rillnode.Message, ctx: rillnode.Context) -> bytes:
        """Sell, unless nothing is left."""
        order = message.payload
        if order not in self.sold:
            if len(self.sold) == ITEMS:
                raise rillnode.ActorReply("warehouse.empty", "everything is sold")
            self.sold.add(order)
            await self.keep(order)
        return b"sold"

    async def keep(self, order: bytes) -> None:
        """Note a sale in the stream. The mistake: it is not waited for until that is durable."""
        self.stream.push_nowait(order)


class MendedWarehouse(Warehouse):
    """Says that something is sold when a kill cannot undo it any more."""

    async def keep(self, order: bytes) -> None:
        """Note a sale in the stream, and wait until it is durable."""
        await self.stream.push(order)


async def shop(message: rillnode.Message, ctx: rillnode.Context) -> None:
    """Pass an order on; the warehouse's answer goes to the customer."""
    ctx.forward("peer/warehouse;orders")


async def customer(network: Network, name: str, told: list[bytes]) -> None:
    """Order thirty times; ask again until there is an answer, as people do."""
    async with await network.client("shop") as client:
        for number in range(30):
            order = f"{name} {number}".encode()
            while order not in told:
                try:
                    await client.ask("shop", order, timeout_seconds=2.0)
                    told.append(order)
                except rillnode.RillnodeError:
                    await asyncio.sleep(0.5)
            await asyncio.sleep(0.7)


async def evening(network: Network, warehouse: type[Warehouse]) -> None:
    """Three customers, and six faults within thirty seconds."""
    await network.node("warehouse", actors={"orders": warehouse})
    await network.node("shop", peers=["warehouse"], actors={"shop": shop})
    told: list[bytes] = []
    network.always(lambda: len(told) <= ITEMS)
    async with network.faults("kill", "disk_slow", "partition", count=6):
        names = [f"customer-{number}" for number in range(CUSTOMERS)]
        programs = [network.start(name, customer, network, name, told) for name in names]
        for program in programs:
            await program.wait()
    async with await network.client("warehouse") as client:
        stream = await client.stream("sold")
        kept = [bytes(entry.data) for entry in await stream.pull(limit=1_000)]
    lost = sorted({*told} - {*kept})
    assert not lost, f"sold, and forgotten: {lost}"
    assert len(kept) == len({*kept}), "sold twice"


async def scenario(network: Network) -> None:
    """The service with its mistake."""
    await evening(network, Warehouse)


async def mended(network: Network) -> None:
    """The service without it."""
    await evening(network, MendedWarehouse)
