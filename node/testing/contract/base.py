"""The base class of all suites, whose tests may be coroutines."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import wraps
from typing import Any, ClassVar


async def until(condition: Callable[[], object], *, seconds: float = 60.0) -> None:
    """Let the loop run until `condition` holds.

    Raises:
        TimeoutError: it does not within `seconds` of the loop.
    """
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.002)


class Contract:
    """A suite: subclasses are named `Test...`, say how their part is made, and may add tests.

    A test that is a coroutine function runs in an event loop of its own, whatever plug-ins pytest
    has for such tests.

    Attributes:
        seconds_max: what takes longer, of tests that are coroutines, has failed.
    """

    seconds_max: ClassVar[float] = 60.0

    def around(self) -> AbstractAsyncContextManager[object]:
        """What stands around each test that is a coroutine, in its loop."""
        return nullcontext()

    def run_in_a_loop(self, test: Coroutine[Any, Any, None]) -> None:
        """Run a test to its end; for a part that needs another kind of loop than asyncio's own."""
        asyncio.run(test)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, test in list(vars(cls).items()):
            if name.startswith("test_") and inspect.iscoroutinefunction(test):
                setattr(cls, name, _in_a_loop(test))


def _in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(self: Contract, *args: Any, **values: Any) -> None:
        async def limited() -> None:
            async with asyncio.timeout(self.seconds_max), self.around():
                await test(self, *args, **values)

        self.run_in_a_loop(limited())

    return run
