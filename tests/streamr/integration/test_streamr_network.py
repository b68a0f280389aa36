"""Streamr's released trackers and nodes, over real sockets.

What they say is either spoken here, as it was captured, or said by the package itself from npm.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
import pytest
from aiohttp import web

from coroutines import handed_by
from nodes import node_config
from npm_support import npm_packages
from rillnode.node.config import GrantTable, StreamTable
from rillnode.node.overlay.config import OverlayTable, StreamrNetworkListener, TrackerTable
from rillnode.node.runtime import Node
from rillnode.node.testing.contract.ports import free_port

PATIENCE_SECONDS: Final = 60.0
ERROR_LINES: Final = 40
SCRIPTS = Path(__file__).with_name("streamr_network_peers")
HEADERS = {"streamr-peer-id": "node-1", "streamr-peer-type": "node"}
ADDRESS = "ws://127.0.0.1:39999"
EVERYBODY = GrantTable(who="anonymous", streams="s*", may=("push", "subscribe"))
RELEASED: Final = (13, pytest.param(19, marks=pytest.mark.long), 22)
"""The releases that are run, or followed; 19 says what 22 says."""
NEWEST: Final = (*(pytest.param(one, marks=pytest.mark.long) for one in (13, 19)), 22)
"""The same, for what depends on none but is tried with each by the long tests."""
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
    """A node that released ones can reach, with the streams `s` and `s2`."""
    config = msgspec.structs.replace(
        node_config(directory, *grants), streams=(StreamTable(name="s"), StreamTable(name="s2"))
    ).having(
        TrackerTable(enabled=tracker),
        *([OverlayTable()] if shares else []),
        StreamrNetworkListener(listen="127.0.0.1:0", **listener),
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


stack = handed_by(run)


async def contents(node: Node) -> list[str]:
    """What is in a node's log, without what Streamr puts around it."""
    stream = await node.stream("s")
    texts = [bytes(entry.data).decode() for entry in await stream.pull(0, 1_000)]
    return [json.loads(text)[-4] if text.startswith("[") else text for text in texts]


def told_by(texts: Iterable[str]) -> list[str]:
    """Those that say who they are from, without trials."""
    return [text for text in texts if '"from"' in text]


async def until_all(node: Node, expected: set[str]) -> None:
    """Wait until everything is in a node's log, once."""
    while set(told_by(await contents(node))) != expected:
        await asyncio.sleep(0.05)
    assert len(told_by(await contents(node))) == len(expected)


async def linked(node: Node, count: int, stream: str = "s") -> None:
    """Wait until a node has so many neighbours."""
    while len(node.status()["overlay"]["neighbours"].get(f"{stream}::0", ())) != count:
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("release", RELEASED)
async def test_two_nodes_share_a_stream_as_released_ones_do(
    stack: AsyncExitStack, release: int, tmp_path: Path
) -> None:
    one = await stack.enter_async_context(running(tmp_path / "one"))
    other = await stack.enter_async_context(
        running(tmp_path / "other", trackers=(url_of(one),), release=release)
    )
    for stream in ("s", "s2"):
        await linked(one, 1, stream)
        await linked(other, 1, stream)
    await (await one.stream("s")).push(b'{"from":"one"}')
    await (await other.stream("s")).push(b'{"from":"other"}')
    for node in (one, other):
        await until_all(node, {'{"from":"one"}', '{"from":"other"}'})
    neighbours = one.status()["overlay"]["neighbours"]
    assert neighbours == {"s::0": (other.identity,), "s2::0": (other.identity,)}
    assert other.status()["overlay"]["released"]["trackers"] == {url_of(one): "open"}


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
async def test_a_node_hears_from_the_tracker_as_it_speaks(
    stack: AsyncExitStack, path: str, said: Any, heard: Any, tmp_path: Path
) -> None:
    node = await stack.enter_async_context(running(tmp_path))
    url = url_of(node)
    session = await stack.enter_async_context(aiohttp.ClientSession())
    client = await session.ws_connect(f"{url}{path}?address={ADDRESS}", headers=HEADERS)
    await client.send_bytes(json.dumps(said).encode())
    expected = json.loads(json.dumps(heard).replace("U/node", f"{url}/node"))
    assert await client.receive_json() == expected


