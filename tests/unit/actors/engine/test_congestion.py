import asyncio
from functools import partial
from typing import Any

import pytest

from actor_support import Probe, run, tell
from link_support import ManualClock
from rillnode.actors.engine.cell import Cell
from rillnode.actors.engine.congestion import Congested, Relieved
from rillnode.actors.engine.system import AsyncioSystemBase
from rillnode.codecs.errors import ActorError


class Narrow(Probe):
    mailbox_messages_max = 10


def burst(target: Cell, count: int) -> Any:
    def send(actor: Probe, _: Any) -> None:
        for number in range(count):
            actor.send(target, number)

    return send


def test_a_sender_hears_once_of_congestion_and_once_of_relief_and_nothing_is_lost() -> None:
    async def test(base: AsyncioSystemBase, _: ManualClock) -> None:
        got, heard = list[Any](), list[Any]()
        target = base.spawn(partial(Narrow, got))
        sender = base.spawn(partial(Probe, heard))
        await base.drain()
        base.post(sender, burst(target, 30))
        await base.drain()
        assert got == list(range(30))
        assert heard[1:] == [Congested(target), Relieved(target)]
        base.post(sender, burst(target, 30))
        await base.drain()
        assert heard[4:] == [Congested(target), Relieved(target)]

    run(test)


def test_nobody_hears_anything_up_to_the_bound() -> None:
    async def test(base: AsyncioSystemBase, _: ManualClock) -> None:
        heard = list[Any]()
        target = base.spawn(Narrow)
        sender = base.spawn(partial(Probe, heard))
        await base.drain()
        base.post(sender, burst(target, 10))
        await base.drain()
        assert len(heard) == 1

    run(test)


def test_relief_comes_at_half_the_bound() -> None:
    async def test(base: AsyncioSystemBase, clock: ManualClock) -> None:
        depths = list[int]()

        def slow(*_: Any) -> None:
            clock.now += 1.0

        target = base.spawn(Narrow)

        class Sender(Probe):
            def handle(self, message: Any, sender: Any) -> None:
                if isinstance(message, Relieved):
                    depths.append(len(target.mailbox))
                super().handle(message, sender)

        sender = base.spawn(Sender)
        await base.drain()
        for _ in range(20):
            base.post(target, slow, sender)
        await base.drain()
        assert depths == [4], "relieved at 5 left, of which one was handled before the news"

    run(test)


def test_posts_of_nobody_are_kept_over_the_bound_too(caplog: pytest.LogCaptureFixture) -> None:
    async def test(base: AsyncioSystemBase, _: ManualClock) -> None:
        got = list[Any]()
        target = base.spawn(partial(Narrow, got))
        await base.drain()
        for number in range(100):
            base.post(target, number)
        await base.drain()
        assert got == list(range(100))
        assert base.dead_letters.count == 0

    run(test)
    assert caplog.messages.count("mailbox_congested") == 1


def test_others_wait_and_never_exceed_the_bound() -> None:
    async def test(base: AsyncioSystemBase, clock: ManualClock) -> None:
        got, depths = list[Any](), list[int]()

        class Slow(Narrow):
            def handle(self, message: Any, sender: Any) -> None:
                clock.now += 1.0
                depths.append(len(self.address.mailbox))
                super().handle(message, sender)

        target = base.spawn(partial(Slow, got))

        async def produce(name: int) -> None:
            for number in range(50):
                await base.send(target, (name, number))
                assert len(target.mailbox) <= 10

        await asyncio.gather(*(produce(name) for name in range(5)))
        await base.drain()
        assert len(got) == 250
        for name in range(5):
            assert [number for who, number in got if who == name] == list(range(50))

    run(test)


def test_a_waiting_sender_may_give_up_and_the_others_go_on() -> None:
    async def test(base: AsyncioSystemBase, clock: ManualClock) -> None:
        got = list[Any]()

        def slow(*_: Any) -> None:
            clock.now += 1.0

        target = base.spawn(partial(Narrow, got))
        await base.drain()
        for _ in range(11):
            base.post(target, slow)
        first = asyncio.ensure_future(base.send(target, "first"))
        second = asyncio.ensure_future(base.send(target, "second"))
        await asyncio.sleep(0)
        assert len(target.mailbox) == 10, "one was handled, and both wait"
        first.cancel()
        await second
        await base.drain()
        assert got == [slow] * 11 + ["second"]

    run(test)


def test_who_waits_for_an_actor_that_exits_is_told() -> None:
    async def test(base: AsyncioSystemBase, _: ManualClock) -> None:
        heard = list[Any]()
        target = base.spawn(Narrow)
        sender = base.spawn(partial(Probe, heard))
        await base.drain()
        base.post(sender, burst(target, 20))
        base.exit(target)
        await asyncio.sleep(0)
        await base.drain()
        assert heard[1:] == [Congested(target), Relieved(target)]
        with pytest.raises(ActorError) as caught:
            await base.send(target, "late")
        assert caught.value.code == "actor.gone"

    run(test)


def test_a_send_that_waits_fails_when_its_target_exits() -> None:
    async def test(base: AsyncioSystemBase, clock: ManualClock) -> None:
        target = base.spawn(Narrow)
        await base.drain()
        base.exit(target)
        for number in range(9):
            base.post(target, number)
        with pytest.raises(ActorError) as caught:
            await base.send(target, "waits")
        assert caught.value.code == "actor.gone"
        assert base.dead_letters.reasons == {"unhandled": 9}

    run(test)


def test_an_actor_is_not_told_of_its_own_flood() -> None:
    async def test(base: AsyncioSystemBase, _: ManualClock) -> None:
        got = list[Any]()
        target = base.spawn(partial(Narrow, got))
        tell(base, target, lambda actor, _: burst(actor.address, 30)(actor, None))
        await base.drain()
        assert got[1:] == list(range(30))

    run(test)
