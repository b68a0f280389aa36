"""What runs on the JetStream store's own loop: hands operations to the parts, and answers back."""

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Iterable
from functools import partial
from typing import Any, Final

from rillnode.actors.storage import (
    Append,
    Complete,
    OnHealth,
    Operation,
    PutStream,
    ReadOperation,
    RemoveStream,
    StreamRecord,
    Trim,
    WriteOperation,
    logs_of,
    removed_error,
    written_bytes,
)
from rillnode.actors.storage.completion import closed_error, deliver
from rillnode.actors.storage.format import check_copied
from rillnode.actors.storage.jetstream.answering import Answering
from rillnode.actors.storage.jetstream.catalog import prefix_end
from rillnode.actors.storage.jetstream.checks import check_servers
from rillnode.actors.storage.jetstream.failures import UnansweredError, unreachable_error
from rillnode.actors.storage.jetstream.following import JOURNAL, Following
from rillnode.actors.storage.jetstream.format import settle_format
from rillnode.actors.storage.jetstream.forwarding import Forwarding
from rillnode.actors.storage.jetstream.frames import (
    APPLIED_PREFIX,
    LOG_START_PREFIX,
    JournalFrame,
    token_maker,
)
from rillnode.actors.storage.jetstream.gate import Gate
from rillnode.actors.storage.jetstream.journal import Journal
from rillnode.actors.storage.jetstream.journal_news import JournalNews
from rillnode.actors.storage.jetstream.key_index import KeyIndex
from rillnode.actors.storage.jetstream.membership import Member, Members
from rillnode.actors.storage.jetstream.options import JetStreamOptions
from rillnode.actors.storage.jetstream.partition import Partition
from rillnode.actors.storage.jetstream.parts import Parts
from rillnode.actors.storage.jetstream.plan import JournalOperation
from rillnode.actors.storage.jetstream.presence import Presence
from rillnode.actors.storage.jetstream.removing import Incoming, Removals, drop_removed
from rillnode.actors.storage.jetstream.server import Server
from rillnode.actors.storage.jetstream.stamps import Batch
from rillnode.actors.storage.layout import COPY_KEY, LOG_KEY
from rillnode.actors.storage.tail import TailCache
from rillnode.actors.storage.watch import AnyWatch, Watch
from rillnode.codecs.errors import StoreError

logger = logging.getLogger("rillnode.actors.storage")

_LOOKS_AT_ONCE: Final = 32
"""Logs whose ends are asked for at one time."""


