"""Stream messages: layouts, what they leave out, what they refuse, and how they become another."""

from contextlib import nullcontext

import pytest
from msgspec.structs import replace

from each_row import each_row
from rillnode.codecs.errors import CodecError
from rillnode.codecs.limits import ENTRY_BYTES_MAX
from rillnode.codecs.streamr.json_text import write_json
from rillnode.codecs.streamr.limits import STREAMR_VALUE_CHARS_MAX
from rillnode.codecs.streamr.message import (
    EncryptionType,
    Layout,
    MessageId,
    MessageRef,
    MessageType,
    SignatureType,
    StreamMessage,
    decode_message,
    encode_message,
    stored_text,
)
from rillnode.codecs.streamr.signing import signed_text

ID = '["s",0,10,2,"0xAb","c"]'
FULL = StreamMessage(
    id=MessageId("s", 0, 10, 2, "0xAb", "c"),
    previous=MessageRef(10, 1),
    encryption_type=EncryptionType.AES,
    group_key_id="k1",
    content="00ff",
    new_group_key='["k2", "aa"]',
    signature_type=SignatureType.ETH,
    signature="0x1",
)
PLAIN = replace(FULL, encryption_type=0, group_key_id=None, new_group_key=None)
FLAT = '[30,"s",0,10,2,"0xAb",10,1,60,27,"00ff",1,"0x1"]'
TEN = f'[32,{ID},null,30,0,1,null,"[\\"k\\"]",2,"0x1"]'


def refusal(text: str) -> CodecError:
    with pytest.raises(CodecError) as caught:
        decode_message(text)
    return caught.value


@each_row(
    [
        (PLAIN, 28, Layout.RELEASED, '[28,"s",0,10,0,10,10,27,"00ff"]'),
        (PLAIN, 29, Layout.RELEASED, '[29,"s",0,10,0,10,10,27,"00ff",2,"0xAb","0x1"]'),
        (PLAIN, 30, Layout.RELEASED, f'[30,{ID},[10,1],27,"00ff",2,"0x1"]'),
        (FULL, 31, Layout.RELEASED, f'[31,{ID},[10,1],27,2,"00ff",2,"0x1"]'),
        (
            FULL,
            32,
            Layout.RELEASED,
            f'[32,{ID},[10,1],27,0,2,"k1","00ff","[\\"k2\\", \\"aa\\"]",2,"0x1"]',
        ),
        (PLAIN, 30, Layout.SPECIFICATION, '[30,"s",0,10,2,"0xAb",10,1,null,27,"00ff",2,"0x1"]'),
        (FULL, 32, Layout.SPECIFICATION, f'[32,{ID},[10,1],27,0,2,"k1","00ff",2,"0x1"]'),
        (FULL, 31, Layout.SPECIFICATION, f'[31,{ID},[10,1],27,2,"00ff",2,"0x1"]'),
    ]
)
def test_messages_have_their_text(
    message: StreamMessage, version: int, layout: Layout, text: str
) -> None:
    assert encode_message(message, version, layout) == text
    again = decode_message(text)
    assert encode_message(again, version, layout) == text
    assert again.version == version


def test_every_element_of_the_latest_version_comes_back() -> None:
    assert decode_message(encode_message(FULL, 32)) == FULL


def test_absent_values_are_null() -> None:
    message = StreamMessage(id=FULL.id, content="{}")
    assert encode_message(message, 32) == f'[32,{ID},null,27,0,0,null,"{{}}",null,0,null]'
    assert encode_message(message, 29) == '[29,"s",0,10,0,10,null,27,"{}",0,"0xAb",null]'
    flat = encode_message(message, 30, Layout.SPECIFICATION)
    assert flat == '[30,"s",0,10,2,"0xAb",null,null,null,27,"{}",0,null]'


@pytest.mark.parametrize(
    ("shorter", "version"),
    [
        ('[29,"s",0,10,null,null,null,27,"x"]', 29),
        (f'[30,{ID},null,27,"x"]', 30),
        (f'[31,{ID},null,27,0,"x"]', 31),
        (f'[32,{ID},null,27,0,0,null,"x"]', 32),
        (f'[32,{ID},null,27,0,0,null,"x",null]', 32),
    ],
)
def test_what_is_missing_after_the_content_is_absent(shorter: str, version: int) -> None:
    message = decode_message(shorter)
    assert (message.version, message.layout) == (version, Layout.RELEASED)
    assert (message.content, message.signature_type, message.signature) == ("x", 0, None)


