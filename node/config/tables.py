"""The tables of `node.toml` as structs: keys, units, defaults and allowed values.

A key's description is its line under "Attributes"; the reference page, the comments of a new
`node.toml` and the JSON schema are made from these, so there is one place to write them.

The structs can be built in Python as well (`Config(name="a", data_dir=Path("data"))`); what their
types cannot say is checked by `rillnode.node.config.check_config`.
"""

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from rillnode.actors.access import VERBS, Grant, Verb
from rillnode.actors.storage import Retention
from rillnode.codecs.limits import (
    CONNECTIONS_MAX,
    CONNECTIONS_PER_ADDRESS_MAX,
    HANDSHAKE_SECONDS_MAX,
    IDLE_CLOSE_SECONDS,
    IDLE_PING_SECONDS,
    PARTITIONS_MAX,
)
from rillnode.node.config.address import ListenAddress, parse_address

# A title is what an error says the value must be; examples stand in a new `node.toml` for keys
# that have no default.
Name = Annotated[str, Meta(min_length=1, title="a text that is not empty")]
HostPort = Annotated[
    str,
    Meta(
        pattern=r"^(\[[0-9A-Fa-f:.]+\]|[^\s:\[\]/]+):[0-9]{1,5}$",
        title='"host:port", port 0 to 65535 ("[::1]:4100" for IPv6)',
    ),
]
KeyHex = Annotated[
    str, Meta(pattern=r"^[0-9a-f]{64}$", title="64 hexadecimal digits in lower case")
]
Memory = Annotated[
    str, Meta(pattern=r"^[1-9][0-9]*[mg]$", title='a number and "m" or "g", such as "1g"')
]
Seconds = Annotated[float, Meta(gt=0)]
SecondsOrNever = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]
Partitions = Annotated[int, Meta(ge=1, le=PARTITIONS_MAX)]
Layer = Literal["codecs", "transports", "actors", "node"]
Level = Literal["debug", "info", "warning", "error"]


def default_data_dir() -> Path:
    """Where a node keeps its data when nothing else is said."""
    return Path("data")


