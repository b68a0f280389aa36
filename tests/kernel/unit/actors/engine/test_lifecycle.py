import asyncio
from functools import partial
from typing import Any

from thespian.actors import Actor

from actor_support import tell
from link_support import ManualClock
from rillnode.actors.engine.cell import GONE
from rillnode.actors.engine.kinds import UNKNOWN
from rillnode.actors.engine.system import AsyncioSystemBase
from rillnode.node.testing.contract.engines.failing import Hooked
from rillnode.node.testing.contract.engines.parts import Probe


async def test_an_actor_that_exits_is_told_and_lets_go_of_all(
    base: AsyncioSystemBase, clock: ManualClock
) -> None:
    notes = list[Any]()
    cell = base.spawn(partial(Hooked, notes))
    tell(base, cell, lambda actor, _: actor.wake_after(1.0, "never"))
    base.exit(cell)
    await base.drain()
    assert notes[0::2] == ["started", "stopped"]
    assert cell.mailbox is GONE
    assert cell.instance is None
    assert cell.factory is Actor
    assert clock.timers == 0
    clock.advance(2.0)
    assert base.dead_letters.count == 0


async def test_an_actor_without_an_instance_ends_without_getting_one(
    base: AsyncioSystemBase,
) -> None:
    made = list[Probe]()

    def make() -> Probe:
        made.append(Probe())
        raise ValueError

    cell = base.spawn(make)
    await base.drain()
    tried = len(made)
    base.exit(cell)
    await base.drain()
    assert cell.mailbox is GONE
    assert len(made) == tried


async def test_a_cell_knows_its_class_before_or_after_it_has_an_instance(
    base: AsyncioSystemBase,
) -> None:
    told = base.spawn(partial(Probe, []))
    untold = base.spawn(lambda: Probe())
    assert told.kind.name == f"{Probe.__module__}.Probe"
    assert untold.kind.name == UNKNOWN
    assert base.stats()[UNKNOWN].cells == 1
    await base.drain()
    assert untold.kind is told.kind
    assert told.kind.cells == 2
    assert UNKNOWN not in base.stats()


async def test_names_are_given_or_made_up_and_differ(base: AsyncioSystemBase) -> None:
    given = base.spawn(Probe, name="sensors/0")
    one, other = base.spawn(Probe), base.spawn(Probe)
    assert given.name == given.actorAddressString == given.addressDetails == "sensors/0"
    assert str(given) == "ActorAddr-sensors/0"
    assert repr(given) == "<Cell sensors/0>"
    assert one.name != other.name
    assert one.name.startswith("Probe-")
    assert given.globalName is None


async def test_cells_are_equal_only_to_themselves_and_can_be_keys(base: AsyncioSystemBase) -> None:
    one, other = base.spawn(Probe, name="same"), base.spawn(Probe, name="same")
    same = one
    assert one == same
    assert one != other
    assert one != "same"
    assert {one: 1, other: 2}[one] == 1


async def test_what_makes_an_instance_is_let_go_of_when_there_will_be_no_other(
    base: AsyncioSystemBase,
) -> None:
    class Stopped(Probe):
        on_failure = "stop"

    class Restarted(Probe):
        on_failure = "restart"

    class Idle(Probe):
        on_failure = "resume"
        idle_seconds = 60.0

    class Begins(Stopped):
        async def started(self) -> None:
            await begun

    notes, begun = list[Any](), asyncio.get_running_loop().create_future()
    classes = (Stopped, Begins, Restarted, Idle)
    last, begins, *others = (base.spawn(partial(one, notes)) for one in classes)
    await base.drain()
    assert last.factory is Actor
    assert begins.factory is not Actor, "it may fail yet, and another be made"
    begun.set_result(None)
    await asyncio.sleep(0)
    await base.drain()
    assert begins.factory is Actor
    assert all(isinstance(one.factory, partial) for one in others)
    base.post(last, "message")
    await base.drain()
    assert notes == ["message"]
