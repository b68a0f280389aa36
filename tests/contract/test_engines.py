"""The engine keeps to its contract: on each loop, by each clock."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from link_support import ManualClock
from rillnode.actors.engine.system import AsyncioSystemBase
from rillnode.testing.contract import Engine, EngineContract, TimedEngineContract


class TestByTheLoopsClock(EngineContract):
    @asynccontextmanager
    async def running(self) -> AsyncGenerator[Engine, None]:
        base = AsyncioSystemBase()
        yield base
        await base.shutdown()

    async def pass_time(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class TestByAClockMovedByHand(TimedEngineContract):
    """Time as the tests of actors have it."""

    clock: ManualClock

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[Engine, None]:
        self.clock = ManualClock()
        base = AsyncioSystemBase(clock=self.clock)
        yield base
        await base.shutdown()

    async def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)


@pytest.mark.long
class TestOnUvloop(TestByAClockMovedByHand):
    def run_in_a_loop(self, test: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(test)
