"""What all suites are made of: classes whose tests may be coroutines."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ClassVar


class Contract:
    """A suite: subclasses are named `Test...`, say how their part is made, and may add tests.

    A test that is a coroutine function runs in an event loop of its own, whatever plug-ins pytest
    has for such tests.

    Attributes:
        seconds_max: what takes longer, of tests that are coroutines, has failed.
    """

    seconds_max: ClassVar[float] = 60.0

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, test in list(vars(cls).items()):
            if name.startswith("test_") and inspect.iscoroutinefunction(test):
                setattr(cls, name, _in_a_loop(test))


def _in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(self: Contract, *args: Any, **values: Any) -> None:
        async def limited() -> None:
            async with asyncio.timeout(self.seconds_max):
                await test(self, *args, **values)

        asyncio.run(limited())

    return run
