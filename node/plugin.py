"""The contract of plug-ins: what one may add to a node, and what a node gives it for that.

A plug-in is a subclass of `PlugIn`, made anew for each node. Packages name theirs as entry points,
so that a node finds them without importing what its configuration does not ask for:

    [project.entry-points."rillnode.plugins"]
    syslog = "rillnode_syslog:Syslog"

    [project.entry-points."rillnode.tables"]
    syslog = "rillnode_syslog.config:SyslogTable"     # the type of the table [syslog]

A plug-in whose entries are of a kind of its own says, in the group `rillnode.entries`, how they are
read for tables, which no node makes: `EntryReader` of `rillnode.node.entries`.

The kernel calls it in this order, all on the loop's thread: `__init__`, `start`, `serve`; then
`changed`, `on_health`, `reload` and what tells of it as often as needed; at last `finish` and
`close`, which also come where a start has failed half-way. What raises in `__init__`, `start` or
`serve` keeps the node from starting. What all else raises is logged (`plug_in_failed`) and costs
nobody else anything: what is asked for is left out, or `checks` fail, and is logged once until it
is told again; nor does a stop wait for `finish` or `close` for ever.
What there is of it (`links` and all that follow) may be asked for at any time, before `start` and
after `close`, too.

`PlugInContract` of `rillnode.testing.contract` tests all of this for a plug-in of anybody's.
"""

