"""Numbers and chain ids of published messages."""

import os
from itertools import count

from hypothesis import given, strategies as st

from rillnode.codecs.streamr.stream_message import MessageRef
from rillnode.node.streamr.client.numbering import CHAIN_ID_LENGTH, Numbering, random_chain_id


def numbering() -> Numbering:
    chains = count()
    return Numbering("0xpub", lambda: f"chain-{next(chains)}")


def test_messages_of_a_partition_name_the_one_before() -> None:
    numbers = numbering()
    first = numbers.next("s", 0, 1_000)
    second = numbers.next("s", 0, 1_001)

    assert first.previous is None
    assert first.id == ("s", 0, 1_000, 0, "0xpub", "chain-0")
    assert second.previous == MessageRef(1_000, 0)
    assert (second.id.timestamp, second.id.sequence) == (1_001, 0)


def test_sequence_tells_messages_of_one_millisecond_apart() -> None:
    numbers = numbering()
    assert [numbers.next("s", 0, 5).id.sequence for _ in range(3)] == [0, 1, 2]
    later = numbers.next("s", 0, 6)
    assert (later.id.sequence, later.previous) == (0, MessageRef(5, 2))


def test_partitions_have_chains_of_their_own_with_one_id() -> None:
    numbers = numbering()
    numbers.next("s", 0, 5)
    other = numbers.next("s", 1, 5)
    assert (other.id.sequence, other.previous, other.id.chain_id) == (0, None, "chain-0")


def test_message_dated_before_the_last_begins_a_new_chain() -> None:
    numbers = numbering()
    numbers.next("s", 0, 1_000)
    back = numbers.next("s", 0, 10)
    after = numbers.next("s", 0, 11)

    assert (back.previous, back.id.chain_id) == (None, "chain-1")
    assert (after.previous, after.id.chain_id) == (MessageRef(10, 0), "chain-1")
    assert numbers.next("s", 1, 12).id.chain_id == "chain-0"


@given(st.lists(st.integers(0, 5), max_size=50))
def test_every_chain_only_goes_up_and_has_no_gap(timestamps: list[int]) -> None:
    numbers = numbering()
    last: dict[str, tuple[int, int]] = {}
    for timestamp in timestamps:
        numbered = numbers.next("s", 0, timestamp)
        before = last.get(numbered.id.chain_id)
        number = (numbered.id.timestamp, numbered.id.sequence)
        assert numbered.previous == before
        assert before is None or number > before
        last[numbered.id.chain_id] = number


def test_chain_ids_are_random_letters_and_digits() -> None:
    ids = {random_chain_id(os.urandom) for _ in range(100)}
    assert len(ids) == 100
    assert all(len(one) == CHAIN_ID_LENGTH and one.isalnum() and one.isascii() for one in ids)


def test_bytes_that_would_favour_some_characters_are_not_used() -> None:
    blocks = iter([bytes([255] * 32), bytes([0] * 32)])
    assert random_chain_id(lambda _: next(blocks)) == "a" * CHAIN_ID_LENGTH
