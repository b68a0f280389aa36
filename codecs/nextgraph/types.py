"""Types that every part of the protocol shares: digests, keys, peers, overlays, addresses.

NextGraph writes BARE with serde: an enum is a union, and what the Rust code calls `X::V0(..)` is a
union of one member, here `Annotated[X, V0]`, which costs a byte on the wire and nothing in Python.
Likewise digests, keys and signatures are plain bytes here, and a tag and these bytes on the wire.
Keys of the X25519 kind have a tag in the Rust code, but no message carries one: they are refused.

Nothing changes a message after it was made. Ids of peers and overlays are frozen, since tables are
kept by them.

Source: nextgraph-rs 9ea23f60, engine/repo/src/types.rs and engine/net/src/types.rs.
"""

from typing import Annotated, Final

from msgspec import Struct

from rillnode.codecs.bare import U16, Length, Tags

KEY_BYTES: Final = 32
DIGEST_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64

V0: Final = Tags(0)
"""Marks the only version that there is of a type."""

Digest = Annotated[bytes, Length(DIGEST_BYTES), Tags(0)]
"""BLAKE3, 32 bytes."""

BlockId = Digest
ObjectId = Digest
RepoHash = Digest

SymmetricKey = Annotated[bytes, Length(KEY_BYTES), Tags(0)]
"""ChaCha20, 32 bytes; also the secrets of invitations."""

PublicKey = Annotated[bytes, Length(KEY_BYTES), Tags(0)]
"""Ed25519, 32 bytes: topics, users, repos, clients, brokers."""

Signature = Annotated[bytes, Length(SIGNATURE_BYTES), Tags(0)]
"""Ed25519, 64 bytes."""

TAG: Final = b"\x00"
"""What stands before a digest or key on the wire, and in most of what is hashed."""


class DirectPeer(Struct, frozen=True):
    """A broker."""

    key: PublicKey


class ForwardedPeer(Struct, frozen=True):
    """A client that speaks through its broker."""

    key: PublicKey


class ObfuscatedPeer(Struct, frozen=True):
    """A client whose key its broker hides."""

    digest: Digest


PeerId = DirectPeer | ForwardedPeer | ObfuscatedPeer


class OuterOverlay(Struct, frozen=True):
    """The overlay of readers.

    Attributes:
        id: the overlay's digest, without a tag.
    """

    id: Annotated[bytes, Length(DIGEST_BYTES)]


class InnerOverlay(Struct, frozen=True):
    """The overlay of writers.

    Attributes:
        id: the overlay's digest, without a tag.
    """

    id: Annotated[bytes, Length(DIGEST_BYTES)]


class GlobalOverlay(Struct, frozen=True):
    """The overlay of all."""


OverlayId = OuterOverlay | InnerOverlay | GlobalOverlay

NIL_OVERLAY: Final = OuterOverlay(bytes(DIGEST_BYTES))
"""Stands where a message concerns no overlay: in responses, and wallet and inbox requests."""


class ReadOnlyAccess(Struct):
    """The repo is read on its outer overlay.

    Attributes:
        overlay: that overlay.
    """

    overlay: OverlayId


class ReadWriteAccess(Struct):
    """The repo is written on its inner overlay, and read by others on the outer one.

    Attributes:
        inner: the overlay of writers.
        outer: the overlay of readers.
    """

    inner: OverlayId
    outer: OverlayId


class WriteOnlyAccess(Struct):
    """The repo is written on its inner overlay, and has no outer one.

    Attributes:
        overlay: the inner overlay.
    """

    overlay: OverlayId


OverlayAccess = ReadOnlyAccess | ReadWriteAccess | WriteOnlyAccess


class ObjectRef(Struct):
    """An object or block, and the key that opens it; also called a read cap.

    Attributes:
        id: the digest of the object's root block.
        key: the key of that block.
    """

    id: ObjectId
    key: SymmetricKey


class IPv4(Struct, frozen=True):
    """Four bytes."""

    address: Annotated[bytes, Length(4)]


class IPv6(Struct, frozen=True):
    """Sixteen bytes."""

    address: Annotated[bytes, Length(16)]


IP = IPv4 | IPv6


class BindAddress(Struct, frozen=True):
    """The address that a server listens on."""

    port: U16
    ip: IP
