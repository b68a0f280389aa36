"""Links over real sockets: hostile and slow peers, refusals, churn."""

import asyncio
import socket
import tracemalloc
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import cast

import pytest

from link_support import CLIENT, NODE, SUITES, noise_pair
from rillnode.codecs.errors import HandshakeError, TransportError
from rillnode.codecs.framing import LinkCodec
from rillnode.codecs.keys import Identity
from rillnode.codecs.noise.cipher import Suite
from rillnode.codecs.noise.link import NoiseLink
from rillnode.codecs.routing.framing import U16Framing
from rillnode.node.testing.contract.base import until
from rillnode.node.testing.contract.links import Recorder
from rillnode.transports.clock import SystemClock
from rillnode.transports.links import LinkLimits
from rillnode.transports.tcp import TcpListener, dial, listen
from rillnode.transports.tcp_link import TcpLink

LIMITS = LinkLimits(sweep_seconds=0.04, handshake_seconds=5.0)
QUICK = LinkLimits(sweep_seconds=0.04, handshake_seconds=0.2)


class Echo(Recorder):
    """Sends back what it gets and stops reading while its peer does not drain."""

    def messages_received(self, messages: list[bytes]) -> None:
        self.open_link.send(messages)
        if self.open_link.buffered_bytes > LIMITS.buffer_high_bytes:
            self.open_link.pause_reading()

    def link_drained(self) -> None:
        super().link_drained()
        self.open_link.resume_reading()


class Node:
    """A listener and the events of its links."""

    def __init__(self, listener: TcpListener, links: list[Recorder]) -> None:
        self.listener = listener
        self.links = links

    async def dial(
        self, codec: LinkCodec | None = None, limits: LinkLimits = LIMITS
    ) -> tuple[TcpLink, Recorder]:
        events = Recorder()
        link = await dial(
            "127.0.0.1",
            self.listener.port,
            codec=codec or NoiseLink.initiator(CLIENT, node_identity=NODE.public_hex),
            events=events,
            transport_name="noise",
            clock=clock(),
            limits=limits,
        )
        return link, events

    async def raw(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.listener.port)


def clock() -> SystemClock:
    return SystemClock(asyncio.get_running_loop())


def accept_all() -> LinkCodec:
    return NoiseLink.responder(NODE, accept=lambda _: True)


@asynccontextmanager
async def node(
    codec_factory: Callable[[], LinkCodec] = accept_all,
    limits: LinkLimits = LIMITS,
    make_events: Callable[[], Recorder] = Recorder,
) -> AsyncGenerator[Node, None]:
    links = list[Recorder]()

    def events() -> Recorder:
        links.append(make_events())
        return links[-1]

    listener = await listen(
        "127.0.0.1",
        0,
        codec_factory=codec_factory,
        events_factory=events,
        transport_name="noise",
        clock=clock(),
        limits=limits,
    )
    try:
        yield Node(listener, links)
    finally:
        await listener.close()
        assert listener.link_count == 0


async def test_a_listener_says_where_it_is_bound() -> None:
    async with node() as far:
        assert far.listener.host == "127.0.0.1"
        assert far.listener.port != 0
        assert far.listener.address == f"127.0.0.1:{far.listener.port}"


async def test_links_do_not_wait_to_fill_segments() -> None:
    async with node() as far:
        link, _ = await far.dial()
        sock = cast(socket.socket, link._transport.get_extra_info("socket"))  # pyright: ignore[reportPrivateUsage]
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        link.close("done")


async def test_an_unknown_identity_is_refused_and_told_what_to_do() -> None:
    def known_only() -> LinkCodec:
        return NoiseLink.responder(NODE, accept=lambda who: who == CLIENT.public_hex)

    stranger = Identity.from_seed(bytes(32))
    async with node(known_only) as far:
        with pytest.raises(HandshakeError) as caught:
            await far.dial(NoiseLink.initiator(stranger))
        assert caught.value.code == "noise.unknown_identity"
        assert f"noise:{stranger.public_hex}" in caught.value.text
        assert far.listener.counters == {"noise.unknown_identity": 1}
        assert far.links == []
        link, _ = await far.dial(NoiseLink.initiator(CLIENT))
        link.close("done")


async def test_a_node_that_is_not_the_expected_one_is_refused() -> None:
    async with node() as far:
        other = Identity.from_seed(bytes(32)).public_hex
        with pytest.raises(HandshakeError) as caught:
            await far.dial(NoiseLink.initiator(CLIENT, node_identity=other))
        assert caught.value.code == "noise.wrong_node"
        await until(lambda: far.listener.link_count == 0)
        assert far.links == []


@pytest.mark.parametrize(
    "first",
    [b"", b"rillnode", b"rillnode\x01\x00\x00\x20" + bytes(31)],
    ids=["nothing", "half a preamble", "half a message"],
)
async def test_a_handshake_that_stalls_is_cut(first: bytes) -> None:
    async with node(limits=QUICK) as far:
        reader, writer = await far.raw()
        writer.write(first)
        assert await asyncio.wait_for(reader.read(), 60.0) == b""
        await until(lambda: far.listener.link_count == 0)
        assert far.listener.counters == {"link.handshake_timeout": 1}
        writer.close()


