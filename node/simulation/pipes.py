"""Simulated TCP connections: bytes in order, late, within a window, or cut off.

A connection is two pipes. What is written becomes segments, which the network delays; a segment
that is lost, overtaken or doubled on the way shows as delay only, as TCP sees to. Where the way is
blocked, segments wait and are sent again when it is open.
"""

import asyncio
import socket
from collections.abc import Callable
from enum import Enum
from random import Random
from typing import Any, Final, Protocol

from rillnode.node.simulation.loop import Life, ProcessLoop

SEGMENT_BYTES: Final = 65_536
"""What travels and is read at once; asyncio reads 256 KiB at most."""

WINDOW_BYTES: Final = 262_144
"""Bytes of one direction that were sent and not read: both sockets' buffers."""

_TIMES: Final = {"TCP_KEEPIDLE": 7_200, "TCP_KEEPINTVL": 75, "TCP_KEEPCNT": 9}
"""What systems do by default: seconds before the first probe, seconds between others, how many."""


class Sign(Enum):
    """A sign that travels beside bytes."""

    OPEN = "open"
    END = "end"
    RESET = "reset"


Item = bytes | Sign


class Carrier(Protocol):
    """The part of a network that a pipe needs."""

    def random(self, purpose: str) -> Random:
        """A source of chance of its own for each purpose."""
        ...

    def arrival(self, pipe: "Pipe", size: int) -> float:
        """When a segment that is sent now arrives."""
        ...

    def carry(self, pipe: "Pipe", when: float, arrive: Callable[[], object]) -> None:
        """Call `arrive` then, in the receiver's process where it runs, or without."""
        ...

    def later(self, seconds: float, callback: Callable[[], object]) -> None:
        """Call something of an operating system's, whether its processes run or not."""
        ...

    def blocked_way(self, source: str, target: str) -> bool:
        """Whether nothing gets through."""
        ...

    def blocked(self, pipe: "Pipe") -> bool:
        """Whether nothing gets through now; the pipe is told by `Pipe.unblocked`."""
        ...

    def sent(self, pipe: "Pipe", data: bytes) -> None:
        """A process has handed over bytes."""
        ...

    def delivered(self, pipe: "Pipe", data: bytes) -> bytes:
        """Bytes arrive; what of them the receiver is to see."""
        ...


class Pipe:
    """One direction of a connection.

    Attributes:
        carrier: the network that it is in.
        source: name of the host that sends.
        target: name of the host that receives.
        port: which of the dialled side the connection is to.
        dialling: whether the source is the side that has dialled.
        way_seconds: what a segment needs at least, from the sender's call to the receiver.
        last: the bytes that were delivered last, where somebody may replay them.
    """

    # Slots, here and below: thousands of nodes have tens of thousands of connections.
    __slots__ = (
        "_items",
        "_number",
        "_random",
        "_under_way",
        "carrier",
        "dialling",
        "last",
        "port",
        "receiver",
        "sender",
        "source",
        "target",
        "unread_bytes",
        "way_seconds",
    )

    sender: "StreamTransport"
    receiver: "StreamTransport"

    def __init__(
        self,
        carrier: Carrier,
        source: str,
        target: str,
        port: int,
        number: int,
        *,
        dialling: bool,
        way_seconds: float,
    ) -> None:
        self.source = source
        self.target = target
        self.port = port
        self.dialling = dialling
        self.way_seconds = way_seconds
        self.last = b""
        self.carrier = carrier
        self._number = number
        self._random: Random | None = None
        # A list, as those below: the window keeps it short, and an empty deque takes 760 bytes;
        # and none while there is nothing in it, as mostly.
        self._items: list[tuple[float, Item]] | tuple[()] = ()
        self._under_way = False
        self.unread_bytes = 0

    @property
    def random(self) -> Random:
        """Decides what happens to its segments, apart from all other pipes; made when needed."""
        if self._random is None:
            self._random = self.carrier.random(f"{self.source}>{self.target} {self._number}")
        return self._random

    def send(self, item: Item) -> None:
        """Send what has room in the window."""
        if not hasattr(self, "receiver"):
            return  # given up before the other side has heard of it: there is nobody to tell
        size = 0
        if isinstance(item, bytes):
            size = len(item)
            self.unread_bytes += size
            self.carrier.sent(self, item)
        if self._items:
            self._items.append((self.carrier.arrival(self, size), item))
        else:
            self._items = [(self.carrier.arrival(self, size), item)]
        if not self._under_way:
            self._go_on()

    def unblocked(self) -> None:
        """Send again what was stopped."""
        self._under_way = False
        self._go_on()

    def _go_on(self) -> None:
        if self._items:
            self._under_way = True
            self.carrier.carry(self, self._items[0][0], self._arrive)

    def _arrive(self) -> None:
        if self.carrier.blocked(self):
            return
        self._under_way = False
        assert self._items, "what arrives is its first"
        item = self._items.pop(0)[1]
        if self._items:
            self._go_on()
        else:
            self._items = ()
        if isinstance(item, bytes):
            seen = self.carrier.delivered(self, item)
            self.receiver.segment_arrived(seen, len(item))
        else:
            self.receiver.sign_arrived(item)


