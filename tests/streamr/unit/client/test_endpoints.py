"""Addresses of Streamr servers."""

import pytest

from rillnode.codecs.errors import ConfigError
from rillnode.node.streamr.client.endpoints import endpoints_of

QUERY = "?controlLayerVersion=2&messageLayerVersion=32&layout=either"


@pytest.mark.parametrize(
    ("url", "websocket", "rest"),
    [
        ("ws://h:8890", "ws://h:8890/api/v1/ws", "http://h:8890/api/v1"),
        ("ws://h:8890/", "ws://h:8890/api/v1/ws", "http://h:8890/api/v1"),
        ("wss://h", "wss://h/api/v1/ws", "https://h/api/v1"),
        ("wss://h/api/v1/ws", "wss://h/api/v1/ws", "https://h/api/v1"),
        ("ws://[::1]:80/x/ws/", "ws://[::1]:80/x/ws/", "http://[::1]:80/x"),
        ("ws://h/other", "ws://h/other", "http://h/other"),
    ],
)
def test_address_of_both_interfaces(url: str, websocket: str, rest: str) -> None:
    found = endpoints_of(url)
    assert (found.websocket, found.rest) == (websocket + QUERY, rest)


def test_rest_interface_may_be_elsewhere() -> None:
    assert endpoints_of("ws://a", "https://b/api/v1/").rest == "https://b/api/v1"


@pytest.mark.parametrize(
    "url", ["", "h:8890", "http://h", "ws://", "ws://h:port", "ws://h:0", "ws://h/?a=b", "ws://h#a"]
)
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        endpoints_of(url)
    assert caught.value.code == "client.url"


def test_rest_interface_is_http() -> None:
    with pytest.raises(ConfigError):
        endpoints_of("ws://a", "ws://b")
