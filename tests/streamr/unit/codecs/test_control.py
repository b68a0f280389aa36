"""Control messages: both versions' forms, the specification's, and what is refused."""

import pytest

from each_row import each_row
from rillnode.codecs.errors import CodecError
from rillnode.codecs.streamr.control import decode_control, encode_control, request_id_of
from rillnode.codecs.streamr.control_messages import (
    BroadcastMessage,
    ControlMessage,
    ErrorResponse,
    PublishRequest,
    RequestId,
    ResendFromRequest,
    ResendLastRequest,
    ResendRangeRequest,
    ResendRequest,
    ResendResponseNoResend,
    ResendResponseResending,
    ResendResponseResent,
    SubscribeRequest,
    SubscribeResponse,
    UnicastMessage,
    UnsubscribeRequest,
    UnsubscribeResponse,
)
from rillnode.codecs.streamr.message import Layout, MessageRef, decode_message

ID = '["s",0,10,2,"0xAb","c"]'
SM31 = f'[31,{ID},null,27,0,"{{}}",0,null]'
SM32 = f'[32,{ID},null,27,0,0,null,"{{}}",null,0,null]'
TEN = f'[32,{ID},null,27,0,0,null,"{{}}",0,null]'
FLAT = '[30,"s",0,10,2,"0xAb",null,null,60,27,"{}",0,null]'
MESSAGE = decode_message(SM32)
LOW, HIGH = MessageRef(5, 1), MessageRef(9, None)


def spoken(message: ControlMessage) -> ControlMessage:
    """The message without what only its decoder knows."""
    if isinstance(message, BroadcastMessage | UnicastMessage):
        return type(message)(message=MESSAGE, request_id=message.request_id)
    if isinstance(message, PublishRequest):
        return PublishRequest(
            message=MESSAGE, session_token=message.session_token, request_id=message.request_id
        )
    return message


FORMS: list[tuple[ControlMessage, str, str]] = [
    (BroadcastMessage(message=MESSAGE), f"[1,0,{SM31}]", f'[2,0,"",{SM32}]'),
    (UnicastMessage(message=MESSAGE, request_id="r"), f'[1,1,"r",{SM31}]', f'[2,1,"r",{SM32}]'),
    (
        SubscribeResponse(stream_id="s", partition=1, request_id="r"),
        '[1,2,"s",1]',
        '[2,2,"r","s",1]',
    ),
    (
        UnsubscribeResponse(stream_id="s", partition=1, request_id="r"),
        '[1,3,"s",1]',
        '[2,3,"r","s",1]',
    ),
    (
        ResendResponseResending(stream_id="s", partition=1, request_id="r"),
        '[1,4,"s",1,"r"]',
        '[2,4,"r","s",1]',
    ),
    (
        ResendResponseResent(stream_id="s", partition=1, request_id="r"),
        '[1,5,"s",1,"r"]',
        '[2,5,"r","s",1]',
    ),
    (
        ResendResponseNoResend(stream_id="s", partition=1, request_id="r"),
        '[1,6,"s",1,"r"]',
        '[2,6,"r","s",1]',
    ),
    (
        ErrorResponse(error_message="no", error_code="NOT_FOUND", request_id="r"),
        '[1,7,"no"]',
        '[2,7,"r","no","NOT_FOUND"]',
    ),
    (
        PublishRequest(message=MESSAGE, session_token="t", request_id="r"),
        f'[1,8,{SM31},"t"]',
        f'[2,8,"r",{SM32},"t"]',
    ),
    (
        SubscribeRequest(stream_id="s", partition=1, request_id="r"),
        '[1,9,"s",1,null]',
        '[2,9,"r","s",1,null]',
    ),
    (
        UnsubscribeRequest(stream_id="s", partition=1, request_id="r"),
        '[1,10,"s",1]',
        '[2,10,"r","s",1]',
    ),
    (
        ResendLastRequest(stream_id="s", partition=1, number_last=0, request_id="r"),
        '[1,11,"s",1,"r",0,null]',
        '[2,11,"r","s",1,0,null]',
    ),
    (
        ResendFromRequest(stream_id="s", partition=1, from_ref=HIGH, chain_id="c", request_id="r"),
        '[1,12,"s",1,"r",[9,null],null,"c",null]',
        '[2,12,"r","s",1,[9,null],null,null]',
    ),
    (
        ResendRangeRequest(
            stream_id="s",
            partition=1,
            from_ref=LOW,
            to_ref=HIGH,
            publisher_id="0xAb",
            chain_id="c",
            session_token="t",
            request_id="r",
        ),
        '[1,13,"s",1,"r",[5,1],[9,null],"0xAb","c","t"]',
        '[2,13,"r","s",1,[5,1],[9,null],"0xAb","c","t"]',
    ),
]