async def test_who_does_not_name_itself_is_closed(stack: AsyncExitStack, tmp_path: Path) -> None:
    node = await stack.enter_async_context(running(tmp_path))
    session = await stack.enter_async_context(aiohttp.ClientSession())
    named = f"?address={ADDRESS}"
    for headers, query in (
        ({}, named),
        (HEADERS, ""),
        ({**HEADERS, "streamr-peer-type": "king"}, named),
        ({**HEADERS, "streamr-peer-type": "tracker"}, named),
        (HEADERS, "?address=http://elsewhere"),
    ):
        for face in ("/ws", "/node/ws"):
            client = await session.ws_connect(f"{url_of(node)}{face}{query}", headers=headers)
            message = await client.receive()
            assert (message.type, message.data, message.extra) == (
                aiohttp.WSMsgType.CLOSE,
                1002,
                "streamr:node:missing-required-parameter",
            ), (headers, query, face)


DUPLICATE: Final = "streamr:endpoint:duplicate-connection"
DUPLICATE_CODES: Final = {13: 1000, 19: 1002, 22: 1002}
PATHS: Final = {13: "", 19: "/ws", 22: "/ws"}
GREATER, LESSER = "ws://zz.example:1", "ws://0.example:1"
"""URLs of a node that sort behind those of its peers, or before them."""


class Spoken:
    """A released tracker or node: what it is told, and the links that come to it."""

    def __init__(self, kind: str) -> None:
        self._headers = {"streamr-peer-id": f"the-{kind}", "streamr-peer-type": kind}
        self.url = ""
        self.links: asyncio.Queue[web.WebSocketResponse] = asyncio.Queue()
        self.answers = asyncio.Event()
        self.answers.set()
        self.asked = asyncio.Event()
        self._over = asyncio.Event()
        self.addresses: list[str] = []

    async def _serve(self, request: web.Request) -> web.WebSocketResponse:
        self.asked.set()
        self.addresses.append(request.query["address"])
        await self.answers.wait()
        link = web.WebSocketResponse()
        link.headers.update(self._headers)
        await link.prepare(request)
        self.links.put_nowait(link)
        await self._over.wait()  # the test reads
        return link

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator["Spoken", None]:
        app = web.Application()
        app.router.add_get("/", self._serve)
        app.router.add_get("/ws", self._serve)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        port = free_port()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        self.url = f"ws://127.0.0.1:{port}"
        try:
            yield self
        finally:
            self._over.set()
            await runner.cleanup()

    async def dial(self, stack: AsyncExitStack, url: str) -> aiohttp.ClientWebSocketResponse:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        return await session.ws_connect(f"{url}?address={self.url}", headers=self._headers)


def instruction(release: int, stream: str, url: str) -> Any:
    """As trackers of a release tell a node of its only neighbour."""
    if release == 22:
        return [1, 2, "r", stream, 0, [url], 1]
    payload = {"streamId": stream, "streamPartition": 0, "nodeAddresses": [url]}
    counter = {} if release == 13 else {"counter": 1}
    return {"version": f"{release}.0.0", "code": 1, "payload": {**payload, **counter}}


def wrapped(release: int, control: list[Any]) -> Any:
    """As nodes of a release write a message of control version 2."""
    if release == 22:
        return control
    if release == 13:
        control = [1, control[1], *control[3:]]
    payload = {"serializedControlLayerPayload": json.dumps(control)}
    return {"version": f"{release}.0.0", "code": 4, "payload": payload}


class Crossing:
    """A node between a tracker and a peer of a release, which speak as they are told here."""

    def __init__(
        self, release: int, tracker: web.WebSocketResponse, peer: Spoken, node: Node
    ) -> None:
        self._release = release
        self._tracker = tracker
        self.peer = peer
        self.node = node

    async def tell_to_dial(self, stream: str = "s") -> None:
        await self._tracker.send_json(instruction(self._release, stream, self.peer.url))

    async def come(self, stack: AsyncExitStack) -> aiohttp.ClientWebSocketResponse:
        return await self.peer.dial(stack, f"{url_of(self.node)}/node{PATHS[self._release]}")

    async def subscribe(self, link: aiohttp.ClientWebSocketResponse, stream: str = "s") -> None:
        await link.send_json(wrapped(self._release, [2, 9, "r", stream, 0, None]))

    def dropped(self, message: aiohttp.WSMessage) -> bool:
        """Whether a link was closed as the release closes the second one."""
        code = DUPLICATE_CODES[self._release]
        return (message.type, message.data, message.extra) == (
            aiohttp.WSMsgType.CLOSE,
            code,
            DUPLICATE,
        )


