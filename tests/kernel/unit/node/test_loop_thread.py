"""A loop in a thread: what it does for those who wait when it ends."""

import asyncio
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor

import pytest

from rillnode.codecs.errors import TransportError
from rillnode.node.client.loop_thread import LoopThread


async def number(value: int) -> int:
    await asyncio.sleep(0)
    return value


def test_threads_share_it() -> None:
    loop = LoopThread()

    def ask(value: int) -> int:
        return loop.run(number(value))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(100))) == list(range(100))
    loop.stop()


def test_who_waits_when_it_ends_is_told() -> None:
    loop = LoopThread()
    begun = threading.Event()

    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: loop.run(endless()))
        begun.wait()
        loop.stop()
        with pytest.raises(TransportError) as caught:
            waiting.result(timeout=10)
    assert caught.value.code == "client.closed"


def test_nothing_runs_after_the_end() -> None:
    loop = LoopThread()
    done: list[int] = []

    async def note(value: int) -> None:
        done.append(value)

    loop.stop(note(1))
    loop.stop(note(2))
    with pytest.raises(TransportError):
        loop.run(number(3))
    assert done == [1]


def test_a_cancelled_coroutine_is_told_as_such() -> None:
    loop = LoopThread()

    async def gives_up() -> None:
        raise asyncio.CancelledError

    with pytest.raises(CancelledError):
        loop.run(gives_up())
    loop.stop()


def test_it_ends_although_the_last_work_fails() -> None:
    loop = LoopThread()

    async def fails() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        loop.stop(fails())
    with pytest.raises(TransportError):
        loop.run(number(1))


def test_it_outlives_a_coroutine_that_leaves_the_program() -> None:
    loop = LoopThread()

    async def leaves() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        loop.run(leaves())
    assert loop.run(number(5)) == 5
    loop.stop()
