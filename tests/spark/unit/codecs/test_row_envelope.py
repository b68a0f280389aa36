import json

import pytest

from rillnode.codecs.errors import CodecError
from rillnode.codecs.spark import row_envelope
from rillnode.codecs.spark.row_envelope import RepeatFilter, RowId, decode_row, encode_row

ROW = RowId("q1", 17, 0, 4211)


def test_a_row_is_json_that_anybody_can_read() -> None:
    assert json.loads(encode_row(ROW, "é")) == {
        "query": "q1",
        "batch": 17,
        "task": 0,
        "row": 4211,
        "data": "é",
    }
    assert json.loads(encode_row(ROW, b"\x00\x01\x02"))["data_base64"] == "AAEC"


@pytest.mark.parametrize("data", ["", "text", b"", b"\xff\x00", "\0"])
def test_a_row_comes_out_as_it_went_in(data: str | bytes) -> None:
    expected = data.encode() if isinstance(data, str) else data
    assert decode_row(encode_row(ROW, data)) == (ROW, expected)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"query": "q", "batch": 1, "task": 0}',
        b'{"query": "q", "batch": "1", "task": 0, "row": 0, "data": ""}',
        b'{"query": "q", "batch": 1, "task": 0, "row": 0}',
        b'{"query": "q", "batch": 1, "task": 0, "row": 0, "data": "", "data_base64": ""}',
        b'{"query": "q", "batch": 1, "task": 0, "row": 0, "data_base64": "A"}',
        '{"query": "q", "batch": 1, "task": 0, "row": 0, "data_base64": "é"}'.encode(),
        b"[" * 100_000,
        b'{"later":' * 100_000,
    ],
)
def test_what_is_no_envelope_is_refused(payload: bytes) -> None:
    with pytest.raises(CodecError, match=r"row\.envelope|envelope"):
        decode_row(payload)


def test_keys_of_later_versions_are_passed_over() -> None:
    payload = json.loads(encode_row(ROW, "a")) | {"later": [1]}
    assert decode_row(json.dumps(payload).encode()) == (ROW, b"a")


def rows(batch: int, *numbers: int, query: str = "q", task: int = 0) -> list[tuple[RowId, bytes]]:
    return [(RowId(query, batch, task, number), b"%d-%d" % (batch, number)) for number in numbers]


def kept(*stored: tuple[RowId, bytes]) -> list[bytes]:
    seen = RepeatFilter()
    return [data for row_id, data in stored if seen.is_new(row_id, data)]


def test_repeats_of_the_present_and_of_former_batches_are_told() -> None:
    stored = [*rows(0, 0, 1), *rows(0, 0, 1, 2), *rows(1, 0), *rows(0, 2), *rows(1, 0, 1)]
    assert kept(*stored) == [b"0-0", b"0-1", b"0-2", b"1-0", b"1-1"]


def test_rows_of_other_tasks_and_queries_are_no_repeats() -> None:
    stored = [*rows(0, 0), *rows(0, 0, task=1), *rows(0, 0, query="other")]
    assert len(kept(*stored)) == 3


def test_a_batch_that_was_cut_otherwise_loses_nothing() -> None:
    name = RowId("q", 3, 0, 0)
    assert kept((name, b"a"), (name, b"b")) == [b"a", b"b"]


def test_the_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_envelope, "QUERIES_MAX", 2)
    seen = RepeatFilter()
    for query in ("a", "b", "c"):
        assert seen.is_new(RowId(query, 0, 0, 0), b"")
    assert not seen.is_new(RowId("c", 0, 0, 0), b"")
    assert not seen.is_new(RowId("b", 0, 0, 0), b"")
    assert seen.is_new(RowId("a", 0, 0, 0), b"")