def crossing(
    release: int,
    own_url: str,
    tmp_path: Path,
    test: Callable[..., Awaitable[None]],
    grants: tuple[GrantTable, ...] = (EVERYBODY,),
) -> None:
    async def whole(stack: AsyncExitStack) -> None:
        tracker = await stack.enter_async_context(Spoken("tracker").listening())
        peer = await stack.enter_async_context(Spoken("node").listening())
        more: dict[str, Any] = {"trackers": (tracker.url,), "release": release}
        more |= {"advertise": own_url, "grants": grants}
        node = await stack.enter_async_context(running(tmp_path, **more))
        link = await tracker.links.get()
        await heard(link, "s2::0")  # it shares both streams from now on
        await test(stack, Crossing(release, link, peer, node))

    run(whole)


async def heard(link: Any, text: str) -> None:
    """Wait until something with this text comes over a link."""
    while True:
        message = await link.receive()
        assert message.type in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY), message
        if text in str(message.data):
            return


@pytest.mark.parametrize("release", RELEASED)
def test_a_new_link_is_dropped_beside_a_dialled_one_where_the_own_url_is_greater(
    release: int, tmp_path: Path
) -> None:
    async def test(stack: AsyncExitStack, at: Crossing) -> None:
        await at.tell_to_dial()
        dialled = await at.peer.links.get()
        await heard(dialled, "s")
        assert at.dropped(await (await at.come(stack)).receive())
        await linked(at.node, 1)
        await (await at.node.stream("s")).push(b'{"from":"here"}')
        await heard(dialled, "here")
        again = await at.come(stack)  # it has lost the first, and does not know it
        await at.subscribe(again)
        assert at.dropped(await dialled.receive())
        await (await at.node.stream("s")).push(b'{"from":"there"}')
        await heard(again, "there")

    crossing(release, GREATER, tmp_path, test)


@pytest.mark.parametrize("release", RELEASED)
@pytest.mark.parametrize("kept", ["dialled", "accepted"])
def test_the_peer_with_the_greater_url_drops_the_link_that_is_new_to_it(
    kept: str, release: int, tmp_path: Path
) -> None:
    async def test(stack: AsyncExitStack, at: Crossing) -> None:
        await at.tell_to_dial()
        dialled = await at.peer.links.get()
        await heard(dialled, "s")
        accepted = await at.come(stack)
        await at.subscribe(accepted)
        goes, stays = (accepted, dialled) if kept == "dialled" else (dialled, accepted)
        await goes.close(code=DUPLICATE_CODES[release], message=DUPLICATE.encode())
        await linked(at.node, 1)
        number = 0
        while True:  # the link may be asked for anew
            number += 1
            await (await at.node.stream("s")).push(b'{"number":%d}' % number)
            try:
                async with asyncio.timeout(0.5):
                    await heard(stays, "number")
            except TimeoutError:
                continue
            break

    crossing(release, LESSER, tmp_path, test)


by_release_and_own_url: Final = pytest.mark.parametrize(
    ("release", "own_url"),
    [
        (13, GREATER),
        (22, LESSER),
        *(
            pytest.param(*one, marks=pytest.mark.long)
            for one in ((13, LESSER), (19, GREATER), (19, LESSER), (22, GREATER))
        ),
    ],
)


@by_release_and_own_url
def test_who_has_come_is_not_dialled(own_url: str, release: int, tmp_path: Path) -> None:
    async def test(stack: AsyncExitStack, at: Crossing) -> None:
        accepted = await at.come(stack)
        await at.subscribe(accepted)
        await linked(at.node, 1)
        await at.tell_to_dial("s2")
        await heard(accepted, "s2")
        await linked(at.node, 1, "s2")
        assert at.peer.links.empty()
        await accepted.close()
        await at.tell_to_dial("s2")
        await heard(await at.peer.links.get(), "s2")

    crossing(release, own_url, tmp_path, test)


@by_release_and_own_url
def test_a_dialled_link_is_dropped_as_well_where_the_peer_came_while_it_opened(
    own_url: str, release: int, tmp_path: Path
) -> None:
    async def test(stack: AsyncExitStack, at: Crossing) -> None:
        at.peer.answers.clear()
        await at.tell_to_dial()
        await at.peer.asked.wait()
        accepted = await at.come(stack)
        await at.subscribe(accepted)
        await linked(at.node, 1)
        at.peer.answers.set()
        dialled = await at.peer.links.get()
        if own_url == GREATER:
            assert at.dropped(await dialled.receive())
            await at.tell_to_dial("s2")
            await heard(accepted, "s2")
        else:
            await at.tell_to_dial("s2")
            await heard(dialled, "s2")
        assert not accepted.closed

    crossing(release, own_url, tmp_path, test)


