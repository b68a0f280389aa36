import json

import pytest
from hypothesis import given, strategies as st

from rillnode.codecs.errors import ConfigError, RequestError
from rillnode.node.spark.offsets import (
    TASK_ROWS_MIN,
    Offset,
    Range,
    check_ends,
    check_streams,
    data_loss,
    limit_positions,
    parse_bound,
    positions_from_json,
    positions_to_json,
    ranges_between,
    ranges_of,
    resolve_bound,
    split_ranges,
)

A, B, C = ("a", 0), ("a", 1), ("b", 0)
ENDS = {A: (5, 100), B: (0, 20), C: (0, 0)}


def test_positions_are_written_in_one_order_and_read_back() -> None:
    positions = {("b", 0): 3, ("a", 10): 2, ("a", 2): 1}
    document = positions_to_json(positions)
    assert json.dumps(document) == '{"a": {"2": 1, "10": 2}, "b": {"0": 3}}'
    assert positions_from_json(document, "here") == positions


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "[]",
        "5",
        '{"a": 5}',
        '{"a": {"x": 5}}',
        '{"a": {"-1": 5}}',
        '{"a": {"0": "5"}}',
        '{"a": {"0": true}}',
        '{"a": {"0": 1.5}}',
        '{"a": {"0": -3}}',
    ],
)
def test_what_is_no_offset_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError, match="option `startingOffsets`"):
        parse_bound(text, "startingOffsets")


def test_offsets_mean_what_they_mean_for_kafka() -> None:
    def resolved(text: str, option: str = "startingOffsets") -> dict[tuple[str, int], int]:
        return resolve_bound(parse_bound(text, option), ENDS, {}, option)

    assert resolved("earliest") == {A: 5, B: 0, C: 0}
    assert resolved(" Latest ") == {A: 100, B: 20, C: 0}
    assert resolved('{"a": {"0": 7, "1": -1}}') == {A: 7, B: 20, C: 0}
    assert resolved('{"a": {"0": -2}}', "endingOffsets") == {A: 5, B: 20, C: 0}


def test_an_offset_of_an_unknown_partition_is_refused() -> None:
    bound = parse_bound('{"a": {"7": 0}}', "startingOffsets")
    with pytest.raises(ConfigError, match="'a' partition 7"):
        resolve_bound(bound, ENDS, {}, "startingOffsets")


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_an_offset_behind_the_end_is_refused_as_what_it_is(option: str) -> None:
    """Nobody has read up to there."""
    with pytest.raises(ConfigError, match=f"`{option}` names index 21 .*, which ends at index 20"):
        resolve_bound(parse_bound('{"a": {"1": 21}}', option), ENDS, {}, option)


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_an_offset_in_a_stream_that_was_made_anew_is_refused(option: str) -> None:
    bound = parse_bound('{"a": {"0": 7, "created_at": 17}}', option)
    for created in ({"a": 17}, {}):  # nobody knows of files
        assert resolve_bound(bound, ENDS, created, option)[A] == 7
    with pytest.raises(RequestError, match="'a' was removed and made anew") as caught:
        resolve_bound(bound, ENDS, {"a": 18}, option)
    assert caught.value.code == "sink.reset"


def test_a_named_stream_that_is_not_there_is_refused() -> None:
    ends = {("a", 0): (0, 5), ("a[1", 0): (0, 0)}
    check_streams(["a", "b*", "?", "[bc]", "a[1"], ends)
    check_streams([], {})
    with pytest.raises(RequestError, match="no stream 'b', or") as caught:
        check_streams(["a", "b"], ends)
    assert caught.value.code == "stream.unknown"


def test_a_limit_is_shared_in_proportion() -> None:
    start = {A: 0, B: 0, C: 0}
    end = {A: 600, B: 300, C: 100}
    assert limit_positions(start, end, 100) == {A: 60, B: 30, C: 10}
    assert limit_positions(start, end, 1000) == end


