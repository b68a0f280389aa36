"""Ctrl-C at any point of a blocking iteration loses nothing, and gives nothing twice."""

import asyncio
import dis
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from types import CodeType, FrameType
from typing import Any, cast

import pytest

from rillnode.node.client import blocking, loop_thread
from rillnode.node.client.blocking import BlockingConsumer, BlockingIteration, BlockingWorkQueue
from rillnode.node.client.loop_thread import LoopThread

FILES = {blocking.__file__, loop_thread.__file__}


class Interrupted:
    """Raises `KeyboardInterrupt` in this thread, once, where the interpreter looks for signals.

    It does so after a call of what is not written in Python, at the beginning of a function and at
    the end of a loop's body.

    Args:
        place: at the how manieth of these places in `FILES`.

    Attributes:
        was_raised: whether there were so many.
    """

    def __init__(self, place: int) -> None:
        self._left = place
        self._before: dict[FrameType, int] = {}
        self._returned = False
        self.was_raised = False

    @contextmanager
    def once(self) -> Generator[None]:
        """Interrupt what is done within, and take the exception."""
        sys.settrace(self._called)
        try:
            yield
        except KeyboardInterrupt:
            assert self.was_raised
        finally:
            sys.settrace(None)
            self._before.clear()

    def _called(self, frame: FrameType, _event: str, _argument: object) -> Any:
        if frame.f_code.co_filename not in FILES:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._traced

    def _traced(self, frame: FrameType, event: str, _argument: object) -> Any:
        if event == "return":
            self._returned = True
            self._before.pop(frame, None)
        elif event == "opcode":
            before, self._before[frame] = self._before.get(frame), frame.f_lasti
            looked = before is None or looks_between(frame.f_code, before, frame.f_lasti)
            if looked and not self._returned:
                if not self._left:
                    self.was_raised = True
                    raise KeyboardInterrupt
                self._left -= 1
            self._returned = False
        return self._traced


@cache
def looks_between(code: CodeType, before: int, offset: int) -> bool:
    """Whether the interpreter looks for signals after one instruction, and raises before the other.

    Where the two have other handlers, as at the end of a `with`, it would raise in the first one.
    """
    instructions = {one.offset: one.opname for one in dis.get_instructions(code)}
    if not instructions[before].startswith(("CALL", "JUMP_BACKWARD")):
        return False
    entries: list[Any] = cast(Any, dis.Bytecode(code)).exception_entries

    def handler(at: int) -> object:
        return next((one.target for one in entries if one.start <= at < one.end), None)

    return handler(before) == handler(offset)


class Source:
    """Gives numbers, as many as there are by then; does a `Consumer`'s part in it."""

    def __init__(self) -> None:
        self.name, self.stream, self.max_in_flight = "c", "s", 10
        self.numbers = asyncio.Queue[int]()

    async def batch(self, n: int) -> list[int]:
        """Wait for the next ones, at most `n`."""
        found = [await self.numbers.get()]
        while len(found) < n and not self.numbers.empty():
            found.append(self.numbers.get_nowait())
        return found

    async def still(self, taken: Sequence[int], n: int) -> list[int]:
        """All that was taken."""
        return [*taken] or await self.batch(n)

    async def close(self) -> None:
        """Nothing."""


class Work:
    """Gives the numbers of a source as jobs; does a `WorkQueue`'s part in it."""

    name, stream = "q", "s"

    def __init__(self, source: Source) -> None:
        self._source = source
        self.given_back: list[int] = []

    async def __anext__(self) -> "Given":
        """Wait for the next one."""
        number = self.given_back.pop() if self.given_back else await self._source.numbers.get()
        return Given(number, self)

    async def next(self, *, timeout: float | None) -> "Given":
        """The same."""
        async with asyncio.timeout(timeout):
            return await anext(self)


class Given:
    """One number, as a job."""

    attempt = 1

    def __init__(self, number: int, work: Work) -> None:
        self.entry = number
        self._work = work

    async def __aenter__(self) -> "Given":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert kind is asyncio.CancelledError
        self._work.given_back.append(self.entry)


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    made = LoopThread()
    yield made
    made.stop()


Take = Callable[[], list[int]]


def iterating(loop: LoopThread, source: Source) -> Take:
    iteration = BlockingIteration[int](loop, lambda: source.batch(3), source.close)
    return lambda: [next(iteration)]


def consuming(loop: LoopThread, source: Source) -> Take:
    consumer = BlockingConsumer[Any](cast(Any, source), loop)
    return lambda: [next(consumer)]


def consuming_many(loop: LoopThread, source: Source) -> Take:
    consumer = BlockingConsumer[Any](cast(Any, source), loop)
    return lambda: consumer.batch(3)


def working(loop: LoopThread, source: Source) -> Take:
    queue = BlockingWorkQueue(cast(Any, Work(source)), loop)
    return lambda: [cast(int, next(queue).entry)]


def working_in_time(loop: LoopThread, source: Source) -> Take:
    queue = BlockingWorkQueue(cast(Any, Work(source)), loop)
    return lambda: [cast(int, queue.next(timeout=10.0).entry)]


@pytest.mark.filterwarnings("ignore:coroutine .Kept._result. was never awaited")
@pytest.mark.parametrize("making", [iterating, consuming, consuming_many, working, working_in_time])
@pytest.mark.parametrize("is_late", [False, True])
def test_an_interrupt_anywhere_loses_nothing_and_gives_nothing_twice(
    loop: LoopThread, making: Callable[[LoopThread, Source], Take], is_late: bool
) -> None:
    place, was_raised = 0, True
    while was_raised:
        source, interrupted = Source(), Interrupted(place)
        take, taken = making(loop, source), list[int]()
        for number in range(10):
            put = partial(source.numbers.put_nowait, number)
            loop.post(partial(loop.post, put) if is_late else put)
        with interrupted.once():
            taken += take()
        while len(taken) < 10:
            taken += take()
        assert taken == [*range(10)], place
        place, was_raised = place + 1, interrupted.was_raised
    assert place > 5
