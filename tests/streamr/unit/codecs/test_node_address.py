"""Addresses of overlay nodes."""

import pytest
from hypothesis import given, strategies as st

from each_row import each_row
from rillnode.codecs.errors import CodecError
from rillnode.codecs.streamr.node_address import NodeAddress, parse_node_address

IDENTITY = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (f"noise://{IDENTITY}@h.example:4100", NodeAddress(IDENTITY, "h.example", 4100)),
        (f"noise://{IDENTITY}@[::1]:1?storage", NodeAddress(IDENTITY, "::1", 1, True)),
    ],
)
def test_addresses_are_read_and_written(text: str, address: NodeAddress) -> None:
    assert parse_node_address(text) == address
    assert str(address) == text


@each_row(
    [
        "",
        "ws://h:1",
        f"noise://{IDENTITY}@h",
        f"noise://{IDENTITY}@h:0",
        f"noise://{IDENTITY}@h:65536",
        f"noise://{IDENTITY.upper()}@h:1",
        f"noise://{IDENTITY}@h:1?other",
        f"noise://{IDENTITY}@h:1\n",
        f"noise://{IDENTITY}@{'h' * 500}:1",
    ]
)
def test_others_are_refused(text: str) -> None:
    with pytest.raises(CodecError):
        parse_node_address(text)


@given(st.text(max_size=100))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        address = parse_node_address(text)
    except CodecError:
        return
    assert str(address) == text
