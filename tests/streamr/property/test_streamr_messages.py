"""Streamr: messages come back, conversions keep what was signed, any text gives a result."""

import json
from typing import Any

from hypothesis import given, strategies as st
from msgspec.structs import replace

from rillnode.codecs.errors import CodecError
from rillnode.codecs.streamr.control import decode_control, encode_control
from rillnode.codecs.streamr.control_messages import (
    BroadcastMessage,
    ControlMessage,
    ErrorResponse,
    PublishRequest,
    ResendFromRequest,
    ResendLastRequest,
    ResendRangeRequest,
    ResendRequest,
    SubscribeRequest,
    UnicastMessage,
)
from rillnode.codecs.streamr.limits import STREAMR_INTEGER_MAX
from rillnode.codecs.streamr.message import (
    VERSIONS,
    Layout,
    MessageId,
    MessageRef,
    StreamMessage,
    decode_message,
    encode_message,
    stored_text,
)
from rillnode.codecs.streamr.signing import signed_legacy_text, signed_text

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NAMES = TEXTS.filter(bool)
SOME_TEXTS = st.none() | TEXTS
INTEGERS = st.integers(0, STREAMR_INTEGER_MAX)
REFS = st.builds(MessageRef, st.integers(0, 10**6), st.none() | INTEGERS)
LAYOUTS = st.sampled_from(Layout)
IDS = st.builds(MessageId, NAMES, INTEGERS, st.integers(10**6 + 1, 10**12), INTEGERS, TEXTS, TEXTS)
NEW_KEYS = st.none() | st.builds(lambda *key: json.dumps(key), TEXTS, TEXTS)
MESSAGES = st.builds(
    StreamMessage,
    id=IDS,
    content=NAMES,
    previous=st.none() | REFS,
    message_type=st.integers(27, 31),
    encryption_type=st.integers(0, 2),
    group_key_id=SOME_TEXTS,
    new_group_key=NEW_KEYS,
    signature_type=st.integers(0, 2),
    signature=SOME_TEXTS,
)
PARTS: dict[str, Any] = {"stream_id": NAMES, "partition": INTEGERS, "request_id": TEXTS}
RESEND_PARTS: dict[str, Any] = PARTS | {"publisher_id": SOME_TEXTS, "session_token": SOME_TEXTS}
CONTROL: st.SearchStrategy[ControlMessage] = st.one_of(
    st.builds(ErrorResponse, error_message=TEXTS, error_code=TEXTS, request_id=TEXTS),
    st.builds(SubscribeRequest, session_token=SOME_TEXTS, **PARTS),
    st.builds(ResendLastRequest, number_last=INTEGERS, session_token=SOME_TEXTS, **PARTS),
    st.builds(ResendFromRequest, from_ref=REFS, **RESEND_PARTS),
    st.builds(
        ResendRangeRequest,
        from_ref=REFS.filter(lambda ref: ref.timestamp < 1_000),
        to_ref=st.builds(MessageRef, st.integers(1_000, 10**6), st.none() | INTEGERS),
        chain_id=SOME_TEXTS,
        **RESEND_PARTS,
    ),
)
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 40)
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=12) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=30,
)


@st.composite
def spoilt(draw: st.DrawFn, whole: st.SearchStrategy[str]) -> str:
    """A message's text with one element put in, left out, replaced, or one character lost."""
    text = draw(whole)
    if draw(st.booleans()):
        at = draw(st.integers(0, len(text)))
        return (
            text[:at] + draw(st.sampled_from(["", "[", "{", "0", '"', "\ud800"])) + text[at + 1 :]
        )
    array: list[Any] = json.loads(text)
    lists: list[list[Any]] = [array, *(item for item in array if isinstance(item, list))]
    target = draw(st.sampled_from(lists))
    at = draw(st.integers(0, len(target)))
    target[at : at + draw(st.integers(0, 2))] = draw(st.lists(JSON_VALUES, max_size=2))
    return json.dumps(array)


@given(MESSAGES)
def test_a_message_comes_back_from_the_latest_version(message: StreamMessage) -> None:
    text = encode_message(message, 32)
    assert decode_message(text) == message
    assert decode_message(json.loads(text)) == message
    assert stored_text(message) == text.encode()


