"""Lines of files of group keys, and which of them open a message."""

import json
import os
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from each_row import each_row
from rillnode.codecs.errors import CodecError, ConfigError
from rillnode.codecs.streamr.encryption import GroupKey, encrypt_message
from rillnode.codecs.streamr.key_lines import TRIED_MAX, GroupKeys, KeyLine, read_lines, write_line
from rillnode.codecs.streamr.stream_message import EncryptionType, MessageId, StreamMessage

ONE, TWO = GroupKey("k1", bytes(range(32))), GroupKey("k2", bytes(32))
PUBLISHER = "0xAbCd"


def message(key: GroupKey | None, *, version: int = 32, next_key: GroupKey | None = None) -> Any:
    clear = StreamMessage(
        id=MessageId("s", 0, 1, 0, PUBLISHER, "c"), content='{"n":1}', version=version
    )
    return clear if key is None else encrypt_message(clear, key, os.urandom, next_key=next_key)


def keys(*lines: dict[str, Any]) -> GroupKeys:
    return GroupKeys(read_lines("\n".join(map(json.dumps, lines)).encode()))


def line(key: GroupKey, **said: Any) -> dict[str, Any]:
    return {"key": key.secret.hex(), **said}


@pytest.mark.parametrize(
    "said",
    [
        {"id": "k1"},
        {"stream": "s"},
        {"id": "k1", "stream": "s"},
        {"id": "k1", "stream": "s", "publisher": "0xABCD", "reset": True},
        {"stream": "s", "publisher": PUBLISHER},
    ],
)
def test_a_key_opens_what_it_is_said_to_be_for(said: dict[str, Any]) -> None:
    assert keys(line(ONE, **said)).open(message(ONE)) == '{"n":1}'


@pytest.mark.parametrize(
    "said",
    [
        {"id": "k2"},
        {"id": "k2", "stream": "s"},
        {"id": "k1", "stream": "t"},
        {"stream": "t"},
        {"id": "k1", "publisher": "0xffff"},
        {"stream": "s", "publisher": "0xffff"},
    ],
)
def test_a_key_is_not_tried_on_anything_else(said: dict[str, Any]) -> None:
    assert keys(line(ONE, **said)).open(message(ONE)) is None


def test_the_key_that_fits_is_found_among_those_that_may() -> None:
    # Two publishers have a key of one name; the file does not say whose each is.
    many = keys(line(TWO, id="k1"), line(ONE, id="k1"), line(TWO, id="k1"), line(TWO, stream="s"))
    assert many.open(message(ONE)) == '{"n":1}'
    assert many.open(message(TWO)) == '{"n":1}'


def test_what_a_wrong_key_may_have_made_of_a_short_content_is_not_taken_for_it() -> None:
    others = [GroupKey("", bytes([number]) * 32) for number in range(1, 40)]
    ring = keys(line(ONE, stream="s"), *(line(key, stream="s") for key in [*others, others[0]]))
    outcomes: set[str] = set()
    for number in range(100):
        clear = StreamMessage(
            id=MessageId("s", 0, 1, 0, PUBLISHER, "c"), content=str(number % 10), version=31
        )
        sealed = encrypt_message(clear, ONE, partial(number.to_bytes, byteorder="little"))
        try:
            outcomes.add("right" if ring.open(sealed) == clear.content else "wrong")
        except CodecError as error:
            outcomes.add(error.code)
        assert keys(line(ONE, stream="s"), line(ONE, stream="s")).open(sealed) == clear.content
    assert outcomes == {"right", "encryption.ambiguous"}


@pytest.mark.parametrize("next_key", [None, TWO])
def test_messages_of_older_versions_go_by_their_stream(next_key: GroupKey | None) -> None:
    old = message(ONE, version=31, next_key=next_key)
    assert old.group_key_id is None
    assert keys(line(ONE, id="anything", stream="s")).open(old) == '{"n":1}'
    assert keys(line(ONE, id="k1")).open(old) is None


def test_what_no_group_key_encrypts_is_opened_by_none() -> None:
    ring = keys(line(ONE, id="k1", stream="s"))
    assert ring.open(message(None)) is None
    rsa = replace(message(ONE), encryption_type=int(EncryptionType.RSA))
    assert ring.open(rsa) is None


@pytest.mark.parametrize(
    ("content", "code"),
    [("00ff", "encryption.truncated"), ("00" * 99, "encryption.noise"), ("zz", "encryption.hex")],
)
def test_what_does_not_decrypt_says_why(content: str, code: str) -> None:
    with pytest.raises(CodecError) as caught:
        keys(line(ONE, id="k1")).open(replace(message(ONE), content=content))
    assert caught.value.code == code
    with pytest.raises(CodecError) as caught:
        keys(line(TWO, id="k1")).open(message(ONE))
    assert caught.value.code == "encryption.noise"


def test_only_the_newest_keys_of_a_stream_are_tried_on_a_message_that_names_none() -> None:
    old = message(ONE, version=31)
    others = [line(GroupKey(str(n), os.urandom(32)), stream="s") for n in range(TRIED_MAX)]
    assert keys(line(ONE, stream="s"), *others[1:]).open(old) == '{"n":1}'
    with pytest.raises(CodecError):
        keys(line(ONE, stream="s"), *others).open(old)


@each_row(
    [
        (b'{"id":"k","key":"00"}\n', "line 1 is no group key: a group key has 32 bytes, this one"),
        (b'{"id":"k","key":"%s"}\n' % (b"zz" * 32), "line 1 is no group key"),
        (b'{"key":"%s"}\n' % (b"00" * 32), "line 1 is no group key of anything: it needs an id"),
        (b"\n\nsecret\n{}", 'line 3 is no group key: {"stream": "...", "id": "...", "key"'),
        (b'{"id":"k"}', "line 1 is no group key"),
        (b'{"id":"k","key":"00","secret":1}\n', "line 1 is no group key"),
        (b"\xff\xfe\n", "line 1 is no group key"),
        (b"[" * 100_000 + b"\n", "line 1 is no group key"),
    ]
)
def test_a_line_that_is_no_key_is_named_and_not_repeated(text: bytes, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        list(read_lines(text))
    assert caught.value.code == "key.line"
    assert caught.value.text.startswith(said)
    assert "zz" not in caught.value.text
    assert "secret" not in caught.value.text


def test_blank_lines_and_one_that_is_being_written_are_passed_over() -> None:
    written = write_line(KeyLine(publisher="p", stream="s", id="k1", key=ONE.secret.hex()))
    assert written.startswith(b'{"publisher":"p","stream":"s","id":"k1","key":"0001')
    found = list(read_lines(b"\r\n" + written + b"  \n" + written[:-9]))
    assert [key for _, key in found] == [ONE]
