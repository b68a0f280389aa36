"""The way to a stream's actor: who may take it, and the actor that its first message makes."""

from functools import lru_cache, partial
from typing import Final

from rillnode.actors.core.access import Access
from rillnode.actors.core.delivery import Origin
from rillnode.actors.core.refusals import not_granted
from rillnode.actors.core.router import UNKNOWN, Admits, Resolve
from rillnode.actors.core.streams.asked import NEEDS
from rillnode.actors.core.streams.context import StreamContext, parse_stream_address
from rillnode.actors.core.streams.stream import StreamActor
from rillnode.actors.engine.system import Cell
from rillnode.codecs import native
from rillnode.codecs.errors import CodecError, RillnodeError
from rillnode.codecs.events import event_logger

logger = event_logger("rillnode.actors.core.streams.resolving")

_PARSED_MAX: Final = 4_096
"""Addresses that guards remember the names of: taking one apart costs more than the look-up."""

_parse: Final = lru_cache(_PARSED_MAX)(parse_stream_address)


def stream_resolver(context: StreamContext) -> Resolve:
    """Make the actors of streams when the first message for their address comes.

    They have no parent: what befalls the stream service is no stream's end.
    """
    return partial(_resolve, context)


def _resolve(context: StreamContext, address: bytes, _: Origin) -> Cell | None:
    parsed = parse_stream_address(address)
    if parsed is None:
        return None
    return context.system.spawn(partial(context.actor(StreamActor), context, address, *parsed))


def stream_guard(access: Access) -> Admits:
    """Keep out who may do nothing with a stream of an address's name."""

    def admits(address: bytes, origin: Origin) -> bool:
        if access.sees_all(origin.principal):
            return True
        name = (_parse(address) or ("",))[0]
        if name and access.verbs(origin.principal, name):
            return True
        logger.info("refused", extra={"principal": origin.principal, "stream": name[:64]})
        return False

    return admits


def explain_refusal(address: bytes, origin: Origin, payload: bytes) -> RillnodeError:
    """Say what a guard of streams has missed, to who has asked for something of a stream."""
    name = (_parse(address) or ("",))[0]
    try:
        verb = NEEDS.get(type(native.decode_request(payload)))
    except CodecError:
        verb = None
    if not name or verb is None:
        return UNKNOWN
    return not_granted("stream.unknown", origin.principal, verb, name)
