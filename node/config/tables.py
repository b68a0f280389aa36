"""The tables of `node.toml` as structs: keys, units, defaults and allowed values.

A key's description is its line under "Attributes"; the reference page, the comments of a new
`node.toml` and the JSON schema are made from these, so there is one place to write them.

The structs can be built in Python as well (`Config(name="a", data_dir=Path("data"))`); what their
types cannot say is checked by `rillnode.node.config.check_config`.
"""

from functools import lru_cache
from pathlib import Path
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from rillnode.actors.core.access import GRANT_VERBS, Grant, GrantVerb
from rillnode.codecs.limits import (
    CHANNEL_IDLE_SECONDS,
    CHANNELS_MAX,
    CHANNELS_PER_CONNECTION_MAX,
    CONNECTIONS_MAX,
    CONNECTIONS_PER_ADDRESS_MAX,
    HANDSHAKE_SECONDS_MAX,
    IDLE_CLOSE_SECONDS,
    IDLE_PING_SECONDS,
)
from rillnode.node.config.kinds import (
    Count,
    HostPort,
    KeyHex,
    Layer,
    Level,
    Name,
    OnFatal,
    Seconds,
    SecondsOrNever,
    Traced,
)
from rillnode.node.config.listener_tables import LinkListener, Listener, WebListener
from rillnode.node.config.peer_tables import DiallingTable, PeerTable
from rillnode.node.config.store_tables import StoreTable
from rillnode.node.config.stream_tables import QuotaTable, StreamTable
from rillnode.node.ockam.config import ServicesTable
from rillnode.node.overlay.config import OverlayTable, StreamrNetworkListener, TrackerTable
from rillnode.node.spark.config import SinkTables
from rillnode.node.streamr.config import ApiKeyTable
from rillnode.node.telemetry.config import TelemetryTable


def default_data_dir() -> Path:
    """Where a node keeps its data when nothing else is said."""
    return Path("data")


