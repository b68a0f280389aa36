"""A node's Spark sink for tests: blocks in memory behind a TCP port, and the client for it.

Request: u32 length | JSON. Answer: u32 length | JSON, then for `read` the blocks' values, whose
lengths the JSON holds.
"""

import json
import socket
import socketserver
import struct
import threading
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, cast

from rillnode.codecs.entries import Block, EntryKind, encode_block, pack_body
from rillnode.codecs.errors import HandshakeError, TransportError
from rillnode.node.spark.offsets import Offset, Range
from rillnode.node.spark.ranges import ClientOptions

_LENGTH = struct.Struct(">I")
_local: dict[str, "FakeSink"] = {}


class FakeSink:
    """Streams that a test fills and trims, and what the job saved and reported.

    It is a RangeClient itself; with `serve` it is reached from other processes too.
    """

    def __init__(self) -> None:
        self.positions: dict[tuple[str, int], int] = {}
        self.others: dict[str, dict[tuple[str, int], int]] = {}
        self.reports: list[dict[str, Any]] = []
        self.opened = 0
        self.closed = 0
        self._lock = threading.Lock()
        self._blocks: dict[tuple[str, int], list[Block]] = {}
        self._first: dict[tuple[str, int], int] = {}
        self._data_bytes: dict[tuple[str, int], int] = {}
        self._created: dict[str, int] = {}
        self._server: _Server | None = None

    @property
    def local_options(self) -> ClientOptions:
        """Options that lead to this very object, within the process."""
        name = f"sink-{id(self)}"
        _local[name] = self
        return _options("local://", name, "fake_sink:open_local")

    def serve(self) -> ClientOptions:
        """Listen on a free port; the options lead there from any process."""
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.sink = self
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        host, port = cast("tuple[str, int]", self._server.server_address)
        return _options(f"noise://{host}:{port}", "bronze", "fake_sink:open_client")

    def close(self) -> None:
        self.closed += 1
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def create(self, stream: str, partition: int = 0) -> None:
        with self._lock:
            self._blocks.setdefault((stream, partition), [])
            self._first.setdefault((stream, partition), 0)

    def append(
        self,
        stream: str,
        items: Sequence[bytes],
        *,
        partition: int = 0,
        kind: EntryKind = EntryKind.BYTES,
        received_at: int = 1_700_000_000_000,
    ) -> int:
        """Append one block; returns the next index."""
        with self._lock:
            position = self._data_bytes.get((stream, partition), 0)
            self._data_bytes[stream, partition] = position + sum(map(len, items))
        value = encode_block(
            count=len(items),
            kind=kind,
            received_at=received_at,
            position=position,
            body=pack_body(items),
        )
        return self.append_value(stream, value, partition=partition)

    def append_value(self, stream: str, value: bytes, *, partition: int = 0) -> int:
        self.create(stream, partition)
        with self._lock:
            blocks = self._blocks[stream, partition]
            block = Block(blocks[-1].next_index if blocks else 0, value)
            blocks.append(block)
            return block.next_index

    def trim(self, stream: str, before: int, partition: int = 0) -> None:
        with self._lock:
            self._first[stream, partition] = before

    def reset(self, stream: str, partition: int = 0, *, created_at: int | None = None) -> None:
        """Make a stream anew; a sink of an earlier version does not tell when."""
        with self._lock:
            self._blocks[stream, partition] = []
            self._first[stream, partition] = 0
            self.positions.pop((stream, partition), None)
            if created_at is not None:
                self._created[stream] = created_at

    def ends(self) -> dict[tuple[str, int], tuple[int, int]]:
        with self._lock:
            return {
                key: (self._first[key], blocks[-1].next_index if blocks else 0)
                for key, blocks in self._blocks.items()
            }

    def created(self) -> dict[str, int]:
        with self._lock:
            return dict(self._created)

    def read(self, part: Range, bytes_max: int) -> tuple[int, list[Block]]:
        with self._lock:
            if part.created_at not in (0, self._created.get(part.stream, 0)):
                return part.until, []
            first = self._first[part.stream, part.partition]
            blocks = self._blocks[part.stream, part.partition]
            index = max(part.start, first)
            at = max(0, bisect_right(blocks, index, key=_first_index) - 1)
            found: list[Block] = []
            size = 0
            for block in blocks[at:]:
                if block.first_index >= part.until or block.next_index <= index:
                    break
                if found and size + len(block.value) > bytes_max:
                    break
                found.append(block)
                size += len(block.value)
            return first, found

    def commit(self, offset: Offset) -> None:
        with self._lock:
            for key, index in offset.still(self._created).items():
                self.positions[key] = max(index, self.positions.get(key, 0))

    def consumers(self) -> dict[str, dict[tuple[str, int], int]]:
        return self.others

    def report(self, progress: dict[str, object]) -> None:
        self.reports.append(progress)


