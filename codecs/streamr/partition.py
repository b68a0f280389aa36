"""Maps keys to partitions, and stream partitions to trackers."""

import hashlib
import struct
from typing import Final

_INT32: Final = struct.Struct("<i")
_WRAP: Final = 2**32
_SIGN: Final = 2**31


def partition_of(key: str | int, partitions: int) -> int:
    """Choose the partition, 0 to `partitions` - 1, of messages that share a key.

    The absolute value of a number, or of the first four bytes of MD5 of a text as a little-endian
    signed integer, modulo the count of partitions. MD5 spreads keys here, it secures nothing.

    Raises:
        ValueError: there is no partition, or the key has no UTF-8 form.

    Source: streamr-broker 14.1.5, helpers/partition; streamr-client 5.2.1 for numbers.
    """
    if partitions < 1:
        raise ValueError("a stream has at least one partition")
    if isinstance(key, str):
        digest = hashlib.md5(key.encode(), usedforsecurity=False).digest()
        key = int(_INT32.unpack_from(digest)[0])
    return abs(key) % partitions


def tracker_of(stream_id: str, partition: int, trackers: int) -> int:
    """Choose the tracker, an index into the agreed list, that owns a stream partition.

    The absolute value of Java's hash of `stream_id::partition` (over UTF-16 units, 32 bits,
    signed), modulo the count of trackers.

    Raises:
        ValueError: there is no tracker.

    Source: streamr-client-protocol 7 to 8, TrackerRegistry. Before, a hash ring was used.
    """
    if trackers < 1:
        raise ValueError("there is no tracker to choose")
    units = f"{stream_id}::{partition}".encode("utf-16-le", "surrogatepass")
    hashed = 0
    for (unit,) in struct.iter_unpack("<H", units):
        hashed = (31 * hashed + unit) % _WRAP
    return abs(hashed - _WRAP if hashed >= _SIGN else hashed) % trackers
