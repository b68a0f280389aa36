import asyncio
import threading
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from rillnode.actors.engine.inbox import BATCH_MESSAGES_MAX, Inbox
from rillnode.actors.engine.system import AsyncioSystemBase
from rillnode.node.testing.contract.engines.parts import Probe


class Loop:
    """Notes what it is to call, calls it when told; `here`: posts come from its own thread."""

    def __init__(self) -> None:
        self.called: list[Callable[[], object]] = []
        self.closed = False
        self.here = False
        self.turns_given = 0

    def call_soon(self, callback: Callable[[], object], *, context: None) -> None:
        assert context is None, "as `fresh_context` gave it"
        if self.closed:
            raise RuntimeError("Event loop is closed")
        self.called.append(callback)

    call_soon_threadsafe = call_soon

    def is_closed(self) -> bool:
        return self.closed

    def at_once(self, bring: Callable[[], None]) -> None:
        bring()
        self.turns_given += 1

    def turn(self) -> None:
        called, self.called = self.called, []
        for callback in called:
            callback()


def make(loop: Loop, posted: list[Any], lost: list[Any]) -> Inbox:
    def post(target: str, message: Any, sender: Any = None) -> None:
        if message == "bad":
            raise ValueError
        posted.append((target, message, sender))

    def lose(*delivery: Any) -> None:
        lost.append(delivery)

    mailboxes: Any = SimpleNamespace(
        post=post,
        lose=lose,
        at_once=loop.at_once,
        fresh_context=lambda: None,
    )
    machine: Any = loop
    return Inbox(mailboxes, machine, lambda: loop.here)


def test_the_loop_is_woken_once_for_many_posts() -> None:
    loop, posted = Loop(), list[Any]()
    inbox = make(loop, posted, [])
    for number in range(100):
        inbox.enter([("a", number), ("b", number, "sender")])
    assert len(loop.called) == 1
    assert inbox
    loop.turn()
    assert posted[:3] == [("a", 0, None), ("b", 0, "sender"), ("a", 1, None)]
    assert len(posted) == 200
    assert loop.turns_given == 1
    assert not inbox
    assert not loop.called
    inbox.enter([("a", "again")])
    assert len(loop.called) == 1


def test_nothing_wakes_nobody() -> None:
    loop = Loop()
    make(loop, [], []).enter([])
    assert not loop.called


def test_the_loop_has_its_turn_between_large_parts() -> None:
    loop, posted = Loop(), list[Any]()
    inbox = make(loop, posted, [])
    inbox.enter(("a", number) for number in range(3 * BATCH_MESSAGES_MAX))
    for part in range(1, 4):
        loop.turn()
        assert len(posted) == part * BATCH_MESSAGES_MAX
    assert not loop.called
    assert [message for _, message, _ in posted] == list(range(3 * BATCH_MESSAGES_MAX))


def test_what_arrives_on_the_loops_own_thread_is_posted_at_once_behind_what_waits() -> None:
    loop, posted = Loop(), list[Any]()
    inbox = make(loop, posted, [])
    inbox.enter([("a", 1)])
    assert not posted
    loop.here = True
    inbox.enter([("a", 2), ("b", 3)])
    assert posted == [("a", 1, None), ("a", 2, None), ("b", 3, None)]
    loop.turn()
    assert len(posted) == 3
    inbox.enter(("c", number) for number in range(2 * BATCH_MESSAGES_MAX))
    assert len(posted) == 3 + BATCH_MESSAGES_MAX
    loop.turn()
    assert len(posted) == 3 + 2 * BATCH_MESSAGES_MAX
    assert not loop.called


def test_a_bad_delivery_does_not_cost_those_behind_it(caplog: pytest.LogCaptureFixture) -> None:
    loop, posted = Loop(), list[Any]()
    inbox = make(loop, posted, [])
    inbox.enter([("a", 1), ("a", "bad"), ("a", 2)])
    loop.turn()
    assert [message for _, message, _ in posted] == [1, 2]
    assert [record.msg for record in caplog.records].count("bad_delivery") == 1


def test_what_comes_after_the_loop_has_closed_is_counted_as_lost() -> None:
    loop, lost = Loop(), list[Any]()
    inbox = make(loop, [], lost)
    loop.closed = True
    inbox.enter([("a", 1), ("a", 2)])
    inbox.enter([("a", 3)])
    assert lost == [("a", 1), ("a", 2), ("a", 3)]
    assert not inbox


def test_what_the_loop_did_not_come_to_before_its_end_is_lost_too() -> None:
    loop, lost = Loop(), list[Any]()
    inbox = make(loop, [], lost)
    inbox.enter([("a", 1)])
    inbox.flush()
    loop.closed = True
    inbox.enter([("a", 2)])
    assert lost == [("a", 1), ("a", 2)]


async def test_many_threads_may_post_at_once_and_each_ones_order_is_kept(
    base: AsyncioSystemBase,
) -> None:
    notes = list[Any]()
    cell = base.spawn(partial(Probe, notes))

    def post(name: int) -> None:
        for number in range(0, 2_000, 4):
            base.post_threadsafe([(cell, (name, number + step)) for step in range(4)])

    threads = [threading.Thread(target=post, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    while len(notes) < 8_000:
        await asyncio.sleep(0)
    for thread in threads:
        thread.join()
    for name in range(4):
        assert [number for who, number in notes if who == name] == list(range(2_000))


def test_posts_to_a_system_whose_loop_is_closed_are_dead_letters() -> None:
    async def main() -> tuple[AsyncioSystemBase, Any]:
        base = AsyncioSystemBase()
        cell = base.spawn(Probe)
        await base.drain()
        return base, cell

    base, cell = asyncio.run(main())
    base.post_threadsafe([(cell, "late")])
    assert [(letter.target, letter.message) for letter in base.dead_letters] == [(cell, "late")]
