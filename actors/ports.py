"""Declares what actors need from outside, as typing Protocols.

Transports satisfy them by shape and `node/` injects them; an actor imports neither.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from rillnode.codecs.errors import RillnodeError
from rillnode.codecs.links import LinkInfo as LinkInfo


class TimerHandle(Protocol):
    """A timer that has not fired yet."""

    def cancel(self) -> None:
        """Drop the timer; harmless after it has fired."""
        ...


class Clock(Protocol):
    """Wall time, monotonic time and timers; a simulation gives its own."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back."""
        ...

    def elapsed(self) -> float:
        """Seconds that never go back, and that pass while the machine sleeps, too."""
        ...

    def call_later(self, seconds: float, callback: Callable[[], object]) -> TimerHandle:
        """Call `callback` on the loop's thread after `seconds`."""
        ...


class Timing(Protocol):
    """The part of a Clock that the actor system needs: it never asks for wall time."""

    def monotonic(self) -> float:
        """Seconds that never go back."""
        ...

    def call_later(self, seconds: float, callback: Callable[[], object]) -> TimerHandle:
        """Call `callback` on the loop's thread after `seconds`."""
        ...


class Entropy(Protocol):
    """Source of random bytes."""

    def __call__(self, count: int, /) -> bytes:
        """Return `count` random bytes."""
        ...


class Link(Protocol):
    """One open link to a peer, ready for wire messages; all calls on the loop's thread."""

    @property
    def info(self) -> LinkInfo:
        """Who is at the other end."""
        ...

    @property
    def buffered_bytes(self) -> int:
        """Outgoing bytes that the peer has not taken yet."""
        ...

    def send(self, messages: Sequence[bytes]) -> None:
        """Frame, seal and write messages, in order, as one write; no-op once closed."""
        ...

    def pause_reading(self) -> None:
        """Stop reading from the peer until `resume_reading`; idempotent."""
        ...

    def resume_reading(self) -> None:
        """Read on; idempotent."""
        ...

    def close(self, reason: str) -> None:
        """Close after what is buffered was written; `link_closed` follows once."""
        ...


class FramedLink(Link, Protocol):
    """A link for which messages can be framed once for all links of its listener."""

    def frame(self, messages: Sequence[bytes]) -> bytes:
        """Frame messages, in order, as every link of this listener takes them."""
        ...

    def send_framed(self, framed: bytes, count: int) -> None:
        """Send what `frame` has made of `count` messages; no-op once closed."""
        ...


class LinkEvents(Protocol):
    """The events of one link, on the loop's thread, in this order."""

    def link_opened(self, link: Link) -> None:
        """The link is authenticated and ready."""
        ...

    def messages_received(self, messages: list[bytes]) -> None:
        """All whole messages of one read, in order."""
        ...

    def link_drained(self) -> None:
        """Outgoing bytes fell below the high mark after having been above it."""
        ...

    def link_closed(self, reason: str) -> None:
        """The link is gone; the last event. `reason` is for people."""
        ...


class Dialling(Protocol):
    """An attempt to open a link."""

    def cancel(self) -> object:
        """Give up; nothing follows then. Harmless once the attempt has ended."""
        ...


class Dialer(Protocol):
    """Opens links to one place."""

    def __call__(
        self, events: LinkEvents, on_failure: Callable[[RillnodeError], None], /
    ) -> Dialling:
        """Begin to open a link; `events.link_opened` or `on_failure` follows, once, later."""
        ...


class Span(Protocol):
    """One piece of work that is under way; any thread."""

    @property
    def context(self) -> str:
        """Its W3C trace context (`traceparent`), for who goes on with the work elsewhere."""
        ...

    def end(self, attributes: Mapping[str, str | int], error: str = "") -> None:
        """The work has ended, well or with an error code; only the first call counts."""
        ...


class Tracer(Protocol):
    """Takes spans; any thread."""

    def begin(
        self, operation: str, destination: str, *, parents: Sequence[Span | str] = ()
    ) -> Span:
        """Begin a span `<operation> <destination>`.

        Args:
            operation: what is done, such as `push`.
            destination: the stream or address that it is done with.
            parents: spans or trace contexts that the work belongs to: it is a child of the first,
                and linked to the others. None: it begins a trace.
        """
        ...


class JobProcess(Protocol):
    """A child process that an actor owns."""

    @property
    def pid(self) -> int:
        """Process id."""
        ...

    @property
    def last_words(self) -> str:
        """Why it ended, in one line, as far as it told; known when `on_exit` is called."""
        ...

    def terminate(self) -> None:
        """Ask it to end (SIGTERM); `on_exit` follows."""
        ...

    def kill(self) -> None:
        """End it at once (SIGKILL); `on_exit` follows."""
        ...


class JobLauncher(Protocol):
    """Starts a sink's job."""

    def __call__(
        self, sink: str, environment: dict[str, str], on_exit: Callable[[int], None], /
    ) -> JobProcess:
        """Start the job of `sink`; `on_exit(code)` is called once on the loop's thread.

        Raises:
            RillnodeError: it cannot be started; `retryable` tells whether that passes.
        """
        ...
