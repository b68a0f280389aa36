"""Defines the requests of clients to their broker.

The first 16 are of every client; `InboxRegister` and `InboxPost` of the development version of
2026-04, not of the clients published by then. All have a version byte but these two and `Event`,
which has it within.

Source: the Client Protocol's specification; nextgraph-rs 9ea23f60, engine/net/src/types.rs.
"""

from typing import Annotated, Final

from msgspec import Struct

from rillnode.codecs.bare import I64, U16, Length
from rillnode.codecs.keys import Identity, verify
from rillnode.codecs.nextgraph.adverts import WirePeerAdvert, WirePublisherAdvert
from rillnode.codecs.nextgraph.blocks import Block
from rillnode.codecs.nextgraph.bloom import BloomFilter
from rillnode.codecs.nextgraph.events import Event
from rillnode.codecs.nextgraph.inbox import InboxMessage, Locator
from rillnode.codecs.nextgraph.types import (
    V0,
    BlockId,
    ObjectId,
    OverlayAccess,
    OverlayId,
    PublicKey,
    RepoHash,
    Signature,
    SymmetricKey,
)

CHALLENGE_BYTES: Final = 32


class OpenRepo(Struct):
    """Subscribe to a repo's topics while the connection lasts."""

    hash: RepoHash
    overlay: OverlayAccess
    peers: list[WirePeerAdvert]
    max_peer_count: U16
    ro_topics: list[PublicKey]
    rw_topics: list[WirePublisherAdvert]


class PinRepo(Struct):
    """Subscribe to a repo's topics, and keep it; answered with RepoOpened."""

    hash: RepoHash
    overlay: OverlayAccess
    overlay_root_topic: PublicKey | None
    expose_outer: bool
    peers: list[WirePeerAdvert]
    max_peer_count: U16
    ro_topics: list[PublicKey]
    rw_topics: list[WirePublisherAdvert]


class UnpinRepo(Struct):
    """Keep a repo no longer."""

    hash: RepoHash


class RepoPinStatusReq(Struct):
    """Ask whether a repo is pinned; answered with RepoPinStatus, or result 3."""

    hash: RepoHash


class TopicSub(Struct):
    """Subscribe to a topic of a repo; answered with TopicSubRes."""

    topic: PublicKey
    repo_hash: RepoHash
    publisher: WirePublisherAdvert | None


class TopicUnsub(Struct):
    """Unsubscribe from a topic of a repo."""

    topic: PublicKey
    repo_hash: RepoHash


class BlocksExist(Struct):
    """Ask which blocks the broker has; answered with BlocksFound."""

    blocks: list[BlockId]


class BlocksGet(Struct):
    """Ask for blocks; answered with a stream of them."""

    ids: list[BlockId]
    include_children: bool
    topic: PublicKey | None


class CommitGet(Struct):
    """Ask for the blocks of a commit as its event had them; answered with a stream of them."""

    id: ObjectId
    topic: PublicKey | None


class TopicSyncReq(Struct):
    """Ask for a topic's events that the client has not.

    Answered with a stream of TopicSyncRes, parents before children.

    Attributes:
        topic: the topic.
        known_heads: the client has these and all before them.
        target_heads: up to these; the broker's heads where there are none.
        known_commits: commits that the client has besides.
    """

    topic: PublicKey
    known_heads: list[ObjectId]
    target_heads: list[ObjectId]
    known_commits: Annotated[BloomFilter, V0] | None


class ObjectPin(Struct):
    """Keep an object."""

    id: ObjectId


class ObjectUnpin(Struct):
    """Keep an object no longer."""

    id: ObjectId


class ObjectDel(Struct):
    """Delete an object."""

    id: ObjectId


class BlocksPut(Struct):
    """Store blocks."""

    blocks: list[Annotated[Block, V0]]


class WalletPutExport(Struct):
    """Leave a wallet for another device to fetch, or hand it to one that waits."""

    wallet: bytes
    rendezvous_id: SymmetricKey
    is_rendezvous: bool


class InboxRegister(Struct):
    """Ask for the messages to an inbox, proving to have its key by signing a challenge."""

    inbox_id: PublicKey
    overlay: OverlayId
    challenge: Annotated[bytes, Length(CHALLENGE_BYTES)]
    sig: Signature


class InboxPost(Struct):
    """Leave a message in an inbox."""

    msg: InboxMessage
    to_broker: Locator | None


RequestContent = (
    Annotated[OpenRepo, V0]
    | Annotated[PinRepo, V0]
    | Annotated[UnpinRepo, V0]
    | Annotated[RepoPinStatusReq, V0]
    | Annotated[TopicSub, V0]
    | Annotated[TopicUnsub, V0]
    | Annotated[BlocksExist, V0]
    | Annotated[BlocksGet, V0]
    | Annotated[CommitGet, V0]
    | Annotated[TopicSyncReq, V0]
    | Annotated[ObjectPin, V0]
    | Annotated[ObjectUnpin, V0]
    | Annotated[ObjectDel, V0]
    | Annotated[BlocksPut, V0]
    | Annotated[Event, V0]
    | Annotated[WalletPutExport, V0]
    | InboxRegister
    | InboxPost
)
"""What is asked; `Event` is the request called PublishEvent."""


class ClientRequest(Struct):
    """A request; clients number theirs from 1 on, and a broker would from -1 down."""

    id: I64
    content: RequestContent


def sign_inbox_register(inbox: Identity, overlay: OverlayId, challenge: bytes) -> InboxRegister:
    """Ask for the messages to an inbox, whose key this is."""
    return InboxRegister(inbox.public_key, overlay, challenge, inbox.sign(challenge))


def inbox_register_holds(request: InboxRegister) -> bool:
    """Whether who registers an inbox has its key."""
    return verify(request.inbox_id, request.challenge, request.sig)
