"""Helps tests of the actor system: a system whose time stands still."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from thespian.actors import ActorAddress

from link_support import ManualClock
from rillnode.actors.engine.system import AsyncioSystemBase
from rillnode.node.testing.contract.engines.parts import Probe

T = TypeVar("T")

Deed = Callable[[Probe, Any], object]


def tell(base: AsyncioSystemBase, target: ActorAddress, deed: Deed) -> None:
    """Have a probe do something."""
    base.post(target, deed)


def run(test: Callable[[AsyncioSystemBase, ManualClock], Awaitable[T]], **options: Any) -> T:
    """Run a test with a system whose time stands still, then shut the system down."""

    async def main() -> T:
        clock = ManualClock()
        base = AsyncioSystemBase(clock=clock, **options)
        async with asyncio.timeout(120.0):
            result = await test(base, clock)
            await base.shutdown()
        return result

    return asyncio.run(main())
