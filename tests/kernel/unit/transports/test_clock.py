import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from rillnode.transports.clock import SystemClock
from rillnode.transports.memory import MemoryLink
from rillnode.transports.tcp_link import TcpLink

pytestmark = pytest.mark.usefixtures("kind_of_loop")

if TYPE_CHECKING:  # what actors declare, transports satisfy: checked by the type checkers
    from rillnode.actors import ports
    from rillnode.transports.links import LinkEvents

    def shapes(
        tcp: TcpLink, memory: MemoryLink, clock: SystemClock, events: ports.LinkEvents
    ) -> tuple[ports.Link, ports.Link, ports.Clock, LinkEvents]:
        return tcp, memory, clock, events


async def test_times_are_those_of_the_machine_and_the_loop() -> None:
    clock = SystemClock(asyncio.get_running_loop())
    assert abs(clock.now_ms() - time.time() * 1_000) < 1_000
    assert abs(clock.monotonic() - asyncio.get_running_loop().time()) < 1.0


def test_a_timer_fires_unless_cancelled() -> None:
    async def main() -> list[str]:
        clock = SystemClock(asyncio.get_running_loop())
        fired = list[str]()
        done = asyncio.Event()
        clock.call_later(0.0, lambda: fired.append("dropped")).cancel()
        clock.call_later(0.0, lambda: fired.append("kept"))
        clock.call_later(0.001, done.set)
        await done.wait()
        return fired

    assert asyncio.run(main()) == ["kept"]