def test_elements_at_the_end_that_nobody_knows_are_passed_over() -> None:
    text = '[32,["s",0,10,2,"0xAb","c",7],[10,1,5],27,0,0,null,"x",null,0,null,{"a":[1]},3]'
    message = decode_message(text)
    assert (message.id, message.previous) == (FULL.id, MessageRef(10, 1))


def test_numbers_may_be_written_with_a_fraction_of_zero() -> None:
    message = decode_message('[32.0,["s",1.0,1e1,-0.0,"p","c"],[9.0,null],27,0,0,null,"x"]')
    assert message.id == MessageId("s", 1, 10, 0, "p", "c")
    assert message.previous == MessageRef(9, None)


def test_version_30_may_leave_parts_of_the_id_null() -> None:
    message = decode_message('[30,["s",0,10,null,null,null],null,27,"x",0,null]')
    assert message.id == MessageId("s", 0, 10, 0, "", "")


@pytest.mark.parametrize(
    ("element", "content"),
    [
        ('{"b" : 1.50,"a":[1e2],"b":-0}', '{"b":0,"a":[100]}'),
        ("[1,\n2]", "[1,2]"),
        ("null", "null"),
        ('"\\u00e4\\n"', "ä\n"),
    ],
)
def test_content_is_its_text_or_the_text_that_javascript_makes_of_it(
    element: str, content: str
) -> None:
    text = f"[32,{ID},null,27,0,0,null, {element} ,null,0,null]"
    assert decode_message(text).content == content
    assert decode_message(text.encode()).content == content


def test_only_a_content_that_is_a_string_may_be_long() -> None:
    text = f"[32,{ID},null,27,0,0,null,%s,null,0,null]"
    content = f'["{"x" * STREAMR_VALUE_CHARS_MAX}"]'
    assert decode_message(text % write_json(content)).content == content
    assert refusal(text % content).code == "codec.limit"
    assert refusal(text % f"[{'1e20,' * 10_000}1]").code == "codec.limit"


def test_an_array_is_decoded_as_its_text_is() -> None:
    array: list[object] = [31, ["s", 0, 10, 2, "0xAb", "c"], None, 27, 0, {"ä": 1}, 0, None]
    assert decode_message(array).content == '{"ä":1}'


@pytest.mark.parametrize("version", ["27", "33", '"32"', "null", "true", "32.5", "-32"])
def test_an_unknown_version_is_refused(version: str) -> None:
    text = f"[{version},{ID},null,27,0,0,null,1,null,0,null]"
    assert (refusal(text).code, refusal(text).offset) == ("streamr.version", 1)
    with pytest.raises(CodecError, match=r"streamr\.version"):
        encode_message(FULL, 33)


@each_row(
    [
        "5",
        f"[32,{ID}]",
        '[32,["s",0,10,2,"p"],null,27,0,0,null,"x",null,0,null]',
        '[32,["",0,10,2,"p","c"],null,27,0,0,null,"x",null,0,null]',
        '[32,["s",0.5,10,2,"p","c"],null,27,0,0,null,"x",null,0,null]',
        '[32,["s",0,10,2,"p","c"],[],27,0,0,null,"x",null,0,null]',
        f'[32,{ID},[10,2],27,0,0,null,"x",null,0,null]',
        f'[32,{ID},[11,0],27,0,0,null,"x",null,0,null]',
        f'[32,{ID},null,26,0,0,null,"x",null,0,null]',
        f'[32,{ID},null,32,0,0,null,"x",null,0,null]',
        f'[32,{ID},null,27,1,0,null,"x",null,0,null]',
        f'[32,{ID},null,27,0,3,null,"x",null,0,null]',
        f'[32,{ID},null,27,0,0,7,"x",null,0,null]',
        f'[32,{ID},null,27,0,0,null,"",null,0,null]',
        f"[32,{ID},null,27,0,0,null,5,null,0,null]",
        f"[32,{ID},null,27,0,0,null,true,null,0,null]",
        f'[32,{ID},null,27,0,0,null,"x","k",0,null]',
        f'[32,{ID},null,27,0,0,null,"x","[1,2]",0,null]',
        f'[32,{ID},null,27,0,0,null,"x",null,3,null]',
        f'[32,{ID},null,27,0,0,null,"x",null,null,null]',
        f'[32,{ID},null,27,0,0,null,"x",null,0,5]',
        f'[31,{ID},null,27,4,"x",0,null]',
        f'[30,{ID},null,32,"x",0,null]',
        '[28,"s",0,10,0,0,0,28,"x"]',
    ]
)
def test_what_a_version_does_not_allow_is_refused(text: str) -> None:
    assert refusal(text).code == "codec.field"