class FakeClient:
    """A RangeClient over one TCP connection."""

    def __init__(self, options: ClientOptions) -> None:
        host, _, port = options.url.removeprefix("noise://").partition(":")
        try:
            self._socket = socket.create_connection((host, int(port)), timeout=30)
        except OSError as error:
            raise TransportError(
                "tcp.connect", f"{options.url} is not reachable: {error}"
            ) from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._lock = threading.Lock()

    def ends(self) -> dict[tuple[str, int], tuple[int, int]]:
        answer, _ = self._ask({"op": "ends"})
        return {(stream, partition): (first, until) for stream, partition, first, until in answer}

    def created(self) -> dict[str, int]:
        created: dict[str, int] = self._ask({"op": "created"})[0]
        return created

    def read(self, part: Range, bytes_max: int) -> tuple[int, list[Block]]:
        answer, values = self._ask({"op": "read", "range": part, "bytes_max": bytes_max})
        return answer["first"], [
            Block(first_index, value)
            for (first_index, _), value in zip(answer["blocks"], values, strict=True)
        ]

    def commit(self, offset: Offset) -> None:
        self._ask({"op": "commit", "offset": offset.to_json()})

    def consumers(self) -> dict[str, dict[tuple[str, int], int]]:
        answer, _ = self._ask({"op": "consumers"})
        return {
            name: {(stream, partition): index for stream, partition, index in positions}
            for name, positions in answer.items()
        }

    def report(self, progress: dict[str, object]) -> None:
        self._ask({"op": "report", "progress": progress})

    def close(self) -> None:
        self._socket.close()

    def _ask(self, request: dict[str, Any]) -> tuple[Any, list[bytes]]:
        text = json.dumps(request).encode()
        with self._lock:
            try:
                self._socket.sendall(_LENGTH.pack(len(text)) + text)
                answer = json.loads(self._take(_LENGTH.unpack(self._take(4))[0]))
                sizes = [size for _, size in answer["blocks"]] if request["op"] == "read" else []
                return answer, [self._take(size) for size in sizes]
            except OSError as error:
                raise TransportError("tcp.lost", f"the connection is lost: {error}") from error

    def _take(self, size: int) -> bytes:
        return _receive(self._socket, size)


def open_client(options: ClientOptions) -> FakeClient:
    return FakeClient(options)


def open_local(options: ClientOptions) -> "FakeSink":
    sink = _local[options.sink]
    sink.opened += 1
    return sink


def refuse(options: ClientOptions) -> "FakeSink":
    raise HandshakeError("noise.refused", "the node refuses this key")


def _options(url: str, sink: str, client: str) -> ClientOptions:
    return ClientOptions(
        url=url, node_identity="00" * 32, key_file="/nonexistent/job.key", sink=sink, client=client
    )


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    sink: FakeSink


class _Handler(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        sink = cast("_Server", self.server).sink
        connection = cast("socket.socket", self.request)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            while True:
                size = _LENGTH.unpack(_receive(connection, 4))[0]
                answer, values = _answer(sink, json.loads(_receive(connection, size)))
                text = json.dumps(answer).encode()
                connection.sendall(b"".join((_LENGTH.pack(len(text)), text)))
                for value in values:
                    connection.sendall(value)
        except OSError:
            return


def _answer(sink: FakeSink, request: dict[str, Any]) -> tuple[object, list[bytes]]:
    match request["op"]:
        case "ends":
            return [[*key, *ends] for key, ends in sink.ends().items()], []
        case "consumers":
            return {
                name: [[*key, index] for key, index in positions.items()]
                for name, positions in sink.consumers().items()
            }, []
        case "created":
            return sink.created(), []
        case "read":
            first, blocks = sink.read(Range(*request["range"]), request["bytes_max"])
            headers = [[block.first_index, len(block.value)] for block in blocks]
            return {"first": first, "blocks": headers}, [block.value for block in blocks]
        case "commit":
            sink.commit(Offset.from_json(request["offset"], "a commit"))
        case _:
            sink.report(request["progress"])
    return {}, []


def _receive(connection: socket.socket, size: int) -> bytes:
    buffer = bytearray(size)
    view = memoryview(buffer)
    while view:
        count = connection.recv_into(view)
        if not count:
            raise ConnectionResetError("closed by the other side")
        view = view[count:]
    return bytes(buffer)


def _first_index(block: Block) -> int:
    return block.first_index


def job_settings(options: ClientOptions) -> dict[str, Any]:
    """How a job's configuration says what a connection's options say."""
    names = ("sink", "url", "node_identity", "key_file", "client")
    return {name: getattr(options, name) for name in names}
