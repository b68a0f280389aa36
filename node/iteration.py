"""Async iterators of clients, which a timeout does not end."""

import asyncio
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, Generic, Protocol, Self, TypeVar, runtime_checkable

from rillnode.codecs.errors import RillnodeError
from rillnode.codecs.events import event_logger

logger = event_logger("rillnode.node.client")

Item = TypeVar("Item")
Result = TypeVar("Result")
Item_co = TypeVar("Item_co", covariant=True)


class Source(Protocol[Item_co]):
    """A source of an iteration's items."""

    async def fetch(self) -> Sequence[Item_co]:
        """Wait for the next items; cancelled and called again, it loses none.

        Raises:
            StopAsyncIteration: there are no more.
        """
        ...

    async def close(self) -> None:
        """Give back what it holds; who waits in `fetch` is told that there are no more."""
        ...


@runtime_checkable
class Opening(Protocol):
    """A source that has to find out where it begins."""

    async def open(self) -> None:
        """Find out where to begin; called again, and cancelled, it goes on."""
        ...


class Iteration(Generic[Item]):
    """An iteration over what a client reads: an async iterator and context manager.

    `anext` may be cancelled at any time, by `asyncio.wait_for` as well: the next one goes on where
    it waited, and no item is lost or comes twice. An error is raised again by each further `anext`.
    It ends with `aclose`, with the end of its `async with`, or when nothing refers to it any more.
    """

    def __init__(self, source: Source[Item]) -> None:
        self._source = source
        self._items: deque[Item] = deque()
        self._error: Exception | None = None
        self._closing: asyncio.Task[None] | None = None
        self._keep: Callable[[], object] | None = None

    def __aiter__(self) -> Self:
        """Itself."""
        return self

    async def __anext__(self) -> Item:
        """Wait for the next item; raises what the call that made the iteration says."""
        while not self._items:
            if self._closing is not None:
                raise self._error or StopAsyncIteration
            self._close_when_dropped()
            try:
                self._items += await self._source.fetch()
            except Exception as error:
                await self._fail(error)
                raise
        # Nothing is awaited once items are there: a cancellation meets none on its way.
        return self._items.popleft()

    async def __aenter__(self) -> Self:
        """Find out where to begin, so that what comes from now on is in it; raises as `anext`."""
        if isinstance(self._source, Opening):
            self._close_when_dropped()
            try:
                await self._source.open()
            except Exception as error:
                await self._fail(error)
                raise
            except BaseException:
                await self.aclose()
                raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.aclose()

    async def aclose(self) -> None:
        """End it; what was not taken is forgotten. Cancelled, it goes on to close."""
        if self._closing is None:
            self._items.clear()
            if self._keep is not None:
                self._keep()
            # Who was cancelled meanwhile does not look how it ends.
            self._closing = kept(self._source.close())
        await asyncio.shield(self._closing)

    def _close_when_dropped(self) -> None:
        """Whoever breaks out of a loop closes nothing, and what is read from goes on."""
        if self._keep is None:
            loop = asyncio.get_running_loop()
            dropped = weakref.finalize(self, _close_dropped, loop, self._source)
            dropped.atexit = False
            self._keep = dropped.detach

    async def _fail(self, error: Exception) -> None:
        """Close because of an error, which counts for more than what closing may bring."""
        self._error = self._error or error
        try:
            await self.aclose()
        except RillnodeError as further:
            logger.warning("iteration_not_closed", extra={"code": further.code})


class Steps(Generic[Item]):
    """Makes a source of an async generator of groups of items.

    A cancelled generator is over. So each step of it is a task, which outlives whoever waits.
    """

    def __init__(self, groups: AsyncGenerator[Sequence[Item]]) -> None:
        self._groups = groups
        self._step: asyncio.Task[Sequence[Item]] | None = None
        self._closed = False

    async def fetch(self) -> Sequence[Item]:
        """Take the generator's next step, or wait on for one that was begun."""
        while not self._closed:
            if self._step is None:
                self._step = kept(self._next())
            step = self._step
            await asyncio.wait((step,))
            if step is self._step and not self._closed:  # else somebody else has had it
                self._step = None
                return step.result()
        raise StopAsyncIteration

    def stop(self) -> None:
        """Take no more steps, and end the one that is under way."""
        self._closed = True
        if self._step is not None:
            self._step.cancel()

    async def close(self) -> None:
        """End the generator, and the step that is under way."""
        self.stop()
        if self._step is not None:
            await asyncio.gather(self._step, return_exceptions=True)
        await self._groups.aclose()

    async def _next(self) -> Sequence[Item]:
        return await anext(self._groups)


def iterate(groups: AsyncGenerator[Sequence[Item]]) -> Iteration[Item]:
    """Make an iteration of an async generator of groups of items."""
    return Iteration(Steps(groups))


async def each(*works: Awaitable[object]) -> None:
    """Do all, beside each other; then raise what the first of those has raised that have failed."""
    for outcome in await asyncio.gather(*works, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome


def kept(work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
    """Begin work whose result, an error as well, may wait for whoever asks next, or for nobody."""
    task = asyncio.get_running_loop().create_task(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


def _close_dropped(loop: asyncio.AbstractEventLoop, source: Source[object]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(_close_later, loop, source)


def _close_later(loop: asyncio.AbstractEventLoop, source: Source[object]) -> None:
    loop.create_task(_close_quietly(source))


async def _close_quietly(source: Source[object]) -> None:
    try:
        await source.close()
    except RillnodeError as error:
        logger.warning("iteration_not_closed", extra={"code": error.code})
