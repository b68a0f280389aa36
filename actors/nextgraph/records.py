"""Defines the named values that the broker keeps beside the topics' logs.

    nextgraph/user/USER                        -> User
    nextgraph/invitation/CODE                  -> InvitationRecord
    nextgraph/overlay/OVERLAY                  -> Overlay, by the inner overlay's id
    nextgraph/outer/OUTER                      -> id of the inner overlay that exposes it
    nextgraph/pin/OVERLAY/USER/SIDE/REPO       -> Pin; SIDE is "inner" or "outer"
    nextgraph/published/OVERLAY/BLOCK          -> topic | block, of a block that an event brought
    nextgraph/block/OVERLAY/BLOCK              -> user | block, of a block that was put
    nextgraph/parent/OVERLAY/CHILD/BLOCK       -> nothing; a block that was put names a child
    nextgraph/object/OVERLAY/OBJECT/USER       -> nothing; a user has pinned an object
    nextgraph/bytes/OVERLAY/USER               -> bytes of blocks that a user has put, u64
    nextgraph/held/OVERLAY                     -> 16 random bytes: what holds blocks has changed
    nextgraph/inbox/OVERLAY/INBOX              -> user that has registered the inbox
    nextgraph/letters/OVERLAY/INBOX            -> Letters
    nextgraph/letter/OVERLAY/INBOX/NUMBER      -> InboxMessage
    nextgraph/wallet/ID                        -> Wallet, on its way between devices
    nextgraph/rendezvous/ID                    -> Wallet without content: somebody waits for one

Ids are 64 hexadecimal digits; an inbox's overlay has its kind before them. Structs are written as
MessagePack; fields of a later version are passed over. A topic's commits are not among these: they
are secondary keys of its log, written and trimmed with the events that they lead to.

What is written at once, or follows from each other, is kept in one place of a shared store: all of
an overlay's, and all that is of no overlay (`place_of`).
"""

from collections.abc import Iterable
from typing import Any, Final, Literal, TypeVar

import msgspec

from rillnode.actors.nextgraph.names import PREFIX
from rillnode.codecs.nextgraph.admin import (
    AdminCode,
    InvitationCode,
    MultiCode,
    SetupCode,
    UniqueCode,
)
from rillnode.codecs.nextgraph.blocks import BLOCK, Block, encode_block
from rillnode.codecs.nextgraph.types import KEY_BYTES, OuterOverlay, OverlayId

Side = Literal["inner", "outer"]

RepoKey = tuple[Side, bytes]
"""A repo, and the side on which it is kept."""

InvitationKind = Literal["unique", "multi", "admin", "setup"]

_CODES: Final[dict[InvitationKind, type[InvitationCode]]] = {
    "unique": UniqueCode,
    "multi": MultiCode,
    "admin": AdminCode,
    "setup": SetupCode,
}
_KINDS: Final[dict[type[InvitationCode], InvitationKind]] = {
    made: kind for kind, made in _CODES.items()
}


class User(msgspec.Struct, frozen=True, kw_only=True):
    """A registered user; `registered_at` is in milliseconds since 1970."""

    admin: bool = False
    registered_at: int = 0


class InvitationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An invitation; `expires_at` is in milliseconds since 1970, 0 is never."""

    kind: InvitationKind
    expires_at: int = 0
    memo: str | None = None

    def code(self, secret: bytes) -> InvitationCode:
        """The invitation's code as messages hold it."""
        return _CODES[self.kind](secret)


class Overlay(msgspec.Struct, frozen=True, kw_only=True):
    """An overlay that has been pinned or opened.

    Attributes:
        outer: id of its outer overlay; None of private and dialog overlays.
        root_topic: where refreshes of the overlay are announced.
    """

    outer: bytes | None = None
    root_topic: bytes | None = None


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """A user's pin of a repo.

    Attributes:
        expose_outer: the user asked that the outer overlay may be read.
        topics: topic -> whether the user publishes on it.
    """

    expose_outer: bool = False
    topics: dict[bytes, bool] = {}


class Letters(msgspec.Struct, frozen=True, kw_only=True):
    """The messages that wait in an inbox: numbers from `first` up to `next`, and their bytes.

    Attributes:
        changes: how often they have changed: numbers may be given again.
    """

    first: int = 0
    next: int = 0
    size: int = 0
    changes: int = 0


class Wallet(msgspec.Struct, frozen=True, kw_only=True):
    """A wallet that was left, sealed; `expires_at` is in milliseconds since 1970."""

    expires_at: int
    content: bytes


Stored = TypeVar("Stored", User, InvitationRecord, Overlay, Pin, Letters, Wallet)


def pack(value: User | InvitationRecord | Overlay | Pin | Letters | Wallet) -> bytes:
    """Write a struct as it is stored."""
    return msgspec.msgpack.encode(value)


def unpack(value: bytes, kind: type[Stored]) -> Stored:
    """Read a struct."""
    return msgspec.msgpack.decode(value, type=kind)


def kind_of(code: InvitationCode) -> InvitationKind:
    """Which kind of invitation a code is of."""
    return _KINDS[type(code)]


def side_of(overlay: OverlayId) -> Side:
    """On which side of a store an overlay is."""
    return "outer" if isinstance(overlay, OuterOverlay) else "inner"


def name_of(family: str, *parts: bytes | str) -> str:
    """A record's name; or what a list's names begin with, where the last part is empty."""
    texts: Iterable[Any] = (part.hex() if isinstance(part, bytes) else part for part in parts)
    return "/".join((f"{PREFIX}{family}", *texts))


def pack_block(key: bytes, block: Block) -> tuple[bytes, bytes]:
    """A block's id, and what is stored: the block behind the topic or user that it is from."""
    one, encoded = encode_block(block)
    return one, key + encoded


def unpack_block(value: bytes) -> tuple[bytes, Block]:
    """Read a stored block: where it is from, and itself."""
    return value[:KEY_BYTES], BLOCK.decode(value[KEY_BYTES:])
