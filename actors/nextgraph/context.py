"""Shares parts among the broker's actors, and keeps tables of those made on demand."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Generic, Literal, TypeVar

from rillnode.actors.core.streams.context import StreamContext, StreamRemoved
from rillnode.actors.core.streams.rules import StreamRules
from rillnode.actors.engine.cell import Cells
from rillnode.actors.engine.system import Cell
from rillnode.actors.log import StreamRecord
from rillnode.actors.nextgraph.followers import Feed
from rillnode.actors.nextgraph.session import Session
from rillnode.codecs.keys import Identity
from rillnode.codecs.nextgraph.bootstrap import BootstrapContent

Registration = Literal["closed", "invitation", "open"]

Key = TypeVar("Key", bound=Hashable)

TopicKey = tuple[bytes, bytes]
"""The inner overlay's id, and the topic."""

StreamChange = Callable[[StreamRecord | StreamRemoved], None]


class Table(Generic[Key]):
    """Actors by key, made when first asked for, and anew where one was given up.

    All calls on the loop's thread.
    """

    def __init__(self, make: Callable[[Key], Cell]) -> None:
        self._make = make
        self._cells: dict[Key, Cell] = {}

    def __len__(self) -> int:
        return len(self._cells)

    def cell(self, key: Key) -> Cell:
        """The actor of a key."""
        cell = self.find(key)
        if cell is None:
            cell = self._cells[key] = self._make(key)
        return cell

    def find(self, key: Key) -> Cell | None:
        """The actor of a key, where there is one."""
        cell = self._cells.get(key)
        return None if cell is None or cell.exited else cell

    @property
    def awake(self) -> list[Cell]:
        """The actors that know something."""
        return [cell for cell in self._cells.values() if cell.instance is not None]

    def forget(self, key: Key) -> None:
        """The actor of a key ends: what comes next for it makes another."""
        self._cells.pop(key, None)


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
        feeds: what topics' actors owe that were replaced, until the next one takes it over.
        counters: what was refused or dropped, by reason.
        numbers: tell the addresses of connections apart.
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
    topics: Table[TopicKey] = field(init=False)
    blocks: Table[bytes] = field(init=False)
    users: Cell = field(init=False)
    repairs: Cell = field(init=False)
    inboxes: Cell = field(init=False)
    wallets: Cell = field(init=False)
    connections: Cells = field(default_factory=Cells)
    sessions: set[Session] = field(default_factory=set[Session])
    feeds: dict[TopicKey, Feed] = field(default_factory=dict[TopicKey, Feed])
    counters: Counter[str] = field(default_factory=Counter)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
