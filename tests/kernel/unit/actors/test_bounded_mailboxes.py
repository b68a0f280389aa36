"""No actor of the product has a mailbox that others fill beyond its bound."""

import asyncio
from functools import partial
from typing import Any

import msgspec
import pytest
from thespian.actors import Actor, ActorSystemMessage

from actor_support import Probe, run
from rillnode.actors.engine.cell import Cell
from rillnode.actors.engine.outside import Reply
from rillnode.actors.engine.system import AsyncioSystemBase
from rillnode.codecs.errors import ActorError, RillnodeError
from rillnode.testing import actor_classes, message_types

FEW = 20


@pytest.mark.parametrize("actor_class", actor_classes(), ids=lambda one: one.__qualname__)
def test_what_comes_to_a_full_mailbox_is_refused(actor_class: type[Actor]) -> None:
    async def test(base: AsyncioSystemBase, _: object) -> None:
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

    run(test)


class Told:
    """Notes what is told of messages."""

    def __init__(self) -> None:
        self.codes: list[str] = []

    def take(self, _: object, error: RillnodeError) -> None:
        self.codes.append(error.code)


def blank(kind: type[Any]) -> Any:
    """A message of this type; nobody looks into it."""
    if issubclass(kind, msgspec.Struct):
        return kind(**{one.name: None for one in msgspec.structs.fields(kind) if one.required})
    return object.__new__(kind)


def full(base: AsyncioSystemBase, actor_class: type[Actor]) -> Cell:
    """An actor of this class that has had no turn yet, and whose mailbox is full."""
    cell = base.spawn(partial(actor_class))
    while len(cell.mailbox) < cell.kind.mailbox_messages_max:
        base.post(cell, None)
    return cell
