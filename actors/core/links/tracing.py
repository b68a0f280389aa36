"""Tracing: what kinds of messages a link carries, and how large they are.

A link is traced if the logger `rillnode.trace.<protocol>` is enabled for level TRACE when it
opens. Of a message only its protocol's name for it is told, never contents, addresses or keys:
an address may be all that protects whoever waits at it.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from rillnode.actors.ports import Link
from rillnode.codecs import native
from rillnode.codecs.errors import CodecError
from rillnode.codecs.events import EventLogger, event_logger
from rillnode.codecs.routing import stream
from rillnode.codecs.routing.wire import wire_codec

TRACE: Final = 5
"""Level below debug: what costs a line for each message is asked for by name."""

_TAG_BYTES_MAX: Final = 40

LinkT = TypeVar("LinkT", bound=Link)

Kind = Callable[[bytes], str]
"""Names a message as its protocol does."""


def trace_of(link: LinkT, kind_of: Callable[[LinkT], Kind]) -> "Trace | None":
    """What tells of a link, if it is traced.

    Args:
        link: the link.
        kind_of: makes what names its messages.
    """
    logger = event_logger(f"rillnode.trace.{link.info.transport}")
    return Trace(logger, link, kind_of(link)) if logger.isEnabledFor(TRACE) else None


class Trace:
    """Tells of the messages of one link."""

    def __init__(self, logger: EventLogger, link: Link, kind: Kind) -> None:
        self._logger = logger
        self._remote = link.info.remote
        self._kind = kind

    def received(self, messages: Sequence[bytes]) -> None:
        """Tell of messages that came."""
        self._tell("received", messages)

    def sent(self, messages: Sequence[bytes]) -> None:
        """Tell of messages that go."""
        self._tell("sent", messages)

    def broadcast(self, size: int, count: int) -> None:
        """Tell of messages that were framed once for many links; `size` is of the frames."""
        extra = {"remote": self._remote, "kind": "broadcast", "bytes": size, "messages": count}
        self._logger.log(TRACE, "sent", extra=extra)

    def _tell(self, event: str, messages: Sequence[bytes]) -> None:
        for message in messages:
            extra = {"remote": self._remote, "kind": self._kind(message), "bytes": len(message)}
            self._logger.log(TRACE, event, extra=extra)


class TracedLink:
    """A link whose messages are told of; in all else it is the link."""

    def __init__(self, link: Any, trace: Trace) -> None:
        self._link = link
        self._trace = trace

    def __getattr__(self, name: str) -> Any:
        return getattr(self._link, name)

    def send(self, messages: Sequence[bytes]) -> None:
        """Tell, then send."""
        self._trace.sent(messages)
        self._link.send(messages)

    def send_framed(self, framed: bytes, count: int) -> None:
        """Tell, then send."""
        self._trace.broadcast(len(framed), count)
        self._link.send_framed(framed, count)


def wire_kind(link: Link) -> Kind:
    """What names wire messages: by the protocol that their payload is of."""
    wire = wire_codec(link.info.wire_format)

    def kind(message: bytes) -> str:
        try:
            payload = next(iter(wire.decode([message]))).payload
        except (CodecError, StopIteration):
            return "unknown"
        length = payload[0] if payload else 0
        tag = payload[1 : 1 + length] if 0 < length <= _TAG_BYTES_MAX else b""
        return _TAGS.get(bytes(tag), "message")

    return kind


_TAGS: Final = {tag.encode(): tag for tag in (*native.TAGS, *stream.TAGS)}