@pytest.mark.parametrize(("path", "code"), [("/node", 1000), ("/node/ws", 1002), ("/ws", 1002)])
@pytest.mark.parametrize(
    ("own_url", "peer_url", "greater"),
    [(GREATER, "ws://0.0.0.0:1", True), (LESSER, "ws://z.example:1", False)],
)
async def test_of_two_connections_of_one_peer_the_greater_address_drops_the_new(
    stack: AsyncExitStack,
    own_url: str,
    peer_url: str,
    greater: bool,
    path: str,
    code: int,
    tmp_path: Path,
) -> None:
    node = await stack.enter_async_context(running(tmp_path, tracker=True, advertise=own_url))
    session = await stack.enter_async_context(aiohttp.ClientSession())
    url = f"{url_of(node)}{path}?address={peer_url}"
    first = await session.ws_connect(url, headers=HEADERS)
    second = await session.ws_connect(url, headers=HEADERS)
    message = await (second if greater else first).receive()
    assert (message.data, message.extra) == (code, DUPLICATE)
    third = await session.ws_connect(url, headers=HEADERS)  # it knows nothing of what there is
    message = await (first if greater else second).receive()
    assert (message.data, message.extra) == (code, DUPLICATE)
    assert not third.closed


async def test_of_connections_that_one_peer_makes_at_once_one_is_left(
    stack: AsyncExitStack, tmp_path: Path
) -> None:
    node = await stack.enter_async_context(running(tmp_path, advertise=LESSER))
    session = await stack.enter_async_context(aiohttp.ClientSession())
    url = f"{url_of(node)}/node/ws?address={ADDRESS}"
    made = await asyncio.gather(*(session.ws_connect(url, headers=HEADERS) for _ in range(10)))
    ends = [asyncio.ensure_future(one.receive()) for one in made]
    for ended in islice(asyncio.as_completed(ends), len(ends) - 1):
        message = await ended
        assert (message.data, message.extra) == (1002, DUPLICATE)
    (left,) = (one for one in ends if not one.done())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(left, 0.3)


@pytest.mark.parametrize("release", NEWEST)
def test_a_stranger_does_not_take_the_place_of_a_peer_that_was_dialled(
    release: int, tmp_path: Path
) -> None:
    async def test(stack: AsyncExitStack, at: Crossing) -> None:
        await at.tell_to_dial()
        dialled = await at.peer.links.get()
        await heard(dialled, "s")
        for _ in range(3):
            await at.come(stack)
        await linked(at.node, 1)
        await (await at.node.stream("s")).push(b'{"from":"here"}')
        await heard(dialled, "here")

    admin = GrantTable(who="noise:*", streams="*", may=("admin",))
    crossing(release, GREATER, tmp_path, test, grants=(admin,))


async def test_a_node_without_grants_is_neither_told_nor_given_anything(
    stack: AsyncExitStack, tmp_path: Path
) -> None:
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


async def test_a_node_that_is_no_tracker_has_no_tracker_there(
    stack: AsyncExitStack, tmp_path: Path
) -> None:
    elsewhere = ("ws://127.0.0.1:1",)
    node = await stack.enter_async_context(running(tmp_path, trackers=elsewhere))
    session = await stack.enter_async_context(aiohttp.ClientSession())
    with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
        await session.ws_connect(f"{url_of(node)}/ws?address={ADDRESS}", headers=HEADERS)
    assert caught.value.status == 404


class Died(Exception):
    """A process of a released peer has ended by itself."""