class Listener(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What every listener has.

    Attributes:
        enabled: Whether the node listens.
        listen: Address and port; port 0 takes a free one.
    """

    enabled: bool = True
    listen: HostPort = "127.0.0.1:0"

    @property
    def address(self) -> ListenAddress:
        """The address to bind, taken apart."""
        return parse_address(self.listen)


class LinkListener(Listener, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What every listener for links has.

    Attributes:
        connections_max: Connections open at one time.
        connections_per_address_max: Connections open at one time from one remote address.
    """

    connections_max: Count = CONNECTIONS_MAX
    connections_per_address_max: Count = CONNECTIONS_PER_ADDRESS_MAX


class NoiseListener(LinkListener, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """rillnode's own encrypted link: for its clients, its Spark jobs and other nodes.

    Only identities that a grant names may connect.

    Attributes:
        handshake_seconds_max: Time a new connection has to prove its identity.
        idle_ping_seconds: After this time without sending, the node sends a ping.
        idle_close_seconds: After this time without receiving, the node closes the connection.
    """

    listen: HostPort = "127.0.0.1:4100"
    handshake_seconds_max: Seconds = HANDSHAKE_SECONDS_MAX
    idle_ping_seconds: Seconds = IDLE_PING_SECONDS
    idle_close_seconds: Seconds = IDLE_CLOSE_SECONDS


class OckamListener(LinkListener, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Ockam TCP, for unmodified Ockam nodes. Off unless the table is present.

    Attributes:
        strict: Refuse messages with trailing bytes, as the 2022 reader does.
        allow_plain: Allow an address other than loopback, although messages travel in clear.
        idle_close_seconds: After this time without receiving, the node closes; 0 means never.
    """

    listen: HostPort = "127.0.0.1:4000"
    strict: bool = False
    allow_plain: bool = False
    idle_close_seconds: SecondsOrNever = 0.0


class WebListener(Listener, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What every listener that speaks HTTP or WebSocket has.

    Attributes:
        tls_cert: PEM file with the certificate chain; with `tls_key` it turns TLS on.
        tls_key: PEM file with the certificate's private key.
        allow_plain: Allow an address other than loopback without TLS.
    """

    tls_cert: Annotated[Path | None, Meta(examples=["tls/cert.pem"])] = None
    tls_key: Annotated[Path | None, Meta(examples=["tls/key.pem"])] = None
    allow_plain: bool = False


class StreamrListener(WebListener, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Streamr's WebSocket and REST interface, for unmodified Streamr clients.

    Off unless the table is present.
    """

    listen: HostPort = "127.0.0.1:8890"


class NextgraphListener(WebListener, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """NextGraph's WebSocket with its Noise XK, for unmodified NextGraph clients.

    Off unless the table is present.

    Attributes:
        registration: Who may register: nobody, who holds an invitation, or everybody.
    """

    listen: HostPort = "127.0.0.1:1440"
    registration: Literal["closed", "invitation", "open"] = "invitation"


class HttpListener(WebListener, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Health (`/livez`, `/readyz`) and state (`/v1/status`), for whoever reaches the address."""

    listen: HostPort = "127.0.0.1:8080"


class IdentityTable(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Keys, each in a file of its own with mode 0600.

    Attributes:
        key_file: The node's Ed25519 seed in hexadecimal. Default: `identity.key` in `data_dir`.
        admin_key_file: The key that command-line verbs use with `-c`. Default: `admin.key` in
            `data_dir`.
    """

    key_file: Annotated[Path | None, Meta(examples=["data/identity.key"])] = None
    admin_key_file: Annotated[Path | None, Meta(examples=["data/admin.key"])] = None


class StoreTable(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where streams are kept. Every confirm is synced to disk; there is no option to weaken it.

    Attributes:
        engine: The storage engine.
    """

    engine: Literal["rocksdb"] = "rocksdb"


class LogTable(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the node writes to standard error.

    Attributes:
        level: Least severe level written.
        format: `console` for people, `json` for one JSON object per line; `auto` is `console` on
            a terminal and `json` elsewhere.
        levels: Other levels for single layers, such as `{ transports = "debug" }`.
    """

    level: Level = "info"
    format: Literal["auto", "console", "json"] = "auto"
    levels: dict[Layer, Level] = {}


class GrantTable(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Lets someone do something with streams. Nothing is allowed that no grant names.

    Attributes:
        who: A principal: `noise:` or `ockam:` and 64 hexadecimal digits, `eth:0x` and 40,
            `nextgraph:` and 64, `apikey:` and a name, or `anonymous`. `noise:*` stands for all of
            one kind, `*` for everybody.
        streams: A pattern of stream names: `*` stands for any characters, `?` for one.
        may: What is allowed; `admin` includes all others.
    """

    who: Annotated[Name, Meta(examples=["noise:" + "00" * 32])]
    streams: Annotated[Name, Meta(examples=["sensors*"])]
    may: Annotated[
        tuple[Verb, ...],
        Meta(
            min_length=1,
            title=f"a list of at least one of {', '.join(VERBS)}",
            examples=[["create", "push", "pull", "subscribe"]],
        ),
    ]

    def grant(self) -> Grant:
        """The grant as access control takes it."""
        return Grant(who=self.who, streams=self.streams, may=frozenset(self.may))


class StreamTable(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A stream that the node creates at its start, and how long it keeps entries.

    The tightest limit wins; without one, entries are kept for ever.

    Attributes:
        name: The stream's name.
        partitions: Number of ordered logs that the stream consists of.
        retain_seconds: Entries older than this are dropped.
        retain_entries_max: Entries kept in each partition.
        retain_bytes_max: Bytes of data kept in each partition.
    """

    name: Annotated[Name, Meta(examples=["sensors"])]
    partitions: Partitions = 1
    retain_seconds: Annotated[Seconds | None, Meta(examples=[604_800.0])] = None
    retain_entries_max: Annotated[Count | None, Meta(examples=[100_000_000])] = None
    retain_bytes_max: Annotated[Count | None, Meta(examples=[10_000_000_000])] = None

    @property
    def retention(self) -> Retention:
        """The limits as the store takes them."""
        return Retention(
            seconds=self.retain_seconds,
            entries_max=self.retain_entries_max,
            bytes_max=self.retain_bytes_max,
        )


class PeerTable(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Another node to link with.

    Attributes:
        name: What this node calls it.
        noise: Address and port of its `noise` listener.
        identity: Its public Ed25519 key.
    """

    name: Annotated[Name, Meta(examples=["core"])]
    noise: Annotated[HostPort, Meta(examples=["core.example.org:4100"])]
    identity: Annotated[KeyHex, Meta(examples=["00" * 32])]


class SparkSink(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A Spark job that writes streams into a Delta table, exactly once.

    Attributes:
        name: The sink's name; the job's principal is `sink/<name>`.
        streams: Patterns of stream names, as in a grant.
        table_dir: Directory of the table.
        checkpoint_dir: Directory of the query's checkpoint. Default: `_checkpoints/<name>` in
            `table_dir`.
        master: Spark's master URL.
        driver_memory: Heap of the job's Java virtual machine.
        trigger_seconds: Time between two micro-batches.
        batch_rows_max: Rows of one micro-batch.
        hold_bytes_max: Bytes that trimming keeps back for the sink; beyond, entries are trimmed
            and a gap row is recorded.
        key_file: Key of the job on a cluster. Default: a short-lived key that the node makes.
    """

    name: Annotated[Name, Meta(examples=["bronze"])]
    streams: Annotated[
        tuple[Name, ...],
        Meta(min_length=1, title="a list of at least one pattern", examples=[["sensors*"]]),
    ]
    table_dir: Annotated[Path, Meta(examples=["data/tables"])]
    checkpoint_dir: Annotated[Path | None, Meta(examples=["data/checkpoints/bronze"])] = None
    master: Name = "local[2]"
    driver_memory: Memory = "1g"
    trigger_seconds: Seconds = 5.0
    batch_rows_max: Count = 100_000
    hold_bytes_max: Count = 5_000_000_000
    key_file: Annotated[Path | None, Meta(examples=["data/bronze.key"])] = None

    @property
    def checkpoint_path(self) -> Path:
        """Where the query's checkpoint lies."""
        return self.checkpoint_dir or self.table_dir / "_checkpoints" / self.name


class SinkTables(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Sinks, by kind.

    Attributes:
        spark: Spark sinks.
    """

    spark: tuple[SparkSink, ...] = ()


class Config(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A node's whole configuration.

    Attributes:
        name: What people call the node; it appears in logs and on the status page.
        data_dir: Directory of everything that the node keeps.
    """

    name: Annotated[Name, Meta(examples=["edge-1"])]
    data_dir: Path = field(default_factory=default_data_dir)
    identity: IdentityTable = IdentityTable()
    store: StoreTable = StoreTable()
    log: LogTable = LogTable()
    noise: NoiseListener = NoiseListener()
    ockam: OckamListener | None = None
    streamr: StreamrListener | None = None
    nextgraph: NextgraphListener | None = None
    http: HttpListener = HttpListener()
    grants: tuple[GrantTable, ...] = field(name="grant", default=())
    streams: tuple[StreamTable, ...] = field(name="stream", default=())
    peers: tuple[PeerTable, ...] = field(name="peer", default=())
    sink: SinkTables = SinkTables()

    @property
    def key_file(self) -> Path:
        """The file of the node's identity."""
        return self.identity.key_file or self.data_dir / "identity.key"

    @property
    def admin_key_file(self) -> Path:
        """The file of the key that may do everything."""
        return self.identity.admin_key_file or self.data_dir / "admin.key"

    @property
    def store_dir(self) -> Path:
        """The store's directory."""
        return self.data_dir / "store"

    def listeners(self) -> dict[str, Listener]:
        """The listeners that are on, by name."""
        tables: dict[str, Listener | None] = {
            "noise": self.noise,
            "ockam": self.ockam,
            "streamr": self.streamr,
            "nextgraph": self.nextgraph,
            "http": self.http,
        }
        return {name: table for name, table in tables.items() if table and table.enabled}