def test_half_a_surrogate_pair_is_refused() -> None:
    assert refusal(f'[32,{ID},null,27,0,0,null,"\\ud800",null,0,null]').code == "codec.json"
    assert refusal(f'[32,{ID},null,27,0,0,null,"\ud800",null,0,null]').code == "codec.utf8"


@pytest.mark.parametrize("head", ["[32,", "[ 32,", " [32 ,", "[32.0,", "[3.2e1,"])
def test_a_version_is_the_same_however_it_is_written(head: str) -> None:
    rest = f'{ID},null,27,0,0,null,"x",null,0,null]'
    assert decode_message(head + rest) == decode_message("[32," + rest)


def test_the_specifications_flat_version_30_is_read() -> None:
    message = decode_message(FLAT)
    assert (message.version, message.layout, message.ttl) == (30, Layout.SPECIFICATION, 60)
    assert (message.id, message.previous) == (FULL.id._replace(chain_id=""), MessageRef(10, 1))
    assert encode_message(message, 30, message.layout) == FLAT
    assert encode_message(message, 31) == ('[31,["s",0,10,2,"0xAb",""],[10,1],27,0,"00ff",1,"0x1"]')
    first = decode_message('[30,"s",null,10,null,"p",null,null,null,27,"x",0,""]')
    assert (first.id, first.previous) == (MessageId("s", 0, 10, 0, "p", ""), None)
    assert first.signature == ""
    unnumbered = '[30,"s",0,10,2,"p",9,null,null,27,"x",0,null]'
    assert decode_message(unnumbered).previous == MessageRef(9, None)
    assert encode_message(decode_message(unnumbered), 30, Layout.SPECIFICATION) == unnumbered


@pytest.mark.parametrize("kind", [27, 28, 29, 30, 31, 32])
def test_the_specifications_version_32_has_ten_elements(kind: int) -> None:
    message = decode_message(f'[32,{ID},null,{kind},0,0,null,"x",0,null]')
    assert (message.layout, message.message_type) == (Layout.SPECIFICATION, kind)
    assert encode_message(message, 32, message.layout) == (
        f'[32,{ID},null,{kind},0,0,null,"x",0,null]'
    )


def test_the_specifications_examples_have_nine_elements_and_arrays_as_content() -> None:
    message = decode_message(f'[32,{ID},[9,0],28,0,0,["r", "s"],2,"0x29"]')
    assert (message.content, message.signature) == ('["r","s"]', "0x29")
    assert encode_message(message, 32, message.layout) == (
        f'[32,{ID},[9,0],28,0,0,null,"[\\"r\\",\\"s\\"]",2,"0x29"]'
    )
    plain = decode_message(f'[32,{ID},null,27,0,0,"{{\\"content\\":42}}",2,"0x29"]')
    assert (plain.content, plain.layout) == ('{"content":42}', Layout.SPECIFICATION)


@pytest.mark.parametrize(
    "text",
    [
        FLAT[:-1] + ",0]",
        FLAT.replace('"0xAb"', "5"),
        FLAT.replace(",60,27,", ",60,28,"),
        FLAT.replace(",10,1,60", ",10,2,60"),
        TEN[:-1] + ",null]",
        TEN.replace(",30,", ",33,"),
        TEN.replace("null,30", "[10,2],30"),
    ],
)
def test_the_specifications_layouts_are_taken_only_exactly(text: str) -> None:
    assert refusal(text).code == "codec.field"


