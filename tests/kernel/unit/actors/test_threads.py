"""No thread ends silently: whichever was not asked to is logged and told by its name."""

import asyncio
import logging
import threading

import pytest

from rillnode.actors.core.threads import SYSTEM_THREADS, SystemThreads, run_loop
from rillnode.node.testing.contract.stores.driver import wait_until


class Panic(BaseException):
    """As a panic of native code reaches Python."""


@pytest.mark.parametrize("error", [ValueError, Panic, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_thread_that_raises_is_told_by_its_name(
    caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    told: list[tuple[str, BaseException]] = []

    def fail() -> None:
        raise error("planted")

    thread = SystemThreads(lambda name, error: told.append((name, error))).start(fail, "one of two")
    thread.join()
    ((name, raised),) = told
    assert (name, type(raised)) == ("one of two", error)
    (record,) = caplog.records
    assert (record.levelno, record.msg) == (logging.CRITICAL, "thread_ended")
    assert vars(record)["which"] == "one of two"
    assert "in fail" in (caplog.text)  # where it was


def test_a_thread_that_was_asked_to_end_is_not(caplog: pytest.LogCaptureFixture) -> None:
    told: list[str] = []
    asked = threading.Event()
    threads = SystemThreads(lambda name, _: told.append(name))
    thread = threads.start(asked.wait, "asked")
    asked.set()
    thread.join()
    assert (told, caplog.records) == ([], [])


def test_a_loop_goes_on_after_what_would_end_it(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.new_event_loop()
    over = threading.Event()
    thread = SYSTEM_THREADS.start(lambda: run_loop(loop, over.is_set), "loop")

    async def leave() -> None:
        raise SystemExit(3)

    async def number() -> int:
        await asyncio.sleep(0)
        return 5

    with pytest.raises(SystemExit):
        asyncio.run_coroutine_threadsafe(leave(), loop).result(timeout=60)
    assert asyncio.run_coroutine_threadsafe(number(), loop).result(timeout=60) == 5
    assert [record.msg for record in caplog.records] == ["loop_interrupted"]
    over.set()
    loop.call_soon_threadsafe(loop.stop)
    thread.join(60)
    wait_until(lambda: not loop.is_running())
    loop.close()


def test_a_loop_is_stopped_although_a_callback_raises_right_behind() -> None:
    loop = asyncio.new_event_loop()
    over = threading.Event()
    thread = SYSTEM_THREADS.start(lambda: run_loop(loop, over.is_set), "loop")

    def leave() -> None:
        raise SystemExit

    def stop() -> None:
        over.set()
        loop.stop()  # which the next callback makes the loop forget
        loop.call_soon(leave)

    def both() -> None:
        loop.call_soon(stop)
        loop.call_soon(leave)

    loop.call_soon_threadsafe(both)
    thread.join(60)
    wait_until(lambda: not loop.is_running())
    loop.close()
