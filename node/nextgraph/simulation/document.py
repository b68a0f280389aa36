"""A NextGraph document of a simulated node: its keys, and what its users have made of it.

All users of a node write one document: each on a topic of its own, and all on one that they share.
What they were told and what they have seen is compared here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rillnode.codecs.errors import RillnodeError
from rillnode.codecs.keys import SEED_BYTES, Identity
from rillnode.codecs.nextgraph.blocks import BLOCK, Block, block_id
from rillnode.codecs.nextgraph.commits import CommitHeader
from rillnode.codecs.nextgraph.events import EVENT, Event
from rillnode.codecs.nextgraph.objects import Object
from rillnode.codecs.nextgraph.overlays import (
    convergence_key,
    inner_overlay,
    outer_overlay,
    repo_hash,
)
from rillnode.codecs.nextgraph.sealing import Branch, make_commit, open_event
from rillnode.codecs.nextgraph.types import ForwardedPeer, ReadWriteAccess
from rillnode.node.nextgraph.simulation.things import Things
from rillnode.node.simulated.history import History, log_of
from rillnode.node.simulated.world import World


@dataclass(slots=True)
class Publication:
    """A commit that somebody publishes.

    Attributes:
        who: the user that has made it, and in which of its lives.
        topic: where.
        parents: the commits that it comes after.
        body: what it says.
        commit: the commit, with its blocks.
        files: ids that its event names.
        publishers: keys of the connections over which it was sent.
        confirmed: whether its publisher was told that it is durable.
    """

    who: str
    topic: Identity
    parents: tuple[bytes, ...]
    body: bytes
    commit: Object
    files: tuple[bytes, ...]
    publishers: dict[bytes, None] = field(default_factory=dict[bytes, None])
    confirmed: bool = False

    @property
    def id(self) -> bytes:
        """Of the commit."""
        return self.commit.reference.id


class Followed:
    """One process' copy of a topic: commits, and which of them come last."""

    def __init__(self) -> None:
        self.known: dict[bytes, tuple[bytes, ...]] = {}
        self._acknowledged: dict[bytes, None] = {}

    @property
    def heads(self) -> list[bytes]:
        """Commits that no other comes after."""
        return [one for one in self.known if one not in self._acknowledged]

    def add(self, publication: Publication) -> None:
        """Have one more."""
        self.known[publication.id] = publication.parents
        self._acknowledged.update(dict.fromkeys(publication.parents))

    def lacking(self, publication: Publication) -> list[bytes]:
        """What is before it and is not had."""
        return [one for one in publication.parents if one not in self.known]


class Document:
    """The document of one node.

    Attributes:
        node: the node.
        inner: the overlay of those who write it, `access` both of its overlays.
        convergence: the key under which its blocks are made.
        repo: what names it to the broker.
        branch: whose members can open its commits.
        shared: the topic of all.
        own: the topics of one user each, by name.
        publications: by the ids of the commits.
        things: objects beside it.
    """

    def __init__(self, world: World, history: History, node: str) -> None:
        self.node = node
        self._world = world
        self.history = history
        store, secret = self._key("store").public_key, self._secret("overlay")
        self.inner = inner_overlay(store, secret)
        self.access = ReadWriteAccess(self.inner, outer_overlay(store))
        self.convergence = convergence_key(store, secret)
        self.branch = Branch(
            self._key("repo").public_key, self._key("branch").public_key, self._secret("cap")
        )
        self.repo = repo_hash(self.branch.repo_id)
        self.shared = self._key("topic of all")
        self.own: dict[str, Identity] = {}
        self.publications: dict[bytes, Publication] = {}
        self.things = Things()
        self._events: dict[bytes, bytes] = {}

    def _secret(self, purpose: str) -> bytes:
        return self._world.network.secret(f"nextgraph {purpose} of {self.node}", SEED_BYTES)

    def _key(self, purpose: str) -> Identity:
        return Identity.from_seed(self._secret(purpose))

    def join(self, user: str) -> Identity:
        """Let one more write it; returns the topic of its own."""
        topic = self.own[user] = self._key(f"topic of {user}")
        return topic

    @property
    def topics(self) -> list[Identity]:
        """All that there are."""
        return [self.shared, *self.own.values()]

    def name_of(self, topic: bytes) -> str:
        """What people call a topic."""
        names = [name for name, own in self.own.items() if own.public_key == topic]
        return f"the topic of {(names or ['all'])[0]}"

    @property
    def lost(self) -> bool:
        """Whether nothing is promised any more, for the node's disk was lost."""
        return log_of(self.node) in self.history.lost

    def broken(self, rule: str, who: str, text: str) -> None:
        """Note that a rule was broken, unless nothing is promised."""
        if not self.lost:
            self.history.broken(rule, f"{who} at {self.node}: {text}")

    # Publishing ------------------------------------------------------------------------------

    def make(
        self,
        who: str,
        author: Identity,
        topic: Identity,
        body: bytes,
        parents: Sequence[bytes],
        files: Sequence[bytes],
        unix_seconds: float,
    ) -> Publication:
        """Make a commit that is to be published."""
        commit = make_commit(
            body,
            author=author,
            branch=self.branch,
            overlay=self.inner,
            convergence_key=self.convergence,
            unix_seconds=unix_seconds,
            header=CommitHeader(acks=list(parents)) if parents else None,
        )
        made = Publication(who, topic, tuple(parents), body, commit, tuple(files))
        self.publications[made.id] = made
        return made

    def confirmed(self, topic: bytes) -> list[Publication]:
        """What is durable on a topic, for somebody was told so."""
        found = self.publications.values()
        return [one for one in found if one.confirmed and one.topic.public_key == topic]

    # What is seen ----------------------------------------------------------------------------

    def saw(self, who: str, topic: bytes, event: Event) -> Publication | None:
        """Somebody has an event of a topic; returns what it is of, if it is genuine."""
        encoded, content = EVENT.encode(event), event.content
        commit = block_id(content.blocks[0])
        found = self.publications.get(commit)
        if found is None:
            self.broken("unknown-entry", who, f"has {_short(commit)}, which nobody has published")
            return None
        what = f"{_short(commit)} of {self.name_of(topic)}"
        if found.topic.public_key != topic:
            own = self.name_of(found.topic.public_key)
            self.broken("wrong-log", who, f"has {what}, which was published on {own}")
            return None
        if not self._genuine(found, event):
            self.broken("unknown-entry", who, f"has {what} in other words than it was published")
            return None
        if self._events.setdefault(commit, encoded) != encoded:
            text = f"{what} has come in another event than before"
            self.broken("index-reassigned", who, text)
        return found

    def _genuine(self, source: Publication, event: Event) -> bool:
        """Whether an event whose signatures hold is one that was sent."""
        content, publisher = event.content, event.content.publisher
        if not isinstance(publisher, ForwardedPeer) or publisher.key not in source.publishers:
            return False
        if encoded_blocks(content.blocks) != encoded_blocks(source.commit.blocks):
            return False
        try:
            body = open_event(event, self.branch).body
        except RillnodeError:
            return False
        return body == source.body and tuple(content.file_ids) == source.files

    def seen(self, topic: bytes) -> list[bytes]:
        """Commits of a topic whose events anybody has seen."""
        found = self.publications
        return [one for one in self._events if found[one].topic.public_key == topic]


def encoded_blocks(blocks: Sequence[Block]) -> list[bytes]:
    """Blocks as they are sent."""
    return [BLOCK.encode(block) for block in blocks]


def _short(commit: bytes) -> str:
    return commit.hex()[:8]