async def test_a_dialled_peer_that_never_answers_is_given_up() -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    with pytest.raises(TransportError) as caught:
        await dial_port(server.sockets[0].getsockname()[1], limits=QUICK)
    assert caught.value.retryable
    assert caught.value.code == "link.handshake_timeout"
    server.close()


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (b"", "link.closed_early"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "noise.frame"),
        (b"\x00\xc0" + bytes(192), "noise.handshake"),
    ],
    ids=["closes", "another protocol", "garbage"],
)
async def test_a_dialled_peer_that_is_no_node_is_told_apart(answer: bytes, code: str) -> None:
    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(44)
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(reply, "127.0.0.1", 0)
    with pytest.raises(TransportError) as caught:
        await dial_port(server.sockets[0].getsockname()[1])
    assert caught.value.code == code
    assert caught.value.retryable == (code == "link.closed_early")
    server.close()


@pytest.mark.parametrize(
    ("garbage", "code"),
    [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "noise.preamble"),
        (bytes(300_000), "noise.preamble"),
        (b"rillnode\x01\x00" + b"\xff" * 70_000, "noise.frame"),
        (b"rillnode\x01\x00\x00\x20" + bytes(32), "noise.handshake"),
    ],
)
async def test_garbage_ends_its_own_link_only(garbage: bytes, code: str) -> None:
    async with node() as far:
        link, events = await far.dial()
        reader, writer = await far.raw()
        writer.write(garbage)
        await until(lambda: far.listener.counters)
        assert far.listener.counters == {code: 1}
        writer.close()
        link.send([b"still here"])
        await until(lambda: far.links[0].messages)
        assert events.reason is None
        link.close("done")
        assert reader is not None


async def test_a_slow_drip_of_bytes_arrives_whole() -> None:
    async with node(U16Framing) as far:
        _, writer = await far.raw()
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in U16Framing().encode([b"slow", b"drip"]):
            writer.write(bytes([byte]))
            await asyncio.sleep(0.001)
        await until(lambda: far.links[0].messages == [b"slow", b"drip"])
        writer.close()


def test_a_reader_that_does_not_drain_is_closed_with_bounded_memory() -> None:
    limits = LinkLimits(
        sweep_seconds=0.04, drain_seconds=0.3, buffer_high_bytes=200_000, buffer_bytes_max=4_000_000
    )

    async def main() -> int:
        async with node(limits=limits) as far:
            link, events = await far.dial()
            link.pause_reading()
            await until(lambda: far.links)
            sender = far.links[0].open_link
            batch = [bytes(1_000)] * 60
            tracemalloc.start()
            while far.links[0].reason is None:
                if sender.buffered_bytes < 1_000_000:
                    sender.send(batch)
                await asyncio.sleep(0)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert far.listener.counters == {"link.not_drained": 1}
            assert far.listener.link_count == 0
            link.resume_reading()
            await until(lambda: events.reason)
            return peak

    assert asyncio.run(main()) < 12_000_000


async def test_an_echo_holds_back_a_peer_that_sends_but_does_not_read() -> None:
    async with node(make_events=Echo) as far:
        link, events = await far.dial()
        link.pause_reading()
        sent = [bytes([number % 256]) * 50_000 for number in range(600)]
        for message in sent:
            link.send([message])
        await asyncio.sleep(0.1)
        assert far.links[0].open_link.buffered_bytes < 3_000_000
        link.resume_reading()
        await until(lambda: len(events.messages) == len(sent))
        assert events.messages == sent
        link.close("done")


@pytest.mark.parametrize("suite", SUITES)
async def test_links_rekey_under_load(suite: Suite) -> None:
    def far_codec() -> LinkCodec:
        return NoiseLink.responder(NODE, accept=lambda _: True, rekey_records=5)

    async with node(far_codec, make_events=Echo) as far:
        codec = NoiseLink.initiator(CLIENT, suite=suite, rekey_records=5)
        link, events = await far.dial(codec)
        sent = [number.to_bytes(4) * 300 for number in range(4_000)]
        for at in range(0, len(sent), 100):
            link.send(sent[at : at + 100])
            if at % 1_000 == 0:
                await asyncio.sleep(0)
        await until(lambda: len(events.messages) == len(sent))
        assert events.messages == sent
        link.close("done")


async def test_two_hundred_links_come_and_go() -> None:
    async with node(make_events=Echo) as far:

        async def visit(number: int) -> None:
            link, events = await far.dial()
            link.send([b"%d" % number])
            await until(lambda: events.messages)
            assert events.messages == [b"%d" % number]
            if number % 3:
                link.close("done")
                await until(lambda: events.reason)

        for start in range(0, 200, 20):
            await asyncio.gather(*(visit(number) for number in range(start, start + 20)))
        await until(lambda: far.listener.link_count == 67)
        assert len(far.links) == 200
        assert not far.listener.counters
        await far.listener.close()
        assert far.listener.link_count == 0
        await until(lambda: all(events.reason for events in far.links))


