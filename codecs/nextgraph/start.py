"""Defines the messages that open a connection: probes, greetings, proofs.

Source: nextgraph-rs 9ea23f60, engine/net/src/types.rs; every message but those for relays and core
brokers was seen from real clients.
"""

from enum import IntEnum
from typing import Annotated, Final

from msgspec import Struct

from rillnode.codecs.bare import U16, U64, Codec, Length, Tags
from rillnode.codecs.keys import Identity, verify
from rillnode.codecs.nextgraph.admin import AdminRequest
from rillnode.codecs.nextgraph.external import ExtRequest
from rillnode.codecs.nextgraph.types import V0, BindAddress, PublicKey, Signature

PROBE_MAGIC: Final = b"NG"
PROBE_RESPONSE_MAGIC: Final = b"YXNK"
CODE_BYTES: Final = 32


class Probe(Struct):
    """Ask whether a broker is there."""

    magic: Annotated[bytes, Length(2)] = PROBE_MAGIC


class ProbeResponse(Struct):
    """A broker's answer to a probe; its id is for those who may discover it."""

    magic: bytes
    peer_id: PublicKey | None


class Relay(Struct):
    """Ask to be relayed to a broker."""

    address: BindAddress


class RelayResponse(Struct):
    """The answer to a request to be relayed."""

    magic: bytes
    result: U16


class Tunnel(Struct):
    """Ask a broker to take a peer that is relayed to it."""

    magic: bytes
    remote_addr: BindAddress


class TunnelResponse(Struct):
    """A broker's answer about a relayed peer."""

    magic: bytes
    result: U16


class Noise(Struct):
    """A handshake message of Noise; after the handshake, anything, sealed."""

    data: bytes


class ClientHello(Struct):
    """A client's start: the handshake's third message, or none within one process."""

    noise: Annotated[Annotated[Noise, V0] | None, Tags(0, 1)]


class CoreHello(Struct):
    """A core broker's start."""

    noise: Annotated[Noise, V0]
    payload: bytes


class ClientType(IntEnum):
    """The kind of program that a client is."""

    WEB = 0
    NATIVE_IOS = 1
    NATIVE_ANDROID = 2
    NATIVE_MAC_OS = 3
    NATIVE_LINUX = 4
    NATIVE_WIN = 5
    NATIVE_SERVICE = 6
    NODE_SERVICE = 7
    VERIFIER = 8
    VERIFIER_LOCAL = 9
    BOX = 10
    STICK = 11
    WALLET_MASTER = 12
    CLIENT_BROKER = 13
    CLI = 14


class ClientInfo(Struct):
    """A client's statement about itself; `details` is JSON, the timestamps are of commits' kind."""

    client_type: ClientType
    details: str
    version: str
    timestamp_install: U64
    timestamp_updated: U64


class AppHello(Struct):
    """An app's start, whose verifier the broker would run: the handshake's third message."""

    noise: Annotated[Noise, V0]
    user: PublicKey | None
    info: Annotated[ClientInfo, V0]


class AppResponse(Struct):
    """The admission of an app; `result` is a `results.ProtocolCode`."""

    result: U16


class Start(Struct):
    """The first words of a protocol."""

    content: (
        ClientHello
        | Annotated[ExtRequest, V0]
        | CoreHello
        | Annotated[AdminRequest, V0]
        | AppHello
        | AppResponse
    )


class ServerHello(Struct):
    """A broker's greeting; the nonce is to be signed."""

    nonce: bytes


class Registration(Struct):
    """A wish to be registered, with the code of an invitation or without."""

    code: Annotated[bytes, Length(CODE_BYTES)] | None


class ClientAuthContent(Struct):
    """The part of a client's proof that it signs.

    Attributes:
        user: who it speaks for.
        client: the client's own key, of the user's wallet; not that of the connection.
        info: what it is.
        registration: None says that the user is known.
        nonce: the broker's.
    """

    user: PublicKey
    client: PublicKey
    info: ClientInfo
    registration: Registration | None
    nonce: bytes


class ClientAuth(Struct):
    """The proof, signed with the user's and with the client's key."""

    content: ClientAuthContent
    sig: Signature
    client_sig: Signature


class AuthResult(Struct):
    """The admission of a client; `result` is a `results.ProtocolCode`."""

    result: U16
    metadata: bytes = b""


_AUTH: Final[Codec[ClientAuthContent]] = Codec(ClientAuthContent)


def sign_client_auth(content: ClientAuthContent, user: Identity, client: Identity) -> ClientAuth:
    """Sign with the keys that the content names."""
    signed = _AUTH.encode(content)
    return ClientAuth(content, user.sign(signed), client.sign(signed))


def client_auth_holds(auth: ClientAuth) -> bool:
    """Whether both signatures hold; the nonce is the caller's to compare."""
    signed = _AUTH.encode(auth.content)
    return verify(auth.content.user, signed, auth.sig) and verify(
        auth.content.client, signed, auth.client_sig
    )
