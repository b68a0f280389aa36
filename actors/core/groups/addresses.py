"""The way to a group's actor: who may take it, and the actor that its first message makes."""

from functools import partial

from rillnode.actors.core.delivery import Origin
from rillnode.actors.core.groups.group import GroupActor, may_consume
from rillnode.actors.core.router import Resolve
from rillnode.actors.core.streams.context import StreamContext
from rillnode.actors.engine.cell import Cell
from rillnode.codecs.group_address import parse_group_address


def group_resolver(context: StreamContext) -> Resolve:
    """Make the actors of groups when the first message for their address comes.

    Who may do nothing with the stream makes none, and so is told of none.
    """
    return partial(_resolve, context)


def _resolve(context: StreamContext, address: bytes, origin: Origin) -> Cell | None:
    parsed = parse_group_address(address)
    if parsed is None or not may_consume(context, origin.principal, parsed[0]):
        return None
    return context.system.spawn(partial(context.actor(GroupActor), context, address, *parsed))
