"""The listeners whose links carry wire messages, bound as the configuration says."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Final

from rillnode.actors.core.links.connection import ConnectionEvents, PeerContext
from rillnode.codecs.noise.link import NoiseLink
from rillnode.codecs.routing.dialects import EitherDialect
from rillnode.node.config.address import WILDCARDS, parse_address
from rillnode.node.config.tables import NoiseListener, OckamListener
from rillnode.transports.clock import Clock
from rillnode.transports.links import NOISE_LIMITS, OCKAM_LIMITS, LinkLimits
from rillnode.transports.tcp import TcpListener, listen

_LIMITS_KEPT: Final = 64


@lru_cache(_LIMITS_KEPT)
def _shared(limits: LinkLimits) -> LinkLimits:
    """Bounds that are equal are one object: a process may have thousands of nodes."""
    return limits


def noise_limits(
    table: NoiseListener,
    connections_max: int,
    connections_per_address_max: int = NOISE_LIMITS.connections_per_address_max,
) -> LinkLimits:
    """The bounds of rillnode's own links, accepted ones and dialled ones."""
    limits = replace(
        NOISE_LIMITS,
        handshake_seconds=table.handshake_seconds_max,
        idle_ping_seconds=table.idle_ping_seconds,
        idle_close_seconds=table.idle_close_seconds,
        connections_max=connections_max,
        connections_per_address_max=connections_per_address_max,
    )
    return _shared(limits)


def public_address(bound: str) -> str:
    """Where others reach what is bound; "" where that says it of no host."""
    return "" if parse_address(bound).host in WILDCARDS else bound


async def listen_noise(
    table: NoiseListener, peers: PeerContext, clock: Clock, codec: Callable[[], NoiseLink]
) -> TcpListener:
    """Bind rillnode's own listener; `codec` makes that of each link.

    Raises:
        TransportError: the address cannot be bound.
    """
    return await listen(
        *table.address,
        codec_factory=codec,
        events_factory=lambda: ConnectionEvents(peers, prefix=b"NX_H_"),
        transport_name="noise",
        clock=clock,
        limits=noise_limits(table, table.connections_max, table.connections_per_address_max),
    )


async def listen_ockam(table: OckamListener, peers: PeerContext, clock: Clock) -> TcpListener:
    """Bind the listener for Ockam's peers.

    Raises:
        TransportError: the address cannot be bound.
    """
    return await listen(
        *table.address,
        codec_factory=EitherDialect,
        events_factory=lambda: ConnectionEvents(peers, prefix=b"TCP_H_", strict=table.strict),
        transport_name="ockam",
        clock=clock,
        limits=replace(
            OCKAM_LIMITS,
            idle_close_seconds=table.idle_close_seconds or None,
            connections_max=table.connections_max,
            connections_per_address_max=table.connections_per_address_max,
        ),
    )
