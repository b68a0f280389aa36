"""What all logs of a store on JetStream share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from rillnode.actors.storage import Append, Trim
from rillnode.actors.storage.jetstream.forwarding import Forwarding
from rillnode.actors.storage.jetstream.gate import Gate
from rillnode.actors.storage.jetstream.journal import Journal
from rillnode.actors.storage.jetstream.key_index import KeyIndex
from rillnode.actors.storage.jetstream.options import JetStreamOptions
from rillnode.actors.storage.jetstream.server import Server
from rillnode.actors.storage.tail import TailCache
from rillnode.actors.storage.watch import Watch


class Done(Protocol):
    """Takes operations that are complete."""

    def __call__(self, *operations: Append | Trim | Watch) -> None:
        """Hand them over."""
        ...


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a store that its logs work with.

    Attributes:
        token: makes each message unlike all others.
        tell: lets other stores know of a log's message.
        done: takes operations that are complete.
    """

    options: JetStreamOptions
    server: Server
    gate: Gate
    journal: Journal
    tail: TailCache
    forwarding: Forwarding
    keys: KeyIndex
    token: Callable[[], bytes]
    tell: Callable[[int, int], None]
    done: Done
