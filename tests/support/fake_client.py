"""A client without a node, and a terminal without a screen, for tests of the command line."""

import asyncio
import io
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from rillnode.actors.log import Retention
from rillnode.codecs.entries import Entry, EntryKind
from rillnode.codecs.errors import ActorError, RequestError, RillnodeError
from rillnode.codecs.keyed import Headers, Key, encode_headers, encode_key, partition_of
from rillnode.codecs.routing.routes import Route
from rillnode.codecs.times import Time, milliseconds_of
from rillnode.codecs.where import Where
from rillnode.node.cli.terminal import Terminal
from rillnode.node.client import Answer, GroupInfo, PartitionInfo, SavedIndex, StreamInfo
from rillnode.node.client.stream import Start

RECEIVED_AT = 1_800_000_000_250
RECEIVED_TEXT = "2027-01-15T08:00:00.250Z"


class FakeStream:
    """A stream in memory; `refuse` is the data that it takes no entry with.

    The last entry came now, and each `step_ms` after the one before.
    """

    step_ms = 0

    def __init__(self, name: str, partitions: int, refuse: bytes | None = None) -> None:
        self.name = name
        self.partitions = partitions
        self.logs: list[list[bytes]] = [[] for _ in range(partitions)]
        self.beside: dict[bytes, tuple[Key | None, Headers | None]] = {}
        self.refuse = refuse
        self.unconfirmed_max = 0
        self._unconfirmed = 0

    def partition_of(self, key: Key | None) -> int:
        return 0 if key is None else partition_of(encode_key(key), self.partitions)

    def push_nowait(
        self,
        data: bytes,
        *,
        key: Key | None = None,
        headers: Headers | None = None,
        partition: int = 0,
    ) -> asyncio.Future[int]:
        if key is not None or headers is not None:
            self.beside[data] = key, headers
        if partition >= self.partitions:
            raise RequestError("stream.partition", f"no partition {partition}")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[int] = loop.create_future()
        self._unconfirmed += 1
        self.unconfirmed_max = max(self.unconfirmed_max, self._unconfirmed)
        loop.call_soon(self._confirm, data, partition, future)
        return future

    def _confirm(self, data: bytes, partition: int, future: asyncio.Future[int]) -> None:
        self._unconfirmed -= 1
        if data == self.refuse:
            future.set_exception(RequestError("entries.size", "too large"))
            return
        self.logs[partition].append(data)
        future.set_result(len(self.logs[partition]) - 1)

    async def index_at(self, time: Time, *, partition: int = 0) -> int:
        milliseconds, ago = milliseconds_of(time)
        at_ms = RECEIVED_AT - milliseconds if ago else milliseconds
        entries = self.entries(partition)
        return len([entry for entry in entries if entry.received_at < at_ms])

    async def pull(
        self,
        index: int = 0,
        limit: int = 100,
        *,
        until: int | None = None,
        where: str = "",
        partition: int = 0,
    ) -> list[Entry]:
        entries = self.entries(partition)[index:until]
        return [entry for entry in entries if not where or Where(where).matches(entry)][:limit]

    async def batches(
        self,
        *,
        start: Start = "start",
        where: str = "",
        partitions: Sequence[int] | None = None,
    ) -> AsyncGenerator[list[Entry]]:
        for partition in range(self.partitions) if partitions is None else partitions:
            entries = self.entries(partition)
            if isinstance(start, str):
                first = 0 if start == "start" else len(entries)
            elif isinstance(start, int):
                first = start
            else:
                first = await self.index_at(start, partition=partition)
            found = [one for one in entries[first:] if not where or Where(where).matches(one)]
            if found:
                yield found
        await asyncio.Event().wait()

    def entries(self, partition: int) -> list[Entry]:
        entries: list[Entry] = []
        last = len(self.logs[partition]) - 1
        for index, data in enumerate(self.logs[partition]):
            key, headers = self.beside.get(data, (None, None))
            pushed_key = None if key is None else encode_key(key)
            beside = b"", pushed_key, encode_headers(headers or {})
            at = RECEIVED_AT - self.step_ms * (last - index)
            entries.append(Entry(partition, index, at, EntryKind.BYTES, data, *beside))
        return entries


