"""Dropping the oldest entries of one log."""

import asyncio
from collections.abc import Callable

from rillnode.actors.storage import Trim
from rillnode.actors.storage.jetstream.failures import fenced_error
from rillnode.actors.storage.jetstream.frames import encode, log_start_key
from rillnode.actors.storage.jetstream.log_reader import PurgedError
from rillnode.actors.storage.jetstream.log_view import LogView
from rillnode.actors.storage.jetstream.parts import Parts
from rillnode.actors.storage.jetstream.patience import Patience
from rillnode.actors.storage.jetstream.plan import check_not_removed
from rillnode.actors.storage.retention import cut_index
from rillnode.codecs.entries import Block


class Trimmer:
    """Writes where a log begins anew to the journal, then purges what is before.

    `learn_start` looks what the journal says of the log's beginning.
    """

    def __init__(
        self,
        log: int,
        parts: Parts,
        view: LogView,
        patience: Patience,
        learn_start: Callable[[], None],
    ) -> None:
        self._log = log
        self._parts = parts
        self._view = view
        self._patience = patience
        self._learn_start = learn_start
        # Messages before this sequence are known to be purged.
        self._purged = 1

    async def trim(self, trim: Trim) -> None:
        """Carry out a trim, whose results are set.

        Raises:
            StoreError: nothing was trimmed.
            UnansweredError: no answer came.
        """
        view, loop = self._view, asyncio.get_running_loop()
        state = await self._patience.patiently(view.state)
        check_not_removed(self._parts.journal.catalog, self._log)

        def block_at(index: int) -> Block:
            return asyncio.run_coroutine_threadsafe(view.block_at(index), loop).result()

        # It looks for blocks as it goes, so it must wait somewhere else than on the loop.
        try:
            cut = await asyncio.to_thread(cut_index, trim, state, block_at)
            start = await view.start_at(cut) if cut > state.first_index else None
        except PurgedError:
            await self._parts.journal.catch_up()
            raise fenced_error("trimmed this log") from None
        trimmed = cut - state.first_index
        if start is not None:
            await self._parts.journal.write([(log_start_key(self._log), encode(start))])
            # Another store may have trimmed more meanwhile.
            self._learn_start()
            state = await view.state()
        trim.trimmed, trim.extent = trimmed, state.extent()
        if view.start.sequence > self._purged:
            await self._parts.server.purge(view.name, before=view.start.sequence)
            self._purged = view.start.sequence
