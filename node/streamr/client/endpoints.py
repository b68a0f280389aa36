"""Finds a Streamr server's WebSocket and REST interface."""

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from rillnode.codecs.errors import ConfigError

_PATH: Final = "/api/v1/ws"
_REST: Final = {"ws": "http", "wss": "https"}
_VERSIONS: Final = "controlLayerVersion=2&messageLayerVersion=32&layout=either"
"""The client writes released messages, and reads the specification's as well."""
_WS_AT_END: Final = re.compile("/ws/?$")


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The two addresses of one server; `rest` has no slash at its end."""

    websocket: str
    rest: str


def endpoints_of(url: str, rest_url: str | None = None) -> Endpoints:
    """Take a server's address apart.

    Args:
        url: of the WebSocket: `ws://host:port` or `wss://host:port`, the path where it is not
            `/api/v1/ws`.
        rest_url: of the REST interface, where it is not beside the WebSocket.

    Raises:
        ConfigError: `client.url`.
    """
    parts = urlsplit(url)
    try:
        is_address = parts.scheme in _REST and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or parts.query or parts.fragment:
        text = f"{url!r} is no address of a Streamr server: ws://host:port or wss://host:port"
        raise ConfigError("client.url", text)
    path = parts.path if parts.path not in ("", "/") else _PATH
    websocket = urlunsplit((parts.scheme, parts.netloc, path, _VERSIONS, ""))
    if rest_url is None:
        rest_path = _WS_AT_END.sub("", path)
        rest_url = urlunsplit((_REST[parts.scheme], parts.netloc, rest_path, "", ""))
    elif urlsplit(rest_url).scheme not in _REST.values():
        raise ConfigError("client.url", f"{rest_url!r} is no address of a REST interface")
    return Endpoints(websocket, rest_url.rstrip("/"))
