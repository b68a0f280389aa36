"""Lives: how actors begin and end, and what becomes of their children."""

import asyncio
from functools import partial
from typing import Any

import pytest
from thespian.actors import ActorExitRequest, ChildActorExited

from rillnode.codecs.errors import ActorError
from rillnode.node.testing.contract.engines.failing import Hooked
from rillnode.node.testing.contract.engines.parts import (
    Address,
    Does,
    EnginePart,
    Probe,
    codes_of,
    wait,
)


class LivingContract(EnginePart):
    """An actor begins with its first turn, and ends once, with its children."""

    async def test_the_instance_is_made_in_the_first_turn_and_not_in_spawn(self) -> None:
        notes = list[Any]()
        cell = self.engine.spawn(partial(Hooked, notes))
        self.engine.post(cell, "message")
        assert notes == []
        await self.soon()
        assert notes == ["started", "message"]

    async def test_an_actor_that_exits_handles_what_it_has_and_is_told(self) -> None:
        notes, ended = list[Any](), list[bool]()
        cell = self.engine.spawn(partial(Hooked, notes))
        self.engine.ended[cell] = lambda: ended.append(cell.exited)
        self.engine.post(cell, "before")
        for _ in range(2):
            self.engine.exit(cell)
        assert not cell.exited
        await self.soon()
        assert notes == ["started", "before", "stopped"]
        assert ended == [True]
        assert self.engine.dead_letters.count == 0

    async def test_an_exit_takes_the_children_with_it_and_tells_the_parent_once(self) -> None:
        heard, lives = list[Any](), list[Any]()
        grandparent = self.engine.spawn(partial(Probe, heard))
        parent = self.engine.spawn(partial(Hooked, lives), parent=grandparent)
        children = [self.engine.spawn(partial(Hooked, lives), parent=parent) for _ in range(3)]
        await self.soon()
        self.engine.exit(parent)
        await self.soon()
        assert heard == [ChildActorExited(parent)]
        assert lives == ["started"] * 4 + ["stopped"] * 4
        assert all(child.exited for child in children)
        assert not grandparent.exited
        assert self.engine.dead_letters.count == 0

    async def test_a_child_that_exits_is_told_of_and_leaves_the_others(self) -> None:
        heard = list[Any]()
        parent = self.engine.spawn(partial(Probe, heard))
        child, other = (self.engine.spawn(Probe, parent=parent) for _ in range(2))
        self.engine.exit(child)
        await self.soon()
        assert heard == [ChildActorExited(child)]
        assert not other.exited

    async def test_an_exit_that_is_not_recursive_leaves_the_children(self) -> None:
        notes = list[Any]()
        parent = self.engine.spawn(Probe)
        child = self.engine.spawn(partial(Probe, notes), parent=parent)
        self.engine.post(parent, ActorExitRequest(recursive=False))
        await self.soon()
        assert parent.exited
        self.engine.post(child, "alive")
        await self.soon()
        assert notes == ["alive"]

    async def test_children_that_wait_end_with_their_parent(self) -> None:
        class Parent(Does):
            def started(self) -> None:
                children.extend(self.system.spawn(Does, parent=self.address) for _ in range(3))

        children = list[Address]()
        parent = self.engine.spawn(Parent)
        await self.soon()
        asked = [self.ask(one, what) for one in (*children, parent) for what in (wait, "behind")]
        await self.soon()
        self.engine.exit(parent)
        assert await codes_of(asked) == ["actor.stopped"] * 8
        assert all(cell.exited for cell in children)

    async def test_a_parent_that_has_exited_gets_no_children(self) -> None:
        parent = self.engine.spawn(Probe)
        self.engine.exit(parent)
        await self.soon()
        with pytest.raises(ActorError) as caught:
            self.engine.spawn(Probe, parent=parent)
        assert caught.value.code == "actor.stopped"

    async def test_an_actor_that_begins_others_by_thespian_s_api_is_their_parent(self) -> None:
        heard, made = list[Any](), list[Address]()
        parent = self.engine.spawn(partial(Probe, heard))
        self.engine.post(parent, lambda actor, _: made.append(actor.createActor(Probe)))
        await self.soon()
        self.engine.exit(made[0])
        await self.soon()
        assert heard[1:] == [ChildActorExited(made[0])]

    async def test_work_that_is_cancelled_by_an_exit_is_awaited(self) -> None:
        order = list[str]()

        async def tidy(_: Any) -> None:
            try:
                await wait(_)
            finally:
                await asyncio.sleep(0)
                order.append("tidied up")

        cell = self.engine.spawn(Does)
        self.engine.ended[cell] = lambda: order.append("ended")
        self.engine.post(cell, tidy)
        await self.soon()
        self.engine.exit(cell)
        await self.soon()
        assert order == ["tidied up", "ended"]
