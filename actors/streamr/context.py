"""Shares parts among the actors for Streamr's clients, and the table of their relays."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

from rillnode.actors.core.streams.context import StreamContext, StreamRemoved
from rillnode.actors.engine.cell import Cells
from rillnode.actors.engine.system import Cell
from rillnode.actors.log import StreamRecord
from rillnode.actors.streamr.answering import answer_failures
from rillnode.actors.streamr.sessions import Sessions
from rillnode.actors.streamr.verifying import Verify, verify_each
from rillnode.codecs.streamr.ethereum import EthereumKey


class Relays:
    """The relay actors of a node, by stream and partition. All calls on the loop's thread."""

    def __init__(self, make: Callable[[str, int], Cell]) -> None:
        self._make = make
        self._cells: dict[tuple[str, int], Cell] = {}

    def cell(self, stream_id: str, partition: int) -> Cell:
        """The relay of a partition, made where there is none.

        Whether there is such a stream is for the relay to find out; who may do nothing with any
        of its name must not get so far.
        """
        key = (stream_id, partition)
        cell = self._cells.get(key)
        if cell is None or cell.exited:
            cell = self._cells[key] = self._make(stream_id, partition)
        return cell

    def forget(self, stream_id: str, partition: int) -> None:
        """A relay ends: the next message for its partition goes to a new one."""
        self._cells.pop((stream_id, partition), None)

    def tell(self, change: StreamRecord | StreamRemoved) -> None:
        """Tell the relays of a stream that its record is another now, or that it is no more."""
        record = change.record if isinstance(change, StreamRemoved) else change
        for partition in range(record.partitions):
            cell = self._cells.get((record.name, partition))
            if cell is not None:
                cell.base.post(cell, change)


@dataclass(frozen=True, slots=True)
class StreamrContext:
    """The node's parts that Streamr's actors work with.

    Attributes:
        node_key: signs what other protocols' clients have pushed.
        sessions: tells who holds a token.
        relays: their table.
        key_exchange: the actor of all key-exchange streams.
        directory: the actor that keeps what Streamr's clients say of streams.
        counters: what was dropped or refused, by reason.
        verify: the verdicts on the signatures of messages that came together.
        open: the connections that there are.
        numbers: tell the addresses of connections apart.
    """

    streams: StreamContext
    node_key: EthereumKey
    sessions: Sessions
    relays: Relays
    key_exchange: Cell
    directory: Cell
    counters: Counter[str] = field(default_factory=Counter)
    verify: Verify = verify_each
    open: Cells = field(default_factory=Cells)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def __post_init__(self) -> None:
        """Have requests answered that a relay fails at."""
        answer_failures(self.streams.system)