class Peer:
    """A process with the released package.

    Attributes:
        got: the contents of what a node has heard.
        neighbours: what a tracker was told last, by node.
    """

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self._name = name
        self._process = process
        self._errors: deque[str] = deque(maxlen=ERROR_LINES)
        self._reading = asyncio.gather(self._read(), self._read_errors())
        self.url = ""
        self.got: list[str] = []
        self.neighbours: dict[str, set[str]] = {}

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            if not line.startswith(b"{"):  # the package logs there
                self._errors.append(line.decode(errors="replace"))
                continue
            said = json.loads(line)
            self.url = said.get("ready", self.url)
            self.got += [said["got"]] if "got" in said else []
            if "node" in said:
                self.neighbours[said["node"]] = set(said["neighbours"])

    async def _read_errors(self) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            self._errors.append(line.decode(errors="replace"))

    async def watch(self) -> None:
        """Wait for the end of the process.

        Raises:
            Died: it has ended; says of what.
        """
        code = await self._process.wait()
        await asyncio.shield(self._reading)
        raise Died(f"{self._name} ended with exit code {code}:\n{''.join(self._errors)}")

    def publish(self, *texts: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("".join(f"{text}\n" for text in texts).encode())

    async def end(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._reading


class Peers:
    """The processes of one test, which fails as soon as one of them ends by itself."""

    def __init__(self, stack: AsyncExitStack, watching: asyncio.TaskGroup) -> None:
        self.stack = stack
        self._watching = watching
        self._watchers: list[asyncio.Task[None]] = []

    async def start(self, name: str, *command: str, **environment: str) -> Peer:
        """Start a process, and wait until it listens."""
        process = await asyncio.create_subprocess_exec(
            *command,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        peer = Peer(name, process)
        self.stack.push_async_callback(peer.end)
        self._watchers.append(self._watching.create_task(peer.watch()))
        while not peer.url:
            await asyncio.sleep(0.05)
        return peer

    def watch_no_more(self) -> None:
        """The test is over: what a process dies of when others end before it is of no interest."""
        for watcher in self._watchers:
            watcher.cancel()


def run_with_peers(test: Callable[[Peers], Awaitable[None]]) -> None:
    async def main() -> None:
        try:
            async with (
                asyncio.timeout(PATIENCE_SECONDS),
                asyncio.TaskGroup() as watching,
                AsyncExitStack() as stack,
            ):
                peers = Peers(stack, watching)
                try:
                    await test(peers)
                finally:
                    peers.watch_no_more()
        except ExceptionGroup as group:
            raise group.exceptions[0] from None

    asyncio.run(main())


peers = handed_by(run_with_peers)


def test_a_peer_that_dies_fails_the_test_at_once_and_says_of_what() -> None:
    script = "import sys; print('{\"ready\": \"ws://h:1\"}', flush=True); input(); sys.exit('ill')"

    async def test(peers: Peers) -> None:
        peer = await peers.start("the peer", sys.executable, "-c", script)
        peer.publish("now")
        await asyncio.Event().wait()

    with pytest.raises(Died, match=r"the peer ended with exit code 1:\nill"):
        run_with_peers(test)


def test_a_peer_that_does_not_start_fails_the_test_at_once() -> None:
    async def test(peers: Peers) -> None:
        await peers.start("the peer", sys.executable, "-c", "import no_such_module")

    with pytest.raises(Died, match="ModuleNotFoundError: No module named 'no_such_module'"):
        run_with_peers(test)


@pytest.fixture(scope="session")
def package() -> Path:
    """The folder that scripts find the package in."""
    return npm_packages(SCRIPTS)


async def start(peers: Peers, package: Path, release: int, role: str, *more: str) -> Peer:
    """Start a released tracker or node of the stream `s`."""
    port = str(free_port())
    # As the Node.js did that these packages were made for: some of what they give up nobody awaits.
    command = ("node", "--unhandled-rejections=warn", str(SCRIPTS / "peer.js"))
    name = f"{role}-{port} of release {release}"
    more = (str(release), role, port, "s", *more)
    return await peers.start(name, *command, *more, NODE_PATH=str(package))


async def shared(node: Node, peers: Sequence[Peer]) -> None:
    """Push here and there, and wait until everything is everywhere, once."""
    await (await node.stream("s")).push(b'{"from":"here"}')
    expected = {'{"from":"here"}'}
    for at, peer in enumerate(peers):
        texts = [f'{{"from":{at},"number":{number}}}' for number in range(5)]
        peer.publish(*texts)
        expected |= set(texts)
    await until_all(node, expected)
    while any(set(told_by(peer.got)) != expected for peer in peers):
        await asyncio.sleep(0.05)
    assert all(len(told_by(peer.got)) == len(expected) for peer in peers)


async def settled(node: Node, peer: Peer) -> None:
    """Wait until five trials that a peer publishes come, one after the other.

    What is published on a link that is given up is lost, as released nodes send nothing again.
    """
    come = count = 0
    while come < 5:
        trial, count = f'{{"trial":{count}}}', count + 1
        peer.publish(trial)
        try:
            async with asyncio.timeout(1.0):
                while trial not in await contents(node):
                    await asyncio.sleep(0.05)
        except TimeoutError:
            come = 0
        else:
            come += 1


@pytest.mark.needs("node")
@pytest.mark.parametrize("release", NEWEST)
async def test_released_nodes_share_a_stream_with_this_one(
    peers: Peers, release: int, package: Path, tmp_path: Path
) -> None:
    node = await peers.stack.enter_async_context(running(tmp_path))
    nodes = [await start(peers, package, release, "node", url_of(node)) for _ in range(2)]
    await linked(node, 2)
    await shared(node, nodes)


@pytest.mark.needs("node")
@pytest.mark.parametrize("release", RELEASED)
async def test_this_node_shares_a_stream_where_a_released_tracker_says_so(
    peers: Peers, release: int, package: Path, tmp_path: Path
) -> None:
    tracker = await start(peers, package, release, "tracker")
    more: dict[str, Any] = {"trackers": (tracker.url,), "release": release}
    node = await peers.stack.enter_async_context(running(tmp_path, **more))
    nodes: list[Peer] = []
    for count in range(1, 3):
        # A released tracker takes the last status for true, however old: it tells both ends of
        # a new link to dial where one has spoken before, and released nodes lose both links.
        nodes.append(await start(peers, package, release, "node", tracker.url))
        while [len(its) for its in tracker.neighbours.values()] != [count] * (count + 1):
            await asyncio.sleep(0.05)
    await linked(node, 2)
    await shared(node, nodes)


class Told:
    """A node and a released one, with a tracker that tells them what the test says."""

    def __init__(self, release: int, node: Node, peer: Peer, node_url: str) -> None:
        self._release = release
        self.node = node
        self.peer = peer
        self._node_url = node_url
        self._links: dict[str, web.WebSocketResponse] = {}

    async def joined(self, tracker: Spoken) -> None:
        """Wait until both have come to the tracker, and share the stream."""
        for _ in range(2):
            link = await tracker.links.get()
            await heard(link, "s::0")
            self._links[tracker.addresses.pop(0)] = link

    async def tell_peer(self) -> None:
        link = self._links[self.peer.url]
        await link.send_json(instruction(self._release, "s", self._node_url))

    async def held(self) -> None:
        """Wait until the node has a link to the peer for its own messages."""
        while self._state() != "open":
            await asyncio.sleep(0.05)

    def _state(self) -> str | None:
        links = self.node.status()["overlay"]["links"]
        return links[self.peer.url]["state"] if self.peer.url in links else None

    async def tell_node(self, stream: str) -> None:
        link = self._links[self._node_url]
        await link.send_json(instruction(self._release, stream, self.peer.url))


def with_told(
    release: int, package: Path, tmp_path: Path, test: Callable[[Told], Awaitable[None]]
) -> None:

    async def whole(peers: Peers) -> None:
        tracker = await peers.stack.enter_async_context(Spoken("tracker").listening())
        more: dict[str, Any] = {"trackers": (tracker.url,), "release": release}
        node = await peers.stack.enter_async_context(running(tmp_path, **more))
        peer = await start(peers, package, release, "node", tracker.url)
        told = Told(release, node, peer, f"{url_of(node)}/node")
        await told.joined(tracker)
        await test(told)

    run_with_peers(whole)


@pytest.mark.needs("node")
@pytest.mark.long  # as `test_who_has_come_is_not_dialled`
@pytest.mark.parametrize("release", RELEASED)
def test_a_released_node_that_has_come_is_not_dialled_as_well(
    release: int, package: Path, tmp_path: Path
) -> None:
    async def test(told: Told) -> None:
        await told.tell_peer()
        await linked(told.node, 1)
        await told.tell_node("s2")  # which the peer does not share
        await told.held()
        await shared(told.node, [told.peer])

    with_told(release, package, tmp_path, test)


@pytest.mark.needs("node")
@pytest.mark.parametrize("release", NEWEST)
def test_a_link_is_left_where_both_are_told_to_dial(
    release: int, package: Path, tmp_path: Path
) -> None:
    async def test(told: Told) -> None:
        await asyncio.gather(told.tell_peer(), told.tell_node("s"))
        await linked(told.node, 1)
        await settled(told.node, told.peer)
        await shared(told.node, [told.peer])

    with_told(release, package, tmp_path, test)
