"""The names of the hub's services, for who configures them: without the actors that serve them."""

from typing import Final, Literal, get_args

ServiceName = Literal[
    "echo",
    "uppercase",
    "forwarding",
    "static_forwarding",
    "pub_sub",
    "tracing",
    "discovery",
    "stream_subscribe",
]
SERVICE_NAMES: Final[tuple[ServiceName, ...]] = get_args(ServiceName)
