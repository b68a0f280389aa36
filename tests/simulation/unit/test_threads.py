"""Threads of simulated processes: one at a time, in virtual time, ended with their process."""

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any

import pytest

from rillnode.node.simulation.interpreter import CallbackStuck, watchdog
from rillnode.node.simulation.loop import ProcessLoop, Scheduler
from rillnode.node.simulation.threads import SimulatedThreads


class Process:
    """A simulated process with threads."""

    def __init__(self) -> None:
        self.scheduler = Scheduler()
        self.loop = ProcessLoop(self.scheduler, "test")
        self.threads = SimulatedThreads(self.loop)

    def run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(coroutine)
        self.scheduler.run_until(task)
        task.result()

    def live(self, seconds: float) -> None:
        """Let virtual seconds pass."""
        self.run(asyncio.sleep(seconds))


@pytest.fixture
def process() -> Generator[Process]:
    process = Process()
    yield process
    process.threads.kill()
    process.loop.close()


def test_what_threads_wait_for_comes_in_virtual_time(process: Process) -> None:
    threads, noted = process.threads, list[tuple[float, object]]()
    queue, flag = threads.queue(), threads.flag()

    def note(what: object) -> None:
        noted.append((process.scheduler.now, what))

    def take() -> None:
        note(flag.wait(2.0))
        note(flag.wait(2.0))
        note(queue.get())

    def give() -> None:
        threads.sleep(3.0)
        flag.set()
        threads.sleep(4.0)
        queue.put("given")

    threads.start(take, "taker")
    threads.start(give, "giver")
    process.live(10.0)
    assert noted == [(2.0, False), (3.0, True), (7.0, "given")]


def test_what_ends_a_thread_is_an_error_of_its_process(process: Process) -> None:
    def fail() -> None:
        process.threads.sleep(1.0)
        raise ValueError("the store is broken")

    process.threads.start(fail, "store")
    process.live(2.0)
    assert [str(error["exception"]) for error in process.loop.errors] == ["the store is broken"]


@pytest.mark.parametrize("timeout", [None, 1.0])
def test_a_killed_thread_waits_for_nothing_more(process: Process, timeout: float | None) -> None:
    reached: list[str] = []
    flag = process.threads.flag()

    def wait() -> None:
        try:
            flag.wait()
        finally:
            reached.append("its end")
            flag.wait(timeout)
            reached.append("what comes after it")

    process.threads.start(wait, "store")
    process.live(1.0)
    process.threads.kill()
    assert reached == ["its end"]


def test_a_thread_that_keeps_its_turn_is_noticed_and_left(process: Process) -> None:
    over: list[bool] = []

    def spin() -> None:
        while not over:
            pass

    process.threads.start(spin, "store")
    with pytest.raises(CallbackStuck), watchdog(lambda: process.scheduler.now, 0.05):
        process.live(1.0)
    process.threads.kill()
    assert not over
    over.append(True)
