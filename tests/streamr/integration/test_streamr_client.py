"""The Streamr client over real sockets, against a small server that can be made to fail."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from pathlib import Path

import pytest

from coroutines import handed_by
from rillnode import streamr
from rillnode.codecs.errors import ConfigError, HandshakeError, RequestError, TransportError
from rillnode.codecs.streamr.control_messages import (
    PublishRequest,
    ResendLastRequest,
    ResendRangeRequest,
    SubscribeRequest,
    UnsubscribeRequest,
)
from rillnode.codecs.streamr.ethereum import EthereumKey
from rillnode.codecs.streamr.key_exchange import key_stream_of
from rillnode.codecs.streamr.signing import Verdict, sign_message, verify_message
from rillnode.codecs.streamr.stream_message import MessageId, MessageRef, StreamMessage
from rillnode.node.streamr.client import reader
from rillnode.node.streamr.client.client import Client
from rillnode.node.streamr.client.endpoints import endpoints_of
from streamr_keys_support import rsa_key
from streamr_server import StreamrServer, streamr_server

ALICE = EthereumKey(bytes([1]) * 32)
BOB = EthereumKey(bytes([2]) * 32)
DEADLINE_SECONDS = 60
Talk = Callable[[StreamrServer], Awaitable[None]]


class FastClock:
    """A clock on which waiting takes a hundredth of the time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def now_ms(self) -> int:
        return 1_700_000_000_000 + int(self.monotonic() * 1_000)

    def monotonic(self) -> float:
        return self._loop.time() * 100

    elapsed = monotonic

    def call_later(self, seconds: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        return self._loop.call_later(seconds / 100, callback)


async def fast_client(
    server: StreamrServer, key: EthereumKey = ALICE, key_file: Path | None = None
) -> Client:
    """A client whose timers are fast, and whose RSA key is there at once."""
    client = Client(
        endpoints_of(server.url),
        key=key,
        key_file=key_file,
        clock=FastClock(),
        make_rsa_key=rsa_key,
    )
    await client.open()
    return client


def with_server(talk: Talk) -> None:
    async def run() -> None:
        async with asyncio.timeout(DEADLINE_SECONDS), streamr_server() as server:
            server.streams["s"] = {"id": "s", "partitions": 1}
            await talk(server)

    asyncio.run(run())


server = handed_by(with_server)


async def take(subscription: streamr.Subscription, count: int) -> list[object]:
    return [(await anext(subscription)).content for _ in range(count)]


def message(number: int, *, key: EthereumKey = ALICE, chain: str = "c") -> StreamMessage:
    """The nth signed message of a chain."""
    previous = MessageRef(1_000 + number - 1, 0) if number else None
    name = MessageId("s", 0, 1_000 + number, 0, key.address, chain)
    return sign_message(StreamMessage(id=name, previous=previous, content=str(number)), key)


# Logging in ----------------------------------------------------------------------------------


async def test_private_key_logs_in_by_challenge_and_the_token_goes_with_requests(
    server: StreamrServer,
) -> None:
    key = ALICE.secret_hex
    async with await streamr.connect(server.url, private_key=key) as client:
        assert client.address == ALICE.address.lower()
        async with await client.subscribe("s"):
            pass
    (request,) = server.asked(SubscribeRequest)
    assert isinstance(request, SubscribeRequest)
    assert request.session_token == "token-1"


async def test_api_key_logs_in_and_messages_are_not_signed(server: StreamrServer) -> None:
    async with await streamr.connect(server.url, api_key="right") as client:
        await client.publish("s", {"a": 1}, partition=0)
    (published,) = server.stored["s", 0]
    # SHA-256 of "user", the name that the server tells
    assert published.id.publisher_id.startswith("04f8996da763b7a9")
    assert published.signature is None
    with pytest.raises(RequestError) as caught:
        await streamr.connect(server.url, api_key="wrong")
    assert caught.value.code == "INVALID_API_KEY_ERROR"


async def test_anonymous_client_has_no_token(server: StreamrServer) -> None:
    async with await streamr.connect(server.url) as client:
        async with await client.subscribe("s"):
            pass
        with pytest.raises(ConfigError):
            await client.encrypt("s")
    (request,) = server.asked(SubscribeRequest)
    assert isinstance(request, SubscribeRequest)
    assert request.session_token is None
    assert server.logins == 0


async def test_text_that_is_no_challenge_is_not_signed(server: StreamrServer) -> None:
    server.challenge = "s01000{id}"
    with pytest.raises(HandshakeError) as caught:
        await streamr.connect(server.url, private_key=ALICE)
    assert caught.value.code == "login.challenge"


async def test_token_that_is_over_is_renewed(server: StreamrServer) -> None:
    async with await streamr.connect(server.url, private_key=ALICE) as client:
        server.tokens.clear()
        await client.create_stream("t")
        server.refusals[SubscribeRequest].append("AUTHENTICATION_FAILED")
        server.refusals[PublishRequest].append("AUTHENTICATION_FAILED")
        async with await client.subscribe("s") as messages:
            await client.publish("s", 1)
            assert await take(messages, 1) == [1]
    assert server.logins == 4


async def test_server_that_is_not_there_is_told(server: StreamrServer) -> None:
    with pytest.raises(TransportError) as caught:
        await streamr.connect("ws://127.0.0.1:1", private_key=ALICE)
    assert caught.value.code == "rest.unreachable"
    with pytest.raises(TransportError) as caught:
        await streamr.connect("ws://127.0.0.1:1")
    assert caught.value.code == "link.unreachable"
    with pytest.raises(HandshakeError) as refused:
        await streamr.connect(server.url + "/elsewhere")
    assert refused.value.code == "link.refused"


async def test_two_keys_are_one_too_many(server: StreamrServer) -> None:
    with pytest.raises(ConfigError):
        await streamr.connect(server.url, private_key=ALICE, api_key="right")
    with pytest.raises(ConfigError):
        await streamr.connect(server.url, private_key="not a key")


# Publishing and subscribing ------------------------------------------------------------------


async def test_what_is_published_arrives_signed_numbered_and_in_order(
    server: StreamrServer,
) -> None:
    async with await streamr.connect(server.url, private_key=ALICE) as client:
        async with await client.subscribe("s") as messages:
            numbers = [await client.publish("s", {"n": n, "t": "ä€"}) for n in range(50)]
            got = [await anext(messages) for _ in range(50)]
        assert [m.content for m in got] == [{"n": n, "t": "ä€"} for n in range(50)]
        assert [m.source.id for m in got] == numbers
        assert {m.id.chain_id for m in server.stored["s", 0]} == {numbers[0].chain_id}
        assert len(numbers[0].chain_id) == 20
        assert all(verify_message(m.source) is Verdict.VALID for m in got)
        befores = [m.source.previous for m in got]
        assert befores == [None, *(MessageRef(n.timestamp, n.sequence) for n in numbers[:-1])]
        assert all(m.is_signed and not m.is_encrypted for m in got)
        assert got[0].publisher == client.address
        assert (got[0].stream_id, got[0].partition) == ("s", 0)


async def test_concurrent_publishing_keeps_the_order_of_the_calls(server: StreamrServer) -> None:
    async with await streamr.connect(server.url, private_key=ALICE) as client:
        await asyncio.gather(*(client.publish("s", n) for n in range(300)))
        await client.flush()
    assert [m.content for m in server.stored["s", 0]] == [str(n) for n in range(300)]


async def test_partition_is_that_of_the_key(server: StreamrServer) -> None:
    async with await streamr.connect(server.url, private_key=ALICE) as client:
        info = await client.create_stream("p/q", partitions=3)
        assert (info.id, info.partitions) == ("p/q", 3)
        # The vectors of the released partitioner.
        assert (await client.publish("p/q", 1, partition_key="key-1")).partition == 0
        assert (await client.publish("p/q", 1, partition_key=-4)).partition == 1
        assert (await client.publish("p/q", 1, partition=2)).partition == 2
        assert {(await client.publish("p/q", 1)).partition for _ in range(100)} == {0, 1, 2}
        with pytest.raises(RequestError) as caught:
            await client.publish("nowhere", 1)
        assert caught.value.code == "NOT_FOUND"


async def test_refused_message_is_told_with_its_number_and_code(server: StreamrServer) -> None:
    refused: list[tuple[MessageId, str]] = []
    async with await streamr.connect(
        server.url,
        private_key=ALICE,
        on_refused=lambda name, error: refused.append((name, error.code)),
    ) as client:
        server.refusals[PublishRequest].append("PERMISSION_DENIED")
        name = await client.publish("s", 1)
        with pytest.raises(RequestError) as caught:
            await client.flush()
        assert caught.value.code == "PERMISSION_DENIED"
        assert refused == [(name, "PERMISSION_DENIED")]
        await client.publish("s", 2)
        await client.flush()


async def test_message_that_is_too_long_is_refused_and_harms_no_other(
    server: StreamrServer,
) -> None:
    async with await streamr.connect(server.url, private_key=ALICE) as client:
        await client.publish("s", "x" * 1_048_576)
        await client.publish("s", "short")
        with pytest.raises(RequestError) as caught:
            await client.flush()
        assert caught.value.code == "codec.limit"
    assert [m.content for m in server.stored["s", 0]] == ['"short"']


async def test_one_subscription_at_the_server_serves_all_readers(server: StreamrServer) -> None:
    async with await streamr.connect(server.url, private_key=ALICE) as client:
        first = await client.subscribe("s")
        second = await client.subscribe("s")
        other = await client.subscribe("s", partition=1)
        await client.publish("s", 1, partition=0)
        await client.publish("s", 2, partition=1)
        assert await take(first, 1) == await take(second, 1) == [1]
        assert await take(other, 1) == [2]
        await first.close()
        await client.publish("s", 3, partition=0)
        assert await take(second, 1) == [3]
        assert [m async for m in first] == []
        await second.close()
        await client.flush()
    assert len(server.asked(SubscribeRequest)) == 2
    assert len(server.asked(UnsubscribeRequest)) >= 1


async def test_refused_subscription_raises_the_servers_code(server: StreamrServer) -> None:
    async with await streamr.connect(server.url, private_key=ALICE) as client:
        server.refusals[SubscribeRequest].append("NOT_FOUND")
        with pytest.raises(RequestError) as caught:
            await client.subscribe("s")
        assert caught.value.code == "NOT_FOUND"
        async with await client.subscribe("s") as messages:
            await client.publish("s", 1)
            assert await take(messages, 1) == [1]


async def test_waiting_with_a_time_limit_loses_nothing(server: StreamrServer) -> None:
    async with (
        await streamr.connect(server.url, private_key=ALICE) as client,
        await client.subscribe("s") as messages,
    ):
        for n in range(200):
            await client.publish("s", n)
        got: list[object] = []
        while len(got) < 200:
            with suppress(TimeoutError):
                got.append((await asyncio.wait_for(anext(messages), 0.0001)).content)
        assert got == list(range(200))


# Verification --------------------------------------------------------------------------------


async def test_messages_that_are_not_genuine_are_dropped(server: StreamrServer) -> None:
    server.strangers.add(BOB.address.lower())
    server.streams["s"]["requireSignedData"] = True
    unsigned = StreamMessage(id=message(0).id._replace(chain_id="u"), content="0")
    async with (
        await streamr.connect(server.url, private_key=ALICE) as client,
        await client.subscribe("s") as messages,
    ):
        await server.broadcast(unsigned)
        await server.broadcast(message(0, key=BOB, chain="b"))
        forged = message(0, chain="f")
        name = forged.id._replace(publisher_id=BOB.address)
        await server.broadcast(
            StreamMessage(id=name, content="0", signature_type=2, signature=forged.signature)
        )
        await server.broadcast(message(7))
        assert await take(messages, 1) == [7]
        assert messages.reader.dropped == {
            "signature.missing": 1,
            "signature.publisher": 1,
            "signature.invalid": 1,
        }


async def test_unsigned_messages_are_taken_where_signatures_are_not_required(
    server: StreamrServer,
) -> None:
    async with await streamr.connect(server.url) as client, await client.subscribe("s") as messages:
        await client.publish("s", 1)
        assert await take(messages, 1) == [1]


async def test_content_that_is_no_json_is_dropped(server: StreamrServer) -> None:
    name = message(0).id._replace(chain_id="x")
    wrong = sign_message(StreamMessage(id=name, content="{"), ALICE)
    async with (
        await streamr.connect(server.url, private_key=ALICE) as client,
        await client.subscribe("s") as messages,
    ):
        await server.broadcast(wrong)
        await server.broadcast(message(1))
        assert await take(messages, 1) == [1]
        assert messages.reader.dropped == {"codec.json": 1}


async def test_content_that_is_cut_off_within_an_emoji_is_taken(server: StreamrServer) -> None:
    name = message(0).id._replace(chain_id="x")
    cut_off = sign_message(StreamMessage(id=name, content='{"t":"\\ud83d"}'), ALICE)
    async with (
        await streamr.connect(server.url, private_key=ALICE) as client,
        await client.subscribe("s") as messages,
    ):
        await server.broadcast(cut_off)
        assert await take(messages, 1) == [{"t": "\ud83d"}]


# Resends -------------------------------------------------------------------------------------


async def resent(client: Client, what: streamr.Resend) -> list[object]:
    async with aclosing(client.resend("s", what)) as messages:
        return [m.content async for m in messages]


async def test_stored_messages_are_resent(server: StreamrServer) -> None:
    async with await streamr.connect(server.url, private_key=ALICE) as client:
        for n in range(10):
            await client.publish("s", n, timestamp=1_000 + n)
        await client.flush()
        chain = server.stored["s", 0][0].id.chain_id
        assert await resent(client, streamr.Last(3)) == [7, 8, 9]
        assert await resent(client, streamr.Last(0)) == []
        assert await resent(client, streamr.From(1_007)) == [7, 8, 9]
        assert await resent(client, streamr.From(1_007, 1)) == [8, 9]
        assert await resent(client, streamr.From(2_000)) == []
        assert await resent(client, streamr.Range(1_002, 1_004)) == [2, 3, 4]
        assert await resent(client, streamr.Range(1_002, 1_004, 1, 0)) == [3, 4]
        alice = ALICE.address
        assert await resent(client, streamr.Range(0, 1_001, 0, 0, alice, chain)) == [0, 1]
        assert await resent(client, streamr.Range(0, 9_999, 0, 0, alice, "other")) == []
        assert await resent(client, streamr.From(0, publisher=BOB.address)) == []


async def test_refused_resend_raises_the_servers_code(server: StreamrServer) -> None:
    async with await streamr.connect(server.url, private_key=ALICE) as client:
        server.refusals[ResendRangeRequest].append("PERMISSION_DENIED")
        with pytest.raises(RequestError) as caught:
            await resent(client, streamr.Range(0, 1))
        assert caught.value.code == "PERMISSION_DENIED"
        server.refusals[ResendRangeRequest].append("AUTHENTICATION_FAILED")
        assert await resent(client, streamr.Range(0, 1)) == []


async def test_subscription_begins_with_stored_messages_and_goes_on_without_a_seam(
    server: StreamrServer,
) -> None:
    async with await streamr.connect(server.url, private_key=ALICE) as client:
        for n in range(5):
            await client.publish("s", n)
        async with await client.subscribe("s", resend=streamr.Last(3)) as messages:
            for n in range(5, 8):
                await client.publish("s", n)
            assert await take(messages, 6) == [2, 3, 4, 5, 6, 7]
        async with await client.subscribe("s", resend=streamr.From(0)) as messages:
            assert await take(messages, 8) == list(range(8))


async def test_stored_messages_are_read_after_the_subscription_began(server: StreamrServer) -> None:
    """Else what is stored in between would be missed."""
    async with (
        await streamr.connect(server.url, private_key=ALICE) as client,
        await client.subscribe("s", resend=streamr.Last(1)) as messages,
    ):
        await client.publish("s", 1)
        assert await take(messages, 1) == [1]
    asked = [type(one) for one in server.received]
    assert asked.index(SubscribeRequest) < asked.index(ResendLastRequest)


# Lost messages and connections ---------------------------------------------------------------


async def test_gap_is_filled_by_a_range_of_its_chain(server: StreamrServer) -> None:
    async with await fast_client(server) as client, await client.subscribe("s") as messages:
        server.stored["s", 0] += [message(n) for n in (1, 2)]
        for n in (0, 3, 4):
            await server.broadcast(message(n))
        assert await take(messages, 5) == [0, 1, 2, 3, 4]
        assert messages.gaps == 0
    (asked,) = server.asked(ResendRangeRequest)
    assert isinstance(asked, ResendRangeRequest)
    assert (asked.from_ref, asked.to_ref) == ((1_000, 1), (1_002, 0))
    assert (asked.publisher_id, asked.chain_id) == (ALICE.address, "c")


async def test_gap_that_cannot_be_filled_is_skipped_in_the_end(server: StreamrServer) -> None:
    async with await fast_client(server) as client, await client.subscribe("s") as messages:
        server.refusals[ResendRangeRequest].append("RESEND_FAILED")
        await server.broadcast(message(0))
        await server.broadcast(message(2))
        await server.broadcast(message(2))
        assert await take(messages, 2) == [0, 2]
        assert messages.gaps == 1
    assert len(server.asked(ResendRangeRequest)) == 10


async def test_lost_connection_is_made_again_with_what_was_missed(server: StreamrServer) -> None:
    async with (
        await streamr.connect(server.url, private_key=ALICE) as reader,
        await reader.subscribe("s") as messages,
    ):
        async with await streamr.connect(server.url, private_key=BOB) as writer:
            await writer.publish("s", 0)
            assert await take(messages, 1) == [0]
        server.accepts = False
        await server.drop_connections()
        chain = server.stored["s", 0][0].id
        for n in (1, 2):  # nobody is there to hear it
            name = chain._replace(timestamp=chain.timestamp + n)
            before = MessageRef(chain.timestamp + n - 1, 0)
            missed = StreamMessage(id=name, previous=before, content=str(n))
            server.stored["s", 0].append(sign_message(missed, BOB))
        server.accepts = True
        assert await take(messages, 2) == [1, 2]


async def test_what_is_published_without_a_connection_is_sent_later_in_order(
    server: StreamrServer,
) -> None:
    async with await streamr.connect(server.url, private_key=ALICE) as client:
        await client.publish("s", 0)
        await client.flush()
        server.accepts = False
        await server.drop_connections()
        await asyncio.sleep(0.1)
        for n in range(1, 10):
            await client.publish("s", n)
        server.accepts = True
        await client.flush()
    assert [m.content for m in server.stored["s", 0]] == [str(n) for n in range(10)]


async def test_lost_connection_ends_a_client_that_makes_no_other(server: StreamrServer) -> None:
    async with (
        await streamr.connect(server.url, private_key=ALICE, reconnect=False) as client,
        await client.subscribe("s") as messages,
    ):
        await server.drop_connections()
        with pytest.raises(TransportError) as caught:
            await anext(messages)
        assert caught.value.code == "link.closed"
        with pytest.raises(TransportError):
            await client.publish("s", 1)


async def test_request_without_an_answer_is_asked_again_on_the_next_connection(
    server: StreamrServer,
) -> None:
    async with await streamr.connect(server.url, private_key=ALICE) as client:
        server.silent.add(SubscribeRequest)
        subscribing = asyncio.ensure_future(client.subscribe("s"))
        while not server.asked(SubscribeRequest):
            await asyncio.sleep(0.01)
        server.silent.clear()
        await server.drop_connections()
        async with await subscribing as messages:
            await client.publish("s", 1)
            assert await take(messages, 1) == [1]


async def test_subscription_that_is_refused_after_a_lost_connection_ends(
    server: StreamrServer,
) -> None:
    async with (
        await streamr.connect(server.url, private_key=ALICE) as client,
        await client.subscribe("s") as messages,
    ):
        server.refusals[SubscribeRequest].append("PERMISSION_DENIED")
        await server.drop_connections()
        with pytest.raises(RequestError) as caught:
            await anext(messages)
        assert caught.value.code == "PERMISSION_DENIED"


async def test_flush_tells_that_the_connection_was_lost(server: StreamrServer) -> None:
    async with await streamr.connect(server.url, private_key=ALICE) as client:
        await client.publish("s", 1)
        server.silent.add(ResendLastRequest)
        flushing = asyncio.ensure_future(client.flush())
        while not server.asked(ResendLastRequest):
            await asyncio.sleep(0.01)
        await server.drop_connections()
        with pytest.raises(TransportError) as caught:
            await flushing
        assert caught.value.code == "link.closed"
        server.silent.clear()
        await client.flush()


async def test_broken_resend_is_told(server: StreamrServer) -> None:
    server.stored["s", 0] += [message(n) for n in range(3)]
    server.breaks_resends = True
    async with await streamr.connect(server.url, private_key=ALICE) as client:
        async with aclosing(client.resend("s", streamr.Last(3))) as messages:
            assert (await anext(messages)).content == 0
            with pytest.raises(TransportError) as caught:
                await anext(messages)
        assert caught.value.code == "link.closed"
        with pytest.raises(RequestError):
            await resent(client, streamr.Last(-1))


# Encryption ----------------------------------------------------------------------------------


async def test_subscriber_asks_the_publisher_for_the_keys(server: StreamrServer) -> None:
    async with await fast_client(server) as alice, await fast_client(server, BOB) as bob:
        first = await alice.encrypt("s")
        async with await bob.subscribe("s") as messages:
            for n in range(3):
                await alice.publish("s", {"secret": n})
            assert await take(messages, 3) == [{"secret": n} for n in range(3)]
            second = await alice.encrypt("s")
            await alice.publish("s", {"secret": 3})
            assert await take(messages, 1) == [{"secret": 3}]
        assert await resent(bob, streamr.Last(2)) == [{"secret": 2}, {"secret": 3}]
    stored = server.stored["s", 0]
    assert [m.group_key_id for m in stored] == [first.id] * 3 + [second.id]
    assert all("secret" not in m.content for m in stored)


async def test_stranger_gets_no_key(server: StreamrServer) -> None:
    async with await fast_client(server) as alice, await fast_client(server, BOB) as bob:
        server.strangers.add(BOB.address.lower())
        server.strangers.discard(ALICE.address.lower())
        await alice.encrypt("s")
        async with await bob.subscribe("s") as messages:
            await alice.publish("s", "secret")
            clear = message(0, chain="clear")
            while not messages.reader.dropped:
                await asyncio.sleep(0.01)
            await server.broadcast(clear)
            assert await take(messages, 1) == [0]
            assert messages.reader.dropped == {"key.missing": 1}


async def test_keys_outlive_the_process(server: StreamrServer, tmp_path: Path) -> None:
    files = tmp_path / "alice", tmp_path / "bob"
    async with await fast_client(server, ALICE, files[0]) as alice:
        await alice.encrypt("s")
        await alice.publish("s", 1)
        await alice.flush()
    async with (
        await fast_client(server, ALICE, files[0]),
        await fast_client(server, BOB, files[1]) as bob,
    ):
        assert await resent(bob, streamr.Last(1)) == [1]
    async with await fast_client(server, BOB, files[1]) as bob:
        assert await resent(bob, streamr.Last(1)) == [1]


async def test_a_reset_outlives_the_process(server: StreamrServer, tmp_path: Path) -> None:
    path = tmp_path / "alice"
    async with await fast_client(server, ALICE, path) as alice:
        await alice.encrypt("s")
        await alice.publish("s", 1)
        await alice.reset("s")
        await alice.publish("s", 2)
        await alice.flush()
    async with await fast_client(server, ALICE, path), await fast_client(server, BOB) as bob:
        # The key before it is given to nobody, and bob is told so.
        assert await resent(bob, streamr.Last(2)) == [2]


@pytest.mark.parametrize("locked_max", [1, 2, 1_000])
def test_stored_messages_wait_for_their_keys(
    locked_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "LOCKED_MAX", locked_max)

    async def talk(server: StreamrServer) -> None:
        async with await fast_client(server) as alice, await fast_client(server, BOB) as bob:
            await alice.encrypt("s")
            for n in range(10):
                await alice.publish("s", n)
                if n == 5:
                    await alice.encrypt("s")
            await alice.flush()
            assert await resent(bob, streamr.Last(10)) == list(range(10))
            async with await bob.subscribe("s", resend=streamr.From(0)) as messages:
                assert await take(messages, 10) == list(range(10))

    with_server(talk)


async def test_nonsense_on_the_key_stream_harms_nobody(server: StreamrServer) -> None:
    async with await fast_client(server) as alice, await fast_client(server, BOB) as bob:
        await alice.encrypt("s")
        async with await bob.subscribe("s") as messages:
            await alice.publish("s", 1)
            for address in (ALICE.address, BOB.address):
                for message_type in (27, 28, 29, 30, 31):
                    for number, content in enumerate(("[]", "{", '["r","s","no key",["k"]]')):
                        name = MessageId(
                            key_stream_of(address), 0, message_type, number, BOB.address, "x"
                        )
                        nonsense = StreamMessage(
                            id=name, content=content, message_type=message_type
                        )
                        await server.broadcast(nonsense)
                        await server.broadcast(sign_message(nonsense, BOB))
            assert await take(messages, 1) == [1]
            assert not messages.reader.dropped


async def test_key_that_was_agreed_on_opens_without_asking(server: StreamrServer) -> None:
    key = streamr.GroupKey("k", bytes(range(32)))
    async with await fast_client(server) as alice:
        await alice.encrypt("s", key)
        await alice.publish("s", 1)
        await alice.flush()
    async with await fast_client(server, BOB) as bob:
        await bob.add_group_key(ALICE.address, "s", key)
        assert await resent(bob, streamr.Last(1)) == [1]


# Streams -------------------------------------------------------------------------------------


async def test_streams_are_created_found_and_shared(server: StreamrServer) -> None:
    async with await streamr.connect(server.url, private_key=ALICE) as client:
        with pytest.raises(RequestError) as caught:
            await client.get_stream("a/b")
        assert caught.value.code == "NOT_FOUND"
        info = await client.get_or_create_stream("a/b", partitions=2)
        assert (info.id, info.partitions) == ("a/b", 2)
        assert (await client.get_or_create_stream("a/b", partitions=5)).partitions == 2
        await client.grant("a/b", "get", "subscribe", user=BOB.address)
        await client.grant("a/b", "get", user=None)
        found = await client.permissions("a/b")
        assert [(p.user, p.operation, p.anonymous) for p in found] == [
            (BOB.address, "stream_get", False),
            (BOB.address, "stream_subscribe", False),
            (None, "stream_get", True),
        ]


# Servers that misbehave ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "frame",
    [
        "",
        "nonsense",
        "[]",
        "[2,0]",
        '[2,0,"",[32]]',
        '[2,7,"unknown","text","CODE"]',
        '[2,2,"unknown","s",0]',
        '[2,5,"","s",0]',
        '[2,8,"",[32,["s",0,1,0,"p","c"],null,27,0,0,null,"1",null,0,null],null]',
        "[" * 100_000,
        b"\x00binary",
    ],
)
async def test_frames_that_make_no_sense_are_passed_over(
    server: StreamrServer, frame: str | bytes
) -> None:
    async with (
        await streamr.connect(server.url, private_key=ALICE) as client,
        await client.subscribe("s") as messages,
    ):
        for socket in server.sockets:
            if isinstance(frame, bytes):
                await socket.send_bytes(frame)
            else:
                await socket.send_str(frame)
        await client.publish("s", 1)
        assert await take(messages, 1) == [1]


async def test_answers_of_rest_that_make_no_sense_are_told(server: StreamrServer) -> None:
    server.streams["wrong"] = {"id": 7, "partitions": "many"}
    server.streams["none"] = {"id": "none", "partitions": 0}
    async with await streamr.connect(server.url, private_key=ALICE) as client:
        for name in ("wrong", "none"):
            with pytest.raises(RequestError) as caught:
                await client.get_stream(name)
            assert caught.value.code == "rest.answer"
        with pytest.raises(RequestError) as caught:
            await client.get_stream("s/unknown/path/of the server?#")
        assert caught.value.code == "NOT_FOUND"
