"""Sends the system's keep-alive probes to peers that are silent.

Here it probes whether the peer is silent or not, as an answer says nothing to anybody.
"""

import socket
from typing import TYPE_CHECKING, Final

from rillnode.node.simulation.carrier import Sign

if TYPE_CHECKING:
    from rillnode.node.simulation.network import Network
    from rillnode.node.simulation.pipes import StreamTransport

_TIMES: Final = {"TCP_KEEPIDLE": 7_200, "TCP_KEEPINTVL": 75, "TCP_KEEPCNT": 9}
"""What systems do by default: seconds before the first probe, seconds between others, how many."""


class ProbingSocket:
    """The socket of a connection, as far as there is one; of its options it knows keep-alive.

    Args:
        network: that the connection is in.
        transport: the connection.
    """

    __slots__ = ("_missed", "_network", "_times", "_transport")
    family: Final = socket.AF_UNSPEC

    def __init__(self, network: "Network", transport: "StreamTransport") -> None:
        self._network = network
        self._transport = transport
        self._times = dict(_TIMES)
        self._missed = 0

    def setsockopt(self, level: int, option: int, value: int) -> None:
        """Set an option: those that are not about probes change nothing."""
        if (level, option) == (socket.SOL_SOCKET, socket.SO_KEEPALIVE) and value:
            # When it is to begin with may be said after that.
            self._network.later(0.0, self._wait)
        for name in self._times:
            if (level, option) == (socket.IPPROTO_TCP, getattr(socket, name, None)):
                self._times[name] = value

    def getsockopt(self, *_: object) -> bytes:
        """Tell nothing."""
        return b""

    def _wait(self) -> None:
        seconds = self._times["TCP_KEEPINTVL" if self._missed else "TCP_KEEPIDLE"]
        self._network.later(seconds, self._probe)

    def _probe(self) -> None:
        """Ask whether the peer knows of the connection; end it where nobody answers for long."""
        transport, way = self._transport, self._transport.way
        if transport.gone:
            return
        network, there = self._network, (way.source, way.target)
        if not network.blocked_way(*there) and not network.blocked_way(*there[::-1]):
            self._missed = 0
            if transport.peer.gone:
                transport.sign_arrived(Sign.RESET)
                return
        else:
            self._missed += 1
            if self._missed > self._times["TCP_KEEPCNT"]:
                transport.sign_arrived(Sign.RESET)
                return
        self._wait()
