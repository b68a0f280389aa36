from datetime import timedelta
from functools import partial
from typing import Any

from thespian.actors import WakeupMessage

from actor_support import Probe, tell
from link_support import ManualClock
from rillnode.actors.engine.system import AsyncioSystemBase


async def test_a_timer_sends_its_message_from_the_actor_itself_on_the_given_clock(
    base: AsyncioSystemBase, clock: ManualClock
) -> None:
    notes, senders = list[Any](), list[Any]()
    cell = base.spawn(partial(Probe, notes))

    def ring(actor: Probe, sender: Any) -> None:
        senders.append(sender)

    tell(base, cell, lambda actor, _: actor.wake_after(1.5, ring))
    await base.drain()
    clock.advance(1.4)
    await base.drain()
    assert senders == []
    clock.advance(0.1)
    await base.drain()
    assert senders == [cell]
    assert cell.owned is None


async def test_timers_fire_in_the_order_of_their_times(
    base: AsyncioSystemBase, clock: ManualClock
) -> None:
    notes = list[Any]()
    cell = base.spawn(partial(Probe, notes))
    await base.drain()
    for seconds in (3.0, 1.0, 2.0):
        base.wake_after(cell, seconds, seconds)
    clock.advance(5.0)
    await base.drain()
    assert notes == [1.0, 2.0, 3.0]


async def test_a_cancelled_timer_does_not_fire_and_may_be_cancelled_again(
    base: AsyncioSystemBase, clock: ManualClock
) -> None:
    notes = list[Any]()
    cell = base.spawn(partial(Probe, notes))
    await base.drain()
    dropped, kept = base.wake_after(cell, 1.0, "dropped"), base.wake_after(cell, 1.0, "kept")
    dropped.cancel()
    dropped.cancel()
    clock.advance(1.0)
    kept.cancel()
    await base.drain()
    assert notes == ["kept"]
    assert cell.owned is None


async def test_thespians_wakeups_carry_their_period_and_payload(
    base: AsyncioSystemBase, clock: ManualClock
) -> None:
    notes = list[Any]()
    cell = base.spawn(partial(Probe, notes))
    period = timedelta(milliseconds=250)
    tell(base, cell, lambda actor, _: actor.wakeupAfter(period, "payload"))
    tell(base, cell, lambda actor, _: actor.wakeupAfter(2))
    await base.drain()
    clock.advance(0.25)
    await base.drain()
    assert notes[2:] == [WakeupMessage(period, "payload")]
    clock.advance(1.75)
    await base.drain()
    assert notes[3:] == [WakeupMessage(2, None)]
