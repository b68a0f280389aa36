"""Load of every kind on a node with many streams, links and subscriptions; see `turns`."""

import asyncio
import os
import random
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from socket import SHUT_RDWR
from typing import Any, Final

import aiohttp

from benchmarks.fanout_sockets import Socket, Subscribers, client_frame
from benchmarks.jobs import Result, TurnsJob
from rillnode import nextgraph
from rillnode.codecs.errors import RillnodeError
from rillnode.codecs.keys import Identity
from rillnode.codecs.streamr.control import encode_control
from rillnode.codecs.streamr.control_messages import (
    ControlMessage,
    PublishRequest,
    ResendLastRequest,
    SubscribeRequest,
)
from rillnode.codecs.streamr.ethereum import EthereumKey
from rillnode.codecs.streamr.signing import sign_message
from rillnode.codecs.streamr.stream_message import MessageId, MessageRef, StreamMessage
from rillnode.node.client import Client, Stream, connect

HOT: Final = "hot"
"""The stream that everybody is subscribed to."""

WIDE: Final = "wide"
"""A stream with as many partitions as one may have."""

_KEY: Final = EthereumKey(b"k" * 32)
_PATH: Final = "/api/v1/ws?controlLayerVersion=2&messageLayerVersion=32"
_STORE: Final = b"s" * 32
_SECRET: Final = b"r" * 32
_OVERLAY: Final = nextgraph.inner_overlay(_STORE, _SECRET)
_ACCESS: Final = nextgraph.ReadWriteAccess(_OVERLAY, nextgraph.outer_overlay(_STORE))
_TOGETHER: Final = 100

_ALIVE_SECONDS: Final = 20.0
_PONG: Final = b"\x8a\x80\0\0\0\0"
"""What tells a node that a WebSocket is alive; its pings are not looked at."""
_BEHIND_MS: Final = 1_000_000


def identity(number: int) -> Identity:
    """The key of one link; number 0 may administer everything."""
    return Identity.from_seed(number.to_bytes(32, "big"))


def stream_name(number: int) -> str:
    """The name of one of the streams that are in the store."""
    return f"s{number:06}"


async def turns(job: TurnsJob) -> AsyncGenerator[Result]:
    """One phase after the other, in the order of PHASES; the process is killed in the end."""
    load = _Load(job)
    for phase in PHASES.values():
        await phase(load)
        yield {}


