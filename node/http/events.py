"""Server-sent events: the page's figures as they change, and the live tail of a stream.

Every reader costs its connection and what it alone looks at: a document that several follow is made
once for all, one that has not changed is not sent again, and who does not take them in time is let
go.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from aiohttp import web

from rillnode.codecs.errors import RequestError
from rillnode.node.http.answers import begun_events, event
from rillnode.node.http.browsing import Filter
from rillnode.node.http.entries import entry_row
from rillnode.node.http.streams import Streams

READERS_MAX: Final = 32
"""Event streams open at one time. Own choice: people with a page open, not clients."""

PERIOD_SECONDS: Final = 1.0
TAIL_SECONDS: Final = 0.5
TAIL_ENTRIES_MAX: Final = 100
"""New entries of one partition in one event; of more, the last ones are shown."""

WRITE_SECONDS: Final = 10.0
QUEUE_EVENTS_MAX: Final = 64
"""Events that wait for one reader: a few rounds of all documents."""

FILTERED_ENTRIES_MAX: Final = 1_000
"""New entries of one partition that a filter looks at."""


class Shown(NamedTuple):
    """A document that a reader follows.

    Attributes:
        event: the name of its events.
        key: two documents with the same event and key are the same.
        make: makes it.
    """

    event: str
    key: str
    make: Callable[[], Awaitable[Any]]

    @property
    def place(self) -> tuple[str, str]:
        """What tells it from others."""
        return self.event, self.key


@dataclass(slots=True, eq=False)
class _Reader:
    """Who follows documents: those, what waits for it, and what it was sent last of each."""

    shown: Sequence[Shown]
    queue: asyncio.Queue[bytes] = field(default_factory=lambda: asyncio.Queue(QUEUE_EVENTS_MAX))
    sent: dict[tuple[str, str], bytes] = field(default_factory=dict[tuple[str, str], bytes])


class Events:
    """The event streams of one listener."""

    def __init__(self) -> None:
        self._readers: dict[asyncio.Task[Any], _Reader] = {}
        self._teller: asyncio.Task[None] | None = None
        self._stopping = False

    @property
    def readers(self) -> int:
        """Event streams that are open."""
        return len(self._readers)

    async def serve(self, request: web.Request, shown: Sequence[Shown]) -> web.StreamResponse:
        """Send documents every period that they have changed in, until the reader goes.

        Raises:
            RequestError: too many read already, or the node is stopping.
        """
        reader = _Reader(shown)
        response: web.StreamResponse = web.Response(status=503)
        with self._reading(reader):
            response = await begun_events(request)
            if self._teller is None:
                self._teller = asyncio.get_running_loop().create_task(self._tell())
            while True:
                await _write(response, await reader.queue.get())
        return response

    async def tail(self, request: web.Request, streams: Streams, name: str) -> web.StreamResponse:
        """Send what comes to a stream as events `entries`, until the reader goes.

        Raises:
            RequestError: as `serve`; there is no such stream; it cannot be filtered by that.
        """
        response: web.StreamResponse = web.Response(status=503)
        wanted = Filter(request.query)
        most = TAIL_ENTRIES_MAX if wanted.empty else FILTERED_ENTRIES_MAX
        with self._reading(_Reader(())):
            ends: dict[int, int] = {}
            await streams.newer(name, ends, 0)
            response = await begun_events(request)
            while True:
                try:
                    entries, skipped = await streams.newer(name, ends, most)
                except RequestError as refusal:  # the stream is no more, or the node stops
                    await _write(response, event("refused", {"text": refusal.text}))
                    break
                rows = [entry_row(entry) async for entry, fits in wanted.each(entries) if fits]
                await _write(response, event("entries", {"entries": rows, "skipped": skipped}))
                await asyncio.sleep(TAIL_SECONDS)
        return response

    async def close(self) -> None:
        """End all event streams."""
        self._stopping = True
        tasks = [*self._readers, *([] if self._teller is None else [self._teller])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @contextmanager
    def _reading(self, reader: _Reader) -> Generator[None]:
        """Count the running handler as a reader; its going away is no error."""
        if self._stopping or len(self._readers) >= READERS_MAX:
            raise RequestError("http.readers", "Too many event streams are open: close a page")
        task = asyncio.current_task()
        assert task is not None
        self._readers[task] = reader
        try:
            with suppress(ConnectionError, TimeoutError):
                yield
        finally:
            del self._readers[task]

    async def _tell(self) -> None:
        """Make the documents for all readers, for as long as there are any."""
        try:
            while any(reader.shown for reader in self._readers.values()):
                followed = {
                    one.place: one for reader in self._readers.values() for one in reader.shown
                }
                for one in followed.values():
                    try:
                        told = event(one.event, await one.make())
                    except RequestError as refusal:
                        told = event("refused", {"document": one.event, "text": refusal.text})
                    for task, reader in tuple(self._readers.items()):
                        if any(one.place == shown.place for shown in reader.shown):
                            self._offer(task, reader, one, told)
                    await asyncio.sleep(0)
                await asyncio.sleep(PERIOD_SECONDS)
        finally:
            # Should a document fail, who reads comes again, and the failure is logged.
            self._teller = None
            for task, reader in self._readers.items():
                if reader.shown:
                    task.cancel()

    def _offer(self, task: "asyncio.Task[Any]", reader: _Reader, one: Shown, told: bytes) -> None:
        if reader.sent.get(one.place) == told:
            return
        reader.sent[one.place] = told
        if reader.queue.full():
            task.cancel()  # it reads too slowly
        else:
            reader.queue.put_nowait(told)


async def _write(response: web.StreamResponse, data: bytes) -> None:
    async with asyncio.timeout(WRITE_SECONDS):
        await response.write(data)
