"""Bloom filters of the commits that a client has already.

A split-block filter: 32-byte buckets of eight little-endian u32, in which a key sets one bit each.
The upper half of the key's SipHash-1-3 chooses the bucket, the lower half, times eight salts, the
bits; the key is a digest with its tag.

Source: the Rust crate sbbf that clients use, and the salts of Apache Parquet's Bloom filters;
checked against a real client's filter.
"""

import struct
from collections.abc import Iterable
from typing import Final

from msgspec import Struct
from siphash24 import siphash13

from rillnode.codecs.errors import CodecError
from rillnode.codecs.nextgraph.types import TAG

BUCKET_BYTES: Final = 32
BITS_PER_KEY: Final = 27
"""What clients size their filters with."""

_WORDS: Final = struct.Struct("<8I")
_U32: Final = 0xFFFF_FFFF
_SALTS: Final = (
    0x47B6137B,
    0x44974D91,
    0x8824AD5B,
    0xA2B7289D,
    0x705495C7,
    0x2DF1424B,
    0x9EFC4947,
    0x5C6BFB31,
)


class BloomFilter(Struct):
    """A filter as a message holds it; `f` is its buckets."""

    f: bytes


class KnownDigests:
    """The digests in a filter: false is certain, and true hardly ever wrong.

    Raises:
        CodecError: `bloom.size`, the filter has no whole buckets.
    """

    __slots__ = ("_buckets", "_content")

    def __init__(self, known: BloomFilter) -> None:
        if not known.f or len(known.f) % BUCKET_BYTES:
            raise CodecError("bloom.size", f"a filter is buckets of {BUCKET_BYTES} bytes")
        self._content = known.f
        self._buckets = len(known.f) // BUCKET_BYTES

    def __contains__(self, digest: object) -> bool:
        if not isinstance(digest, bytes):
            return False
        offset, mask = _place(digest, self._buckets)
        words = _WORDS.unpack_from(self._content, offset)
        return all(word & bit for word, bit in zip(words, mask, strict=True))


def make_filter(digests: Iterable[bytes], keys: int) -> BloomFilter:
    """Put digests into a filter with room for so many."""
    buckets = max(1, -(-keys * BITS_PER_KEY // (8 * BUCKET_BYTES)))
    content = bytearray(buckets * BUCKET_BYTES)
    for digest in digests:
        offset, mask = _place(digest, buckets)
        words = _WORDS.unpack_from(content, offset)
        _WORDS.pack_into(content, offset, *map(int.__or__, words, mask))
    return BloomFilter(bytes(content))


def _place(digest: bytes, buckets: int) -> tuple[int, list[int]]:
    """A digest's bucket as an offset, and its bit in each of the bucket's words."""
    number = siphash13(TAG + digest).intdigest() & 0xFFFF_FFFF_FFFF_FFFF
    low = number & _U32
    offset = ((number >> 32) * buckets >> 32) * BUCKET_BYTES
    return offset, [1 << ((low * salt & _U32) >> 27) for salt in _SALTS]
