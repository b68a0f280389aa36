"""A TCP link between a fake socket and a clock moved by hand."""

import asyncio
import logging
from typing import cast

import pytest

from link_support import CLIENT, NODE, ManualClock, noise_pair
from rillnode.codecs.errors import HandshakeError, TransportError
from rillnode.codecs.framing import LinkCodec
from rillnode.codecs.noise.link import NoiseLink
from rillnode.codecs.routing.dialects import EitherDialect
from rillnode.codecs.routing.framing import U16Framing, U32Framing
from rillnode.node.testing.contract.links import Recorder
from rillnode.transports.groups import LinkGroup
from rillnode.transports.links import LinkLimits
from rillnode.transports.tcp_link import TcpLink, address_text

LIMITS = LinkLimits(
    handshake_seconds=10,
    idle_ping_seconds=15,
    idle_close_seconds=60,
    drain_seconds=30,
    close_seconds=5,
    buffer_high_bytes=100,
    buffer_bytes_max=1_000,
    unfinished_bytes_max=300,
    connections_max=3,
    connections_per_address_max=2,
)


class FakeTransport(asyncio.Transport):
    """A socket that takes bytes only when told."""

    def __init__(self, host: str = "192.0.2.1") -> None:
        super().__init__({"peername": (host, 5000)})
        self.written: list[bytes] = []
        self.waiting = 0
        self.reading = True
        self.closed = self.aborted = False
        self.high = self.low = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if data:
            self.written.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high, self.low = high or 0, low or 0

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True

    def is_closing(self) -> bool:
        return self.closed or self.aborted


class Bench:
    def __init__(self, codec: LinkCodec | None = None) -> None:
        self.clock = ManualClock()
        self.group = LinkGroup(transport="ockam", clock=self.clock, limits=LIMITS)
        self.events = Recorder()
        self.link, self.transport = self.add(codec)

    def add(
        self, codec: LinkCodec | None = None, host: str = "192.0.2.1"
    ) -> tuple[TcpLink, FakeTransport]:
        link = TcpLink(self.group, codec or U16Framing(), lambda: self.events)
        transport = FakeTransport(host)
        link.connection_made(transport)
        return link, transport


class Chatty(U16Framing):
    """Frames whose peers may be pinged."""

    __slots__ = ()

    def ping(self) -> bytes:
        return b"\0\0"


class Resting(U16Framing):
    """Frames that count how often they rest."""

    __slots__ = ("rests",)

    def __init__(self) -> None:
        super().__init__()
        self.rests = 0

    def rest(self) -> None:
        self.rests += 1


def test_a_plain_link_is_open_once_connected() -> None:
    bench = Bench()
    assert bench.events.calls == ["opened"]
    assert bench.link.info.remote == "192.0.2.1:5000"
    assert (bench.transport.high, bench.transport.low) == (100, 50)


def test_a_batch_is_one_write() -> None:
    bench = Bench()
    bench.link.send([b"a", b"b"])
    bench.link.send([])
    assert bench.transport.written == [b"\0\x01a\0\x01b"]


def test_a_silent_handshake_is_cut_and_never_reaches_the_user() -> None:
    bench = Bench(NoiseLink.responder(NODE, accept=lambda _: True))
    bench.clock.advance(9.0)
    assert not bench.transport.aborted
    bench.clock.advance(3.0)
    assert bench.transport.aborted
    bench.link.connection_lost(None)
    assert bench.events.calls == []
    assert bench.group.counters == {"link.handshake_timeout": 1}
    assert len(bench.group) == 0


def test_a_drip_of_bytes_does_not_prolong_the_handshake() -> None:
    bench = Bench(NoiseLink.responder(NODE, accept=lambda _: True))
    for byte in b"rillnode\x01\x00\x00\x20\x00":
        bench.link.data_received(bytes([byte]))
        bench.clock.advance(1.0)
    assert bench.transport.aborted


