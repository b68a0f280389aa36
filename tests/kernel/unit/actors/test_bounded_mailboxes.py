"""No actor of the product has a mailbox that others fill beyond its bound."""

import asyncio
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any, ClassVar
from unittest.mock import Mock

import msgspec
import pytest
from msgspec.structs import replace
from thespian.actors import Actor, ActorSystemMessage

from actor_support import run
from rillnode.actors.core.groups.registry import LeftBehind, Meet
from rillnode.actors.core.links.link_actor import HELD_READS_MAX, Closed, LinkActorEvents, Received
from rillnode.actors.core.rights import RightsChanged
from rillnode.actors.core.streams.followers import Grown
from rillnode.actors.core.streams.revising import EnsureStream
from rillnode.actors.engine.cell import Cell
from rillnode.actors.engine.outside import Reply
from rillnode.actors.engine.system import AsyncioSystemBase
from rillnode.actors.engine.waiting import Then
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import FOR_EVER, StoreHealth, StreamRecord
from rillnode.actors.nextgraph.users import Expelled
from rillnode.actors.overlay.messages import Began, Linked
from rillnode.codecs.errors import ActorError, RillnodeError
from rillnode.node.testing.contract.engines.parts import Probe
from rillnode.testing import actor_classes, message_types

FEW = 20

CLASSES = pytest.mark.parametrize("actor_class", actor_classes(), ids=lambda one: one.__qualname__)


@CLASSES
async def test_what_comes_to_a_full_mailbox_is_refused(
    base: AsyncioSystemBase, actor_class: type[Actor]
) -> None:
    sender = base.spawn(Probe)
    kinds: tuple[type[Any], ...] = message_types(actor_class) or ()
    for kind in kinds:
        if issubclass(kind, ActorSystemMessage):
            continue  # the end of a child is always taken
        cell = full(base, actor_class)
        bound = len(cell.mailbox)
        message = blank(kind)
        for _ in range(FEW):
            with pytest.raises(ActorError, match="too much waiting"):
                base.post(cell, message, sender)  # as another actor does
            answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            base.post(cell, message, Reply(cell, answer))  # as `ask` does
            error = answer.exception()
            assert isinstance(error, ActorError)
            assert error.code == "actor.busy"
        told = Told()
        base.outcomes[kind] = told.take
        for _ in range(FEW):
            base.post(cell, message)  # as a link does
        assert told.codes == ["actor.busy"] * FEW
        assert len(cell.mailbox) == bound
        # Another takes what has waited: it knows nothing of it, and ends.
        cell.factory = Probe
        base.exit(cell)
        await base.drain()


@CLASSES
@pytest.mark.parametrize("stuck", [False, True], ids=["slow", "stuck"])
def test_news_that_nobody_waits_for_fills_no_mailbox(
    actor_class: type[Actor], *, stuck: bool
) -> None:
    async def test(base: AsyncioSystemBase, _: object) -> None:
        kinds: tuple[type[Any], ...] = message_types(actor_class) or ()
        for kind in kinds:
            if issubclass(kind, ActorSystemMessage):
                continue
            cell, dead = full(base, actor_class), base.dead_letters
            if stuck:  # as while a handler of it waits
                base.mailboxes.hold(cell)
            spare, bound, before = min(cell.kind.spare_messages, FEW), len(cell.mailbox), dead.count
            cell.kind.spare_messages = spare  # of tens of thousands it would take long
            number = spare + FEW
            for _ in range(number):
                base.post(cell, blank(kind))
            beyond, dropped = len(cell.mailbox) - bound, dead.count - before
            if hasattr(kind, "merged"):
                assert (beyond, dropped) == (1, 0)  # it stands for all
            elif kind in cell.kind.spare:
                assert (beyond, dropped) == (spare, FEW)
            else:
                assert (beyond, dropped) == (0, number)
                assert dead.reasons["busy"] >= number
            # Timers, completed operations and the request to exit are taken.
            base.post(cell, blank(kind), cell)
            base.post(cell, None, Then(None, print))
            assert len([*cell.mailbox]) == bound + beyond + (1 if stuck else 2)
            cell.factory = Probe
            base.mailboxes.release(cell)
            base.exit(cell)
            await base.drain()
            assert cell.exited

    run(test)


def test_what_is_put_together_stands_for_both() -> None:
    record, other = StreamRecord(name="a", id=1), StreamRecord(name="b", id=2)
    ensure = EnsureStream("a", 1, FOR_EVER)
    linked = Linked("a", 0, ("n",), 1)
    assert Grown(1).merged(Grown(2)) == Grown(2)
    assert RightsChanged("a").merged(RightsChanged("a")) == RightsChanged("a")
    assert RightsChanged("a").merged(RightsChanged("b")) == RightsChanged()
    assert RightsChanged().merged(RightsChanged("b")) == RightsChanged()
    assert record.merged(other) is None
    assert record.merged(changed := replace(record, owner="me")) == changed
    assert ensure.merged(EnsureStream("b", 1, FOR_EVER)) is None
    assert ensure.merged(EnsureStream("a", 2, FOR_EVER)) == EnsureStream("a", 2, FOR_EVER)
    users = frozenset([b"a"]), frozenset([b"b"])
    assert Expelled(users[0]).merged(Expelled(users[1])) == Expelled(users[0] | users[1])
    assert linked.merged(Linked("a", 1, (), 2)) is None
    assert linked.merged(Linked("a", 0, (), 2)) == Linked("a", 0, (), 2)
    assert Began("a", 0).merged(Began("a", 1)) is None
    assert StoreHealth(False).merged(StoreHealth(True)) == StoreHealth(True)


async def test_a_link_whose_actor_has_too_much_waiting_is_read_no_more(
    base: AsyncioSystemBase,
) -> None:
    events, link = LinkActorEvents[Any](base, lambda _: Slow), Mock()
    events.link_opened(link)
    for number in range(1, FEW):
        events.messages_received([b"%d" % number])
        # Before all of them it is to start.
        assert link.pause_reading.called == (number >= Slow.mailbox_messages_max)
    assert events.cell is not None
    bound = Slow.mailbox_messages_max + sum(Slow.spare.values())
    assert len(events.cell.mailbox) == bound
    events.link_closed("it is enough")
    await base.drain()


class Slow(Worker):
    """An actor of a link."""

    mailbox_messages_max = 8
    spare: ClassVar = {Received: HELD_READS_MAX, Closed: 1}

    def handle(self, message: Received | Closed, sender: object) -> None:
        if isinstance(message, Closed):
            self.system.exit(self.address)


class Told:
    """Notes what is told of messages."""

    def __init__(self) -> None:
        self.codes: list[str] = []

    def take(self, _: object, error: RillnodeError) -> None:
        self.codes.append(error.code)


def blank(kind: type[Any]) -> Any:
    """A message of this type, with nothing in it."""
    if kind in (Expelled, LeftBehind, Meet):
        return kind(frozenset())
    if issubclass(kind, msgspec.Struct):
        return kind(**{one.name: None for one in msgspec.structs.fields(kind) if one.required})
    message = object.__new__(kind)
    for field in fields(kind) if is_dataclass(kind) else ():
        object.__setattr__(message, field.name, None)
    return message


def full(base: AsyncioSystemBase, actor_class: type[Actor]) -> Cell:
    """An actor of this class that has had no turn yet, and whose mailbox is full."""
    cell = base.spawn(partial(actor_class))
    kind: Any = cell.kind
    kind.mailbox_messages_max = min(kind.mailbox_messages_max, FEW)
    while len(cell.mailbox) < cell.kind.mailbox_messages_max:
        base.post(cell, None)
    return cell
