"""Every service there is: its name, its addresses, the actor that serves it.

The first address is the one of nodes since 2022-04, the second what older ones call it.
"""

from collections.abc import Callable, Collection, Sequence
from functools import lru_cache, partial
from itertools import chain
from typing import Final, NamedTuple

from rillnode.actors.core.delivery import Origin
from rillnode.actors.core.streams import index_service, service
from rillnode.actors.core.streams.context import StreamContext
from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.ockam import bidirectional, static_forwarding
from rillnode.actors.ockam.answering import AnsweringActor, echo, uppercase
from rillnode.actors.ockam.bidirectional import SubscriptionService
from rillnode.actors.ockam.context import ServiceContext
from rillnode.actors.ockam.forwarding import FORWARDING, TRACING, AliasService
from rillnode.actors.ockam.names import SERVICE_NAMES, ServiceName
from rillnode.actors.ockam.pub_sub import PubSubService
from rillnode.actors.ockam.static_forwarding import StaticForwardingService
from rillnode.actors.ports import Entropy
from rillnode.codecs.ockam import discovery
from rillnode.codecs.routing.routes import local

_SELECTIONS_KEPT: Final = 16

_STREAM_SERVICES: Final = (
    ("stream", service.ADDRESSES),
    ("stream_index", index_service.ADDRESSES),
)


def addresses_of(name: ServiceName) -> tuple[bytes, ...]:
    """The addresses of a service."""
    if name == "stream_subscribe":
        return bidirectional.ADDRESSES
    if name == "static_forwarding":
        return static_forwarding.ADDRESSES
    return name.encode(), f"{name}_service".encode()


def spawn_services(context: StreamContext, indexes: Cell, enabled: Collection[ServiceName]) -> None:
    """Make the services that are enabled, under all of their addresses.

    Args:
        context: the node's parts.
        indexes: the index service.
        enabled: names of services; the order does not matter.
    """
    selection = _select(frozenset(enabled))
    hub = ServiceContext(context.system, context.router, context.entropy)
    factories: dict[ServiceName, Callable[[], Worker]] = {
        "echo": partial(AnsweringActor, hub.router, echo),
        "uppercase": partial(AnsweringActor, hub.router, uppercase),
        "forwarding": partial(AliasService, hub, FORWARDING),
        "static_forwarding": partial(StaticForwardingService, hub),
        "pub_sub": partial(PubSubService, hub),
        "tracing": partial(AliasService, hub, TRACING),
        "discovery": partial(
            AnsweringActor, hub.router, partial(_discover, selection.listed, hub.entropy)
        ),
        "stream_subscribe": partial(SubscriptionService, context, indexes, selection.answering),
    }
    for name, addresses in selection.services:
        cell = context.system.spawn(factories[name], name=name)
        for address in addresses:
            context.router.register(address, cell)


class _Selection(NamedTuple):
    """The services that nodes have enabled.

    Attributes:
        services: each with its addresses.
        listed: they and the streams' services, as discovery tells of them.
        answering: the addresses of all of these.
    """

    services: Sequence[tuple[ServiceName, tuple[bytes, ...]]]
    listed: Sequence[discovery.Service]
    answering: frozenset[bytes]


@lru_cache(_SELECTIONS_KEPT)
def _select(enabled: frozenset[ServiceName]) -> _Selection:
    """Shared by all nodes of a process that have enabled the same."""
    found: list[ServiceName] = [name for name in SERVICE_NAMES if name in enabled]
    services: list[tuple[ServiceName, tuple[bytes, ...]]]
    services = [(name, addresses_of(name)) for name in found]
    known = (*_STREAM_SERVICES, *services)
    listed = [discovery.Service(name, (local(addresses[0]),)) for name, addresses in known]
    answering = frozenset(chain.from_iterable(addresses for _, addresses in known))
    return _Selection(services, listed, answering)


def _discover(
    services: Sequence[discovery.Service], entropy: Entropy, payload: bytes, origin: Origin
) -> bytes | None:
    cbor = origin.account.wire_format == "cbor"
    request = discovery.decode_request(payload, cbor=cbor)
    return discovery.encode_answer(request, services, int.from_bytes(entropy(2), "big"))
