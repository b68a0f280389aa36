"""Shares parts among the stream core's actors, and makes addresses of streams' names."""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache
from string import ascii_letters, digits
from typing import Final
from urllib.parse import quote, unquote

from rillnode.actors.core.access import Access
from rillnode.actors.core.groups.registry import Groups
from rillnode.actors.core.queues.names import Queues
from rillnode.actors.core.quotas import Quotas
from rillnode.actors.core.router import Router
from rillnode.actors.core.streams.followers import Followers
from rillnode.actors.core.streams.index import KnownPositions
from rillnode.actors.core.streams.subscribers import Subscribers
from rillnode.actors.core.streams.watches import StreamWatches
from rillnode.actors.engine.system import AsyncioSystemBase
from rillnode.actors.engine.worker import Variant, plain
from rillnode.actors.log import LogStore, StreamRecord, logs_of
from rillnode.actors.ports import Clock, Entropy

ADDRESS_PREFIX = b"ST_S_"
"""Released nodes have named stream workers so since 2021-11."""

_SAFE: Final = "/.-_:@"
_UNQUOTED: Final = (ascii_letters + digits + _SAFE).encode()

PushedKeys = Callable[[int], Sequence[bytes]]


def no_keys(_received_at: int) -> Sequence[bytes]:
    """Where no other protocol looks for entries."""
    return ()


@dataclass(slots=True)
class Appended:
    """Entries that became durable since the start, and the bytes of their blocks."""

    entries: int = 0
    block_bytes: int = 0


class Removals:
    """The streams that were removed just now: while somebody looks for one, or in this millisecond.

    What the store finds may be older than what was told meanwhile: it must be looked for again. And
    clients tell streams of one name apart by `created_at`, so no two may have the same. An id would
    not do: a stream has another in a copy of the store; other stores, and one that a backup was
    restored to, give the same to others.
    """

    def __init__(self) -> None:
        self._looking = 0
        self._ids: set[int] = set()
        self._created: dict[str, int] = {}  # no earlier than now

    def __enter__(self) -> Set[int]:
        """Somebody looks: the ids of what is removed from now on, until nobody does."""
        self._looking += 1
        return self._ids

    def __exit__(self, *_: object) -> None:
        self._looking -= 1
        if not self._looking:
            self._ids.clear()

    def tell(self, record: StreamRecord, now_ms: int) -> None:
        """A stream is no more."""
        if self._looking:
            self._ids.add(record.id)
        if self._created:
            self._created = {name: at for name, at in self._created.items() if at >= now_ms}
        if record.created_at >= now_ms:
            self._created[record.name] = record.created_at

    def created_at(self, name: str, now_ms: int) -> int:
        """When a stream is created now: later than any of its name, if clocks are set back, too."""
        return max(now_ms, self._created.get(name, -1) + 1)


@dataclass(frozen=True, slots=True)
class StreamContext:
    """The node's parts that stream actors work with.

    Attributes:
        pushed_keys: the secondary keys of entries of kind BYTES, by which another protocol finds
            them, out of when they were received.
        appended: what became durable since the start.
        removals: streams that were removed just now.
        followers: who is told when a log has grown.
        positions: what is known of saved positions.
        subscribers: how many follow each log.
        queues: the work queues in use.
        watches: who is told of streams that are made.
        groups: the groups of consumers that have members here.
        actor: which actors to make for a class of them.
    """

    system: AsyncioSystemBase
    router: Router
    store: LogStore
    access: Access
    clock: Clock
    entropy: Entropy
    quotas: Quotas
    pushed_keys: PushedKeys = no_keys
    appended: Appended = field(default_factory=Appended)
    removals: Removals = field(default_factory=Removals)
    followers: Followers = field(default_factory=Followers)
    positions: KnownPositions = field(default_factory=KnownPositions)
    subscribers: Subscribers = field(default_factory=Subscribers)
    queues: Queues = field(default_factory=Queues)
    watches: StreamWatches = field(default_factory=StreamWatches)
    groups: Groups = field(default_factory=Groups)
    actor: Variant = plain


STREAM_CHANGES_MAX: Final = 16_384
"""Streams that are made, changed or removed at once: more do not wait at the stream service."""


@dataclass(frozen=True, slots=True)
class StreamRemoved:
    """A stream is no more: whoever knows something of it forgets that."""

    record: StreamRecord


def tell_removed(context: StreamContext, record: StreamRecord) -> StreamRemoved:
    """Tell a stream's actors, and who follows it, that it is no more; return what others are told.

    It is posted before anything that the caller posts of a later stream of the same name.
    """
    context.removals.tell(record, context.clock.now_ms())
    removed = StreamRemoved(record)
    for partition, log in enumerate(logs_of(record.id, record.partitions)):
        cell = context.router.lookup(stream_address(record.name, partition))
        if cell is not None:
            context.system.post(cell, removed)
        context.followers.removed(log)
    return removed


@lru_cache(1_024)
def stream_address(name: str, partition: int) -> bytes:
    """Make a partition's address: prefix, partition, name with unusual characters quoted.

    The address holds the whole name, so that a node with 100,000 idle streams needs no table to
    find the stream of an address again.
    """
    quoted = name.encode()
    if quoted.strip(_UNQUOTED):
        quoted = quote(name, safe=_SAFE).encode()
    return b"%s%d_%s" % (ADDRESS_PREFIX, partition, quoted)


def parse_stream_address(address: bytes) -> tuple[str, int] | None:
    """The name and partition that an address was made of, or None where it was not."""
    number, separator, quoted = address[len(ADDRESS_PREFIX) :].partition(b"_")
    if not (separator and number.isdigit() and len(number) <= 10 and quoted.isascii()):
        return None
    if not quoted.strip(_UNQUOTED):  # as mostly
        return (quoted.decode(), int(number)) if number == b"%d" % int(number) else None
    try:
        name, partition = unquote(quoted.decode(), errors="strict"), int(number)
    except UnicodeDecodeError:
        return None
    return (name, partition) if stream_address(name, partition) == address else None
