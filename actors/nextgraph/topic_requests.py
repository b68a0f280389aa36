"""Defines the requests to a topic, beside publishing, from overlays, connections and itself."""

from collections.abc import Container, Sequence
from dataclasses import dataclass, field

from rillnode.actors.nextgraph.actor import Question
from rillnode.actors.nextgraph.session import Asked, Session
from rillnode.codecs.nextgraph.requests import TopicSyncReq
from rillnode.codecs.nextgraph.types import OverlayId


class Again:
    """Time to look into the log again."""


@dataclass(frozen=True, slots=True)
class Joined:
    """A topic as it is: the commits that no other comes after, and the number of all."""

    heads: list[bytes] = field(default_factory=list[bytes])
    commits: int = 0


@dataclass(frozen=True, slots=True)
class Join(Question[Joined | None]):
    """Look at a topic, make it, follow it: as far as is asked; None: there is none.

    Attributes:
        follower: who is to have its events; None: nobody.
        overlay: on which the follower has asked, and is to have them.
        creator: principal whose the topic will be if it is made; None: it is not made.
    """

    follower: Session | None
    overlay: OverlayId
    creator: str | None


@dataclass(frozen=True, slots=True)
class Unfollow:
    """A connection wants a topic's events on an overlay no longer."""

    session: Session
    overlay: OverlayId

    def merged(self, later: "Unfollow") -> "Unfollow | None":
        """Of the same connection one is enough."""
        return later if later == self else None


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
