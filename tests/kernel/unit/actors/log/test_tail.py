"""The tail cache alone: its bounds, and which logs go first."""

import pytest

from rillnode.actors.log import LogExtent, Read
from rillnode.actors.log.rocks.layout import LogState
from rillnode.actors.log.rocks.tail import TailCache
from rillnode.codecs.entries import Block, EntryKind, encode_block, pack_body


def block(first_index: int, size: int) -> Block:
    body = pack_body([b"." * size])
    value = encode_block(
        count=1, kind=EntryKind.BYTES, received_at=0, position=first_index * size, body=body
    )
    return Block(first_index, value)


def commit(tail: TailCache, log: int, first_index: int, size: int = 1_000) -> None:
    has(tail, log)  # it is read, and so kept from now on
    state = LogState(0, first_index + 1, 0, (first_index + 1) * size)
    tail.commit({log: [block(first_index, size)]}, {log: state})


def has(tail: TailCache, log: int) -> bool:
    return tail.read(Read(log=log))


def test_nothing_is_kept_of_a_log_before_it_is_read() -> None:
    tail = TailCache(10_000)
    state = LogState(0, 1, 0, 1_000)
    tail.commit({1: [block(0, 1_000)]}, {1: state})
    assert (tail.size, has(tail, 1)) == (0, False)
    tail.commit({1: [block(1, 1_000)]}, {1: LogState(0, 2, 0, 2_000)})
    assert not tail.read(Read(log=1, index=0))
    read = Read(log=1, index=1)
    assert tail.read(read)
    assert [one.first_index for one in read.blocks] == [1]
    assert read.extent == LogExtent(0, 2, 2_000)


def test_logs_that_were_read_long_ago_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rillnode.actors.log.rocks.tail.READ_LOGS_MAX", 10)
    tail = TailCache(100_000)
    for log in range(1, 35):
        has(tail, log)
    for log in range(1, 35):
        tail.commit({log: [block(0, 1)]}, {log: LogState(0, 1, 0, 1)})
    assert [log for log in range(1, 35) if has(tail, log)] == [*range(21, 35)]


def test_logs_appended_to_longest_ago_go_first() -> None:
    tail = TailCache(10_000)
    for log in range(6):
        commit(tail, log, 0)
    commit(tail, 0, 1)
    for log in range(6, 9):
        commit(tail, log, 0)
    assert tail.size <= 10_000
    assert has(tail, 0)
    assert has(tail, 8)
    assert not has(tail, 1)


def test_a_log_that_is_forgotten_takes_no_room() -> None:
    tail = TailCache(100_000)
    commit(tail, 1, 0)
    before = tail.size
    commit(tail, 2, 0)
    commit(tail, 2, 1)
    for _ in range(2):
        tail.forget(2)
        assert tail.size == before
    assert has(tail, 1)
    assert not has(tail, 2)


def test_small_entries_are_bounded_too() -> None:
    tail = TailCache(10_000)
    for log in range(1_000):
        commit(tail, log, 0, size=0)
    assert tail.size <= 10_000
    assert sum(has(tail, log) for log in range(1_000)) < 30


def test_one_busy_log_keeps_its_last_blocks() -> None:
    tail = TailCache(20_000)
    for index in range(100):
        commit(tail, 1, index)
    assert 0 < tail.size <= 20_000
    read = Read(log=1, index=95)
    assert tail.read(read)
    assert [one.first_index for one in read.blocks] == [95, 96, 97, 98, 99]
    assert read.extent == LogExtent(0, 100, 100_000)
    assert not tail.read(Read(log=1, index=0))


def test_a_block_larger_than_the_cache_is_not_kept() -> None:
    tail = TailCache(5_000)
    commit(tail, 1, 0, size=50_000)
    assert tail.size <= 5_000
    assert not has(tail, 1)


def test_a_read_beyond_the_end_known_here_asks_the_disk() -> None:
    tail = TailCache(5_000)
    commit(tail, 1, 0)
    assert tail.read(Read(log=1, index=1))
    assert not tail.read(Read(log=1, index=2))


def test_trimmed_blocks_leave_at_once() -> None:
    tail = TailCache(20_000)
    for index in range(5):
        commit(tail, 1, index)
    before = tail.size
    tail.commit({}, {1: LogState(3, 5, 3_000, 5_000)})
    read = Read(log=1)
    assert tail.read(read)
    assert [one.first_index for one in read.blocks] == [3, 4]
    assert tail.size < before
    tail.clear()
    assert (tail.size, has(tail, 1)) == (0, False)
