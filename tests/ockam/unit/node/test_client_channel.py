"""A client's end of a secure channel, against a listener that does as it is told."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from coroutines import handed_by
from rillnode.codecs import native
from rillnode.codecs.channel_key import ChannelKey
from rillnode.codecs.errors import ActorError, HandshakeError, RequestError, TransportError
from rillnode.codecs.ockam.channel import ChannelResponder
from rillnode.codecs.ockam.channel_cipher import ChannelSession, Level
from rillnode.codecs.routing.routes import Route, WireMessage, decode_message, encode_message, local
from rillnode.node.client.messages import Messages
from rillnode.node.ockam.client.channel import ChannelLevel, SecureChannel, open_channel

NODE = ChannelKey(b"the node's key".ljust(32, b"."))
CLIENT = ChannelKey(b"the client's key".ljust(32, b"."))
LISTENER = (local("peer/core"), local("SC_listener"))
SEALED = (local("link"), local("SC_0123"))
SECONDS = 120.0


Answers = Callable[[ChannelSession, WireMessage], list[bytes]]


def silent(session: ChannelSession, inner: WireMessage) -> list[bytes]:
    return []


class Listener:
    """Stands behind a link: answers the handshake, then what is asked inside the channel."""

    def __init__(self) -> None:
        self.messages = Messages(send=self._send, settled=lambda: None)
        self.session: ChannelSession | None = None
        self.remote_key = b""
        self.payloads: list[bytes] = []
        self.inner: list[WireMessage] = []
        self.answer: Answers = self._echo
        self.message_2: bytes | None = None
        self._responder: ChannelResponder | None = None

    async def open(
        self, level: ChannelLevel = "2022", remote_key: str | None = None
    ) -> SecureChannel:
        return await open_channel(
            self.messages, LISTENER, level=level, key=CLIENT, remote_key=remote_key, seconds=SECONDS
        )

    def _send(self, frame: bytes, needs_link: bool) -> None:
        message = decode_message(frame)
        self.payloads.append(message.payload)
        if message.onward_route == LISTENER:
            self._responder = ChannelResponder(NODE.private, message.payload)
            answer = self._responder.message_2(b"plain")
            self._reply(message, self.message_2 if self.message_2 is not None else answer)
        elif self.session is None:
            assert self._responder is not None
            self.session = self._responder.finish(message.payload)
            self.remote_key = self._responder.remote_key
        else:
            inner = decode_message(self.session.open(message.payload))
            self.inner.append(inner)
            for payload in self.answer(self.session, inner):
                self._reply(message, payload)

    def _reply(self, message: WireMessage, payload: bytes) -> None:
        answer = WireMessage(message.return_route, SEALED, payload)
        asyncio.get_running_loop().call_soon(self.messages.received, answer)

    @staticmethod
    def _echo(session: ChannelSession, inner: WireMessage) -> list[bytes]:
        return [sealed(session, inner.return_route, inner.payload)]


def sealed(session: ChannelSession, onward: Route, payload: bytes) -> bytes:
    return session.seal(encode_message(onward, (local("worker"),), payload))


def run(test: Callable[[Listener], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(60):
            await test(Listener())

    asyncio.run(main())


listener = handed_by(run)


@pytest.mark.parametrize("level", ["elixir-2021", "rust-2021", "2022"])
async def test_questions_are_answered_through_the_channel(
    listener: Listener, level: ChannelLevel
) -> None:
    async with await listener.open(level, NODE.public_hex) as channel:
        assert channel.remote_key == NODE.public_hex
        answers = await asyncio.gather(
            *(channel.ask("a => b", b"%d" % number) for number in range(20))
        )
        assert [answer.payload for answer in answers] == [b"%d" % n for n in range(20)]
        assert answers[0].return_route == (local("worker"),)
    assert listener.remote_key == CLIENT.public
    assert listener.inner[0].onward_route == (local("a"), local("b"))


async def test_a_message_without_a_way_back_may_be_sent_and_one_with(listener: Listener) -> None:
    channel = await listener.open()
    await channel.send((local("a"),), b"one")
    await channel.send("a", b"two", return_address=b"me")
    assert [inner.return_route for inner in listener.inner] == [(), (local("me"),)]


async def test_an_unexpected_key_learns_nothing_of_the_client(listener: Listener) -> None:
    with pytest.raises(HandshakeError) as caught:
        await listener.open(remote_key=CLIENT.public_hex)
    assert caught.value.code == "channel.wrong_key"
    assert NODE.public_hex in caught.value.text
    assert len(listener.payloads) == 1


@pytest.mark.parametrize(
    ("message_2", "code"),
    [(b"", "channel.answer"), (b"\5hello", "channel.answer"), (bytes(200), "channel.answer"),
     (b"\x70" + bytes(112), "noise.handshake")],
)  # fmt: skip
async def test_an_answer_of_another_kind_opens_no_channel(
    listener: Listener, message_2: bytes, code: str
) -> None:
    listener.message_2 = message_2
    with pytest.raises(HandshakeError) as caught:
        await listener.open()
    assert caught.value.code == code


async def test_what_does_not_open_is_dropped_and_the_answer_still_counts(
    listener: Listener,
) -> None:
    channel = await listener.open()

    def answer(session: ChannelSession, inner: WireMessage) -> list[bytes]:
        right = sealed(session, inner.return_route, b"right")
        flipped = right[:-1] + bytes((right[-1] ^ 1,))
        return [b"", b"junk", flipped, session.seal(b"no message"), right, right]

    listener.answer = answer
    assert (await channel.ask("a", b"x")).payload == b"right"


async def test_a_node_s_word_that_the_channel_is_gone_ends_it(listener: Listener) -> None:
    channel = await listener.open()
    failure = native.encode(native.Failure(0, "address.unknown", "No such address"))
    listener.answer = lambda session, inner: [failure]
    for _ in range(2):
        with pytest.raises(RequestError) as caught:
            await channel.ask("a", b"x")
        assert caught.value.code == "address.unknown"


async def test_silence_is_told_in_time(listener: Listener) -> None:
    channel = await listener.open()
    listener.answer = silent
    with pytest.raises(ActorError) as caught:
        await channel.ask("a", b"x", timeout_seconds=0.01)
    assert caught.value.code == "message.timeout"


async def test_closing_fails_what_is_open(listener: Listener) -> None:
    channel = await listener.open()
    listener.answer = silent
    asked = asyncio.ensure_future(channel.ask("a", b"x"))
    await asyncio.sleep(0)
    await channel.close()
    await channel.close()
    for late in (asked, channel.ask("a", b"x"), channel.send("a", b"x")):
        with pytest.raises(TransportError) as caught:
            await late
        assert caught.value.code == "channel.closed"


def test_the_last_nonce_ends_the_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Level, "nonce_end", property(lambda _: 2))

    async def test(listener: Listener) -> None:
        channel = await listener.open()
        await channel.send("a", b"one")
        await channel.send("a", b"two")
        for _ in range(2):
            with pytest.raises(TransportError) as caught:
                await channel.send("a", b"three")
            assert caught.value.code == "channel.exhausted"

    run(test)


def test_all_that_is_random_comes_from_the_entropy_of_the_messages() -> None:
    async def first_messages() -> list[bytes]:
        listener = Listener()
        listener.messages.entropy = bytes
        await listener.open("elixir-2021")
        return listener.payloads[:1]

    assert asyncio.run(first_messages()) == asyncio.run(first_messages())
