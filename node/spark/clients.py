"""The clients by which Spark's side talks to a node: to a sink's actor, or to streams.

A sink's client also reads others' saved indexes. An application has the grants of its own key:
`pull` to read, `push` and, for new streams, `create` to write.
"""

import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import msgspec

from rillnode.actors.spark.spark_sink import literal_prefix
from rillnode.codecs import native
from rillnode.codecs.entries import Block, NewEntry
from rillnode.codecs.errors import ConfigError, ProducerFenced, RequestError, StreamRemoved
from rillnode.codecs.keys import Identity
from rillnode.node.client.client import noise_connect, noise_follow
from rillnode.node.client.loop_thread import LoopThread
from rillnode.node.client.producer import push_numbered
from rillnode.node.client.session import Session
from rillnode.node.client.stream import describe, open_producer
from rillnode.node.keys.files import read_key
from rillnode.node.spark.offsets import Offset, Range, behind
from rillnode.node.spark.ranges import ClientOptions

STREAMS: Final = b"stream"
INDEXES: Final = b"stream_index"
REQUEST_SECONDS: Final = 120.0
CLOSE_SECONDS: Final = 5.0

T = TypeVar("T")


class BlockingSession:
    """A session and the loop that it lives on; a lost link ends it.

    Any number of threads may share it: everything that touches the session, the numbers of its
    requests included, happens on its loop.
    """

    def __init__(self, session: Session, loop: LoopThread) -> None:
        self._session = session
        self._loop = loop

    @classmethod
    def open(cls, url: str, identity: Identity, node_identity: str) -> Self:
        """Connect to a node.

        Raises:
            TransportError: the node is not reached; HandshakeError: it refuses the key.
            ConfigError: the address cannot be used.
        """
        way = noise_connect(url, identity, node_identity)
        session = Session(way, reconnect=False, follow=noise_follow(identity))
        loop = LoopThread()
        try:
            loop.run(session.open())
        except BaseException:
            loop.stop()
            raise
        return cls(session, loop)

    def ask(self, address: bytes, request: Callable[[int], native.Request], answer: type[T]) -> T:
        """Send a request and wait for its answer.

        Args:
            address: whom to ask.
            request: makes the request, of a number that is its own.
            answer: the kind of answer that it has.

        Raises:
            RequestError: the node refuses it, or gives an answer of another kind.
            TransportError: no answer in time, or the link is lost.
        """

        async def work(session: Session) -> T:
            made = request(session.next_id())
            return await session.request(address, made, answer, seconds=REQUEST_SECONDS)

        return self.run(work)

    def run(self, work: Callable[[Session], Coroutine[Any, Any, T]]) -> T:
        """Do something with the session on its loop, and wait for the result."""
        return self._loop.run(work(self._session))

    def close(self) -> None:
        """Wait a little for what has no answer yet, and end the link; twice is no error."""
        self._loop.stop(self._session.close(timeout_seconds=CLOSE_SECONDS))


