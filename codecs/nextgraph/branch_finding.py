"""Finds the keys of other branches in those that can be read, as clients hand them on.

    a repo's root branch    AddBranch     topic and read cap of each of its branches
    a store's store branch  AddRepo       read cap of each repo in it
    a user's branch         StoreUpdate   read caps of the user's other stores

A wallet holds the read cap of its user's private store, which leads to all else.

Many of these commits have no event of their own: a signature's event carries them, and the commits
after them have their keys. So history is followed from commit to commit.

Source: nextgraph-rs 9ea23f60, engine/repo/src/types.rs, and what real clients sent.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Annotated, Final

from msgspec import Struct

from rillnode.codecs.bare import Codec, UInt
from rillnode.codecs.errors import CodecError
from rillnode.codecs.nextgraph.blocks import Block, block_id
from rillnode.codecs.nextgraph.bodies import BodyType, body_type, inner_of
from rillnode.codecs.nextgraph.branch_keys import KnownBranch
from rillnode.codecs.nextgraph.commits import COMMIT_OBJECT, Commit, commit_header
from rillnode.codecs.nextgraph.events import Event
from rillnode.codecs.nextgraph.objects import join_object
from rillnode.codecs.nextgraph.sealing import BODY_BYTES_MAX, Branch, open_event, opens
from rillnode.codecs.nextgraph.types import V0, ObjectRef, PublicKey

ROOT_EVENTS: Final = 3
"""Events at the begin of a repo's root branch, one of which is what its read cap names."""

_NAMED_CRDTS: Final = 7
"""So many kinds of branches name the class of what they hold."""


class _AddBranch(Struct):
    topic: PublicKey | None
    read_cap: ObjectRef | None
    crdt: UInt


class _AddRepo(Struct):
    read_cap: ObjectRef


class _RootBranch(Struct):
    id: PublicKey


class _Public(Struct):
    id: PublicKey


class _Protected(Struct):
    id: PublicKey


class _Private(Struct):
    id: PublicKey


class _Store(Struct):
    repo: _Public | _Protected | _Private


class _StoreUpdate(Struct):
    store: Annotated[_Store, V0]
    read_cap: ObjectRef
    overlay_read_cap: ObjectRef
    metadata: bytes


_ADD_BRANCH: Final[Codec[_AddBranch]] = Codec(Annotated[_AddBranch, V0], serde=True)
_ADD_REPO: Final[Codec[_AddRepo]] = Codec(Annotated[_AddRepo, V0], serde=True)
_ROOT_BRANCH: Final[Codec[_RootBranch]] = Codec(Annotated[_RootBranch, V0], serde=True)
_STORE_UPDATE: Final[Codec[_StoreUpdate]] = Codec(Annotated[_StoreUpdate, V0], serde=True)
_KEY: Final[Codec[bytes]] = Codec(PublicKey, serde=True)
_NAME: Final[Codec[str]] = Codec(str, serde=True)
_STORE_UPDATES: Final = (32, 33)
"""The type of a store's update: its number depends on the release."""


class Beginnings:
    """First events of topics, among which branches are found that are named without a topic."""

    def __init__(self) -> None:
        self._first: dict[bytes, Event] = {}
        self._commits: dict[bytes, Event] = {}

    def add(self, events: Iterable[Event]) -> None:
        """Take the first events of one topic, at least ROOT_EVENTS where there are so many."""
        for event in events:
            if event.content.blocks:
                self._first.setdefault(event.content.topic, event)
                self._commits[block_id(event.content.blocks[0])] = event

    def topic_of(self, branch: Branch) -> bytes | None:
        """The topic of a branch; None where it is not here."""
        return next((topic for topic, one in self._first.items() if opens(one, branch)), None)

    def repo_of(self, read_cap: ObjectRef) -> KnownBranch | None:
        """The root branch that a repo's read cap is of; None where it is not here.

        Raises:
            CodecError: the read cap is another thing's.
        """
        event = self._commits.get(read_cap.id)
        if event is None:
            return None
        blocks = {block_id(block): block for block in event.content.blocks}
        _, body = _load(read_cap, blocks)
        if body_type(body) not in (BodyType.ROOT_BRANCH, BodyType.UPDATE_ROOT_BRANCH):
            raise CodecError("commit.body", "the read cap is no repo's")
        repo = _ROOT_BRANCH.decode_prefix(inner_of(body))[0].id
        return KnownBranch(Branch(repo, repo, read_cap.key), event.content.topic)


def branches_in(
    events: Iterable[Event], branch: Branch, beginnings: Beginnings
) -> Iterator[KnownBranch]:
    """The branches whose keys a branch's history has; what cannot be read is passed over.

    Args:
        events: of the branch's topic.
        branch: with its key.
        beginnings: of all topics.
    """
    blocks: dict[bytes, Block] = {}
    waiting: list[ObjectRef] = []
    for event in events:
        blocks.update({block_id(block): block for block in event.content.blocks})
        with suppress(CodecError):
            waiting.append(open_event(event, branch).reference)
    seen: set[bytes] = set()
    while waiting:
        reference = waiting.pop()
        if reference.id in seen:
            continue
        seen.add(reference.id)
        with suppress(CodecError):
            commit, body = _load(reference, blocks)
            with suppress(CodecError):
                yield from _led_to(body, branch, beginnings)
            waiting += _before(reference, commit, blocks)


def _led_to(body: bytes, branch: Branch, beginnings: Beginnings) -> Iterator[KnownBranch]:
    """The branches whose keys a commit's body has."""
    kind, inner = body_type(body), inner_of(body)
    if kind == BodyType.ADD_BRANCH:
        added, at = _ADD_BRANCH.decode_prefix(inner)
        if added.crdt < _NAMED_CRDTS:
            _, at = _NAME.decode_prefix(inner, at)
        branch_id, _ = _KEY.decode_prefix(inner, at)
        if added.read_cap is not None:
            yield KnownBranch(Branch(branch.repo_id, branch_id, added.read_cap.key), added.topic)
    elif kind == BodyType.ADD_REPO:
        found = beginnings.repo_of(_ADD_REPO.decode_prefix(inner)[0].read_cap)
        if found is not None:
            yield found
    elif kind in _STORE_UPDATES:
        update = _STORE_UPDATE.decode(inner)
        store = update.store.repo.id
        yield KnownBranch(Branch(store, store, update.read_cap.key), None)


def _load(reference: ObjectRef, blocks: Mapping[bytes, Block]) -> tuple[Commit, bytes]:
    """A commit and its body."""
    encoded = join_object(reference, blocks, content_bytes_max=BODY_BYTES_MAX)
    commit = COMMIT_OBJECT.decode(encoded)
    return commit, join_object(commit.content.body, blocks, content_bytes_max=BODY_BYTES_MAX)


def _before(
    reference: ObjectRef, commit: Commit, blocks: Mapping[bytes, Block]
) -> Iterator[ObjectRef]:
    """The commits that a commit comes after."""
    keys = commit.content.header_keys
    if keys is None:
        return
    header = commit_header([blocks[reference.id], *blocks.values()])
    for ids, their_keys in (
        (header.acks, keys.acks),
        (header.deps, keys.deps),
        (header.nacks, keys.nacks),
    ):
        yield from map(ObjectRef, ids, their_keys)
