"""Stored and new messages over the REST interface of a node."""

import asyncio
import json
import logging
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import pytest

from coroutines import handed_by
from rillnode.codecs.streamr.limits import STREAMR_REST_BODY_BYTES_MAX
from rillnode.codecs.streamr.message import decode_message, encode_message
from rillnode.codecs.streamr.signing import Verdict, sign_message, verify_message
from rillnode.codecs.streamr.stream_message import Layout, MessageId, MessageType, StreamMessage
from streamr_rest_support import ALICE, BOB, Server, User, served, streamr_config

server = handed_by(served, of=streamr_config)

NOBODY = "0x" + "12" * 20


async def filled(user: User, count: int = 10) -> str:
    """The path of a new stream's partition with messages at 1000, 1010, 1020, ..."""
    path = f"/streams/{await user.make(name='n')}"
    for number in range(count):
        answer = await user.post(f"{path}/data?ts={1_000 + 10 * number}", {"n": number})
        assert (answer.status, answer.body) == (200, b"")
    return f"{path}/data/partitions/0"


STORED: dict[str, Sequence[int]] = {
    "last": [9],
    "last?count=3": [7, 8, 9],
    "last?count=0": [],
    "last?count=9007199254740991": range(10),
    "from?fromTimestamp=1070": [7, 8, 9],
    "from?fromTimestamp=1071": [8, 9],
    "from?fromTimestamp=1070&fromSequenceNumber=1": [8, 9],
    f"from?fromTimestamp=0&publisherId={ALICE.address}": range(10),
    f"from?fromTimestamp=0&publisherId={NOBODY}": [],
    "range?fromTimestamp=1020&toTimestamp=1040": [2, 3, 4],
    "range?fromTimestamp=1020&toTimestamp=1040&toSequenceNumber=0": [2, 3, 4],
    "range?fromTimestamp=1021&toTimestamp=1029": [],
    "range?fromTimestamp=0&toTimestamp=9007199254740991": range(10),
}


async def test_stored_messages_are_told(server: Server) -> None:
    user = await server.user()
    path = await filled(user)
    for query, found in STORED.items():
        answer = await user.get(f"{path}/{query}")
        assert answer.status == 200
        assert [one["content"]["n"] for one in answer.body] == list(found), query


async def test_a_wrong_question_is_400_with_an_error(server: Server) -> None:
    user = await server.user()
    path = await filled(user, 1)
    for query in (
        "from",
        "from?fromTimestamp=x",
        "from?fromTimestamp=-1",
        "from?fromTimestamp=99999999999999999999",
        "from?fromTimestamp=0&fromSequenceNumber=x",
        "range?fromTimestamp=0",
        "range?fromTimestamp=2&toTimestamp=1",
        "last?count=x",
        "last?format=xml",
        "last?format=protocol&version=7",
    ):
        answer = await user.get(f"{path}/{query}")
        assert answer.refusal == (400, "BAD_PARAMETERS"), query
        assert answer.body["error"]


async def test_messages_are_told_as_objects_or_in_a_version(server: Server) -> None:
    user = await server.user()
    path = await filled(user, 1)
    (one,) = (await user.get(f"{path}/last")).body
    assert one == {
        "streamId": one["streamId"], "streamPartition": 0, "timestamp": 1_000,
        "sequenceNumber": 0, "publisherId": user.address, "msgChainId": one["msgChainId"],
        "messageType": 27, "contentType": 0, "encryptionType": 0, "groupKeyId": None,
        "content": {"n": 0}, "signatureType": 0, "signature": None,
    }  # fmt: skip
    for version in (30, 31, 32):
        answer = await user.get(f"{path}/last?format=protocol&version={version}")
        (text,) = answer.body
        assert json.loads(text)[0] == version
        assert decode_message(text).id.timestamp == 1_000