class SinkClient:
    """A blocking connection to one sink; satisfies `RangeClient`."""

    def __init__(self, session: BlockingSession, sink: str) -> None:
        self._session = session
        self._address = f"sink/{sink}".encode()
        self._created: dict[str, int] = {}

    def ends(self) -> dict[tuple[str, int], tuple[int, int]]:
        """First index kept and next index of each (stream, partition)."""
        response = self._session.ask(self._address, native.SinkEndsRequest, native.SinkEndsResponse)
        self._created = {end.stream: end.created_at for end in response.ends}
        return {
            (end.stream, end.partition): (end.first_index, end.next_index) for end in response.ends
        }

    def created(self) -> dict[str, int]:
        """When each stream was created, ms since 1970, as the last `ends` has found them."""
        return self._created

    def read(self, part: Range, bytes_max: int) -> tuple[int, list[Block]]:
        """First index kept, and whole blocks that cover the range from its start on."""
        response = self._session.ask(
            self._address,
            lambda number: native.SinkReadRequest(
                number,
                part.stream,
                part.partition,
                part.start,
                part.until,
                bytes_max,
                part.created_at,
            ),
            native.BlocksResponse,
        )
        if response.next_index <= part.start:
            raise behind(part)
        return response.first_index, native.blocks_of(response)

    def commit(self, offset: Offset) -> None:
        """Save committed positions; they are durable when this returns."""
        saved = [
            native.SinkPosition(stream, partition, index, offset.created.get(stream, 0))
            for (stream, partition), index in offset.positions.items()
        ]
        self._session.ask(
            self._address,
            lambda number: native.SinkCommitRequest(number, saved),
            native.DoneResponse,
        )

    def consumers(self) -> dict[str, dict[tuple[str, int], int]]:
        """What the consumers of the sink's streams have saved, by their names.

        The node lists the indexes of those streams that the job's key may pull: the sink's.
        """
        found: dict[str, dict[tuple[str, int], int]] = {}
        last: native.SavedIndex | None = native.SavedIndex("", 0, "", 0)
        while last is not None:
            response = self._session.ask(
                INDEXES,
                partial(_list_after, last),
                native.ListIndexesResponse,
            )
            for item in response.indexes:
                found.setdefault(item.client_id, {})[item.stream, item.partition] = item.index
            last = response.last
        return found

    def report(self, progress: Mapping[str, object]) -> None:
        """Show the job's progress."""
        document = msgspec.json.encode(progress)
        self._session.ask(
            self._address,
            lambda number: native.SinkReportRequest(number, document),
            native.DoneResponse,
        )

    def close(self) -> None:
        """End the link."""
        self._session.close()


def sink_client(options: ClientOptions) -> SinkClient:
    """Connect to a sink.

    Raises:
        TransportError: the node is not reached; HandshakeError: it refuses the job's key.
        ConfigError: the address or the key file cannot be used.
    """
    identity = read_key(Path(options.key_file))
    session = BlockingSession.open(options.url, identity, options.node_identity)
    return SinkClient(session, options.sink)


def _list_after(last: native.SavedIndex, number: int) -> native.ListIndexesRequest:
    return native.ListIndexesRequest(number, "", last.stream, last.partition, last.client_id)


FENCED_MAX: Final = 5
"""How often rows are pushed while another attempt of their task takes the producer's name."""
KEY_VARIABLE: Final = "RILLNODE_KEY"