from collections.abc import (
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, NamedTuple, Protocol, TypeVar, get_args

from rillnode.actors.core.links.connection import PeerContext
from rillnode.actors.core.router import Router
from rillnode.actors.core.streams.context import (
    PushedKeys,
    StreamContext,
    StreamRemoved,
    no_keys,
)
from rillnode.actors.core.streams.holds import Holds
from rillnode.actors.core.streams.records import Changed
from rillnode.actors.core.streams.rules import StreamRules
from rillnode.actors.core.threads import Threads
from rillnode.actors.engine.system import AsyncioSystemBase, Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import Complete, StoreHealth, StreamRecord
from rillnode.actors.ports import Entropy
from rillnode.codecs.keys import Identity
from rillnode.node.client.client import Client
from rillnode.node.client.session import Session
from rillnode.node.config import Config, PlugInTable
from rillnode.transports.groups import LinkGroup

T = TypeVar("T", bound=PlugInTable)

Sample = tuple[Sequence[str], float]
"""Values of a metric's labels, in their order, and its value."""


class Listening(Protocol):
    """A bound listener, as a node shows it, and ends it when it stops.

    `TcpListener` and `WebServer` of `rillnode.transports` are some.
    """

    @property
    def address(self) -> str:
        """Where it is bound, as `host:port`."""
        ...

    @property
    def group(self) -> LinkGroup | None:
        """Its links, if they are those of `rillnode.transports`."""
        ...

    @property
    def link_count(self) -> int:
        """How many links it has now."""
        ...

    @property
    def counters(self) -> Mapping[str, int]:
        """How many links have failed or were refused so far, by error code."""
        ...

    def stop_accepting(self) -> None:
        """Take no more links; those held stay open."""
        ...

    async def close(self) -> None:
        """Close the links, and listen no more; the node has drained."""
        ...


class Described(NamedTuple):
    """A metric: its name, kind, labels, and what it means.

    The kind is `counter`, of a name that ends in `_total`, or `gauge`; the kernel alone has
    `histogram`s.
    """

    name: str
    kind: str
    labels: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request for a document.

    Attributes:
        names: the parts of its path that the document's path names, decoded.
        query: what stands behind `?`; of what stands there twice the first.
    """

    names: Mapping[str, str]
    query: Mapping[str, str]


class Document(NamedTuple):
    """A document that the node's `http` listener serves: GET of `/v1/plugins/NAME/path`.

    It is made on the loop's thread, and only while the node is ready.

    Attributes:
        path: what follows the plug-in's name, such as `stations/{id}`: a name in braces stands for
            one part.
        text: what the document tells, for the list at `/v1`.
        answer: makes it: an object as JSON has it. A RequestError that it raises is answered with
            its code and text, and the code's HTTP status, which is 400 where the kernel has none.
        is_data: it is not for all who reach the listener, but for programs of the same machine, or
            for clients that send the token of `[http] token_file`.
    """

    path: str
    text: str
    answer: Callable[[Asked], Awaitable[Mapping[str, Any]]]
    is_data: bool = False


ColumnKind = Literal["text", "words", "state", "count", "rate", "bytes", "seconds", "time"]

COLUMN_KINDS: Final[tuple[ColumnKind, ...]] = get_args(ColumnKind)


class Column(NamedTuple):
    """A column of a table on the status page.

    Attributes:
        key: where its values are in the rows. None is shown as `-`.
        kind: how they are shown: `text`; `words`, a long text, whose column is there while a row
            has any; `state`, one word that is marked; numbers: `count`, `rate` (per second),
            `bytes`, `seconds`, and `time`, milliseconds since 1970, as how long ago that was.
        heading: what stands above it; empty: the key, with spaces for underscores.
    """

    key: str
    kind: ColumnKind = "text"
    heading: str = ""


class PageTable(NamedTuple):
    """A table that a plug-in adds to the status page, which draws it as those of the kernel.

    Its rows are asked for every second while somebody looks, on the loop's thread, and may be at
    any time: they are what the plug-in has in memory, and few.

    Attributes:
        name: of the table among the plug-in's: letters, digits, `-` and `_`.
        title: stands above it.
        columns: the first tells rows apart.
        rows: makes them: objects as JSON has them, each with the keys of all columns.
        empty: what stands in place of no rows, such as what would make some.
    """

    name: str
    title: str
    columns: Sequence[Column]
    rows: Callable[[], Sequence[Mapping[str, Any]]]
    empty: str = "Nothing yet."


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must be right for the node to be ready."""

    name: str
    ok: bool
    reason: str = ""


class Variants:
    """The router, store and actors that a node is made of: here the plain ones."""

    def router(self, system: AsyncioSystemBase) -> Router:
        """The node's router."""
        return Router(system)

    def complete(self, complete: Complete) -> Complete:
        """Whom the store hands completed operations to."""
        return complete

    def streams(self, context: StreamContext) -> StreamContext:
        """What the actors of streams work with."""
        return context

    def peers(self, context: PeerContext) -> PeerContext:
        """What the actors of links and peers work with."""
        return context

    def actor(self, plain: type[Worker]) -> Callable[..., Worker]:
        """Makes actors in place of those of a class, from the same arguments."""
        return plain

    async def close(self) -> None:
        """Hand over what was not handed over yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The node that a plug-in is made for.

    Attributes:
        config: as it is when the node is made; see `PlugIn.reload`.
        entropy: where random bytes are from.
        threads: make threads, and tell the node of one that ends with an error.
        given: parts that whoever made the node gave it, in place of what the plug-in would make.
        name: the plug-in's, as its entry point has it.
    """

    config: Config
    identity: Identity
    entropy: Entropy
    threads: Threads
    given: Mapping[str, Any]
    name: str = ""

    def table(self, kind: type[T]) -> T:
        """The table of a plug-in that has only one: it is there, as it asks for the plug-in."""
        found = self.config.table(kind)
        assert found is not None, "it is the table that asks for this plug-in"
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """The kernel's parts of a node that starts.

    Attributes:
        streams: what actors of streams work with; system, router, store, access and clock, too.
        peers: what the actors of links work with.
        service: the stream service.
        indexes: the index service.
        rules: what is configured for streams by name.
        holds: what retention keeps for others.
        changed: to be told of streams that the plug-in makes or changes by itself.
        actor: which actors to make for a class of the plug-in's own.
        client: the node's client in its own process, which may do everything; from `serve` on.
        session: likewise what a client stands on, as any principal: what that asks is granted,
            limited and charged to the principal, as over a link of its own.
    """

    streams: StreamContext
    peers: PeerContext
    service: Cell
    indexes: Cell
    rules: StreamRules
    holds: Holds
    changed: Changed
    actor: Callable[[type[Worker]], Callable[..., Worker]]
    client: Callable[[], Client]
    session: Callable[[str], Session]


class PlugIn:
    """A plug-in of one node; every method is optional.

    Args:
        host: the node.

    Raises:
        ConfigError: a file of the configuration cannot be used, or an extra is missing.

    Attributes:
        metrics: the metrics that it adds to the node's; `samples` has the values of all of them.
        simulated: makes its part of a simulated run whose scenario has a table of its, as
            `module:name`, which the simulation alone imports: a `MakePart` of
            `node/simulated/part.py`.
    """

    metrics: ClassVar[Sequence[Described]] = ()
    simulated: ClassVar[str] = ""

    def __init__(self, host: Host) -> None:
        self.host = host

    # Life ------------------------------------------------------------------------------------

    def start(self, core: Core) -> None:
        """Make the actors; the store is open, and no listener is bound yet."""

    async def serve(self, bound: MutableMapping[str, Listening]) -> None:
        """Bind the listeners, then do what needs those of the kernel.

        Args:
            bound: all listeners of the node by name. The plug-in's own have to be in it as soon
                as they are bound, so that the node stops and closes them.

        Raises:
            RillnodeError: it cannot.
        """

    async def finish(self, seconds: float) -> None:
        """Have end what may still have to connect to this node; not longer than so many seconds."""

    async def close(self) -> None:
        """Close what is not in `bound`; the node has drained."""

    # What happens meanwhile ------------------------------------------------------------------

    def changed(self, change: StreamRecord | StreamRemoved) -> None:
        """Take over that a stream's record is another, or that it is no more."""

    def on_health(self, health: StoreHealth) -> None:
        """Take over how the store is; called from any thread, before `start` too."""

    def reload(self, old: Config, new: Config) -> Config:
        """Let a checked configuration take effect as far as it is the plug-in's; it does not fail.

        Returns:
            `old` with what of its own tables has taken effect.
        """
        return old

    def admits(self, identity: str) -> bool:
        """Whether who has proved an identity may connect, though no grant names it."""
        return False

    # What there is of it ---------------------------------------------------------------------

    @property
    def variants(self) -> Variants | None:
        """What the node is to be made of; None: the plain parts. Asked for at each start."""
        return None

    @property
    def pushed_keys(self) -> PushedKeys:
        """The secondary keys by which its clients find what others push."""
        return no_keys

    @property
    def links(self) -> Iterable[Cell]:
        """The actors of its links; each is sent a `Drain` when the node stops."""
        return ()

    @property
    def holders(self) -> Iterable[Cell]:
        """Actors, beside those of links, that go on by the rights of whom they serve.

        Each is sent a `RightsChanged` when a right has ended.
        """
        return ()

    @property
    def facts(self) -> Mapping[str, str]:
        """What `rillnode run --ports-file` tells of it, such as its key's public half, by name."""
        return {}

    def to_try(self, stream: str, addresses: Mapping[str, str]) -> Sequence[str]:
        """Commands that show it at work, for the banner of `rillnode run --dev`.

        Args:
            stream: whose entries are JSON objects such as `{"mag": 4.2}`.
            addresses: the bound listeners by name, as `host:port`.
        """
        return ()

    def status(self) -> dict[str, Any]:
        """Its parts of the status document, by key: as JSON has them, and no keys of others."""
        return {}

    @property
    def documents(self) -> Sequence[Document]:
        """What the `http` listener serves of it; asked for at each start of the node."""
        return ()

    @property
    def page_tables(self) -> Sequence[PageTable]:
        """What the status page shows of it."""
        return ()

    def checks(self) -> Iterator[Check]:
        """What must be right for the node to be ready."""
        return iter(())

    def counters(self) -> Mapping[str, Mapping[str, int]]:
        """What was dropped or refused, by protocol and event."""
        return {}

    def samples(self) -> Mapping[str, Sequence[Sample]]:
        """The values of its own metrics, by their names."""
        return {}