@each_row(
    [
        (FULL, 28, Layout.RELEASED),
        (FULL, 29, Layout.RELEASED),
        (FULL, 30, Layout.RELEASED),
        (FULL, 30, Layout.SPECIFICATION),
        (replace(FULL, encryption_type=3), 32, Layout.RELEASED),
        (replace(FULL, encryption_type=3), 32, Layout.SPECIFICATION),
        (replace(PLAIN, message_type=28), 28, Layout.RELEASED),
        (replace(PLAIN, message_type=28), 30, Layout.SPECIFICATION),
        (replace(PLAIN, message_type=MessageType.GROUP_KEY_ROTATE), 32, Layout.RELEASED),
        (replace(PLAIN, message_type=MessageType.GROUP_KEY_ROTATE), 31, Layout.RELEASED),
        (replace(PLAIN, message_type=MessageType.GROUP_KEY_ANNOUNCE), 32, Layout.SPECIFICATION),
        (decode_message(TEN), 32, Layout.RELEASED),
        (decode_message(TEN), 31, Layout.RELEASED),
    ]
)
def test_what_a_version_cannot_tell_is_refused(
    message: StreamMessage, version: int, layout: Layout
) -> None:
    with pytest.raises(CodecError, match=r"streamr\.inexpressible"):
        encode_message(message, version, layout)


def test_version_31_loses_the_group_keys_and_what_signed_the_new_one() -> None:
    again = decode_message(encode_message(FULL, 31))
    assert (again.group_key_id, again.new_group_key) == (None, None)
    assert signed_text(FULL) == signed_text(again) + '["k2", "aa"]'


def test_older_versions_keep_the_positions_an_older_node_gave() -> None:
    text = '[28,"s",0,10,7,1871084066,1871084061,27,"x"]'
    message = decode_message(text)
    assert (message.ttl, message.offset, message.previous_offset) == (7, 1871084066, 1871084061)
    assert encode_message(message, 28) == text
    assert encode_message(message, 31) == '[31,["s",0,10,0,"",""],null,27,0,"x",0,null]'


def test_a_string_without_utf_8_is_not_written() -> None:
    with pytest.raises(CodecError, match=r"codec\.utf8"):
        encode_message(replace(PLAIN, content="\ud800"), 32)


def test_a_message_of_the_stored_version_is_stored_as_it_came() -> None:
    text = f'[32, {ID},null,27,0,0,null,"x",null,0,null, "more"]'.encode()
    assert stored_text(decode_message(text), text) == text
    assert stored_text(decode_message(TEN), TEN.encode()) == TEN.encode()


@each_row(
    [
        f'[32, {ID},null,27,0,0,null,%s,null,0,null,"more"]',
        f'[32, {ID},null,27,0,0,"key",%s]',
        f"[32, {ID},null,30,0,0,null,%s,0,null]",
        f"[32, {ID},null,27,0,0,%s,0,null]",
    ]
)
def test_a_content_that_came_as_a_value_is_stored_as_a_string(text: str) -> None:
    came = (text % '{"a":1e2}').encode()
    message = decode_message(came)
    stored = stored_text(message, came)
    assert decode_message(stored) == message
    assert rb'"{\"a\":100}"' in stored
    came = (text % r'"{\"a\":1e2}"').encode()
    assert stored_text(decode_message(came), came) == came


def test_what_is_larger_than_an_entry_may_be_is_not_stored() -> None:
    text = f'[32,{ID},null,27,0,0,null,"%s",null,0,null]'
    room = ENTRY_BYTES_MAX - len(text % "")
    for size, fits in ((room, True), (room + 1, False)):
        came = (text % ("x" * size)).encode()
        for given in (came, None):
            with nullcontext() if fits else pytest.raises(CodecError, match=r"entries\.size"):
                assert stored_text(decode_message(came), given) == came


def test_another_version_is_stored_as_that_one_if_it_can_be() -> None:
    text = f'[31,{ID},null,27,0,"x",0,null]'
    stored = f'[32,{ID},null,27,0,0,null,"x",null,0,null]'.encode()
    assert stored_text(decode_message(text), text.encode()) == stored
    assert stored_text(decode_message(stored)) == stored
    new_key = f'[31, {ID},null,27,3,"ff",0,null]'
    for given in (new_key.encode(), None):
        assert stored_text(decode_message(new_key), given) == new_key.replace(" ", "").encode()
    assert stored_text(decode_message(TEN)) == TEN.encode()
    with pytest.raises(CodecError, match=r"codec\.utf8"):
        stored_text(replace(PLAIN, content="\ud800"))
