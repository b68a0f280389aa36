import pytest

from rillnode.codecs.errors import ConfigError
from rillnode.node.spark.offsets import Offset, Range, ranges_of

WHERE = "here"


def test_an_offset_is_written_in_one_order_and_read_back() -> None:
    offset = Offset({("b", 1): 5, ("b", 0): 4, ("a", 0): 3}, {"b": 17, "gone": 1})
    document = offset.to_json()
    assert list(document) == ["a", "b"]
    assert list(document["b"]) == ["0", "1", "created_at"]
    assert document == {"a": {"0": 3}, "b": {"0": 4, "1": 5, "created_at": 17}}
    assert Offset.from_json(document, WHERE) == Offset(offset.positions, {"b": 17})


@pytest.mark.parametrize(
    "document",
    [7, {"s": 7}, {"s": {"0": 1, "created_at": "now"}}, {"s": {"0": 1, "created_at": -1}}],
)
def test_what_is_no_offset_is_refused(document: object) -> None:
    with pytest.raises(ConfigError, match=WHERE):
        Offset.from_json(document, WHERE)


def test_a_stream_is_another_only_where_both_sides_know() -> None:
    offset = Offset({("a", 0): 1, ("b", 0): 2, ("c", 0): 3}, {"a": 5, "b": 5})
    created = {"a": 5, "b": 6, "c": 7}
    assert offset.made_anew(created) == {"b"}
    assert offset.still(created) == {("a", 0): 1, ("c", 0): 3}
    assert offset.still({}) == offset.positions


def test_without_a_stream_made_anew_ranges_are_as_ever() -> None:
    start, end = Offset({("s", 0): 1}, {}), Offset({("s", 0): 4, ("s", 1): 2}, {"s": 5})
    ranges = ranges_of(start, end, {("s", 0): (2, 9), ("s", 1): (0, 2)}, {"s": 5})
    assert ranges == [
        Range("s", 0, 1, 2, gap=True),
        Range("s", 0, 2, 4),
        Range("s", 1, 0, 2),
    ]


def test_a_stream_made_anew_twice_leaves_one_gap_for_each() -> None:
    start, end = Offset({("s", 0): 5}, {"s": 1}), Offset({("s", 0): 3}, {"s": 2})
    ranges = ranges_of(start, end, {("s", 0): (0, 9)}, {"s": 3})
    assert ranges == [Range("s", 0, 5, 5, gap=True), Range("s", 0, 0, 3, gap=True)]
