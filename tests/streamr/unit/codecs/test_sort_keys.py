"""Keys sort as the messages that they lead to, whatever is in publishers' ids."""

from hypothesis import given, strategies as st

from rillnode.codecs.streamr.limits import STREAMR_INTEGER_MAX
from rillnode.codecs.streamr.sort_keys import bounds, published_keys, pushed_keys
from rillnode.codecs.streamr.stream_message import MessageId

NUMBERS = st.one_of(st.integers(0, 3), st.integers(0, STREAMR_INTEGER_MAX))
PUBLISHERS = st.text(alphabet="\0\1aAb\u00e9", max_size=4)
NAMES = st.builds(MessageId, st.just("s"), st.just(0), NUMBERS, NUMBERS, PUBLISHERS, st.just("c"))


@given(st.lists(NAMES, max_size=8), PUBLISHERS, NUMBERS, st.none() | NUMBERS, NUMBERS)
def test_a_range_holds_exactly_the_messages_between_its_ends(
    names: list[MessageId], publisher: str, first: int, sequence: int | None, last: int
) -> None:
    keys = published_keys(names)
    for asked in (None, publisher):
        low, high = bounds(asked, (first, sequence), (last, sequence))
        found = {offset for key, offset in keys if low <= key < high}
        wanted = {
            offset
            for offset, name in enumerate(names)
            if (first, sequence or 0) <= (name.timestamp, name.sequence)
            and (name.timestamp, name.sequence)
            <= (last, STREAMR_INTEGER_MAX if sequence is None else sequence)
            and (asked is None or name.publisher_id.lower() == asked.lower())
        }
        assert found == wanted


@given(NAMES, NAMES)
def test_the_order_of_keys_is_that_of_timestamp_and_sequence(
    one: MessageId, two: MessageId
) -> None:
    (first, *_), (second, *_) = published_keys([one]), published_keys([two])
    numbers = (one.timestamp, one.sequence), (two.timestamp, two.sequence)
    assert (first[0] < second[0]) == (numbers[0] < numbers[1])


@given(NUMBERS, st.integers(0, 5), st.integers(1, 4))
def test_pushed_entries_stand_where_their_index_puts_them(
    received_at: int, first_index: int, count: int
) -> None:
    keys = pushed_keys("0xA", received_at)
    for publisher, key in zip((None, "0xa"), keys, strict=True):
        for offset in range(count):
            # As the store lists them: the index behind the key.
            row = key + (first_index + offset).to_bytes(8, "big")
            ref = (received_at, first_index + offset)
            low, high = bounds(publisher, ref, ref)
            assert low <= row < high