@each_row(FORMS)
def test_messages_have_their_text_in_both_versions(
    message: ControlMessage, first: str, second: str
) -> None:
    assert encode_control(message, 1, 31) == first
    assert encode_control(message, 2, 32) == second
    version, again = decode_control(first)
    assert (version, type(again)) == (1, type(message))
    assert encode_control(again, 1, 31) == first
    version, again = decode_control(second)
    assert (version, type(again)) == (2, type(message))
    assert encode_control(again, 2, 32) == second


@each_row([row[0] for row in FORMS[1:] if row[0].type != 12])
def test_version_2_tells_everything(message: ControlMessage) -> None:
    assert spoken(decode_control(encode_control(message, 2, 32))[1]) == message


def test_a_message_inside_keeps_its_exact_text() -> None:
    text = SM32.replace(",", " ,").replace("null]", 'null, "more"]')
    for frame in (f'[2,8,"r", {text} ,"t"]', f'[2,0,"r",{text}]', f'[2,1,"r",\n{text}]'):
        message = decode_control(frame)[1]
        assert isinstance(message, PublishRequest | BroadcastMessage | UnicastMessage)
        assert (message.message, message.message_text) == (MESSAGE, text.encode())


def test_a_message_inside_may_be_a_string() -> None:
    quoted = '"' + SM32.replace("\\", "\\\\").replace('"', '\\"') + '"'
    message = decode_control(f'[2,8,"r",{quoted},null]')[1]
    assert isinstance(message, PublishRequest)
    assert (message.message, message.message_text) == (MESSAGE, SM32.encode())


@pytest.mark.parametrize("text", ['[2,9,"r","s",0]', '[2.0,"9","r","s",0.0,null,"x",{}]'])
def test_ends_may_be_missing_or_unknown_and_numbers_written_otherwise(text: str) -> None:
    expected = SubscribeRequest(stream_id="s", partition=0, request_id="r")
    assert decode_control(text) == (2, expected)
    assert decode_control(text.encode()) == (2, expected)


def test_an_array_is_decoded_as_its_text_is() -> None:
    request = UnsubscribeRequest(stream_id="s", partition=0, request_id="r")
    assert decode_control([2, 10, "r", "s", 0]) == (2, request)


def test_version_1_may_leave_the_id_null_and_the_first_partition_out() -> None:
    request = ResendLastRequest(stream_id="s", partition=0, number_last=1)
    assert decode_control('[1,11,"s",null,null,1,null]') == (1, request)
    assert decode_control('[1,10,"s"]') == (1, UnsubscribeRequest(stream_id="s", partition=0))


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(("message", "first", "second"), FORMS[2:7] + FORMS[9:])
def test_a_partition_that_is_null_is_the_first(
    message: ControlMessage, first: str, second: str, version: int
) -> None:
    text = (first, second)[version - 1].replace('"s",1', '"s",null')
    again = decode_control(text)[1]
    assert (type(again), getattr(again, "partition", None)) == (type(message), 0)
    if text.endswith('"s",null]'):
        assert decode_control(text.replace(",null]", "]"))[1] == again


@pytest.mark.parametrize("layout", [SM32, TEN, SM31, FLAT])
@pytest.mark.parametrize("version", [1, 2])
def test_a_message_whose_partition_and_sequence_are_null_is_the_first(
    layout: str, version: int
) -> None:
    inner = layout.replace('"s",0,10,2,', '"s",null,10,null,')
    text = f"[1,8,{inner},null]" if version == 1 else f'[2,8,"r",{inner},null]'
    request = decode_control(text)[1]
    assert isinstance(request, PublishRequest)
    assert request.message.id[:4] == ("s", 0, 10, 0)


