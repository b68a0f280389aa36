"""Addresses of work queues, the names of their records, and what is known of those in use."""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote

from msgspec import Struct

from rillnode.actors.log import FindStream, GetRecord, LogStore, log_id
from rillnode.actors.log.records import beside_log
from rillnode.actors.log.waiting import read
from rillnode.codecs.errors import RequestError
from rillnode.codecs.routing.routes import utf8

PREFIX: Final = b"WQ_"
"""Begins the address of each queue."""

LISTED: Final = "queue/"
"""Begins the names of records by which queues are listed."""

_SAFE: Final = "/.-:@"


def queue_address(stream: str, queue: str) -> bytes:
    """The address of a queue: prefix, queue and stream, quoted as streams' are.

    Raises:
        CodecError: `codec.utf8`.
    """
    quoted = quote(utf8(queue), safe=_SAFE).replace("_", "%5F")
    return b"%s%s_%s" % (PREFIX, quoted.encode(), quote(utf8(stream), safe=_SAFE).encode())


@lru_cache(maxsize=1_024)
def parse_queue_address(address: bytes) -> tuple[str, str] | None:
    """The stream and the queue that an address was made of, or None where it was not."""
    if not address.startswith(PREFIX) or not address.isascii():
        return None
    queue, separator, stream = address[len(PREFIX) :].decode().partition("_")
    if not separator:
        return None
    try:
        found = unquote(stream, errors="strict"), unquote(queue, errors="strict")
    except UnicodeDecodeError:
        return None
    return found if queue_address(*found) == address else None


def state_record(log: int, queue: str) -> str:
    """The name of a queue's state, beside the log of the stream's partition 0."""
    return f"{beside_log(log)}queue/{queue}"


def listed_record(stream: str, queue: str) -> str:
    """The name of the record by which a queue is listed; its value is the stream's id."""
    return f"{LISTED}{quote(stream, safe='')}/{quote(queue, safe='')}"


async def queue_record(store: LogStore, stream: str, queue: str) -> str | None:
    """The name that a queue's state would have, as there is none; None: there is no such stream.

    Raises:
        RequestError: `queue.name`, there is a queue of this name.
        StoreError: that cannot be told.
    """
    find = FindStream(name=stream)
    await read(store, find)
    if find.record is None:
        return None
    look = GetRecord(key=state_record(log_id(find.record.id, 0), queue))
    await read(store, look)
    if look.value is not None:
        text = f"{queue} is a work queue of {stream}: choose another name"
        raise RequestError("queue.name", text)
    return look.key


def parse_listed(name: str) -> tuple[str, str]:
    """The stream and the queue of a record by which one is listed."""
    stream, _, queue = name.removeprefix(LISTED).partition("/")
    return unquote(stream), unquote(queue)


class Gauge(Struct):
    """The numbers of a queue in use, as of when something of it was last written.

    Attributes:
        depth: entries that are not settled, as far as the queue knows the stream's end.
        in_flight: with workers.
        waiting: looked at, and with nobody: given again later, or behind one of the same key.
        workers: that are connected here.
        oldest_at: when the oldest entry came that is not settled, milliseconds since 1970; 0: not
            known.
        done, dead, trimmed: entries that were settled so.
        held: why no further entries are given; empty: they are.
    """

    stream: str
    queue: str
    depth: int = 0
    in_flight: int = 0
    waiting: int = 0
    workers: int = 0
    oldest_at: int = 0
    done: int = 0
    dead: int = 0
    trimmed: int = 0
    held: str = ""


@dataclass(slots=True)
class Queues:
    """The queues in use at a node, by address, for people to look at."""

    gauges: dict[bytes, Gauge] = field(default_factory=dict[bytes, Gauge])