class NoiseListener(LinkListener, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """rillnode's own encrypted link: for its clients, its Spark jobs and other nodes.

    Only identities that a grant names may connect.

    Attributes:
        public: Where clients reach this listener, if not at the address that it is bound to: nodes
            on one shared log send clients to each other (`store.serve`).
        handshake_seconds_max: Time a new connection has to prove its identity.
        idle_ping_seconds: After this time without sending, the node sends a ping.
        idle_close_seconds: After this time without receiving, the node closes the connection.
    """

    listen: HostPort = "127.0.0.1:4100"
    public: Annotated[HostPort | None, Meta(examples=["edge-1.example.org:4100"])] = None
    handshake_seconds_max: Seconds = HANDSHAKE_SECONDS_MAX
    idle_ping_seconds: Seconds = IDLE_PING_SECONDS
    idle_close_seconds: Seconds = IDLE_CLOSE_SECONDS


class ChannelTable(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Secure channels that peers open to this node, over any route; it is `SC_listener` to them.

    What comes out of a channel is its key's: grants name it `ockam:` and 64 hexadecimal digits.

    Attributes:
        enabled: Whether peers may open secure channels.
        key_file: The node's X25519 key for channels, in hexadecimal. Default: `ockam.key` in
            `data_dir`.
        allow: Public X25519 keys that may open a channel; empty means every key may.
        handshake_seconds_max: Time a peer has to finish the handshake.
        idle_seconds: A channel without a message for this time, or up to twice as long, is closed.
        channels_max: Channels open at one time.
        channels_per_connection_max: Channels open at one time over one connection.
    """

    enabled: bool = True
    key_file: Annotated[Path | None, Meta(examples=["data/ockam.key"])] = None
    allow: Annotated[
        tuple[KeyHex, ...], Meta(title="a list of keys, 64 hexadecimal digits each")
    ] = ()
    handshake_seconds_max: Seconds = HANDSHAKE_SECONDS_MAX
    idle_seconds: Seconds = CHANNEL_IDLE_SECONDS
    channels_max: Count = CHANNELS_MAX
    channels_per_connection_max: Count = CHANNELS_PER_CONNECTION_MAX


class OckamListener(LinkListener, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Ockam TCP, for unmodified Ockam nodes. Off unless the table is present.

    Attributes:
        strict: Refuse what only nodes of 2021 took in u16 frames: other versions, bytes after the
            message, padded numbers.
        allow_plain: Allow an address other than loopback, although messages travel in clear.
        idle_close_seconds: After this time without receiving, the node closes; 0 means never.
    """

    listen: HostPort = "127.0.0.1:4000"
    strict: bool = False
    allow_plain: bool = False
    idle_close_seconds: SecondsOrNever = 0.0
    channel: ChannelTable = ChannelTable()


class StreamrListener(WebListener, frozen=True, forbid_unknown_fields=True, kw_only=True):
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
        apikeys: API keys.
    """

    listen: HostPort = "127.0.0.1:8890"
    connections_max: Count = CONNECTIONS_MAX
    connections_per_address_max: Count = CONNECTIONS_PER_ADDRESS_MAX
    session_seconds: Seconds = 86_400.0
    logins_per_minute: Count = 600
    origins: Annotated[
        tuple[Name, ...],
        Meta(title="a list of origins", examples=[["https://app.example.org"]]),
    ] = ()
    apikeys: tuple[ApiKeyTable, ...] = field(name="apikey", default=())


class NextgraphListener(WebListener, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """NextGraph's WebSocket with its Noise XK, for unmodified NextGraph clients.

    Off unless the table is present.

    Attributes:
        connections_max: WebSockets open at one time.
        connections_per_address_max: WebSockets open at one time from one remote address.
        registration: Who may register: nobody, holders of an invitation, or everybody.
        public_name: Name, and port unless it is 443, under which clients reach the node over TLS,
            also through a proxy on this machine.
        origins: Origins of web pages that may connect, beside those of the node's own name.
        discoverable: Tell the broker's id to clients that probe for brokers.
    """

    listen: HostPort = "127.0.0.1:1440"
    connections_max: Count = CONNECTIONS_MAX
    connections_per_address_max: Count = CONNECTIONS_PER_ADDRESS_MAX
    registration: Literal["closed", "invitation", "open"] = "invitation"
    public_name: Annotated[Name | None, Meta(examples=["broker.example.org"])] = None
    origins: Annotated[
        tuple[Name, ...],
        Meta(title="a list of origins", examples=[["https://app.example.org"]]),
    ] = ()
    discoverable: bool = False


class HttpListener(WebListener, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Status page, its figures as JSON (`/v1`), health and metrics.

    Stream contents are served on loopback, or to clients that send the token.

    Attributes:
        token_file: File with the token for entries, their live tail, the configuration and the
            route probe; `rillnode key new` makes one. Without it they are shown on loopback only.
    """

    listen: HostPort = "127.0.0.1:8080"
    token_file: Annotated[Path | None, Meta(examples=["data/http.token"])] = None


class IdentityTable(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Keys, each in a file of its own with mode 0600.

    Attributes:
        key_file: The node's Ed25519 seed in hexadecimal. Default: `identity.key` in `data_dir`.
        admin_key_file: The key that command-line verbs use with `-c`. Default: `admin.key` in
            `data_dir`.
    """

    key_file: Annotated[Path | None, Meta(examples=["data/identity.key"])] = None
    admin_key_file: Annotated[Path | None, Meta(examples=["data/admin.key"])] = None


class LogTable(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The log on standard error.

    Attributes:
        level: Least severe level written.
        format: `console` for people, `json` for one JSON object per line; `auto` is `console` on
            a terminal and `json` elsewhere.
        levels: Other levels for single layers, such as `{ transports = "debug" }`.
        trace: Protocols of which each message's kind and size are written.
    """

    level: Level = "info"
    format: Literal["auto", "console", "json"] = "auto"
    levels: dict[Layer, Level] = {}
    trace: tuple[Traced, ...] = ()


class MetricsTable(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The series at `/metrics` of the `http` listener.

    Attributes:
        streams_max: Streams, and consumers' saved positions, that have time series of their own;
            the first by name.
    """

    streams_max: Count = 200


_VERBS_KEPT: Final = 256
"""Sets of verbs that grants share: there are 127, each in several orders."""


class GrantTable(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Lets a principal use streams, or addresses of an application.

    Nothing is allowed that no grant names.

    Attributes:
        who: A principal: `noise:` or `ockam:` and 64 hexadecimal digits, `eth:0x` and 40,
            `nextgraph:` and 64, `apikey:` and a name, `streamr:` and the id of a released Streamr
            node, which proves nothing, or `anonymous`. `noise:*` stands for all of one kind, `*`
            for everybody.
        streams: A pattern of stream names: `*` stands for any characters, `?` for one.
        addresses: A pattern of addresses that actors of the application have, or clients serve.
        may: What is allowed: `create`, `push`, `pull` and `subscribe` for streams, `send` and
            `serve` for addresses; `admin` includes all others.
    """

    who: Annotated[Name, Meta(examples=["noise:" + "00" * 32])]
    streams: Annotated[Name | None, Meta(examples=["sensors*"])] = None
    addresses: Annotated[Name | None, Meta(examples=["greeter*"])] = None
    may: Annotated[
        tuple[GrantVerb, ...],
        Meta(
            min_length=1,
            title=f"a list of at least one of {', '.join(GRANT_VERBS)}",
            examples=[["create", "push", "pull", "subscribe", "send"]],
        ),
    ]

    def grant(self) -> Grant:
        """The grant as access control takes it."""
        return Grant(
            who=self.who, streams=self.streams, addresses=self.addresses, may=_verbs(self.may)
        )


@lru_cache(_VERBS_KEPT)
def _verbs(may: tuple[GrantVerb, ...]) -> frozenset[GrantVerb]:
    """What a grant allows; one set for all that allow the same."""
    return frozenset(may)


class Config(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A node's whole configuration.

    Attributes:
        name: What people call the node; it appears in logs and on the status page.
        data_dir: Directory of everything that the node keeps.
        on_fatal: What an essential actor's end leads to: `exit` ends `rillnode run` with exit code
            4, and a program's `async with node` with `NodeFailed`; `stay` goes on without the
            actor, and is not ready. Default: `exit` for `rillnode run`, `stay` in a program.
    """

    name: Annotated[Name, Meta(examples=["edge-1"])]
    data_dir: Path = field(default_factory=default_data_dir)
    on_fatal: Annotated[OnFatal | None, Meta(examples=["exit"])] = None
    identity: IdentityTable = IdentityTable()
    store: StoreTable = StoreTable()
    log: LogTable = LogTable()
    noise: NoiseListener = NoiseListener()
    ockam: OckamListener | None = None
    streamr: StreamrListener | None = None
    nextgraph: NextgraphListener | None = None
    http: HttpListener = HttpListener()
    metrics: MetricsTable = MetricsTable()
    telemetry: TelemetryTable = TelemetryTable()
    grants: tuple[GrantTable, ...] = field(name="grant", default=())
    quotas: tuple[QuotaTable, ...] = field(name="quota", default=())
    streams: tuple[StreamTable, ...] = field(name="stream", default=())
    peers: tuple[PeerTable, ...] = field(name="peer", default=())
    dialling: DiallingTable = DiallingTable()
    tracker: TrackerTable = TrackerTable()
    overlay: OverlayTable | None = None
    streamr_network: StreamrNetworkListener | None = None
    services: ServicesTable = ServicesTable()
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
    def channel(self) -> ChannelTable | None:
        """The table of secure channels, where there are any."""
        table = None if self.ockam is None else self.ockam.channel
        return table if table and table.enabled else None

    @property
    def channel_key_file(self) -> Path:
        """The file of the node's key for secure channels."""
        table = self.channel
        return (table and table.key_file) or self.data_dir / "ockam.key"

    @property
    def nextgraph_key_file(self) -> Path:
        """The file of the NextGraph broker's peer key."""
        return self.data_dir / "nextgraph.key"

    @property
    def ethereum_key_file(self) -> Path:
        """The file of the key that signs for Streamr's clients what others have pushed."""
        return self.data_dir / "ethereum.key"

    @property
    def store_dir(self) -> Path:
        """The store's directory."""
        return self.data_dir / "store"

    @property
    def views_dir(self) -> Path:
        """Where a node keeps its views of a shared log; what is in it can be had again."""
        return self.data_dir / "views"

    @property
    def checkpoints_dir(self) -> Path:
        """Where copies of the store are made for backups, on the store's file system."""
        return self.data_dir / "checkpoints"

    def listeners(self) -> dict[str, Listener]:
        """The listeners that are on, by name."""
        tables: dict[str, Listener | None] = {
            "noise": self.noise,
            "ockam": self.ockam,
            "streamr": self.streamr,
            "streamr_network": self.streamr_network,
            "nextgraph": self.nextgraph,
            "http": self.http,
        }
        for name in self.__struct_fields__[len(Config.__struct_fields__) :]:  # those of plug-ins
            if isinstance(table := getattr(self, name), Listener):
                tables[name] = table
        return {name: table for name, table in tables.items() if table and table.enabled}


def for_process(config: Config) -> Config:
    """What `rillnode run` makes of a configuration: the process is the node's own."""
    return replace(config, on_fatal=config.on_fatal or "exit")