positions_maps = st.dictionaries(
    st.tuples(st.sampled_from("abc"), st.integers(0, 3)), st.integers(0, 1 << 40), min_size=1
)


@given(positions_maps, positions_maps, st.integers(1, 1 << 41))
def test_a_limit_is_used_up_but_not_exceeded(
    start: dict[tuple[str, int], int], waiting: dict[tuple[str, int], int], limit: int
) -> None:
    end = {key: start.get(key, 0) + rows for key, rows in waiting.items()}
    limited = limit_positions(start, end, limit)
    taken = {key: index - start.get(key, 0) for key, index in limited.items()}
    assert sum(taken.values()) == min(limit, sum(waiting.values()))
    assert all(0 <= taken[key] <= waiting[key] for key in waiting)


def test_trimmed_entries_and_new_partitions_lie_between_positions() -> None:
    ranges = ranges_between({A: 2}, {A: 50, B: 20, C: 0}, ENDS)
    assert ranges == [Range("a", 0, 2, 5, gap=True), Range("a", 0, 5, 50), Range("a", 1, 0, 20)]


def test_a_range_that_is_trimmed_whole_is_one_gap_up_to_its_end() -> None:
    assert ranges_between({A: 1}, {A: 4}, {A: (90, 100)}) == [Range("a", 0, 1, 4, gap=True)]


def test_a_stream_that_was_made_anew_is_refused() -> None:
    check_ends({A: 100, ("gone", 0): 9}, ENDS)
    with pytest.raises(RequestError, match="'a' partition 1 ends at index 20") as caught:
        check_ends({B: 21}, ENDS)
    assert caught.value.code == "sink.reset"


def test_data_loss_names_stream_partition_and_range() -> None:
    error = data_loss(Range("sensors", 3, 10, 25, gap=True))
    assert error.code == "sink.data_loss"
    assert "stream 'sensors' partition 3: entries 10 to 24" in str(error)


def test_a_large_range_is_split_and_small_ones_share_a_task() -> None:
    large = TASK_ROWS_MIN * 8
    ranges = [Range("a", 0, 0, 10), Range("a", 1, 0, large), Range("b", 0, 5, 25)]
    first, second = split_ranges(ranges, 2)
    half = (large + 30) // 2
    assert first == (Range("a", 0, 0, 10), Range("a", 1, 0, half - 10))
    assert second == (Range("a", 1, half - 10, large), Range("b", 0, 5, 25))


def test_few_rows_are_one_task() -> None:
    ranges = [Range("a", partition, 0, 10) for partition in range(100)]
    assert split_ranges(ranges, 8) == [tuple(ranges)]
    assert split_ranges([], 8) == []


def test_a_gap_counts_as_the_one_row_that_it_makes() -> None:
    gap = Range("a", 0, 0, 1 << 40, gap=True)
    rows = Range("a", 0, 1 << 40, (1 << 40) + 2 * TASK_ROWS_MIN)
    first, second = split_ranges([gap, rows], None)
    assert first[0] == gap
    assert second[0].start - first[1].start == TASK_ROWS_MIN - 1


@given(
    st.lists(st.tuples(st.integers(0, 50_000), st.booleans()), max_size=30),
    st.none() | st.integers(1, 40),
)
def test_tasks_hold_every_row_once_and_in_order(
    sizes: list[tuple[int, bool]], tasks_max: int | None
) -> None:
    ranges = [
        Range("s", at, 7, 7 + (size or 1) if gap else 7 + size, gap)
        for at, (size, gap) in enumerate(sizes)
    ]
    tasks = split_ranges(ranges, tasks_max)
    assert all(tasks)
    assert len(tasks) <= (tasks_max or max(1, len(ranges)))
    joined: dict[int, tuple[int, int]] = {}
    for part in (part for task in tasks for part in task):
        begin, end = joined.get(part.partition, (part.start, part.start))
        assert part.start == end
        joined[part.partition] = (begin, part.until)
    assert joined == {item.partition: (7, item.until) for item in ranges if item.until > 7}


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
