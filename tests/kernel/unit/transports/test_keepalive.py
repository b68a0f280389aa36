"""Probing silent peers: what the system is told."""

import socket
import sys
from asyncio.trsock import TransportSocket

import pytest

from rillnode.transports.keepalive import keep_alive


def test_a_silent_peer_is_probed_after_the_given_time() -> None:
    with socket.socket() as link:
        keep_alive(TransportSocket(link), 60)
        assert link.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        if sys.platform == "linux":
            assert link.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
            assert link.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 120_000


def test_options_that_the_system_does_not_know_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT"):
        monkeypatch.delattr(socket, name, raising=False)
    with socket.socket() as link:
        keep_alive(TransportSocket(link), 60)
        assert link.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
