"""JSON from outside: every text gives a value or a CodecError that says where it is wrong."""

import pytest
from msgspec import Raw, Struct
from msgspec.json import Decoder

from each_row import each_row
from rillnode.codecs.errors import CodecError
from rillnode.codecs.limits import FRAME_BYTES_MAX
from rillnode.codecs.streamr.json_text import Name, Number, Text, read_json, whole, write_json
from rillnode.codecs.streamr.limits import STREAMR_INTEGER_MAX


class Pair(Struct, array_like=True):
    name: Name
    number: Number


PAIR = Decoder(Pair)


def refusal(text: Text) -> tuple[str, int]:
    with pytest.raises(CodecError) as caught:
        read_json(PAIR, text)
    return caught.value.code, caught.value.offset


@pytest.mark.parametrize("text", ['["a",1]', b'["a",1]', Raw(b'["a",1]'), ' ["a" , 1, {}]\n'])
def test_any_kind_of_text_is_read_and_what_is_not_asked_for_is_skipped(text: Text) -> None:
    assert read_json(PAIR, text) == Pair("a", 1)


@each_row(
    [
        ("", 0),
        ("[", 1),
        ("{[", 1),
        ('["a",01]', 6),
        ('["a",NaN]', 5),
        ('["a",1,]', 7),
        ('["a\n",1]', 3),
        ('["\\ud800",1]', 12),
        ("[5,", 3),
        ("[5,}", 3),
    ]
)
def test_what_is_no_json_is_refused_where_it_goes_wrong(text: str, offset: int) -> None:
    assert refusal(text) == ("codec.json", offset)


def test_what_follows_the_end_is_refused() -> None:
    assert refusal('["a",1] 2')[0] == "codec.json"


@each_row(
    [
        ("null", 0),
        ('{"name":"a"}', 0),
        ("[]", 0),
        ('["",1]', 1),
        (' [ "a" ,\t"1"]', 9),
        ('["ä",true]', 6),
        ('["a",-1]', 5),
        ('["a",-0.5]', 5),
        ('["a",1e999]', 5),
        (f'["a",{STREAMR_INTEGER_MAX + 1}]', 5),
        (f'["a",{"9" * 5_000}]', 5),
        ('[["a",1],1]', 1),
    ]
)
def test_another_shape_is_refused_with_the_elements_place(text: str, offset: int) -> None:
    assert refusal(text) == ("codec.field", offset)


def test_the_place_of_a_late_element_is_told_as_that_of_the_sixteenth() -> None:
    with pytest.raises(CodecError) as caught:
        read_json(Decoder(list[int]), "[" + "1," * 100 + '"x"]')
    assert caught.value.offset == 31


@pytest.mark.parametrize("text", ['["\ud800",1]', b'["\xff",1]', b'["\xed\xa0\x80",1]'])
def test_what_is_not_utf_8_is_refused(text: str | bytes) -> None:
    assert refusal(text) == ("codec.utf8", 0)


@pytest.mark.parametrize("opening", ["[", '{"a":'])
@pytest.mark.parametrize("start", ["", '["a",1,'])
def test_deep_nesting_is_refused_even_where_it_would_be_skipped(start: str, opening: str) -> None:
    assert refusal(start + opening * 100_000) == ("codec.limit", 0)


def test_a_text_over_the_limit_is_refused_unread() -> None:
    assert refusal("x" * (FRAME_BYTES_MAX + 1)) == ("codec.limit", 0)
    assert refusal(Raw(b"x" * (FRAME_BYTES_MAX + 1))) == ("codec.limit", 0)


@pytest.mark.parametrize(
    ("text", "number"), [("1.0", 1), ("1e3", 1_000), ("-0", 0), ("-0.0", 0), ("0.0", 0)]
)
def test_a_whole_number_is_an_integer_however_it_is_written(text: str, number: int) -> None:
    value = whole(read_json(PAIR, f'["a",{text}]').number, "number")
    assert (value, type(value)) == (number, int)


def test_a_fraction_is_no_integer() -> None:
    with pytest.raises(CodecError, match=r"partition is not an integer: 0\.5"):
        whole(0.5, "partition")


def test_a_value_is_written_as_javascript_writes_it() -> None:
    text = '["ä€😀\u2028\x7f","\\"\\\\/\\b\\f\\n\\r\\t\\u001f",{"a":null},1,1.5,true]'
    assert write_json(["ä€😀\u2028\x7f", '"\\/\b\f\n\r\t\x1f', {"a": None}, 1, 1.5, True]) == text


def test_what_has_no_text_is_refused() -> None:
    with pytest.raises(CodecError, match=r"codec\.utf8"):
        write_json("\ud800")
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(CodecError, match=r"codec\.limit"):
        write_json(deep)
