from collections.abc import Sequence
from random import Random

import pytest

from nextgraph_support import CONVERGENCE_KEY
from rillnode.codecs.errors import CodecError
from rillnode.codecs.nextgraph.blocks import (
    BLOCK,
    Block,
    BlockContent,
    HeaderId,
    InternalNode,
    block_id,
    seal_chunk,
)
from rillnode.codecs.nextgraph.objects import Object, join_object, split_object
from rillnode.codecs.nextgraph.types import ObjectRef

ROOM = 4_096 - 12
ARITY = ROOM // 66


def noise(size: int) -> bytes:
    return Random(size).randbytes(size)


def by_id(blocks: Sequence[Block]) -> dict[bytes, Block]:
    return {block_id(block): block for block in blocks}


def joined(made: Object, size: int) -> bytes:
    return join_object(made.reference, by_id(made.blocks), content_bytes_max=size)


@pytest.mark.parametrize(
    ("size", "blocks"),
    [
        (0, 1),
        (1, 1),
        (ROOM, 1),
        (ROOM + 1, 3),
        (2 * ROOM, 3),
        (ARITY * ROOM, ARITY + 1),
        (ARITY * ROOM + 1, ARITY + 1 + 3),
    ],
)
def test_content_is_cut_and_put_together(size: int, blocks: int) -> None:
    content = noise(size)
    made = split_object(content, CONVERGENCE_KEY)
    assert len(made.blocks) == blocks
    assert block_id(made.blocks[0]) == made.reference.id
    assert joined(made, size) == content
    assert max(len(BLOCK.encode(block)) for block in made.blocks) <= 4_096


def test_equal_pieces_are_one_block() -> None:
    content = bytes(ARITY * ARITY * ROOM + ROOM)
    made = split_object(content, CONVERGENCE_KEY)
    # A leaf, a full node over leaves, one over nodes; a node over the last leaf, one over it.
    assert len(made.blocks) == 6
    assert joined(made, len(content)) == content


@pytest.mark.parametrize(
    ("asked", "given"),
    [(0, 4_096), (1, 4_096), (4_097, 8_192), (1_048_576, 1_048_576), (9_999_999, 1_048_576)],
)
def test_block_sizes_are_steps(asked: int, given: int) -> None:
    for size, blocks in ((given - 12, 1), (given - 11, 3)):
        made = split_object(noise(size), CONVERGENCE_KEY, block_bytes=asked)
        assert len(made.blocks) == blocks


def test_a_header_is_within_the_root_while_it_fits() -> None:
    content = noise(300)
    # What is left of a block: 12 and 34 bytes less, the data with tag and length, and one more.
    room = 4_096 - 12 - 34 - (300 + 3) - 1
    small, large = noise(room - 3), noise(room - 2)
    within = split_object(content, CONVERGENCE_KEY, header=small)
    assert len(within.blocks) == 1
    assert isinstance(within.blocks[0].content.commit_header, bytes)
    apart = split_object(content, CONVERGENCE_KEY, header=large)
    header = split_object(large, CONVERGENCE_KEY)
    assert apart.blocks[1:] == header.blocks
    assert apart.blocks[0].content.commit_header == HeaderId(header.reference.id)
    for made, head in ((within, small), (apart, large)):
        key = split_object(head, CONVERGENCE_KEY).reference.key
        assert made.blocks[0].commit_header_key == key
        assert made.reference.key == split_object(content, CONVERGENCE_KEY).reference.key
        assert joined(made, 300) == content


@pytest.mark.parametrize(("header_bytes", "within"), [(100, True), (3_900, False), (9_000, False)])
def test_the_root_of_a_tree_has_the_header(header_bytes: int, within: bool) -> None:
    content, header = noise(3 * ROOM), noise(header_bytes)
    made = split_object(content, CONVERGENCE_KEY, header=header)
    place = made.blocks[0].content.commit_header
    assert isinstance(place, bytes) is within
    assert sum(block.content.commit_header is not None for block in made.blocks) == 1
    assert joined(made, len(content)) == content
    if isinstance(place, HeaderId):
        head = split_object(header, CONVERGENCE_KEY)
        assert made.blocks[-len(head.blocks) :] == head.blocks
        assert place.id == head.reference.id


def test_a_header_leaves_less_room_for_content() -> None:
    header = noise(50)
    for size, children in ((ROOM - 66, 0), (ROOM - 65, 1)):
        made = split_object(noise(size), CONVERGENCE_KEY, header=header)
        assert len(made.blocks[0].content.children) == children
        assert joined(made, size) == noise(size)


def test_missing_and_other_blocks_are_told() -> None:
    made = split_object(noise(2 * ROOM), CONVERGENCE_KEY)
    blocks = by_id(made.blocks)
    del blocks[block_id(made.blocks[1])]
    with pytest.raises(CodecError) as caught:
        join_object(made.reference, blocks, content_bytes_max=9_999)
    assert caught.value.code == "object.missing"
    blocks[block_id(made.blocks[1])] = made.blocks[2]
    with pytest.raises(CodecError) as caught:
        join_object(made.reference, blocks, content_bytes_max=9_999)
    assert caught.value.code == "block.id"


def test_content_is_bounded() -> None:
    made = split_object(noise(2 * ROOM), CONVERGENCE_KEY)
    assert len(joined(made, 2 * ROOM)) == 2 * ROOM
    with pytest.raises(CodecError) as caught:
        joined(made, 2 * ROOM - 1)
    assert caught.value.code == "object.limit"


class Forge:
    """Blocks that no honest peer makes."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []

    def add(
        self, chunk: bytes | None, children: Sequence[ObjectRef] = (), *, key: bytes | None = None
    ) -> ObjectRef:
        node = InternalNode([child.key for child in children]) if chunk is None else chunk
        sealed, true_key = seal_chunk(node, CONVERGENCE_KEY)
        block = Block(None, BlockContent(None, [child.id for child in children], sealed))
        self.blocks.append(block)
        return ObjectRef(block_id(block), key or true_key)

    def join(self, root: ObjectRef, size: int = 100_000) -> str:
        with pytest.raises(CodecError) as caught:
            join_object(root, by_id(self.blocks), content_bytes_max=size)
        return caught.value.code


def test_a_few_blocks_cannot_claim_endless_content() -> None:
    forge = Forge()
    root = forge.add(b"x" * 1_000)
    for _ in range(8):
        root = forge.add(None, [root] * 50)
    assert forge.join(root) == "object.limit"


def test_nothing_but_nodes_is_no_tree() -> None:
    forge = Forge()
    root = forge.add(None)
    for _ in range(8):
        root = forge.add(None, [root] * 50)
    assert forge.join(root) == "object.tree"
    empty = forge.add(b"")
    assert forge.join(forge.add(None, [empty])) == "object.tree"


def test_trees_are_not_deep() -> None:
    forge = Forge()
    root = forge.add(b"x")
    for _ in range(9):
        root = forge.add(None, [root])
    assert forge.join(root) == "object.limit"


def test_a_block_has_one_key() -> None:
    forge = Forge()
    leaf = forge.add(b"x" * 100)
    root = forge.add(None, [leaf, ObjectRef(leaf.id, b"o" * 32)])
    assert forge.join(root) == "object.tree"
