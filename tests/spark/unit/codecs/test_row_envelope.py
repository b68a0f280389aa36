import json

import pytest

from rillnode.codecs.errors import CodecError
from rillnode.codecs.spark.row_envelope import RowId, decode_row, encode_row

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
