"""CloudEvents in each mode, and what is none."""

import tracemalloc
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from each_row import each_row
from rillnode.codecs.errors import RequestError
from rillnode.codecs.gateway.events import (
    EVENT_BYTES_MAX,
    Event,
    is_json,
    read_batch,
    read_binary,
    read_structured,
)

NEEDED = '"specversion":"1.0","id":"1","source":"/s","type":"t"'
HEADERS = {"ce-id": "1", "ce-source": "/s", "ce-specversion": "1.0", "ce-type": "t"}


def structured(more: str = "") -> Event:
    return read_structured(f"{{{NEEDED}{more}}}".encode())


def binary(more: dict[str, str], content_type: str = "", body: bytes = b"") -> Event:
    return read_binary({**HEADERS, **more}.items(), content_type, body)


def test_structured_and_binary_become_the_same() -> None:
    more = ',"subject":"a b","partitionkey":"k","datacontenttype":"application/json","data":{"a":1}'
    event = structured(more)
    headers = {"CE-Subject": "a%20b", "ce-partitionkey": "k"}
    assert event == binary(headers, "application/json", b'{"a":1}')
    assert event.key == "k"
    assert event.data == b'{"a":1}'
    assert event.headers == {
        **HEADERS, "ce-subject": "a b", "ce-partitionkey": "k", "content-type": "application/json"
    }  # fmt: skip


@each_row(
    [
        ("", b""),
        (',"data":null', b"null"),
        (',"data":"text"', b'"text"'),
        (',"data": {"b" : [1, 2]}', b'{"b" : [1, 2]}'),
        (',"datacontenttype":"text/plain","data":"text"', b"text"),
        (',"datacontenttype":"text/xml","data":"<a/>"', b"<a/>"),
        (',"datacontenttype":"application/vnd.x+json","data":"text"', b'"text"'),
        (',"data_base64":"/w=="', b"\xff"),
        (',"data":1,"data_base64":null', None),
    ]
)
def test_data_is_what_its_type_says(more: str, data: bytes | None) -> None:
    if data is None:
        with pytest.raises(RequestError):
            structured(more)
    else:
        assert structured(more).data == data


def test_attributes_are_texts_numbers_or_truths() -> None:
    headers = structured(',"n":-1,"b":true,"absent":null').headers
    assert (headers["ce-n"], headers["ce-b"]) == ("-1", "true")
    assert "ce-absent" not in headers


@pytest.mark.parametrize(
    ("more", "value"),
    [
        ("Euro%20%E2%82%AC", "Euro \u20ac"),
        ("Euro \u20ac", "Euro \u20ac"),
        ('"a \\"b\\""', 'a "b"'),
        ("50%", "50%"),
    ],
)
def test_values_of_headers_are_decoded(more: str, value: str) -> None:
    assert binary({"ce-x": more}).headers["ce-x"] == value


@each_row(
    [
        ("[]", "JSON object"),
        ("{", "JSON object"),
        ("\u20ac", "JSON object"),
        ('{"id":"1","source":"/s","type":"t"}', "no specversion"),
        ('{"specversion":"1.0"}', "no id and no source and no type"),
        ('{"specversion":"0.3","id":"1","source":"/s","type":"t"}', "specversion 1.0"),
        (f'{{{NEEDED},"id":""}}', "no id"),
        (f'{{{NEEDED},"x":{{}}}}', "no text, integer or boolean"),
        (f'{{{NEEDED},"x":1.5}}', "no text, integer or boolean"),
        (f'{{{NEEDED},"Upper":"x"}}', "no attribute"),
        (f'{{{NEEDED},"data":1,"data_base64":""}}', "not both"),
        (f'{{{NEEDED},"data_base64":"*"}}', "not Base64"),
        (f'{{{NEEDED},"data_base64":5}}', "not Base64"),
    ]
)
def test_what_is_no_event_is_refused(body: str, text: str) -> None:
    with pytest.raises(RequestError) as caught:
        read_structured(body.encode())
    assert caught.value.code == "gateway.event"
    assert text in caught.value.text


def test_bytes_that_are_no_text_are_no_event() -> None:
    with pytest.raises(RequestError, match="JSON object"):
        read_structured(f'{{{NEEDED},"data":"'.encode() + b'\xff"}')
    with pytest.raises(RequestError, match="UTF-8"):
        binary({"ce-x": "%FF"})
    with pytest.raises(RequestError, match="twice"):
        read_binary([*HEADERS.items(), ("CE-ID", "2")], "", b"")


def test_a_batch_is_taken_as_a_whole() -> None:
    one = f"{{{NEEDED}}}"
    assert len([*read_batch(f"[{one},{one}]".encode(), 2)]) == 2
    assert [*read_batch(b"[]", 2)] == []
    with pytest.raises(RequestError, match="Event 1 of the batch: The event has no"):
        list(read_batch(f'[{one},{{"specversion":"1.0"}}]'.encode(), 2))
    with pytest.raises(RequestError, match=r"specversion` - at `\$\[1\]`"):
        list(read_batch(f"[{one},{{}}]".encode(), 2))
    with pytest.raises(RequestError) as caught:
        list(read_batch(f"[{one},{one},{one}]".encode(), 2))
    assert caught.value.code == "entries.many"
    with pytest.raises(RequestError, match="JSON array"):
        list(read_batch(one.encode(), 2))


@pytest.mark.parametrize("item", ["1", "{}", "[]", '"text"', "null"])
def test_what_is_no_batch_is_not_kept(item: str) -> None:
    """A body of the largest size may have millions of items."""
    body = f"[{','.join([item] * 300_000)}]".encode()
    tracemalloc.start()
    with pytest.raises(RequestError, match=r"\$\[0\]"):
        list(read_batch(body, 9))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 4 * len(body)


def test_an_event_with_very_many_attributes_is_not_read() -> None:
    many = ",".join(f'"a{number}":1' for number in range(EVENT_BYTES_MAX // 10))
    reads: list[Callable[[bytes], object]] = [
        read_structured, lambda body: list(read_batch(b"[%s]" % body, 9)),
    ]  # fmt: skip
    for read in reads:
        with pytest.raises(RequestError) as caught:
            read(f"{{{NEEDED},{many}}}".encode())
        assert caught.value.code == "entries.size"


@given(st.binary())
def test_any_bytes_are_an_event_or_refused(body: bytes) -> None:
    with suppress(RequestError):
        read_structured(body)
    with suppress(RequestError):
        list(read_batch(body, 9))
    deep = b"[" * 100_000 + b"]" * 100_000
    with suppress(RequestError):
        read_structured(b"{" + NEEDED.encode() + b',"data":' + deep + b"}")


@pytest.mark.parametrize(
    ("content_type", "yes"),
    [
        ("application/json", True), ("application/json; charset=utf-8", True), ("a/b+json", True),
        ("text/json", True), ("application/jsonp", False), ("text/plain", False), ("", False),
    ],
)  # fmt: skip
def test_json_is_known_by_its_type(content_type: str, *, yes: bool) -> None:
    assert is_json(content_type) is yes
