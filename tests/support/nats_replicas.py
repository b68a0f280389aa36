"""Reads a JetStream stream's replicas on disk, to tell a server's fault from a node's.

Written after nats-server's message blocks, `server/filestore.go`: each record is its length, with
one bit for headers, sequence, time, subject, message, and a checksum of eight bytes.
"""

from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from struct import Struct
from typing import Final

_RECORD: Final = Struct("<IQqH")
_CHECKSUM_BYTES: Final = 8
_LENGTH_BITS: Final = 0x7FFF_FFFF


def different_messages(directories: Sequence[Path]) -> list[tuple[str, int]]:
    """Streams, each with the first sequence at which two servers hold different messages.

    Args:
        directories: what each server has as `store_dir`.
    """
    found: list[tuple[str, int]] = []
    names = {path.name for one in directories for path in one.glob("jetstream/*/streams/*")}
    for name in sorted(names):
        replicas = [_messages(one, name) for one in directories]
        differing = [
            sequence
            for sequence in set[int]().union(*replicas)
            if len({replica[sequence] for replica in replicas if sequence in replica}) > 1
        ]
        if differing:
            found.append((name, min(differing)))
    return found


def _messages(directory: Path, name: str) -> dict[int, bytes]:
    return {
        sequence: digest
        for path in directory.glob(f"jetstream/*/streams/{name}/msgs/*.blk")
        for sequence, digest in _records(path.read_bytes())
    }


def _records(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _RECORD.size <= len(data):
        length, sequence, _, subject = _RECORD.unpack_from(data, at)
        end = at + (length & _LENGTH_BITS)
        begin = at + _RECORD.size + subject
        if not begin <= end - _CHECKSUM_BYTES <= len(data):
            return
        yield sequence, sha256(data[begin : end - _CHECKSUM_BYTES]).digest()
        at = end