def test_a_lone_greeting_is_answered_after_a_pause() -> None:
    bench = Bench(EitherDialect())
    bench.clock.advance(3.0)
    bench.link.data_received(b"\x01")
    bench.clock.advance(0.09)
    assert bench.transport.written == []
    bench.clock.advance(0.02)
    assert bench.transport.written == [b"\x01"]
    assert bench.events.calls == []
    bench.link.data_received(bytes.fromhex("00000005 848080"))
    bench.link.data_received(bytes.fromhex("40f6"))
    assert bench.events.calls == ["opened", "messages"]
    assert bench.link.info.wire_format == "cbor"
    assert bench.transport.written == [b"\x01"]
    assert bench.clock.timers == 1  # the group's


def test_bytes_put_off_what_silence_would_bring() -> None:
    bench = Bench(EitherDialect())
    bench.clock.advance(4.9)
    bench.link.data_received(b"\x01")
    bench.clock.advance(0.05)
    bench.link.data_received(b"\x04")  # a u16 frame of 260 bytes
    bench.clock.advance(1.0)
    assert bench.transport.written == []
    assert bench.link.info.wire_format == "bare"
    bench.link.data_received(bytes(260))
    assert bench.events.messages == [bytes(260)]


def test_a_peer_that_only_greets_is_held_as_one_that_says_nothing_is() -> None:
    for head, wire_format, written in ((b"\x01", "cbor", [b"\x01"]), (b"", "bare", list[bytes]())):
        bench = Bench(EitherDialect())
        bench.link.data_received(head)
        bench.clock.advance(6.0)
        assert bench.events.calls == ["opened"]
        assert bench.link.info.wire_format == wire_format
        assert bench.transport.written == written
        assert not bench.transport.aborted


def test_a_first_frame_that_stalls_before_its_dialect_is_known_is_cut() -> None:
    bench = Bench(EitherDialect())
    for byte in bytes.fromhex("010001010084"):
        bench.link.data_received(bytes([byte]))
        bench.clock.advance(0.01)
    bench.clock.advance(9.0)
    assert not bench.transport.aborted
    bench.clock.advance(3.0)
    assert bench.transport.aborted
    assert bench.group.counters == {"link.handshake_timeout": 1}
    bench.link.connection_lost(None)
    assert bench.events.calls == []


def test_a_peer_that_does_not_greet_back_in_time_is_given_up() -> None:
    bench = Bench(U32Framing())
    assert bench.transport.written == [b"\x01"]
    bench.clock.advance(4.9)
    assert not bench.transport.aborted
    bench.clock.advance(0.2)
    assert bench.transport.aborted
    assert bench.group.counters == {"ockam.no_greeting": 1}


def test_a_link_that_is_closing_or_gone_waits_for_no_one() -> None:
    bench = Bench(EitherDialect())
    bench.link.data_received(b"\x01")
    bench.link.close("stopping")
    bench.clock.advance(1.0)
    assert bench.transport.written == []
    other, transport = bench.add(EitherDialect())
    other.data_received(b"\x01")
    other.connection_lost(ConnectionResetError())
    bench.clock.advance(1.0)
    assert transport.written == []
    assert bench.group.counters == {"link.broken": 1}


def test_a_peer_that_leaves_without_a_word_is_no_failure() -> None:
    bench = Bench(EitherDialect())
    bench.link.eof_received()
    bench.link.connection_lost(None)
    assert bench.events.calls == []
    assert not bench.group.counters


def test_an_idle_link_is_pinged_and_a_silent_peer_is_closed() -> None:
    bench = Bench(Chatty())
    bench.clock.advance(14.0)
    assert bench.transport.written == []
    bench.clock.advance(3.0)
    assert bench.transport.written == [b"\0\0"]
    bench.clock.advance(40.0)
    assert bench.transport.written == [b"\0\0"] * 3
    assert not bench.transport.aborted
    bench.clock.advance(6.0)
    assert bench.transport.aborted
    bench.link.connection_lost(None)
    assert bench.events.reason is not None
    assert "silent" in bench.events.reason
    assert bench.group.counters == {"link.idle": 1}


