"""Micro benchmarks of the actor system: `python -m benchmarks.actors`.

Rates are the best of some rounds, for each second of processor time, so that neighbours on a
shared machine disturb them least. Thespian's own simplest base is measured in the same run.
"""

import asyncio
import gc
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from rich.console import Console
from rich.table import Table
from thespian.actors import Actor, ActorAddress, ActorSystem

from rillnode.actors.engine.system import AsyncioSystemBase, Cell
from rillnode.actors.engine.worker import Worker

ROUNDS = 7
PINGS = 50_000
FANS = 100
ASKS = 5_000
CROSSINGS = 50_000
CELLS = 100_000
IDLE_SECONDS = 10.0


class _Latch:
    """Counts down to an event."""

    def __init__(self, count: int) -> None:
        self.reached = asyncio.Event()
        self._left = count

    def count_down(self) -> None:
        self._left -= 1
        if not self._left:
            self.reached.set()


class _ThespianPing(Actor):
    """Returns a number to its sender, less one, until it is 0."""

    def __init__(self, latch: _Latch) -> None:
        super().__init__()
        self._latch = latch

    def receiveMessage(self, msg: Any, sender: Any) -> None:
        if isinstance(msg, int):
            if msg:
                self.send(sender, msg - 1)
            else:
                self._latch.count_down()


class _Ping(Worker):
    """The same as a Worker."""

    def __init__(self, latch: _Latch) -> None:
        self._latch = latch

    def handle(self, message: Any, sender: Any) -> None:
        if isinstance(message, int) and message:
            self.send(sender, message - 1)
        else:
            self._latch.count_down()


class _Echo(Worker):
    """Answers with what it is asked."""

    def handle(self, message: Any, sender: Any) -> None:
        self.send(sender, message)


class _Spread(Worker):
    """Sends a number to each of its targets, counts their answers."""

    def __init__(self, targets: list[Cell], latch: _Latch) -> None:
        self._targets = targets
        self._latch = latch

    def handle(self, message: Any, sender: Any) -> None:
        if sender is not None:
            self._latch.count_down()
            return
        for target in self._targets:
            self.send(target, message)


class _Count(Worker):
    """Counts what it gets."""

    mailbox_messages_max = CROSSINGS

    def __init__(self, latch: _Latch) -> None:
        self._latch = latch

    def handle(self, message: Any, sender: Any) -> None:
        self._latch.count_down()


class _Idle(Worker):
    """An actor that goes when it is idle; its state is one reference to something shared."""

    idle_seconds = IDLE_SECONDS

    def __init__(self, context: object, record: object) -> None:
        self._context = context
        self._record = record

    def handle(self, message: Any, sender: Any) -> None:
        pass


class _HandClock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self._now = 0.0
        self._timers: list[tuple[float, Callable[[], object]]] = []

    def monotonic(self) -> float:
        return self._now

    def call_later(self, seconds: float, callback: Callable[[], object]) -> "_HandClock":
        self._timers.append((self._now + seconds, callback))
        return self

    def cancel(self) -> None:
        """No timer of this benchmark is cancelled."""

    def advance(self, seconds: float) -> None:
        self._now += seconds
        due = [callback for at, callback in self._timers if at <= self._now]
        self._timers = [timer for timer in self._timers if timer[0] > self._now]
        for callback in due:
            callback()


async def _ping_pong(base: AsyncioSystemBase, kind: Callable[[_Latch], Actor]) -> int:
    latch = _Latch(1)
    one, other = (base.spawn(partial(kind, latch)) for _ in range(2))
    base.post(one, PINGS, other)
    await latch.reached.wait()
    return PINGS


async def _fan(base: AsyncioSystemBase) -> int:
    latch = _Latch(FANS * FANS)
    targets = [base.spawn(_Echo) for _ in range(FANS)]
    spread = base.spawn(partial(_Spread, targets, latch))
    for number in range(FANS):
        base.post(spread, number)
    await latch.reached.wait()
    return 2 * FANS * FANS


