"""Tests what a connection hands on while workers have not handled what came before."""

import asyncio
from functools import partial

from channel_support import FakeLink, House, connection, frame
from rillnode.actors.core.delivery import Delivery
from rillnode.actors.core.links.connection import (
    OVERDUE_SLICES_MAX,
    SLICE_FRAMES,
    UNHANDLED_SECONDS,
    ConnectionEvents,
)
from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker


class Slow(Worker):
    """Is done with what it gets when its test says so."""

    interleaves = True

    def __init__(self, kept: list[tuple[Delivery, asyncio.Event]]) -> None:
        self._kept = kept

    async def handle(self, message: Delivery, sender: Cell | None) -> None:
        done = asyncio.Event()
        self._kept.append((message, done))
        await done.wait()


class Bench:
    """A link, a worker that is slow, and one that answers at once."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.link = FakeLink()
        self.events: ConnectionEvents = connection(house, self.link)
        self.kept: list[tuple[Delivery, asyncio.Event]] = []
        self.slow: Cell = house.core.system.spawn(partial(Slow, self.kept))
        house.core.router.register(b"slow", self.slow)

    async def receive(self, *onward: str) -> None:
        self.events.messages_received([frame(one, b"text") for one in onward])
        await self.house.core.settle()

    async def wait(self, seconds: float) -> None:
        self.house.core.clock.advance(seconds)
        await self.house.core.settle()

    @property
    def handed_on(self) -> int:
        return sum(len(delivery.messages) for delivery, _ in self.kept)


async def test_a_slow_worker_keeps_its_back_pressure(house: House) -> None:
    """What it had for a second was forgotten, and it was handed more and more."""
    bench = Bench(house)
    await bench.receive(*["slow"] * 20 * SLICE_FRAMES)
    assert bench.handed_on == SLICE_FRAMES
    assert bench.link.paused
    for late in range(1, OVERDUE_SLICES_MAX):
        await bench.wait(UNHANDLED_SECONDS)
        assert bench.handed_on == (late + 1) * SLICE_FRAMES
    for _ in range(60):
        await bench.wait(UNHANDLED_SECONDS)
    assert bench.handed_on == OVERDUE_SLICES_MAX * SLICE_FRAMES
    assert bench.link.paused
    # Any of them makes room for one more; and nothing is waited for that is done.
    bench.kept[3][1].set()
    await bench.wait(UNHANDLED_SECONDS)
    assert bench.handed_on == (OVERDUE_SLICES_MAX + 1) * SLICE_FRAMES
    while bench.handed_on < 20 * SLICE_FRAMES:
        for _, done in bench.kept:
            done.set()
        await bench.wait(0.01)
    for _, done in bench.kept:
        done.set()
    await bench.wait(0.01)
    assert not bench.link.paused


async def test_others_wait_for_a_slow_worker_once(house: House) -> None:
    """It may wait itself, for an answer that comes over the same link."""
    bench = Bench(house)
    await bench.receive("slow", *["echo"] * 10 * SLICE_FRAMES)
    assert len(bench.link.frames) == SLICE_FRAMES - 1
    await bench.wait(UNHANDLED_SECONDS)
    assert len(bench.link.frames) == 10 * SLICE_FRAMES
    assert not bench.link.paused
    await bench.receive(*["echo"] * SLICE_FRAMES)
    assert len(bench.link.frames) == 11 * SLICE_FRAMES


async def test_a_worker_that_ends_is_not_waited_for(house: House) -> None:
    bench = Bench(house)
    core = house.core
    bench.events.messages_received([frame("slow", b"text")] * 3 * SLICE_FRAMES)
    core.system.exit(bench.slow)
    await core.settle()
    assert not bench.link.paused
    await bench.receive(*["slow"] * 3 * SLICE_FRAMES, "echo")
    assert len(bench.link.frames) == 1


async def test_a_link_is_read_until_eight_mebibytes_of_it_wait(house: House) -> None:
    """Not until so many messages do: small ones come one by one, and are handled together."""
    bench = Bench(house)
    small, large = frame("quick", b"text"), frame("quick", bytes(1_048_576))
    for _ in range(1_000):
        bench.events.messages_received([small])
    assert not bench.link.paused
    for _ in range(9):
        bench.events.messages_received([large])
    assert bench.link.paused
    await house.core.settle()
    assert not bench.link.paused
