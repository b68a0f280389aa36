"""A stream as a client sees it."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from rillnode.actors.storage import Retention
from rillnode.codecs import native
from rillnode.codecs.entries import Block, Entry, entries_of
from rillnode.codecs.errors import RequestError, RillnodeError
from rillnode.node.client.producer import Data, Producer
from rillnode.node.client.session import Session
from rillnode.node.client.subscription import Follower

logger = logging.getLogger("rillnode.node.client")

READ_BYTES: Final = 1_048_576
SAVE_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition: its address and committed extent."""

    partition: int
    address: str
    first_index: int
    next_index: int
    data_bytes: int


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """What a node tells of a stream; `created_at` in milliseconds since 1970."""

    name: str
    partitions: list[PartitionInfo]
    retention: Retention
    created_at: int
    owner: str

    @classmethod
    def of(cls, info: native.StreamInfo) -> "StreamInfo":
        """Take it out of a node's answer."""
        milliseconds = info.retain_milliseconds
        return cls(
            info.name,
            [
                PartitionInfo(
                    partition.partition,
                    partition.address.decode(errors="backslashreplace"),
                    partition.first_index,
                    partition.next_index,
                    partition.data_bytes,
                )
                for partition in info.partitions
            ],
            Retention(
                seconds=None if milliseconds is None else milliseconds / 1000,
                entries_max=info.retain_entries_max,
                bytes_max=info.retain_bytes_max,
            ),
            info.created_at,
            info.owner,
        )


class Stream:
    """A stream of a node; made by `Client.stream`.

    Attributes:
        name: its name.
        partitions: number of its partitions, as of when it was opened.
    """

    def __init__(self, session: Session, info: native.StreamInfo) -> None:
        self.name = info.name
        self.partitions = len(info.partitions)
        self._session = session
        self._addresses = [partition.address for partition in info.partitions]
        self._producers: dict[int, Producer] = {}
        self._consumers: set[_Positions] = set()

    # Pushing ---------------------------------------------------------------------------------

    async def push(self, data: Data, *, partition: int = 0) -> int:
        """Push one entry, as bytes, bytearray or memoryview; return its index once it is durable.

        Raises:
            TypeError: it is none of these.
            RequestError: the node refused it, or it is too large.
        """
        return await self.push_nowait(data, partition=partition)

    def push_nowait(self, data: Data, *, partition: int = 0) -> asyncio.Future[int]:
        """Push one entry without waiting; the future gets its index once it is durable.

        What is pushed in one turn of the event loop travels together. Entries of one partition
        are stored in the order of the calls. Nothing bounds what is unconfirmed but the caller.
        """
        return self._producer(partition).push(data)

    async def push_many(self, items: Iterable[bytes], *, partition: int = 0) -> int:
        """Push entries in whole blocks; return the index after the last, once all are durable."""
        return await self._producer(partition).push_all(items)

    def _producer(self, partition: int) -> Producer:
        producer = self._producers.get(partition)
        if producer is None:
            address = self._address(partition)
            producer = self._producers[partition] = Producer(self._session, address)
        return producer

    # Reading ---------------------------------------------------------------------------------

    async def pull(self, index: int = 0, limit: int = 100, *, partition: int = 0) -> list[Entry]:
        """Read at most `limit` entries with an index of at least `index`; none past the end."""
        address = self._address(partition)
        found: list[Entry] = []
        while len(found) < limit:
            request = native.ReadRequest(
                self._session.next_id(), index, limit - len(found), READ_BYTES
            )
            response = await self._session.request(address, request)
            if not isinstance(response, native.BlocksResponse):
                raise RequestError("client.answer", "the node gave another kind of answer")
            index = max(index, response.first_index)
            for item in response.blocks:
                block = Block(item.first_index, item.value)
                until = index + limit - len(found)
                entries = entries_of(block, partition=partition, first=index, until=until)
                found += entries
                index += len(entries)
            if not response.blocks or index >= response.next_index:
                break
        return found

    async def batches(
        self,
        *,
        start: int | Literal["start", "end"] = "start",
        partitions: Sequence[int] | None = None,
    ) -> AsyncGenerator[list[Entry]]:
        """Follow partitions for ever, in batches of entries of one partition each.

        Args:
            start: an index, the first entry kept, or only what comes from now on.
            partitions: which; None: all.
        """
        chosen = range(self.partitions) if partitions is None else partitions
        starts: dict[int, int] = {}
        if start == "end":
            extents = await self._extents()
            starts = {partition: extents[partition].next_index for partition in chosen}
        elif start != "start":
            starts = dict.fromkeys(chosen, start)
        async for batch in self._follow({p: starts.get(p, 0) for p in chosen}):
            yield batch

    async def tail(
        self,
        *,
        start: int | Literal["start", "end"] = "end",
        partitions: Sequence[int] | None = None,
    ) -> AsyncGenerator[Entry]:
        """Follow partitions for ever, entry by entry; arguments as of `batches`."""
        async for batch in self.batches(start=start, partitions=partitions):
            for entry in batch:
                yield entry

    async def consume(
        self,
        client_id: str,
        *,
        partitions: Sequence[int] | None = None,
        save_seconds: float = SAVE_SECONDS,
    ) -> AsyncGenerator[Entry]:
        """Follow partitions from where `client_id` stopped, and save what was processed.

        An entry counts as processed when the next one is asked for. Positions are saved every
        `save_seconds` and when the iteration or the client is closed; after a crash, the entries
        of at most that time come again.

        Raises:
            RequestError: `stream.removed`, the stream is no more; its positions went with it.
        """
        chosen = range(self.partitions) if partitions is None else partitions
        positions = _Positions(self._session, client_id, self.name)
        starts = {partition: await positions.load(partition) for partition in chosen}
        saving = asyncio.get_running_loop().create_task(positions.save_every(save_seconds))
        self._consumers.add(positions)
        try:
            async for batch in self._follow(starts):
                processed = positions.processed
                for entry in batch:
                    yield entry
                    processed[entry.partition] = entry.index + 1
        except RequestError as error:
            if error.code == "stream.removed":
                # Saved now, they would be those of a later stream of the name.
                positions.processed.clear()
            raise
        finally:
            self._consumers.discard(positions)
            saving.cancel()
            await positions.save()

    async def close(self) -> None:
        """Save the positions of consumers that are still open."""
        for positions in list(self._consumers):
            await positions.save()

    async def _follow(self, starts: dict[int, int]) -> AsyncGenerator[list[Entry]]:
        follower = Follower()
        try:
            for partition, index in starts.items():
                follower.follow(self._session, self._address(partition), partition, index)
            while True:
                yield await follower.batch()
        finally:
            follower.close()

    async def _extents(self) -> list[native.PartitionInfo]:
        return (await describe(self._session, self.name)).partitions

    def _address(self, partition: int) -> bytes:
        if not 0 <= partition < self.partitions:
            raise RequestError(
                "stream.partition",
                f"stream {self.name} has partitions 0 to {self.partitions - 1}, not {partition}",
            )
        return self._addresses[partition]


