"""The tables of the `streamr` listener."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, ClassVar

from msgspec import Meta, field

from rillnode.codecs.limits import CONNECTIONS_MAX, CONNECTIONS_PER_ADDRESS_MAX
from rillnode.node.config.kinds import Count, HostPort, Name, Seconds
from rillnode.node.config.listener_tables import ApiKeyTable, WebListener
from rillnode.node.config.plug_in_table import PlugInTable
from rillnode.node.config.problem import Problem
from rillnode.node.config.rules import unfit_key_names
from rillnode.node.config.tables import Config


class StreamrListener(
    WebListener, PlugInTable, frozen=True, forbid_unknown_fields=True, kw_only=True
):
    """Streamr's WebSocket and REST interface, for unmodified Streamr clients.

    Off unless the table is present. What clients of other protocols push is sent to Streamr's
    signed by the node's Ethereum key, `ethereum.key` in `data_dir`.

    Attributes:
        connections_max: WebSockets open at one time.
        connections_per_address_max: WebSockets open at one time from one remote address.
        session_seconds: How long a login is good for.
        logins_per_minute: Login requests taken from one remote address; a login has two.
        origins: Origins of web pages that may use the listener, WebSocket and REST interface, from
            within browsers; `*` means all. Programs have no origin and need none.
        verifying_threads: Threads that help to verify signatures of messages that come together; 0:
            none. Where it is not given, one less than the processor's cores, 3 at most.
        apikeys: API keys that clients log in with in place of Ethereum keys.
    """

    table: ClassVar[str] = "streamr"
    plug_in: ClassVar[str] = "streamr"
    tried: ClassVar[bool] = True

    listen: HostPort = "127.0.0.1:8890"
    connections_max: Count = CONNECTIONS_MAX
    connections_per_address_max: Count = CONNECTIONS_PER_ADDRESS_MAX
    session_seconds: Seconds = 86_400.0
    logins_per_minute: Count = 600
    origins: Annotated[
        tuple[Name, ...],
        Meta(title="a list of origins", examples=[["https://app.example.org"]]),
    ] = ()
    verifying_threads: Annotated[Annotated[int, Meta(ge=0, le=64)] | None, Meta(examples=[1])] = (
        None
    )
    apikeys: tuple[ApiKeyTable, ...] = field(name="apikey", default=())

    @classmethod
    def problems(cls, config: Config) -> Iterator[Problem]:
        """What is wrong with the names of API keys."""
        for table in config.each(cls):
            yield from unfit_key_names("streamr", [key.name for key in table.apikeys])


def ethereum_key_file(config: Config) -> Path:
    """The file of the key that signs for Streamr's clients what others have pushed."""
    return config.data_dir / "ethereum.key"
