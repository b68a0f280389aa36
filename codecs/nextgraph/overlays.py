"""Ids and keys that are derived from a store: overlays, convergence keys, hidden authors.

Source: nextgraph-rs 9ea23f60, engine/repo/src/types.rs, store.rs and object.rs; every rule was
checked against what real clients sent.
"""

from typing import Final

from blake3 import blake3

from rillnode.codecs.bare import Codec
from rillnode.codecs.nextgraph.types import TAG, InnerOverlay, OuterOverlay, OverlayId

_OVERLAY: Final[Codec[OverlayId]] = Codec(OverlayId)


def repo_hash(repo_id: bytes) -> bytes:
    """The hash by which brokers know a repo; without the key's tag."""
    return blake3(repo_id).digest()


def outer_overlay(store_id: bytes) -> OuterOverlay:
    """The overlay of a store's readers."""
    return OuterOverlay(blake3(TAG + store_id).digest())


def inner_overlay(store_id: bytes, read_cap_secret: bytes) -> InnerOverlay:
    """The overlay of a store's writers.

    `read_cap_secret` is the key of the read cap of the store's overlay branch; of the private
    store, the key of the store's own read cap.
    """
    context = "NextGraph Overlay ReadCapSecret BLAKE3 key"
    return InnerOverlay(blake3(TAG + store_id, key=derive(context, TAG + read_cap_secret)).digest())


def convergence_key(store_id: bytes, secret: bytes) -> bytes:
    """The key under which a store's blocks are deduplicated.

    `secret` is the read cap secret as for the inner overlay; while a store is being made, the
    secret of its write cap, which for the private store is zeros.
    """
    return derive("NextGraph Data BLAKE3 key", store_id + secret)


def author_digest(user: bytes, overlay: OverlayId) -> bytes:
    """The digest that names a user as the author of commits in an overlay."""
    context = "NextGraph UserId Hash Overlay Id for Commit BLAKE3 key"
    return blake3(TAG + user, key=derive(context, _OVERLAY.encode(overlay))).digest()


def derive(context: str, material: bytes) -> bytes:
    """BLAKE3 in its key derivation mode: 32 bytes."""
    return blake3(material, derive_key_context=context).digest()
