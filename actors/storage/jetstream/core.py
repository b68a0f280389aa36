"""What runs on the JetStream store's own loop: hands operations to the parts, and answers back."""

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine
from functools import partial
from typing import Any, Final

from rillnode.actors.storage import (
    Append,
    Complete,
    ListKeys,
    OnHealth,
    Operation,
    PutStream,
    Read,
    ReadOperation,
    RemoveStream,
    StreamRecord,
    Trim,
    WriteOperation,
    logs_of,
    removed_error,
    written_bytes,
)
from rillnode.actors.storage.format import check_copied
from rillnode.actors.storage.jetstream.catalog import prefix_end
from rillnode.actors.storage.jetstream.checks import check_servers
from rillnode.actors.storage.jetstream.failures import unreachable_error
from rillnode.actors.storage.jetstream.following import JOURNAL, Following
from rillnode.actors.storage.jetstream.frames import (
    APPLIED_PREFIX,
    DROPPED_PREFIX,
    LOG_START_PREFIX,
    JournalFrame,
    dropped_key,
    token_maker,
)
from rillnode.actors.storage.jetstream.gate import Gate
from rillnode.actors.storage.jetstream.journal import Journal
from rillnode.actors.storage.jetstream.lookups import look_up
from rillnode.actors.storage.jetstream.options import JetStreamOptions
from rillnode.actors.storage.jetstream.partition import Partition, Parts
from rillnode.actors.storage.jetstream.plan import JournalOperation
from rillnode.actors.storage.jetstream.server import Server, UnansweredError
from rillnode.actors.storage.layout import COPY_KEY, LOG_KEY, NUMBER, LogState
from rillnode.actors.storage.tail import TailCache
from rillnode.actors.storage.watch import Watch
from rillnode.actors.storage.writer import closed_error, deliver
from rillnode.codecs.errors import CodecError, StoreError

logger = logging.getLogger("rillnode.actors.storage")

_READS_AT_ONCE: Final = 32
"""Reads asked of the cluster at one time: what they return is in memory all together."""


