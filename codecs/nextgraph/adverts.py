"""Adverts: signed statements of who may publish on a topic, and of where a peer is.

Source: nextgraph-rs 9ea23f60, engine/net/src/types.rs.
"""

from enum import IntEnum
from typing import Annotated, Final

from msgspec import Struct

from rillnode.codecs.bare import U16, U32, Codec, Tags
from rillnode.codecs.keys import Identity, verify
from rillnode.codecs.nextgraph.results import NextGraphError, ProtocolCode
from rillnode.codecs.nextgraph.types import IP, V0, PeerId, PublicKey, Signature


class PublisherAdvertContent(Struct):
    """A topic, and the broker on which its owner publishes."""

    topic: PublicKey
    peer: PublicKey


class PublisherAdvert(Struct):
    """The right to publish on a topic through a broker, signed with the topic's key."""

    content: PublisherAdvertContent
    sig: Signature


class Transport(IntEnum):
    """A kind of transport that reaches a peer."""

    WS = 0
    QUIC = 1
    LOCAL = 2


class IPTransport(Struct):
    """An address of a peer."""

    ip: IP
    port: U16
    protocol: Transport


class PeerAdvertContent(Struct):
    """A peer's statement about itself."""

    peer: PeerId
    forwarded_by: PublicKey | None
    address: list[Annotated[IPTransport, Tags(0)]]
    version: U32
    metadata: bytes


class PeerAdvert(Struct):
    """A peer's signed advert of its place. Brokers of today read past it."""

    content: PeerAdvertContent
    sig: Signature


WirePeerAdvert = Annotated[PeerAdvert, V0]
WirePublisherAdvert = Annotated[PublisherAdvert, V0]

_PUBLISHER: Final[Codec[PublisherAdvertContent]] = Codec(PublisherAdvertContent)


def sign_publisher_advert(topic: Identity, broker: bytes) -> PublisherAdvert:
    """State that the topic's owner publishes through a broker."""
    content = PublisherAdvertContent(topic.public_key, broker)
    return PublisherAdvert(content, topic.sign(_PUBLISHER.encode(content)))


def check_publisher_advert(advert: PublisherAdvert, broker: bytes) -> None:
    """Check that an advert is for this broker and from the topic's owner.

    Raises:
        NextGraphError: it is not; the connection ends with close code 4017 or 4005.
    """
    content = advert.content
    if content.peer != broker:
        text = "the publisher's advert is for another broker"
        raise NextGraphError(ProtocolCode.INVALID_PUBLISHER_ADVERT, text)
    if not verify(content.topic, _PUBLISHER.encode(content), advert.sig):
        text = "the publisher's advert is not signed by the topic's owner"
        raise NextGraphError(ProtocolCode.INVALID_SIGNATURE, text)
