"""The base class of all suites, whose tests may be coroutines."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import wraps
from typing import Any, ClassVar, Final

SOON_SECONDS = 60.0
"""Within this time anything comes that comes at once. Machines that test are busy."""

_LOOK_SECONDS: Final = 0.002
_LOOK_SECONDS_MAX: Final = 0.02


async def until(
    condition: Callable[[], object],
    what: str | Callable[[], str] = "",
    *,
    seconds: float | None = None,
) -> None:
    """Let the loop run until something is so.

    Args:
        condition: returns whether it is, or an awaitable of that.
        what: the text of the error if it is not, or what returns it then.
        seconds: of the loop, within which it is; None: `SOON_SECONDS`.

    Raises:
        AssertionError: it is not.
    """
    loop, pause = asyncio.get_running_loop(), _LOOK_SECONDS
    within = SOON_SECONDS if seconds is None else seconds
    deadline = loop.time() + within
    while True:
        found = condition()
        if await found if inspect.isawaitable(found) else found:
            return
        if loop.time() >= deadline:
            said = what() if callable(what) else what
            raise AssertionError(said or f"what was waited for has not come in {within} s")
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LOOK_SECONDS_MAX)


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
