"""Nodes are started and stopped in every order that a program may come to.

Whatever is cancelled, repeated or done at once: in the end no thread runs, the store can be opened
again, and a node that runs goes on.
"""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from nodes import node_config
from rillnode.actors.log.rocks.store import RocksLogStore
from rillnode.codecs.errors import RillnodeError, StoreError
from rillnode.node.runtime import Node

STEPS: Final = 40
"""Turns of the loop after which a start or a stop is cancelled."""


def after_turns(each: int) -> pytest.MarkDecorator:
    """Run a test for some of these turns quickly, and for all of them in the long run."""
    turns = [pytest.param(n, marks=pytest.mark.long if n % each else ()) for n in range(STEPS)]
    return pytest.mark.parametrize("turns", turns)


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    left = [one.name for one in threading.enumerate() if one.name.startswith("store-")]
    assert left == []


async def is_usable(path: Path) -> bool:
    async with asyncio.timeout(20.0), Node(node_config(path)) as node:
        stream = await node.stream("s")
        return await stream.push(b"x") >= 0


async def test_a_node_that_runs_is_not_started_again_and_goes_on(tmp_path: Path) -> None:
    async with Node(node_config(tmp_path)) as node:
        stream = await node.stream("s")
        with pytest.raises(RillnodeError, match="was started before") as caught:
            await node.start()
        assert caught.value.code == "node.running"
        assert await stream.push(b"x") == 0
    await node.start()  # one that was stopped is
    assert await (await node.stream("s")).push(b"y") == 1
    await node.stop()


async def test_of_two_starts_at_once_one_is_refused(tmp_path: Path) -> None:
    node = Node(node_config(tmp_path))
    first, second = await asyncio.gather(node.start(), node.start(), return_exceptions=True)
    assert first is None
    assert isinstance(second, RillnodeError)
    await node.stop()


@after_turns(5)
async def test_a_start_that_is_cancelled_leaves_nothing(tmp_path: Path, turns: int) -> None:
    node = Node(node_config(tmp_path))
    starting = asyncio.ensure_future(node.start())
    for _ in range(turns):
        await asyncio.sleep(0)
    starting.cancel()
    await asyncio.wait({starting})
    await node.stop()
    assert await is_usable(tmp_path)


async def test_a_start_that_is_cancelled_while_the_store_opens_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening, may_go_on = asyncio.Event(), threading.Event()
    loop, node = asyncio.get_running_loop(), Node(node_config(tmp_path))
    open_store = RocksLogStore.open

    def slow(store: RocksLogStore) -> None:
        loop.call_soon_threadsafe(opening.set)
        may_go_on.wait(20.0)
        open_store(store)

    monkeypatch.setattr(RocksLogStore, "open", slow)
    starting = asyncio.ensure_future(node.start())
    await opening.wait()
    starting.cancel()
    await asyncio.sleep(0)
    may_go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await starting
    monkeypatch.undo()
    assert await is_usable(tmp_path)


@after_turns(10)
async def test_a_stop_that_is_cancelled_goes_on(tmp_path: Path, turns: int) -> None:
    node = Node(node_config(tmp_path))
    await node.start()
    stopping = asyncio.ensure_future(node.stop())
    for _ in range(turns):
        await asyncio.sleep(0)
    stopping.cancel()
    await asyncio.wait({stopping})
    await asyncio.gather(node.stop(), node.stop())
    assert await is_usable(tmp_path)


async def test_who_is_in_the_way_is_a_node_of_any_process(tmp_path: Path) -> None:
    async with Node(node_config(tmp_path)):
        with pytest.raises(StoreError, match="is in use: stop the node that has it"):
            await Node(node_config(tmp_path)).start()


async def test_what_there_is_only_after_the_start_is_told_of_in_one_way(tmp_path: Path) -> None:
    node = Node(node_config(tmp_path))
    for ask in (node.status, node.rest, node.routes, lambda: node.reload(node.config)):
        with pytest.raises(AttributeError, match="has not started"):
            ask()
    assert node.addresses() == {}