@each_row(
    [
        ('[2,9,"r",5,0,null]', "r"),
        ('[2,8,"r",[99],null]', "r"),
        (' [ 2.0 , "13" , "r\\"\\u00e9" , [ ', 'r"\u00e9'),
        ('[2,99,"r"]', "r"),
        ('[2,9,"r"', "r"),
        ('[2,9,"r",' + "[" * 100_000, "r"),
        ('[1,11,"s",0,"r",-1,null]', "r"),
        ('[1,11,"s",0,234,-1,null]', 234),
        ('[1,11,"s",null,7.0,-1,null]', 7),
        ('[1,13,"s",0,"r",[2,0],[1,0],null,null,null]', "r"),
        ('[1,1,"r",[99]]', "r"),
        ('[2,9,5,"s",0,null]', None),
        ('[2,9,null,"s",0,null]', None),
        ('[1,11,"s",0,true,-1,null]', None),
        ('[1,11,"s",0,-1,-1,null]', None),
        ('[1,9,"s",-1,"r"]', None),
        ('[1,99,"s",-1,"r"]', None),
        ('[3,9,"r"]', None),
        ('[2,[9],"r"]', None),
        ('{"2":9,"r":1}', None),
        ('[2,9,"\\ud800",5]', None),
        ("[2,9", None),
        ("", None),
    ]
)
def test_the_id_of_what_is_no_request_is_found(text: str, request_id: RequestId | None) -> None:
    with pytest.raises(CodecError):
        decode_control(text)
    assert request_id_of(text.encode()) == request_id


def test_the_id_of_what_is_not_utf_8_is_found_unless_it_is_the_id() -> None:
    assert request_id_of(b'[2,9,"r","\xff"]') == "r"
    assert request_id_of(b'[2,9,"\xff","s"]') is None


def test_an_id_may_be_a_number_in_version_1_and_is_given_back_as_one() -> None:
    request = decode_control('[1,11,"s",0,234,5,null]')[1]
    assert request.request_id == 234
    answer = ResendResponseResent(stream_id="s", partition=0, request_id=request.request_id)
    assert encode_control(answer, 1, 31) == '[1,5,"s",0,234]'
    assert decode_control(f"[1,1,234,{SM31}]")[1].request_id == 234
    combined = decode_control('[1,11,"s",0,234,true,null,null,null]')[1]
    assert (combined.request_id, type(combined)) == (234, ResendRequest)


def test_the_specifications_example_of_a_wrapped_subscription_has_no_id() -> None:
    text = '[2,9,"stream-id",0,"my-session-token"]'
    request = decode_control(text)[1]
    assert request == SubscribeRequest(
        stream_id="stream-id",
        partition=0,
        session_token="my-session-token",
        layout=Layout.SPECIFICATION,
    )
    assert encode_control(request, 2, 32) == text


@pytest.mark.parametrize(
    "text", ["[]", "[3,9]", "[0,9]", '["2",9]', "[null]", "[2.5,9]", "[true,0]"]
)
def test_an_unknown_version_is_refused(text: str) -> None:
    with pytest.raises(CodecError, match=r"streamr\.version"):
        decode_control(text)
    with pytest.raises(CodecError, match=r"streamr\.version"):
        encode_control(FORMS[0][0], 3, 32)


@each_row(["14", "-1", "null", '"09"', '"x"', "9.5", '"99"', "true"])
def test_an_unknown_type_is_refused(kind: str) -> None:
    with pytest.raises(CodecError, match=r"streamr\.type"):
        decode_control(f'[2,{kind},"r","s",0,null]')


@each_row(
    [
        '{"type":"subscribe"}',
        "[2,9]",
        "[[2],9]",
        '[2,{},"r","s",0,null]',
        '[2,9,null,"s",0,null]',
        '[2,9,"r","",0,null]',
        '[2,9,"r","s","0",null]',
        '[2,9,"r","s",0.5,null]',
        '[2,9,"r","s",0,5]',
        '[2,7,"r","no",null]',
        '[2,8,"r",null,"t"]',
        '[2,8,"r","null","t"]',
        '[2,11,"r","s",0,-1,null]',
        '[2,12,"r","s",0,[],null,null]',
        '[2,12,"r","s",0,null,null,null]',
        '[2,13,"r","s",0,[2,0],[1,9],null,null,null]',
        '[2,13,"r","s",0,[2,0],[3,0],5,null,null]',
    ]
)
def test_what_a_type_does_not_allow_is_refused(text: str) -> None:
    with pytest.raises(CodecError, match=r"codec\.field"):
        decode_control(text)


def test_bytes_that_are_not_utf_8_are_refused_even_where_they_would_be_skipped() -> None:
    with pytest.raises(CodecError, match=r"at byte 21 \[codec\.utf8\]"):
        decode_control(b'[2,10,"r","s",0,"a","\xff"]')


@pytest.mark.parametrize("head", ["[2,9,", "[ 2,9,", " [2 ,9,", "[2.0,9,", '[2,"9",'])
def test_a_head_is_the_same_however_it_is_written(head: str) -> None:
    assert decode_control(head + '"r","s",0,null]') == decode_control('[2,9,"r","s",0,null]')


