import threading
from collections.abc import Generator

import pytest

from fake_sink import FakeSink
from rillnode.codecs.entries import Block
from rillnode.codecs.errors import RequestError
from rillnode.node.spark import arrow, ranges
from rillnode.node.spark.arrow import ahead, read_ranges
from rillnode.node.spark.offsets import Range


def read(sink: FakeSink, *ranges: Range, fail: bool = True) -> list[tuple[object, ...]]:
    batches = read_ranges(sink.local_options, ranges, fail_on_data_loss=fail)
    return [
        (row["stream"], row["index"], row["data"], row["gap_until"])
        for batch in batches
        for row in batch.to_pylist()
    ]


def test_ranges_are_read_in_order_and_exactly() -> None:
    sink = FakeSink()
    for at in range(10):
        sink.append("s", [b"%d" % (3 * at + i) for i in range(3)])
    sink.append("t", [b"x"])
    rows = read(sink, Range("s", 0, 4, 25), Range("t", 0, 0, 1))
    assert rows == [*(("s", i, b"%d" % i, None) for i in range(4, 25)), ("t", 0, b"x", None)]


def test_a_range_of_more_than_one_fetch_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "FETCH_BYTES_MAX", 200)
    monkeypatch.setattr(arrow, "BATCH_BYTES_MAX", 100)
    sink = FakeSink()
    for at in range(50):
        sink.append("s", [b"%03d" % at])
    assert [row[1] for row in read(sink, Range("s", 0, 1, 50))] == list(range(1, 50))


def test_a_planned_gap_is_a_row_and_is_not_read() -> None:
    sink = FakeSink()
    rows = read(sink, Range("s", 0, 0, 1 << 50, gap=True), fail=False)
    assert rows == [("s", 0, None, 1 << 50)]


def test_entries_trimmed_after_planning_fail_or_leave_a_gap() -> None:
    sink = FakeSink()
    sink.append("s", [b"a", b"b"])
    sink.append("s", [b"c", b"d"])
    sink.trim("s", 3)
    with pytest.raises(RequestError, match="entries 1 to 2 were trimmed"):
        read(sink, Range("s", 0, 1, 4))
    assert read(sink, Range("s", 0, 1, 4), fail=False) == [("s", 1, None, 3), ("s", 3, b"d", None)]
    sink.trim("s", 100)
    assert read(sink, Range("s", 0, 1, 4), fail=False) == [("s", 1, None, 4)]


@pytest.mark.parametrize("answer", ["nothing", "later", "hole"])
def test_an_answer_with_a_hole_is_an_error(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = FakeSink()
    for at in range(4):
        sink.append("s", [b"%d" % at])

    def wrong(*arguments: object) -> tuple[int, list[Block]]:
        _, blocks = FakeSink.read(sink, Range("s", 0, 0, 4), 1_000_000)
        chosen = {"nothing": [], "later": blocks[1:], "hole": [blocks[0], *blocks[2:]]}[answer]
        return 0, chosen

    monkeypatch.setattr(sink, "read", wrong)
    with pytest.raises(RequestError, match="to 4, the node sent") as caught:
        read(sink, Range("s", 0, 0, 4))
    assert caught.value.code == "sink.range"


def test_the_next_item_is_made_while_the_last_is_used() -> None:
    made = threading.Event()

    def source() -> Generator[int, None, None]:
        yield 1
        made.set()
        yield 2

    items = ahead(source())
    assert next(items) == 1
    assert made.wait(10)
    assert list(items) == [2]


def test_an_error_of_the_thread_reaches_the_reader_after_what_came_before() -> None:
    def source() -> Generator[int, None, None]:
        yield 1
        raise RequestError("x", "failed")

    items = ahead(source())
    assert next(items) == 1
    with pytest.raises(RequestError, match="failed"):
        next(items)


def test_a_reader_that_stops_early_ends_the_thread() -> None:
    closed = threading.Event()

    def source() -> Generator[int, None, None]:
        try:
            yield from range(1_000_000)
        finally:
            closed.set()

    items = ahead(source())
    assert next(items) == 0
    items.close()
    assert closed.is_set()
    assert not [thread for thread in threading.enumerate() if thread.name == "rillnode-fetch"]
