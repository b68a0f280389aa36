"""The table of the `gateway` listener."""

from collections.abc import Iterator
from typing import Annotated, ClassVar

from msgspec import Meta, field

from rillnode.node.config.kinds import Count, HostPort, Name, Seconds
from rillnode.node.config.listener_tables import ApiKeyTable, WebListener
from rillnode.node.config.plug_in_table import PlugInTable
from rillnode.node.config.problem import Problem
from rillnode.node.config.rules import unfit_key_names
from rillnode.node.config.tables import Config


class GatewayListener(
    WebListener, PlugInTable, frozen=True, forbid_unknown_fields=True, kw_only=True
):
    """Streams over HTTP, for anything that can send a request.

    Off unless the table is present. Clients without a key are `anonymous`, and may do what a grant
    lets that principal do.

    Attributes:
        tails_max: Tails (streams of server-sent events) open at one time.
        body_bytes_max: Largest body of a request.
        ticket_seconds: How long a ticket is valid; while a tail uses it, it is renewed.
        origins: Origins of web pages that may use the listener from within browsers; `*` means
            all. Programs have no origin and need none.
        apikeys: API keys that clients send as bearer tokens.
    """

    table: ClassVar[str] = "gateway"
    plug_in: ClassVar[str] = "gateway"
    tried: ClassVar[bool] = True

    listen: HostPort = "127.0.0.1:8891"
    tails_max: Count = 1_000
    body_bytes_max: Count = 16_777_216
    ticket_seconds: Seconds = 300.0
    origins: Annotated[
        tuple[Name, ...],
        Meta(title="a list of origins", examples=[["https://app.example.org"]]),
    ] = ()
    apikeys: tuple[ApiKeyTable, ...] = field(name="apikey", default=())

    @classmethod
    def problems(cls, config: Config) -> Iterator[Problem]:
        """What is wrong with the names of API keys."""
        for table in config.each(cls):
            yield from unfit_key_names("gateway", [key.name for key in table.apikeys])
