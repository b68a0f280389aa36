"""Defines what the tables of listeners have in common."""

from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from rillnode.codecs.limits import CONNECTIONS_MAX, CONNECTIONS_PER_ADDRESS_MAX
from rillnode.node.config.address import ListenAddress, parse_address
from rillnode.node.config.kinds import Count, HostPort, KeyHex, Name


class ApiKeyTable(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A key of a client that holds no key pair.

    `rillnode apikey new NAME` makes one and shows it once. Grants call its holder `apikey:NAME`.

    Attributes:
        name: Who holds the key.
        hash: SHA-256 of the key, in hexadecimal.
    """

    name: Annotated[Name, Meta(examples=["dashboard"])]
    hash: Annotated[KeyHex, Meta(examples=["00" * 32])]


class Listener(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A listener's table.

    Attributes:
        enabled: Whether the node listens.
        listen: Address and port; port 0 takes a free one.
    """

    enabled: bool = True
    listen: HostPort = "127.0.0.1:0"

    @property
    def address(self) -> ListenAddress:
        """The address to bind, taken apart."""
        return parse_address(self.listen)

    @property
    def in_clear(self) -> bool:
        """Whether messages travel in clear, and nobody has said that they may beyond loopback."""
        return False


class LinkListener(Listener, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The table of a listener for links.

    Attributes:
        connections_max: Connections open at one time.
        connections_per_address_max: Connections open at one time from one remote address.
    """

    connections_max: Count = CONNECTIONS_MAX
    connections_per_address_max: Count = CONNECTIONS_PER_ADDRESS_MAX


class WebListener(Listener, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The table of a listener that speaks HTTP or WebSocket.

    Attributes:
        tls_cert: PEM file with the certificate chain; with `tls_key` it turns TLS on.
        tls_key: PEM file with the certificate's private key.
        allow_plain: Allow an address other than loopback without TLS.
    """

    tls_cert: Annotated[Path | None, Meta(examples=["tls/cert.pem"])] = None
    tls_key: Annotated[Path | None, Meta(examples=["tls/key.pem"])] = None
    allow_plain: bool = False

    @property
    def in_clear(self) -> bool:
        """Whether there is no TLS, and nobody has said that it may be so beyond loopback."""
        return self.tls_cert is None and not self.allow_plain
