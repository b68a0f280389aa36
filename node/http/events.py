"""Server-sent events: the page's figures as they change, and the live tail of a stream.

Every reader costs its connection and nothing else: the documents are made once for all, and who
does not take them in time is let go.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

import msgspec
from aiohttp import web

from rillnode.node.http.answers import HEADERS, Refusal
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

Documents = Mapping[str, Callable[[], Awaitable[Any]]]


class Events:
    """The event streams of one listener.

    Args:
        documents: what each event's data is made of, by the event's name.
    """

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._readers: dict[asyncio.Task[Any], asyncio.Queue[bytes] | None] = {}
        self._teller: asyncio.Task[None] | None = None
        self._stopping = False

    @property
    def readers(self) -> int:
        """Event streams that are open."""
        return len(self._readers)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Send all documents every period, until the reader goes.

        Raises:
            Refusal: too many read already, or the node is stopping.
        """
        queue: asyncio.Queue[bytes] = asyncio.Queue(QUEUE_EVENTS_MAX)
        response: web.StreamResponse = web.Response(status=503)
        with self._reading(queue):
            response = await _begin(request)
            if self._teller is None:
                self._teller = asyncio.get_running_loop().create_task(self._tell())
            while True:
                await _write(response, await queue.get())
        return response

    async def tail(self, request: web.Request, streams: Streams, name: str) -> web.StreamResponse:
        """Send what comes to a stream as events `entries`, until the reader goes.

        Raises:
            Refusal: as `serve`, or there is no such stream.
        """
        response: web.StreamResponse = web.Response(status=503)
        with self._reading(None):
            ends: dict[int, int] = {}
            await streams.newer(name, ends, 0)
            response = await _begin(request)
            while True:
                try:
                    entries, skipped = await streams.newer(name, ends, TAIL_ENTRIES_MAX)
                except Refusal as refusal:  # the stream is no more, or the node stops
                    await _write(response, _event("refused", {"text": str(refusal)}))
                    break
                rows = [entry_row(entry) for entry in entries]
                await _write(response, _event("entries", {"entries": rows, "skipped": skipped}))
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
    def _reading(self, queue: "asyncio.Queue[bytes] | None") -> Generator[None]:
        """Count the running handler as a reader; its going away is no error."""
        if self._stopping or len(self._readers) >= READERS_MAX:
            raise Refusal(503, "http.readers", "Too many event streams are open: close a page")
        task = asyncio.current_task()
        assert task is not None
        self._readers[task] = queue
        try:
            with suppress(ConnectionError, TimeoutError):
                yield
        finally:
            del self._readers[task]

    async def _tell(self) -> None:
        """Make the documents for all readers, for as long as there are any."""
        try:
            while any(queue is not None for queue in self._readers.values()):
                for name, make in self._documents.items():
                    try:
                        event = _event(name, await make())
                    except Refusal as refusal:
                        event = _event("refused", {"document": name, "text": str(refusal)})
                    for task, queue in tuple(self._readers.items()):
                        self._offer(task, queue, event)
                await asyncio.sleep(PERIOD_SECONDS)
        finally:
            # Should a document fail, who reads comes again, and the failure is logged.
            self._teller = None
            for task, queue in self._readers.items():
                if queue is not None:
                    task.cancel()

    def _offer(
        self, task: "asyncio.Task[Any]", queue: "asyncio.Queue[bytes] | None", event: bytes
    ) -> None:
        if queue is None:
            return
        if queue.full():
            task.cancel()  # it reads too slowly
        else:
            queue.put_nowait(event)


async def _begin(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
    await response.prepare(request)
    return response


async def _write(response: web.StreamResponse, data: bytes) -> None:
    async with asyncio.timeout(WRITE_SECONDS):
        await response.write(data)


def _event(name: str, document: Any) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(document))
