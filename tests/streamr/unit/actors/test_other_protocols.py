"""One log, several protocols: what others push comes to Streamr's clients, and the other way."""

import base64
import json

import pytest

from rillnode.actors.core.streams.context import stream_address
from rillnode.codecs import native
from rillnode.codecs.entries import pack_body
from rillnode.codecs.routing.stream import PullRequest, PushRequest, Status
from rillnode.codecs.streamr.message import decode_message
from rillnode.codecs.streamr.signing import Verdict, verify_message
from streamr_support import NODE_KEY, STREAM, StreamrCore, array, dump, message, publish

ADDRESS = stream_address(STREAM, 0)


async def test_what_is_pushed_becomes_a_message_signed_by_the_node(node: StreamrCore) -> None:
    await node.stream()
    client, peer = node.client(), node.core.peer(native_too=False)
    await client.subscribe()
    pushes = [PushRequest(number, b'{"n":%d}' % number) for number in range(3)]
    await peer.ask(ADDRESS, *pushes)
    now, heard = node.core.clock.now_ms(), await client.heard()
    assert [json.loads(one[3][7]) for one in heard] == [{"n": 0}, {"n": 1}, {"n": 2}]
    for index, (_, _, request_id, made) in enumerate(heard):
        assert request_id == ""
        name = [STREAM, 0, now, index, NODE_KEY.address.lower(), "rillnode"]
        assert made[:3] == [32, name, None]
        assert verify_message(decode_message(dump(made))) is Verdict.VALID


@pytest.mark.parametrize(
    ("data", "content"),
    [
        (b'{"a": 1}', '{"a": 1}'),
        (b"[1,2]", "[1,2]"),
        ('"\u00e9"'.encode(), '"\u00e9"'),
        (b"", '{"data":""}'),
        (b"\xff\x00", '{"data":"' + base64.b64encode(b"\xff\x00").decode() + '"}'),
        (b"{not json", '{"data":"' + base64.b64encode(b"{not json").decode() + '"}'),
    ],
)
async def test_content_is_json_as_it_is_and_anything_else_in_base64(
    node: StreamrCore, data: bytes, content: str
) -> None:
    await node.stream()
    client, peer = node.client(), node.core.peer()
    await client.subscribe()
    await peer.ask(ADDRESS, native.AppendRequest(1, 1, pack_body([data])))
    assert [one[3][7] for one in await client.heard()] == [content]


async def test_a_resend_brings_what_was_pushed_exactly_as_it_was_broadcast(
    node: StreamrCore,
) -> None:
    await node.stream()
    client, peer = node.client(), node.core.peer()
    await client.subscribe()
    await client.ask(publish(message(1_000)))
    await peer.ask(ADDRESS, native.AppendRequest(1, 2, pack_body([b"1", b"2"])))
    await client.ask(publish(message(node.core.clock.now_ms() + 5)))
    await peer.ask(ADDRESS, PushRequest(2, b"3"))
    broadcasts = [one[3] for one in await client.heard()]
    for request in (
        [2, 11, "r", STREAM, 0, 100, None],
        [2, 12, "r", STREAM, 0, [0, 0], None, None],
    ):
        answers = await client.ask(request)
        resent = [answer[3] for answer in answers[1:-1]]
        assert len(resent) == 5
        stamps = [(made[1][2], made[1][3]) for made in resent]
        assert stamps == sorted(stamps)
        assert all(made in resent for made in broadcasts)
    own = [2, 13, "r", STREAM, 0, [0, 0], [2**53 - 1, 0], NODE_KEY.address, "rillnode", None]
    assert [answer[3][7] for answer in (await client.ask(own))[1:-1]] == ["1", "2", "3"]


async def test_what_is_published_is_pulled_as_its_exact_text(node: StreamrCore) -> None:
    await node.stream()
    text = dump(array(message(1_000)))
    await node.client().ask(b'[2,8,"p",' + text + b",null]")
    peer = node.core.peer(native_too=False)
    (response,) = await peer.ask(ADDRESS, PullRequest(1, 0, 10))
    assert response.messages == [(0, text)]


async def test_a_stream_that_takes_signed_messages_only_takes_no_pushes(node: StreamrCore) -> None:
    await node.stream(signed=True)
    peer = node.core.peer()
    (confirm,) = await peer.ask(ADDRESS, PushRequest(1, b"unsigned"))
    assert confirm.status is Status.ERROR
    (refused,) = await peer.ask(ADDRESS, native.AppendRequest(2, 1, pack_body([b"unsigned"])))
    assert refused.code == "stream.signed_only"
    assert await node.client().ask(publish(message(1_000))) == []


async def test_a_clock_that_is_set_back_does_not_disturb_the_order(node: StreamrCore) -> None:
    await node.stream()
    client, peer = node.client(), node.core.peer()
    await client.subscribe()
    for seconds in (0.0, -5.0, 0.0):
        node.core.clock.now += seconds
        await peer.ask(ADDRESS, PushRequest(1, b"1"))
    stamps = [(one[3][1][2], one[3][1][3]) for one in await client.heard()]
    assert stamps == sorted(stamps)
    assert len(set(stamps)) == 3
