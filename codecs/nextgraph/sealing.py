"""Commits and events: made of what a branch's members say, and opened again by other members."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from rillnode.codecs.errors import CodecError
from rillnode.codecs.keys import Identity
from rillnode.codecs.nextgraph.blocks import Block, InternalNode, block_id, open_content
from rillnode.codecs.nextgraph.commits import (
    COMMIT_OBJECT,
    HEADER_OBJECT,
    Commit,
    CommitContent,
    CommitHeader,
    Quorum,
    commit_header,
    commit_timestamp,
    sign_commit,
    verify_commit,
)
from rillnode.codecs.nextgraph.events import Event, check_event, crypt_event_key
from rillnode.codecs.nextgraph.limits import NEXTGRAPH_MESSAGE_BYTES_MAX
from rillnode.codecs.nextgraph.objects import Object, join_object, split_object
from rillnode.codecs.nextgraph.overlays import author_digest
from rillnode.codecs.nextgraph.types import KEY_BYTES, ForwardedPeer, ObjectRef, OverlayId

BODY_BYTES_MAX: Final = 4 * NEXTGRAPH_MESSAGE_BYTES_MAX
"""A commit's body, put together: more than one event carries only where blocks repeat."""


class Branch(Struct, frozen=True):
    """A branch, and what makes its commits readable.

    Attributes:
        repo_id: Ed25519 key of the repo, 32 bytes.
        id: Ed25519 key of the branch.
        read_cap_key: key part of the branch's read cap.
    """

    repo_id: bytes
    id: bytes
    read_cap_key: bytes

    def __repr__(self) -> str:
        return f"Branch(repo_id={self.repo_id!r}, id={self.id!r}, ...)"


class OpenedEvent(Struct, frozen=True):
    """An event's content for readers of its branch.

    Attributes:
        reference: id and key of the commit.
        header: the commits that it comes after.
        commit: the commit.
        body: content of the object that the commit names as its body.
    """

    reference: ObjectRef
    header: CommitHeader
    commit: Commit
    body: bytes


def make_commit(
    body: bytes,
    *,
    author: Identity,
    branch: Branch,
    overlay: OverlayId,
    convergence_key: bytes,
    unix_seconds: float,
    header: CommitHeader | None = None,
) -> Object:
    """Make a commit.

    Args:
        body: content of the commit's body, encoded.
        author: the user's key.
        branch: where it stands.
        overlay: under which the author's id is hidden.
        convergence_key: see `overlays.convergence_key`.
        unix_seconds: when it is made.
        header: the commits that it comes after; None for the first one.

    Returns:
        The commit; its blocks are all that an event needs, those of the body at the end.
    """
    content = split_object(body, convergence_key)
    commit = CommitContent(
        author=author_digest(author.public_key, overlay),
        branch=branch.id,
        perms=[],
        header_keys=None,
        quorum=Quorum.NO_SIGNING,
        timestamp=commit_timestamp(unix_seconds),
        metadata=b"",
        body=content.reference,
    )
    made = split_object(
        COMMIT_OBJECT.encode(sign_commit(commit, author)),
        convergence_key,
        header=None if header is None else HEADER_OBJECT.encode(header),
    )
    return Object(made.reference, made.blocks + content.blocks)


def open_event(event: Event, branch: Branch, *, author: bytes | None = None) -> OpenedEvent:
    """Verify an event and decrypt its commit.

    Args:
        event: as it came, or as it was stored.
        branch: whose read cap opens it.
        author: the Ed25519 key that must have signed the commit; None: any.

    Raises:
        NextGraphError: a signature of the event does not hold; see `check_event`.
        CodecError: `commit.author`, the commit is not signed by `author`; `event.branch`, it is of
            another branch; or the key is not the branch's, or what it opens is malformed or not
            whole.
    """
    publisher, _ = check_event(event)
    key, commit = _commit_of(event, branch, publisher)
    if author is not None and not verify_commit(commit, author):
        raise CodecError("commit.author", "the commit is not signed by its author")
    blocks = event.content.blocks
    body = join_object(commit.content.body, _by_id(blocks), content_bytes_max=BODY_BYTES_MAX)
    return OpenedEvent(ObjectRef(block_id(blocks[0]), key), commit_header(blocks), commit, body)


def opens(event: Event, branch: Branch) -> bool:
    """Whether an event's commit is a branch's, and its key opens it; signatures are not verified.

    Costs little: of several keys the right one is looked for so.
    """
    publisher, blocks = event.content.publisher, event.content.blocks
    if not isinstance(publisher, ForwardedPeer) or not blocks:
        return False
    try:
        _commit_of(event, branch, publisher.key)
    except CodecError:
        return False
    return True


def _commit_of(event: Event, branch: Branch, publisher: bytes) -> tuple[bytes, Commit]:
    """The key of an event's commit, and the commit.

    That a block opens proves nothing: blocks are encrypted and not authenticated, and one of 450
    foreign keys makes something of a block. The commit's own branch proves it.

    Raises:
        CodecError: `event.key`, the commit's key has another length; `event.branch`, the commit is
            of another branch; or what the key opens is malformed or not whole.
    """
    content = event.content
    if len(content.key) != KEY_BYTES:
        raise CodecError("event.key", "the key of the event's commit has another length")
    key = crypt_event_key(
        content.key,
        repo_id=branch.repo_id,
        branch_id=branch.id,
        read_cap_key=branch.read_cap_key,
        publisher=publisher,
        seq=content.seq,
    )
    root = content.blocks[0]
    encoded = open_content(root.content, key)
    if isinstance(encoded, InternalNode):
        reference, blocks = ObjectRef(block_id(root), key), _by_id(content.blocks)
        encoded = join_object(reference, blocks, content_bytes_max=BODY_BYTES_MAX)
    commit = COMMIT_OBJECT.decode(encoded)
    if commit.content.branch != branch.id:
        raise CodecError("event.branch", "the event's commit is of another branch")
    return key, commit


def _by_id(blocks: Sequence[Block]) -> dict[bytes, Block]:
    return {block_id(block): block for block in blocks}
