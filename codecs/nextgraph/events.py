"""Events: commits on their way to a topic's subscribers.

    Event        = V0 { content: EventContent, topic_sig: Sig, peer_sig: Sig }
    EventContent = { topic: PubKey, publisher: PeerId, seq: u64, blocks: list<Block>,
                     file_ids: list<BlockId>, key: data }

Both signatures are over the encoded content, without a version byte: the topic's proves the right
to write, the publisher's says who did. The first block is the commit's root. `key` is that root's
key, sealed so that only who has the branch's read cap can open it.

Source: nextgraph-rs 9ea23f60, engine/repo/src/event.rs.
"""

from typing import Annotated, Final

from msgspec import Struct

from rillnode.codecs.bare import U64, Codec
from rillnode.codecs.keys import Identity, verify
from rillnode.codecs.nextgraph.blocks import Block, chacha20
from rillnode.codecs.nextgraph.overlays import derive
from rillnode.codecs.nextgraph.results import NextGraphError, ProtocolCode
from rillnode.codecs.nextgraph.types import (
    SIGNATURE_BYTES,
    TAG,
    V0,
    BlockId,
    ForwardedPeer,
    PeerId,
    PublicKey,
    Signature,
)

BLOCKS_MIN: Final = 2
"""Blocks of an event: a commit and its body at least."""


class EventContent(Struct):
    """The part of an event that both signatures cover."""

    topic: PublicKey
    publisher: PeerId
    seq: U64
    blocks: list[Annotated[Block, V0]]
    file_ids: list[BlockId]
    key: bytes


class Event(Struct):
    """An event; what is decoded and encoded again is the same bytes.

    Attributes:
        content: what is signed: topic, number, blocks.
        topic_sig: signature of who may write to the topic.
        peer_sig: signature of the client that published it.
    """

    content: EventContent
    topic_sig: Signature
    peer_sig: Signature


EVENT: Final[Codec[Event]] = Codec(Annotated[Event, V0])
EVENT_CONTENT: Final[Codec[EventContent]] = Codec(EventContent)

_SIGNED: Final = slice(len(TAG), -2 * (len(TAG) + SIGNATURE_BYTES))
"""The content in an encoded event: between its version and the two signatures."""


def sign_event(content: EventContent, topic: Identity, publisher: Identity) -> Event:
    """Sign an event as who may write to the topic, and as the client that publishes."""
    signed = EVENT_CONTENT.encode(content)
    return Event(content, topic.sign(signed), publisher.sign(signed))


def check_event(event: Event) -> tuple[bytes, bytes]:
    """Check what a broker can; return the publisher's key, and the event as it is stored.

    Whether the publisher is the client on whose connection the event came is not known here.

    Raises:
        NextGraphError: the publisher is no client behind a broker, there are fewer than two
            blocks, or a signature does not hold.
    """
    content = event.content
    publisher = content.publisher
    if not isinstance(publisher, ForwardedPeer):
        raise _refused("the event's publisher is no client of a broker")
    if len(content.blocks) < BLOCKS_MIN:
        raise _refused(f"the event has fewer than {BLOCKS_MIN} blocks")
    encoded = EVENT.encode(event)
    signed = encoded[_SIGNED]
    if not verify(content.topic, signed, event.topic_sig):
        raise _refused("the event's topic signature does not hold")
    if not verify(publisher.key, signed, event.peer_sig):
        raise _refused("the event's publisher signature does not hold")
    return publisher.key, encoded


def crypt_event_key(
    key: bytes, *, repo_id: bytes, branch_id: bytes, read_cap_key: bytes, publisher: bytes, seq: int
) -> bytes:
    """Seal the key of an event's commit, or open a sealed one.

    Args:
        key: 32 bytes, sealed or open.
        repo_id: the repo that the branch is of.
        branch_id: the branch whose topic this is.
        read_cap_key: key part of the branch's read cap.
        publisher: Ed25519 key of the client that publishes.
        seq: the event's number among the publisher's.
    """
    material = repo_id + branch_id + read_cap_key + publisher
    stream = derive("NextGraph Event Commit ObjectKey ChaCha20 key", material)
    return chacha20(stream, seq.to_bytes(8, "little") + bytes(4), key)


def _refused(text: str) -> NextGraphError:
    return NextGraphError(ProtocolCode.INVALID_SIGNATURE, text)
