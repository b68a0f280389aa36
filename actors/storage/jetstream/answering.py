"""Answers to reads: of logs, of their secondary keys, of what is in the journal."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from rillnode.actors.storage import ListKeys, LoadIndex, Read, ReadOperation
from rillnode.actors.storage.jetstream.gate import Gate
from rillnode.actors.storage.jetstream.journal import Journal
from rillnode.actors.storage.jetstream.lookups import look_up
from rillnode.actors.storage.jetstream.outcomes import failure_of
from rillnode.actors.storage.jetstream.partition import Partition
from rillnode.actors.storage.jetstream.server import UnansweredError
from rillnode.actors.storage.layout import LogState

_READS_AT_ONCE: Final = 32
"""Reads asked of the cluster at one time: what they return is in memory all together."""


class Answering:
    """Carries out reads, any number at a time; runs on the store's loop.

    Args:
        journal: what is no entry.
        gate: waited for where no answer comes.
        partition_of: finds a log.
    """

    def __init__(
        self, journal: Journal, gate: Gate, partition_of: Callable[[int], Partition]
    ) -> None:
        self._journal = journal
        self._gate = gate
        self._partition_of = partition_of
        self._reading = asyncio.Semaphore(_READS_AT_ONCE)

    async def answer(self, operation: ReadOperation) -> None:
        """Set the results of a read, or its error."""
        try:
            if isinstance(operation, ListKeys):
                # It may wait for a log to be read, while others go on.
                await self._partition_of(operation.log).keys.list(operation)
                return
            async with self._reading:
                if isinstance(operation, Read):
                    await self._read_log(operation)
                else:
                    if isinstance(operation, LoadIndex):
                        # Another node may just have saved it, and its consumer has come here.
                        await self._gate.patiently(self._journal.catch_up)
                    await look_up(operation, self._journal, self._state)
        except Exception as error:
            operation.error = failure_of(error, "read")

    async def _read_log(self, operation: Read) -> None:
        view = self._partition_of(operation.log).view
        try:
            await view.read(operation)
        except UnansweredError:
            # An election, perhaps.
            await self._gate.patiently(partial(view.read, operation))

    async def _state(self, log: int) -> LogState:
        return await self._partition_of(log).view.state()
