"""Tests what Thespian's documentation shows beyond plain actors, on a node.

The programs are written as for any of Thespian's bases: they are given a system and block. On a
node they run on another thread than its loop.
"""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from thespian.actors import (
    Actor,
    ActorAddress,
    ActorExitRequest,
    ActorSystem,
    ActorTypeDispatcher,
    ChildActorExited,
    DeadEnvelope,
    NoCompatibleSystemForActor,
    PoisonMessage,
    Thespian_ActorStatus,
    Thespian_StatusReq,
    requireCapability,
)
from thespian.initmsgs import initializing_messages
from thespian.transient import transient, transient_idle
from thespian.troupe import troupe

from nodes import node_config, store_with
from rillnode import Node

ASK = timedelta(seconds=10)

Program = Callable[[Any], object]


class Echo(Actor):
    def receiveMessage(self, msg: Any, sender: Any) -> None:
        if not isinstance(msg, ActorExitRequest):
            self.send(sender, msg)


class Pair(ActorTypeDispatcher):
    """Has a child that it is told the end of."""

    child: Any
    asker: Any

    def receiveMsg_str(self, message: str, sender: Any) -> None:
        self.asker = sender
        self.child = self.createActor(Echo)
        self.send(self.child, ActorExitRequest())

    def receiveMsg_ChildActorExited(self, message: ChildActorExited, sender: Any) -> None:
        self.send(self.asker, message.childAddress == self.child)


@initializing_messages([("greeting", str), ("other", ActorAddress)], initdone="begun")
class Prepared(ActorTypeDispatcher):
    """Takes no number before it has a greeting and another actor."""

    greeting: str
    other: Any

    def begun(self) -> None:
        self.times = 0

    def receiveMsg_int(self, message: int, sender: Any) -> None:
        self.times += message
        self.send(sender, f"{self.greeting} {self.times}")


@troupe(max_count=3, idle_count=1)
class Workers(Actor):
    """Several take turns behind one address."""

    def receiveMessage(self, msg: Any, sender: Any) -> None:
        if isinstance(msg, int):
            self.send(sender, msg * msg)


@transient(timedelta(milliseconds=20))
class Brief(Echo):
    """Exits a while after its first message."""


@transient_idle(timedelta(milliseconds=20))
class Idle(Echo):
    """Exits when nothing has come for a while."""


@requireCapability("a printer")
class Printer(Echo):
    """Wants a system that has one."""


class Letters(Actor):
    """Collects what cannot be delivered."""

    def __init__(self) -> None:
        self.letters: list[Any] = []

    def receiveMessage(self, msg: Any, sender: Any) -> None:
        if msg == "begin":
            self.handleDeadLetters()
            self.send(sender, "begun")
        elif msg == "letters":
            self.send(sender, self.letters)
        elif isinstance(msg, DeadEnvelope):
            self.letters.append(msg.deadMessage)


class Breaks(Actor):
    """Fails at each message."""

    def receiveMessage(self, msg: Any, sender: Any) -> None:
        raise ValueError(msg)


class Watches(Actor):
    """Hears of a message that another actor has failed at twice."""

    asker: Any

    def receiveMessage(self, msg: Any, sender: Any) -> None:
        if isinstance(msg, PoisonMessage):
            self.send(self.asker, f"poison {msg.poisonMessage}")
        elif isinstance(msg, str):
            self.asker = sender
            self.send(self.createActor(Breaks), msg)


def hears_of_a_childs_end(system: Any) -> None:
    assert system.ask(system.createActor(Pair), "go", ASK) is True


def is_prepared_by_messages(system: Any) -> None:
    prepared = system.createActor(Prepared)
    system.tell(prepared, 1)  # it waits for what prepares
    system.tell(prepared, "hello")
    system.tell(prepared, system.createActor(Echo))
    answers = [system.ask(prepared, 2, ASK), system.listen(ASK)]
    assert sorted(answers) == ["hello 1", "hello 3"]


def shares_work_in_a_troupe(system: Any) -> None:
    workers = system.createActor(Workers)
    assert [system.ask(workers, number, ASK) for number in range(1, 6)] == [1, 4, 9, 16, 25]


def ends_by_itself(system: Any) -> None:
    for kind in (Brief, Idle):
        actor = system.createActor(kind)
        assert system.ask(actor, "hi", ASK) == "hi"
        system.listen(timedelta(milliseconds=200))
        letters = system.createActor(Letters)
        assert system.ask(letters, "begin", ASK) == "begun"
        system.tell(actor, f"to a {kind.__name__}")
        assert f"to a {kind.__name__}" in system.ask(letters, "letters", ASK)
        system.tell(letters, ActorExitRequest())


def needs_capabilities(system: Any) -> None:
    with pytest.raises(NoCompatibleSystemForActor):
        system.createActor(Printer)
    system.updateCapability("a printer", True)
    assert system.ask(system.createActor(Printer), "page", ASK) == "page"
    system.updateCapability("a printer")


def fails_twice_and_tells_the_sender(system: Any) -> None:
    assert system.ask(system.createActor(Watches), "x", ASK) == "poison x"


def asks_for_a_status(system: Any) -> None:
    status = system.ask(system.createActor(Echo), Thespian_StatusReq(), ASK)
    assert isinstance(status, Thespian_ActorStatus)


def has_contexts_of_its_own(system: Any) -> None:
    echo = system.createActor(Echo)
    with system.private() as one, system.private() as other:
        one.tell(echo, 1)
        other.tell(echo, 2)
        assert (other.listen(ASK), one.listen(ASK)) == (2, 1)


def finds_by_name(system: Any) -> None:
    one = system.createActor(Echo, globalName="echo")
    assert system.createActor(Echo, globalName="echo") == one
    by_text = system.createActor(f"{Echo.__module__}.Echo", globalName="echo")
    assert by_text == one


PROGRAMS: list[Program] = [
    hears_of_a_childs_end,
    is_prepared_by_messages,
    shares_work_in_a_troupe,
    ends_by_itself,
    fails_twice_and_tells_the_sender,
    asks_for_a_status,
    finds_by_name,
]

NOT_ON_THE_SIMPLEST: list[Program] = [needs_capabilities, has_contexts_of_its_own]
"""Other bases can; the simplest asks for no capabilities, and has one queue for all who listen."""


@contextmanager
def simple() -> Generator[Any]:
    system = ActorSystem("simpleSystemBase", transientUnique=True)
    try:
        yield system
    finally:
        system.shutdown()


@pytest.mark.parametrize("program", PROGRAMS + NOT_ON_THE_SIMPLEST, ids=lambda one: one.__name__)
async def test_on_a_node_a_program_runs_as_it_stands(tmp_path: Path, program: Program) -> None:
    async with asyncio.timeout(60.0), Node(node_config(tmp_path), make_store=store_with()) as node:
        await asyncio.to_thread(program, node.actor_system)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.__name__)
def test_it_is_a_program_of_thespians(program: Program) -> None:
    """The same on its simplest base, so that nothing here is made for ours."""
    with simple() as system:
        program(system)
