"""Positions as text, and entries as CBOR."""

import pytest
from hypothesis import given, strategies as st

from each_row import each_row
from rillnode.codecs.entries import Entry, EntryKind
from rillnode.codecs.errors import RequestError
from rillnode.codecs.gateway.forms import encode_entry, position_text, read_position
from rillnode.codecs.keyed import encode_headers

POSITIONS = st.dictionaries(st.integers(0, 1_023), st.integers(0, 10**18 - 1), min_size=1)


@given(POSITIONS, st.integers(0, 10**18 - 1))
def test_a_position_is_read_as_it_was_written(position: dict[int, int], created_at: int) -> None:
    text = position_text(position, created_at, plain=False)
    assert read_position(text, position, created_at) == position


def test_of_one_partition_the_index_is_enough() -> None:
    assert position_text({0: 17}, 9, plain=True) == "17@9"
    assert position_text({3: 17}, 9, plain=False) == "3:17@9"
    assert position_text({0: 17, 1: 4}, 9, plain=True) == "0:17,1:4@9"
    assert position_text({}, 9, plain=True) == ""
    assert read_position("17", range(2), 9) == {0: 17}, "nothing of a partition that came since"
    assert read_position("17@9", range(3, 4), 9) == {3: 17}
    assert read_position("1:4", range(2), 9) == {1: 4}


@pytest.mark.parametrize("text", ["17@8", "0:17,1:4@10", "0@0"])
def test_of_another_stream_of_the_name_it_says_nothing(text: str) -> None:
    with pytest.raises(RequestError) as caught:
        read_position(text, range(2), 9)
    assert caught.value.code == "stream.removed"


@each_row(
    [
        "",
        "x",
        "-1",
        "1:",
        ":1",
        "0:1,",
        "0:1,0:2",
        "2:0",
        "1" * 19,
        "0:" + "1" * 19,
        "0:1;1:2",
        "٣",
        "17@",
        "@9",
        "17@9@9",
        "0:17@9,1:4@9",
        "17@٩",
        "17@" + "1" * 19,
    ]
)
def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(RequestError) as caught:
        read_position(text, range(2), 9)
    assert caught.value.code == "gateway.position"


def test_entries_are_maps_of_bytes() -> None:
    plain = Entry(0, 1, 2, EntryKind.BYTES, b"\xff")
    headers = encode_headers({"a": b"\0"})
    keyed = Entry(1, 24, 256, EntryKind.BYTES, b"", pushed_key=b"k", encoded_headers=headers)
    # Read back by cbor2 6.3.
    assert encode_entry(plain).hex() == (
        "a5" "69706172746974696f6e" "00" "65696e646578" "01" "6b72656365697665645f6174" "02"
        "646b696e64" "656279746573" "6464617461" "41ff"
    )  # fmt: skip
    assert encode_entry(keyed).hex() == (
        "a7" "69706172746974696f6e" "01" "65696e646578" "1818" "6b72656365697665645f6174" "190100"
        "646b696e64" "656279746573" "6464617461" "40" "636b6579" "416b"
        "6768656164657273" "a1" "6161" "4100"
    )  # fmt: skip
