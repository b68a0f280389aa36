import pytest
from msgspec.structs import replace

from nextgraph_support import CONVERGENCE_KEY, PEER, USER, make_commit
from rillnode.codecs.errors import CodecError
from rillnode.codecs.nextgraph.blocks import (
    Block,
    BlockContent,
    HeaderId,
    InternalNode,
    RandomAccess,
    seal_chunk,
)
from rillnode.codecs.nextgraph.commits import (
    COMMIT_OBJECT,
    HEADER_OBJECT,
    CommitHeader,
    CommitHeaderKeys,
    commit_header,
    commit_timestamp,
    verify_commit,
)
from rillnode.codecs.nextgraph.objects import join_object, split_object
from rillnode.codecs.nextgraph.types import ObjectRef


def ids(count: int) -> list[bytes]:
    return [bytes([nth % 256, nth // 256]) * 16 for nth in range(count)]


@pytest.mark.parametrize("count", [1, 60, 120, 130, 1_000])
def test_headers_are_read_wherever_they_are(count: int) -> None:
    header = CommitHeader(acks=ids(count), nacks=[b"n" * 32], files=[b"f" * 32], compact=True)
    _, blocks = make_commit(b"body", header)
    assert isinstance(blocks[0].content.commit_header, HeaderId) is (count >= 120)
    assert commit_header(blocks) == header
    assert commit_header([blocks[0], *reversed(blocks[1:])]) == header


def test_a_first_commit_has_no_header() -> None:
    _, blocks = make_commit(b"body")
    assert commit_header(blocks) == CommitHeader()


def root(place: HeaderId | RandomAccess | bytes | None, key: bytes | None) -> list[Block]:
    return [Block(key, BlockContent(place, [], b"sealed"))]


def test_headers_that_cannot_be_read_are_refused() -> None:
    sealed, key = seal_chunk(HEADER_OBJECT.encode(CommitHeader()), CONVERGENCE_KEY)
    node, node_key = seal_chunk(InternalNode([]), CONVERGENCE_KEY)
    commit, commit_key = seal_chunk(b"\x00\x00rest", CONVERGENCE_KEY)
    for blocks, code in (
        ([], "commit.header"),
        (root(sealed, None), "commit.header"),
        (root(HeaderId(b"i" * 32), None), "commit.header"),
        (root(RandomAccess(), key), "commit.header"),
        (root(node, node_key), "commit.header"),
        (root(commit, commit_key), "codec.union"),
        (root(HeaderId(b"i" * 32), key), "object.missing"),
    ):
        with pytest.raises(CodecError) as caught:
            commit_header(blocks)
        assert caught.value.code == code
    assert commit_header(root(sealed, key)) == CommitHeader()


def test_a_header_of_its_own_is_the_one_that_is_named() -> None:
    content = HEADER_OBJECT.encode(CommitHeader(acks=ids(200)))
    header = split_object(content, CONVERGENCE_KEY)
    blocks = root(HeaderId(header.reference.id), header.reference.key)
    assert commit_header(blocks + header.blocks).acks == ids(200)
    with pytest.raises(CodecError):
        commit_header(blocks + header.blocks[:-1])
    with pytest.raises(CodecError):
        commit_header(root(HeaderId(header.reference.id), b"o" * 32) + header.blocks)


def test_commits_are_signed_by_their_author() -> None:
    made, _ = make_commit(b"body")
    content = join_object(
        made.reference, {made.reference.id: made.blocks[0]}, content_bytes_max=4_096
    )
    commit = COMMIT_OBJECT.decode(content)
    assert verify_commit(commit, USER.public_key)
    assert not verify_commit(commit, PEER.public_key)
    assert not verify_commit(
        replace(commit, content=replace(commit.content, metadata=b"more")), USER.public_key
    )
    keys = CommitHeaderKeys([b"k" * 32], [], [], [ObjectRef(b"i" * 32, b"k" * 32)])
    keyed = replace(commit, content=replace(commit.content, header_keys=keys))
    assert COMMIT_OBJECT.decode(COMMIT_OBJECT.encode(keyed)) == keyed


def test_timestamps_are_minutes() -> None:
    assert commit_timestamp(1_645_568_520) == 0
    assert commit_timestamp(1_645_568_520 + 59.9) == 0
    assert commit_timestamp(1_645_568_520 + 60 * 1_000_000) == 1_000_000