@dataclass
class FakeClient:
    """A client for the command line; `failure` is raised by every request."""

    held: dict[str, FakeStream] = field(default_factory=dict[str, FakeStream])
    positions: dict[tuple[str, str, int], int] = field(
        default_factory=dict[tuple[str, str, int], int]
    )
    consumer_groups: list[GroupInfo] = field(default_factory=list[GroupInfo])
    failure: BaseException | None = None
    on_disconnect: Callable[[str], object] | None = None
    on_reconnect: Callable[[], object] | None = None
    connected_to: dict[str, Any] = field(default_factory=dict[str, Any])
    sent: list[tuple[Route, bytes]] = field(default_factory=list[tuple[Route, bytes]])
    answer: Answer | None = None
    peers: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    sinks: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])

    async def connect(
        self,
        url: str,
        *,
        on_disconnect: Callable[[str], object] | None = None,
        on_reconnect: Callable[[], object] | None = None,
        **options: Any,
    ) -> Self:
        self.on_disconnect, self.on_reconnect = on_disconnect, on_reconnect
        self.connected_to = {"url": url, **options}
        if isinstance(self.failure, RillnodeError) and self.failure.code.startswith("link."):
            raise self.failure
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    def add(self, name: str, *logs: list[bytes]) -> FakeStream:
        stream = self.held[name] = FakeStream(name, len(logs))
        stream.logs = list(logs)
        return stream

    async def stream(self, name: str, *, partitions: int = 1) -> FakeStream:
        self._check()
        return self.held.setdefault(name, FakeStream(name, partitions))

    async def describe(self, name: str) -> StreamInfo:
        self._check()
        if name not in self.held:
            raise RequestError("stream.unknown", "No such stream, or it is not yours")
        stream = self.held[name]
        partitions = [
            PartitionInfo(at, f"STR_{at}", 0, len(log), sum(map(len, log)))
            for at, log in enumerate(stream.logs)
        ]
        return StreamInfo(name, partitions, Retention(seconds=60.0), RECEIVED_AT, "noise:aa")

    async def streams(self, prefix: str = "") -> list[StreamInfo]:
        self._check()
        return [await self.describe(name) for name in sorted(self.held) if name.startswith(prefix)]

    async def iterate_streams(self, prefix: str = "") -> AsyncGenerator[StreamInfo]:
        for info in await self.streams(prefix):
            yield info

    async def trim(self, name: str, *, partition: int = 0, before: int) -> int:
        self._check()
        return min(before, len(self.held[name].logs[partition]))

    async def remove(self, name: str) -> None:
        self._check()
        if self.held.pop(name, None) is None:
            raise RequestError("stream.unknown", "No such stream, or it is not yours")

    async def indexes(self, stream: str = "") -> list[SavedIndex]:
        self._check()
        return [
            SavedIndex(name, partition, client, index, 10 if name in self.held else None)
            for (client, name, partition), index in self.positions.items()
            if stream in ("", name)
        ]

    async def groups(self, stream: str = "") -> list[GroupInfo]:
        self._check()
        return [one for one in self.consumer_groups if stream in ("", one.stream)]

    async def get_index(self, client_id: str, stream: str, *, partition: int = 0) -> int | None:
        self._check()
        return self.positions.get((client_id, stream, partition))

    async def set_index(
        self, client_id: str, stream: str, index: int, *, partition: int = 0
    ) -> int:
        self._check()
        key = (client_id, stream, partition)
        self.positions[key] = max(index, self.positions.get(key, 0))
        return self.positions[key]

    async def status(self) -> dict[str, Any]:
        self._check()
        return {
            "name": "a",
            "store": {"writable": True},
            "checks": [{"name": "store", "ok": True}],
            "listeners": {"noise": {"address": "127.0.0.1:1", "links": 2}},
            "actors": {"rillnode.actors.x.StreamActor": {"cells": 5, "handled": 7_000}},
            "peers": self.peers,
            "sinks": self.sinks,
        }

    async def run_sink(self, name: str, *, run: bool) -> None:
        self._check()
        if name not in self.sinks:
            raise RequestError("address.unknown", "No such address, or it is not yours to use")
        self.sinks[name]["state"] = "running" if run else "paused"

    async def send(self, route: Route, payload: bytes) -> None:
        self._check()
        self.sent.append((route, payload))

    async def ask(self, route: Route, payload: bytes, *, timeout_seconds: float) -> Answer:
        await self.send(route, payload)
        if self.answer is None:
            raise ActorError("message.timeout", f"nothing has come back in {timeout_seconds:g} s")
        return self.answer

    async def ping(self, peer: str, *, timeout_seconds: float) -> float:
        self._check()
        if peer not in self.peers:
            raise RequestError("address.unknown", "No such address, or it is not yours to use")
        return 0.0123456

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure


class _Screen(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


class _Keyboard(io.BytesIO):
    def isatty(self) -> bool:
        return True


_OWN: Final = {name: os.environ[name] for name in ("XDG_CONFIG_HOME", "XDG_RUNTIME_DIR")}
"""Where no test finds the contexts of whoever runs it."""


class Screen:
    """A terminal to run a command at, and what it wrote."""

    def __init__(
        self, stdin: bytes = b"", *, tty: bool = False, environ: dict[str, str] | None = None
    ) -> None:
        wrapper = _Screen if tty else io.TextIOWrapper
        self._out, self._err = io.BytesIO(), io.BytesIO()
        self.terminal = Terminal(
            stdin=(_Keyboard if tty else io.BytesIO)(stdin),
            out=wrapper(self._out, encoding="utf-8", newline=""),
            err=wrapper(self._err, encoding="utf-8", newline=""),
            environ={"COLUMNS": "100", **_OWN, **(environ or {})},
        )

    @property
    def out(self) -> str:
        return self.out_bytes.decode()

    @property
    def out_bytes(self) -> bytes:
        self.terminal.out.flush()
        return self._out.getvalue()

    @property
    def err(self) -> str:
        self.terminal.err.flush()
        return self._err.getvalue().decode()
