"""The trace context of a wire message: the span that it belongs to.

    Message, version 2 { ... as version 1, tracing_context: optional<string> }

What stands in the string is W3C's `traceparent`. Nodes that know nothing of it skip the field.

Source: ockam-network/proposals, design 0009; W3C Trace Context, section 3.2.
"""

import re
from typing import Final

from rillnode.codecs.routing.routes import WIRE_VERSION

CONTEXT_BYTES: Final = 55
ADDED_BYTES: Final = CONTEXT_BYTES + 2
"""What `with_context` makes a message longer by."""

_VERSION: Final = b"\x02"
_FIELD: Final = bytes((1, CONTEXT_BYTES))
_CONTEXT: Final = re.compile(rb"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def with_context(frame: bytes, context: str) -> bytes:
    """A message of version 1 as one of version 2 with a trace context."""
    assert frame[0] == WIRE_VERSION
    assert len(context) == CONTEXT_BYTES
    return b"".join((_VERSION, frame[1:], _FIELD, context.encode()))


def context_of(frame: bytes) -> str | None:
    """The trace context of an encoded message; None where it has none, or no valid one.

    What is taken for one may be the end of a payload in a message that has none. That harms nobody:
    who sends a message says in either way which trace it belongs to.
    """
    if not frame.startswith(_VERSION) or frame[-ADDED_BYTES:-CONTEXT_BYTES] != _FIELD:
        return None
    found = _CONTEXT.fullmatch(frame[-CONTEXT_BYTES:])
    return None if found is None else found[0].decode()
