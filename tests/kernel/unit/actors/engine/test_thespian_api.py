"""The system through Thespian's own API, beyond what Thespian's suite asks."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from thespian.actors import (
    Actor,
    ActorExitRequest,
    ActorSystem,
    ChildActorExited,
    InvalidActorSourceHash,
    InvalidActorSpecification,
    NoCompatibleSystemForActor,
)

from actor_support import tell
from rillnode.actors.engine.cell import GONE, Cell
from rillnode.actors.engine.system import AsyncioSystemBase
from rillnode.codecs.errors import ActorError
from rillnode.node.testing.contract.engines.parts import Boom, Echo, Probe, boom


class Answering(Actor):
    """Answers; what it answers with is the class's, so that it can be made by class alone."""

    def __init__(self, capabilities: dict[str, Any] | None = None) -> None:
        super().__init__()
        self._capabilities = capabilities

    def receiveMessage(self, msg: Any, sender: Any) -> None:
        if msg == "capabilities":
            self.send(sender, self._capabilities)
        elif isinstance(msg, str):
            self.send(sender, msg.upper())


class Particular(Actor):
    @staticmethod
    def actorSystemCapabilityCheck(capabilities: dict[str, Any], requirements: Any) -> bool:
        return bool(capabilities.get("particular"))

    def receiveMessage(self, msg: Any, sender: Any) -> None:
        self.send(sender, "here")


class NonStarter(Actor):
    def __init__(self) -> None:
        boom()


@pytest.fixture
def system() -> Iterator[ActorSystem]:
    system = ActorSystem(systemBase=AsyncioSystemBase(), transientUnique=True)
    yield system
    system.shutdown()


def test_actors_are_made_by_class_or_by_qualified_name(system: ActorSystem) -> None:
    for given in (Answering, f"{Echo.__module__}.{Echo.__qualname__}"):
        assert system.ask(system.createActor(given), "X", 5.0) == "X"
    with pytest.raises(InvalidActorSpecification):
        system.createActor("Answering")
    with pytest.raises(ImportError):
        system.createActor("no_such_module.Answering")


def test_a_constructor_that_raises_does_so_to_who_makes_the_actor(system: ActorSystem) -> None:
    with pytest.raises(Boom):
        system.createActor(NonStarter)


def test_a_class_may_ask_for_the_capabilities_and_refuse_them(system: ActorSystem) -> None:
    answering = system.createActor(Answering)
    capabilities = system.ask(answering, "capabilities", 5.0)
    assert capabilities["Thespian Watch Supported"] is False
    with pytest.raises(NoCompatibleSystemForActor):
        system.createActor(Particular)
    system.updateCapability("particular", True)
    assert system.ask(system.createActor(Particular), "there?", 5.0) == "here"
    system.updateCapability("particular")
    with pytest.raises(NoCompatibleSystemForActor):
        system.createActor(Particular)


def test_each_thread_has_its_own_answers(system: ActorSystem) -> None:
    answering = system.createActor(Answering)
    with system.private() as one, system.private() as other:
        one.tell(answering, "one")
        other.tell(answering, "other")
        assert one.listen(5.0) == "ONE"
        assert other.listen(5.0) == "OTHER"
        assert system.listen(0.0) is None
        mine = one.createActor(Answering)
        assert one.ask(mine, "mine", 5.0) == "MINE"
    assert system.ask(mine, "still there", 5.0) == "STILL THERE"


def test_code_is_never_loaded(system: ActorSystem) -> None:
    with pytest.raises(ActorError) as caught:
        system.loadActorSource("archive.zip")
    assert caught.value.code == "actor.unsupported"
    with pytest.raises(InvalidActorSourceHash):
        system.createActor(Answering, sourceHash="0123")


async def test_on_the_loops_thread_asking_is_awaited_and_listening_refused() -> None:
    base = AsyncioSystemBase()
    system = ActorSystem(systemBase=base, transientUnique=True)
    answering = system.createActor(Answering)
    assert await system.ask(answering, "awaited", 5.0) == "AWAITED"
    system.tell(answering, "told")
    await base.drain()
    with pytest.raises(ActorError) as caught:
        system.listen(1.0)
    assert caught.value.code == "actor.would_block"
    assert await asyncio.to_thread(system.listen, 5.0) == "TOLD"
    system.shutdown()
    await base.shutdown()
    assert isinstance(answering, Cell)
    assert answering.mailbox is GONE


async def test_another_thread_may_shut_the_hosts_system_down() -> None:
    base = AsyncioSystemBase()
    system = ActorSystem(systemBase=base, transientUnique=True)
    cell = await asyncio.to_thread(system.createActor, Answering)
    await asyncio.to_thread(system.shutdown)
    assert isinstance(cell, Cell)
    assert cell.mailbox is GONE


async def test_a_child_that_cannot_be_made_is_a_child_that_exited(base: AsyncioSystemBase) -> None:
    notes, made = list[Any](), list[Any]()
    parent = base.spawn(lambda: Probe(notes))
    tell(base, parent, lambda actor, _: made.append(actor.createActor(NonStarter)))
    await base.drain()
    assert notes[1:] == [ChildActorExited(made[0])]
    assert made[0].mailbox is GONE


async def test_a_global_name_is_one_actors_until_it_exits(base: AsyncioSystemBase) -> None:
    def create() -> Cell:
        return base.create_child(None, Answering, global_name="one")

    cell = create()
    assert cell.globalName == cell.name == "one"
    assert create() is cell
    assert base.names == {"one": cell}
    base.post(cell, ActorExitRequest())
    await base.drain()
    assert base.names == {}
    assert cell.globalName is None
    assert create() is not cell


async def test_what_belongs_to_thespians_conventions_is_refused_or_nothing(
    base: AsyncioSystemBase,
) -> None:
    refused = list[str]()

    def try_all(actor: Probe, _: Any) -> None:
        actor.notifyOnSystemRegistrationChanges()
        actor.updateCapability("colour", "blue")
        for call in (
            lambda: actor.loadActorSource("archive.zip"),
            lambda: actor.preRegisterRemoteSystem("address", {}),
        ):
            with pytest.raises(ActorError) as caught:
                call()
            refused.append(caught.value.code)

    base.post(base.spawn(Probe), try_all)
    await base.drain()
    assert refused == ["actor.unsupported"] * 2
    assert base.capabilities["colour"] == "blue"