@given(MESSAGES, st.sampled_from(VERSIONS), LAYOUTS)
def test_what_is_written_is_read_and_written_alike(
    message: StreamMessage, version: int, layout: Layout
) -> None:
    refusal = None
    try:
        text = encode_message(message, version, layout)
        again = decode_message(text)
        assert (again.version, again.content) == (version, message.content)
        assert encode_message(again, version, again.layout) == text
    except CodecError as error:
        refusal = error.code
    assert refusal in (None, "streamr.inexpressible")


@given(MESSAGES, st.lists(st.sampled_from([30, 31, 32]), max_size=4))
def test_conversions_keep_what_was_signed(message: StreamMessage, versions: list[int]) -> None:
    message = replace(message, encryption_type=0, new_group_key=None)
    converted = message
    for version in versions:
        converted = decode_message(encode_message(converted, version))
    assert signed_text(converted) == signed_text(message)
    assert signed_legacy_text(converted) == signed_legacy_text(message)
    assert converted.signature == message.signature


@given(MESSAGES)
def test_the_oldest_versions_keep_what_was_signed_then(message: StreamMessage) -> None:
    message = replace(message, message_type=27, encryption_type=0)
    converted = decode_message(encode_message(decode_message(encode_message(message, 29)), 31))
    assert signed_legacy_text(converted) == signed_legacy_text(message)


@given(CONTROL)
def test_a_control_message_comes_back_from_version_2(message: ControlMessage) -> None:
    assert decode_control(encode_control(message, 2, 32)) == (2, message)


@given(CONTROL)
def test_a_control_message_is_written_alike_in_version_1(message: ControlMessage) -> None:
    text = encode_control(message, 1, 31)
    version, again = decode_control(text)
    assert (version, type(again)) == (1, type(message))
    assert encode_control(again, 1, 31) == text


@given(MESSAGES, TEXTS, SOME_TEXTS)
def test_a_message_inside_comes_back_with_its_text(
    message: StreamMessage, request_id: str, token: str | None
) -> None:
    inner = encode_message(message, 32).encode()
    for wrapped in (
        BroadcastMessage(message=message, message_text=inner, request_id=request_id),
        UnicastMessage(message=message, message_text=inner, request_id=request_id),
        PublishRequest(
            message=message, message_text=inner, session_token=token, request_id=request_id
        ),
    ):
        assert decode_control(encode_control(wrapped, 2, 32)) == (2, wrapped)


@given(
    st.builds(
        ResendRequest,
        resend_from=INTEGERS,
        stream_id=NAMES,
        partition=INTEGERS,
        request_id=TEXTS,
    )
)
def test_a_combined_resend_comes_back(request: ResendRequest) -> None:
    assert decode_control(encode_control(request, 1, 30)) == (1, request)


@given(
    spoilt(
        st.builds(encode_message, MESSAGES, st.sampled_from([31, 32]))
        | st.just('[30,"s",0,10,2,"p",9,1,60,27,"x",1,"0x"]')
        | st.just('[32,["s",0,10,2,"p","c"],[9,1],32,0,2,"k","ff",2,"0x"]')
    )
)
def test_a_spoilt_message_is_read_or_refused(text: str) -> None:
    try:
        message = decode_message(text)
    except CodecError:
        return
    assert decode_message(encode_message(message, message.version, message.layout)) == message


@given(
    spoilt(
        st.builds(encode_control, CONTROL, st.sampled_from([1, 2]), st.just(32))
        | st.just('[1,11,"s",1,"sub",null,null,4,9]')
        | st.just('[1,9,"s",1,"key",null]')
    )
)
def test_a_spoilt_control_message_is_read_or_refused(text: str) -> None:
    try:
        version, message = decode_control(text)
    except CodecError:
        return
    assert decode_control(encode_control(message, version, 32)) == (version, message)


@given(st.binary(max_size=100) | st.text(max_size=100) | JSON_VALUES.map(json.dumps))
def test_any_text_is_read_or_refused(text: str | bytes) -> None:
    size = len(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    for decode in (decode_message, decode_control):
        offset = 0
        try:
            decode(text)
        except CodecError as error:
            offset = error.offset
        assert 0 <= offset <= size
