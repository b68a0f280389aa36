"""The tables of `node.toml` as structs: keys, units, defaults and allowed values.

A key's description is its line under "Attributes"; the reference page, the comments of a new
`node.toml` and the JSON schema are made from these, so there is one place to write them.

The structs can be built in Python as well (`Config(name="a", data_dir=Path("data"))`); what their
types cannot say is checked by `rillnode.node.config.check_config`.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypeVar

from msgspec import Meta, Struct, field
from msgspec.structs import force_setattr, replace

from rillnode.actors.core.access import GRANT_VERBS, Grant, GrantVerb
from rillnode.codecs.limits import HANDSHAKE_SECONDS_MAX, IDLE_CLOSE_SECONDS, IDLE_PING_SECONDS
from rillnode.node.config.kinds import (
    Count,
    HostPort,
    Layer,
    Level,
    Name,
    OnFatal,
    Seconds,
)
from rillnode.node.config.listener_tables import LinkListener, Listener, WebListener
from rillnode.node.config.peer_tables import DiallingTable, PeerTable
from rillnode.node.config.plug_in_table import PlugInTable
from rillnode.node.config.store_tables import StoreTable
from rillnode.node.config.stream_tables import QuotaTable, StreamTable

T = TypeVar("T", bound=PlugInTable)


def default_data_dir() -> Path:
    """Where a node keeps its data when nothing else is said."""
    return Path("data")


class NoiseListener(LinkListener, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """rillnode's own encrypted link: for its clients, its jobs and other nodes.

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


class HttpListener(WebListener, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Status page, its figures as JSON (`/v1`), health and metrics.

    Stream contents are served on loopback, or to clients that send the token.

    Attributes:
        token_file: File with the token for entries, their live tail, the configuration and the
            route probe; `rillnode key new` makes one. Without it they are shown on loopback only.
        console: Let administrators act on the page, in a session that `rillnode console` gives a
            link to. It needs loopback or TLS.
    """

    listen: HostPort = "127.0.0.1:8080"
    token_file: Annotated[Path | None, Meta(examples=["data/http.token"])] = None
    console: bool = False


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
        trace: Listeners, such as `noise`, of whose links each message's kind and size are written;
            `ockam` with the links to peers.
    """

    level: Level = "info"
    format: Literal["auto", "console", "json"] = "auto"
    levels: dict[Layer, Level] = {}
    trace: tuple[Name, ...] = ()


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
            node, which proves nothing, or `anonymous`; plug-ins may bring other kinds. `noise:*`
            stands for all of one kind, `*` for everybody.
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


class KernelTables(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A node's whole configuration.

    Attributes:
        name: The node's name, in logs and on the status page.
        data_dir: Directory for everything that the node keeps.
        on_fatal: What happens when an essential actor is given up: `exit` ends `rillnode run` with
            exit code 4, and a program's `async with node` with `NodeFailed`; with `stay` the node
            goes on without the actor, and is not ready. Default: `exit` for `rillnode run`, `stay`
            in a program.
        identity: The table `[identity]`: the node's keys.
        store: The table `[store]`: where streams are kept, and what a confirm means.
        log: The table `[log]`: which lines are logged, and how.
        noise: The table `[noise]`: the listener of rillnode's own links.
        http: The table `[http]`: the status page, health checks and metrics.
        metrics: The table `[metrics]`: which streams have series of their own.
        grants: The tables `[[grant]]`: who may do what.
        quotas: The tables `[[quota]]`: how much somebody may use.
        streams: The tables `[[stream]]`: streams that exist, and limits by patterns of names.
        peers: The tables `[[peer]]`: nodes that messages are passed to.
        dialling: The table `[dialling]`: how links to other nodes are made.
    """

    name: Annotated[Name, Meta(examples=["edge-1"])]
    data_dir: Path = field(default_factory=default_data_dir)
    on_fatal: Annotated[OnFatal | None, Meta(examples=["exit"])] = None
    identity: IdentityTable = IdentityTable()
    store: StoreTable = StoreTable()
    log: LogTable = LogTable()
    noise: NoiseListener = NoiseListener()
    http: HttpListener = HttpListener()
    metrics: MetricsTable = MetricsTable()
    grants: tuple[GrantTable, ...] = field(name="grant", default=())
    quotas: tuple[QuotaTable, ...] = field(name="quota", default=())
    streams: tuple[StreamTable, ...] = field(name="stream", default=())
    peers: tuple[PeerTable, ...] = field(name="peer", default=())
    dialling: DiallingTable = DiallingTable()


class Config(KernelTables, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A node's whole configuration.

    Attributes:
        tables: Those that ask for plug-ins, each of a type of its plug-in's.
    """

    tables: Sequence[PlugInTable] = ()

    def __post_init__(self) -> None:
        force_setattr(self, "tables", tuple(self.tables))

    @classmethod
    def embedded(cls, data_dir: Path | str, **tables: Any) -> Self:
        """That of a node without a listener, for the application that it is a part of.

        Args:
            data_dir: where its data is; the last part of it is the node's name.
            tables: whatever else the configuration says, and what it says otherwise.
        """
        path = Path(data_dir)
        off: dict[str, Any] = {
            "name": path.resolve().name or "node",
            "noise": NoiseListener(enabled=False),
            "http": HttpListener(enabled=False),
        }
        return cls(data_dir=path, **off | tables)

    def table(self, kind: type[T]) -> T | None:
        """The table of a type, where there is one."""
        return next(iter(self.each(kind)), None)

    def each(self, kind: type[T]) -> tuple[T, ...]:
        """The tables of a type, of which there may be several."""
        return tuple(one for one in self.tables if isinstance(one, kind))

    def having(self, *tables: PlugInTable) -> Self:
        """The configuration with these tables, in place of what it has of the same names."""
        names = {one.table for one in tables}
        kept = (one for one in self.tables if one.table not in names)
        return replace(self, tables=(*kept, *tables))

    def by_name(self) -> dict[str, Any]:
        """What stands in a file, by its name there: repeated tables are one, a tuple."""
        names = zip(
            KernelTables.__struct_encode_fields__, KernelTables.__struct_fields__, strict=True
        )
        found = {name: getattr(self, field) for name, field in names}
        for table in self.tables:
            found[table.table] = (*found.get(table.table, ()), table) if table.repeated else table
        return found

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
        of_plug_ins = {
            one.table: one for one in self.tables if isinstance(one, Listener) and not one.repeated
        }
        tables: dict[str, Listener] = {"noise": self.noise, **of_plug_ins, "http": self.http}
        return {name: table for name, table in tables.items() if table.enabled}


def for_process(config: Config) -> Config:
    """What `rillnode run` makes of a configuration: the process is the node's own."""
    return replace(config, on_fatal=config.on_fatal or "exit")
