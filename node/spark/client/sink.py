"""The client that a Spark job uses: it talks to its sink actor, and reads others' saved indexes."""

from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import msgspec

from rillnode.codecs import native
from rillnode.codecs.entries import Block
from rillnode.codecs.keys import Identity
from rillnode.node.client.client import noise_connect, noise_follow
from rillnode.node.client.loop_thread import LoopThread
from rillnode.node.client.session import Session
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
        self._address = f"spark_sink/{sink}".encode()
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
