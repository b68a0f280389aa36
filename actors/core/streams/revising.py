"""Changes of a stream's record by others than its clients: the configuration, other protocols.

They are made in the order of the stream's name, so that none is lost to another made meanwhile.
"""

from collections.abc import Callable
from dataclasses import dataclass

from rillnode.actors.log import Retention, StreamRecord
from rillnode.codecs.errors import RillnodeError

Revise = Callable[[StreamRecord], StreamRecord | None]
"""Takes the record that there is, or with id 0 the one that a new stream would have.

It returns the record that there shall be, None for no stream, or raises a RequestError to refuse.
It may be called again, when another node was first to store something.
"""


@dataclass(frozen=True, slots=True)
class EnsureStream:
    """Make a configured stream, or bring its partitions and retention up to the configuration."""

    name: str
    partitions: int
    retention: Retention

    def merged(self, later: "EnsureStream") -> "EnsureStream | None":
        """Of the same stream the later one counts."""
        return later if later.name == self.name else None


@dataclass(frozen=True, slots=True)
class ReviseStream:
    """Change what is stored of a stream; an `ask` of the stream service returns a Revised.

    Attributes:
        principal: who asks: the owner of a stream that this makes.
    """

    name: str
    principal: str
    revise: Revise


@dataclass(frozen=True, slots=True)
class Revised:
    """The answer: what is stored now, None where there is no stream, or why nothing was changed."""

    record: StreamRecord | None = None
    error: RillnodeError | None = None
