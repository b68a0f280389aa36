"""The tables of the `streamr` listener."""

from pathlib import Path
from typing import Annotated, ClassVar

from msgspec import Meta

from rillnode.codecs.limits import CONNECTIONS_MAX, CONNECTIONS_PER_ADDRESS_MAX
from rillnode.node.config.keyed_listener import KeyedListener
from rillnode.node.config.kinds import Count, HostPort, Seconds
from rillnode.node.config.tables import Config


class StreamrListener(KeyedListener, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Streamr's WebSocket and REST interface, for unmodified Streamr clients.

    Off unless the table is present. What clients of other protocols push is sent to Streamr's
    signed by the node's Ethereum key, `ethereum.key` in `data_dir`.

    Attributes:
        connections_max: WebSockets open at one time.
        connections_per_address_max: WebSockets open at one time from one remote address.
        session_seconds: How long a login is good for.
        logins_per_minute: Login requests taken from one remote address; a login has two.
        verifying_threads: Threads that help to verify signatures of messages that come together; 0:
            none. Where it is not given, one less than the processor's cores, 3 at most.
    """

    table: ClassVar[str] = "streamr"
    plug_in: ClassVar[str] = "streamr"
    tried: ClassVar[bool] = True

    listen: HostPort = "127.0.0.1:8890"
    connections_max: Count = CONNECTIONS_MAX
    connections_per_address_max: Count = CONNECTIONS_PER_ADDRESS_MAX
    session_seconds: Seconds = 86_400.0
    logins_per_minute: Count = 600
    verifying_threads: Annotated[Annotated[int, Meta(ge=0, le=64)] | None, Meta(examples=[1])] = (
        None
    )


def ethereum_key_file(config: Config) -> Path:
    """The file of the key that signs for Streamr's clients what others have pushed."""
    return config.data_dir / "ethereum.key"
