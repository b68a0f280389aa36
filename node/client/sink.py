"""The client that a Spark job uses: it talks to its sink actor, and reads others' saved indexes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

import msgspec

from rillnode.codecs import native
from rillnode.codecs.entries import Block
from rillnode.codecs.errors import RequestError
from rillnode.node.client.blocking import LoopThread
from rillnode.node.client.client import noise_connect
from rillnode.node.client.session import Session
from rillnode.node.keyfiles import read_key
from rillnode.node.pipeline.offsets import Range

REQUEST_SECONDS: Final = 120.0


class SinkOptions(Protocol):
    """How to reach a sink; see `rillnode.node.pipeline.ranges.ClientOptions`."""

    @property
    def url(self) -> str:
        """`noise://host:port`."""
        ...

    @property
    def node_identity(self) -> str:
        """The node's identity, hex."""
        ...

    @property
    def key_file(self) -> str:
        """File of the job's key, read at each new link: the sink renews it."""
        ...

    @property
    def sink(self) -> str:
        """The sink's name."""
        ...


class SinkClient:
    """A blocking connection to one sink; satisfies `RangeClient`."""

    def __init__(self, session: Session, loop: LoopThread, sink: str) -> None:
        self._session = session
        self._loop = loop
        self._address = f"spark_sink/{sink}".encode()
        self._created: dict[str, int] = {}

    def ends(self) -> dict[tuple[str, int], tuple[int, int]]:
        """First index kept and next index of each (stream, partition)."""
        response = self._ask(native.SinkEndsRequest(self._session.next_id()))
        if not isinstance(response, native.SinkEndsResponse):
            raise _unexpected()
        self._created = {end.stream: end.created_at for end in response.ends}
        return {
            (end.stream, end.partition): (end.first_index, end.next_index) for end in response.ends
        }

    def created(self) -> dict[str, int]:
        """When each stream was created, ms since 1970, as the last `ends` has found them."""
        return self._created

    def read(self, part: Range, bytes_max: int) -> tuple[int, list[Block]]:
        """First index kept, and whole blocks that cover the range from its start on."""
        response = self._ask(
            native.SinkReadRequest(
                self._session.next_id(),
                part.stream,
                part.partition,
                part.start,
                part.until,
                bytes_max,
                part.created_at,
            )
        )
        if not isinstance(response, native.BlocksResponse):
            raise _unexpected()
        return response.first_index, native.blocks_of(response)

    def commit(self, positions: Mapping[tuple[str, int], int]) -> None:
        """Save committed positions; they are durable when this returns."""
        self._ask(
            native.SinkCommitRequest(
                self._session.next_id(),
                [
                    native.SinkPosition(stream, partition, index)
                    for (stream, partition), index in positions.items()
                ],
            )
        )

    def consumers(self) -> dict[str, dict[tuple[str, int], int]]:
        """What the consumers of the sink's streams have saved, by their names.

        The node lists the indexes of those streams that the job's key may pull: the sink's.
        """
        found: dict[str, dict[tuple[str, int], int]] = {}
        last: native.SavedIndex | None = native.SavedIndex("", 0, "", 0)
        while last is not None:
            request = native.ListIndexesRequest(
                self._session.next_id(), "", last.stream, last.partition, last.client_id
            )
            response = self._ask(request, b"stream_index")
            if not isinstance(response, native.ListIndexesResponse):
                raise _unexpected()
            for item in response.indexes:
                found.setdefault(item.client_id, {})[item.stream, item.partition] = item.index
            last = response.last
        return found

    def report(self, progress: Mapping[str, object]) -> None:
        """Show the job's progress."""
        document = msgspec.json.encode(progress)
        self._ask(native.SinkReportRequest(self._session.next_id(), document))

    def close(self) -> None:
        """End the link."""
        self._loop.run(self._session.close(timeout_seconds=5))
        self._loop.stop()

    def _ask(self, request: native.Request, address: bytes | None = None) -> native.Response:
        return self._loop.run(
            self._session.request(address or self._address, request, seconds=REQUEST_SECONDS)
        )


def sink_client(options: SinkOptions) -> SinkClient:
    """Connect to a sink.

    Raises:
        TransportError: the node is not reached; HandshakeError: it refuses the job's key.
        ConfigError: the address or the key file cannot be used.
    """
    identity = read_key(Path(options.key_file))
    session = Session(noise_connect(options.url, identity, options.node_identity), reconnect=False)
    loop = LoopThread()
    try:
        loop.run(session.open())
    except BaseException:
        loop.stop()
        raise
    return SinkClient(session, loop, options.sink)


def _unexpected() -> RequestError:
    return RequestError("client.answer", "the node gave another kind of answer")