async def _ask(base: AsyncioSystemBase) -> int:
    echo = base.spawn(_Echo)
    for number in range(ASKS):
        await base.ask(echo, number, 5.0)
    return ASKS


async def _cross(base: AsyncioSystemBase) -> int:
    latch = _Latch(CROSSINGS)
    count = base.spawn(partial(_Count, latch))
    deliveries = [(count, number) for number in range(1_000)]

    def post() -> None:
        for _ in range(CROSSINGS // len(deliveries)):
            base.post_threadsafe(deliveries)

    await asyncio.to_thread(post)
    await latch.reached.wait()
    return CROSSINGS


async def _spawn(base: AsyncioSystemBase) -> int:
    for _ in range(10_000):
        base.spawn(partial(_Idle, base, None))
    await base.drain()
    return 10_000


async def _rate(case: Callable[[AsyncioSystemBase], Awaitable[int]]) -> float:
    best = 0.0
    for _ in range(ROUNDS):
        base = AsyncioSystemBase()
        gc.collect()
        start = time.process_time()
        done = await case(base)
        best = max(best, done / (time.process_time() - start))
        await base.shutdown()
    return best


class _SimplePing(Actor):
    """Ping-pong as Thespian's simplest base can do it."""

    def receiveMessage(self, msg: Any, sender: Any) -> None:
        if isinstance(msg, ActorAddress):
            self._other = msg
        elif isinstance(msg, int) and msg:
            self.send(self._other, msg - 1)


def _simple_ping_pong() -> float:
    system = ActorSystem("simpleSystemBase", logDefs=False, transientUnique=True)
    one, other = system.createActor(_SimplePing), system.createActor(_SimplePing)
    system.tell(one, other)
    system.tell(other, one)
    best = 0.0
    for _ in range(ROUNDS):
        start = time.process_time()
        system.tell(one, PINGS)
        best = max(best, PINGS / (time.process_time() - start))
    system.shutdown()
    return best


async def _cell_bytes() -> tuple[float, float]:
    """Bytes of a passivated cell, in all and without the factory that it is given."""
    clock = _HandClock()
    base = AsyncioSystemBase(clock=clock)
    parent = base.spawn(_Echo)
    cells: list[Cell | None] = [None] * CELLS
    factories = [partial(_Idle, base, parent) for _ in range(CELLS)]
    gc.collect()
    tracemalloc.start()
    for index, factory in enumerate(factories):
        cells[index] = base.spawn(factory, parent=parent)
    await base.drain()
    while any(stats.instances > 1 for stats in base.stats().values()):
        clock.advance(IDLE_SECONDS)
    gc.collect()
    bare = tracemalloc.get_traced_memory()[0] / CELLS
    tracemalloc.clear_traces()
    kept = [partial(_Idle, base, parent) for _ in range(CELLS)]
    factory_bytes = tracemalloc.get_traced_memory()[0] / len(kept)
    tracemalloc.stop()
    return bare + factory_bytes, bare


async def main() -> None:
    """Measure all and print a table."""
    table = Table("case", "rate or size", title="Actor system")
    cases: dict[str, Callable[[AsyncioSystemBase], Awaitable[int]]] = {
        "ping-pong, Worker": partial(_ping_pong, kind=_Ping),
        "ping-pong, Thespian Actor": partial(_ping_pong, kind=_ThespianPing),
        "fan-out and in, 100 x 100": _fan,
        "ask round trips": _ask,
        "from another thread, 1,000 at a time": _cross,
        "spawn": _spawn,
    }
    for name, case in cases.items():
        table.add_row(name, f"{await _rate(case):,.0f} /s")
    total, bare = await _cell_bytes()
    size = f"{bare:,.0f} B, with its factory {total:,.0f} B"
    table.add_row(f"passivated cell, one of {CELLS:,}", size)
    simple = await asyncio.to_thread(_simple_ping_pong)
    table.add_row("ping-pong, Thespian's simpleSystemBase", f"{simple:,.0f} /s")
    Console().print(table)


if __name__ == "__main__":
    asyncio.run(main())
