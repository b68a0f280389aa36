from collections.abc import Sequence
from itertools import accumulate

from hypothesis import given, strategies as st

from fake_sink import FakeSink
from rillnode.node.spark.offsets import Key
from rillnode.node.spark.probing import Probe, block_prober, limit_bytes, positions_at

KEY: Key = ("s", 0)


class Log:
    """A log of blocks, each with a number of entries and bytes, which counts its readers."""

    def __init__(self, blocks: Sequence[tuple[int, int]]) -> None:
        indexes = [0, *accumulate(count for count, _ in blocks)]
        positions = [0, *accumulate(size for _, size in blocks)]
        self.blocks = [
            Probe(indexes[at], indexes[at + 1], at, positions[at], size)
            for at, (_, size) in enumerate(blocks)
        ]
        self.end = indexes[-1]
        self.probes = 0

    def probe(self, _: Key, index: int) -> Probe:
        self.probes += 1
        return next(block for block in self.blocks if block.first <= index < block.next)


BLOCKS = st.lists(st.tuples(st.integers(1, 50), st.integers(0, 10_000)), min_size=1, max_size=40)


@given(BLOCKS, st.data())
def test_a_limit_is_kept_to_within_a_block_and_moves_on(
    blocks: list[tuple[int, int]], data: st.DataObject
) -> None:
    log = Log(blocks)
    start = data.draw(st.integers(0, log.end - 1))
    bytes_max = data.draw(st.integers(1, 100_000))
    until = limit_bytes(log.probe, {KEY: start}, {KEY: log.end}, bytes_max)[KEY]
    assert start < until <= log.end
    inside = [b for b in log.blocks if b.next > start and b.first < until]
    assert sum(block.size for block in inside[:-1]) <= bytes_max
    if until < log.end:
        assert until in {block.next for block in log.blocks}
        assert sum(block.size for block in inside) + 10_000 >= bytes_max


@given(BLOCKS, st.integers(0, 41))
def test_a_time_is_where_the_first_block_of_then_or_later_begins(
    blocks: list[tuple[int, int]], time: int
) -> None:
    log = Log(blocks)
    found = positions_at(log.probe, {KEY: (0, log.end)}, time)[KEY]
    expected = [block.first for block in log.blocks if block.received_at >= time]
    assert found == min(expected, default=log.end)


def test_a_search_reads_few_blocks() -> None:
    log = Log([(100, 1_000)] * 1_000)
    limit_bytes(log.probe, {KEY: 0}, {KEY: log.end}, 300_000)
    assert log.probes < 25


def test_what_is_trimmed_meanwhile_lies_before_every_time() -> None:
    sink = FakeSink()
    for minute in range(4):
        sink.append("s", [b"a", b"b"], received_at=minute)
    probe = block_prober(sink.local_options)
    assert probe(KEY, 5) == Probe(4, 6, 2, 4, probe(KEY, 5).size)
    sink.trim("s", 6)
    assert probe(KEY, 1) == Probe(1, 6, 0, 0, 0)
    assert positions_at(probe, {KEY: (0, 8)}, 1) == {KEY: 6}


def test_partitions_share_a_limit_by_what_waits_in_them() -> None:
    logs = {("a", 0): Log([(10, 100)] * 90), ("b", 0): Log([(1, 100)] * 10)}
    until = limit_bytes(
        lambda key, index: logs[key].probe(key, index),
        {},
        {key: log.end for key, log in logs.items()},
        5_000,
    )
    assert until == {("a", 0): 450, ("b", 0): 5}
