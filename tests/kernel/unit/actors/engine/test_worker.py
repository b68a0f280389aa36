from functools import partial
from typing import Any

import pytest

from actor_support import Echo, Probe, run, tell
from link_support import ManualClock
from rillnode.actors.engine.system import AsyncioSystemBase, Cell
from rillnode.actors.engine.worker import Worker


def test_a_worker_knows_its_system_and_address_from_its_start_on() -> None:
    known = list[Any]()

    class Curious(Worker):
        def started(self) -> None:
            known.append((self.system, self.address))

        def handle(self, message: Any, sender: Any) -> None:
            pass

    async def test(base: AsyncioSystemBase, _: ManualClock) -> tuple[AsyncioSystemBase, Cell]:
        cell = base.spawn(Curious)
        await base.drain()
        return base, cell

    assert run(test) == known[0]


async def test_a_workers_messages_carry_its_address(base: AsyncioSystemBase) -> None:
    notes = list[Any]()
    probe, echo = base.spawn(partial(Probe, notes)), base.spawn(Echo)
    tell(base, probe, lambda actor, _: actor.send(echo, "to and fro"))
    await base.drain()
    assert notes[1:] == ["to and fro"]


def test_a_worker_that_handles_nothing_is_not_made() -> None:
    class Idle(Worker):
        pass

    with pytest.raises(TypeError, match="handle"):
        Idle()  # type: ignore[abstract]  # pyright: ignore[reportAbstractUsage]


def test_a_worker_outside_a_system_has_no_address() -> None:
    with pytest.raises(AttributeError):
        _ = Echo().address