class StreamTransport(asyncio.Transport):
    """One end of a connection, as a protocol sees it; its calls are on its process's loop."""

    __slots__ = (
        "_address",
        "_arrived",
        "_buffer",
        "_buffered",
        "_closing",
        "_factory",
        "_gone",
        "_high",
        "_low",
        "_opened",
        "_out",
        "_protocol",
        "_reading_paused",
        "_writing_paused",
        "loop",
        "peer",
    )

    _protocol: asyncio.Protocol

    def __init__(self, loop: ProcessLoop, out: Pipe, address: tuple[str, int]) -> None:
        self._address = address
        self.loop = loop
        self.peer: StreamTransport
        self._out = out
        # Few connections have a full window, or a reader that pauses.
        self._buffer: list[bytes] | tuple[()] = ()
        self._buffered = 0
        self._high, self._low = 65_536, 16_384
        self._writing_paused = False
        self._reading_paused = False
        self._arrived: list[tuple[bytes | Sign, int]] | tuple[()] = ()
        self._closing = False
        self._gone = False
        self._opened: asyncio.Future[None] | None = None  # while it waits for the other side
        self._factory: Callable[[], asyncio.BaseProtocol]  # likewise
        loop.sockets[self] = None

    @property
    def way(self) -> Pipe:
        """What its writes go into."""
        return self._out

    @property
    def gone(self) -> bool:
        """Whether its process knows nothing of it any more."""
        return self._gone

    # Opening ---------------------------------------------------------------------------------

    def open(self, factory: Callable[[], asyncio.BaseProtocol]) -> asyncio.BaseProtocol:
        """Make the protocol and let it begin."""
        protocol = factory()
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol
        protocol.connection_made(self)
        return protocol

    def open_when_answered(
        self, factory: Callable[[], asyncio.BaseProtocol]
    ) -> "asyncio.Future[None]":
        """Open when the other side says so; the future fails when it refuses."""
        self._factory = factory
        self._opened = self.loop.create_future()
        return self._opened

    @property
    def opening(self) -> bool:
        """Whether the other side has not answered, and still may."""
        return not self._gone and self._opened is not None and not self._opened.done()

    # What the protocol calls -------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """The other side's address, `peername`, and a `socket` that takes options."""
        if name == "socket":
            return ProbingSocket(self._out.carrier, self)
        return self._address if name == "peername" else default

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes, or keep them while the window is full."""
        if self._closing or self._gone or not data:
            return
        whole, out = bytes(data), self._out
        if not self._buffer and len(whole) <= SEGMENT_BYTES and out.unread_bytes < WINDOW_BYTES:
            out.send(whole)
            return
        if not self._buffer:
            self._buffer = []
        for at in range(0, len(whole), SEGMENT_BYTES):
            self._buffer.append(whole[at : at + SEGMENT_BYTES])
        self._buffered += len(whole)
        self._push()
        if self._buffered > self._high and not self._writing_paused:
            self._writing_paused = True
            self._protocol.pause_writing()

    def get_protocol(self) -> asyncio.BaseProtocol:
        """The protocol, once open."""
        return self._protocol

    def get_write_buffer_size(self) -> int:
        """Bytes that did not fit in the window."""
        return self._buffered

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the marks at which the protocol is told."""
        self._high = 65_536 if high is None else high
        self._low = self._high // 4 if low is None else low

    def pause_reading(self) -> None:
        """Take nothing more; idempotent."""
        self._reading_paused = True

    def resume_reading(self) -> None:
        """Read on; idempotent."""
        if self._reading_paused:
            self._reading_paused = False
            if self._arrived:
                self.loop.call_soon(self._read)

    def is_closing(self) -> bool:
        """Whether it is closing or gone."""
        return self._closing or self._gone

    def close(self) -> None:
        """Close once the buffer is empty."""
        if not self._closing and not self._gone:
            self._closing = True
            self._push()

    def abort(self) -> None:
        """Close now; what is buffered is lost."""
        self._end(None, tell=Sign.RESET)

    # What pipes call -----------------------------------------------------------------------------

    def segment_arrived(self, data: bytes, size: int) -> None:
        """Take a segment of `size` bytes, of which the receiver sees `data`."""
        if self._gone:
            self._out.send(Sign.RESET)
        elif self._arrived or self._reading_paused or self.loop.life is not Life.RUNNING:
            self._keep(data, size)
            if len(self._arrived) == 1 and not self._reading_paused:
                self.loop.call_soon(self._read)
        else:
            self._take(data, size)

    def _keep(self, item: bytes | Sign, size: int) -> None:
        """Let what has arrived wait until the process reads it."""
        if self._arrived:
            self._arrived.append((item, size))
        else:
            self._arrived = [(item, size)]

    def sign_arrived(self, sign: Sign) -> None:
        """Take what is not bytes."""
        match sign:
            case Sign.OPEN:
                self.loop.call_soon(self._answered)
            case Sign.END:
                self._keep(sign, 0)
                self.loop.call_soon(self._read)
            case Sign.RESET:
                self.loop.call_soon(self.reset)

    def reset(self) -> None:
        """The other side knows nothing of this connection."""
        if self._opened is not None:  # no protocol knows of it yet
            if self.opening:
                self._opened.set_exception(ConnectionRefusedError("nothing listens there"))
            self._forget()
        else:
            self._end(ConnectionResetError("reset by the peer"), tell=None)

    def die(self, *, tell: bool) -> None:
        """The process is no more; its operating system tells the other side, if it lives."""
        if self._gone:
            return
        tell = tell and not self.opening
        self._gone = True
        if tell:
            self._out.send(Sign.RESET)

    # Inside --------------------------------------------------------------------------------------

    def _answered(self) -> None:
        if self._opened is None or self._opened.done():  # given up meanwhile
            self._forget()
            self._out.send(Sign.RESET)
            return
        self.open(self._factory)
        self._opened.set_result(None)
        self._opened = None
        del self._factory

    def _push(self) -> None:
        out, buffer = self._out, self._buffer
        while buffer and out.unread_bytes < WINDOW_BYTES:
            segment = buffer.pop(0)
            self._buffered -= len(segment)
            out.send(segment)
        if self._writing_paused and self._buffered <= self._low:
            self._writing_paused = False
            self.loop.call_soon(self._resume_writing)
        if self._closing and not buffer:
            self._end(None, tell=Sign.END)

    def _resume_writing(self) -> None:
        if not self._gone:
            self._protocol.resume_writing()

    def _read(self) -> None:
        if not self._arrived or self._reading_paused or self._gone:
            return
        item, size = self._arrived.pop(0)
        if isinstance(item, Sign):
            if not self._protocol.eof_received():
                self.close()
            return
        self._take(item, size)
        if self._arrived:
            self.loop.call_soon(self._read)

    def _take(self, data: bytes, size: int) -> None:
        """Have the process read a segment."""
        self.peer.taken(size)
        if data:
            self._protocol.data_received(data)

    def taken(self, size: int) -> None:
        """The other side has read; there is room in the window."""
        self._out.unread_bytes -= size
        if self._buffer and not self._gone:
            self.loop.call_soon(self._push_more)

    def _push_more(self) -> None:
        if not self._gone:
            self._push()

    def _end(self, error: Exception | None, *, tell: Sign | None) -> None:
        if self._gone:
            return
        self._forget()
        self._buffer = self._arrived = ()
        self._buffered = 0
        if tell is not None:
            self._out.send(tell)
        self.loop.call_soon(self._protocol.connection_lost, error)

    def _forget(self) -> None:
        self._gone = True
        self.loop.sockets.pop(self, None)


