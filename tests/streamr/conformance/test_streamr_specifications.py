"""Tries each literal example of Streamr's specifications."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from msgspec.structs import replace

from coroutines import handed_by
from rillnode.codecs.errors import CodecError
from rillnode.codecs.streamr.control import decode_control, encode_control
from rillnode.codecs.streamr.control_messages import SubscribeRequest
from rillnode.codecs.streamr.key_exchange import is_key_stream, key_stream_of
from rillnode.codecs.streamr.message import decode_message, encode_message
from rillnode.codecs.streamr.network import Form, Wrapper, decode_frame, encode_frame
from rillnode.codecs.streamr.signing import sign_message
from rillnode.codecs.streamr.stream_message import Layout
from streamr_support import ALICE, API_KEY, BOB, Client, StreamrCore, with_streamr

node = handed_by(with_streamr)

LIST: Final = Path(__file__).parent / "data" / "specification_examples.md"
EXAMPLES: Final = {"2018": 13, "2020": 29}
"""How many there are in each text."""

_ROW: Final = re.compile(r"^\| (2018|2020), ([^|]+) \| `(.+)` \| (.+) \|$", re.MULTILINE)
_ANSWER: Final = re.compile(r"^answered `(.+)`$")

ID_2020: Final = f'["stream-id", 0, 425354887214, 0, "{ALICE.address}", "msg-chain-id"]'
REF: Final = "[425354887001, 0]"
MESSAGES: Final = {
    "2018": f'[30, "streamId", 0, 425354887214, 0, "{ALICE.address}", 425354887001, 0, 120, 27,'
    ' "contentData", 1, "0x00"]',
    "2020": f'[32, {ID_2020}, {REF}, 27, 0, 0, null, "{{}}", 2, "0x00"]',
}
NETWORK: Final = {
    "StatusMessage": "StatusMessage",
    "Instruction": "InstructionMessage",
    "FindStorageNodes": "FindStorageNodesMessage",
    "Wrapper": "WrapperMessage",
}


class Example(NamedTuple):
    """A row of the table."""

    text: str
    name: str
    array: str
    here: str


ROWS: Final = [Example(*found) for found in _ROW.findall(LIST.read_text("utf-8"))]


def rows(*beginnings: str) -> Callable[..., Any]:
    found = [row for row in ROWS if row.here.startswith(beginnings)]
    return pytest.mark.parametrize("row", found, ids=lambda row: f"{row.text} {row.name}")


def filled(row: Example, token: str = "") -> str:
    """The example with something real in the place of what only stands for something."""
    stream = key_stream_of(BOB.address)
    if '"rsaPublicKey"' in row.array:
        stream = key_stream_of(ALICE.address)
    is_key_message = row.name.startswith("GroupKey")
    message_id = ID_2020.replace("stream-id", stream) if is_key_message else ID_2020
    fields = {
        "[...msgIdFields]": message_id,
        "[...msgRefFields]": REF,
        "[...fromMsgRefFields]": REF,
        "[...toMsgRefFields]": "[425354887214, 0]",
        '"0xAd23Ba54d26D3f0Ac057..."': f'"{ALICE.address}"',
        '"0x29c057786Fa..."': '"0x00"',
        '"apiKey", "sessionToken"': f'"{API_KEY}", null',
        '"my-session-token"': json.dumps(token),
    }
    array = row.array
    for placeholder, real in fields.items():
        array = array.replace(placeholder, real)
    return re.sub(r"\[\.\.\.\w+\]", lambda _: signed(MESSAGES[row.text]), array)


def signed(text: str) -> str:
    """A message in the specification's layout, signed as its publisher must."""
    made = decode_message(text)
    key = BOB if made.message_type == 28 else ALICE
    made = replace(made, id=made.id._replace(publisher_id=key.address))
    made = sign_message(made, key)
    return encode_message(made, made.version, Layout.SPECIFICATION)


def frame_of(row: Example, node: StreamrCore) -> bytes:
    """What a client sends of an example: a stream message is put into a request to publish."""
    text = filled(row, node.sessions.log_in_with_key(API_KEY, "memory").text)
    if row.name.startswith(("StreamMessage", "GroupKey")):
        text = f'[2,8,"request-id",{signed(text)},null]'
    return text.encode()


