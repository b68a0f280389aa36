"""The table of `node.toml` that says where streams are kept."""

from pathlib import Path
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

ServerUrl = Annotated[
    str,
    Meta(
        pattern=r"^(nats|tls)://[^\s/]+$",
        title='"nats://host:port" or "tls://host:port"',
        examples=["tls://nats-1.example.org:4222"],
    ),
]
MonitorUrl = Annotated[
    str,
    Meta(
        pattern=r"^https?://[^\s/]+/?$",
        title='"http://host:port" or "https://host:port"',
        examples=["http://nats-1.example.org:8222"],
    ),
]


CONFIRMS: Final = {
    "always": "a confirm means that a majority of the servers has synced the entry",
    "interval": "entries that were confirmed may be lost if all servers lose power at once",
}
"""What a node on JetStream says of its confirms, by `sync`."""


class StoreTable(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where streams are kept, and what a confirm means.

    With `rocksdb` everything lies in `data_dir`, and every confirm is synced to its disk. With
    `jetstream` it lies in a NATS JetStream cluster, which several nodes share: a confirm means that
    a majority of its servers has synced the entry; in `data_dir` lie keys, and views of what the
    cluster has, which can be had again. All other settings of this table are for `jetstream`.

    Attributes:
        engine: The storage engine.
        servers: URLs of NATS servers; the first that answers is used, the others when it is lost.
        prefix: What the names of all JetStream streams of this node begin with. Nodes that have
            the same prefix have the same streams.
        replicas: Servers that keep each log; it lives on while a majority of them does. It is
            chosen when the logs are made: afterwards `nats stream edit` changes it.
        shards: Logs that streams are spread over. It is chosen when the logs are made: afterwards
            what is there counts.
        credentials_file: The node's NATS credentials (`.creds`).
        tls_ca: Certificates that the servers' are checked with, instead of the system's.
        tls_cert: Certificate that the node shows the servers.
        tls_key: Its key.
        allow_plain: Whether a `nats://` server that is not on this machine may be talked to without
            TLS.
        monitors: Monitoring addresses of all servers. The node asks there whether they sync every
            write (`sync_interval: always`).
        sync: With `"always"` the node starts only if a majority of the servers is known by their
            `monitors` to sync every write, and none says otherwise; servers that are not known must
            be too few to confirm an entry alone (with 3 `replicas` one, with 5 two). With
            `"interval"` it starts in any case: entries that were confirmed may be lost if all
            servers lose power at once.
    """

    engine: Literal["rocksdb", "jetstream"] = "rocksdb"
    servers: tuple[ServerUrl, ...] = ()
    prefix: Annotated[
        str,
        Meta(
            pattern="^[A-Za-z0-9_-]{1,32}$",
            title="1 to 32 letters, digits, hyphens or underscores",
        ),
    ] = "rillnode"
    replicas: Annotated[int, Meta(ge=1, le=5)] = 3
    shards: Annotated[int, Meta(ge=1, le=256)] = 16
    credentials_file: Annotated[Path | None, Meta(examples=["nats.creds"])] = None
    tls_ca: Annotated[Path | None, Meta(examples=["tls/ca.pem"])] = None
    tls_cert: Annotated[Path | None, Meta(examples=["tls/cert.pem"])] = None
    tls_key: Annotated[Path | None, Meta(examples=["tls/key.pem"])] = None
    allow_plain: bool = False
    monitors: tuple[MonitorUrl, ...] = ()
    sync: Literal["always", "interval"] = "always"
