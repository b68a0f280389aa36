"""Defines the records of a LogStore, and the names of logs and secondary keys."""

from hashlib import blake2b

import msgspec


def log_id(stream_id: int, partition: int) -> int:
    """Identify one partition's log: stream id in the high 32 bits, partition in the low ones."""
    return stream_id << 32 | partition


def logs_of(stream_id: int, partitions: int) -> list[int]:
    """The logs of a stream, by partition."""
    return [log_id(stream_id, partition) for partition in range(partitions)]


BESIDE_LOGS = "beside/"
"""Begins the names of values that are kept beside logs, each log's under its own."""


def beside_log(log: int) -> str:
    """Begins the names of values kept beside a log; a store of one node removes them with it."""
    return f"{BESIDE_LOGS}{log}/"


DEAD_SUFFIX = ".dead"
"""Ends the name of the stream of what a work queue of another one has given up."""


def origin_of(name: str) -> str:
    """The stream that a stream of dead letters is of, or the name itself."""
    while name.endswith(DEAD_SUFFIX):
        name = name.removesuffix(DEAD_SUFFIX)
    return name


def version_of(value: bytes | None) -> int:
    """The version of a named value that others may change: two that differ have another.

    0: there is none.
    """
    if value is None:
        return 0
    return int.from_bytes(blake2b(value, digest_size=8).digest(), "big") | 1


GROUPS = "groups/"
"""Begins the names of what is kept of groups of consumers, by the first log of their stream."""

OF_LOGS = (BESIDE_LOGS, GROUPS)
"""What lies where a log does, by its number, and goes with it."""


def beside_stream(stream_id: int) -> str:
    """Begins the names of what is kept of the groups that read a stream, removed with it."""
    return f"{GROUPS}{log_id(stream_id, 0)}/"


FIRST_KEY = b"\1"
"""No secondary key is below this one."""


def key_after(key: bytes, index: int) -> bytes:
    """The first place of a listing past a secondary key that leads to `index`."""
    return key + index.to_bytes(8, "big") + b"\0"


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """A stream's limits; None means no limit. The tightest one wins.

    Attributes:
        seconds: entries older than this are dropped; None: they are kept however old they are.
        entries_max: entries kept in each partition; None: any number.
        bytes_max: bytes of data kept in each partition; None: any number.
    """

    seconds: float | None = None
    entries_max: int | None = None
    bytes_max: int | None = None


FOR_EVER = Retention()


class StreamRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The stored record of a stream.

    Attributes:
        id: 0 until the store has given one; never used again after a removal.
        created_at: milliseconds since 1970; no two streams of one name have the same.
        owner: principal that created it.
        require_signed: takes only messages that their publisher has signed.
        require_encrypted: takes only messages with encrypted content.
        grants: who may do what with this very stream, by principal; `*` stands for everybody.
            Beside verbs, words that one protocol alone knows.
        attributes: what clients tell each other of the stream.
    """

    name: str
    id: int = 0
    partitions: int = 1
    created_at: int = 0
    owner: str = ""
    retention: Retention = FOR_EVER
    require_signed: bool = False
    require_encrypted: bool = False
    grants: dict[str, tuple[str, ...]] = {}
    attributes: dict[str, str] = {}

    def merged(self, later: "StreamRecord") -> "StreamRecord | None":
        """Of the same stream the later one counts."""
        return later if later.id == self.id else None


class SavedIndexKey(msgspec.Struct, frozen=True, order=True):
    """The owner and place of a position; the stream need not exist."""

    stream: str
    partition: int
    client_id: str


class LogExtent(msgspec.Struct, frozen=True, gc=False):
    """The committed extent of a log.

    Attributes:
        first_index: first index still kept.
        next_index: index that the next entry gets.
        data_bytes: data bytes kept.
    """

    first_index: int = 0
    next_index: int = 0
    data_bytes: int = 0


NO_ENTRIES = LogExtent()
"""Of a log that nothing was ever appended to, or that was removed."""