class StreamsClient:
    """A blocking connection to a node's streams; satisfies `RangeClient`, and writes."""

    def __init__(self, session: BlockingSession, patterns: Sequence[str], consumer: str) -> None:
        self._session = session
        self._patterns = patterns
        self._consumer = consumer
        self._addresses: dict[str, list[bytes]] = {}
        self._created: dict[str, int] = {}

    def ends(self) -> dict[tuple[str, int], tuple[int, int]]:
        """First index kept and next index of each partition of the streams that match."""
        ends: dict[tuple[str, int], tuple[int, int]] = {}
        self._created = {}
        prefix, after = literal_prefix(self._patterns), ""
        while True:
            response = self._session.ask(
                STREAMS,
                partial(_streams_after, prefix, after),
                native.ListResponse,
            )
            for info in response.streams:
                if not any(fnmatchcase(info.name, pattern) for pattern in self._patterns):
                    continue
                self._addresses[info.name] = [part.address for part in info.partitions]
                self._created[info.name] = info.created_at
                for part in info.partitions:
                    ends[info.name, part.partition] = (part.first_index, part.next_index)
            after = response.next_after
            if not after:
                return ends

    def created(self) -> dict[str, int]:
        """When each stream was created, ms since 1970, as the last `ends` has found them."""
        return self._created

    def read(self, part: Range, bytes_max: int) -> tuple[int, list[Block]]:
        """First index kept, and whole blocks that cover the range from its start on."""
        count = part.until - part.start
        response = self._session.ask(
            self._address(part.stream, part.partition),
            lambda number: native.ReadRequest(number, part.start, count, bytes_max),
            native.BlocksResponse,
        )
        if part.created_at:
            # Asked after the read: a stream that is the one that is meant now was it then.
            created_at = self._describe(part.stream).created_at
            if created_at > part.created_at:
                return part.until, []
            if created_at < part.created_at:
                raise behind(part)
        if response.next_index <= part.start:
            raise behind(part)
        blocks = [block for block in native.blocks_of(response) if block.first_index < part.until]
        return response.first_index, blocks

    def commit(self, offset: Offset) -> None:
        """Save the consumer's positions; they are durable when this returns."""
        if not self._consumer:
            return
        for (stream, partition), index in offset.positions.items():
            place = native.SavedIndex(stream, partition, self._consumer, index)
            asking = partial(_save, place, offset.created.get(stream, 0))
            with suppress(StreamRemoved):
                self._session.ask(INDEXES, asking, native.SavedIndexResponse)

    def consumers(self) -> dict[str, dict[tuple[str, int], int]]:
        """Nobody asks an application that is not the node's own for other consumers."""
        return {}

    def report(self, progress: Mapping[str, object]) -> None:
        """Nobody asks for the progress of an application that is not the node's own."""

    def open(self, stream: str, partitions: int) -> int:
        """Make sure that a stream has so many partitions at least; return how many it has."""
        response = self._session.ask(
            STREAMS,
            lambda number: native.OpenRequest(number, stream, partitions),
            native.StreamResponse,
        )
        self._addresses[stream] = [part.address for part in response.stream.partitions]
        return len(response.stream.partitions)

    def push(
        self, stream: str, partition: int, entries: Sequence[NewEntry], producer: str, first: int
    ) -> None:
        """Push entries, in order; they are durable when it returns, and none is stored twice.

        Args:
            stream: where to.
            partition: of the stream.
            entries: what is pushed.
            producer: the name of the producer that numbers them.
            first: the number of the first one.
        """
        address = self._address(stream, partition)

        async def push_all(session: Session) -> None:
            for attempt in range(FENCED_MAX):
                opened = await open_producer(session, address, partition, producer)
                try:
                    await push_numbered(opened, entries, first)
                except ProducerFenced:
                    # Another attempt of the same task: it pushes the same, by the same numbers.
                    if attempt == FENCED_MAX - 1:
                        raise
                else:
                    return

        self._session.run(push_all)

    def close(self) -> None:
        """End the link."""
        self._session.close()

    def _address(self, stream: str, partition: int) -> bytes:
        addresses = self._addresses.get(stream, [])
        if partition >= len(addresses):
            info = self._describe(stream)
            addresses = self._addresses[stream] = [part.address for part in info.partitions]
        if partition >= len(addresses):
            raise RequestError(
                "stream.partition",
                f"stream {stream} has partitions 0 to {len(addresses) - 1}, not {partition}",
            )
        return addresses[partition]

    def _describe(self, stream: str) -> native.StreamInfo:
        return self._session.run(lambda session: describe(session, stream))


def streams_client(options: ClientOptions) -> StreamsClient:
    """Connect to a node's streams.

    Raises:
        TransportError: the node is not reached; HandshakeError: it refuses the key.
        ConfigError: the address or the key cannot be used.
    """
    identity = _identity(options.key_file)
    session = BlockingSession.open(options.url, identity, options.node_identity)
    return StreamsClient(session, options.patterns, options.consumer)


def _identity(key_file: str) -> Identity:
    if key_file:
        return read_key(Path(key_file))
    key = os.environ.get(KEY_VARIABLE)
    if key is None:
        raise ConfigError(
            "client.key",
            f"{KEY_VARIABLE} is not in the environment of this process; with Spark, set it for "
            f"executors too: spark.executorEnv.{KEY_VARIABLE}, or name a key file",
        )
    return Identity.from_hex(key.strip())


def _streams_after(prefix: str, after: str, number: int) -> native.ListRequest:
    return native.ListRequest(number, prefix, after)


def _save(place: native.SavedIndex, created_at: int, number: int) -> native.SaveIndexRequest:
    return native.SaveIndexRequest(
        number, place.client_id, place.stream, place.partition, place.index, created_at
    )
