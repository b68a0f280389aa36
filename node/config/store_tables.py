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
Served = Annotated[
    str,
    Meta(
        pattern=r"^!?(shard:[0-9]{1,3}(-[0-9]{1,3})?|(?!!|shard:).+)$",
        title='a pattern of streams\' names, "shard:N" or "shard:N-M"; with "!" before it: never',
    ),
]


SHARDS_MAX: Final = 256

CONFIRMS: Final = {
    "always": "a confirm means that a majority of the servers has synced the entry",
    "interval": "entries that were confirmed may be lost if all servers lose power at once",
}
"""What a node on JetStream says of its confirms, by `sync`."""


class StoreTable(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The store of streams, and what a confirm means.

    With `rocksdb` everything is in `data_dir`, and every confirm is synced to its disk. With
    `jetstream` it is in a NATS JetStream cluster that several nodes share, and a confirm means that
    a majority of its servers has synced the entry; `data_dir` has keys, and views that can be made
    again. All other settings are for `jetstream`.

    Attributes:
        engine: The storage engine.
        servers: URLs of NATS servers; the first that answers is used, the others when it is lost.
        prefix: Prefix of the names of all JetStream streams. Nodes with the same prefix have the
            same streams.
        replicas: Servers that keep each log; a majority of them must live. Chosen when the logs are
            made: later `nats stream edit` changes it.
        shards: Logs that streams are spread over. Chosen when the logs are made.
        credentials_file: The node's NATS credentials (`.creds`).
        tls_ca: CA certificates to check the servers with, in place of the system's.
        tls_cert: The node's client certificate.
        tls_key: Its key.
        allow_plain: Allow a `nats://` server that is not on this machine, without TLS.
        monitors: Monitoring addresses of all servers. The node asks there whether they sync every
            write (`sync_interval: always`).
        sync: With `"always"` the node starts only if most `monitors` confirm syncing every write,
            and none denies it; of 3 servers one may be unknown, of 5 two with 5 `replicas`. With
            `"interval"` it starts in any case: confirmed entries may be lost if all servers lose
            power at once.
        serve: Streams that the node always holds, as patterns of names or as shards; with `!`
            before them, those that it never holds. It holds all others while they are used. The
            first entry that matches applies. Clients that ask for what the node never holds are
            sent to nodes that do.
    """

    engine: Annotated[
        str, Meta(title='"rocksdb", "jetstream", or an engine that another plug-in brings')
    ] = "rocksdb"
    servers: tuple[ServerUrl, ...] = ()
    prefix: Annotated[
        str,
        Meta(
            pattern="^[A-Za-z0-9_-]{1,32}$",
            title="1 to 32 letters, digits, hyphens or underscores",
        ),
    ] = "rillnode"
    replicas: Annotated[int, Meta(ge=1, le=5)] = 3
    shards: Annotated[int, Meta(ge=1, le=SHARDS_MAX)] = 16
    credentials_file: Annotated[Path | None, Meta(examples=["nats.creds"])] = None
    tls_ca: Annotated[Path | None, Meta(examples=["tls/ca.pem"])] = None
    tls_cert: Annotated[Path | None, Meta(examples=["tls/cert.pem"])] = None
    tls_key: Annotated[Path | None, Meta(examples=["tls/key.pem"])] = None
    allow_plain: bool = False
    monitors: tuple[MonitorUrl, ...] = ()
    sync: Literal["always", "interval"] = "always"
    serve: Annotated[tuple[Served, ...], Meta(examples=[["sensors*", "!logs*"]])] = ()
