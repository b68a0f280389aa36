"""Time: timers, idle instances, restarts long ago, and work that does not end.

For engines whose clock stands still unless it is told to go on.
"""

import asyncio
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar, Final

from thespian.actors import Actor, WakeupMessage

from rillnode.actors.engine.worker import Worker
from rillnode.codecs.errors import RillnodeError
from rillnode.node.testing.contract.engines.failing import Hooked, Restarts
from rillnode.node.testing.contract.engines.parts import (
    EnginePart,
    Interleaves,
    Probe,
    boom,
    code_of,
    codes_of,
    fail,
    wait,
)

IDLE: Final = 10.0


class Sleepy(Hooked):
    """Its instance goes when it is idle, if it likes."""

    idle_seconds: ClassVar[float | None] = IDLE
    willing = True

    def may_passivate(self) -> bool:
        """Whether it likes."""
        return self.willing


class TimingContract(EnginePart):
    """Tests that what follows when a time has passed follows then, and not before."""

    # Timers ----------------------------------------------------------------------------------

    async def test_a_timer_sends_its_message_from_the_actor_itself_when_its_time_has_come(
        self,
    ) -> None:
        senders = list[Any]()

        def ring(_: Probe, sender: Any) -> None:
            senders.append(sender)

        cell = self.engine.spawn(Probe)
        self.engine.post(cell, lambda actor, _: actor.wake_after(1.5, ring))
        await self.soon()
        await self.pass_time(1.4)
        assert senders == []
        await self.pass_time(0.1)
        await self.soon()
        assert senders == [cell]

    async def test_timers_fire_in_the_order_of_their_times(self) -> None:
        notes = list[Any]()
        cell = self.engine.spawn(partial(Probe, notes))
        await self.soon()
        for seconds in (3.0, 1.0, 2.0):
            self.engine.wake_after(cell, seconds, seconds)
        await self.pass_time(5.0)
        await self.soon()
        assert notes == [1.0, 2.0, 3.0]

    async def test_a_cancelled_timer_does_not_fire_and_may_be_cancelled_again(self) -> None:
        notes = list[Any]()
        cell = self.engine.spawn(partial(Probe, notes))
        await self.soon()
        dropped, kept = (self.engine.wake_after(cell, 1.0, one) for one in ("dropped", "kept"))
        for _ in range(2):
            dropped.cancel()
        await self.pass_time(1.0)
        kept.cancel()
        await self.soon()
        assert notes == ["kept"]

    async def test_thespian_s_wakeups_carry_their_period_and_payload(self) -> None:
        notes = list[Any]()
        cell = self.engine.spawn(partial(Probe, notes))
        period = timedelta(milliseconds=250)
        self.engine.post(cell, lambda actor, _: actor.wakeupAfter(period, "payload"))
        self.engine.post(cell, lambda actor, _: actor.wakeupAfter(2))
        await self.soon()
        await self.pass_time(0.25)
        await self.soon()
        assert notes[2:] == [WakeupMessage(period, "payload")]
        await self.pass_time(1.75)
        await self.soon()
        assert notes[3:] == [WakeupMessage(2, None)]

    async def test_a_restart_drops_timers_and_what_they_have_sent(self) -> None:
        notes, over = list[Any](), asyncio.get_running_loop().create_future()

        class Waits(Restarts):
            async def handle(self, message: Any, sender: Any) -> None:  # type: ignore[override]
                self.notes.append(message)
                if callable(message):
                    await message(self)

        async def set_timers(actor: Any) -> None:
            for seconds in (1.0, 3.0):
                actor.wake_after(seconds, f"old, after {seconds}")

        async def fail_later(_: Any) -> None:
            await over
            boom()

        async def set_another(actor: Any) -> None:
            actor.wake_after(2.5, "new")

        cell = self.engine.spawn(partial(Waits, notes))
        for deed in (set_timers, fail_later, set_another):
            self.engine.post(cell, deed)
        await self.soon()
        await self.pass_time(1.0)
        over.set_result(None)
        await self.soon()
        await self.pass_time(4.0)
        await self.soon()
        assert [one for one in notes if isinstance(one, str)] == [
            "started", "stopped", "started", "new",
        ]  # fmt: skip

    async def test_an_exit_drops_timers(self) -> None:
        cell = self.engine.spawn(Probe)
        self.engine.post(cell, lambda actor, _: actor.wake_after(1.0, "never"))
        self.engine.exit(cell)
        await self.soon()
        assert cell.exited
        await self.pass_time(2.0)
        await self.soon()
        assert self.engine.dead_letters.count == 0

    async def test_a_question_ends_when_its_time_has_come_and_not_before(self) -> None:
        asked = self.ask(self.engine.spawn(Probe), "no answer", 2.0)
        await self.soon()
        await self.pass_time(1.9)
        await self.soon()
        assert not asked.done()
        await self.pass_time(0.1)
        assert await code_of(asked) == "message.timeout"

    # Failures --------------------------------------------------------------------------------

    async def test_failures_long_ago_do_not_count(self) -> None:
        cell = self.engine.spawn(Restarts)
        for _ in range(20):
            self.engine.post(cell, boom)
            await self.soon()
            await self.pass_time(Restarts.restart_window_seconds / 2)
        assert not cell.exited

    async def test_what_is_begun_while_an_instance_goes_does_not_outlive_it(self) -> None:
        ticks = list[Any]()
        for late in (False, True):
            told = list[str]()

            def note(error: RillnodeError, told: list[str] = told) -> None:
                told.append(error.code)

            async def tidy(actor: Any, late: bool = late, note: Any = note) -> None:
                try:
                    await wait(actor)
                finally:
                    if late:
                        await asyncio.sleep(0)
                    actor.wake_after(60.0, "tick")
                    actor.begin(wait(actor), note)

            class Ticks(Interleaves):
                async def handle(self, message: Any, sender: Any) -> None:
                    if message == "tick":
                        ticks.append(message)
                    else:
                        await super().handle(message, sender)

            cell = self.engine.spawn(Ticks)
            asked = self.ask(cell, tidy)
            await self.soon()
            self.engine.post(cell, fail)
            assert await code_of(asked) == "actor.failed"
            assert await self.engine.ask(cell, "hello") == "hello"
            assert len(told) == 1
            await self.pass_time(61.0)
            await self.soon()
            assert not ticks

    async def test_work_that_does_not_end_is_waited_for_five_seconds(self) -> None:
        notes = list[str]()

        class Notes(Interleaves):
            def started(self) -> None:
                notes.append("started")

        async def stubborn(_: Any) -> None:
            try:
                await wait(_)
            finally:
                await wait(_)

        for end in (self.engine.exit, partial(self.engine.post, message=fail)):
            notes.clear()
            cell = self.engine.spawn(Notes)
            self.engine.ended[cell] = lambda: notes.append("ended")
            self.engine.post(cell, stubborn)
            await self.soon()
            end(cell)
            await self.soon()
            await self.pass_time(4.9)
            await self.soon()
            assert notes == ["started"]
            await self.pass_time(0.2)
            await self.soon()
            assert notes == ["started", "ended" if cell.exited else "started"]

    async def test_what_does_not_end_when_it_is_cancelled_keeps_nobody_waiting(self) -> None:
        class Stubborn(Worker):
            async def handle(self, message: object, sender: Any) -> None:
                while True:
                    try:
                        await wait(self)
                    except asyncio.CancelledError:
                        continue

        cell = self.engine.spawn(Stubborn)
        asked = [self.ask(cell, "go") for _ in range(3)]
        await self.soon()
        ending = asyncio.ensure_future(self.engine.end_unsettled(but=()))
        assert await code_of(asked[0]) == "actor.stopped"
        await self.pass_time(5.1)
        assert await ending == [cell.name]
        assert await codes_of(asked[1:]) == ["actor.stopped"] * 2

    # Idle instances --------------------------------------------------------------------------

    async def go_idle(self) -> None:
        """Let an idle instance go, which takes one to two of its idle times."""
        await self.soon()
        await self.pass_time(2 * IDLE)
        await self.soon()

    async def test_an_idle_instance_goes_and_the_next_message_brings_another(self) -> None:
        heard, notes = list[Any](), list[Any]()
        parent = self.engine.spawn(partial(Probe, heard))
        cell = self.engine.spawn(partial(Sleepy, notes), parent=parent)
        for number in range(3):
            await self.go_idle()
            self.engine.post(cell, number)
        await self.soon()
        # `stopped` is for instances that are given up for good.
        assert notes == ["started", "started", 0, "started", 1, "started", 2]
        assert heard == [], "its parent hears nothing"

    async def test_an_instance_stays_for_its_idle_time(self) -> None:
        notes = list[Any]()
        cell = self.engine.spawn(partial(Sleepy, notes))
        await self.soon()
        for number in range(10):
            await self.pass_time(IDLE * 0.9)
            self.engine.post(cell, number)
            await self.soon()
        assert notes == ["started", *range(10)]

    async def test_a_timer_a_waiting_handler_and_a_message_keep_the_instance(self) -> None:
        notes, over = list[Any](), asyncio.get_running_loop().create_future()

        class Waits(Sleepy):
            async def handle(self, message: Any, sender: Any) -> None:  # type: ignore[override]
                self.notes.append(message)
                if message == "timer":
                    self.wake_after(5 * IDLE, "rang")
                elif message == "wait":
                    await over

        cell = self.engine.spawn(partial(Waits, notes))
        self.engine.post(cell, "timer")
        await self.soon()
        await self.pass_time(5 * IDLE)
        await self.soon()
        self.engine.post(cell, "wait")
        self.engine.post(cell, "behind")
        await self.go_idle()
        over.set_result(None)
        await self.soon()
        assert notes == ["started", "timer", "rang", "wait", "behind"]

    async def test_an_unwilling_instance_stays_and_one_whose_hook_fails_too(self) -> None:
        class Failing(Sleepy):
            def may_passivate(self) -> bool:
                boom()
                return True

        class Unwilling(Sleepy):
            willing = False

        for actor_class in (Failing, Unwilling):
            notes = list[Any]()
            cell = self.engine.spawn(partial(actor_class, notes))
            await self.go_idle()
            self.engine.post(cell, "message")
            await self.soon()
            assert notes == ["started", "message"]

    async def test_an_instance_that_came_after_failures_goes_too(self) -> None:
        for actor_class in (Sleepy, type("Restarting", (Sleepy,), {"on_failure": "restart"})):
            notes = list[Any]()
            cell = self.engine.spawn(partial(actor_class, notes))
            self.engine.post(cell, boom)
            await self.soon()
            notes.clear()
            await self.go_idle()
            self.engine.post(cell, "message")
            await self.soon()
            assert notes == ["started", "message"]

    async def test_an_actor_may_be_stopped_or_end_when_it_is_idle(self) -> None:
        class Rests(Sleepy):
            stops_when_idle = True

        class Ends(Rests):
            ends_when_idle = True

        for actor_class, exited in ((Rests, False), (Ends, True)):
            notes = list[Any]()
            cell = self.engine.spawn(partial(actor_class, notes))
            await self.go_idle()
            assert notes == ["started", "stopped"]
            assert cell.exited == exited

    async def test_an_idle_actor_ends_without_getting_an_instance(self) -> None:
        notes = list[Any]()
        cells = [self.engine.spawn(partial(Sleepy, notes)) for _ in range(2)]
        await self.go_idle()
        self.engine.exit(cells[0])
        await self.soon()
        assert cells[0].exited
        await self.engine.shutdown()
        assert cells[1].exited
        assert notes == ["started"] * 2

    async def test_plain_thespian_actors_can_have_an_idle_time(self) -> None:
        class Plain(Actor):
            idle_seconds = IDLE

            def __init__(self) -> None:
                super().__init__()
                made.append(self)

            def receiveMessage(self, msg: Any, sender: Any) -> None:
                self.send(sender, msg)

        made = list[Any]()
        cell = self.engine.spawn(Plain)
        await self.go_idle()
        assert await self.engine.ask(cell, "still there?") == "still there?"
        assert len(made) == 2
