"""Streamr's released trackers and nodes, over real sockets.

What they say is either spoken here, as it was captured, or said by the package itself from npm.
"""

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
import pytest

from nodes import node_config
from npm_support import npm_packages
from ports import free_port
from rillnode.node.config import GrantTable, StreamTable
from rillnode.node.config.overlay_tables import OverlayTable, StreamrNetworkListener, TrackerTable
from rillnode.node.runtime import Node

PATIENCE_SECONDS: Final = 120.0
SCRIPTS = Path(__file__).with_name("streamr_network_peers")
HEADERS = {"streamr-peer-id": "node-1", "streamr-peer-type": "node"}
ADDRESS = "ws://127.0.0.1:39999"
EVERYBODY = GrantTable(who="anonymous", streams="s*", may=("push", "subscribe"))
STATUS: Final[Any] = {"s::0": {"inboundNodes": [], "outboundNodes": [], "counter": 0}}


@asynccontextmanager
async def running(
    directory: Path,
    *,
    shares: bool = True,
    tracker: bool = False,
    grants: tuple[GrantTable, ...] = (EVERYBODY,),
    **listener: Any,
) -> AsyncGenerator[Node, None]:
    """A node that released ones can reach, with the stream `s`."""
    config = msgspec.structs.replace(
        node_config(directory, *grants),
        tracker=TrackerTable(enabled=tracker),
        overlay=OverlayTable() if shares else None,
        streams=(StreamTable(name="s"),),
        streamr_network=StreamrNetworkListener(listen="127.0.0.1:0", **listener),
    )
    async with Node(config) as node:
        yield node


def url_of(node: Node) -> str:
    return "ws://" + node.addresses()["streamr_network"]


