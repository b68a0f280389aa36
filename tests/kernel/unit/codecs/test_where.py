"""Conditions on entries."""

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from each_row import each_row
from rillnode.codecs.entries import Entry, EntryKind
from rillnode.codecs.errors import RequestError
from rillnode.codecs.keyed import encode_headers
from rillnode.codecs.limits import WHERE_CHARS_MAX, WHERE_DEPTH_MAX
from rillnode.codecs.where import Where

QUAKE = {
    "mag": 5.4, "depth": 10, "deep": False, "felt": True, "note": None, "zero": 0,
    "place": {"country": "CL", "at": [-30.1, {"lon": -71}], "größe": 3, "odd key": "x"},
    "text": "it's", "big": 2**70, "and": 1,
}  # fmt: skip


def entry(data: bytes, key: bytes | None = None, headers: dict[str, bytes] | None = None) -> Entry:
    encoded = encode_headers(headers or {})
    return Entry(0, 0, 0, EntryKind.BYTES, data, b"", key, encoded)


def holds(text: str, document: Any = QUAKE) -> bool:
    return Where(text).matches(entry(json.dumps(document).encode()))


@each_row(
    [
        "mag > 5",
        "mag>5",
        "mag >= 5.4",
        "mag = 5.4",
        "mag == 54e-1",
        "mag < 6",
        "mag <= 5.4",
        "depth = 10.0",
        "depth != 11",
        "mag != '5.4'",
        "place.at[0] < -30",
        "place.at[1].lon = -71",
        "place.country = 'CL'",
        'place["country"] = "CL"',
        "place['odd key'] = 'x'",
        "place.größe = 3",
        "$.mag > 5",
        "$['mag'] > 5",
        "$.place.country >= 'CA'",
        "deep = false",
        "felt = true",
        "felt",
        "zero",
        "note = null",
        "not deep",
        "not note",
        "not missing",
        "not missing = 1",
        "text = 'it\\'s'",
        'text = "it\'s"',
        "big > 1e20",
        "mag > 5 and depth < 20",
        "mag > 6 or depth < 20",
        "mag > 5 or mag > 6 and mag > 7",
        "not (mag > 6 or depth > 20)",
        "not not felt",
        "(((felt)))",
        "mag>5 AND felt Or deep",
        "not mag > 6 and felt",
        "$.and = 1",
        "note != 1",
        " \n\tfelt ",
    ]
)
def test_a_condition_holds(text: str) -> None:
    assert holds(text)
    assert not holds(f"not ({text})")


@each_row(
    [
        "mag > 5.4",
        "mag = '5.4'",
        "mag > '5'",
        "missing",
        "missing = 1",
        "missing != 1",
        "missing = null",
        "note",
        "deep",
        "felt = 1",
        "felt > 0",
        "felt > false",
        "note >= null",
        "zero = false",
        "place = 'CL'",
        "place.country.more = 1",
        "place.at[9] = 1",
        "mag[0] = 1",
        "place[0] = 1",
        "place.at.lon = 1",
        "(mag > 6 or depth > 20)",
        "not felt",
        "$ = 1",
        "$key = 'a'",
        "$headers.h = 'a'",
        "not (felt)",
        "mag > 6 or depth > 20 and felt",
    ]
)
def test_a_condition_does_not_hold(text: str) -> None:
    assert not holds(text)


def test_data_that_is_no_object_has_no_fields() -> None:
    for data in (b"", b"text", b"\xff", b"{", b"[" * 10_000, b'"mag"', b"5", b"null"):
        assert not Where("mag").matches(entry(data))
        assert not Where("mag != 1").matches(entry(data))
        assert Where("not mag > 5").matches(entry(data))
    assert Where("$[1] = 2").matches(entry(b"[1, 2]"))
    assert Where("$ = 5").matches(entry(b"5"))


def test_keys_and_headers_are_texts_beside_the_data() -> None:
    one = entry(b"no json", b"m7", {"type": b"reading", "x": b"\xff"})
    assert Where("$key = 'm7'").matches(one)
    assert Where("$key >= 'm' and $headers.type = 'reading'").matches(one)
    assert Where("$headers['type'] and not $headers.other").matches(one)
    assert not Where("$key = 'm8'").matches(one)
    assert Where("not $key").matches(entry(b"", None))
    assert Where("$headers.x != 'x'").matches(one)


@each_row(
    [
        ("", 0, "expected a path, where it ends"),
        ("mag >", 5, "expected a number, a text in quotes, true, false or null, where it ends"),
        ("mag > size", 6, "not 'size'"),
        ("mag 5", 4, "expected and, or, or the end, not '5'"),
        ("mag > 5 mag", 8, "expected and, or, or the end, not 'mag'"),
        ("(mag > 5", 8, "expected and, or, or ), where it ends"),
        ("mag > 5)", 7, "expected and, or, or the end, not ')'"),
        ("> 5", 0, "expected a path, not '> 5'"),
        ("5 > mag", 0, "expected a path"),
        ("mag > 5 and", 11, "expected a path, where it ends"),
        ("and", 0, "expected a path, not 'and'"),
        ("a ! b", 2, "expected a path, a value, an operator or a bracket, not '! b'"),
        ("a = 'open", 4, 'expected a path, a value, an operator or a bracket, not "\'open"'),
        ("a = 5x", 4, "not '5x'"),
        ("a = 1.2.3", 4, "not '1.2.3'"),
        ("a[x] = 1", 1, "not '[x] = 1'"),
        ("a. = 1", 1, "not '. = 1'"),
        ("a = 1 -- no", 6, "not '-- no'"),
        ("a\x00b", 1, r"not '\x00b'"),
    ]
)
def test_what_is_no_condition_is_refused_at_its_place(text: str, offset: int, says: str) -> None:
    with pytest.raises(RequestError) as refused:
        Where(text)
    assert refused.value.code == "where.syntax"
    assert refused.value.context["offset"] == offset
    assert says in refused.value.text
    assert f"character {offset + 1}:" in refused.value.text


def test_length_and_depth_are_bounded() -> None:
    longest = "a = '" + "x" * (WHERE_CHARS_MAX - 6) + "'"
    assert not holds(longest)
    with pytest.raises(RequestError, match=r"at most 1,024 characters, not 1,025") as refused:
        Where(longest + " ")
    assert (refused.value.code, refused.value.context["offset"]) == ("where.length", 1_024)
    for opening, closing in (("(", ")"), ("not ", "")):
        deepest = WHERE_DEPTH_MAX - 1
        assert Where(opening * deepest + "a" + closing * deepest)
        with pytest.raises(RequestError, match="at most 16 levels deep") as refused:
            Where(opening * 200 + "a" + closing * 200)
        assert refused.value.code == "where.depth"
        assert refused.value.context["offset"] == len(opening) * WHERE_DEPTH_MAX


@given(st.text(max_size=60) | st.text("ab$.[]'\"()<>=! 01-\\", max_size=60), st.binary(max_size=20))
def test_any_text_is_a_condition_or_refused(text: str, data: bytes) -> None:
    try:
        where = Where(text)
    except RequestError as error:
        refused = error
    else:
        assert where.matches(entry(data)) in (True, False)
        return
    assert refused.code == "where.syntax"
    assert 0 <= int(str(refused.context["offset"])) <= len(text)
