"""Names of streams and records that are NextGraph's, and where they lie in a log of many nodes.

Every node on such a log asks this, also one without a broker: it imports nothing of the
protocol.
"""

from typing import Final

PREFIX: Final = "nextgraph/"
"""Of every name here, and of the streams that topics are kept in: nobody makes or grows those but
the broker."""

_ID_DIGITS: Final = 64

_OF_OVERLAY: Final = frozenset(
    ("overlay", "pin", "published", "block", "parent", "object", "bytes", "held")
)
"""Families of records whose names go on with an inner overlay's id."""


def place_of(name: str) -> str | None:
    """By what a stream or a record is placed in a shared store: an overlay's id; None: nothing."""
    family, _, rest = name.removeprefix(PREFIX).partition("/")
    if not name.startswith(PREFIX):
        return None
    if family in _OF_OVERLAY:
        return rest[:_ID_DIGITS]
    return None if topic_of(name) is None else family


def topic_of(stream: str) -> tuple[bytes, bytes] | None:
    """The overlay and topic that a stream is of; None: it is no topic's."""
    overlay, _, topic = stream.removeprefix(PREFIX).partition("/")
    try:
        key = bytes.fromhex(overlay), bytes.fromhex(topic)
    except ValueError:
        return None
    return key if stream == topic_stream(*key) else None


def topic_stream(overlay: bytes, topic: bytes) -> str:
    """The stream that a topic's events are kept in, one entry each."""
    return f"{PREFIX}{overlay.hex()}/{topic.hex()}"
