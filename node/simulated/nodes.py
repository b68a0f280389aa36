"""Configures simulated nodes."""

from pathlib import Path
from typing import Final, TypeVar

import msgspec

from rillnode.actors.core.access import VERBS, Verb
from rillnode.node.config import (
    Config,
    GrantTable,
    HttpListener,
    NoiseListener,
    PeerTable,
    StreamTable,
)
from rillnode.node.config.file_type import table_type
from rillnode.node.config.listener_tables import WebListener

Web = TypeVar("Web", bound=WebListener)

NOISE_PORT: Final = 4_100
NEXTGRAPH_PORT: Final = 1_440
OCKAM_PORT: Final = 4_000
STREAMR_PORT: Final = 8_890

CHANNEL_IDLE_SECONDS: Final = 30.0
"""After which, or up to twice as long, an idle secure channel ends."""

SHARED_STREAM: Final = "events"
"""The stream of nodes that all have the same."""

READ_ONLY_STREAM: Final = "read-only"
CLOSED_STREAM: Final = "closed"
"""Streams of nodes that clients examine: which they may read, and which they may not know of."""

MADE_PREFIX: Final = "made-"
"""Begins the names of streams that Streamr's clients make."""

KEPT_PREFIX: Final = "kept-"
KEPT_ENTRIES: Final = 5
KEPT_BYTES: Final = 50
KEPT_SECONDS: Final = 10.0
"""What such nodes keep of streams that are named so, and for what limits them."""


def node_config(name: str, *grants: GrantTable) -> Config:
    """A node with its `noise` listener only, and with the services that clients call.

    Without grants, everybody with a key may do all.
    """
    return Config(
        name=name,
        data_dir=Path(name),
        noise=NoiseListener(listen=f"{name}:{NOISE_PORT}"),
        http=HttpListener(enabled=False),
        grants=grants or (GrantTable(who="noise:*", streams="*", addresses="*", may=VERBS),),
        tables=[table_type("services")()],
    )


def examined_config(name: str) -> Config:
    """A node at which something is granted, and something not."""
    may_read: tuple[Verb, ...] = ("pull", "subscribe")
    grants = (
        GrantTable(who="noise:*", streams="events*", may=VERBS),
        GrantTable(who="noise:*", streams="own-*", may=VERBS),
        GrantTable(who="noise:*", streams=f"{KEPT_PREFIX}*", may=VERBS),
        GrantTable(who="noise:*", streams=READ_ONLY_STREAM, may=may_read),
    )
    streams = (
        StreamTable(name=READ_ONLY_STREAM),
        StreamTable(name=CLOSED_STREAM),
        StreamTable(name=f"{KEPT_PREFIX}entries-*", retain_entries_max=KEPT_ENTRIES),
        StreamTable(name=f"{KEPT_PREFIX}bytes-*", retain_bytes_max=KEPT_BYTES),
        StreamTable(name=f"{KEPT_PREFIX}seconds-*", retain_seconds=KEPT_SECONDS),
    )
    return msgspec.structs.replace(node_config(name, *grants), streams=streams)


def moved_config(name: str, config: Config) -> Config:
    """A configuration whose listeners are moved to a simulated host.

    Those of WebSockets keep their ports, without TLS, which the simulated network does not carry;
    `http` is there if its table says anything.
    """
    own = node_config(name)
    return msgspec.structs.replace(
        config,
        noise=msgspec.structs.replace(config.noise, listen=own.noise.listen),
        http=own.http if config.http == HttpListener() else _moved(name, config.http),
        tables=[
            _moved(name, one) if isinstance(one, WebListener) else one for one in config.tables
        ],
    )


def _moved(name: str, table: Web) -> Web:
    listen = f"{name}:{table.address[1]}"
    return msgspec.structs.replace(
        table, listen=listen, tls_cert=None, tls_key=None, allow_plain=True
    )


def replace_peers(config: Config, peers: tuple[PeerTable, ...]) -> Config:
    """A configuration with other peers."""
    return msgspec.structs.replace(config, peers=peers)
