"""Tests the figures of links."""

import asyncio
import socket
from typing import Any

import pytest

from rillnode.transports.meters import Histogram, LinkMeter, Meter


class FakeTransport(asyncio.Transport):
    def __init__(self, raw: Any = None) -> None:
        super().__init__()
        self.raw = raw
        self.closing = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.raw if name == "socket" else default

    def get_write_buffer_size(self) -> int:
        return 17

    def is_closing(self) -> bool:
        return self.closing


def test_meters_add_up() -> None:
    total, one = Meter(), Meter()
    one.messages_in, one.messages_out, one.bytes_in, one.bytes_out = 1, 2, 3, 4
    total.add(one)
    total.add(one)
    found = total.messages_in, total.messages_out, total.bytes_in, total.bytes_out
    assert found == (2, 4, 6, 8)


def test_a_value_is_at_most_its_bound() -> None:
    histogram = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 1.0, 3.0):
        histogram.record(value)
    assert histogram.counts == [2, 2, 1]
    assert histogram.total == pytest.approx(4.65)


def test_a_link_goes_through_its_states() -> None:
    meter, transport = LinkMeter("noise", 5.0, dialled=True), FakeTransport()
    assert meter.state == "handshake"
    assert meter.view("10.0.0.1:1", 6.0).buffered_bytes == 0
    meter.connected(transport, 10.0)
    assert meter.view("10.0.0.1:1", 10.5).peer == ""
    assert meter.opened("noise:00ff", 12.5) == 2.5
    view = meter.view("10.0.0.1:1", 20.0)
    assert (view.state, view.peer, view.direction) == ("open", "noise:00ff", "out")
    assert (view.seconds, view.buffered_bytes, view.round_trip_seconds) == (10.0, 17, None)
    transport.closing = True
    assert meter.view("10.0.0.1:1", 20.0).state == "closing"


@pytest.mark.skipif(not hasattr(socket, "TCP_INFO"), reason="the system tells no round trips")
def test_a_round_trip_is_the_kernels() -> None:
    meter = LinkMeter("noise", 0.0, dialled=False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
        near.sendall(b"ping")
        far.recv(4)
        meter.connected(FakeTransport(near), 0.0)
        found = meter.view("x", 1.0).round_trip_seconds
        assert found is not None
        assert 0 < found < 10
        near.close()
        far.close()
        assert meter.view("x", 1.0).round_trip_seconds is None
