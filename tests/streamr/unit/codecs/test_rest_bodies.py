"""Bodies of REST requests: what real clients send, and what nobody should."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec import UNSET

from each_row import each_row
from rillnode.codecs.errors import CodecError
from rillnode.codecs.streamr.rest_bodies import (
    read_api_key,
    read_challenge_response,
    read_content,
    read_permission,
    read_stream,
)

READERS: list[Callable[[bytes], Any]] = [
    read_api_key, read_challenge_response, read_content, read_permission, read_stream,
]  # fmt: skip


def test_a_login_has_more_in_it_than_is_read() -> None:
    body = b'{"challenge":{"id":"i","challenge":"c","expires":"e"},"signature":"s","address":"a"}'
    found = read_challenge_response(body)
    assert (found.challenge.id, found.signature, found.address) == ("i", "s", "a")
    assert read_api_key(b'{"apiKey":"k","x":[1]}') == "k"


def test_a_whole_stream_is_sent_back() -> None:
    found = read_stream(
        b'{"id":"i","name":"n","description":null,"partitions":3.0,"config":{"fields": []},'
        b'"requireSignedData":true,"storageDays":30,"dateCreated":"2020","uiChannel":false}'
    )
    assert (found.id, found.name, found.description, found.partitions) == ("i", "n", None, 3)
    assert (found.require_signed_data, found.require_encrypted_data) == (True, None)
    assert found.config is not UNSET
    assert bytes(found.config) == b'{"fields": []}'
    assert type(found.partitions) is int


def test_null_is_as_good_as_nothing() -> None:
    fields = "id name description partitions config requireSignedData storageDays"
    nulls = ",".join(f'"{name}":null' for name in fields.split())
    assert read_stream(b"{%b}" % nulls.encode()) == read_stream(b"{}")


def test_a_permission_is_for_a_user_or_for_everybody() -> None:
    assert read_permission(b'{"operation":"o","user":"u"}').user == "u"
    assert read_permission(b'{"operation":"o","anonymous":true}').anonymous


def test_content_is_kept_as_it_stands() -> None:
    for text in ('{ "a": "\u20ac" }', '{"a":"\\ud83d"}'):
        assert read_content(text.encode()) == text


@each_row(
    [
        (b"", "codec.json"),
        (b"{", "codec.json"),
        (b"[]", "codec.field"),
        (b'{"partitions":"3"}', "codec.field"),
        (b'{"partitions":1.5}', "codec.field"),
        (b'{"partitions":-1}', "codec.field"),
        (b'{"partitions":1e999}', "codec.field"),
        (b'{"partitions":9007199254740992}', "codec.field"),
        (b'{"partitions":true}', "codec.field"),
        (b'{"config":[]}', "codec.field"),
        (b'{"config":"{}"}', "codec.field"),
        (b'{"name":"%b"}' % (b"x" * 65_537), "codec.field"),
        (b'{"x":"\xff"}', "codec.utf8"),
        (b'{"config":{"a":%b}}' % (b"[" * 200_000 + b"]" * 200_000), "codec.limit"),
    ]
)
def test_a_wrong_stream_is_refused(body: bytes, code: str) -> None:
    with pytest.raises(CodecError) as caught:
        read_stream(body)
    assert caught.value.code == code


@given(st.binary(max_size=300), st.sampled_from(READERS))
def test_any_body_is_read_or_refused(body: bytes, reader: Callable[[bytes], Any]) -> None:
    with suppress(CodecError):
        reader(body)
