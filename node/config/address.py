"""Listen addresses as texts."""

from ipaddress import ip_address
from typing import Final, NamedTuple

PORT_MAX = 65_535

WILDCARDS: Final = frozenset({"0.0.0.0", "::"})
"""Hosts that stand for every address of a machine."""


class ListenAddress(NamedTuple):
    """A host, without the brackets of IPv6, and a port.

    Attributes:
        host: a name or an address.
        port: 0 to 65535; 0 takes a free one.
    """

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it; a name other than localhost is not trusted."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_address(text: str) -> ListenAddress:
    """Take `host:port` or `[ipv6]:port` apart.

    Raises:
        ValueError: there is no port, or it is over 65,535.
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > PORT_MAX:
        raise ValueError(f'expected "host:port" with port 0 to {PORT_MAX}, not {text!r}')
    return ListenAddress(host.removeprefix("[").removesuffix("]"), int(port))