async def describe(session: Session, name: str) -> native.StreamInfo:
    """Ask a node about one stream.

    Raises:
        RequestError: `stream.unknown`.
    """
    request = native.DescribeRequest(session.next_id(), name)
    response = await session.request(b"stream", request)
    if not isinstance(response, native.StreamResponse):
        raise RequestError("client.answer", "the node gave another kind of answer")
    return response.stream


class _Positions:
    """Where one consumer stands, and what of it is saved."""

    def __init__(self, session: Session, client_id: str, stream: str) -> None:
        self.processed: dict[int, int] = {}
        self._saved: dict[int, int] = {}
        self._session = session
        self._client_id = client_id
        self._stream = stream

    async def load(self, partition: int) -> int:
        request = native.LoadIndexRequest(
            self._session.next_id(), self._client_id, self._stream, partition
        )
        response = await self._session.request(b"stream_index", request)
        if not isinstance(response, native.SavedIndexResponse):
            raise RequestError("client.answer", "the node gave another kind of answer")
        return response.index or 0

    async def save(self) -> None:
        changed = {p: i for p, i in self.processed.items() if self._saved.get(p) != i}
        for partition, index in changed.items():
            request = native.SaveIndexRequest(
                self._session.next_id(), self._client_id, self._stream, partition, index
            )
            await self._session.request(b"stream_index", request)
            self._saved[partition] = index

    async def save_every(self, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await self.save()
            except RillnodeError as error:
                logger.warning("position_not_saved", extra={"code": error.code})