class Core:
    """The store's parts on one loop; `put` alone is for another thread.

    Attributes:
        gate: whether writes are taken.
        bytes_completed: of all writes so far.
        reads_answered: so many so far.
    """

    def __init__(
        self,
        options: JetStreamOptions,
        tail: TailCache,
        *,
        complete: Complete,
        on_health: OnHealth,
        writer: bytes,
    ) -> None:
        self._options = options
        self._tail = tail
        self._complete = complete
        self._server = Server(options, self._lost)
        self.gate = Gate(options, on_health=on_health, on_shut=self._refuse_waiting)
        token = token_maker(writer)
        self._partitions: dict[int, Partition] = {}
        self._following = Following(self._server, heard=self._heard, look=self._look)
        tell = self._following.tell
        self._journal = Journal(
            self._server, self.gate, options, token,
            written=partial(tell, JOURNAL), learned=self._learned,
        )  # fmt: skip
        self._parts = Parts(
            options, self._server, self.gate, self._journal, tail, token, tell, self._finish
        )
        self._inbox: deque[WriteOperation] = deque()
        self._removal: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._reading = asyncio.Semaphore(_READS_AT_ONCE)
        self._done: list[Operation] = []
        self.bytes_completed = 0
        self.reads_answered = 0

    async def open(self) -> bool:
        """Connect, read the journal, finish what a crash has interrupted; then take writes.

        Returns whether the servers are known to sync every write.

        Raises:
            StoreError: the cluster does not answer, refuses, or holds something else.
        """
        try:
            await self._server.connect()
            synced = await check_servers(self._options, self._server)
            await self._open_journal()
            check_copied(self._journal.catalog.row(COPY_KEY) is not None)
            self.gate.open(self._connect_again)
            await self._following.begin()
            await self._redo()
        except UnansweredError as error:
            await self.close()
            raise unreachable_error(str(error)) from error
        except StoreError:
            await self.close()
            raise
        self._drop_removed()
        return synced

    async def _open_journal(self) -> None:
        """Open the journal, be it once the cluster has elected who is to answer."""
        deadline = asyncio.get_running_loop().time() + self._options.settle_seconds_max
        while True:
            try:
                await self._journal.open()
                return
            except UnansweredError:
                if asyncio.get_running_loop().time() > deadline:
                    raise
            await asyncio.sleep(self._options.repair_seconds_min)
            await self._server.connect()

    async def close(self) -> None:
        """Complete what was submitted; what an outage keeps back ends with an error."""
        self.gate.stop_waiting()
        for partition in self._partitions.values():
            partition.end_watches(closed_error())
        self.dispatch()
        while tasks := self._under_way():
            await asyncio.wait(tasks)
        self.gate.close()
        self._following.end()
        self._deliver()
        await self._server.close()

    async def _connect_again(self) -> None:
        await self._server.connect()
        try:
            # First, so that nothing is missed between the two.
            await self._following.begin()
            await self._journal.catch_up()
        except UnansweredError:
            # Another server may answer.
            await self._server.close()
            raise
        for partition in self._partitions.values():
            partition.learn()

    async def _redo(self) -> None:
        catalog = self._journal.catalog
        for key in catalog.keys(APPLIED_PREFIX, prefix_end(APPLIED_PREFIX)):
            (log,) = LOG_KEY.unpack(key[len(APPLIED_PREFIX) :])
            await self._partition(log).redo()

    def _lost(self) -> None:
        self.gate.shut(unreachable_error("the connection was lost"), patient=True)

    # Writes ----------------------------------------------------------------------------------

    def put(self, operation: WriteOperation) -> None:
        """Leave a write for `dispatch`; from any thread."""
        self._inbox.append(operation)

    def dispatch(self) -> None:
        """Hand on what is in the inbox, in order; behind a removal all else waits."""
        while self._inbox and self._removal is None:
            operation = self._inbox.popleft()
            if self.gate.refusal is not None:
                operation.error = self.gate.refusal
                self._finish(operation)
            elif isinstance(operation, Append | Trim):
                self._partition(operation.log).submit(operation)
            elif isinstance(operation, RemoveStream):
                self._removal = asyncio.get_running_loop().create_task(self._remove(operation))
            else:
                self._write(operation)

    def _write(self, operation: JournalOperation) -> None:
        future = self._journal.submit(operation)
        future.add_done_callback(partial(self._written, operation))

    def _written(
        self, operation: JournalOperation, future: asyncio.Future[StreamRecord | None]
    ) -> None:
        error = future.exception()
        if isinstance(error, StoreError):
            operation.error = error
        elif isinstance(operation, PutStream):
            operation.record = future.result() or operation.record
        self._finish(operation)

    async def _remove(self, operation: RemoveStream) -> None:
        """Remove a stream once all that was submitted before is done."""
        try:
            while workers := self._workers():
                await asyncio.wait(workers)
            if self.gate.refusal is not None:
                raise self.gate.refusal
            record = await self._journal.submit(operation)
            operation.record = record
            if record is not None:
                for log in logs_of(record.id, record.partitions):
                    self._tail.forget(log)
                    if (partition := self._partitions.pop(log, None)) is not None:
                        partition.view.remove()
                        partition.end_watches(removed_error(record.id))
                self._start(self._drop(record.id, record.partitions))
        except StoreError as error:
            operation.error = error
        self._removal = None
        self._finish(operation)
        self.dispatch()

    def _drop_removed(self) -> None:
        catalog = self._journal.catalog
        for key in catalog.keys(DROPPED_PREFIX, prefix_end(DROPPED_PREFIX)):
            (stream_id,) = NUMBER.unpack(key[len(DROPPED_PREFIX) :])
            (partitions,) = NUMBER.unpack(catalog.value(key) or bytes(NUMBER.size))
            self._start(self._drop(stream_id, partitions))

    async def _drop(self, stream_id: int, partitions: int) -> None:
        """Delete what JetStream holds of a removed stream; if it fails, after the next start."""
        try:
            for log in logs_of(stream_id, partitions):
                await self._server.drop(self._server.name_of_log(log))
            await self._journal.write([(dropped_key(stream_id), None)])
        except (StoreError, UnansweredError) as error:
            logger.warning("store_stream_not_dropped", extra={"reason": str(error)})

    def _refuse_waiting(self, error: StoreError) -> None:
        self._journal.refuse_waiting(error)
        for partition in self._partitions.values():
            partition.refuse_waiting(error)
        inbox, self._inbox = self._inbox, deque()
        for operation in inbox:
            operation.error = error
            self._finish(operation)

    # What other stores do --------------------------------------------------------------------

    def watch(self, operation: Watch) -> None:
        """Complete an operation once its log has grown so far."""
        self._partition(operation.log).watch(operation)

    def _heard(self, log: int, sequence: int) -> None:
        if log == JOURNAL:
            if sequence > self._journal.catalog.sequence:
                self._start(self._catch_up())
        elif (partition := self._partitions.get(log)) is not None:
            partition.told(sequence)

    async def _catch_up(self) -> None:
        try:
            await self._journal.catch_up()
        except (StoreError, UnansweredError) as error:
            logger.debug("store_journal_not_followed", extra={"reason": str(error)})

    async def _look(self) -> None:
        """Ask for what nobody has told of."""
        if self.gate.refusal is not None:
            return
        await self._journal.catch_up()
        for partition in [part for part in self._partitions.values() if part.watched]:
            partition.told(await self._server.last_sequence(partition.view.name) or 0)

    def _learned(self, frame: JournalFrame) -> None:
        """Look what another store's message means for the logs known here."""
        if frame.ranges:
            touched = list(self._partitions.values())
        else:
            logs = [
                LOG_KEY.unpack(key[len(LOG_START_PREFIX) :])[0]
                for key, _ in frame.changes
                if key.startswith(LOG_START_PREFIX)
            ]
            touched = [self._partitions[log] for log in logs if log in self._partitions]
        for partition in touched:
            partition.learn_start()

    # Reads -----------------------------------------------------------------------------------

    def read(self, operation: ReadOperation) -> None:
        """Answer a read, in a while."""
        self._start(self._answer(operation))

    async def _answer(self, operation: ReadOperation) -> None:
        try:
            async with self._reading:
                if isinstance(operation, Read):
                    await self._read_log(operation)
                elif isinstance(operation, ListKeys):
                    await self._partition(operation.log).view.list_keys(operation)
                else:
                    await look_up(operation, self._journal, self._state)
        except StoreError as error:
            operation.error = error
        except CodecError as error:
            operation.error = StoreError("store.corrupt", str(error), retryable=False)
        except UnansweredError as error:
            operation.error = unreachable_error(str(error))
        except Exception as error:
            # Who asked would wait for ever.
            logger.exception("read_failed")
            operation.error = StoreError("store.failed", f"the read failed ({error!r})")
        self.reads_answered += 1
        self._finish(operation)

    async def _read_log(self, operation: Read) -> None:
        view = self._partition(operation.log).view
        try:
            await view.read(operation)
        except UnansweredError:
            # An election, perhaps.
            await self.gate.patiently(partial(view.read, operation))

    async def _state(self, log: int) -> LogState:
        return await self._partition(log).view.state()

    def _partition(self, log: int) -> Partition:
        partition = self._partitions.get(log)
        if partition is None:
            if len(self._partitions) >= self._options.logs_max:
                self._forget_idle()
            partition = self._partitions[log] = Partition(log, self._parts)
        return partition

    def _forget_idle(self) -> None:
        """Forget half of the logs, those known longest first; what writes stays."""
        idle = [
            log
            for log, partition in self._partitions.items()
            if partition.worker is None and not partition.watched
        ]
        for log in idle[: self._options.logs_max // 2 + 1]:
            del self._partitions[log]

    # Completion ------------------------------------------------------------------------------

    def _finish(self, operation: Operation) -> None:
        if not self._done:
            asyncio.get_running_loop().call_soon(self._deliver)
        self._done.append(operation)

    def _deliver(self) -> None:
        done, self._done = self._done, []
        if done:
            self.bytes_completed += sum(
                written_bytes(operation)
                for operation in done
                if isinstance(operation, WriteOperation)
            )
            deliver(self._complete, done)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _workers(self) -> set[asyncio.Task[None]]:
        found = (self._journal.worker, *(part.worker for part in self._partitions.values()))
        return {worker for worker in found if worker is not None}

    def _under_way(self) -> set[asyncio.Task[None]]:
        tasks = self._workers() | self._tasks
        return tasks if self._removal is None else tasks | {self._removal}
