"""The port of a shared log: what an engine does for the stores of several machines.

An engine keeps some logs of frames, one for each shard, and blobs beside them. A frame is bytes
that the engine does not look into. Everything else (who wrote a frame, whether it counts, what it
does) is decided by the stores that read it, each for itself and all alike.

All calls are made on one event loop. Sequences number the frames of their shard, from 1 on, without
a gap but for what was trimmed at the front.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from rillnode.codecs.errors import StoreError


class LogLost(Exception):
    """It is not known whether a frame was stored, or the engine does not answer: ask again."""


class Frame(NamedTuple):
    """A stored frame."""

    sequence: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Span:
    """The extent of what is kept of a shard.

    Attributes:
        first: sequence of the first frame that is kept, or of the next one where none is.
        last: sequence of the last frame that was ever stored; 0: none was.
    """

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Opened:
    """The identity and number of an engine's logs.

    Attributes:
        identity: drawn when they were made, and never the same for others.
        shards: how many there are; chosen when they were made.
    """

    identity: bytes
    shards: int


@dataclass(frozen=True, slots=True)
class Blob:
    """A stored blob: its name, and its size in bytes."""

    name: str
    size: int


Heard = Callable[[int, int], None]
"""Told of a shard, and of a sequence that its log has reached; often, and not of each frame."""


class SharedLog(Protocol):
    """The logs of an engine.

    Promises: a frame whose sequence was returned is kept by a synced majority, and stands at that
    sequence for every reader until it is trimmed; frames whose `append` was called one after the
    other are stored in that order as far as none is lost; one that is lost may be stored at any
    later time.
    """

    @property
    def frame_bytes_max(self) -> int:
        """The largest frame that is taken."""
        ...

    async def open(self, shards: int, heard: Heard) -> Opened:
        """Connect, and make the logs where there are none at all.

        Afterwards the engine keeps the connection by itself: calls raise LogLost meanwhile.

        Args:
            shards: how many to make.
            heard: told of what others have stored: soon, and of the ends of all shards every second
                or so, as long as there is a connection.

        Raises:
            LogLost: no server answers.
            StoreError: it cannot be used: `store.unsynced`, `store.old`, `store.denied`,
                `store.incomplete` (some of the logs are missing).
        """
        ...

    async def close(self) -> None:
        """Let go; harmless when repeated. What is under way raises LogLost."""
        ...

    async def append(self, shard: int, data: bytes) -> int:
        """Store a frame, and return its sequence.

        Raises:
            LogLost: it is not known whether it is or will be stored.
            StoreError: it is not stored, and this is why: `store.full`, `store.denied`,
                `store.too_large`, `store.incomplete` (the log is gone).
        """
        ...

    async def read(self, shard: int, after: int, bytes_max: int) -> Sequence[Frame]:
        """The frames after a sequence, in order: at least one where there is one.

        It may be answered by a server that is behind. What was trimmed is left out.

        Raises:
            LogLost: nobody answers.
            StoreError: `store.denied`, `store.incomplete` (the log is gone).
        """
        ...

    async def span(self, shard: int) -> Span:
        """What is kept; it may be behind.

        Raises:
            LogLost: nobody answers.
            StoreError: `store.denied`, `store.incomplete`.
        """
        ...

    async def trim(self, shard: int, before: int) -> None:
        """Drop the frames before a sequence.

        Raises:
            LogLost: it is not known whether they are dropped.
            StoreError: `store.denied`, `store.incomplete`.
        """
        ...

    def describe(self) -> Mapping[str, Any]:
        """The engine's state for people: what it is, where, and whether it is connected.

        `connected` is false, or empty, while no server answers; `unsynced` says why not all that is
        confirmed is known to be synced, and is "" where it is.
        """
        ...


class Blobs(Protocol):
    """Files of any size by name, kept as safely as the logs; for snapshots."""

    async def put(self, name: str, path: Path) -> None:
        """Store a file under a name, whole or not at all; another of that name is replaced.

        Raises:
            LogLost: it is not known whether it is stored.
            StoreError: it is not: `store.full`, `store.denied`.
        """
        ...

    async def get(self, name: str, path: Path) -> None:
        """Write a blob to a file that is not there yet.

        Raises:
            LogLost: nobody answers, or it came in part: the file is not there.
            StoreError: `store.unknown` (there is no such blob), `store.corrupt`.
        """
        ...

    async def list(self, prefix: str) -> Sequence[Blob]:
        """All blobs whose names begin so, by name.

        Raises:
            LogLost: nobody answers.
        """
        ...

    async def delete(self, name: str) -> None:
        """Remove a blob; harmless where there is none.

        Raises:
            LogLost: it is not known whether it is gone.
        """
        ...


def unreachable(reason: str) -> StoreError:
    """The answer to what could not be stored, or asked, for too long."""
    return StoreError(
        "store.unreachable",
        f"the servers of the log do not answer ({reason}): it is tried again",
    )


def unsynced_error(text: str, *, retryable: bool = False) -> StoreError:
    """The refusal of servers that lose what they confirm; the text says what is to be set."""
    return StoreError("store.unsynced", text, retryable=retryable)
