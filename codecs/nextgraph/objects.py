"""Objects: content of any length as a tree of blocks, and back.

Content that fits in one block is one block. Else it is cut into leaves, above which nodes hold the
leaves' keys, level by level up to one root; a node has as many children as fit. Equal pieces are
the same block, which then stands in the tree several times and in the list of blocks once.

A commit's header is an object too. If its only block is small enough, its ciphertext is put into
the root of the commit's tree; else the root names it by id.

Source: nextgraph-rs 9ea23f60, engine/repo/src/object.rs.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from rillnode.codecs.errors import CodecError
from rillnode.codecs.nextgraph.blocks import (
    Block,
    BlockContent,
    HeaderId,
    InternalNode,
    block_id,
    open_block,
    seal_chunk,
)
from rillnode.codecs.nextgraph.limits import NEXTGRAPH_BLOCK_BYTES_MAX, NEXTGRAPH_TREE_DEPTH_MAX
from rillnode.codecs.nextgraph.types import ObjectRef

BLOCK_BYTES_STEP: Final = 4_096
"""Blocks are sized in multiples of this. Commits use blocks of one step, files the largest."""

_BLOCK_EXTRA_BYTES: Final = 12
"""Of a block's size, what is left for everything around a chunk's data."""

_CHILD_BYTES: Final = 66
"""A child in a node: id and key, each with its tag."""

_HEADER_ID_BYTES: Final = 66
_HEADER_EMBEDDED_BYTES: Final = 34


class Object(Struct):
    """An object's tree.

    Attributes:
        reference: id and key of the root.
        blocks: the tree's blocks, each once, the root first, and then those of its header
            unless this is within the root.
    """

    reference: ObjectRef
    blocks: list[Block]


def split_object(
    content: bytes,
    convergence_key: bytes,
    *,
    block_bytes: int = BLOCK_BYTES_STEP,
    header: bytes | None = None,
) -> Object:
    """Cut content into blocks.

    Args:
        content: what the object holds, encoded.
        convergence_key: see `overlays.convergence_key`.
        block_bytes: aimed at; rounded up to the next step, at most the largest.
        header: a commit's header, encoded as an object's content.
    """
    steps = max(1, -(-block_bytes // BLOCK_BYTES_STEP))
    size = min(steps * BLOCK_BYTES_STEP, NEXTGRAPH_BLOCK_BYTES_MAX)
    head = None if header is None else split_object(header, convergence_key, block_bytes=size)
    tree = _Tree(size, convergence_key)
    room = size - _BLOCK_EXTRA_BYTES - (_HEADER_ID_BYTES if head else 0)
    if len(content) <= room:
        root = tree.add(content, head=head)
    else:
        step, arity = size - _BLOCK_EXTRA_BYTES, room // _CHILD_BYTES
        level = [tree.add(content[at : at + step]) for at in range(0, len(content), step)]
        while len(level) > arity:
            cut = range(0, len(level), arity)
            level = [tree.add_node(level[at : at + arity]) for at in cut]
        root = tree.add_node(level, head=head)
    first = tree.blocks.pop(root.id)
    apart = head.blocks if head and isinstance(first.content.commit_header, HeaderId) else []
    return Object(root, [first, *tree.blocks.values(), *apart])


class _Tree:
    """Blocks of one object while it is made, by id."""

    def __init__(self, size: int, convergence_key: bytes) -> None:
        self._size = size
        self._convergence_key = convergence_key
        self.blocks: dict[bytes, Block] = {}

    def add_node(self, children: list[ObjectRef], head: Object | None = None) -> ObjectRef:
        """Add a node."""
        return self.add(InternalNode([child.key for child in children]), children, head)

    def add(
        self,
        chunk: InternalNode | bytes,
        children: Sequence[ObjectRef] = (),
        head: Object | None = None,
    ) -> ObjectRef:
        """Add a block; the root has the object's header."""
        sealed, key = seal_chunk(chunk, self._convergence_key)
        header = None if head is None else self._place_header(head, len(sealed), len(children))
        header_key = None if head is None else head.reference.key
        block = Block(header_key, BlockContent(header, [child.id for child in children], sealed))
        reference = ObjectRef(block_id(block), key)
        self.blocks[reference.id] = block
        return reference

    def _place_header(self, head: Object, sealed_bytes: int, children: int) -> HeaderId | bytes:
        header = head.blocks[0].content.encrypted_content
        room = self._size - _BLOCK_EXTRA_BYTES - _HEADER_EMBEDDED_BYTES - len(header)
        fits = room // _CHILD_BYTES >= children if children else room > sealed_bytes
        return header if len(head.blocks) == 1 and fits else HeaderId(head.reference.id)


def join_object(
    reference: ObjectRef, blocks: Mapping[bytes, Block], *, content_bytes_max: int
) -> bytes:
    """Put an object's content together.

    A block may stand in a tree any number of times, so a few blocks can claim endless content:
    each is opened once, and no more than `content_bytes_max` is put together.

    Raises:
        CodecError: `object.missing`, a block is not among `blocks`; `object.limit`, there is more
            content or a deeper tree than allowed; `object.tree`, a block of the tree adds
            nothing, or stands there with two keys; or as `open_block`.
    """
    opened: dict[bytes, tuple[bytes, InternalNode | bytes]] = {}
    pieces: list[bytes] = []
    size = 0
    waiting = [(reference, 0)]
    while waiting:
        wanted, depth = waiting.pop()
        if wanted.id not in opened:
            if (block := blocks.get(wanted.id)) is None:
                raise CodecError("object.missing", "a block of the object is missing")
            opened[wanted.id] = wanted.key, open_block(block, wanted)
        key, chunk = opened[wanted.id]
        if isinstance(chunk, bytes):
            pieces.append(chunk)
            size += len(chunk)
            empty = not chunk and depth > 0
        else:
            children = zip(blocks[wanted.id].content.children, chunk.keys, strict=True)
            below = [(ObjectRef(*child), depth + 1) for child in children]
            waiting += reversed(below)
            empty = not chunk.keys
        if empty or key != wanted.key:
            raise CodecError("object.tree", "the object's blocks are no tree")
        if size > content_bytes_max or depth > NEXTGRAPH_TREE_DEPTH_MAX:
            raise CodecError("object.limit", f"the object has more than {content_bytes_max} bytes")
    return b"".join(pieces)