def test_sending_puts_off_the_ping_and_receiving_the_close() -> None:
    bench = Bench(Chatty())
    for _ in range(20):
        bench.clock.advance(10.0)
        bench.link.send([b"a"])
        bench.link.data_received(b"\0\0")
    assert bench.transport.written == [b"\0\x01a"] * 20
    assert not bench.transport.aborted


def test_a_codec_rests_while_its_link_is_quiet() -> None:
    codec = Resting()
    bench = Bench(codec)
    for _ in range(20):
        bench.link.send([b"a"])
        bench.clock.advance(1.0)
        bench.link.data_received(b"\0\x01a")
        bench.clock.advance(1.0)
    assert codec.rests == 0
    bench.clock.advance(3.0)
    assert codec.rests >= 1


def test_a_peer_whose_bytes_we_do_not_read_is_not_silent() -> None:
    bench = Bench(Chatty())
    bench.link.pause_reading()
    assert not bench.transport.reading
    bench.clock.advance(300.0)
    assert not bench.transport.aborted
    bench.link.resume_reading()
    assert bench.transport.reading
    bench.clock.advance(58.0)
    assert not bench.transport.aborted
    bench.clock.advance(5.0)
    assert bench.transport.aborted


def test_a_message_that_never_ends_ends_the_link() -> None:
    bench = Bench()
    bench.link.data_received(b"\x40\x00")  # 16 KiB, of which some come now and then
    for _ in range(10):
        bench.clock.advance(8.0)
        bench.link.data_received(bytes(8))
    assert bench.transport.aborted
    assert bench.group.counters == {"link.unfinished": 1}


def test_a_message_that_begins_after_a_long_quiet_has_its_whole_time() -> None:
    bench = Bench(EitherDialect())
    bench.link.data_received(b"\0\x01a")
    for _ in range(3):
        bench.clock.advance(57.0)  # and the link would be closed three seconds later
        bench.link.data_received(b"\0\x03a")
        bench.clock.advance(50.0)
        assert not bench.transport.aborted
        bench.link.data_received(b"bc")
    bench.link.data_received(b"\0\x03a")
    bench.clock.advance(62.0)
    assert bench.transport.aborted


def test_messages_that_are_never_cut_where_a_read_ends_are_no_harm() -> None:
    bench = Bench()
    bench.link.data_received(b"\0\x02a")
    for _ in range(20):
        bench.clock.advance(8.0)
        bench.link.data_received(b"b\0\x02a")
    assert not bench.transport.aborted


def test_a_message_that_we_do_not_read_on_may_take_its_time() -> None:
    bench = Bench()
    bench.link.data_received(b"\0\x02a")
    bench.link.pause_reading()
    bench.clock.advance(200.0)
    bench.link.resume_reading()
    bench.clock.advance(50.0)
    assert not bench.transport.aborted


async def test_a_dial_fails_as_one_whatever_is_wrong_with_the_bytes() -> None:
    settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    group = LinkGroup(transport="noise", clock=ManualClock(), limits=LIMITS)
    link = TcpLink(group, NoiseLink.initiator(CLIENT), Recorder, settled)
    transport = FakeTransport()
    link.connection_made(transport)
    responder = NoiseLink.responder(NODE, accept=lambda _: True)
    responder.receive(b"".join(transport.written))
    link.data_received(responder.take_output())
    link.data_received(b"\0\x11" + bytes(17))  # where the node's verdict should be
    link.connection_lost(None)
    with pytest.raises(TransportError) as found:
        await settled
    assert found.value.code == "noise.record"
    assert found.value.retryable


def test_a_reader_has_the_drain_time_to_get_below_the_mark() -> None:
    bench = Bench()
    bench.link.pause_writing()
    bench.clock.advance(25.0)
    bench.link.resume_writing()
    assert bench.events.calls == ["opened", "drained"]
    bench.clock.advance(10.0)
    assert not bench.transport.aborted
    slow = Bench()
    slow.link.pause_writing()
    slow.clock.advance(32.0)
    assert slow.transport.aborted
    assert slow.group.counters == {"link.not_drained": 1}


