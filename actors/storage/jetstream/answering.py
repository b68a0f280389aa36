"""Answers to reads: of logs, of their secondary keys, of what is in the journal."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from rillnode.actors.storage import (
    FindStream,
    ListKeys,
    ListStreams,
    LoadIndex,
    Read,
    ReadOperation,
)
from rillnode.actors.storage.jetstream.failures import failure_of
from rillnode.actors.storage.jetstream.gate import Gate
from rillnode.actors.storage.jetstream.journal import Journal
from rillnode.actors.storage.jetstream.log_view import LogView
from rillnode.actors.storage.jetstream.lookups import look_up
from rillnode.actors.storage.jetstream.partition import Partition
from rillnode.actors.storage.jetstream.patience import Patience
from rillnode.actors.storage.layout import LogState

_READS_AT_ONCE: Final = 32
"""Reads asked of the cluster at one time: what they return is in memory all together."""

_FINDS_AT_ONCE: Final = 1_024
"""The same of streams, which return little: logs that do not answer keep a place for a while."""


class Answering:
    """Carries out reads, any number at a time; runs on the store's loop.

    Args:
        journal: what is no entry.
        gate: whether the connection stands.
        partition_of: finds a log.
    """

    def __init__(
        self, journal: Journal, gate: Gate, partition_of: Callable[[int], Partition]
    ) -> None:
        self._journal = journal
        self._gate = gate
        self._partition_of = partition_of
        self._reading = asyncio.Semaphore(_READS_AT_ONCE)
        self._finding = asyncio.Semaphore(_FINDS_AT_ONCE)

    async def answer(self, operation: ReadOperation) -> None:
        """Set the results of a read, or its error."""
        try:
            if isinstance(operation, ListKeys):
                # It may wait for a log to be read, while others go on.
                await self._partition_of(operation.log).keys.list(operation)
                return
            if isinstance(operation, Read):
                await self._read_log(operation)
                return
            if isinstance(operation, LoadIndex):
                # Another node may just have saved it, and its consumer has come here.
                await self._journal.patience.patiently(self._journal.catch_up)
            finds = isinstance(operation, FindStream | ListStreams)
            async with self._finding if finds else self._reading:
                await look_up(operation, self._journal, self._state)
        except Exception as error:
            operation.error = failure_of(error, "read")

    async def _read_log(self, operation: Read) -> None:
        view = self._partition_of(operation.log).view
        # This read's own, and first of all without a place among those at one time: any number of
        # others may wait for the same log, which may have no leader.
        patience = Patience(view.name, self._gate)
        await patience.patiently(view.state)
        await patience.patiently(partial(self._read, view, operation))

    async def _read(self, view: LogView, operation: Read) -> None:
        async with self._reading:
            await view.read(operation)

    async def _state(self, log: int) -> LogState:
        view = self._partition_of(log).view
        if view.known:
            # No servers are needed for that.
            return await view.state()
        return await Patience(view.name, self._gate).patiently(view.state)
