"""Tests the search for publishers, which steps from one publisher's keys to the next one's."""

from bisect import bisect_left

from hypothesis import given, strategies as st

from rillnode.codecs.streamr.sort_keys import published_keys, publisher_in, publishers_after
from rillnode.codecs.streamr.stream_message import MessageId

names = st.text("\0\1aA", max_size=4) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=8
)


@given(st.lists(st.tuples(names, st.integers(0, 3)), max_size=12))
def test_every_publisher_is_met_once(messages: list[tuple[str, int]]) -> None:
    ids = [MessageId("s", 0, time, 0, publisher, "c") for publisher, time in messages]
    keys = sorted(key for key, _ in published_keys(ids))
    found: list[str] = []
    start, end = publishers_after(None)
    while (at := bisect_left(keys, start)) < len(keys) and keys[at] < end:
        found.append(publisher_in(keys[at]))
        start, end = publishers_after(found[-1])
    assert sorted(found) == sorted({publisher.lower() for publisher, _ in messages})
