"""Blocks: the sealed pieces that objects, and so commits and files, are stored and sent in.

    Block        = V0 { commit_header_key: optional<SymKey>, content: BlockContent }
    BlockContent = V0 { commit_header: union, children: list<BlockId>, encrypted_content: data }

A block's id is the BLAKE3 of its content: whoever keeps a block can check it without any key, and
the same content under the same convergence key is the same block. The key of a commit's header
travels beside the content and is not covered by the id.

The sealed part is a chunk: data, or the keys of the children. Its key is the keyed BLAKE3 of the
chunk under the store's convergence key, and so is used for one plaintext only: the nonce is 0.

Source: nextgraph-rs 9ea23f60, engine/repo/src/block.rs and object.rs.
"""

from typing import Annotated, Final

from blake3 import blake3
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from msgspec import Struct

from rillnode.codecs.bare import Codec, Tags
from rillnode.codecs.errors import CodecError
from rillnode.codecs.nextgraph.types import (
    KEY_BYTES,
    TAG,
    V0,
    BlockId,
    ObjectId,
    ObjectRef,
    SymmetricKey,
)

_ZERO_NONCE: Final = bytes(12)


class HeaderId(Struct):
    """A commit header that is an object of its own."""

    id: ObjectId


class RandomAccess(Struct):
    """Stands where a commit's header would, in blocks of files that are read in parts."""


CommitHeaderObject = Annotated[HeaderId | bytes | RandomAccess | None, Tags(0, 1, 3, 2)]
"""Where a commit's header is: elsewhere, sealed within (bytes), or there is none."""


class BlockContent(Struct):
    """The part of a block that its id covers."""

    commit_header: CommitHeaderObject
    children: list[BlockId]
    encrypted_content: bytes


class Block(Struct):
    """A block.

    Attributes:
        commit_header_key: opens the commit header that the block holds or names; None: it has none.
        content: the part that the block's id covers.
    """

    commit_header_key: SymmetricKey | None
    content: Annotated[BlockContent, V0]


class InternalNode(Struct):
    """A chunk of a tree: the keys of the children, in their order."""

    keys: list[SymmetricKey]

    def __repr__(self) -> str:
        return "InternalNode(...)"


Chunk = Annotated[InternalNode | bytes, Tags(0, 1)]
"""What is sealed in a block: keys, or data."""

BLOCK: Final[Codec[Block]] = Codec(Annotated[Block, V0])

_START: Final = len(TAG) + 1
_START_WITH_KEY: Final = _START + len(TAG) + KEY_BYTES
"""Where the content begins in an encoded block, behind the version and what may be there or not."""

_CONTENT: Final[Codec[BlockContent]] = Codec(Annotated[BlockContent, V0])
_CHUNK: Final[Codec[InternalNode | bytes]] = Codec(Chunk, serde=True)


def block_id(block: Block) -> bytes:
    """The block's id: 32 bytes."""
    return blake3(_CONTENT.encode(block.content)).digest()


def encode_block(block: Block) -> tuple[bytes, bytes]:
    """The block's id, and the block; what the id covers is encoded once, and stands last."""
    encoded = BLOCK.encode(block)
    start = _START if block.commit_header_key is None else _START_WITH_KEY
    return blake3(encoded[start:]).digest(), encoded


def seal_chunk(chunk: InternalNode | bytes, convergence_key: bytes) -> tuple[bytes, bytes]:
    """Encrypt a chunk; return the ciphertext and its key."""
    plaintext = _CHUNK.encode(chunk)
    key = blake3(plaintext, key=convergence_key).digest()
    return chacha20(key, _ZERO_NONCE, plaintext), key


def open_chunk(encrypted_content: bytes, key: bytes) -> InternalNode | bytes:
    """Decrypt a chunk. It is not authenticated: what a foreign key makes of it may be a chunk.

    Raises:
        CodecError: what the key makes of it is no chunk.
    """
    return _CHUNK.decode(chacha20(key, _ZERO_NONCE, encrypted_content))


def open_block(block: Block, reference: ObjectRef) -> InternalNode | bytes:
    """Decrypt the block that was asked for.

    Raises:
        CodecError: `block.id`, it is another one; `block.children`, a node without a key for each
            child, or data with children; or as `open_chunk`.
    """
    if block_id(block) != reference.id:
        raise CodecError("block.id", "the block is not the one of this id")
    return open_content(block.content, reference.key)


def open_content(content: BlockContent, key: bytes) -> InternalNode | bytes:
    """Decrypt a block of which only the key is known.

    Raises:
        CodecError: `block.children`; or as `open_chunk`.
    """
    chunk = open_chunk(content.encrypted_content, key)
    keys = len(chunk.keys) if isinstance(chunk, InternalNode) else 0
    if keys != len(content.children):
        raise CodecError("block.children", "the block does not have one key for each child")
    return chunk


def chacha20(key: bytes, nonce: bytes, data: bytes) -> bytes:
    """ChaCha20 of RFC 8439 from block counter 0 on, with a nonce of 12 bytes; its own inverse."""
    return Cipher(ChaCha20(key, bytes(4) + nonce), mode=None).encryptor().update(data)
