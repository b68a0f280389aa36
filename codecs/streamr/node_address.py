"""Addresses of overlay nodes: what trackers hand out and nodes dial.

    noise://IDENTITY@HOST:PORT          a node: its Ed25519 identity, 64 hexadecimal digits
    noise://IDENTITY@HOST:PORT?storage  one that also keeps streams for others
    noise://IDENTITY@HOST:PORT#URL      one that released nodes find at a WebSocket URL
    ws://HOST:PORT, wss://HOST:PORT     a released node; a path may follow

Who dials one of the first two proves in the handshake whether that identity is there. A node names
itself so in the `source` of what it sends. A released node proves nothing.
"""

import re
from typing import Final, NamedTuple

from rillnode.codecs.errors import CodecError
from rillnode.codecs.streamr.limits import NODE_ADDRESS_CHARS_MAX
from rillnode.codecs.texts import one_text

_ADDRESS: Final = re.compile(
    r"noise://(?P<identity>[0-9a-f]{64})@"
    r"(?P<host>[A-Za-z0-9_.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):(?P<port>[1-9][0-9]{0,4})"
    r"(?P<storage>\?storage)?(?:#(?P<url>.+))?"
)
_URL: Final = re.compile(
    r"wss?://(?:[A-Za-z0-9_.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::(?P<port>[1-9][0-9]{0,4}))?"
    r"(?:/[A-Za-z0-9_.~/-]*)?"
)
_PORT_MAX: Final = 65_535


class NodeAddress(NamedTuple):
    """One node: who it is, and where its `noise` listener is to be dialled.

    Attributes:
        storage: it keeps streams for others.
        url: where released nodes find it; empty where they do not.
    """

    identity: str
    host: str
    port: int
    storage: bool = False
    url: str = ""

    @property
    def name(self) -> str:
        """What it is called in statuses."""
        return self.identity

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        storage, url = "?storage" * self.storage, f"#{self.url}" if self.url else ""
        return f"noise://{self.identity}@{host}:{self.port}{storage}{url}"


def parse_node_address(text: str) -> NodeAddress:
    """Read an address.

    Raises:
        CodecError: `network.address`, it is none of this kind.
    """
    match = _ADDRESS.fullmatch(text) if len(text) <= NODE_ADDRESS_CHARS_MAX else None
    if match is None or int(match["port"]) > _PORT_MAX:
        raise CodecError("network.address", "no address of a node: noise://IDENTITY@HOST:PORT")
    host = match["host"].strip("[]")
    url = parse_url(match["url"]) if match["url"] else ""
    storage = match["storage"] is not None
    # Trackers name the same nodes again and again, and nodes themselves with each frame.
    identity, host = one_text(match["identity"]), one_text(host)
    return NodeAddress(identity, host, int(match["port"]), storage, url)


class ReleasedAddress(NamedTuple):
    """A released node as trackers hand it out.

    Attributes:
        url: of its WebSocket.
        dialled: whether this node is to dial it: released trackers may tell only one end of a link,
            trackers of this kind tell both, and the released end dials.
    """

    url: str
    dialled: bool = False

    @property
    def identity(self) -> str:
        """What tells it from others, before it has said its id."""
        return self.url

    def __str__(self) -> str:
        return self.url


AnyAddress = NodeAddress | ReleasedAddress


def parse_url(text: str) -> str:
    """Check the WebSocket URL of a released node or tracker.

    Raises:
        CodecError: `network.address`, it is none.
    """
    match = _URL.fullmatch(text) if len(text) <= NODE_ADDRESS_CHARS_MAX else None
    if match is None or int(match["port"] or 0) > _PORT_MAX:
        raise CodecError("network.address", "no address of a released node: ws://HOST:PORT")
    return text


class ReleasedPeer(NamedTuple):
    """A released peer's claim of who it is; nothing of it is proved.

    Attributes:
        name: its id.
        url: where it listens.
        generation: the newest release that speaks as it does, such as `22`.
        tracker: it is one.
        storage: it keeps streams for others.
    """

    name: str
    url: str
    generation: str
    tracker: bool = False
    storage: bool = False

    @property
    def principal(self) -> str:
        """What grants name it by."""
        return f"streamr:{self.name}"
