"""One connection to a NATS server: its handshake, requests and answers.

A server is not trusted: what is no message ends the connection, and nothing is kept beyond limits.
"""

import asyncio
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, cast

import msgspec

from rillnode.actors.jetstream.credentials import Login
from rillnode.actors.jetstream.messages import Failure, Info, Message, Parser, WireError
from rillnode.actors.log.shared.port import LogLost

BACKLOG_BYTES_MAX: Final = 67_108_864
"""More than this is not kept for a server that does not take it."""

PING_SECONDS: Final = 10.0
"""A server that leaves two pings unanswered is lost."""

SUBSCRIPTIONS_MAX: Final = 16


class DeniedError(Exception):
    """A server does not allow what was asked; it was not carried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A server, and how to show ourselves.

    Attributes:
        host: its name or address.
        port: the same.
        tls: how it is authenticated, where it must be; else it is so only if it asks for that.
        tls_default: how, in that case.
        login: what we show.
        connect_seconds: connecting takes no longer.
        answer_seconds: an answer that takes longer is taken for lost.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None
    tls_default: ssl.SSLContext
    login: Login
    connect_seconds: float
    answer_seconds: float


class _Asked(NamedTuple):
    until: float
    subject: bytes
    answered: asyncio.Future[Message]
    # Takes one message of several; returns whether more are to come.
    take: Callable[[Message], bool] | None


class Wire(asyncio.Protocol):
    """A connection. Once lost it stays lost, and all that was asked raises LogLost.

    What is sent within one turn of the loop is written at once, in the order of the calls.

    Args:
        target: where it leads.
        on_lost: told why it was lost, once, and whether the server does not let us in; not told
            when it is let go by `close`.

    Attributes:
        info: what the server has told of itself, last.
    """

    def __init__(self, target: Target, on_lost: Callable[["Wire", WireError], None]) -> None:
        self._target = target
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self.info = Info()
        self._parser = Parser()
        self._transport: asyncio.Transport | None = None
        self._informed: asyncio.Future[None] = self._loop.create_future()
        self._greeted: asyncio.Future[None] = self._loop.create_future()
        self._is_shown = False
        self._lost: WireError | None = None
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._inbox = b"_INBOX.%s." % os.urandom(12).hex().encode()
        self._number = 0
        # By subject of the answer; oldest first, as all wait for as long.
        self._asked: dict[bytes, _Asked] = {}
        self._takers: dict[bytes, Callable[[Message], None]] = {b"1": self._answer}
        self._expiry: asyncio.TimerHandle | None = None
        self._pinging: asyncio.TimerHandle | None = None
        # Until when a ping is to be answered that was sent because something else was not.
        self._probed: asyncio.TimerHandle | None = None
        self._pings = 0

    @property
    def is_lost(self) -> bool:
        """Whether nothing can be asked any more."""
        return self._lost is not None

    async def connect(self) -> None:
        """Connect, and show ourselves.

        Raises:
            OSError: nobody is there, or its certificate is not trusted (ssl.SSLError).
            TimeoutError: it takes too long.
            WireError: it is no NATS server, or does not let us in.
        """
        target = self._target
        try:
            async with asyncio.timeout(target.connect_seconds):
                await self._loop.create_connection(lambda: self, target.host, target.port)
                await self._informed
                login = self._login()
                await self._secure()
                self._is_shown = True
                self.write(b"CONNECT %s\r\nSUB %s* 1\r\nPING\r\n" % (login, self._inbox))
                await self._greeted
        except BaseException as error:
            self.close()
            if self._lost is not None and isinstance(error, LogLost):
                raise self._lost from None
            raise
        self._pinging = self._loop.call_later(PING_SECONDS, self._ping)

    def close(self) -> None:
        """Let the connection go; harmless when repeated."""
        self._end(WireError("the connection was closed"))

    def fail(self, reason: str) -> None:
        """Take the connection for lost."""
        self._fail(WireError(reason))

    def subscribe(self, subject: bytes, take: Callable[[Message], None]) -> None:
        """Take messages of a subject from now on.

        Raises:
            LogLost: the connection was lost.
        """
        assert len(self._takers) < SUBSCRIPTIONS_MAX
        number = b"%d" % (len(self._takers) + 1)
        self._takers[number] = take
        self.write(b"SUB %s %s\r\n" % (subject, number))

    def publish(self, subject: bytes, data: bytes) -> None:
        """Send a message; nobody knows whether it arrives.

        Raises:
            LogLost: the connection was lost, or takes no more.
        """
        self.write(b"PUB %s %d\r\n%s\r\n" % (subject, len(data), data))

    def ask(
        self,
        subject: bytes,
        data: bytes,
        *,
        headers: bytes = b"",
        take: Callable[[Message], bool] | None = None,
    ) -> asyncio.Future[Message]:
        """Send a message, and return what its answer, or the last one of several, is set in.

        LogLost is set where none comes in time, and DeniedError where the server says so. Each of
        several answers has as much time as one.

        Args:
            subject: of the message.
            data: of the same.
            headers: lines, each with its end.
            take: takes each answer; returns whether more are to come.

        Raises:
            LogLost: the connection was lost, or takes no more.
        """
        self._number += 1
        reply = self._inbox + b"%d" % self._number
        if headers:
            head = b"NATS/1.0\r\n%s\r\n" % headers
            size = len(head) + len(data)
            self.write(
                b"HPUB %s %s %d %d\r\n%s%s\r\n" % (subject, reply, len(head), size, head, data)
            )
        else:
            self.write(b"PUB %s %s %d\r\n%s\r\n" % (subject, reply, len(data), data))
        answered: asyncio.Future[Message] = self._loop.create_future()
        until = self._loop.time() + self._target.answer_seconds
        self._asked[reply] = _Asked(until, subject, answered, take)
        if self._expiry is None:
            self._expiry = self._loop.call_at(until, self._expire)
        return answered

    def write(self, data: bytes) -> None:
        """Send bytes at the end of this turn of the loop.

        Raises:
            LogLost: the connection was lost, or takes no more.
        """
        transport = self._transport
        if self._lost is not None or transport is None:
            raise LogLost(str(self._lost or "there is no connection"))
        if not self._out:
            self._loop.call_soon(self._flush)
            self._out_bytes = transport.get_write_buffer_size()
        if self._out_bytes + len(data) > BACKLOG_BYTES_MAX and self._out_bytes:
            raise LogLost("the server does not take what it is sent")
        self._out_bytes += len(data)
        self._out.append(data)

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note where to write; it may be too late."""
        self._transport = cast("asyncio.Transport", transport)
        if self.is_lost:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """End all that was asked."""
        self._fail(WireError(f"the connection was lost ({exc})" if exc else "the server has left"))

    def data_received(self, data: bytes) -> None:
        """Take what the server sends."""
        try:
            for event in self._parser.feed(data):
                if isinstance(event, Message):
                    take = self._takers.get(event.subscription)
                    if take is not None:
                        take(event)
                else:
                    self._take(event)
        except WireError as error:
            self._fail(error)

    # Connecting

    def _login(self) -> bytes:
        """What CONNECT says; our capabilities are those that this module has."""
        said: dict[str, object] = {
            "verbose": False, "pedantic": False, "echo": False, "headers": True,
            "no_responders": True, "protocol": 1, "lang": "python-rillnode", "version": "1",
            "name": "rillnode",
        }  # fmt: skip
        return msgspec.json.encode(said | self._target.login.shown(self.info.nonce))

    async def _secure(self) -> None:
        target, transport = self._target, self._transport
        if not self.info.headers:
            raise WireError("the server has no headers: it is older than nats-server 2.2")
        if target.tls is not None and not (self.info.tls_required or self.info.tls_available):
            raise WireError("the server does not offer TLS")
        context = target.tls or (target.tls_default if self.info.tls_required else None)
        if context is None:
            return
        # What has come before is not authenticated.
        if transport is None or not self._parser.is_empty:
            raise WireError("the server does not wait for TLS")
        self._transport = await self._loop.start_tls(
            transport,
            self,
            context,
            server_hostname=target.host,
            ssl_handshake_timeout=target.connect_seconds,
        )
        if self._transport is None:
            raise WireError("the connection was lost")

    # Events

    def _take(self, event: Info | Failure | Literal["ping", "pong"]) -> None:
        if not (self._is_shown or isinstance(event, Info | Failure)):
            # It may be somebody between us and a server that is not authenticated yet.
            raise WireError("the server speaks before it is spoken to")
        if event == "ping":
            self._send_unless_lost(b"PONG\r\n")
        elif event == "pong":
            self._pings = 0
            if self._probed is not None:
                self._probed.cancel()
                self._probed = None
            if not self._greeted.done():
                self._greeted.set_result(None)
        elif isinstance(event, Info):
            self.info = event
            if not self._informed.done():
                self._informed.set_result(None)
        else:
            self._take_failure(event.text)

    def _take_failure(self, text: str) -> None:
        lower = text.lower()
        if not lower.startswith("permissions violation for publish"):
            # Without its subscriptions a connection is of no use.
            self._fail(WireError(text, denied="auth" in lower or "permissions" in lower))
            return
        # The connection stands; what was sent is named.
        for reply, asked in list(self._asked.items()):
            if f'"{asked.subject.decode()}"' in text:
                del self._asked[reply]
                _set_error(asked.answered, DeniedError(text))

    def _answer(self, message: Message) -> None:
        asked = self._asked.get(message.subject)
        if asked is None:
            return
        del self._asked[message.subject]
        if asked.answered.done():
            return
        if asked.take is not None and asked.take(message):
            until = self._loop.time() + self._target.answer_seconds
            self._asked[message.subject] = asked._replace(until=until)
        else:
            asked.answered.set_result(message)

    # Time

    def _expire(self) -> None:
        self._expiry = None
        now = self._loop.time()
        while self._asked:
            reply, asked = next(iter(self._asked.items()))
            if asked.until > now:
                self._expiry = self._loop.call_at(asked.until, self._expire)
                return
            del self._asked[reply]
            if not asked.answered.done():
                _set_error(asked.answered, LogLost("no answer came in time"))
                self._probe()

    def _probe(self) -> None:
        """Find out whether the server answers anything, sooner than pings do."""
        if self._probed is None and not self.is_lost:
            self._send_unless_lost(b"PING\r\n")
            self._probed = self._loop.call_later(
                self._target.answer_seconds, self.fail, "the server answers nothing"
            )

    def _ping(self) -> None:
        if self._pings == 2:
            self.fail("the server has left two pings unanswered")
            return
        self._pings += 1
        self._send_unless_lost(b"PING\r\n")
        self._pinging = self._loop.call_later(PING_SECONDS, self._ping)

    def _send_unless_lost(self, data: bytes) -> None:
        try:
            self.write(data)
        except LogLost as error:
            self.fail(str(error))

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self._transport is not None and not self.is_lost:
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))

    # The end

    def _fail(self, error: WireError) -> None:
        if self._lost is None:
            self._end(error)
            self._on_lost(self, error)

    def _end(self, error: WireError) -> None:
        if self._lost is not None:
            return
        self._lost = error
        for timer in (self._expiry, self._pinging, self._probed):
            if timer is not None:
                timer.cancel()
        if self._transport is not None:
            # Not close: it would wait until a server that does not read has read all.
            self._transport.abort()
        lost = LogLost(str(error))
        for waiting in (self._informed, self._greeted):
            _set_error(waiting, lost)
        asked, self._asked = self._asked, {}
        for one in asked.values():
            _set_error(one.answered, lost)


def _set_error(waiting: asyncio.Future[Message] | asyncio.Future[None], error: Exception) -> None:
    if not waiting.done():
        waiting.set_exception(error)
        # Nobody may wait for it.
        waiting.exception()