async def test_a_long_range_is_streamed(server: Server) -> None:
    user = await server.user()
    path = f"/streams/{await user.make(name='n')}"
    body = {"x": "y" * 500_000}
    for number in range(12):
        await user.post(f"{path}/data?ts={1_000 + number}", body)
    answer = await user.get(f"{path}/data/partitions/0/from?fromTimestamp=0")
    assert [one["timestamp"] for one in answer.body] == list(range(1_000, 1_012))
    assert "Content-Length" not in answer.headers
    # Who goes away in the middle is no trouble.
    url = f"{server.base}{path}/data/partitions/0/from?fromTimestamp=0"
    headers = {"Authorization": f"Bearer {user.token}"}
    async with aiohttp.ClientSession() as http, http.get(url, headers=headers) as response:
        await response.content.read(1_000)
    assert (await user.get(path)).status == 200


async def test_what_only_the_specifications_layout_can_tell_is_told_in_it(server: Server) -> None:
    alice = await server.user()
    name = await alice.make(name="n")
    rotation = StreamMessage(
        id=MessageId(name, 0, 5_000, 3, ALICE.address, "chain"),
        content="00" * 20,
        message_type=MessageType.GROUP_KEY_ROTATE,
        encryption_type=2,
        group_key_id="k",
        layout=Layout.SPECIFICATION,
    )
    url = server.base.replace("http", "ws").removesuffix("/api/v1")
    query = "controlLayerVersion=2&messageLayerVersion=32"
    text = encode_message(sign_message(rotation, ALICE), 32, Layout.SPECIFICATION)
    async with (
        aiohttp.ClientSession() as http,
        http.ws_connect(f"{url}/api/v1/ws?{query}") as socket,
    ):
        await socket.send_str(f'[2,8,"p",{text},null]')
        await socket.send_json([2, 11, "r", name, 0, 0, None])
        assert (await socket.receive_json())[1:3] == [6, "r"]
    stored = await alice.get(f"/streams/{name}/data/partitions/0/last?format=protocol")
    assert stored.body == [text]


async def test_a_signed_message_is_published_as_it_is(server: Server) -> None:
    alice, bob = await server.user(), await server.user(BOB)
    name = await alice.make(name="n", requireSignedData=True)
    path = f"/streams/{name}"
    content = '{"temperature": 21.50}'
    message = sign_message(
        StreamMessage(id=MessageId(name, 0, 5_000, 3, ALICE.address, "chain"), content=content),
        ALICE,
    )
    query = (
        f"ts=5000&seq=3&address={ALICE.address}&msgChainId=chain"
        f"&signatureType=2&signature={message.signature}"
    )
    headers = {"Content-Type": "application/json"}
    await alice.post(f"{path}/permissions", {"operation": "stream_get", "user": BOB.address})
    for user in (alice, bob):  # a signed message may be sent by anybody, and is taken once
        answer = await user.call(
            "POST", f"{path}/data?{query}", data=content.encode(), headers=headers
        )
        assert answer.status == 200, answer.body
    stored = await alice.get(f"{path}/data/partitions/0/last?count=9&format=protocol&version=32")
    (text,) = stored.body
    assert verify_message(decode_message(text)) is Verdict.VALID
    unsigned = await alice.post(f"{path}/data", {"a": 1})
    assert unsigned.refusal == (400, "REQUEST_FAILED")
    forged = await alice.call("POST", f"{path}/data?{query}", data=b"{}", headers=headers)
    assert forged.refusal == (400, "REQUEST_FAILED")


async def test_messages_published_without_numbers_are_all_kept_in_order(server: Server) -> None:
    user = await server.user()
    path = f"/streams/{await user.make(name='n')}"
    for number in range(30):
        await user.post(f"{path}/data", {"n": number})
    stored = await user.get(f"{path}/data/partitions/0/last?count=100")
    assert [one["content"]["n"] for one in stored.body] == list(range(30))
    assert len({one["msgChainId"] for one in stored.body}) == 1


