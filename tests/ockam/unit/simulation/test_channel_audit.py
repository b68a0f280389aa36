"""Somebody on the way of a secure channel: what he sees, and that he can do nothing."""

import asyncio
from random import Random

import pytest

from rillnode.codecs.channel_key import ChannelKey
from rillnode.codecs.errors import CodecError
from rillnode.codecs.ockam.channel import ChannelResponder
from rillnode.codecs.ockam.channel_cipher import ChannelSession, Level
from rillnode.codecs.routing.routes import (
    Route,
    WireMessage,
    decode_message,
    encode_message,
    local,
    parse_route,
)
from rillnode.node.client.messages import Messages
from rillnode.node.ockam.client.channel import ChannelLevel, SecureChannel, open_channel
from rillnode.node.ockam.simulation.channel_audit import ChannelAudit, Interceptor
from rillnode.node.simulated.history import History
from rillnode.node.simulated.programs import MARKER

NODE, CLIENT = ChannelKey(b"node".ljust(32)), ChannelKey(b"client".ljust(32))
LISTENER, ECHO = parse_route("SC_listener"), parse_route("echo")
LEVELS: tuple[ChannelLevel, ...] = ("elixir-2021", "rust-2021", "2022")
NOWHERE = Messages(send=lambda frame, needs_link: None, settled=lambda: None)


def ones(count: int, /) -> bytes:
    return b"1" * count


class Far:
    """A link to a listener whose channel sends back what it opens."""

    def __init__(self, level: ChannelLevel, seed: int = 1) -> None:
        self.history = History(lambda: 0.0)
        self.audit = ChannelAudit(self.history)
        self.name: ChannelLevel = level
        self.level = Level(level)
        self.random = Random(seed)
        self.messages = Messages(send=self._send, settled=lambda: None)
        self.sent: list[bytes] = []
        self.dropped = 0
        self.came: list[bytes] = []
        self._responder: ChannelResponder | None = None
        self._session: ChannelSession | None = None

    @property
    def rules(self) -> set[str]:
        return {violation.rule for violation in self.history.violations}

    def way(self) -> Interceptor:
        return Interceptor(self.messages, self.level, "x0", self.audit, self.random)

    async def open(self) -> SecureChannel:
        self._session = None
        return await open_channel(
            self.way(), LISTENER, level=self.name, key=CLIENT, remote_key=None, seconds=5.0
        )

    async def talk(self, count: int) -> None:
        """Send numbers through a new channel."""
        channel = await self.open()
        back = (local(channel.messages.attach(lambda wire: self.came.append(wire.payload))),)
        for number in range(count):
            channel.messages.send(ECHO, b"%d" % number, back)
            await asyncio.sleep(0)

    def _send(self, frame: bytes, needs_link: bool) -> None:
        wire = decode_message(frame)
        self.sent.append(wire.payload)
        if wire.onward_route == LISTENER:
            self._responder = ChannelResponder(NODE.private, wire.payload)
            self._reply(wire.return_route, self._responder.message_2(b"plain"))
        elif self._session is None:
            assert self._responder is not None
            self._session = self._responder.finish(wire.payload)
        else:
            try:
                inner = decode_message(self._session.open(wire.payload))
            except CodecError:
                self.dropped += 1
            else:
                echo = encode_message(inner.return_route, ECHO, inner.payload)
                self._reply(wire.return_route, self._session.seal(echo))

    def _reply(self, route: Route, payload: bytes) -> None:
        asyncio.get_running_loop().call_soon(
            self.messages.received, WireMessage(route, parse_route("SC_1"), payload)
        )


@pytest.mark.parametrize("level", LEVELS)
def test_copies_are_sent_and_neither_end_takes_notice(level: ChannelLevel) -> None:
    far = Far(level)
    asyncio.run(far.talk(200))
    assert far.came == [b"%d" % number for number in range(200)]
    assert len(far.sent) > 210
    assert far.dropped == len(far.sent) - 202
    assert far.history.violations == []


def test_data_in_clear_is_seen() -> None:
    far = Far("2022")
    way = Interceptor(NOWHERE, far.level, "x0", far.audit, far.random)
    way.send(LISTENER, b"handshake")
    way.send(LISTENER, b"\x30" + bytes(8) + MARKER)
    assert far.rules == {"plain-data"}


def test_a_number_or_a_nonce_that_is_there_twice_is_seen() -> None:
    far = Far("elixir-2021")
    way = Interceptor(NOWHERE, far.level, "x0", far.audit, far.random)
    for payload in (b"handshake", b"\0\1" + bytes(40), b"\0\2" + bytes([1]) * 40):
        way.send(LISTENER, payload)
    assert far.rules == set()
    way.send(LISTENER, b"\0\3" + bytes([1]) * 30)
    assert [one.rule for one in far.history.violations] == ["nonce-reuse"]
    way.send(LISTENER, b"\0\3" + bytes([3]) * 30)
    assert [one.rule for one in far.history.violations] == ["nonce-reuse"] * 2


def test_an_ephemeral_key_that_was_used_before_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    far = Far("rust-2021")

    async def open_two() -> None:
        await far.open()
        assert far.rules == set()
        monkeypatch.setattr(far.messages, "entropy", ones)
        await far.open()
        await far.open()

    asyncio.run(open_two())
    assert far.rules == {"nonce-reuse"}
