"""The client that a Spark job uses: it talks to its sink actor, and reads others' saved indexes."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec

from rillnode.codecs import native
from rillnode.codecs.entries import Block
from rillnode.node.keys.files import read_key
from rillnode.node.spark.client.blocking_session import INDEXES, BlockingSession
from rillnode.node.spark.offsets import Range, behind


class SinkOptions(Protocol):
    """The options of a sink's reader; see `rillnode.node.spark.ranges.ClientOptions`."""

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

    def commit(self, positions: Mapping[tuple[str, int], int]) -> None:
        """Save committed positions; they are durable when this returns."""
        saved = [
            native.SinkPosition(stream, partition, index)
            for (stream, partition), index in positions.items()
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


def sink_client(options: SinkOptions) -> SinkClient:
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