async def prepared(node: StreamrCore, row: Example) -> Client:
    for stream in ("streamId", "stream-id"):
        await node.stream(stream)
    node.core.access.set_stream("streamId", {f"eth:{ALICE.address.lower()}": ["push"]})
    client = node.client(1, 30) if row.text == "2018" else node.client()
    if row.name == "UnsubscribeRequest":
        await client.subscribe("streamId" if row.text == "2018" else "stream-id")
    return client


@pytest.mark.check
def test_the_table_has_every_example() -> None:
    assert {text: sum(row.text == text for row in ROWS) for text in EXAMPLES} == EXAMPLES
    kinds = ("taken", "answered `", "refused: ", "written", "read as ")
    assert all(row.here.startswith(kinds) for row in ROWS)


@rows("answered")
async def test_what_is_said_to_be_answered_is(node: StreamrCore, row: Example) -> None:
    client = await prepared(node, row)
    wanted = _ANSWER.match(row.here)
    assert wanted is not None
    assert await client.ask(frame_of(row, node)) == [json.loads(wanted[1])]


@rows("taken", "refused")
def test_what_is_said_to_be_taken_is_and_what_is_not_is_refused(row: Example) -> None:
    if row.name in ("MessageID", "MessageRef"):
        place = 1 if row.name == "MessageID" else 2
        literal = re.sub(r'"0x[^"]*"', f'"{ALICE.address}"', row.array)
        assert json.loads(literal) == json.loads(MESSAGES["2020"])[place]
        return

    async def test(node: StreamrCore) -> None:
        client = await prepared(node, row)
        subscriber = node.client(1, 30) if row.text == "2018" else node.client()
        followed = ["streamId" if row.text == "2018" else "stream-id"]
        if row.name.startswith("GroupKey"):
            followed = [key_stream_of(ALICE.address), key_stream_of(BOB.address)]
        for stream in followed:
            await subscriber.subscribe(stream)
        if row.here.startswith("refused"):
            frame = row.array.encode()
            if row.name == "StreamMessage":
                frame = f"[1,8,{row.array},null,null]".encode()
            elif row.name == "GroupKeyRotate":
                with pytest.raises(CodecError, match=r"codec\.json"):
                    decode_message(row.array)
            (error,) = await client.ask(frame)
            assert error[1] == 7
            assert await subscriber.heard() == []
            return
        assert await client.ask(frame_of(row, node)) == []
        (broadcast,) = await subscriber.heard()
        assert broadcast[1] == 0
        name = broadcast[-1][1]
        assert row.text == "2018" or is_key_stream(name[0]) == row.name.startswith("GroupKey")

    with_streamr(test)


@rows("written")
def test_what_is_said_to_be_written_is_and_is_no_request(row: Example) -> None:
    text = filled(row).encode()
    version, message = decode_control(text)
    compact = json.dumps(json.loads(text), separators=(",", ":"))
    inner = 30 if version == 1 else 32
    assert encode_control(message, version, inner) == compact

    async def test(node: StreamrCore) -> None:
        client = await prepared(node, row)
        (error,) = await client.ask(text)
        assert error[1] == 7
        if version == 2:
            assert (error[2], error[4]) == ("request-id", "INVALID_REQUEST")

    with_streamr(test)


@rows("read as")
def test_what_is_said_to_be_read_is(row: Example) -> None:
    frame = decode_frame(row.array)
    said = row.here.removeprefix("read as ").split(":")[0]
    assert NETWORK[type(frame.message).__name__] == said
    assert (frame.form, frame.source) == (Form.SPECIFICATION, "sender")
    assert json.loads(encode_frame(frame)) == json.loads(row.array)
    if isinstance(frame.message, Wrapper):
        request = decode_control(frame.message.payload)[1]
        assert isinstance(request, SubscribeRequest)
        assert (request.stream_id, request.session_token) == ("stream-id", "my-session-token")
