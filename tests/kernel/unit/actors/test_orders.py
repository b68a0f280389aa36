import asyncio
from typing import Any

from actor_support import run
from link_support import ManualClock
from rillnode.actors.core.orders import Orders
from rillnode.actors.engine.system import AsyncioSystemBase
from rillnode.actors.engine.worker import Worker


async def soon(base: AsyncioSystemBase) -> None:
    for _ in range(5):
        await asyncio.sleep(0)
        await base.drain()


def test_order_is_kept_for_each_key() -> None:
    class Ordered(Worker):
        interleaves = True

        def __init__(self) -> None:
            self.orders = Orders()

        async def handle(self, message: tuple[str, Any], sender: Any) -> None:
            key, future = message
            async with self.orders.of(key):
                notes.append(f"{key} begins")
                await future
                notes.append(f"{key} ends")

    notes = list[str]()

    async def test(base: AsyncioSystemBase, _: ManualClock) -> None:
        loop = asyncio.get_running_loop()
        cell = base.spawn(Ordered)
        first, second, other = (loop.create_future() for _ in range(3))
        second.set_result(None)
        other.set_result(None)
        for key, future in (("a", first), ("a", second), ("b", other)):
            base.post(cell, (key, future))
        await soon(base)
        assert notes == ["a begins", "b begins", "b ends"]
        first.set_result(None)
        await soon(base)
        assert notes[3:] == ["a ends", "a begins", "a ends"]
        instance: Any = cell.instance
        assert not instance.orders

    run(test)
