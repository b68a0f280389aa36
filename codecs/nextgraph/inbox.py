"""Inbox messages: sealed letters from one store's owner to another's.

They are of the development version of 2026-04, not of the clients published by then.

Source: nextgraph-rs 9ea23f60, engine/net/src/types.rs.
"""

from typing import Annotated, Final

from msgspec import Struct

from rillnode.codecs.bare import U32, Codec
from rillnode.codecs.keys import Identity, verify
from rillnode.codecs.nextgraph.blocks import Block
from rillnode.codecs.nextgraph.bootstrap import BrokerServerType
from rillnode.codecs.nextgraph.types import V0, OverlayId, PublicKey, Signature


class InboxBody(Struct):
    """The part that a sender may sign; `msg` is a sealed box to the inbox's key in X25519 form."""

    to_overlay: OverlayId
    to_inbox: PublicKey
    from_overlay: OverlayId | None
    from_inbox: PublicKey | None
    msg: bytes


class InboxMessage(Struct):
    """A letter, and blocks that go with it; anonymous without a signature."""

    body: InboxBody
    sig: Signature | None
    blocks: list[Annotated[Block, V0]]


class LocatedServers(Struct):
    """The servers of a broker."""

    servers: list[BrokerServerType]
    version: U32


class LocatedBroker(Struct):
    """A broker, and where it says that it is.

    Attributes:
        content: where it is.
        peer_id: its public key.
        sig: its signature of that; None: it has not signed it.
    """

    content: LocatedServers
    peer_id: PublicKey
    sig: Signature | None


Locator = Annotated[list[LocatedBroker], V0]
"""Brokers that a message may be for."""

LETTER: Final[Codec[InboxMessage]] = Codec(InboxMessage)
_BODY: Final[Codec[InboxBody]] = Codec(InboxBody)


def sign_inbox_message(body: InboxBody, sender: Identity) -> bytes:
    """Sign what a message says, with the key of the inbox that it is from."""
    return sender.sign(_BODY.encode(body))


def inbox_signature_holds(message: InboxMessage) -> bool:
    """Whether a message is anonymous, or signed with the key of the inbox that it is from."""
    body = message.body
    if message.sig is None or body.from_inbox is None:
        return message.sig is None and body.from_inbox is None
    return verify(body.from_inbox, _BODY.encode(body), message.sig)
