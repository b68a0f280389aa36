"""What overlays and connections ask of a topic, beside publishing, and it of itself."""

from collections.abc import Container, Sequence
from dataclasses import dataclass, field

from rillnode.actors.nextgraph.errands import Errand
from rillnode.actors.nextgraph.session import Asked, Session
from rillnode.codecs.nextgraph.requests import TopicSyncReq
from rillnode.codecs.nextgraph.responses import TopicSubRes
from rillnode.codecs.nextgraph.types import OverlayId


class Again:
    """Time to look into the log again."""


@dataclass(slots=True, eq=False)
class Join(Errand):
    """Look at a topic, make it, follow it: as far as is asked.

    Attributes:
        topic: the topic.
        follower: who is to have its events; None: nobody.
        overlay: on which the follower has asked, and is to have them.
        creator: principal whose the topic will be if it is made; None: it is not made.
        found: result: whether there is such a topic now.
        heads: result: commits that no other comes after.
        commits: result: number of commits.
    """

    topic: bytes = b""
    follower: Session | None = None
    overlay: OverlayId | None = None
    creator: str | None = None
    found: bool = False
    heads: list[bytes] = field(default_factory=list[bytes])
    commits: int = 0

    def response(self, *, publisher: bool) -> TopicSubRes:
        """The result as a client gets it."""
        return TopicSubRes(self.topic, self.heads, publisher, self.commits)


@dataclass(frozen=True, slots=True)
class Unfollow:
    """A connection wants a topic's events on an overlay no longer."""

    session: Session
    overlay: OverlayId


@dataclass(frozen=True, slots=True)
class Sync:
    """Send what a client has not of a topic."""

    asked: Asked
    content: TopicSyncReq
    known: Container[bytes]


@dataclass(frozen=True, slots=True)
class SendCommit:
    """Send the blocks of a commit as its event has them, or else as they are stored.

    Attributes:
        others: topics to look in next, where this one has no such event.
    """

    asked: Asked
    commit: bytes
    others: Sequence[bytes] = ()
