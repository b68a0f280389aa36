"""Makes a client from an address and a key."""

import ssl
from pathlib import Path

from rillnode.codecs.errors import ConfigError
from rillnode.codecs.streamr.ethereum import EthereumKey
from rillnode.node.streamr.client.client import Client
from rillnode.node.streamr.client.endpoints import endpoints_of
from rillnode.node.streamr.client.publisher import OnRefused


async def connect(
    url: str,
    *,
    private_key: str | EthereumKey | None = None,
    api_key: str | None = None,
    key_file: str | Path | None = None,
    on_refused: OnRefused | None = None,
    verify: bool = True,
    reconnect: bool = True,
    rest_url: str | None = None,
    tls: ssl.SSLContext | None = None,
) -> Client:
    """Connect to a Streamr server: `ws://host:port` is a rillnode's `streamr` listener.

    Args:
        url: of the WebSocket; the path where it is not `/api/v1/ws`.
        private_key: an Ethereum key, 64 hexadecimal digits: logs in by challenge, signs what is
            published.
        api_key: logs in; messages are not signed then. Without both the client is anonymous.
        key_file: keeps group keys, own and learned ones, for the next time; made with mode 0600.
        on_refused: called with each published message that the server does not accept.
        verify: drop messages that their publisher has not signed, or that are not a publisher's.
        reconnect: make new connections with backoff when one is lost.
        rest_url: of the REST interface, where it is not beside the WebSocket.
        tls: how servers are verified; None: by the system's authorities.

    Raises:
        TransportError: the server is not reached.
        HandshakeError: it speaks something else.
        RequestError: it refuses the key; the code is the server's.
        ConfigError: an address or a key cannot be used.
    """
    if private_key is not None and api_key is not None:
        raise ConfigError("client.key", "a client has either `private_key` or `api_key`")
    if isinstance(private_key, str):
        private_key = EthereumKey.from_hex(private_key)
    client = Client(
        endpoints_of(url, rest_url),
        key=private_key,
        api_key=api_key,
        key_file=None if key_file is None else Path(key_file),
        on_refused=on_refused,
        verify=verify,
        reconnect=reconnect,
        tls=tls,
    )
    try:
        await client.open()
    except BaseException:
        await client.close()
        raise
    return client
