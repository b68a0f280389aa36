"""A connection to a NATS server that does what it should not."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable

import pytest

from jetstream.fake_nats import INFO, Serve, greet, serving, target
from rillnode.actors.jetstream import wire as wire_module
from rillnode.actors.jetstream.messages import Message, WireError
from rillnode.actors.jetstream.wire import DeniedError, Wire
from rillnode.actors.log.shared.port import LogLost

Client = Callable[[Wire, list[WireError]], Awaitable[None]]


def run(serve: Serve, client: Client, *, answer_seconds: float = 20.0) -> None:
    """Let a client do something with a server."""

    async def both() -> None:
        lost: list[WireError] = []
        async with serving(serve) as port:
            wire = Wire(
                target(port, answer_seconds=answer_seconds), lambda _, error: lost.append(error)
            )
            try:
                async with asyncio.timeout(30):
                    await wire.connect()
                    await client(wire, lost)
            finally:
                wire.close()

    asyncio.run(both())


def ignore(wire: Wire, error: WireError) -> None:
    """For who is not told."""


async def nothing(wire: Wire, lost: list[WireError]) -> None:
    """Only connect."""


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak NATS"),
        (b"INFO {}\r\n", "has no headers"),
        (INFO + b"PONG\r\n", "speaks before it is spoken to"),
        (b"PONG\r\n", "speaks before it is spoken to"),
        (b"x" * 100_000, "does not end"),
        (b"-ERR 'maximum connections exceeded'\r\n", "maximum connections"),
        (b"", "has left|was lost"),
    ],
)
def test_who_is_no_server_is_told(said: bytes, reason: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        await writer.drain()
        if said:
            await reader.read()

    with pytest.raises(WireError, match=reason):
        run(serve, nothing)


def test_a_server_that_does_not_let_us_in_is_told_apart() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(INFO)
        await reader.readuntil(b"PING\r\n")
        writer.write(b"-ERR 'Authorization Violation'\r\n")

    with pytest.raises(WireError, match="Authorization Violation") as caught:
        run(serve, nothing)
    assert caught.value.denied


@pytest.mark.parametrize("said", [b"", b"INFO ", INFO])
async def test_a_server_that_says_nothing_is_waited_for_only_so_long(said: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        await reader.read()

    async with serving(serve) as port:
        with pytest.raises(TimeoutError):
            await Wire(target(port, connect_seconds=0.2), ignore).connect()


async def test_tls_is_not_begun_with_a_server_that_does_not_offer_it() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(INFO)
        assert await reader.read() == b""

    async with serving(serve) as port:
        wire = Wire(target(port, tls=ssl.create_default_context()), ignore)
        with pytest.raises(WireError, match="does not offer TLS"):
            await wire.connect()


def test_what_comes_before_tls_is_not_believed() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(INFO.replace(b"{", b'{"tls_required":true,') + b"INFO ")
        await reader.read()

    with pytest.raises(WireError, match="does not wait for TLS"):
        run(serve, nothing)


def test_requests_are_sent_in_order_and_answers_found_in_any() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greet(reader, writer)
        replies: list[tuple[bytes, bytes]] = []
        while len(replies) < 3:
            words = (await reader.readuntil(b"\r\n")).split()
            data = (await reader.readuntil(b"\r\n")).strip()
            replies.append((words[2], data))
        assert [data for _, data in replies] == [b"0", b"1", b"2"]
        for subject, data in reversed(replies):
            writer.write(b"MSG %s 1 %d\r\n%s\r\n" % (subject, len(data), data))
        # Those that nobody waits for, or not any more.
        writer.write(b"MSG %s 1 1\r\nx\r\nMSG a 9 1\r\nx\r\n" % replies[0][0])
        await reader.read()

    async def client(wire: Wire, lost: list[WireError]) -> None:
        asked = [wire.ask(b"a", b"%d" % number) for number in range(3)]
        assert [message.data for message in await asyncio.gather(*asked)] == [b"0", b"1", b"2"]
        await asyncio.sleep(0.05)
        assert not lost

    run(serve, client)


def test_an_answer_that_does_not_come_is_lost_and_then_the_server() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greet(reader, writer)
        await reader.read()

    async def client(wire: Wire, lost: list[WireError]) -> None:
        with pytest.raises(LogLost, match="no answer came in time"):
            await wire.ask(b"a", b"")
        assert not wire.is_lost
        # It is asked whether it is there at all.
        while not lost:
            await asyncio.sleep(0.01)
        assert "answers nothing" in str(lost[0])
        assert wire.is_lost
        with pytest.raises(LogLost, match="answers nothing"):
            wire.ask(b"a", b"")

    run(serve, client, answer_seconds=0.2)


def test_a_server_that_answers_others_is_not_lost() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greet(reader, writer)
        while data := await reader.readuntil(b"\r\n"):
            if data == b"PING\r\n":
                writer.write(b"PONG\r\n")

    async def client(wire: Wire, lost: list[WireError]) -> None:
        for _ in range(2):
            with pytest.raises(LogLost):
                await wire.ask(b"a", b"")
        assert not lost

    run(serve, client, answer_seconds=0.8)


def test_two_pings_without_answer_end_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_module, "PING_SECONDS", 0.05)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greet(reader, writer)
        # One is answered.
        await reader.readuntil(b"PING\r\n")
        writer.write(b"PONG\r\n")
        await reader.read()

    async def client(wire: Wire, lost: list[WireError]) -> None:
        while not lost:
            await asyncio.sleep(0.01)
        assert "two pings" in str(lost[0])

    run(serve, client)


def test_pings_of_the_server_are_answered() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greet(reader, writer)
        writer.write(b"PING\r\nPING\r\n")
        assert await reader.readuntil(b"PONG\r\nPONG\r\n")
        words = (await reader.readuntil(b"\r\n")).split()
        writer.write(b"MSG %s 1 0\r\n\r\n" % words[2])
        await reader.read()

    async def client(wire: Wire, lost: list[WireError]) -> None:
        await asyncio.sleep(0.05)
        await wire.ask(b"a", b"")

    run(serve, client)


@pytest.mark.parametrize(
    "said", [b"-ERR 'Stale Connection'\r\n", b"x\r\n", b"MSG a 1 99999999\r\n", b""]
)
def test_all_that_is_asked_ends_with_the_connection(said: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greet(reader, writer)
        await reader.readuntil(b"\r\n")
        writer.write(said)

    async def client(wire: Wire, lost: list[WireError]) -> None:
        asked = [wire.ask(b"a", b"") for _ in range(3)]
        for one in asked:
            with pytest.raises(LogLost):
                await one
        assert len(lost) == 1

    run(serve, client)


def test_what_is_not_allowed_is_denied_and_the_rest_goes_on() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greet(reader, writer)
        denied = (await reader.readuntil(b"\r\n")).split()
        await reader.readuntil(b"\r\n")
        allowed = (await reader.readuntil(b"\r\n")).split()
        writer.write(b"-ERR 'Permissions Violation for Publish to \"%s\"'\r\n" % denied[1])
        writer.write(b"MSG %s 1 0\r\n\r\n" % allowed[2])
        await reader.read()

    async def client(wire: Wire, lost: list[WireError]) -> None:
        denied, allowed = wire.ask(b"a.b", b""), wire.ask(b"a", b"")
        with pytest.raises(DeniedError, match="Permissions Violation"):
            await denied
        await allowed
        assert not lost

    run(serve, client)


def test_each_of_several_answers_has_its_time_and_who_has_enough_takes_no_more() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greet(reader, writer)
        subject = (await reader.readuntil(b"\r\n")).split()[2]
        for number in range(10):
            await asyncio.sleep(0.25)
            writer.write(b"MSG %s 1 1\r\n%d\r\n" % (subject, number))
        await reader.read()

    async def client(wire: Wire, lost: list[WireError]) -> None:
        taken: list[bytes] = []

        def take(message: Message) -> bool:
            taken.append(message.data)
            return len(taken) < 5

        last = await wire.ask(b"a", b"", take=take)
        assert last.data == b"4"
        await asyncio.sleep(0.4)
        assert taken == [b"0", b"1", b"2", b"3", b"4"]

    run(serve, client, answer_seconds=1.0)


def test_no_more_is_kept_for_a_server_that_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_module, "BACKLOG_BYTES_MAX", 1_000_000)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greet(reader, writer)
        await asyncio.sleep(60)

    async def client(wire: Wire, lost: list[WireError]) -> None:
        async def fill() -> None:
            while True:
                wire.publish(b"a", b"x" * 100_000)
                await asyncio.sleep(0)

        with pytest.raises(LogLost, match="does not take"):
            await fill()
        assert not lost

    run(serve, client)


def test_a_subscription_takes_its_messages() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greet(reader, writer)
        words = (await reader.readuntil(b"\r\n")).split()
        assert words[:2] == [b"SUB", b"news"]
        writer.write(b"MSG news %s 1\r\nx\r\n" % words[2])
        await reader.read()

    async def client(wire: Wire, lost: list[WireError]) -> None:
        told: asyncio.Queue[Message] = asyncio.Queue()
        wire.subscribe(b"news", told.put_nowait)
        assert (await told.get()).data == b"x"

    run(serve, client)