class ProbingSocket:
    """The socket of a connection, as far as there is one; of its options it knows keep-alive.

    It probes whether the peer is silent or not, as an answer says nothing to anybody.

    Args:
        network: that the connection is in.
        transport: the connection.
    """

    __slots__ = ("_missed", "_network", "_times", "_transport")
    family: Final = socket.AF_UNSPEC

    def __init__(self, network: Carrier, transport: StreamTransport) -> None:
        self._network = network
        self._transport = transport
        self._times = dict(_TIMES)
        self._missed = 0

    def setsockopt(self, level: int, option: int, value: int) -> None:
        """Set an option: those that are not about probes change nothing."""
        if (level, option) == (socket.SOL_SOCKET, socket.SO_KEEPALIVE) and value:
            # When it is to begin with may be said after that.
            self._network.later(0.0, self._wait)
        for name in self._times:
            if (level, option) == (socket.IPPROTO_TCP, getattr(socket, name, None)):
                self._times[name] = value

    def getsockopt(self, *_: object) -> bytes:
        """Tell nothing."""
        return b""

    def _wait(self) -> None:
        seconds = self._times["TCP_KEEPINTVL" if self._missed else "TCP_KEEPIDLE"]
        self._network.later(seconds, self._probe)

    def _probe(self) -> None:
        """Ask whether the peer knows of the connection; end it where nobody answers for long."""
        transport, way = self._transport, self._transport.way
        if transport.gone:
            return
        network, there = self._network, (way.source, way.target)
        if not network.blocked_way(*there) and not network.blocked_way(*there[::-1]):
            self._missed = 0
            if transport.peer.gone:
                transport.sign_arrived(Sign.RESET)
                return
        else:
            self._missed += 1
            if self._missed > self._times["TCP_KEEPCNT"]:
                transport.sign_arrived(Sign.RESET)
                return
        self._wait()
