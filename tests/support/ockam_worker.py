"""Workers of released Ockam nodes, that ask and are asked.

`HandWorker` says byte for byte what a level says; what it takes of rillnode are the codecs of wire
messages. `ElixirWorker` drives released code, where `RILLNODE_OCKAM_ELIXIR` names a directory with
a folder for each level, in which its compiled modules and those that it needs lie.
"""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol, Self

from channel_peer import ChannelPeer
from ockam_2024_peer import Ockam2024Peer
from ockam_peer import OckamPeer
from rillnode.codecs.routing.dialects import Dialect
from rillnode.codecs.routing.routes import (
    Route,
    WireMessage,
    decode_message,
    encode_message,
    local,
)

SECONDS: Final = 30.0

ChannelLevel = Literal["elixir-2021", "2022"]

_DRIVER: Final = Path(__file__).parents[1] / "ockam" / "released" / "worker.exs"
RELEASED: Final = os.environ.get("RILLNODE_OCKAM_ELIXIR", "")


@dataclass(frozen=True, slots=True)
class Level:
    """A release: how it frames, and its channels; those of 2024 need what only Rust has."""

    name: str
    dialect: Dialect
    channel: ChannelLevel | None
    named_aliases: bool

    def __str__(self) -> str:
        return self.name


LEVELS: Final = (
    Level("2021", "u16", "elixir-2021", named_aliases=False),
    Level("2022", "u16", "2022", named_aliases=True),
    Level("2024", "2024", None, named_aliases=False),
)


class Worker(Protocol):
    """A node with a worker `shout`, which answers in capitals, and the hub's services.

    Hops are names of its workers, or host:port of another node.
    """

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...

    async def listen(self) -> str:
        """Listen, and tell where."""
        ...

    async def ask(self, *words: str) -> str:
        """Send the last word along the others; return what comes back."""
        ...

    async def channel(self, *words: str) -> str:
        """The same, in a secure channel to the first hop."""
        ...

    async def register(self, *hops: str) -> str:
        """Have a forwarding service make an alias for `shout`; return it."""
        ...


