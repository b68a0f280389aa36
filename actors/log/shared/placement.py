"""In which shard a stream, a saved index or a named value is kept.

What is decided together lies together: a partition's entries, keys and saved indexes with its
stream, and named values that are written with its appends with their log. What a work queue gives
up goes into a stream that lies with the queue's, in one commit with where the queue stands. Where
neither is said, named values lie in shard 0, which every node has.
"""

from collections.abc import Callable, Sequence
from typing import Final
from zlib import crc32

from rillnode.actors.log import (
    FindStream,
    GetRecord,
    GetRecords,
    HasRecords,
    ListIndexes,
    ListKeys,
    ListRecords,
    LoadIndex,
    Locate,
    Read,
    ReadOperation,
)
from rillnode.actors.log.records import OF_LOGS, origin_of
from rillnode.codecs.errors import StoreError

CATALOGUE: Final = 0
"""The shard of the catalogue, and of the values that have no other place."""

PlaceOf = Callable[[str], str | None]
"""Says by what key a name is placed, of a stream or a named value; None: as other names are."""


class Placement:
    """A map of names to shards; the same at every node, and for ever.

    Args:
        shards: how many there are.
        places: what protocols say of their names.
    """

    def __init__(self, shards: int, places: Sequence[PlaceOf] = ()) -> None:
        self.shards = shards
        self._places = places

    def of_log(self, log: int) -> int:
        """The shard of a log, which is that of its stream: ids are given so."""
        return (log >> 32) % self.shards

    def of_stream_id(self, stream_id: int) -> int:
        """The shard of a stream that was made."""
        return stream_id % self.shards

    def of_stream(self, name: str) -> int:
        """The shard of a stream by its name, and of the positions saved under that.

        A stream of dead letters lies with its origin.
        """
        name = origin_of(name)
        return self._of_key(self._place(name) or name)

    def of_value(self, name: str) -> int:
        """The shard of a named value, or of the values whose names begin so."""
        if name.startswith(OF_LOGS):
            log = name.split("/", 2)[1]
            if log.isdecimal():
                return self.of_log(int(log))
        key = self._place(name)
        return CATALOGUE if key is None else self._of_key(key)

    def of_values(self, names: Sequence[str]) -> int:
        """The shard of all of these.

        Raises:
            StoreError: they lie in several.
        """
        shards = {self.of_value(name) for name in names}
        if len(shards) > 1:
            raise StoreError(
                "store.scattered",
                f"values of {len(shards)} shards cannot be changed or read as one: {names[:3]}",
                retryable=False,
            )
        return shards.pop() if shards else CATALOGUE

    def of_read(self, operation: ReadOperation) -> int | None:
        """The shard that answers a read; None: it is of all shards.

        Raises:
            StoreError: as of `of_values`.
        """
        match operation:
            case Read(log=log) | Locate(log=log) | ListKeys(log=log):
                return self.of_log(log)
            case FindStream(name=None, id=stream_id):
                return self.of_stream_id(stream_id)
            case FindStream(name=str() as name):
                return self.of_stream(name)
            case ListIndexes(stream=stream) if stream:
                return self.of_stream(stream)
            case LoadIndex(key=key):
                return self.of_stream(key.stream)
            case GetRecord(key=name) | ListRecords(prefix=name):
                return self.of_value(name)
            case GetRecords(keys=names) | HasRecords(keys=names):
                return self.of_values(names)
            case _:
                return None

    def _place(self, name: str) -> str | None:
        for place_of in self._places:
            key = place_of(name)
            if key is not None:
                return key
        return None

    def _of_key(self, key: str) -> int:
        return crc32(key.encode(errors="surrogatepass")) % self.shards