def run(test: Callable[[AsyncExitStack], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(PATIENCE_SECONDS), AsyncExitStack() as stack:
            await test(stack)

    asyncio.run(main())


async def contents(node: Node) -> list[str]:
    """What is in a node's log, without what Streamr puts around it."""
    stream = await node.stream("s")
    texts = [bytes(entry.data).decode() for entry in await stream.pull(0, 1_000)]
    return [json.loads(text)[-4] if text.startswith("[") else text for text in texts]


async def until_all(node: Node, expected: set[str]) -> None:
    """Wait until everything is in a node's log, once."""
    while set(await contents(node)) != expected:
        await asyncio.sleep(0.05)
    assert len(await contents(node)) == len(expected)


async def linked(node: Node, count: int) -> None:
    """Wait until a node has so many neighbours."""
    while len(node.status()["overlay"]["neighbours"].get("s::0", ())) != count:
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("release", [13, 19, 22])
def test_two_nodes_share_a_stream_as_released_ones_do(release: int, tmp_path: Path) -> None:
    async def test(stack: AsyncExitStack) -> None:
        one = await stack.enter_async_context(running(tmp_path / "one"))
        other = await stack.enter_async_context(
            running(tmp_path / "other", trackers=(url_of(one),), release=release)
        )
        await linked(one, 1)
        await linked(other, 1)
        await (await one.stream("s")).push(b'{"from":"one"}')
        await (await other.stream("s")).push(b'{"from":"other"}')
        for node in (one, other):
            await until_all(node, {'{"from":"one"}', '{"from":"other"}'})
        assert one.status()["overlay"]["neighbours"] == {"s::0": (other.identity,)}
        assert other.status()["overlay"]["released"]["trackers"] == {url_of(one): "open"}

    run(test)


@pytest.mark.parametrize(
    ("path", "said", "heard"),
    [
        (
            "",
            {"version": "13.0.0", "code": 0, "payload": {"streams": STATUS, "started": ""}},
            {
                "version": "13.0.0",
                "code": 1,
                "payload": {"streamId": "s", "streamPartition": 0, "nodeAddresses": ["U/node"]},
            },
        ),
        (
            "/ws",
            {"version": "19.1.0", "code": 0, "payload": {"streams": STATUS, "started": ""}},
            {
                "version": "19.1.0",
                "code": 1,
                "payload": {
                    "streamId": "s",
                    "streamPartition": 0,
                    "nodeAddresses": ["U/node"],
                    "counter": 1,
                },
            },
        ),
        (
            "/ws",
            [1, 1, "r", {"streams": STATUS, "started": ""}],
            [1, 2, "1", "s", 0, ["U/node"], 1],
        ),
    ],
)
def test_a_node_hears_from_the_tracker_as_it_speaks(
    path: str, said: Any, heard: Any, tmp_path: Path
) -> None:
    async def test(stack: AsyncExitStack) -> None:
        node = await stack.enter_async_context(running(tmp_path))
        url = url_of(node)
        session = await stack.enter_async_context(aiohttp.ClientSession())
        client = await session.ws_connect(f"{url}{path}?address={ADDRESS}", headers=HEADERS)
        await client.send_bytes(json.dumps(said).encode())
        expected = json.loads(json.dumps(heard).replace("U/node", f"{url}/node"))
        assert await client.receive_json() == expected

    run(test)


@pytest.mark.parametrize(
    ("headers", "query"),
    [
        ({}, f"?address={ADDRESS}"),
        (HEADERS, ""),
        ({**HEADERS, "streamr-peer-type": "king"}, f"?address={ADDRESS}"),
        ({**HEADERS, "streamr-peer-type": "tracker"}, f"?address={ADDRESS}"),
        (HEADERS, "?address=http://elsewhere"),
    ],
)
@pytest.mark.parametrize("face", ["/ws", "/node/ws"])
def test_who_does_not_name_itself_is_closed(
    headers: dict[str, str], query: str, face: str, tmp_path: Path
) -> None:
    async def test(stack: AsyncExitStack) -> None:
        node = await stack.enter_async_context(running(tmp_path))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        client = await session.ws_connect(f"{url_of(node)}{face}{query}", headers=headers)
        message = await client.receive()
        assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, 1002)
        assert message.extra == "streamr:node:missing-required-parameter"

    run(test)


@pytest.mark.parametrize("greater", [True, False])
def test_of_two_connections_of_one_peer_the_greater_address_drops_the_new(
    greater: bool, tmp_path: Path
) -> None:
    async def test(stack: AsyncExitStack) -> None:
        node = await stack.enter_async_context(running(tmp_path))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        address = "ws://0.0.0.0:1" if greater else "ws://z.example:1"
        url = f"{url_of(node)}/node/ws?address={address}"
        first = await session.ws_connect(url, headers=HEADERS)
        second = await session.ws_connect(url, headers=HEADERS)
        message = await (second if greater else first).receive()
        assert (message.data, message.extra) == (1002, "streamr:endpoint:duplicate-connection")

    run(test)


def test_a_node_without_grants_is_neither_told_nor_given_anything(tmp_path: Path) -> None:
    async def test(stack: AsyncExitStack) -> None:
        admin = GrantTable(who="noise:*", streams="*", may=("admin",))
        node = await stack.enter_async_context(running(tmp_path, grants=(admin,)))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        for face, said in (
            ("/ws", [1, 1, "r", {"streams": STATUS, "started": ""}]),
            ("/node/ws", [2, 9, "r", "s", 0, None]),
        ):
            url = f"{url_of(node)}{face}?address={ADDRESS}"
            client = await session.ws_connect(url, headers=HEADERS)
            await client.send_json(said)
            while not node.status()["overlay"]["released"]["accepted"]:
                await asyncio.sleep(0.01)
            with pytest.raises(TimeoutError):
                await client.receive(timeout=0.5)
        assert node.status()["overlay"]["neighbours"].get("s::0", ()) == ()

    run(test)


def test_a_node_that_is_no_tracker_has_no_tracker_there(tmp_path: Path) -> None:
    async def test(stack: AsyncExitStack) -> None:
        elsewhere = ("ws://127.0.0.1:1",)
        node = await stack.enter_async_context(running(tmp_path, trackers=elsewhere))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await session.ws_connect(f"{url_of(node)}/ws?address={ADDRESS}", headers=HEADERS)
        assert caught.value.status == 404

    run(test)


class Peer:
    """A process with the released package."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.url = ""
        self.got: list[str] = []
        self._reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            said = json.loads(line)
            self.url = said.get("ready", self.url)
            self.got += [said["got"]] if "got" in said else []

    def publish(self, *texts: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("".join(f"{text}\n" for text in texts).encode())

    async def end(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._reading


@pytest.fixture(scope="session")
def package() -> Path:
    """The folder that scripts find the package in."""
    return npm_packages(SCRIPTS)


async def start(stack: AsyncExitStack, package: Path, role: str, *more: str) -> Peer:
    """Start a released tracker or node, and wait until it listens."""
    process = await asyncio.create_subprocess_exec(
        "node",
        str(SCRIPTS / "peer.js"),
        role,
        str(free_port()),
        *more,
        env={**os.environ, "NODE_PATH": str(package)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    peer = Peer(process)
    stack.push_async_callback(peer.end)
    while not peer.url:
        assert process.returncode is None, "the released peer does not start"
        await asyncio.sleep(0.05)
    return peer


@pytest.mark.npm
@pytest.mark.parametrize("tracker", ["ours", "released"])
def test_released_nodes_share_a_stream_with_this_one(
    tracker: str, package: Path, tmp_path: Path
) -> None:
    async def test(stack: AsyncExitStack) -> None:
        more: dict[str, Any] = {}
        if tracker == "released":
            released = await start(stack, package, "tracker")
            more = {"trackers": (released.url,), "release": 13}
        node = await stack.enter_async_context(running(tmp_path, **more))
        url = more["trackers"][0] if more else url_of(node)
        peers = [await start(stack, package, "node", url, "s") for _ in range(3)]
        await linked(node, 3)
        await (await node.stream("s")).push(b'{"from":"here"}')
        expected = {'{"from":"here"}'}
        for at, peer in enumerate(peers):
            texts = [f'{{"from":{at},"number":{number}}}' for number in range(5)]
            peer.publish(*texts)
            expected |= set(texts)
        await until_all(node, expected)
        while any(set(peer.got) != expected for peer in peers):
            await asyncio.sleep(0.05)

    run(test)
