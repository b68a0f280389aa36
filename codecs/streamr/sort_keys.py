"""Secondary keys by which a log's entries are found in the order that Streamr's resends have.

Messages are ordered by (timestamp, sequence), of all publishers or of one:

    t | timestamp u64 | sequence u64
    p | publisher, lower case, UTF-8 | 00 00 | timestamp u64 | sequence u64

Numbers are big-endian; a zero byte of the publisher is written 00 01, so that no publisher's keys
lie among another's. Behind every key the store writes the index of its entry as a u64.

What other protocols have pushed has no sequence of its own: it is the entry's index, which grows.
Nobody but the store knows it beforehand, and it is what the store writes behind the key anyway, so
their keys end with the timestamp.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final

from rillnode.codecs.streamr.stream_message import MessageId

_TIME: Final = Struct(">Q")
_REF: Final = Struct(">QQ")
_BY_TIME: Final = b"t"
_BY_PUBLISHER: Final = b"p"

_NUMBER_MAX: Final = 2**64 - 1

Bounds = tuple[bytes, bytes]
"""The first key of a range, and the first past it."""


def published_keys(names: Sequence[MessageId]) -> list[tuple[bytes, int]]:
    """The keys of messages that are appended together, as an Append takes them."""
    return [(key, offset) for offset, name in enumerate(names) for key in _message_keys(name)]


def pushed_keys(publisher_id: str, received_at: int) -> tuple[bytes, bytes]:
    """The keys of entries of another protocol that have come together, the same for all of them.

    Args:
        publisher_id: in whose name they are resent.
        received_at: milliseconds since 1970, when they were received.
    """
    time = _TIME.pack(max(0, received_at))
    return _BY_TIME + time, _publisher(publisher_id) + time


def bounds(
    publisher_id: str | None, first: tuple[int, int | None], last: tuple[int, int | None]
) -> Bounds:
    """The keys from `first` to `last`, both included.

    Args:
        publisher_id: of one publisher, compared without case; None: of all.
        first: timestamp, and sequence; None: the lowest.
        last: timestamp, and sequence; None: the highest.
    """
    prefix = _BY_TIME if publisher_id is None else _publisher(publisher_id)
    begin = prefix + _REF.pack(first[0], first[1] or 0)
    timestamp, sequence = last[0], _NUMBER_MAX if last[1] is None else last[1]
    if sequence < _NUMBER_MAX:
        return begin, prefix + _REF.pack(timestamp, sequence + 1)
    return begin, prefix + _TIME.pack(timestamp + 1)


def publishers_after(publisher_id: str | None) -> Bounds:
    """The keys of all publishers that come after one in the order of keys; None: of all."""
    # A publisher's own keys go on with 00 00 behind its name, a longer name's with more than that.
    begin = _BY_PUBLISHER if publisher_id is None else _publisher(publisher_id)[:-1] + b"\1"
    return begin, bytes((_BY_PUBLISHER[0] + 1,))


def publisher_in(key: bytes) -> str:
    """Whose messages a key by publisher finds, in lower case."""
    return key[1 : key.index(b"\0\0")].replace(b"\0\1", b"\0").decode()


def _message_keys(name: MessageId) -> tuple[bytes, bytes]:
    ref = _REF.pack(name.timestamp, name.sequence)
    return _BY_TIME + ref, _publisher(name.publisher_id) + ref


def _publisher(publisher_id: str) -> bytes:
    name = publisher_id.lower().encode().replace(b"\0", b"\0\1")
    return b"%b%b\0\0" % (_BY_PUBLISHER, name)
