"""Streamr's WebSocket listener on a whole node, through a client that is not ours."""

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from nodes import connect_to, node_config
from rillnode.codecs.streamr.message import encode_message
from rillnode.codecs.streamr.stream_message import Layout, StreamMessage
from rillnode.node.config import Config
from rillnode.node.runtime import Node
from rillnode.node.streamr.config import StreamrListener
from streamr_support import ALICE, STREAM, array, dump, message, publish

ANSWER_SECONDS = 60.0
VERSIONS = "controlLayerVersion=2&messageLayerVersion=32"


def config_of(directory: Path, **table: Any) -> Config:
    listener = StreamrListener(listen="127.0.0.1:0", **table)
    return node_config(directory).having(listener)


class Socket:
    """One WebSocket of a client."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket

    async def send(self, *requests: object) -> None:
        for request in requests:
            text = request if isinstance(request, bytes) else dump(request)
            await self.socket.send_str(text.decode())

    async def receive(self, count: int = 1) -> list[Any]:
        async with asyncio.timeout(ANSWER_SECONDS):
            return [json.loads(await self.socket.receive_str()) for _ in range(count)]

    async def ask(self, request: object, count: int = 1) -> list[Any]:
        await self.send(request)
        return await self.receive(count)


@asynccontextmanager
async def connected(node: Node, query: str = VERSIONS) -> AsyncGenerator[Socket, None]:
    url = f"ws://{node.addresses()['streamr']}/api/v1/ws?{query}"
    async with aiohttp.ClientSession() as session, session.ws_connect(url, compress=15) as socket:
        yield Socket(socket)


@pytest.mark.parametrize(
    "query",
    [
        "",
        "controlLayerVersion=2",
        "messageLayerVersion=32",
        "controlLayerVersion=0&messageLayerVersion=28",
        "controlLayerVersion=3&messageLayerVersion=32",
        "controlLayerVersion=2&messageLayerVersion=33",
        "controlLayerVersion=two&messageLayerVersion=32",
        f"{VERSIONS}&layout=both",
        f"{VERSIONS}&layout=",
    ],
)
async def test_a_connection_without_known_versions_is_refused_with_400(
    tmp_path: Path, query: str
) -> None:
    async with Node(config_of(tmp_path)) as node:
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            async with connected(node, query):
                pass
        assert caught.value.status == 400


async def test_other_parameters_and_offered_compression_do_no_harm(tmp_path: Path) -> None:
    async with (
        Node(config_of(tmp_path)) as node,
        connected(node, VERSIONS + "&streamrClient=5.2.1dev") as client,
    ):
        assert not client.socket.compress
        (error,) = await client.ask([2, 9, "s", STREAM, 0, None])
        assert error[4] == "NOT_FOUND"


def specified(made: StreamMessage) -> list[Any]:
    found: list[Any] = json.loads(encode_message(made, 32, Layout.SPECIFICATION))
    return found


@pytest.mark.parametrize(
    ("query", "reads", "reads_rotations"),
    [
        ("", array, True),
        ("&layout=either", array, True),
        ("&layout=released", array, False),
        ("&streamrClient=5.2.1dev", array, False),
        ("&layout=specification", specified, True),
        ("&streamrClient=5.2.1dev&layout=specification", specified, True),
    ],
)
async def test_a_url_may_say_which_layout_its_client_reads(
    tmp_path: Path, query: str, reads: Callable[[StreamMessage], list[Any]], reads_rotations: bool
) -> None:
    fields: dict[str, Any] = {"message_type": 32, "encryption_type": 2, "group_key_id": "k1"}
    fields |= {"content": "00" * 20, "layout": Layout.SPECIFICATION}
    rotation = message(2_000, chain="keys", **fields)
    later = message(3_000)
    async with (
        Node(config_of(tmp_path)) as node,
        connected(node, VERSIONS + query) as client,
        connected(node) as publisher,
    ):
        await node.stream(STREAM)
        await client.ask([2, 9, "s", STREAM, 0, None])
        await publisher.send(publish(message(1_000)))
        assert await client.receive() == [[2, 0, "", reads(message(1_000))]]
        await publisher.send([2, 8, "rotation", specified(rotation), None])
        if not reads_rotations:
            (error,) = await publisher.receive()
            assert (error[2], error[4]) == ("rotation", "UNDELIVERABLE")
        await publisher.send(publish(later))
        wanted = [specified(rotation)] if reads_rotations else []
        wanted.append(reads(later))
        heard = await client.receive(len(wanted))
        assert heard == [[2, 0, "", one] for one in wanted]
        resent = await client.ask([2, 11, "r", STREAM, 0, 2, None], len(wanted) + 2)
        assert [one[3] for one in resent[1:-1]] == wanted


@pytest.mark.parametrize(("release", "taken"), [("4.1.6", True), ("5.2.1dev", False), ("", False)])
async def test_only_clients_that_never_name_a_key_need_not(
    tmp_path: Path, release: str, taken: bool
) -> None:
    keyless = message(1_000, encryption_type=2, content="00" * 17)
    query = f"{VERSIONS}&streamrClient={release}" if release else VERSIONS
    async with Node(config_of(tmp_path)) as node, connected(node, query) as client:
        await node.stream(STREAM)
        await client.send(publish(keyless))
        (answer,) = await client.ask([2, 11, "r", STREAM, 0, 0, None])
        if not taken:
            assert (answer[2], answer[4]) == ("p", "REQUEST_FAILED")
            (answer,) = await client.receive()
        assert answer == [2, 6, "r", STREAM, 0]


async def test_history_outlives_a_restart_and_live_messages_follow_it(tmp_path: Path) -> None:
    made = [message(1_000 * number, previous=None) for number in range(1, 4)]
    async with Node(config_of(tmp_path)) as node:
        address = node.facts["ethereum_address"]
        await node.stream(STREAM)
        async with connected(node) as client:
            await client.ask([2, 9, "s", STREAM, 0, None])
            await client.send(*map(publish, made))
            assert await client.receive(3) == [[2, 0, "", array(one)] for one in made]
    async with Node(config_of(tmp_path)) as node:
        assert node.facts["ethereum_address"] == address
        async with (
            connected(node, "controlLayerVersion=1&messageLayerVersion=31") as old,
            connected(node) as client,
        ):
            answers = await old.ask([1, 11, STREAM, 0, "0", 2, None], 4)
            assert [one[1] for one in answers] == [4, 1, 1, 5]
            assert [one[3] for one in answers[1:3]] == [array(one, 31) for one in made[1:]]
            await old.ask([1, 9, STREAM, 0, None])
            await client.send(publish(message(9_000)))
            assert await old.receive() == [[1, 0, array(message(9_000), 31)]]


async def test_native_and_streamr_clients_meet_on_one_log(tmp_path: Path) -> None:
    async with (
        Node(config_of(tmp_path)) as node,
        await connect_to(node) as native,
        connected(node) as client,
    ):
        stream = await native.stream(STREAM)
        await client.ask([2, 9, "s", STREAM, 0, None])
        await stream.push(b'{"pushed":true}', key="lamp", headers={"sender": "hall"})
        ((_, _, _, pushed),) = await client.receive()
        assert pushed[7] == '{"pushed":true}'
        assert pushed[1][4] == node.facts["ethereum_address"].lower()
        text = dump(array(message(1_000)))
        await client.ask(b'[2,8,"p",' + text + b",null]")
        entries = await stream.pull(index=0)
        assert [entry.data for entry in entries] == [b'{"pushed":true}', text]
        published = f"{ALICE.address.lower()}/chain".encode()
        assert [entry.key for entry in entries] == [b"lamp", published]
        assert [entry.headers for entry in entries] == [{"sender": b"hall"}, {}]


async def test_a_message_that_is_too_long_ends_its_own_connection_only(tmp_path: Path) -> None:
    async with Node(config_of(tmp_path)) as node, connected(node) as other:
        async with connected(node) as client:
            # All of it is taken, however much longer it is.
            await client.send(b"[" + b" " * 16_777_216 + b"]")
            async with asyncio.timeout(ANSWER_SECONDS):
                end = await client.socket.receive()
            assert end.type is aiohttp.WSMsgType.CLOSE
            assert end.data == aiohttp.WSCloseCode.MESSAGE_TOO_BIG
        (error,) = await other.ask([2, 9, "s", STREAM, 0, None])
        assert error[4] == "NOT_FOUND"


async def test_binary_messages_and_too_many_connections_are_refused(tmp_path: Path) -> None:
    async with Node(config_of(tmp_path, connections_max=1)) as node:
        async with connected(node) as client:
            with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
                async with connected(node):
                    pass
            assert caught.value.status == 503
            assert node.status()["listeners"]["streamr"]["links"] == 1
            await client.socket.send_bytes(b"[]")
            async with asyncio.timeout(ANSWER_SECONDS):
                end = await client.socket.receive()
            assert end.data == aiohttp.WSCloseCode.UNSUPPORTED_DATA
        errors = node.status()["listeners"]["streamr"]["errors"]
        assert errors == {"link.too_many": 1}


async def test_a_stopping_node_closes_its_clients(tmp_path: Path) -> None:
    node = Node(config_of(tmp_path))
    await node.start()
    async with connected(node) as client:
        await node.stream(STREAM)
        await client.send(publish(message(1_000)))
        await client.ask([2, 9, "s", STREAM, 0, None])
        stopping = asyncio.create_task(node.stop())
        async with asyncio.timeout(ANSWER_SECONDS):
            end = await client.socket.receive()
        assert end.type is aiohttp.WSMsgType.CLOSE
        await stopping


async def test_tls_is_what_the_configuration_says(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    config = config_of(tmp_path / "node", tls_cert=certificate, tls_key=key)
    trust = ssl.create_default_context(cafile=str(certificate))
    async with Node(config) as node, aiohttp.ClientSession() as session:
        url = f"https://{node.addresses()['streamr']}/api/v1/ws?{VERSIONS}"
        async with session.ws_connect(url, ssl=trust) as socket:
            (error,) = await Socket(socket).ask([2, 9, "s", STREAM, 0, None])
            assert error[4] == "NOT_FOUND"


def self_signed(directory: Path) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1 that is its own authority, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a node of the tests")])
    now = datetime.now(UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = directory / "cert.pem", directory / "key.pem"
    files[0].write_bytes(certificate.public_bytes(Encoding.PEM))
    files[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return files