async def test_a_key_chooses_the_partition(server: Server) -> None:
    user = await server.user()
    path = f"/streams/{await user.make(name='n', partitions=3)}"
    for key in ("a", "b", "key-1", "foo"):
        assert (await user.post(f"{path}/data?pkey={key}", {"key": key})).status == 200
    partitions: list[list[str]] = []
    for number in range(3):
        stored = await user.get(f"{path}/data/partitions/{number}/last?count=9")
        partitions.append([one["content"]["key"] for one in stored.body])
    assert [sorted(keys) for keys in partitions] == [["b", "foo", "key-1"], ["a"], []]
    assert (await user.get(f"{path}/data/partitions/3/last")).refusal == (
        400, "BAD_PARAMETERS",
    )  # fmt: skip


async def test_what_cannot_be_published_is_refused(server: Server) -> None:
    user = await server.user()
    path = f"/streams/{await user.make(name='n')}/data"
    for body in (b"", b"{", b"\xff", b"\x00"):
        refused = await user.call("POST", path, data=body)
        assert refused.refusal == (400, "BAD_PARAMETERS")
    for query in ("ts=x", "ts=1&prev_ts=1", "seq=-1", "signatureType=9", "ts=1&prev_ts=x"):
        refused = await user.post(f"{path}?{query}", {})
        assert refused.refusal == (400, "BAD_PARAMETERS"), query
    for other in (NOBODY, "x"):
        refused = await user.post(f"{path}?address={other}", {})
        assert refused.refusal == (403, "FORBIDDEN")
    assert (await user.post(f"{path}?address={ALICE.address}", {})).status == 200
    spoofed = await user.post(f"{path}?address={NOBODY}&signature=0x&signatureType=0", {})
    assert spoofed.status >= 400
    future = await user.post(f"{path}?ts=9007199254740991", {})
    assert future.refusal == (400, "FUTURE_TIMESTAMP")
    large = await user.call("POST", path, data=b"0" * (STREAMR_REST_BODY_BYTES_MAX + 1))
    assert large.refusal == (413, "BODY_TOO_LARGE")
    keys = f"/streams/SYSTEM%2Fkeyexchange%2F{user.address}/data"
    assert (await user.post(keys, {})).refusal == (400, "BAD_PARAMETERS")
    assert (await user.get(f"{keys}/partitions/0/last")).body == []


def test_readers_at_one_time_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rillnode.node.streamr.rest.rest.STREAMR_REST_RESENDS_MAX", 1)

    async def test(server: Server) -> None:
        user = await server.user()
        path = f"/streams/{await user.make(name='n')}"
        # More than all buffers on the way hold.
        for number in range(30):
            await user.post(f"{path}/data?ts={1_000 + number}", {"x": "y" * 1_000_000})
        url = f"{server.base}{path}/data/partitions/0/from?fromTimestamp=0"
        headers = {"Authorization": f"Bearer {user.token}"}
        async with aiohttp.ClientSession() as http, http.get(url, headers=headers):
            # It has begun, and its reader takes nothing.
            refused = await user.get(f"{path}/data/partitions/0/last")
            assert refused.refusal == (503, "UNAVAILABLE")
        async with asyncio.timeout(60.0):
            while (await user.get(f"{path}/data/partitions/0/last")).status != 200:
                await asyncio.sleep(0.02)

    served(streamr_config(tmp_path), test)


def test_who_goes_away_in_the_middle_of_an_answer_is_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(server: Server) -> None:
        user = await server.user()
        name = await user.make(id="s")
        stream = await server.node.stream(name)
        await asyncio.gather(*(stream.push(b'"' + b"x" * 65_536 + b'"') for _ in range(400)))
        url = f"{server.base}/streams/{name}/data/partitions/0/last?count=400"
        async with server.http.get(
            url, headers={"Authorization": f"Bearer {user.token}"}
        ) as answer:
            await answer.content.readany()
        resends = "rillnode.actors.streamr.resend.ResendActor"
        while (await server.node.client.status())["actors"][resends]["cells"]:
            await asyncio.sleep(0.01)

    with caplog.at_level(logging.ERROR):
        served(streamr_config(tmp_path), test)
    assert not caplog.records
