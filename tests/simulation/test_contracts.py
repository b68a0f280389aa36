"""What is simulated keeps to the public contracts: links of its network, engines in its time."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from contract.test_links import TestNoise as Noise
from rillnode.actors.engine.system import AsyncioSystemBase
from rillnode.actors.ports import Clock
from rillnode.node.simulation.latency import ConstantLatency
from rillnode.node.simulation.loop import MachineClock, ProcessLoop, Scheduler
from rillnode.node.simulation.network import Network
from rillnode.node.simulation.scenario import NetworkTable
from rillnode.testing.contract import Engine, TimedEngineContract


class TestLinks(Noise):
    """The same on a simulated network, where time is virtual."""

    host = "n0"

    def clock(self) -> Clock:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ProcessLoop)
        return MachineClock(loop)

    def run_in_a_loop(self, test: Coroutine[Any, Any, None]) -> None:
        scheduler = Scheduler()
        network = Network(scheduler, "links", ConstantLatency(5.0), NetworkTable())
        loop = network.add_host(self.host, 0).boot()
        try:
            task = loop.create_task(test)
            scheduler.run_until(task)
            task.result()
        finally:
            loop.close()
            network.close()


class TestEngine(TimedEngineContract):
    """In a simulated process, where time is virtual."""

    seconds_max = 3_600.0

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[Engine, None]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ProcessLoop)
        base = AsyncioSystemBase(clock=MachineClock(loop))
        yield base
        await base.shutdown()

    async def pass_time(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def run_in_a_loop(self, test: Coroutine[Any, Any, None]) -> None:
        scheduler = Scheduler()
        loop = ProcessLoop(scheduler, "n0")
        try:
            task = loop.create_task(test)
            scheduler.run_until(task)
            task.result()
        finally:
            loop.close()
