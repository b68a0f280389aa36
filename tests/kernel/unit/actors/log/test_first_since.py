"""Finding a time in a log looks at few of its blocks."""

from rillnode.actors.log.rocks.retention import first_since
from rillnode.codecs.entries import Block, EntryKind, encode_block

ENTRIES = 100_000_000


def test_a_hundred_million_entries_take_some_thirty_looks() -> None:
    looks = 0

    def block_at(index: int) -> Block:
        nonlocal looks
        looks += 1
        value = encode_block(
            count=1, kind=EntryKind.BYTES, received_at=index // 3, position=index, body=b""
        )
        return Block(index, value)

    for at_ms in (0, 1, 12_345_678, ENTRIES // 3, ENTRIES):
        looks = 0
        assert first_since(at_ms, 0, ENTRIES, block_at) == min(3 * at_ms, ENTRIES)
        assert looks <= 28
