"""Addresses of overlay nodes, and the choice of a tracker."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rillnode.codecs.errors import CodecError
from rillnode.codecs.streamr.node_address import NodeAddress, parse_node_address
from rillnode.codecs.streamr.tracker_choice import tracker_index

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


@pytest.mark.parametrize(
    "text",
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
    ],
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


@pytest.mark.parametrize(
    ("key", "number"),
    [("stream-1::0", 1), ("stream-1::1", 2), ("stream-2::0", 4), ("sandbox/test::5", 2)],
)
def test_the_tracker_is_the_one_that_released_nodes_choose(key: str, number: int) -> None:
    """As streamr-client-protocol 8.0.5 chooses among four, numbered from 1."""
    assert tracker_index(key, 4) == number - 1