class ElixirWorker:
    """Released code in a process of its own; see `worker.exs`."""

    def __init__(self, level: Level) -> None:
        self._level = level

    async def __aenter__(self) -> Self:
        paths = [path for folder in ebins(self._level) for path in ("-pa", str(folder))]
        self._process = await asyncio.create_subprocess_exec(
            "elixir", *paths, _DRIVER, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert await self._line() == "ready"
        return self

    async def __aexit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    async def listen(self) -> str:
        return f"127.0.0.1:{await self._command('listen')}"

    async def ask(self, *words: str) -> str:
        return await self._command("ask", *words)

    async def channel(self, *words: str) -> str:
        return await self._command("channel", *words)

    async def register(self, *hops: str) -> str:
        return await self._command("register", *hops)

    async def _command(self, *words: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(words).encode() + b"\n")
        return await self._line()

    async def _line(self) -> str:
        """The next answer; what a release logs beside them is passed over."""
        assert self._process.stdout is not None
        async with asyncio.timeout(SECONDS):
            while line := await self._process.stdout.readline():
                if line.startswith(b"= "):
                    return line[2:].decode().strip()
        raise AssertionError("the worker has ended")


class HandWorker:
    """A hand-written worker of such a node."""

    def __init__(self, level: Level) -> None:
        self._level = level
        self._kind = OckamPeer if level.dialect == "u16" else Ockam2024Peer
        self._tasks: set[asyncio.Task[None]] = set()
        self._links: dict[bytes, OckamPeer] = {}
        self._workers: dict[bytes, Callable[[WireMessage], None]] = {
            b"shout": self._shout,
            b"forwarding": self._forwarding,
            b"SC_listener": self._open_channel,
        }
        if level.named_aliases:
            self._workers[b"static_forwarding"] = self._static_forwarding
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        for link in tuple(self._links.values()):
            link.writer.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def listen(self) -> str:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._attach(self._kind(reader, writer))

        self._server = await asyncio.start_server(accept, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        return f"{host}:{port}"

    async def ask(self, *words: str) -> str:
        route = await self._route(words[:-1])
        message = await self._ask(route, words[-1].encode(), self._fresh())
        return message.payload.decode()

    async def channel(self, *words: str) -> str:
        assert self._level.channel is not None
        end = ChannelPeer(self._level.channel)
        way = (*await self._route(words[:1]), local("SC_listener"))
        own = self._fresh()
        second = await self._ask(way, end.message_1(), own)
        self._send(second.return_route, own, end.message_3(second.payload, b"0" * 16))
        inner = encode_message(tuple(map(local, words[1:-1])), (local("app"),), words[-1].encode())
        sealed = await self._ask(second.return_route, end.seal(inner), own)
        return decode_message(end.open(sealed.payload)).payload.decode()

    async def register(self, *hops: str) -> str:
        came: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def first(wire: WireMessage) -> None:
            self._workers[b"shout"] = self._shout
            came.set_result(wire.return_route[-1].value.decode())

        self._workers[b"shout"] = first
        self._send(await self._route(hops), b"shout", b"register")
        async with asyncio.timeout(SECONDS):
            return await came

    # Routing ---------------------------------------------------------------------------------

    async def _route(self, hops: tuple[str, ...]) -> Route:
        """A route whose hops with a port are connections, dialled anew for each message."""
        route: list[bytes] = []
        for hop in hops:
            known = ":" in hop and self._attach(await self._kind.connect(hop))
            route.append(known or hop.encode())
        return tuple(map(local, route))

    def _attach(self, link: OckamPeer) -> bytes:
        address = self._fresh()
        self._links[address] = link
        self._workers[address] = lambda wire: self._write(link, wire)
        task = asyncio.get_running_loop().create_task(self._read(address, link))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return address

    async def _read(self, address: bytes, link: OckamPeer) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                wire = await link.receive(600.0)
                back = (local(address), *wire.return_route)
                self._deliver(wire._replace(return_route=back))

    def _write(self, link: OckamPeer, wire: WireMessage) -> None:
        rest = wire.onward_route[1:]
        if isinstance(link, Ockam2024Peer):
            link.send_frame(link.wire.encode(wire._replace(onward_route=rest)))
        else:
            link.send_frame(encode_message(rest, wire.return_route, wire.payload))

    def _deliver(self, wire: WireMessage) -> None:
        worker = self._workers.get(wire.onward_route[0].value) if wire.onward_route else None
        if worker is not None:
            worker(wire)

    def _send(self, onward: Route, own: bytes, payload: bytes) -> None:
        self._deliver(WireMessage(onward, (local(own),), payload))

    async def _ask(self, onward: Route, payload: bytes, own: bytes) -> WireMessage:
        came: asyncio.Future[WireMessage] = asyncio.get_running_loop().create_future()
        self._workers[own] = came.set_result
        self._send(onward, own, payload)
        try:
            async with asyncio.timeout(SECONDS):
                return await came
        finally:
            del self._workers[own]

    @staticmethod
    def _fresh() -> bytes:
        return os.urandom(8).hex().encode()

    # Workers ---------------------------------------------------------------------------------

    def _shout(self, wire: WireMessage) -> None:
        self._send(wire.return_route, b"shout", wire.payload.upper())

    def _forwarding(self, wire: WireMessage) -> None:
        self._alias(b"FWD_" + self._fresh(), wire)

    def _static_forwarding(self, wire: WireMessage) -> None:
        assert wire.payload[0] == len(wire.payload) - 1, "a BARE string"
        self._alias(b"forward_to_" + wire.payload[1:], wire)

    def _alias(self, alias: bytes, wire: WireMessage) -> None:
        """Hands messages on along the route of who asks; only since 2022 what follows goes too."""
        route, keeps = wire.return_route, self._level.name != "2021"

        def forward(message: WireMessage) -> None:
            rest = message.onward_route[1:] if keeps else ()
            self._deliver(message._replace(onward_route=(*route, *rest)))

        self._workers[alias] = forward
        self._send(route, alias, wire.payload)

    def _open_channel(self, wire: WireMessage) -> None:
        assert self._level.channel is not None
        end, own = ChannelPeer(self._level.channel), self._fresh()

        def third(message: WireMessage) -> None:
            end.read_message_3(message.payload)
            self._workers[own] = sealed

        def sealed(message: WireMessage) -> None:
            inner = decode_message(end.open(message.payload))
            plain = self._fresh()  # what is sent to it is sealed

            def seal(answer: WireMessage) -> None:
                rest = answer.onward_route[1:]
                text = end.seal(encode_message(rest, answer.return_route, answer.payload))
                self._send(message.return_route, own, text)

            self._workers[plain] = seal
            self._deliver(inner._replace(return_route=(local(plain), *inner.return_route)))

        self._workers[own] = third
        self._send(wire.return_route, own, end.message_2(wire.payload, b"0" * 16))


def ebins(level: Level) -> list[Path]:
    """The folders with a release's compiled modules."""
    return sorted(path for path in Path(RELEASED, level.name).iterdir() if path.is_dir())


def workers() -> list[tuple[str, Level, Callable[[Level], Worker]]]:
    """Every worker that there is here: by hand, and the releases that are installed."""
    found: list[tuple[str, Level, Callable[[Level], Worker]]] = [
        (f"by hand, {level}", level, HandWorker) for level in LEVELS
    ]
    if RELEASED:
        found += [(f"released, {level}", level, ElixirWorker) for level in LEVELS]
    return found
