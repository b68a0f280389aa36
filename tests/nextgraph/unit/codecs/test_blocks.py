import pytest

from nextgraph_support import CONVERGENCE_KEY
from rillnode.codecs.errors import CodecError
from rillnode.codecs.nextgraph.blocks import (
    BLOCK,
    Block,
    BlockContent,
    HeaderId,
    InternalNode,
    RandomAccess,
    block_id,
    encode_block,
    open_block,
    open_chunk,
    seal_chunk,
)
from rillnode.codecs.nextgraph.types import ObjectRef


def block(chunk: InternalNode | bytes, children: list[bytes]) -> tuple[Block, ObjectRef]:
    sealed, key = seal_chunk(chunk, CONVERGENCE_KEY)
    made = Block(None, BlockContent(None, children, sealed))
    return made, ObjectRef(block_id(made), key)


@pytest.mark.parametrize("header", [None, b"sealed", HeaderId(b"i" * 32), RandomAccess()])
def test_the_header_s_key_is_beside_what_the_id_covers(
    header: HeaderId | RandomAccess | bytes | None,
) -> None:
    content = BlockContent(header, [b"c" * 32], b"sealed content")
    bare, keyed = Block(None, content), Block(b"k" * 32, content)
    assert block_id(bare) == block_id(keyed)
    for one in (bare, keyed):
        assert encode_block(one) == (block_id(one), BLOCK.encode(one))
    assert BLOCK.decode(BLOCK.encode(keyed)) == keyed
    other = Block(None, BlockContent(header, [], b"sealed content"))
    assert block_id(other) != block_id(bare)


@pytest.mark.parametrize("place", [b"\x00\x00\x04", b"\x01\x01"])
def test_unknown_variants_are_refused(place: bytes) -> None:
    with pytest.raises(CodecError) as caught:
        BLOCK.decode(place + bytes(80))
    assert caught.value.code == "codec.union"


def test_the_same_chunk_under_the_same_key_is_the_same_block() -> None:
    assert seal_chunk(b"data", CONVERGENCE_KEY) == seal_chunk(b"data", CONVERGENCE_KEY)
    assert seal_chunk(b"data", b"o" * 32) != seal_chunk(b"data", CONVERGENCE_KEY)


def test_chunks_open_with_their_key_only() -> None:
    for chunk in (b"", b"data", InternalNode([]), InternalNode([b"k" * 32, b"l" * 32])):
        sealed, key = seal_chunk(chunk, CONVERGENCE_KEY)
        assert open_chunk(sealed, key) == chunk
    with pytest.raises(CodecError):
        open_chunk(seal_chunk(b"data" * 99, CONVERGENCE_KEY)[0], b"o" * 32)
    with pytest.raises(CodecError):
        open_chunk(b"", b"k" * 32)


def test_blocks_are_opened_by_reference() -> None:
    leaf, reference = block(b"data", [])
    assert open_block(leaf, reference) == b"data"
    with pytest.raises(CodecError) as caught:
        open_block(leaf, ObjectRef(b"o" * 32, reference.key))
    assert caught.value.code == "block.id"


@pytest.mark.parametrize(
    ("chunk", "children"),
    [(b"data", 1), (InternalNode([b"k" * 32]), 0), (InternalNode([b"k" * 32]), 2)],
)
def test_keys_and_children_belong_together(chunk: InternalNode | bytes, children: int) -> None:
    with pytest.raises(CodecError) as caught:
        open_block(*block(chunk, [b"c" * 32] * children))
    assert caught.value.code == "block.children"
