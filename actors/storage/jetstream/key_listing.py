"""Listings of one log's secondary keys, out of the index, which is brought up to date before."""

import asyncio
import logging
from typing import Final

from rillnode.actors.storage import ListKeys
from rillnode.actors.storage.completion import closed_error
from rillnode.actors.storage.jetstream.key_index import IndexedLog, KeyIndex
from rillnode.actors.storage.jetstream.log_reader import PurgedError
from rillnode.actors.storage.jetstream.log_view import LogView
from rillnode.codecs.errors import StoreError

logger = logging.getLogger("rillnode.actors.storage")

LISTING_SECONDS_MAX: Final = 10.0
"""A listing waits so long for the keys that are read; then it is to be asked for again."""

_STEP_KEYS: Final = 8_192
"""So many keys are added to the index at a time."""

_WAITING_KEYS: Final = 1_024
"""So many new keys wait in memory before they are added; eight times as many while others are."""

_STEP_FRAMES: Final = 2_000
"""So many frames of one log are read before others have their turn."""

_IDLE_SECONDS: Final = 60.0
"""The index of a log that was not listed for so long is brought up to date when it is."""


class KeyListing:
    """Lists the secondary keys of one log; runs on the store's loop.

    Reading the keys of a log takes as long as reading the log, so it goes on while who has asked
    is told to ask again; at most one such reading is under way for a log.
    """

    def __init__(self, log: int, view: LogView, index: KeyIndex) -> None:
        self._log = log
        self._view = view
        self._index = index
        self._loading: asyncio.Task[None] | None = None

    @property
    def task(self) -> asyncio.Task[None] | None:
        """What reads keys; None while nobody needs them."""
        return self._loading

    def appended(self, sequence: int, keys: list[bytes]) -> None:
        """A frame was added to the log's end."""
        indexed = self._index.logs.get(self._log)
        if indexed is None or sequence != indexed.waiting_until + 1:
            return
        indexed.waiting += keys
        indexed.waiting_until = sequence
        idle = asyncio.get_running_loop().time() - indexed.listed_at > _IDLE_SECONDS
        if idle or len(indexed.waiting) > 8 * _WAITING_KEYS:
            # From here on they are read from the log.
            indexed.wait_after(0)
        elif len(indexed.waiting) > _WAITING_KEYS and self._loading is None:
            self._begin()

    async def list(self, operation: ListKeys) -> None:
        """Answer a listing.

        Raises:
            StoreError: the log is damaged; its keys are being read still (`store.busy`), or cannot
                be kept (`store.keys`).
            UnansweredError: no answer came.
        """
        view = self._view
        await view.state()
        until = view.last.sequence
        indexed = await self._index.of(self._log)
        if indexed.until > until:
            # It is another log than the one that was read.
            await self._index.forget(self._log)
            indexed = await self._index.of(self._log)
        indexed.listed_at = asyncio.get_running_loop().time()
        if indexed.until < until:
            await self._wait_for(self._loading or self._begin())
        first_index = view.start.block_index
        await self._purge(indexed, first_index)
        operation.pairs = await self._index.page(operation, first_index=first_index, until=until)

    def stop(self) -> None:
        """Read no more keys."""
        if self._loading is not None:
            self._loading.cancel()

    async def _purge(self, indexed: IndexedLog, first_index: int) -> None:
        """Forget what leads to trimmed entries, once that is half of it."""
        entries = self._view.next_index - indexed.purged
        if 2 * (first_index - indexed.purged) > entries:
            await self._index.purge(self._log, first_index)
            indexed.purged = first_index

    # Reading keys ----------------------------------------------------------------------------

    def _begin(self) -> asyncio.Task[None]:
        task = self._loading = asyncio.get_running_loop().create_task(self._load())
        task.add_done_callback(_ended)
        return task

    async def _wait_for(self, task: asyncio.Task[None]) -> None:
        await asyncio.wait({task}, timeout=LISTING_SECONDS_MAX)
        if not task.done():
            read, last = (await self._index.of(self._log)).until, self._view.last.sequence
            raise StoreError(
                "store.busy",
                f"the secondary keys of this log are being read ({read} of {last} messages so "
                "far): ask again",
            )
        if task.cancelled():
            raise closed_error()
        task.result()

    async def _load(self) -> None:
        """Bring the index up to date.

        Raises:
            StoreError: as `list`.
            UnansweredError: no answer came.
        """
        view = self._view
        try:
            while True:
                start = view.start
                try:
                    await self._load_kept()
                    return
                except PurgedError:
                    await view.check_trimmed(start, start.first_index)
                    await view.state()
        finally:
            self._loading = None

    async def _load_kept(self) -> None:
        """The same, as long as nothing is trimmed meanwhile."""
        view, indexed = self._view, await self._index.of(self._log)
        while indexed.until < view.last.sequence:
            first = max(indexed.until + 1, view.start.sequence)
            if indexed.waiting_after < first <= indexed.waiting_until:
                after, until = indexed.until, indexed.waiting_until
                keys = indexed.wait_after(until)
                await self._index.add(self._log, keys, after=after, until=until)
            else:
                async with self._index.reading:
                    await self._read(indexed, first)

    async def _read(self, indexed: IndexedLog, first: int) -> None:
        """Add the keys of some frames, up to the last one or not as far."""
        end = self._view.last.sequence
        last = min(end, first + _STEP_FRAMES - 1)
        if last == end:
            indexed.wait_after(end)
        keys, after = list[bytes](), indexed.until
        async for sequence, frame in self._view.frames_between(first, last):
            keys += frame.keys
            if len(keys) >= _STEP_KEYS or sequence == last:
                await self._index.add(self._log, keys, after=after, until=sequence)
                keys, after = list[bytes](), sequence


def _ended(task: asyncio.Task[None]) -> None:
    """Who waits for it gets its error; nobody may."""
    error = None if task.cancelled() else task.exception()
    if error is not None:
        logger.debug("store_keys_not_read", extra={"reason": str(error)})
