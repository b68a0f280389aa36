"""The Streamr client and a node, over real sockets."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from hashlib import sha256
from pathlib import Path

import aiohttp
import pytest

from certificates import make_certificate
from coroutines import handed_by
from nodes import connect_to, node_config
from rillnode import streamr
from rillnode.codecs.errors import ConfigError, RequestError, TransportError
from rillnode.codecs.streamr.ethereum import EthereumKey
from rillnode.codecs.streamr.key_exchange import key_stream_of
from rillnode.codecs.streamr.key_messages import KeyEvent
from rillnode.codecs.streamr.key_publisher import KeyPublisher
from rillnode.codecs.streamr.message import decode_message
from rillnode.codecs.streamr.stream_message import StreamMessage
from rillnode.node.config import Config, GrantTable
from rillnode.node.config.listener_tables import ApiKeyTable
from rillnode.node.runtime import Node
from rillnode.node.streamr.client.client import Client
from rillnode.node.streamr.client.endpoints import endpoints_of
from rillnode.node.streamr.config import StreamrListener
from streamr_keys_support import rsa_key

ALICE = EthereumKey(bytes([1]) * 32)
BOB = EthereumKey(bytes([2]) * 32)
DEADLINE_SECONDS = 60
GRANTS = (
    GrantTable(who="eth:*", streams="*", may=("create",)),
    GrantTable(who="noise:*", streams="*", may=("create", "push", "pull")),
)
Talk = Callable[[Node], Awaitable[None]]


def config_of(directory: Path, listen: str = "127.0.0.1:0") -> Config:
    return node_config(directory, *GRANTS).having(StreamrListener(listen=listen))


def with_node(directory: Path, talk: Talk) -> None:
    async def run() -> None:
        async with asyncio.timeout(DEADLINE_SECONDS), Node(config_of(directory)) as node:
            await talk(node)

    asyncio.run(run())


node = handed_by(with_node)


async def connect(node: Node, key: EthereumKey, *, through: str | None = None) -> Client:
    """A client whose RSA key is there at once."""
    url = f"ws://{through or node.addresses()['streamr']}"
    client = Client(endpoints_of(url), key=key, make_rsa_key=rsa_key)
    await client.open()
    return client


async def resent(client: Client, what: streamr.Resend) -> list[object]:
    async with aclosing(client.resend("s", what)) as messages:
        return [message.content async for message in messages]


async def take(subscription: streamr.Subscription, count: int) -> list[object]:
    return [(await anext(subscription)).content for _ in range(count)]


async def shared_stream(alice: Client) -> None:
    await alice.create_stream("s")
    await alice.grant("s", "get", "subscribe", user=BOB.address)


async def test_messages_are_delivered_stored_and_resent(node: Node) -> None:
    async with await connect(node, ALICE) as alice, await connect(node, BOB) as bob:
        await shared_stream(alice)
        async with await bob.subscribe("s") as messages:
            names = [await alice.publish("s", n) for n in range(100)]
            assert await take(messages, 100) == list(range(100))
        await alice.flush()
        assert await resent(bob, streamr.Last(3)) == [97, 98, 99]
        assert await resent(bob, streamr.From(0)) == list(range(100))
        first, last = names[10], names[12]
        one_chain = streamr.Range(
            first.timestamp,
            last.timestamp,
            first.sequence,
            last.sequence,
            first.publisher_id,
            first.chain_id,
        )
        assert await resent(bob, one_chain) == [10, 11, 12]
        async with await bob.subscribe("s", resend=streamr.Last(2)) as messages:
            await alice.publish("s", 100)
            assert await take(messages, 3) == [98, 99, 100]


async def test_a_right_that_ends_ends_the_subscription_with_its_error(node: Node) -> None:
    async with await connect(node, ALICE) as alice, await connect(node, BOB) as bob:
        await shared_stream(alice)
        messages, also = await bob.subscribe("s"), await bob.subscribe("s")
        await alice.publish("s", 1)
        assert await take(messages, 1) == await take(also, 1) == [1]
        await alice.revoke("s", "subscribe", user=BOB.address)
        for subscription in (messages, also):
            with pytest.raises(RequestError, match="not allowed to subscribe"):
                await anext(subscription)
            await subscription.close()
        await alice.grant("s", "subscribe", user=BOB.address)
        async with await bob.subscribe("s") as messages:
            await alice.publish("s", 2)
            assert await take(messages, 1) == [2]


async def test_what_was_just_published_is_resent_to_its_publisher(node: Node) -> None:
    async with await connect(node, ALICE) as alice:
        await alice.create_stream("s")
        for n in range(50):
            await alice.publish("s", n)
            assert await resent(alice, streamr.Last(1)) == [n]


async def test_refusals_have_the_servers_codes(node: Node) -> None:
    async with await connect(node, ALICE) as alice, await connect(node, BOB) as bob:
        await shared_stream(alice)
        await bob.publish("s", 1)
        with pytest.raises(RequestError) as caught:
            await bob.flush()
        assert caught.value.code == "PERMISSION_DENIED"
        with pytest.raises(RequestError) as caught:
            await bob.grant("s", "publish", user=BOB.address)
        assert caught.value.code == "FORBIDDEN"
        with pytest.raises(RequestError) as caught:
            await bob.get_stream("unknown")
        assert caught.value.code == "NOT_FOUND"


async def test_encrypted_messages_are_read_by_subscribers_only(node: Node) -> None:
    async with await connect(node, ALICE) as alice, await connect(node, BOB) as bob:
        await shared_stream(alice)
        await alice.encrypt("s")
        async with await bob.subscribe("s") as messages:
            for n in range(3):
                await alice.publish("s", {"secret": n})
            assert await take(messages, 3) == [{"secret": n} for n in range(3)]
            await alice.encrypt("s")
            await alice.publish("s", {"secret": 3})
            assert await take(messages, 1) == [{"secret": 3}]
        assert await resent(bob, streamr.Last(1)) == [{"secret": 3}]


@pytest.mark.parametrize("change", ["rotate", "reset"])
def test_subscribers_follow_a_key_that_is_changed_without_asking(
    tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    def handle(publisher: KeyPublisher, message: StreamMessage, now_ms: int) -> list[KeyEvent]:
        nonlocal asked
        asked += 1
        return answer(publisher, message, now_ms)

    answer = KeyPublisher.handle
    monkeypatch.setattr(KeyPublisher, "handle", handle)

    async def talk(node: Node) -> None:
        async with await connect(node, ALICE) as alice, await connect(node, BOB) as bob:
            await alice.create_stream("s", partitions=2)
            await alice.grant("s", "get", "subscribe", user=BOB.address)
            change_key = alice.rotate if change == "rotate" else alice.reset
            with pytest.raises(ConfigError) as caught:
                await change_key("s")
            assert caught.value.code == "client.group_key"
            first = await alice.encrypt("s")
            subscriptions = [await bob.subscribe("s", partition=n) for n in range(2)]
            for partition, messages in enumerate(subscriptions):
                await alice.publish("s", [partition, "old"], partition=partition)
                assert await take(messages, 1) == [[partition, "old"]]
            before = asked
            for number in range(3):
                key = await change_key("s")
                assert key.id != first.id
                for partition, messages in enumerate(subscriptions):
                    await alice.publish("s", number, partition=partition)
                    message = await anext(messages)
                    assert (message.content, message.source.group_key_id) == (number, key.id)
            await alice.flush()
            assert asked == before > 0
            # Stored are the rotations too: who comes late reads all, by asking for the first key.
            found = [[0, "old"], 0, 1, 2] if change == "rotate" else [2]
            what = streamr.Last(len(found) * 2 - 1)
            async with aclosing(bob.resend("s", what, partition=0)) as resent_now:
                assert [one.content async for one in resent_now] == found
            for messages in subscriptions:
                await messages.close()

    with_node(tmp_path, talk)


@pytest.mark.parametrize("change", ["rotate", "reset"])
async def test_the_publisher_is_told_where_a_released_client_cannot_follow(
    node: Node, change: str
) -> None:
    refused: list[str] = []
    url = f"ws://{node.addresses()['streamr']}"
    async with (
        await streamr.connect(
            url, private_key=ALICE, on_refused=lambda _, error: refused.append(error.code)
        ) as alice,
        await connect(node, BOB) as bob,
        aiohttp.ClientSession() as http,
    ):
        await shared_stream(alice)
        await alice.grant("s", "subscribe", user=None)
        await alice.encrypt("s")
        async with await bob.subscribe("s") as messages:
            await alice.publish("s", 1)
            assert await take(messages, 1) == [1]
            query = "controlLayerVersion=2&messageLayerVersion=32&streamrClient=5.2.1dev"
            released = await http.ws_connect(f"{url}/api/v1/ws?{query}")
            name = "s" if change == "rotate" else key_stream_of(BOB.address)
            await released.send_json([2, 9, "1", name, 0, None])
            assert (await released.receive_json())[1] == 2
            await (alice.rotate("s") if change == "rotate" else alice.reset("s"))
            with pytest.raises(RequestError) as caught:
                await alice.flush()
            assert caught.value.code == "UNDELIVERABLE"
            assert refused == ["UNDELIVERABLE"]
            # Whoever can follow does.
            await alice.publish("s", 2)
            assert await take(messages, 1) == [2]
            await released.close()


async def test_native_clients_and_streamrs_see_each_others_messages(node: Node) -> None:
    async with await connect(node, ALICE) as alice, await connect_to(node) as native:
        await alice.create_stream("s")
        stream = await native.stream("s")
        async with await alice.subscribe("s") as messages:
            await stream.push(b'{"from": "native"}')
            found = await anext(messages)
            assert (found.content, found.text) == ({"from": "native"}, '{"from": "native"}')
            assert found.publisher.lower() == node.facts["ethereum_address"].lower()
            await alice.publish("s", {"from": "streamr"})
            assert (await anext(messages)).content == {"from": "streamr"}
        entries = await stream.pull(1, 1)
        assert decode_message(entries[0].data).content == '{"from":"streamr"}'


async def test_clients_without_a_private_key_do_what_grants_say(tmp_path: Path) -> None:
    key = "a-key-of-the-tests"
    table = StreamrListener(
        listen="127.0.0.1:0",
        apikeys=(ApiKeyTable(name="dash", hash=sha256(key.encode()).hexdigest()),),
    )
    grants = (
        GrantTable(who="apikey:dash", streams="s", may=("create", "push")),
        GrantTable(who="anonymous", streams="s", may=("subscribe",)),
    )
    config = node_config(tmp_path, *grants).having(table)
    async with Node(config) as node:
        url = f"ws://{node.addresses()['streamr']}"
        async with (
            await streamr.connect(url, api_key=key) as writer,
            await streamr.connect(url) as reader,
        ):
            await writer.create_stream("s")
            async with await reader.subscribe("s") as messages:
                await writer.publish("s", 1)
                found = await anext(messages)
                assert (found.content, found.is_signed) == (1, False)
                assert found.publisher == sha256(b"dash").hexdigest()
            await reader.publish("s", 2)
            with pytest.raises(RequestError) as caught:
                await reader.flush()
            assert caught.value.code == "PERMISSION_DENIED"


async def test_listener_with_a_certificate_is_talked_to_over_tls(tmp_path: Path) -> None:
    certificate, key_file = make_certificate(tmp_path)
    table = StreamrListener(listen="127.0.0.1:0", tls_cert=certificate, tls_key=key_file)
    config = node_config(tmp_path, *GRANTS).having(table)
    async with Node(config) as node:
        url = f"wss://{node.addresses()['streamr']}"
        tls = ssl.create_default_context(cafile=certificate)
        async with await streamr.connect(url, private_key=ALICE, tls=tls) as alice:
            await alice.create_stream("s")
            async with await alice.subscribe("s") as messages:
                await alice.publish("s", 1)
                assert await take(messages, 1) == [1]
            assert await resent(alice, streamr.Last(1)) == [1]
        with pytest.raises(TransportError) as caught:
            await streamr.connect(url, private_key=ALICE)
        assert "certificate" in caught.value.text.lower()
