"""Finding out that a TCP peer has gone, where the protocol above has nothing to ask it with."""

import socket
from asyncio.trsock import TransportSocket
from typing import Final

_PROBES: Final = 4
_PROBE_SECONDS: Final = 15


def keep_alive(link: TransportSocket, idle_seconds: int) -> None:
    """Have the system probe a peer that is silent, and give up one that does not answer.

    The peer's system answers, so that a program which only has nothing to say stays connected.
    Where this system does not know one of the options, its own times apply.

    Args:
        link: a connected TCP socket.
        idle_seconds: how long a connection is silent before it is probed. It ends a minute later,
            and as long after what was sent to the peer and not taken by its system.
    """
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    until_ms = (idle_seconds + _PROBES * _PROBE_SECONDS) * 1_000
    for name, value in (
        ("TCP_KEEPIDLE", idle_seconds),
        ("TCP_KEEPINTVL", _PROBE_SECONDS),
        ("TCP_KEEPCNT", _PROBES),
        ("TCP_USER_TIMEOUT", until_ms),
    ):
        option: int | None = getattr(socket, name, None)
        if option is not None:
            link.setsockopt(socket.IPPROTO_TCP, option, value)
