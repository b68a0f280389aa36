"""Names stream partitions to trackers, and addresses their neighbours actors."""

from typing import Final
from urllib.parse import quote, unquote

from rillnode.codecs.errors import CodecError
from rillnode.codecs.limits import NAME_BYTES_MAX, PARTITIONS_MAX

ADDRESS_PREFIX: Final = b"overlay/"
_SAFE: Final = "-_.:@/"
_SEPARATOR: Final = "::"


def stream_key(stream_id: str, partition: int) -> str:
    """Name a stream partition as the keys of a Status do: `id::partition`."""
    return f"{stream_id}{_SEPARATOR}{partition}"


def parse_stream_key(key: str) -> tuple[str, int]:
    """Read what `stream_key` has made.

    Raises:
        CodecError: `network.stream`, it has not.
    """
    stream_id, _, digits = key.rpartition(_SEPARATOR)
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 10):
        raise CodecError("network.stream", "a stream partition is named id::partition")
    partition = int(digits)
    size = len(stream_id.encode("utf-8", "replace"))
    if not 0 < size <= NAME_BYTES_MAX or partition >= PARTITIONS_MAX:
        raise CodecError("network.stream", "no stream has such a name or partition")
    return stream_id, partition


def overlay_address(stream_id: str, partition: int) -> bytes:
    """The address of the neighbours actor of a stream partition."""
    return b"%s%s/%d" % (ADDRESS_PREFIX, quote(stream_id, safe=_SAFE).encode(), partition)


def parse_overlay_address(address: bytes) -> tuple[str, int] | None:
    """The stream and partition of an address, or None where it is no such address."""
    quoted, _, digits = address[len(ADDRESS_PREFIX) :].rpartition(b"/")
    if not (quoted.isascii() and digits.isdigit() and len(digits) <= 10):
        return None
    try:
        stream_id, partition = unquote(quoted.decode(), errors="strict"), int(digits)
    except UnicodeDecodeError:
        return None
    return (stream_id, partition) if overlay_address(stream_id, partition) == address else None
