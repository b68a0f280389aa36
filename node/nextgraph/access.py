"""Decides who may speak to the NextGraph listener: by address, `Host` and `Origin`.

A broker on loopback is for the programs and pages of its own machine. A page from elsewhere that
runs in a browser there can reach loopback too, and is told by its origin, or, where its name was
made to lead here, by the name that it believes to speak to.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from rillnode.node.nextgraph.config import NextgraphListener

_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})

_AUTHORITY: Final = re.compile(r"(\[[0-9a-f:.]+\]|[^]\s/?#@:[\\]+)(?::[0-9]*)?", re.IGNORECASE)
"""A host, and perhaps a port, and nothing else that a URL may have there."""


@dataclass(frozen=True, slots=True)
class Caller:
    """A request's sender, as far as the request tells.

    Attributes:
        remote: the address that it comes from.
        host: its `Host`.
        origin: its `Origin`, if it has one.
        proxied_hosts: the hosts that it was for as the proxies tell that have passed it on; None:
            there was no proxy.
    """

    remote: str
    host: str
    origin: str | None
    proxied_hosts: Sequence[str] | None = None


def admits(table: NextgraphListener, caller: Caller) -> bool:
    """Whether the broker listens to a request."""
    name = _host_of(caller.host)
    public = None if table.public_name is None else _host_of(table.public_name)
    if table.address.loopback:
        if not _is_loopback(caller.remote):
            return False
        if public is None and caller.proxied_hosts is not None:
            return False
        if name not in _LOCAL and (public is None or name != public):
            return False
    if public is not None and caller.proxied_hosts is not None:
        # A proxy may call the broker what it likes as long as it tells what it was called itself.
        hosts = caller.proxied_hosts or (caller.host,)
        if any(_host_of(host) != public for host in hosts):
            return False
    origin = caller.origin
    if origin is None or origin in table.origins:
        return True
    scheme, _, authority = origin.partition("://")
    if scheme not in ("http", "https"):
        return False
    place = _host_of(authority)
    if table.address.loopback:
        return place in _LOCAL or (public is not None and place == public)
    return place is not None and place == (public or name)


def may_bootstrap(table: NextgraphListener, caller: Caller) -> bool:
    """Whether an admitted caller is told how to connect: neighbours, or all of a public broker."""
    return table.public_name is not None or _is_near(caller.remote)


def _host_of(authority: str) -> str | None:
    match = _AUTHORITY.fullmatch(authority)
    return None if match is None else match[1].lower()


def _is_loopback(remote: str) -> bool:
    try:
        return ip_address(remote).is_loopback
    except ValueError:
        return False


def _is_near(remote: str) -> bool:
    try:
        address = ip_address(remote)
    except ValueError:
        return False
    return address.is_loopback or address.is_private
