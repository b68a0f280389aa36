"""Good clients, one for each listener: each request is answered and found right, or it raises."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import aiohttp

from rillnode import nextgraph
from rillnode.codecs.keys import Identity
from rillnode.codecs.routing.routes import decode_message, encode_message, local
from rillnode.codecs.routing.stream import (
    PullRequest,
    PullResponse,
    PushConfirm,
    PushRequest,
    decode_response,
    encode_request,
)
from rillnode.node.client import connect

STREAM: Final = "served"
STREAMR_STREAM: Final = "served_to_streamr"
"""Of its own: what is published last is what comes back."""

_USER: Final = Identity.from_seed(b"u" * 32)
_TOPIC: Final = Identity.from_seed(b"t" * 32)
_STORE: Final = b"s" * 32
_SECRET: Final = b"r" * 32
_OVERLAY: Final = nextgraph.inner_overlay(_STORE, _SECRET)
_ACCESS: Final = nextgraph.ReadWriteAccess(_OVERLAY, nextgraph.outer_overlay(_STORE))
_REPO: Final = nextgraph.repo_hash(b"p" * 32)

Request = Callable[[], Awaitable[None]]
"""One request; raises AssertionError where the answer is wrong."""

Ports = Mapping[str, str]
"""What `rillnode run --ports-file` writes."""


@dataclass(frozen=True, slots=True)
class _Ockam:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, request: PushRequest | PullRequest) -> Any:
        onward = (local(f"ST_S_0_{STREAM}"),)
        frame = encode_message(onward, (local("me"),), encode_request(request))
        self.writer.write(len(frame).to_bytes(2, "big") + frame)
        size = int.from_bytes(await self.reader.readexactly(2), "big")
        return decode_response(decode_message(await self.reader.readexactly(size)).payload)


@asynccontextmanager
async def _noise(ports: Ports) -> AsyncGenerator[Request]:
    """Pushes an entry and pulls it."""
    url = f"noise://{ports['noise']}"
    async with await connect(url, identity=_USER, node_identity=ports["identity"]) as client:
        stream = await client.stream(STREAM)

        async def request() -> None:
            index = await stream.push(b"good")
            (entry,) = await stream.pull(index, 1)
            assert (entry.index, entry.data) == (index, b"good")

        yield request


@asynccontextmanager
async def _ockam(ports: Ports) -> AsyncGenerator[Request]:
    """Does the same as an Ockam node of 2021."""
    host, _, port = ports["ockam"].rpartition(":")
    peer = _Ockam(*await asyncio.open_connection(host, int(port)))

    async def request() -> None:
        confirm = await peer.ask(PushRequest(1, b"good"))
        assert isinstance(confirm, PushConfirm)
        assert confirm.index is not None
        pulled = await peer.ask(PullRequest(2, confirm.index, 1))
        assert isinstance(pulled, PullResponse)
        assert pulled.messages == [(confirm.index, b"good")]

    yield request
    peer.writer.close()


@asynccontextmanager
async def _streamr(ports: Ports) -> AsyncGenerator[Request]:
    """Publishes over REST and reads it back."""
    data = f"http://{ports['streamr']}/api/v1/streams/{STREAMR_STREAM}/data"
    async with aiohttp.ClientSession() as http:

        async def request() -> None:
            async with http.post(data, json={"good": 1}) as answer:
                assert answer.status == 200, await answer.text()
            async with http.get(f"{data}/partitions/0/last?count=1") as answer:
                (message,) = await answer.json()
                assert answer.status == 200
                assert message["content"] == {"good": 1}

        yield request


@asynccontextmanager
async def _nextgraph(ports: Ports) -> AsyncGenerator[Request]:
    """Asks a broker for the state of a repo that it has pinned."""
    broker = bytes.fromhex(ports["nextgraph_peer_id"])
    url = f"ws://{ports['nextgraph']}"
    async with await nextgraph.connect(url, user=_USER, broker=broker) as client:
        await client.pin(_REPO, _ACCESS, publish=[_TOPIC])

        async def request() -> None:
            status = await client.pin_status(_OVERLAY, _REPO)
            assert status is not None
            assert [topic.topic for topic in status.topics] == [_TOPIC.public_key]

        yield request


@asynccontextmanager
async def _http(ports: Ports) -> AsyncGenerator[Request]:
    """Asks how the node is."""
    async with aiohttp.ClientSession() as http:

        async def request() -> None:
            async with http.get(f"http://{ports['http']}/v1/status") as answer:
                assert answer.status == 200
                assert (await answer.json())["identity"] == ports["identity"]

        yield request


CLIENTS: Final[dict[str, Callable[[Ports], AbstractAsyncContextManager[Request]]]] = {
    "noise": _noise,
    "ockam": _ockam,
    "streamr": _streamr,
    "nextgraph": _nextgraph,
    "http": _http,
}


async def make_streams(ports: Ports) -> None:
    """Make the streams that the clients use."""
    url = f"noise://{ports['noise']}"
    async with await connect(url, identity=_USER, node_identity=ports["identity"]) as client:
        for name in (STREAM, STREAMR_STREAM):
            await client.stream(name)
