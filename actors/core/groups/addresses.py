"""The way to a group's actor: who may take it, and the actor that its first message makes."""

from functools import partial

from rillnode.actors.core.access import Access
from rillnode.actors.core.delivery import Origin
from rillnode.actors.core.groups.group import GroupActor, lacking
from rillnode.actors.core.refusals import not_granted
from rillnode.actors.core.router import UNKNOWN, Admits, Resolve
from rillnode.actors.core.streams.context import StreamContext
from rillnode.actors.engine.cell import Cell
from rillnode.codecs.errors import RillnodeError
from rillnode.codecs.group_address import parse_group_address


def group_resolver(context: StreamContext) -> Resolve:
    """Make the actors of groups when the first message for their address comes."""
    return partial(_resolve, context)


def _resolve(context: StreamContext, address: bytes, _: Origin) -> Cell | None:
    parsed = parse_group_address(address)
    if parsed is None:
        return None
    return context.system.spawn(partial(context.actor(GroupActor), context, address, *parsed))


def group_guard(access: Access) -> Admits:
    """Keep out who may not consume the stream of an address."""

    def admits(address: bytes, origin: Origin) -> bool:
        parsed = parse_group_address(address)
        return parsed is not None and not lacking(access, origin.principal, parsed[0])

    return admits


def explain_refusal(access: Access, address: bytes, origin: Origin, _: bytes) -> RillnodeError:
    """Say what is missing to who is kept out."""
    stream = (parse_group_address(address) or ("",))[0]
    verb = lacking(access, origin.principal, stream)
    return not_granted("stream.unknown", origin.principal, verb, stream) if verb else UNKNOWN