@pytest.mark.parametrize("version", [1, 2])
def test_half_a_surrogate_pair_is_refused(version: int) -> None:
    with pytest.raises(CodecError, match=r"codec\.json"):
        decode_control(f'[{version},9,"\\ud800","s",0,null]')


def test_an_error_of_the_message_inside_is_told() -> None:
    with pytest.raises(CodecError, match=r"streamr\.version"):
        decode_control('[2,8,"r",[33],"t"]')
    with pytest.raises(CodecError, match=r"codec\.json"):
        decode_control('[2,8,"r","[32","t"]')


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[1,9,"s",1,"key",null]',
            SubscribeRequest(
                stream_id="s", partition=1, api_key="key", layout=Layout.SPECIFICATION
            ),
        ),
        (
            '[1,9,"s",1,null,"t"]',
            SubscribeRequest(
                stream_id="s", partition=1, session_token="t", layout=Layout.SPECIFICATION
            ),
        ),
        (
            '[1,4,"s",1]',
            ResendResponseResending(stream_id="s", partition=1, layout=Layout.SPECIFICATION),
        ),
        (
            '[1,6,"s",1]',
            ResendResponseNoResend(stream_id="s", partition=1, layout=Layout.SPECIFICATION),
        ),
        (
            '[1,11,"s",1,"sub",true,null,null,null]',
            ResendRequest(stream_id="s", partition=1, resend_all=True, request_id="sub"),
        ),
        (
            '[1,11,"s",1,"sub",false,3,null,null]',
            ResendRequest(
                stream_id="s", partition=1, resend_all=False, resend_last=3, request_id="sub"
            ),
        ),
        (
            '[1,11,"s",1,"sub",null,null,4,4]',
            ResendRequest(stream_id="s", partition=1, resend_from=4, resend_to=4, request_id="sub"),
        ),
    ],
)
def test_the_specifications_forms_are_read_and_written_back(
    text: str, message: ControlMessage
) -> None:
    assert decode_control(text) == (1, message)
    assert encode_control(message, 1, 30) == text


def test_the_specifications_publishing_has_an_api_key_and_its_own_message() -> None:
    text = f'[1,8,{FLAT},"key",null]'
    request = decode_control(text)[1]
    assert isinstance(request, PublishRequest)
    assert (request.api_key, request.layout) == ("key", Layout.SPECIFICATION)
    assert (request.message.ttl, request.message_text) == (60, FLAT.encode())
    assert encode_control(request, 1, 30) == text
    broadcast = BroadcastMessage(message=request.message, layout=request.layout)
    assert encode_control(broadcast, 1, 30) == f"[1,0,{FLAT}]"


def test_a_message_in_the_specifications_layout_marks_a_released_form() -> None:
    text = f'[2,8,"r",{TEN},"t"]'
    request = decode_control(text)[1]
    assert request.layout is Layout.SPECIFICATION
    assert encode_control(request, 2, 32) == text
    released = BroadcastMessage(message=MESSAGE)
    assert encode_control(released, 2, 32) == f'[2,0,"",{SM32}]'


@each_row(
    [
        '[1,9,"s",1,"t"]',
        '[1,9,"s",1,"t",5]',
        '[1,9,"s",1,"t",null,null]',
        f'[1,8,{SM31},"t"]',
        f'[1,8,{SM31},"t",7]',
        '[1,11,"s",1,"r",5,"t",null,null]',
        '[1,4,"s",1,"r"]',
        '[1,4,"s",1,"r",0]',
    ]
)
def test_other_numbers_or_types_of_elements_are_the_released_form(text: str) -> None:
    message = decode_control(text)[1]
    assert message.layout is Layout.RELEASED
    assert getattr(message, "session_token", "t") == "t"
    assert getattr(message, "request_id", None) in (None, "r")


@pytest.mark.parametrize(
    "end", ["null,null,null,null", "false,null,null,9", "true,1,null,null", "null,null,9,8"]
)
def test_a_combined_resend_asks_for_one_thing(end: str) -> None:
    with pytest.raises(CodecError, match=r"codec\.field"):
        decode_control(f'[1,11,"s",1,"sub",{end}]')


def test_a_combined_resend_has_no_form_in_version_2() -> None:
    request = ResendRequest(stream_id="s", partition=1, resend_all=True)
    with pytest.raises(CodecError, match=r"streamr\.inexpressible"):
        encode_control(request, 2, 32)
