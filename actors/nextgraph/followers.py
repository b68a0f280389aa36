"""Who follows a topic, and how its events get to them."""

from collections.abc import Iterator

from rillnode.actors.nextgraph.session import Forwarded, Session
from rillnode.codecs.nextgraph.client import ClientMessage
from rillnode.codecs.nextgraph.events import Event
from rillnode.codecs.nextgraph.messages import encode_message
from rillnode.codecs.nextgraph.types import OverlayId


class Followers:
    """Connections, each with the overlays that it follows the topic on: inner, outer, or both."""

    def __init__(self) -> None:
        self._overlays: dict[Session, dict[OverlayId, None]] = {}

    def __len__(self) -> int:
        return len(self._overlays)

    def __iter__(self) -> Iterator[Session]:
        return iter(self._overlays)

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
            if session is publisher:
                continue
            for overlay in overlays:
                if overlay not in encoded:
                    message = ClientMessage(overlay, event)
                    encoded[overlay] = Forwarded(encode_message(message))
                session.connection.base.post(session.connection, encoded[overlay])
        return sum(len(one.plaintext) for one in encoded.values())
