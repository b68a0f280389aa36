"""Reading TCP addresses out of routes."""

import pytest

from rillnode.node.peers import tcp_address


@pytest.mark.parametrize(
    ("value", "address"),
    [
        (b"127.0.0.1:4000", ("127.0.0.1", 4000)),
        (b"Hub.Example.org:65535", ("hub.example.org", 65_535)),
        (b"::1:4000", ("::1", 4000)),  # the port is behind the last colon, brackets or not
        (b"[::1]:4000", ("::1", 4000)),
        (b"my_host:1", ("my_host", 1)),
    ],
)
def test_host_and_port_are_told_apart(value: bytes, address: tuple[str, int]) -> None:
    assert tcp_address(value) == address


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b":",
        b":4000",
        b"host",
        b"host:",
        b"host:0",
        b"host:65536",
        b"host:-1",
        b"host:4000x",
        b"host:\xd9\xa3",
        b"h\xc3\xb6st:4000",
        b"ho st:4000",
        b"host\x00:4000",
        b"host/:4000",
        b"http://host:4000",
        b"user@host:4000",
        b"x" * 254 + b":4000",
        b"host:" + b"0" * 2_000,
        b":" * 50 + b":4000",
    ],
)
def test_what_cannot_be_dialled_is_no_address(value: bytes) -> None:
    assert tcp_address(value) is None