class Core:
    """The store's parts on one loop; `put` alone is for another thread.

    Attributes:
        gate: whether writes are taken.
        members: the nodes that share the logs; None where this store is no node's.
        forwarding: what goes from node to node.
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
        node: Member | None,
    ) -> None:
        self._options = options
        self._tail = tail
        self._complete = complete
        self._server = Server(options, self._lost)
        self.gate = Gate(
            options, check=self._server.check, on_health=on_health, on_shut=self._refuse_waiting
        )
        token = token_maker(writer)
        self._partitions: dict[int, Partition] = {}
        self.members = None if node is None else Members(node, options.lease_seconds)
        self._following = Following(self._server, self.members, heard=self._heard, look=self._look)
        tell = self._following.tell
        self.forwarding = Forwarding(
            self._server, self.members, writer, self._take, options.pending_bytes_max
        )
        self._presence: Presence | None = None
        if self.members is not None:
            self._presence = Presence(self._server, self.members, options.announce_seconds)
        self._news = JournalNews(self._finish)
        self._journal = Journal(
            self._server, self.gate, options, token,
            written=partial(tell, JOURNAL), learning=self._news.learn, learned=self._learned,
        )  # fmt: skip
        self._keys = KeyIndex(options.keys_bytes_max, options.logs_max)
        self._parts = Parts(
            options, self._server, self.gate, self._journal, tail, self.forwarding, self._keys,
            token, tell, self._finish,
        )  # fmt: skip
        self._inbox: deque[Incoming] = deque()
        self._removals = Removals(
            self._journal, self.gate,
            workers=self._workers, removed=self._removed, done=self._go_on,
        )  # fmt: skip
        self._looking = asyncio.Semaphore(_LOOKS_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._answering = Answering(self._journal, self.gate, self._partition)
        self.bytes_completed = 0
        self.reads_answered = 0

    async def open(self) -> bool:
        """Connect, read the journal, finish what a crash has interrupted; then take writes.

        Returns whether the servers are known to sync every write.

        Raises:
            StoreError: the cluster does not answer, refuses, or holds something else.
        """
        try:
            await self._server.open()
            synced = await check_servers(self._options, self._server)
            await self._journal.open()
            check_copied(self._journal.catalog.row(COPY_KEY) is not None)
            self._news.begin(self._journal.catalog)
            self.gate.open()
            await settle_format(self._journal)
            await self._meet()
            await self._redo()
        except UnansweredError as error:
            await self.close()
            raise unreachable_error(str(error)) from error
        except StoreError:
            await self.close()
            raise
        self._start(drop_removed(self._server, self._journal))
        return synced

    async def _meet(self) -> None:
        """Hear of what the other stores do, and let them hear; once for each connection."""
        await self._following.begin()
        await self.forwarding.begin()
        if self._presence is not None:
            # Last: from now on the others hand on what this node owns.
            await self._presence.begin()

    async def close(self) -> None:
        """Complete what was submitted; what an outage keeps back ends with an error."""
        if self._presence is not None:
            await self._presence.end()
        self.gate.stop_waiting()
        self._news.end(closed_error())
        for partition in self._partitions.values():
            partition.end_watches(closed_error())
            partition.keys.stop()
        self.dispatch()
        while tasks := self._under_way():
            await asyncio.wait(tasks)
        self.gate.close()
        await self.forwarding.end()
        await self._keys.close()
        self._following.end()
        await self._server.close()

    async def _connect_again(self) -> None:
        await self._server.connect()
        try:
            # First, so that nothing is missed between the two.
            await self._meet()
        except UnansweredError:
            # Another server may answer.
            await self._server.close()
            raise
        self._start(self._catch_up(surely=True))
        for partition in self._partitions.values():
            partition.learn()

    async def _trust_again(self) -> None:
        await self._connect_again()
        await self._journal.catch_up()

    async def _redo(self) -> None:
        catalog = self._journal.catalog
        for key in catalog.keys(APPLIED_PREFIX, prefix_end(APPLIED_PREFIX)):
            (log,) = LOG_KEY.unpack(key[len(APPLIED_PREFIX) :])
            partition = self._partition(log)
            try:
                await partition.redo()
            except UnansweredError:
                # One that does not answer must not keep all others waiting.
                self._start(self._redo_surely(partition))

    async def _redo_surely(self, partition: Partition) -> None:
        try:
            await partition.patience.surely(partition.redo)
        except StoreError as error:
            # Who appends to it next is told.
            logger.warning("store_records_not_redone", extra={"reason": error.text})

    def _lost(self) -> None:
        # Where no server answers for JetStream, it was waited for by now.
        patient = not self._server.is_mute
        error = unreachable_error("the connection was lost" if patient else "it has no leader")
        self.gate.shut(error, self._connect_again, patient=patient)

    # Writes ----------------------------------------------------------------------------------

    def put(self, operation: WriteOperation) -> None:
        """Leave a write for `dispatch`; from any thread."""
        self._inbox.append(operation)

    def dispatch(self) -> None:
        """Hand on what is in the inbox, in order, but for what waits behind a removal."""
        while self._inbox:
            operation = self._inbox.popleft()
            if self._removals.keep(operation):
                continue
            if isinstance(operation, tuple):
                self._partition(operation[0]).take(operation[1])
            elif self.gate.refusal is not None:
                operation.error = self.gate.refusal
                self._finish(operation)
            elif isinstance(operation, Append | Trim):
                self._partition(operation.log).submit(operation)
            elif isinstance(operation, RemoveStream):
                self._start(self._removals.begin(operation))
            else:
                self._write(operation)

    def _take(self, log: int, batch: Batch) -> None:
        """Take what another node hands on."""
        if self.gate.refusal is not None:
            batch.refuse(self.gate.refusal)
        else:
            self._inbox.append((log, batch))
            self.dispatch()

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

    def _removed(self, record: StreamRecord) -> None:
        for log in logs_of(record.id, record.partitions):
            self._tail.forget(log)
            if (partition := self._partitions.pop(log, None)) is not None:
                partition.view.remove()
                partition.end_watches(removed_error(record.id))
        self._start(drop_removed(self._server, self._journal))

    def _go_on(self, operation: RemoveStream, behind: Iterable[Incoming]) -> None:
        """A removal is complete."""
        self._finish(operation)
        self._inbox.extendleft(reversed([*behind]))
        self.dispatch()

    def _refuse_waiting(self, error: StoreError) -> None:
        self._journal.refuse_waiting(error)
        for partition in self._partitions.values():
            partition.refuse_waiting(error)
        inbox, self._inbox = self._inbox, deque()
        for operation in (*inbox, *self._removals.take_kept()):
            if isinstance(operation, tuple):
                operation[1].refuse(error)
            else:
                operation.error = error
                self._finish(operation)

    # What other stores do --------------------------------------------------------------------

    def watch(self, operation: AnyWatch) -> None:
        """Complete an operation once there is what it waits for."""
        if isinstance(operation, Watch):
            self._partition(operation.log).watch(operation)
        else:
            self._news.watch(operation)

    def _heard(self, log: int, sequence: int) -> None:
        if log == JOURNAL:
            if sequence > self._journal.catalog.sequence:
                self._start(self._catch_up())
        elif (partition := self._partitions.get(log)) is not None:
            partition.told(sequence)

    async def _catch_up(self, *, surely: bool = False) -> None:
        """Learn what others have written to the journal, if need be once it answers."""
        catch_up = self._journal.catch_up
        try:
            await (self._journal.patience.surely(catch_up) if surely else catch_up())
        except UnansweredError as error:
            logger.debug("store_journal_not_followed", extra={"reason": str(error)})
            self.gate.doubt()
        except StoreError as error:
            logger.debug("store_journal_not_followed", extra={"reason": error.text})
            if not error.retryable:
                # All else rests on it.
                self.gate.shut(error, self._trust_again)

    async def _look(self) -> None:
        """Ask for what nobody has told of, of all at a time: some may not answer."""
        if self.gate.is_open:
            looks = [self._look_at(one) for one in self._partitions.values() if one.look()]
            await asyncio.gather(self._catch_up(), *looks)

    async def _look_at(self, partition: Partition) -> None:
        async with self._looking:
            try:
                await partition.ask_end()
            except (StoreError, UnansweredError) as error:
                logger.debug("store_log_not_followed", extra={"reason": str(error)})

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
        await self._answering.answer(operation)
        self.reads_answered += 1
        self._finish(operation)

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
            for log, one in self._partitions.items()
            if not (one.tasks or one.watched or one.keys.task)
        ]
        for log in idle[: self._options.logs_max // 2 + 1]:
            self._tail.forget(log)
            del self._partitions[log]

    # Completion ------------------------------------------------------------------------------

    def _finish(self, *operations: Operation) -> None:
        """Hand over what is complete, at once: who waits for it may have nothing else to do."""
        self.bytes_completed += sum(
            written_bytes(operation)
            for operation in operations
            if isinstance(operation, WriteOperation)
        )
        deliver(self._complete, operations)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _workers(self, logs: Iterable[int]) -> set[asyncio.Task[None]]:
        partitions = [one for log in logs if (one := self._partitions.get(log)) is not None]
        return set[asyncio.Task[None]]().union(*(one.tasks for one in partitions))

    def _under_way(self) -> set[asyncio.Task[None]]:
        tasks = self._workers(self._partitions) | self._tasks
        return tasks if self._journal.worker is None else tasks | {self._journal.worker}
