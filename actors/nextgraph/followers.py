"""Feeds events to a topic's followers, and tells waiters that one is stored."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from rillnode.actors.nextgraph.publication import Publish
from rillnode.actors.nextgraph.session import Forwarded, Session
from rillnode.codecs.errors import RillnodeError
from rillnode.codecs.nextgraph.client import ClientMessage
from rillnode.codecs.nextgraph.events import Event
from rillnode.codecs.nextgraph.messages import encode_message
from rillnode.codecs.nextgraph.types import OverlayId

UNKNOWN: Final = -1
"""Stands for the log until the stream is found."""


class Followers:
    """Connections, each with the overlays that it follows the topic on: inner, outer, or both."""

    def __init__(self) -> None:
        self._overlays: dict[Session, dict[OverlayId, None]] = {}

    def __len__(self) -> int:
        return len(self._overlays)

    def __iter__(self) -> Iterator[Session]:
        return iter(self._overlays)

    def __contains__(self, session: Session) -> bool:
        return session in self._overlays

    def add(self, session: Session, overlay: OverlayId) -> None:
        """One more, or on one more overlay."""
        self._overlays.setdefault(session, {})[overlay] = None

    def leave(self, session: Session, overlay: OverlayId) -> bool:
        """It follows no longer on an overlay; returns whether it does on no other."""
        overlays = self._overlays.get(session, {})
        overlays.pop(overlay, None)
        return not overlays

    def remove(self, session: Session) -> bool:
        """It follows no longer; returns whether it did."""
        return self._overlays.pop(session, None) is not None

    def forward(self, event: Event, publisher: Session | None) -> int:
        """Encode an event once for each overlay that it is followed on, and send it to all.

        Args:
            event: the event.
            publisher: has it already; None: that is nobody here.

        Returns:
            the bytes of what was encoded.
        """
        encoded: dict[OverlayId, Forwarded] = {}
        for session, overlays in self._overlays.items():
            if session is publisher or not session.open:
                continue
            for overlay in overlays:
                if overlay not in encoded:
                    message = ClientMessage(overlay, event)
                    encoded[overlay] = Forwarded(encode_message(message))
                session.forward(encoded[overlay])
        return sum(len(one.plaintext) for one in encoded.values())


@dataclass(slots=True, eq=False)
class Feed:
    """A topic's debts to others, whichever instance its actor has.

    Attributes:
        followers: who is to have its events.
        publishing: by commit, who waits until an event is stored that was handed to the log.
        log: the topic's log as it was found last.
        told: the followers have all events below this index.
        ahead: what was published here and stands behind others' events, by index.
    """

    followers: Followers = field(default_factory=Followers)
    publishing: dict[bytes, list[Publish]] = field(default_factory=dict[bytes, list[Publish]])
    log: int = UNKNOWN
    told: int = 0
    ahead: dict[int, Publish] = field(default_factory=dict[int, Publish])

    @property
    def in_use(self) -> bool:
        """Whether anybody follows, or waits."""
        return bool(self.followers or self.publishing)

    def begin(self, log: int, end: int) -> None:
        """The topic's log is this one; of another than before the followers have nothing."""
        if log != self.log:
            self.log, self.told = log, 0 if self.followers else end
            self.ahead.clear()

    def wait(self, publish: Publish) -> bool:
        """Have a publisher wait; returns whether nobody has handed the same to the log before."""
        waiting = self.publishing.setdefault(publish.commit, [])
        waiting.append(publish)
        return len(waiting) == 1

    def settle(self, publish: Publish) -> Sequence[Publish]:
        """An event is stored, or will not be; returns who has waited, the first one first."""
        return self.publishing.pop(publish.commit, ())


@dataclass(frozen=True, slots=True, eq=False)
class Appended:
    """To a topic: an event that was handed to the log is stored; or is not, and why."""

    feed: Feed
    publish: Publish
    index: int
    error: RillnodeError | None

    def fail(self, error: RillnodeError) -> None:
        """The topic does not look at it: tell who waits."""
        for one in self.feed.settle(self.publish):
            one.asked.fail(error)