async def test_idle_links_are_kept_by_pings_and_dead_ones_are_closed() -> None:
    limits = LinkLimits(sweep_seconds=0.04, idle_ping_seconds=0.2, idle_close_seconds=2.0)
    async with node(limits=limits) as far:
        _, events = await far.dial(limits=limits)
        mute = LinkLimits(sweep_seconds=0.04, idle_ping_seconds=None, idle_close_seconds=None)
        _, mute_events = await far.dial(limits=mute)
        await until(lambda: mute_events.reason)
        assert events.reason is None
        assert far.listener.counters == {"link.idle": 1}


async def test_connections_are_limited() -> None:
    limits = LinkLimits(sweep_seconds=0.04, connections_max=2)
    async with node(limits=limits) as far:
        first, _ = await far.dial()
        await far.dial()
        with pytest.raises(TransportError) as caught:
            await far.dial()
        assert caught.value.retryable
        assert far.listener.counters == {"link.too_many": 1}
        first.close("done")
        await until(lambda: far.listener.link_count == 1)
        await far.dial()


async def test_a_stopped_listener_takes_no_more_but_keeps_what_it_has() -> None:
    async with node() as far:
        link, _ = await far.dial()
        far.listener.stop_accepting()
        with pytest.raises(TransportError) as caught:
            await far.dial()
        assert caught.value.code == "link.refused"
        link.send([b"still here"])
        await until(lambda: far.links[0].messages)


async def test_closing_a_listener_sends_what_is_buffered_first() -> None:
    async with node() as far:
        _, events = await far.dial()
        await until(lambda: far.links)
        far.links[0].open_link.send([bytes(100_000)] * 50)
        await far.listener.close("stopping for a test")
        await until(lambda: events.reason)
        assert len(events.messages) == 50
        assert far.links[0].reason == "stopping for a test"


async def dial_port(
    port: int,
    *,
    host: str = "127.0.0.1",
    limits: LinkLimits = LIMITS,
    connect_seconds: float = 60.0,
) -> TcpLink:
    return await dial(
        host,
        port,
        codec=NoiseLink.initiator(CLIENT),
        events=Recorder(),
        transport_name="noise",
        clock=clock(),
        limits=limits,
        connect_seconds=connect_seconds,
    )


async def test_what_cannot_be_reached_says_what_to_do() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        with pytest.raises(TransportError) as caught:
            await dial_port(port)
    assert caught.value.code == "link.refused"
    assert f"127.0.0.1:{port}" in caught.value.text
    assert caught.value.retryable
    with pytest.raises(TransportError) as caught:
        await dial_port(1, host="no-such-host.invalid", connect_seconds=0.3)
    assert caught.value.code in ("link.name", "link.connect_timeout")


async def test_a_host_that_drops_packets_is_given_up() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        with pytest.raises(TransportError) as caught:
            await dial_port(full.getsockname()[1], connect_seconds=0.3)
        for filler in fillers:
            filler.close()
    assert caught.value.code == "link.connect_timeout"


async def test_dialling_can_be_given_up() -> None:
    closed = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        closed.set()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    dialling = asyncio.create_task(dial_port(server.sockets[0].getsockname()[1]))
    await asyncio.sleep(0.05)
    dialling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await dialling
    await asyncio.wait_for(closed.wait(), 60.0)
    server.close()


async def test_an_address_that_cannot_be_bound_says_what_to_do() -> None:
    async def bind(host: str, port: int) -> None:
        listener = await listen(
            host,
            port,
            codec_factory=U16Framing,
            events_factory=Recorder,
            transport_name="ockam",
            clock=clock(),
        )
        await listener.close()

    async with node() as far:
        with pytest.raises(TransportError) as caught:
            await bind("127.0.0.1", far.listener.port)
        assert caught.value.code == "listen.in_use"
        assert far.listener.address in caught.value.text
    with pytest.raises(TransportError) as caught:
        await bind("192.0.2.1", 0)
    assert caught.value.code == "listen.name"


async def test_a_tampered_link_is_closed_and_delivers_nothing_more() -> None:
    near, far_codec = noise_pair()
    async with node(lambda: far_codec) as far:
        _, writer = await far.raw()
        writer.write(near.encode([b"good"]))
        await until(lambda: far.links and far.links[0].messages)
        record = bytearray(near.encode([b"tampered"]))
        record[-1] ^= 1
        writer.write(bytes(record) + near.encode([b"after"]))
        await until(lambda: far.links[0].reason)
        assert far.links[0].messages == [b"good"]
        assert far.listener.counters == {"noise.record": 1}
        writer.close()
