"""What the broker's actors share, and the tables of those that are made when first needed."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from rillnode.actors.engine.cell import Cells
from rillnode.actors.engine.system import Cell
from rillnode.actors.nextgraph.errands import ErrandActor
from rillnode.actors.nextgraph.session import Session
from rillnode.actors.ports import TimerHandle
from rillnode.actors.storage import StreamRecord
from rillnode.actors.storage.watch import SharedStore
from rillnode.actors.streams.context import StreamContext, StreamRemoved
from rillnode.actors.streams.rules import StreamRules
from rillnode.codecs.keys import Identity
from rillnode.codecs.nextgraph.bootstrap import BootstrapContent

Registration = Literal["closed", "invitation", "open"]

UNUSED_SECONDS = 60.0
"""How long an actor stays for what there is not: an overlay or a topic that nobody has made."""

Key = TypeVar("Key", bound=Hashable)

StreamChange = Callable[[StreamRecord | StreamRemoved], None]


class Table(Generic[Key]):
    """Actors by key, made when first asked for. All calls on the loop's thread."""

    def __init__(self, make: Callable[[Key], Cell]) -> None:
        self._make = make
        self._cells: dict[Key, Cell] = {}

    def __len__(self) -> int:
        return len(self._cells)

    def cell(self, key: Key) -> Cell:
        """The actor of a key."""
        cell = self._cells.get(key)
        if cell is None:
            cell = self._cells[key] = self._make(key)
        return cell

    def find(self, key: Key) -> Cell | None:
        """The actor of a key, where there is one."""
        return self._cells.get(key)

    @property
    def awake(self) -> list[Cell]:
        """The actors that know something."""
        return [cell for cell in self._cells.values() if cell.instance is not None]

    def forget(self, key: Key) -> None:
        """The actor of a key ends: what comes next for it makes another."""
        self._cells.pop(key, None)


class Unused:
    """Time to end for an actor of a table, if there is nothing to it."""


class LodgerActor(ErrandActor, ABC, Generic[Key]):
    """An actor of a table, which ends when what it stands for is not there and nobody asks.

    Subclasses say in `unused` whether there is nothing to them, and `leave_later` whenever they
    have found that.
    """

    idle_seconds = UNUSED_SECONDS

    def __init__(self, context: "BrokerContext", table: Table[Key], key: Key) -> None:
        super().__init__(context.streams.store)
        self._context = context
        self._table = table
        self._key = key
        self._expiry: TimerHandle | None = None
        self._leaving = False

    @property
    @abstractmethod
    def unused(self) -> bool:
        """Whether what it stands for is not there."""

    def leave_later(self) -> None:
        """End if nobody asks for a while."""
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = self.wake_after(UNUSED_SECONDS, Unused())

    def leave(self) -> None:
        """End now, if there is nothing to it still."""
        if self.unused and not self.busy:
            self._leaving = True
            self._table.forget(self._key)
            self.system.exit(self.address)

    def passed_on(self, message: object, sender: Cell | None) -> bool:
        """Whether this ends, and a message that was on its way is for who has the place now."""
        if self._leaving:
            self.system.post(self._table.cell(self._key), message, sender)
        return self._leaving


@dataclass(slots=True, eq=False)
class BrokerContext:
    """The node's parts that the broker works with.

    Attributes:
        peer: the broker's peer key.
        registration: who may register.
        discoverable: whether a probe is told the peer key.
        bootstrap: where clients reach the broker.
        rules: what is configured for streams by name.
        stream_changed: told of the streams that are made for topics.
        sessions: the connections of admitted clients.
        counters: what was refused or dropped, by reason.
        shared: whether other nodes write the same store: what one does not look up anew may
            be out of date.
    """

    streams: StreamContext
    peer: Identity
    registration: Registration
    discoverable: bool
    bootstrap: Callable[[], BootstrapContent]
    rules: StreamRules
    stream_changed: StreamChange
    overlays: Table[bytes] = field(init=False)
    outers: Table[bytes] = field(init=False)
    topics: Table[tuple[bytes, bytes]] = field(init=False)
    blocks: Table[bytes] = field(init=False)
    users: Cell = field(init=False)
    repairs: Cell = field(init=False)
    inboxes: Cell = field(init=False)
    wallets: Cell = field(init=False)
    connections: Cells = field(default_factory=Cells)
    sessions: set[Session] = field(default_factory=set[Session])
    counters: Counter[str] = field(default_factory=Counter)
    shared: bool = field(init=False)

    def __post_init__(self) -> None:
        self.shared = isinstance(self.streams.store, SharedStore)
