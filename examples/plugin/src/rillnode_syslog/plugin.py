"""The plug-in: two listeners, and the actor that pushes what they take."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from functools import partial
from typing import Any, ClassVar, cast

import msgspec

from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.codecs.errors import RillnodeError, TransportError
from rillnode.node.client.stream import Stream
from rillnode.node.plugin import (
    Check,
    Column,
    Core,
    Described,
    Host,
    Listening,
    PageTable,
    PlugIn,
    Sample,
)
from rillnode_syslog.config import SyslogTable
from rillnode_syslog.messages import MESSAGE_BYTES_MAX, Frames, SyslogError, record_of

WAITING_MAX = 10_000
"""Messages that may wait for the store; what comes above them is dropped and counted."""


class Pushed(msgspec.Struct, frozen=True):
    """Messages to be pushed, in the order in which they came."""

    records: Sequence[bytes]


class PushingActor(Worker):
    """Pushes messages one batch after the other; the next wait in its mailbox."""

    def __init__(self, plug_in: "Syslog") -> None:
        self._plug_in = plug_in
        self._stream: Stream | None = None

    async def handle(self, message: Pushed, sender: Cell | None) -> None:
        """Push; there is nobody to tell of a failure, so it is counted."""
        counts, number = self._plug_in.counts, len(message.records)
        try:
            if self._stream is None:
                self._stream = await self._plug_in.open_stream()
            await self._stream.push_many(message.records)
            counts["stored"] += number
        except RillnodeError as error:
            self._plug_in.trouble = str(error)
            counts["lost"] += number
        else:
            self._plug_in.trouble = ""
        finally:
            self._plug_in.waiting -= number


class Syslog(PlugIn):
    """The plug-in of `[syslog]`."""

    metrics: ClassVar[Sequence[Described]] = (
        Described(
            "rillnode_syslog_messages_total", "counter", ("outcome",),
            "Syslog messages: stored, malformed, dropped as too many waited, lost.",
        ),
    )  # fmt: skip

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._table = host.table(SyslogTable)
        self.counts: Counter[str] = Counter()
        self.waiting = 0
        self.trouble = ""

    def start(self, core: Core) -> None:
        """Make the actor."""
        self._core = core
        self._actor = core.streams.system.spawn(partial(core.actor(PushingActor), self))

    async def serve(self, bound: MutableMapping[str, Listening]) -> None:
        """Bind both ports."""
        listener = Listener(self)
        try:
            await listener.bind(*self._table.address)
        except OSError as error:
            listener.stop_accepting()
            text = f"[syslog] cannot listen on {self._table.listen}: {error}"
            raise TransportError("listen.failed", text) from error
        bound["syslog"] = listener

    def status(self) -> dict[str, Any]:
        """How many messages became what."""
        return {"syslog": {"stream": self._table.stream, "counters": dict(self.counts)}}

    @property
    def page_tables(self) -> Sequence[PageTable]:
        """The same on the status page."""
        columns = (Column("outcome"), Column("messages", "count"))
        return (PageTable("messages", "Syslog", columns, self._rows, "No message has come yet."),)

    def _rows(self) -> list[dict[str, Any]]:
        return [{"outcome": name, "messages": count} for name, count in self.counts.items()]

    def checks(self) -> Iterator[Check]:
        """Whether the last messages were stored."""
        yield Check("syslog", not self.trouble, self.trouble)

    def samples(self) -> Mapping[str, Sequence[Sample]]:
        """The values of `metrics`."""
        rows = [((outcome,), float(count)) for outcome, count in self.counts.items()]
        return {"rillnode_syslog_messages_total": rows}

    async def open_stream(self) -> Stream:
        """The stream, made where it is not there."""
        return await self._core.client().stream(self._table.stream)

    def take(self, lines: Sequence[bytes]) -> None:
        """Take messages of the listeners."""
        records: list[bytes] = []
        for line in lines:
            try:
                record = record_of(line)
            except SyslogError:
                self.counts["malformed"] += 1
                continue
            if self.waiting + len(records) >= WAITING_MAX:
                self.counts["dropped"] += 1
                continue
            records.append(msgspec.json.encode(record))
        if records:
            self.waiting += len(records)
            self._core.streams.system.post(self._actor, Pushed(records))


class Listener:
    """Both ports: the node shows them as one, and ends them when it stops."""

    group = None

    def __init__(self, plug_in: Syslog) -> None:
        self.plug_in = plug_in
        self.counters = Counter[str]()
        self.open: set[asyncio.BaseTransport] = set()
        self.address = ""
        self._server: asyncio.Server | None = None

    async def bind(self, host: str, port: int) -> None:
        """Bind the port of TCP, and that of UDP with the same number."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(partial(Connection, self), host, port)
        host, port = self._server.sockets[0].getsockname()[:2]
        await loop.create_datagram_endpoint(partial(Datagrams, self), local_addr=(host, port))
        self.address = f"{host}:{port}"

    @property
    def link_count(self) -> int:
        """How many connections there are; the port of UDP is one."""
        return len(self.open)

    def stop_accepting(self) -> None:
        """Take nothing more; what was taken is pushed while the node drains."""
        if self._server is not None:
            self._server.close()
        for transport in tuple(self.open):
            transport.close()

    async def close(self) -> None:
        """There is nothing left."""


class Datagrams(asyncio.DatagramProtocol):
    """UDP: a datagram is a message (RFC 5426)."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is bound."""
        self._listener.open.add(transport)

    def datagram_received(self, data: bytes, addr: object) -> None:
        """Take one."""
        self._listener.plug_in.take([data[:MESSAGE_BYTES_MAX].rstrip(b"\n\0")])


class Connection(asyncio.Protocol):
    """One TCP connection."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._frames = Frames()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are not of this class
        self._listener.open.add(transport)

    def data_received(self, data: bytes) -> None:
        """Take what has come; who sends no syslog is disconnected."""
        lines: list[bytes] = []
        try:
            for line in self._frames.take(data):
                lines.append(line)
        except SyslogError:
            self._listener.counters["syslog.malformed"] += 1
            self._transport.close()
        self._listener.plug_in.take(lines)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._listener.open.discard(self._transport)
