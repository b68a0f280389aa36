"""Tests that a node's lost parts show wherever people and machines look."""

import asyncio
import json
import signal
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from command_line import printed
from forked import Forked
from nodes import CLIENT, connect_to, node_config
from rillnode.actors.core.streams.service import StreamService
from rillnode.actors.log.rocks.tables import Tables
from rillnode.actors.log.rocks.writer import Writer
from rillnode.codecs import native
from rillnode.codecs.errors import RequestError
from rillnode.node.client import Client, connect
from rillnode.node.runtime import Node
from rillnode.node.testing.contract.stores.driver import wait_until

SCRIPT = Path(__file__).with_name("failing_node.py")


class Panic(BaseException):
    """As a panic of the store's native code reaches Python."""


def panics(*_: object) -> None:
    raise Panic("an index out of bounds")


def fetch(url: str) -> tuple[int, str]:
    """What an http listener answers."""
    try:
        with urllib.request.urlopen(url, timeout=60) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


async def get(node: Node, path: str) -> tuple[int, str]:
    return await asyncio.to_thread(fetch, f"http://{node.addresses()['http']}{path}")


async def test_a_node_tells_which_of_its_threads_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Node(node_config(tmp_path)) as node, await connect_to(node) as client:
        stream = await client.stream("s")
        assert await stream.push(b"kept") == 0
        assert (await get(node, "/readyz"))[0] == 200
        monkeypatch.setattr(Tables, "sync", panics)
        monkeypatch.setattr(Writer, "_failure", panics)  # nor can it be repaired
        for _ in range(2):
            with pytest.raises(RequestError) as refused:
                await stream.push(b"lost")
            assert refused.value.code == "store.failed"
        async with asyncio.timeout(60.0):
            while "[-] threads" not in (await get(node, "/readyz"))[1]:
                await asyncio.sleep(0.01)
        status, text = await get(node, "/readyz")
        assert status == 503
        assert "the thread store-writer has ended at 2" in text
        assert "(Panic: an index out of bounds): see the log" in text
        assert [entry.data for entry in await stream.pull(0)] == [b"kept"]
        _, metrics = await get(node, "/metrics")
        assert 'rillnode_parts_lost_total{kind="thread",part="store-writer"} 1.0' in metrics
        assert 'rillnode_ready{check="threads"} 0.0' in metrics
        document: dict[str, Any] = json.loads((await get(node, "/v1/status"))[1])
        (lost,) = document["lost"]
        assert (lost["kind"], lost["name"], lost["times"]) == ("thread", "store-writer", 1)


class Failing:
    """`rillnode run` in a process of its own, whose stream service can be made to fail."""

    def __init__(self, directory: Path, *options: str, hang: bool = False) -> None:
        self._ports = directory / "ports.json"
        self.log = directory / "log"
        config = directory / "node.toml"
        config.write_text(
            'name = "failing"\n[noise]\nlisten = "127.0.0.1:0"\n[http]\nlisten = "127.0.0.1:0"\n'
            f'[[grant]]\nwho = "noise:{CLIENT.public_hex}"\nstreams = "*"\nmay = ["admin"]\n'
        )
        argv = [*(["--hang"] if hang else []), "run", "-c", str(config), *options]
        with self.log.open("wb") as log:
            self.process = Forked(
                SCRIPT, *argv, "--ports-file", self._ports, stdout=log, stderr=log
            )
        wait_until(lambda: self._ports.exists() or self.process.poll() is not None)
        self.ports: dict[str, str] = json.loads(self._ports.read_text())

    async def connect(self) -> Client:
        url, node = f"noise://{self.ports['noise']}", self.ports["identity"]
        return await connect(url, identity=CLIENT, node_identity=node)

    async def begin_to_fail(self, client: Client) -> None:
        """Let the stream service fail, and go on as often as it does without being given up."""
        self.process.send_signal(signal.SIGUSR1)
        failures = 0
        session = client._session  # pyright: ignore[reportPrivateUsage]
        while failures < StreamService.restarts_max:
            # Which no client asks again by itself.
            request = native.RemoveRequest(session.next_id(), "nothing")
            try:
                await session.request(b"stream", request, native.DoneResponse)
            except RequestError as error:
                if error.code == "actor.failed":
                    failures += 1

    @property
    def has_ports_file(self) -> bool:
        return self._ports.exists()


@pytest.fixture
def failing(tmp_path: Path) -> Iterator[Callable[..., Failing]]:
    started: list[Failing] = []

    def start(*options: str, hang: bool = False) -> Failing:
        started.append(Failing(tmp_path, *options, hang=hang))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()


def test_a_node_that_cannot_go_on_answers_what_it_took_and_ends_its_process(
    failing: Callable[..., Failing],
) -> None:
    node = failing()

    async def push() -> list[int]:
        async with await node.connect() as client:
            stream = await client.stream("s")
            await node.begin_to_fail(client)
            pushed = [stream.push_nowait(b"%d" % number) for number in range(1_000)]
            fatal = asyncio.create_task(client.describe("s"))
            indexes = await asyncio.gather(*pushed)
            fatal.cancel()
            return indexes

    assert asyncio.run(asyncio.wait_for(push(), 60.0)) == list(range(1_000))
    assert node.process.wait(30.0) == 4
    log = node.log.read_text()
    assert "rillnode: the actor StreamService was given up at 2" in log
    assert "(RuntimeError: planted)" in log
    assert "start the node anew [node.failed]\n  next: start the node again" in log
    assert '"event": "node_failed"' in log
    assert "stop_cut_short" not in log
    assert not node.has_ports_file


def test_a_node_whose_end_hangs_ends_all_the_same(failing: Callable[..., Failing]) -> None:
    node = failing(hang=True)

    async def fail() -> None:
        async with await node.connect() as client:
            await node.begin_to_fail(client)
            asking = asyncio.create_task(client.describe("s"))
            await asyncio.to_thread(node.process.wait, 60.0)
            asking.cancel()

    asyncio.run(asyncio.wait_for(fail(), 60.0))
    assert node.process.returncode == 4
    assert '"event": "stop_cut_short"' in node.log.read_text()


def test_a_node_that_is_to_stay_does(failing: Callable[..., Failing]) -> None:
    node = failing("--set", "on_fatal=stay")

    async def fail() -> None:
        async with await node.connect() as client:
            stream = await client.stream("s")
            await node.begin_to_fail(client)
            with pytest.raises(RequestError):
                await client.remove("nothing")
            url = f"http://{node.ports['http']}/readyz"
            async with asyncio.timeout(60.0):
                while (answer := await asyncio.to_thread(fetch, url))[0] != 503:
                    await asyncio.sleep(0.01)
            assert "[-] actors: the actor StreamService was given up at 2" in answer[1]
            assert await stream.push(b"goes on") == 0

    asyncio.run(asyncio.wait_for(fail(), 60.0))
    node.process.send_signal(signal.SIGTERM)
    assert node.process.wait(60.0) == 0


def test_what_on_fatal_cannot_be_is_told(tmp_path: Path) -> None:
    told = printed("run", "--dev", "--data-dir", tmp_path, "--set", "on_fatal=restart", code=2)
    assert "--set: on_fatal: 'restart': expected" in told
    assert "exit" in told
    assert "stay" in told
