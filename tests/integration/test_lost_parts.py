"""What a node has lost for good is seen wherever people and machines look."""

import asyncio
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from nodes import connect_to, node_config
from rillnode.actors.storage.tables import Tables
from rillnode.actors.storage.writer import Writer
from rillnode.codecs.errors import RequestError
from rillnode.node.runtime import Node


class Panic(BaseException):
    """As a panic of the store's native code reaches Python."""


def panics(*_: object) -> None:
    raise Panic("an index out of bounds")


async def get(node: Node, path: str) -> tuple[int, str]:
    """What the http listener answers."""

    def ask() -> tuple[int, str]:
        url = f"http://{node.addresses()['http']}{path}"
        try:
            with urllib.request.urlopen(url, timeout=60) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    return await asyncio.to_thread(ask)


def test_a_node_tells_which_of_its_threads_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
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

    asyncio.run(asyncio.wait_for(run(), 120.0))
