"""The link of one released peer, as a link that carries wire messages.

So its connection is an actor like any other's, with the same bounds and the same way to an end;
the translator between them does the rest.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from rillnode.actors.overlay.generations import Generation
from rillnode.actors.overlay.translating import Role, Translator
from rillnode.actors.ports import Link, LinkEvents
from rillnode.codecs.errors import CodecError
from rillnode.codecs.events import event_logger
from rillnode.codecs.limits import FRAME_BYTES_MAX
from rillnode.codecs.links import LinkInfo
from rillnode.codecs.streamr.network import CLOSE_REFUSED, Peer, PeerType
from rillnode.codecs.streamr.node_address import ReleasedPeer, parse_url

logger = event_logger("rillnode.actors.overlay.released")

BAD_FRAMES_MAX: Final = 64
"""Frames that cannot be read, after which a peer is closed. Own choice: a peer of an unknown
release may say a few things that are not known here, and be of use all the same."""

NAME_CHARS_MAX: Final = 256
"""A peer's id. Own choice: released ones are Ethereum addresses, UUIDs, or short names."""


class FrameLink(Link, Protocol):
    """A link whose messages are the frames of a WebSocket."""

    def close(self, reason: str, code: int = ...) -> None:
        """Close with a code of RFC 6455, after what is buffered was written."""
        ...


@dataclass(frozen=True, slots=True)
class Expected:
    """The purpose of a released peer's link.

    Attributes:
        peer: who the peer says that it is.
        role: what it is to this node.
    """

    peer: Peer
    role: Role

    def __post_init__(self) -> None:
        """Check who comes.

        Raises:
            CodecError: `network.handshake`, no such peer has this role, or its id is too long;
                `network.address`.
        """
        parse_url(self.peer.address)
        tracker = self.peer.type is PeerType.TRACKER
        if tracker is not (self.role is Role.TRACKER) or len(self.peer.id) > NAME_CHARS_MAX:
            raise CodecError("network.handshake", "this kind of peer is not served here")


class ReleasedEvents:
    """Stands between a WebSocket and the events of a connection that takes wire messages.

    Args:
        inner: told of the link once it is known how the peer writes, which is with its first frame
            where the translator does not know already.
        expected: who is at the other end.
        translator: of this link alone.
        counters: frames that could not be read, by error code.
    """

    def __init__(
        self,
        inner: LinkEvents,
        expected: Expected,
        translator: Translator,
        counters: Counter[str],
    ) -> None:
        self._inner = inner
        self._expected = expected
        self._translator = translator
        self._counters = counters
        self._socket: FrameLink | None = None
        self._opened = False
        self._bad = 0

    def link_opened(self, link: FrameLink) -> None:
        """Open the inner link, if it is known how the peer writes."""
        self._socket = link
        if self._translator.generation is not None:
            self._open(link)

    def messages_received(self, messages: list[bytes]) -> None:
        """Hand on what can be read; what cannot is counted, as released nodes do."""
        socket = self._socket
        assert socket is not None, "frames come after the opening"
        found: list[bytes] = []
        for message in messages:
            try:
                found.append(self._translator.incoming(message))
            except CodecError as error:
                self._count(error)
                self._bad += 1
        if self._bad > BAD_FRAMES_MAX:
            self.close("too many frames that cannot be read")
        if found:
            if not self._opened:
                self._open(socket)
            self._inner.messages_received(found)

    def link_drained(self) -> None:
        """The peer took what was buffered."""
        if self._opened:
            self._inner.link_drained()

    def link_closed(self, reason: str) -> None:
        """The link is gone."""
        if self._opened:
            self._inner.link_closed(reason)

    def assume(self, generation: Generation) -> bool:
        """Open the inner link for who cannot wait for a first frame; whether it is open then.

        Args:
            generation: how the peer writes, unless that is known already.
        """
        if not self._opened and self._socket is not None:
            self._translator.generation = self._translator.generation or generation
            self._open(self._socket)
        return self._opened

    def close(self, reason: str, code: int = CLOSE_REFUSED) -> None:
        """Close the link, if it is open, as one that is not wanted."""
        if self._socket is not None:
            self._socket.close(reason, code)

    def send(self, messages: Sequence[bytes]) -> None:
        """Send wire messages as frames; hand on what the peer would answer."""
        frames: list[bytes] = []
        answers: list[bytes] = []
        for message in messages:
            try:
                said, answered = self._translator.outgoing(message)
            except CodecError as error:
                self._count(error)
                continue
            frames += said
            answers += answered
        assert self._socket is not None, "there is no inner link before the opening"
        self._socket.send(frames)
        if answers:
            self._inner.messages_received(answers)

    def _open(self, socket: FrameLink) -> None:
        self._opened = True
        generation, peer = self._translator.generation, self._expected.peer
        assert generation is not None
        claim = ReleasedPeer(
            peer.id,
            peer.address,
            generation.name,
            tracker=peer.type is PeerType.TRACKER,
            storage=peer.type is PeerType.STORAGE,
        )
        info = replace(socket.info, message_bytes_max=FRAME_BYTES_MAX, claim=claim)
        self._inner.link_opened(_ReleasedLink(info, socket, self))

    def _count(self, error: CodecError) -> None:
        self._counters[error.code] += 1
        logger.info("bad_frame", extra={"code": error.code, "offset": error.offset})


class _ReleasedLink:
    """What a connection has of the link; satisfies `Link`."""

    def __init__(self, info: LinkInfo, socket: FrameLink, events: ReleasedEvents) -> None:
        self.info = info
        self._socket = socket
        self._events = events

    @property
    def buffered_bytes(self) -> int:
        """Outgoing bytes that the peer has not taken yet."""
        return self._socket.buffered_bytes

    def send(self, messages: Sequence[bytes]) -> None:
        """Send wire messages; no-op once closed."""
        self._events.send(messages)

    def pause_reading(self) -> None:
        """Stop reading from the peer; idempotent."""
        self._socket.pause_reading()

    def resume_reading(self) -> None:
        """Read on; idempotent."""
        self._socket.resume_reading()

    def close(self, reason: str) -> None:
        """Close after what is buffered was written."""
        self._socket.close(reason)


_: type[Link] = _ReleasedLink
