"""JSON from outside: every text gives a value or a CodecError that says where it is wrong."""

from contextlib import suppress
from math import inf

import pytest
from msgspec import Raw, Struct
from msgspec.json import Decoder

from each_row import each_row
from rillnode.codecs.errors import CodecError
from rillnode.codecs.limits import FRAME_BYTES_MAX
from rillnode.codecs.streamr.json_text import (
    Name,
    Number,
    Text,
    check_value,
    javascript_text,
    read_json,
    read_value,
    whole,
    write_json,
)
from rillnode.codecs.streamr.limits import STREAMR_INTEGER_MAX, STREAMR_VALUE_CHARS_MAX


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


@each_row(
    [
        ('{"t":"\\ud83d"}', {"t": "\ud83d"}),
        ('"\\ude00\\ud83d"', "\ude00\ud83d"),
        (r'["\\ud83d\ud83d\ude00"]', ["\\ud83d\U0001f600"]),
        ("[1e400,1.0]", [inf, 1.0]),
        ("123456789012345678901234567890", 123456789012345678901234567890),
        (f"[{'1' * 5_000},-{'1' * 5_000}]", [inf, -inf]),
    ]
)
def test_a_value_may_be_whatever_javascript_reads(text: str, value: object) -> None:
    check_value(text)
    assert read_value(text) == value


@pytest.mark.parametrize(
    "text", ['"\\ud83d', "NaN", "[-Infinity]", '"\\ud83d\n"', '["\\ud83d",]', ""]
)
def test_no_value_is_what_javascript_does_not_read(text: str) -> None:
    for read in (check_value, read_value):
        with pytest.raises(CodecError, match=r"codec\.json"):
            read(text)


@each_row(
    [
        (
            ' { "b" : [ 1.50 , true, null ] ,\n"a" : "\\u00e9\\/\\u2028\\u001F" } ',
            '{"b":[1.5,true,null],"a":"é/\u2028\\u001f"}',
        ),
        ('{"b":1,"10":2,"a":3,"9":4,"01":5,"b":6}', '{"9":4,"10":2,"b":6,"a":3,"01":5}'),
        ('{"4294967295":1,"4294967294":2,"-1":3}', '{"4294967294":2,"4294967295":1,"-1":3}'),
        ("[-0,0.0,1E2,-1.0,9007199254740993]", "[0,0,100,-1,9007199254740992]"),
        (
            "[1e20,123456789012345680000,1e21,-12e30]",
            "[100000000000000000000,123456789012345680000,1e+21,-1.2e+31]",
        ),
        (
            "[0.000001,0.0000015,0.0000001,-1.25e-9,5e-324]",
            "[0.000001,0.0000015,1e-7,-1.25e-9,5e-324]",
        ),
        ("[0.1,123.456,1e400,-1e400]", "[0.1,123.456,null,null]"),
        ("null", "null"),
    ]
)
def test_a_text_is_rewritten_as_javascript_does(text: str, written: str) -> None:
    assert javascript_text(text) == written


def test_no_text_is_rewritten_of_what_is_no_json_or_too_deep() -> None:
    for text in ("", "{", "NaN", '"\n"'):
        with pytest.raises(CodecError, match=r"codec\.json"):
            javascript_text(text)
    for text in ("[" * 10_000 + "]" * 10_000, '{"a":' * 10_000 + "1" + "}" * 10_000):
        with pytest.raises(CodecError, match=r"nested too deeply .*codec\.limit"):
            javascript_text(text)


@each_row([("[", "]"), ('{"a":', "}")])
def test_what_is_nested_is_rewritten_as_deep_as_the_stack_has_room(begin: str, end: str) -> None:
    text = f"{begin * 700}1{end * 700}"
    assert javascript_text(text) == text
    for depth in range(850, 1_000):  # until wherever the stack ends
        with suppress(CodecError):
            javascript_text(f"{begin * depth}1{end * depth}")


def test_a_text_is_rewritten_up_to_a_limit_before_and_after() -> None:
    longest = f"[{'1' * (STREAMR_VALUE_CHARS_MAX - 2)}]"
    assert javascript_text(longest) == "[null]"
    zeros = ",".join(["0"] * (STREAMR_VALUE_CHARS_MAX // 2 - 1))
    assert javascript_text(f"[{zeros}]") == f"[{zeros}]"
    grown = ",".join(["1e20"] * (STREAMR_VALUE_CHARS_MAX // 20))
    for text in (longest + " ", f"[{grown}]"):
        with pytest.raises(CodecError, match=r"at most 65,536 characters .*codec\.limit"):
            javascript_text(text)
