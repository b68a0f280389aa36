"""Configures simulated nodes."""

from pathlib import Path
from typing import Final

import msgspec

from rillnode.actors.core.access import VERBS, Verb
from rillnode.node.config import (
    Config,
    GrantTable,
    HttpListener,
    NoiseListener,
    StreamTable,
)
from rillnode.node.config.file_type import table_type

NOISE_PORT: Final = 4_100

SHARED_STREAM: Final = "events"
"""The stream of nodes that all have the same."""

READ_ONLY_STREAM: Final = "read-only"
CLOSED_STREAM: Final = "closed"
"""Streams of nodes that clients examine: which they may read, and which they may not know of."""

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
