import pytest

from rillnode.codecs.streamr.partition import partition_of, tracker_of


def test_number_goes_by_its_absolute_value() -> None:
    assert [partition_of(key, 4) for key in (0, 1, 5, -5)] == [0, 1, 1, 1]


def test_one_partition_takes_all() -> None:
    assert {partition_of(key, 1) for key in ("a", "b", 7)} == {0}


def test_keys_spread_over_all_partitions() -> None:
    assert {partition_of(f"key-{n}", 8) for n in range(200)} == set(range(8))


@pytest.mark.parametrize(
    ("stream_id", "partition", "number"),
    [("stream-1", 0, 1), ("stream-1", 1, 2), ("stream-2", 0, 4), ("sandbox/test", 5, 2)],
)
def test_the_tracker_is_the_one_that_released_nodes_choose(
    stream_id: str, partition: int, number: int
) -> None:
    """As streamr-client-protocol 8.0.5 chooses among four, numbered from 1."""
    assert tracker_of(stream_id, partition, 4) == number - 1


def test_tracker_hash_counts_utf_16_units() -> None:
    # A character beyond the first plane is two units, as in Java: 0xd83d, 0xde00.
    units = [0xD83D, 0xDE00, *b"::0"]
    hashed = 0
    for unit in units:
        hashed = (31 * hashed + unit) & 0xFFFFFFFF
    hashed -= 2**32 if hashed >= 2**31 else 0
    assert tracker_of("\U0001f600", 0, 1_000_003) == abs(hashed) % 1_000_003


@pytest.mark.parametrize("count", [0, -1])
def test_there_is_something_to_choose(count: int) -> None:
    with pytest.raises(ValueError, match="at least one partition"):
        partition_of("a", count)
    with pytest.raises(ValueError, match="no tracker"):
        tracker_of("a", 0, count)
