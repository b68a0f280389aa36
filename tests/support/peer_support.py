"""Nodes that are peers of each other, and a plain Ockam node, for tests."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from nodes import CLIENT, at_own_ports, node_config
from ockam_peer import OckamPeer
from rillnode.actors.core.access import Verb
from rillnode.codecs.errors import RillnodeError
from rillnode.codecs.routing.dialects import Dialect
from rillnode.codecs.routing.routes import (
    Route,
    WireMessage,
    decode_message,
    encode_message,
    local,
    parse_route,
)
from rillnode.codecs.routing.stream import (
    CreateRequest,
    CreateResponse,
    decode_response,
    encode_request,
)
from rillnode.node.client import Client
from rillnode.node.config import Config, GrantTable, PeerTable
from rillnode.node.runtime import Node

PING, PONG = b"\x00", b"\x01"
WAIT_SECONDS = 60.0


def with_peers(config: Config, *peers: PeerTable, **changes: Any) -> Config:
    return msgspec.structs.replace(config, peers=peers, **changes)


def granted(*who: str) -> tuple[GrantTable, ...]:
    """The test's client administers; others may all that needs no `admin`."""
    admin = GrantTable(who=f"noise:{CLIENT.public_hex}", streams="*", may=("admin",))
    verbs: tuple[Verb, ...] = ("create", "push", "pull", "subscribe")
    return (admin, *(GrantTable(who=one, streams="*", may=verbs) for one in who))


@asynccontextmanager
async def linked(
    directory: Path, *, anonymous: bool = False, dialect: Dialect = "u16"
) -> AsyncGenerator[tuple[Node, Node]]:
    """A node and another that is its peer twice: `b` over Noise, `plain` over Ockam TCP."""
    grants = granted("anonymous") if anonymous else granted()
    first = Node(node_config(directory / "a", *grants))
    knows_first = GrantTable(who=f"noise:{first.identity}", streams="*", may=("create", "push"))
    other = node_config(directory / "b", *granted("anonymous"), knows_first)
    async with Node(at_own_ports(other)) as b:
        addresses = b.addresses()
        peers = (
            PeerTable(name="b", noise=addresses["noise"], identity=b.identity),
            PeerTable(name="plain", ockam=addresses["ockam"], dialect=dialect),
        )
        async with Node(with_peers(first.config, *peers)) as a:
            yield a, b


class ListeningPeer:
    """A plain Ockam node of 2021: counts connections and notes messages; pings are answered."""

    def __init__(self, answer: bytes | None = PONG) -> None:
        self.connections = 0
        self.messages: list[WireMessage] = []
        self._answer = answer
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> "ListeningPeer":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(2), "big")
                message = decode_message(await reader.readexactly(size), strict=True)
                self.messages.append(message)
                if self._answer is not None:
                    self._write(writer, message.return_route, self._answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass

    def send(self, route: Route, payload: bytes) -> None:
        """Send a message over every connection."""
        for writer in self._writers:
            self._write(writer, route, payload)

    @staticmethod
    def _write(writer: asyncio.StreamWriter, route: Route, payload: bytes) -> None:
        frame = encode_message(route, (local("far"),), payload)
        writer.write(len(frame).to_bytes(2, "big") + frame)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():
            await asyncio.sleep(0.01)


async def eventually(ask: Callable[[], Awaitable[Any]]) -> Any:
    """Ask again until there is an answer."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            try:
                return await ask()
            except RillnodeError:
                await asyncio.sleep(0.05)


async def create(client: Client, *route: str) -> Route:
    """Create a stream at the end of a route; return the way to the stream."""
    hops = ";".join((*route, "stream"))
    answer = await client.ask(hops, encode_request(CreateRequest("s")), timeout_seconds=30.0)
    assert decode_response(answer.payload) == CreateResponse("s")
    return answer.return_route


async def ask(peer: OckamPeer, route: str, payload: bytes) -> WireMessage:
    """Ask, and pass over what comes to other addresses than the peer's."""
    peer.send(parse_route(route), payload)
    while True:
        answer = await peer.receive(30.0)
        if answer.onward_route == (local("me"),):
            return answer