def test_too_many_waiting_bytes_end_the_link_at_once() -> None:
    bench = Bench()
    bench.transport.waiting = 1_001
    bench.link.pause_writing()  # as transports do as soon as so much waits
    bench.link.send([b"a"])
    assert bench.transport.aborted
    assert bench.events.calls == ["opened"]
    bench.link.send([b"b"])
    assert len(bench.transport.written) == 1


def test_a_close_is_cut_short_after_its_time() -> None:
    bench = Bench()
    bench.link.close("done")
    assert bench.transport.closed
    bench.clock.advance(4.0)
    assert not bench.transport.aborted
    bench.clock.advance(3.0)
    assert bench.transport.aborted
    bench.link.resume_writing()
    bench.link.connection_lost(None)
    assert bench.events.calls == ["opened", "closed"]
    assert bench.events.reason == "done"
    assert not bench.group.counters


def test_wrong_bytes_end_their_own_link_only(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    codec, _ = noise_pair()
    events = Recorder()
    broken = TcpLink(bench.group, codec, lambda: events)
    transport = FakeTransport()
    broken.connection_made(transport)
    with caplog.at_level(logging.INFO, "rillnode.transports.links"):
        broken.data_received(b"\0\x20" + b"secret payload of 32 bytes......")
    assert transport.aborted
    assert bench.group.counters == {"noise.record": 1}
    (record,) = [one for one in caplog.records if one.name == "rillnode.transports.links"]
    assert (record.levelname, record.msg) == ("INFO", "link_failed")
    assert record.__dict__["code"] == "noise.record"
    assert record.__dict__["remote"] == "192.0.2.1:5000"
    assert "secret" not in str(record.__dict__)
    broken.connection_lost(None)
    assert events.calls == ["opened", "closed"]
    bench.link.data_received(b"\0\x01a")
    assert bench.events.messages == [b"a"]


def test_an_end_inside_a_message_is_counted_and_a_clean_one_is_not() -> None:
    bench = Bench()
    bench.link.data_received(b"\0\x05ab")
    bench.link.eof_received()
    assert bench.group.counters == {"codec.truncated": 1}
    other, transport = bench.add()
    other.eof_received()
    assert transport.closed
    other.connection_lost(None)
    assert bench.events.reason == "closed by the peer"
    assert bench.group.counters == {"codec.truncated": 1}


def test_links_are_limited_in_all_and_per_address() -> None:
    bench = Bench()
    _, second = bench.add()
    _, third = bench.add()
    assert third.aborted
    _, elsewhere = bench.add(host="192.0.2.2")
    _, fifth = bench.add(host="192.0.2.3")
    assert fifth.aborted
    assert [second.aborted, elsewhere.aborted] == [False, False]
    assert len(bench.group) == 3
    assert bench.group.counters == {"link.too_many_from_address": 1, "link.too_many": 1}
    bench.link.connection_lost(None)
    _, again = bench.add()
    assert not again.aborted


def test_who_is_longest_in_the_handshake_makes_room() -> None:
    bench = Bench()  # open, and so nobody's to take
    waiting = [
        bench.add(NoiseLink.responder(NODE, accept=lambda _: True), f"192.0.2.{number}")
        for number in (2, 3)
    ]
    codec, peer = NoiseLink.responder(NODE, accept=lambda _: True), NoiseLink.initiator(CLIENT)
    good, transport = bench.add(codec, "192.0.2.4")
    assert [one.closed for _, one in waiting] == [True, False]
    good.data_received(peer.start())
    peer.receive(b"".join(transport.written))
    good.data_received(peer.take_output())
    assert bench.events.calls == ["opened", "opened"]
    _, next_one = bench.add(host="192.0.2.5")
    _, last = bench.add(host="192.0.2.6")
    assert [one.closed for _, one in waiting] == [True, True]
    assert (next_one.aborted, last.aborted, transport.aborted) == (False, True, False)
    assert bench.group.counters == {"link.crowded_out": 2, "link.too_many": 1}
    for link, _ in waiting:
        link.connection_lost(None)
    assert len(bench.group) == 3
    assert bench.events.calls == ["opened"] * 3


def test_messages_that_never_end_are_bounded_in_all_the_first_begun_goes() -> None:
    bench = Bench()
    first, second = bench.link, bench.add()[0]
    third, last = bench.add(host="192.0.2.2")
    second.data_received(b"\x01\0" + bytes(100))
    first.data_received(b"\x01\0" + bytes(90))
    first.data_received(bytes(166) + b"\x01\0" + bytes(88))  # the next one was begun later
    third.data_received(b"\0\x01a" * 1_000)  # whole ones count for nothing
    assert bench.group.counters == {}
    third.data_received(b"\x01\0" + bytes(108))
    assert bench.group.counters == {"link.unfinished_crowd": 1}
    second.connection_lost(None)
    first.data_received(bytes(101))
    assert bench.group.counters == {"link.unfinished_crowd": 2}
    assert bench.transport.closed
    assert not last.closed


def test_a_refused_link_takes_no_one_s_place() -> None:
    bench = Bench()
    bench.add()
    refused, _ = bench.add()
    refused.connection_lost(None)
    assert len(bench.group) == 2
    _, still = bench.add()
    assert still.aborted


def test_a_broken_connection_says_why() -> None:
    bench = Bench()
    bench.link.connection_lost(ConnectionResetError("reset by peer"))
    assert bench.events.reason == "the connection broke: reset by peer"


def test_a_user_that_closes_in_its_first_event_gets_no_messages() -> None:
    codec, peer = noise_pair()
    data = peer.encode([b"early"])

    class Closer(Recorder):
        def link_opened(self, link: object) -> None:
            super().link_opened(cast(TcpLink, link))
            self.open_link.close("no, thanks")

    bench = Bench()
    events = Closer()
    link = TcpLink(bench.group, codec, lambda: events)
    link.connection_made(FakeTransport())
    link.data_received(data)
    assert events.calls == ["opened"]


def test_addresses_are_written_as_people_write_them() -> None:
    assert address_text("127.0.0.1", 80) == "127.0.0.1:80"
    assert address_text("::1", 80) == "[::1]:80"


def test_a_connection_that_breaks_in_its_handshake_is_counted_only() -> None:
    bench = Bench(NoiseLink.responder(NODE, accept=lambda _: True))
    bench.link.connection_lost(ConnectionResetError())
    assert bench.events.calls == []
    assert bench.group.counters == {"link.broken": 1}


def test_a_refusal_is_still_written_before_the_link_closes() -> None:
    bench = Bench(responder := NoiseLink.responder(NODE, accept=lambda _: False))
    near = NoiseLink.initiator(CLIENT)
    bench.link.data_received(near.start())
    near.receive(bench.transport.written.pop())
    bench.link.data_received(near.take_output())
    assert bench.transport.closed
    assert not bench.transport.aborted
    assert not responder.established
    with pytest.raises(HandshakeError) as told:
        near.receive(bench.transport.written.pop())
    assert told.value.code == "noise.unknown_identity"


def test_what_arrives_while_closing_is_dropped() -> None:
    bench = Bench()
    bench.link.close("done")
    bench.link.data_received(b"\0\x01a")
    bench.link.eof_received()
    assert bench.events.messages == []


def test_a_peer_that_is_gone_already_has_no_address() -> None:
    bench = Bench()
    link = TcpLink(bench.group, U16Framing(), lambda: bench.events)
    link.connection_made(Nameless())
    assert link.remote == "unknown"


class Nameless(FakeTransport):
    def get_extra_info(self, name: str, default: object = None) -> object:
        return default
