"""An application of Thespian's, moved onto a node: not a line of its actors is another one.

    python examples/thespian_app.py              by itself, on one of Thespian's own bases
    python examples/thespian_app.py DIRECTORY    behind an address of a node, asked by a client

Shelves are children of the warehouse, which it makes when something is first put on them. What is
reserved and not fetched in time is put back by a timer.
"""

import asyncio
import sys
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
from thespian.actors import Actor, ActorSystem, ActorTypeDispatcher, WakeupMessage

import rillnode

RESERVED_SECONDS = 0.2


@dataclass
class Order:
    """An order: to `put`, `take` or `reserve` so many of an item."""

    verb: str
    item: str
    number: int = 0


@dataclass
class Passed:
    """An order on its way to a shelf, with whom the shelf is to answer."""

    order: Order
    asker: Any


class Shelf(Actor):
    """Has the pieces of one item."""

    pieces = 0

    def receiveMessage(self, msg: Any, sender: Any) -> None:
        """Take an order, or put back what nobody has fetched."""
        if isinstance(msg, WakeupMessage):
            self.pieces += msg.payload
        elif isinstance(msg, Passed):
            order = msg.order
            if order.verb == "put":
                self.pieces += order.number
                self.send(msg.asker, {"pieces": self.pieces})
                return
            given = min(order.number, self.pieces)
            self.pieces -= given
            if order.verb == "reserve":
                self.wakeupAfter(timedelta(seconds=RESERVED_SECONDS), payload=given)
            self.send(msg.asker, {"given": given})


class Warehouse(ActorTypeDispatcher):
    """Hands each order on to the item's shelf, which answers whoever has sent it."""

    def receiveMsg_Order(self, order: Order, sender: Any) -> None:
        """Find the shelf, or make it."""
        shelves = self.__dict__.setdefault("shelves", {})
        if order.item not in shelves:
            shelves[order.item] = self.createActor(Shelf)
        self.send(shelves[order.item], Passed(order, sender))


ORDERS = (Order("put", "tea", 5), Order("reserve", "tea", 2), Order("take", "tea", 9))
LAST = Order("put", "tea")  # nothing, to see what is there


def by_itself() -> list[Any]:
    """As the application was: a system of Thespian's, asked with objects."""
    system = ActorSystem("simpleSystemBase", transientUnique=True)
    try:
        warehouse = system.createActor(Warehouse)
        answers = [system.ask(warehouse, order, 1.0) for order in ORDERS]
        system.listen(2 * RESERVED_SECONDS)  # this base runs its timers while somebody waits
        return [*answers, system.ask(warehouse, LAST, 1.0)]
    finally:
        system.shutdown()


async def on_a_node(directory: Path) -> list[Any]:
    """As it is now: payloads are JSON, and whoever may send to the address asks with those."""
    async with rillnode.Node(rillnode.Config.embedded(directory)) as node:
        read, write = msgspec.json.Decoder(Order).decode, msgspec.json.encode
        await node.spawn(Warehouse, address="warehouse", decode=read, encode=write)

        async def ask(order: Order) -> Any:
            return msgspec.json.decode((await node.client.ask("warehouse", write(order))).payload)

        answers = [await ask(order) for order in ORDERS]
        await asyncio.sleep(2 * RESERVED_SECONDS)
        return [*answers, await ask(LAST)]


if __name__ == "__main__":
    found = asyncio.run(on_a_node(Path(sys.argv[1]))) if sys.argv[1:] else by_itself()
    print(*found, sep="\n")
