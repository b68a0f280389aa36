"""Lets clients find a broker: the document at `/.ng_bootstrap`, and invitation links.

    Invitation = V0 { bootstrap: { servers: list<BrokerServer> }, code: optional<SymKey>,
                      name: optional<str>, url: optional<str> }
    link       = origin "/#/i/" base64url(Invitation), without padding

Source: nextgraph-rs 9ea23f60, engine/net/src/types.rs; the document as a real client reads it.
"""

import json
from typing import Annotated, Any, Final

from msgspec import Struct

from rillnode.codecs.bare import U16, Codec
from rillnode.codecs.errors import CodecError
from rillnode.codecs.nextgraph.limits import NEXTGRAPH_INVITATION_BYTES_MAX
from rillnode.codecs.nextgraph.text_ids import from_base64url, to_base64url
from rillnode.codecs.nextgraph.types import V0, BindAddress, IPv4, PublicKey, SymmetricKey

BOOTSTRAP_PATH: Final = "/.ng_bootstrap"

_INVITATION_MARK: Final = "/#/i/"


class Localhost(Struct):
    """A broker on the client's own machine; port 0 stands for 80."""

    port: U16


class BoxPrivate(Struct):
    """A broker in a private network."""

    addresses: list[BindAddress]


class Public(Struct):
    """A broker with public addresses."""

    addresses: list[BindAddress]


class BoxPublicDyn(Struct):
    """A broker whose public addresses change; there may be none."""

    addresses: list[BindAddress]


class Domain(Struct):
    """A broker behind a name, over TLS; the name may end in a colon and a port."""

    name: str


BrokerServerType = Localhost | BoxPrivate | Public | BoxPublicDyn | Domain


class BrokerServer(Struct):
    """A broker.

    Attributes:
        server_type: where it is.
        can_verify: whether it runs verifiers for its users.
        can_forward: whether it forwards clients to other brokers.
        peer_id: its Ed25519 key, which a client must know to connect.
    """

    server_type: BrokerServerType
    can_verify: bool
    can_forward: bool
    peer_id: PublicKey


class BootstrapContent(Struct):
    """Brokers, the preferred one first."""

    servers: list[BrokerServer]


class Invitation(Struct):
    """An invitation to register at a broker.

    Attributes:
        bootstrap: the broker.
        code: what to register with, 32 bytes.
        name: shown to who is invited.
        url: where to agree to terms first.
    """

    bootstrap: BootstrapContent
    code: SymmetricKey | None
    name: str | None
    url: str | None


_INVITATION: Final[Codec[Invitation]] = Codec(Annotated[Invitation, V0], serde=True)


def bootstrap_document(content: BootstrapContent, registration_url: str | None) -> bytes:
    """Write the document at `/.ng_bootstrap`: JSON, where keys are lists of numbers."""
    servers = [
        {
            "server_type": _server_type(server.server_type),
            "can_verify": server.can_verify,
            "can_forward": server.can_forward,
            "peer_id": {"Ed25519PubKey": list(server.peer_id)},
        }
        for server in content.servers
    ]
    document = {"V0": {"bootstrap": {"servers": servers}, "registration_url": registration_url}}
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def invitation_link(origin: str, invitation: Invitation) -> str:
    """Write a link, for a web app at `origin`, such as `http://localhost:1440`."""
    app = origin.removesuffix("/")  # as addresses are copied out of a browser
    return app + _INVITATION_MARK + to_base64url(_INVITATION.encode(invitation))


def parse_invitation(link: str) -> Invitation:
    """Read an invitation from a link, or from what follows its `/#/i/`.

    Raises:
        CodecError: `invitation.size`, `text.base64`, or what is malformed within.
    """
    if len(link) > NEXTGRAPH_INVITATION_BYTES_MAX:
        text = f"an invitation has at most {NEXTGRAPH_INVITATION_BYTES_MAX} characters"
        raise CodecError("invitation.size", text)
    return _INVITATION.decode(from_base64url(link.rpartition(_INVITATION_MARK)[2]))


def _server_type(server_type: BrokerServerType) -> dict[str, Any]:
    match server_type:
        case Localhost(port=port):
            return {"Localhost": port}
        case Domain(name=name):
            return {"Domain": name}
        case BoxPrivate() | Public() | BoxPublicDyn():
            addresses = [_address(address) for address in server_type.addresses]
            return {type(server_type).__name__: addresses}


def _address(address: BindAddress) -> dict[str, Any]:
    kind = "IPv4" if isinstance(address.ip, IPv4) else "IPv6"
    return {"port": address.port, "ip": {kind: list(address.ip.address)}}
