"""Commits: signed nodes of a branch's history, and the headers that place them in it.

A commit is an object whose content only members can read. Its header lists the commits that it
acknowledges (`acks`), rejects (`nacks`) or otherwise depends on, by id. A broker gets the header's
key with the commit's first block, and so knows the history but not what was done.

Source: nextgraph-rs 9ea23f60, engine/repo/src/types.rs and commit.rs.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Annotated, Final

from msgspec import Struct

from rillnode.codecs.bare import U32, Codec, Tags
from rillnode.codecs.errors import CodecError
from rillnode.codecs.keys import Identity, verify
from rillnode.codecs.nextgraph.blocks import Block, HeaderId, block_id, open_chunk
from rillnode.codecs.nextgraph.limits import NEXTGRAPH_HEADER_BYTES_MAX
from rillnode.codecs.nextgraph.objects import join_object
from rillnode.codecs.nextgraph.types import (
    V0,
    Digest,
    ObjectId,
    ObjectRef,
    PublicKey,
    Signature,
    SymmetricKey,
)

TIMESTAMP_EPOCH_SECONDS: Final = 1_645_568_520
"""Unix time from which timestamps count minutes."""


class CommitHeader(Struct):
    """A commit's place in the history.

    Attributes:
        deps: commits and objects that it needs, beside those it acknowledges.
        ndeps: what is not needed any more once it counts.
        compact: whether all before it may be dropped.
        acks: the heads of the branch that it follows.
        nacks: heads that it declares invalid.
        files: files that it refers to.
        nfiles: files that nothing refers to any more once it counts.
    """

    deps: list[ObjectId] = []
    ndeps: list[ObjectId] = []
    compact: bool = False
    acks: list[ObjectId] = []
    nacks: list[ObjectId] = []
    files: list[ObjectId] = []
    nfiles: list[ObjectId] = []


class CommitHeaderKeys(Struct):
    """The keys of what a header lists, for those who can read the commit."""

    deps: list[SymmetricKey]
    acks: list[SymmetricKey]
    nacks: list[SymmetricKey]
    files: list[ObjectRef]


class Quorum(IntEnum):
    """The number of signatures that a commit needs to count."""

    NO_SIGNING = 0
    PARTIAL_ORDER = 1
    TOTAL_ORDER = 2
    OWNERS = 3
    I_AM_THE_SIGNATURE = 4


class CommitContent(Struct):
    """The part of a commit that its author signs."""

    author: Digest
    branch: PublicKey
    perms: list[ObjectId]
    header_keys: Annotated[CommitHeaderKeys, V0] | None
    quorum: Quorum
    timestamp: U32
    metadata: bytes
    body: ObjectRef


class Commit(Struct):
    """A commit as its object holds it."""

    content: Annotated[CommitContent, V0]
    sig: Signature


COMMIT_OBJECT: Final[Codec[Commit]] = Codec(Annotated[Commit, V0, Tags(0), V0], serde=True)
"""A commit as an object's content."""

HEADER_OBJECT: Final[Codec[CommitHeader]] = Codec(
    Annotated[CommitHeader, V0, Tags(2), V0], serde=True
)
"""A commit's header as an object's content."""

_CONTENT: Final[Codec[CommitContent]] = Codec(Annotated[CommitContent, V0])


def sign_commit(content: CommitContent, author: Identity) -> Commit:
    """Sign a commit: with the user's key, or the repo's or branch's for the first of these."""
    return Commit(content, author.sign(_CONTENT.encode(content)))


def verify_commit(commit: Commit, author: bytes) -> bool:
    """Whether the key `author` has signed the commit."""
    return verify(author, _CONTENT.encode(commit.content), commit.sig)


def commit_header(blocks: Sequence[Block]) -> CommitHeader:
    """Read the header of the commit that the first of these blocks is the root of.

    The header's own blocks, where it has any, may be anywhere among the others.

    Raises:
        CodecError: `commit.header`, there is no block, no key for the header, or no header at all
            where one is named; or as `join_object`.
    """
    if not blocks:
        raise CodecError("commit.header", "a commit has at least one block")
    root = blocks[0]
    place, key = root.content.commit_header, root.commit_header_key
    if place is None:
        return CommitHeader()
    if key is None or not isinstance(place, HeaderId | bytes):
        raise CodecError("commit.header", "the commit's header cannot be read")
    if isinstance(place, bytes):
        chunk = open_chunk(place, key)
        if not isinstance(chunk, bytes):
            raise CodecError("commit.header", "the commit's header is not what is embedded")
        return HEADER_OBJECT.decode(chunk)
    others = {block_id(block): block for block in blocks[1:]}
    reference = ObjectRef(place.id, key)
    content = join_object(reference, others, content_bytes_max=NEXTGRAPH_HEADER_BYTES_MAX)
    return HEADER_OBJECT.decode(content)


def commit_timestamp(unix_seconds: float) -> int:
    """A commit's timestamp: minutes since 2022-02-22 22:22 UTC."""
    return int(unix_seconds - TIMESTAMP_EPOCH_SECONDS) // 60