class _Load:
    """The clients of one run, and what they do."""

    def __init__(self, job: TurnsJob) -> None:
        self._job = job
        self._random = random.Random(0)
        self._clients: list[Client] = []
        self._streams: dict[str, Stream] = {}
        self._following: list[asyncio.Task[None]] = []
        self._sockets: list[Socket] = []
        self._timestamp = time.time_ns() // 1_000_000 - _BEHIND_MS

    # Links and subscriptions -----------------------------------------------------------------

    async def links(self) -> None:
        """Open all links; the first is the administrator's."""
        job = self._job
        for start in range(0, job.links, _TOGETHER):
            numbers = range(start, min(start + _TOGETHER, job.links))
            self._clients += await asyncio.gather(*map(self._connect, numbers))

    def _connect(self, number: int) -> Awaitable[Client]:
        endpoint = self._job.endpoint
        return connect(
            f"noise://127.0.0.1:{endpoint.port}",
            identity=identity(number),
            node_identity=endpoint.node_identity,
            reconnect=False,
        )

    async def subscriptions(self) -> None:
        """Half of them from native clients, half from Streamr's; and as many of one link alone."""
        admin, job = self._clients[0], self._job
        self._streams[HOT] = await admin.stream(HOT)
        await admin.stream(WIDE, partitions=job.partitions)
        native = job.subscriptions // 2
        for client in self._clients[1 : native + 1]:
            await self._follow(client, HOT)
        one = self._clients[-1]
        for number in range(job.subscriptions):
            await self._follow(one, stream_name(number % job.streams))
        await asyncio.to_thread(self._subscribe_sockets, job.subscriptions - native)

    async def _follow(self, client: Client, name: str) -> None:
        stream = await client.stream(name)

        async def read() -> None:
            try:
                async for _ in stream.batches(start="end"):
                    pass
            except RillnodeError:
                pass  # its stream was removed, its right has ended, or its link

        self._following.append(asyncio.create_task(read()))
        await asyncio.sleep(0)

    def _subscribe_sockets(self, count: int) -> None:
        port, job = self._job.streamr_port, self._job
        sockets = [Socket(port, _PATH) for _ in range(count + 1)]
        for one in sockets[:count]:
            one.ask(_request(SubscribeRequest(stream_id=HOT, partition=0, request_id="s")))
        for number in range(job.subscriptions):
            name = stream_name(number % job.streams)
            sockets[count].ask(
                _request(SubscribeRequest(stream_id=name, partition=0, request_id="s"))
            )
        self._sockets = sockets
        subscribers = Subscribers(sockets)

        def read() -> None:
            alive = time.monotonic()
            while True:
                try:
                    subscribers.read(1.0)
                    if time.monotonic() - alive > _ALIVE_SECONDS:
                        alive = time.monotonic()
                        for one in sockets:
                            one.raw.send(_PONG)
                except OSError:
                    return  # half of them have been ended

        threading.Thread(target=read, daemon=True).start()

    # Pushing, reading, listing ---------------------------------------------------------------

    async def pushes(self) -> None:
        """Two entries to each stream, in random order, over a few links: all are above a limit."""
        numbers = list(range(self._job.streams))
        self._random.shuffle(numbers)
        workers = self._clients[1:5]
        share = -(-len(numbers) // len(workers))
        await asyncio.gather(
            *(
                self._push_each(client, numbers[at * share : (at + 1) * share])
                for at, client in enumerate(workers)
            )
        )

    async def _push_each(self, client: Client, numbers: list[int]) -> None:
        for start in range(0, len(numbers), 500):
            names = map(stream_name, numbers[start : start + 500])
            streams = await asyncio.gather(*map(client.stream, names))
            pushed = [stream.push_nowait(b"x" * 100) for stream in streams for _ in range(2)]
            await asyncio.gather(*pushed)

    async def fan_out(self) -> None:
        """Push to the stream of all subscriptions, one by one and together; publish to it, too."""
        hot, data = self._streams[HOT], os.urandom(1_024)
        for _ in range(self._job.repeat):
            await hot.push(data)
            await asyncio.sleep(0.02)
        for _ in range(self._job.repeat):
            await asyncio.gather(*(hot.push_nowait(data) for _ in range(64)))
            await asyncio.sleep(0.5)
        await asyncio.to_thread(self._publish, self._job.repeat * 10)

    def _publish(self, count: int) -> None:
        publisher = Socket(self._job.streamr_port, _PATH)
        for _ in range(count):
            name = MessageId(HOT, 0, self._timestamp, 0, "somebody", "chain")
            previous = MessageRef(self._timestamp - 1, 0)
            message = StreamMessage(id=name, previous=previous, content='{"x":1}')
            self._timestamp += 1
            publisher.raw.sendall(
                client_frame(_request(PublishRequest(message=message, request_id="p")))
            )
            time.sleep(0.01)
        signed = [
            sign_message(
                StreamMessage(
                    id=MessageId(HOT, 0, self._timestamp + at, 0, _KEY.address.lower(), "signed"),
                    previous=None,
                    content='{"x":1}',
                ),
                _KEY,
            )
            for at in range(count)
        ]
        publisher.raw.sendall(
            b"".join(
                client_frame(_request(PublishRequest(message=one, request_id="p")))
                for one in signed
            )
        )
        time.sleep(1.0)
        publisher.raw.close()

    async def reads(self) -> None:
        """Pull, describe, open and create streams; save and load positions."""
        job, some = self._job, self._random
        for _ in range(job.repeat):
            clients = some.sample(self._clients[1:], min(_TOGETHER, job.links - 1))
            names = [stream_name(some.randrange(job.streams)) for _ in clients]
            pairs = list(zip(clients, names, strict=True))
            await asyncio.gather(*(_pull(client, name) for client, name in pairs))
            await asyncio.gather(*(client.describe(name) for client, name in pairs))
            await asyncio.gather(*(client.stream(f"new-{name}") for client, name in pairs))
            await asyncio.gather(*(client.set_index("c", name, 1) for client, name in pairs))
            await asyncio.gather(*(client.get_index("c", name) for client, name in pairs))

    async def listings(self) -> None:
        """List all streams and positions: as administrator, and as who may use each."""
        for client in (self._clients[0], self._clients[1]):
            found = await client.streams()
            assert len(found) >= self._job.streams
            await client.indexes("s00")
        await asyncio.gather(*(client.streams("s00") for client in self._clients[1:9]))

    async def watching(self) -> None:
        """Look at everything that the node tells of itself, over HTTP and over a link."""
        paths = (
            "/", "/metrics", "/readyz", "/v1/overview", "/v1/history", "/v1/streams",
            f"/v1/streams/{HOT}", f"/v1/streams/{WIDE}", f"/v1/streams/{HOT}/entries", "/v1/links",
            "/v1/peers", "/v1/actors", "/v1/warnings", "/v1/status", "/v1/config",
        )  # fmt: skip
        for _ in range(3):
            await self._get(f"http://127.0.0.1:{self._job.http_port}", paths)
            await self._clients[0].status()

    async def streamr_rest(self) -> None:
        """List, look up and read streams as Streamr's clients do over HTTP, and resend."""
        api = f"http://127.0.0.1:{self._job.streamr_port}/api/v1"
        hot = f"/streams/{HOT}"
        paths = (
            "/streams", "/streams?name=hot", "/streams?search=s0&max=1000", hot,
            f"{hot}/permissions", f"{hot}/publishers", f"{hot}/subscribers",
            f"{hot}/data/partitions/0/last?count=1000",
        )  # fmt: skip
        for _ in range(3):
            await self._get(api, paths)
        await asyncio.to_thread(self._resend, 5)

    def _resend(self, count: int) -> None:
        publisher = Socket(self._job.streamr_port, _PATH)
        for _ in range(count):
            request = ResendLastRequest(
                stream_id=HOT, partition=0, request_id="r", number_last=1_000
            )
            publisher.raw.sendall(client_frame(_request(request)))
            while not publisher.receive().startswith((b"[2,5,", b"[2,6,")):
                pass

    async def _get(self, base: str, paths: Iterable[str]) -> None:
        async with aiohttp.ClientSession() as http:
            for path in paths:
                async with http.get(base + path) as answer:
                    await answer.read()

    async def nextgraph(self) -> None:
        """Some devices that pin repos, publish events, and put and get blocks."""
        url = f"ws://127.0.0.1:{self._job.nextgraph_port}"
        broker = bytes.fromhex(self._job.broker)
        for number in range(self._job.repeat):
            user, topic = identity(1 << 20 | number), identity(1 << 21 | number)
            branch = nextgraph.Branch(os.urandom(32), os.urandom(32), _SECRET)
            repo = nextgraph.repo_hash(branch.repo_id)
            key = nextgraph.convergence_key(_STORE, _SECRET)
            async with await nextgraph.connect(url, user=user, broker=broker) as client:
                await client.pin(repo, _ACCESS, publish=[topic])
                for _ in range(10):
                    made = nextgraph.make_commit(
                        os.urandom(1_024),
                        author=user,
                        branch=branch,
                        overlay=_OVERLAY,
                        convergence_key=key,
                        unix_seconds=time.time(),
                        header=nextgraph.CommitHeader(acks=[]),
                    )
                    await client.publish(_OVERLAY, topic, branch, made)
                file = nextgraph.split_object(os.urandom(4_000_000), key, block_bytes=1_048_576)
                await client.put_blocks(_OVERLAY, file.blocks)
                ids = [file.reference.id]
                async for _ in client.get_blocks(_OVERLAY, ids, children=True):
                    pass
                async for _ in client.sync(_OVERLAY, topic.public_key):
                    pass

    async def removals(self) -> None:
        """Trim and remove streams: plain ones, that of many partitions, that of all followers."""
        admin = self._clients[0]
        names = [stream_name(self._job.streams - 1 - number) for number in range(100)]
        await asyncio.gather(*(admin.trim(name, before=1) for name in names))
        await asyncio.gather(*map(admin.remove, names))
        await admin.remove(WIDE)
        await admin.remove(HOT)
        self._streams[HOT] = await admin.stream(HOT)
        await asyncio.sleep(2.0)

    async def ends(self) -> None:
        """Half of all links end at once, those with many subscriptions among them."""
        ending = self._clients[len(self._clients) // 2 :]
        await asyncio.gather(*(client.close() for client in ending))
        for socket in self._sockets[len(self._sockets) // 2 :]:
            socket.raw.shutdown(SHUT_RDWR)
        await asyncio.sleep(5.0)


PHASES: Final[dict[str, Callable[[_Load], Awaitable[Any]]]] = {
    "links": _Load.links,
    "subscriptions": _Load.subscriptions,
    "pushes": _Load.pushes,
    "fan-out": _Load.fan_out,
    "reads": _Load.reads,
    "listings": _Load.listings,
    "watching": _Load.watching,
    "streamr": _Load.streamr_rest,
    "nextgraph": _Load.nextgraph,
    "removals": _Load.removals,
    "ends": _Load.ends,
}
"""What is done to the node, by name, in this order."""


async def _pull(client: Client, name: str) -> None:
    stream = await client.stream(name)
    await stream.pull(0, 100)


def _request(request: ControlMessage) -> bytes:
    return encode_control(request, 2, 32).encode()
