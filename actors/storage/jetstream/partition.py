"""One log: the order in which its writes are carried out, and what other stores do to it.

Appends that wait make a batch. The node that owns the log publishes its batches and those that
other nodes hand to it, several in one frame. Every other node hands on one batch after the other.
Appends with records are published by the node that they came to, whoever owns the log.

Two tasks at most are at work: one publishes, trims and follows what others have appended; one waits
for the owner. So two nodes that take each other for the owner do not wait for each other.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine
from typing import Final

from rillnode.actors.storage import Append, Trim, removed_error
from rillnode.actors.storage.jetstream.appender import Appender
from rillnode.actors.storage.jetstream.failures import failure_of, too_large_error
from rillnode.actors.storage.jetstream.frames import LogFrame, LogStart, decode, log_start_key
from rillnode.actors.storage.jetstream.key_listing import KeyListing
from rillnode.actors.storage.jetstream.log_reader import blocks_of
from rillnode.actors.storage.jetstream.log_view import LogView
from rillnode.actors.storage.jetstream.membership import Member
from rillnode.actors.storage.jetstream.packing import size_of_append
from rillnode.actors.storage.jetstream.parts import Parts
from rillnode.actors.storage.jetstream.patience import Patience
from rillnode.actors.storage.jetstream.plan import check_not_removed, is_removed
from rillnode.actors.storage.jetstream.stamps import Batch, may_go
from rillnode.actors.storage.jetstream.trimming import Trimmer
from rillnode.actors.storage.jetstream.watches import Watches
from rillnode.actors.storage.layout import record_key
from rillnode.actors.storage.watch import Watch
from rillnode.codecs.errors import StoreError

logger = logging.getLogger("rillnode.actors.storage")

_FOLLOWED_MAX: Final = 16
"""Messages that are asked for one by one; where there are more, readers ask for what they need."""


class Partition:
    """Carries out the writes of a log in order; everything runs on the store's loop.

    Attributes:
        view: the log as it is committed.
        patience: how its answers are waited for.
        keys: its secondary keys in their order.
    """

    def __init__(self, log: int, parts: Parts) -> None:
        self._log = log
        self._parts = parts
        self.view = LogView(log, parts.server, parts.journal, self._begin_if_behind)
        self.patience = Patience(self.view.name, parts.gate, self.refuse_waiting)
        self.keys = KeyListing(log, self.view, parts.keys)
        self._appender = Appender(
            log, parts, self.view, self.patience,
            appended=self._appended, forget=self._forget, read_on=self._read_on,
        )  # fmt: skip
        self._trimmer = Trimmer(log, parts, self.view, self.patience, self.learn_start)
        # The last message that another store has told of.
        self._told = 0
        # Any number of others may have come that nobody has told of.
        self._stale = False
        # This store has written it since it was last looked for what others have.
        self._written = False
        # A sequence that the log has reached; None where it may have grown unheard since.
        self._reached: int | None = None
        self._watches = Watches(parts.done)
        self._own: deque[Append | Trim] = deque()
        # From other nodes; and one of this node that comes back because its owner is gone.
        self._handed: deque[Batch] = deque()
        # What is handed to the owner: what follows waits until it is answered.
        self._away: Batch | None = None
        self._away_settled = False
        self._own_first = True
        self._worker: asyncio.Task[None] | None = None
        self._handing: asyncio.Task[None] | None = None

    @property
    def tasks(self) -> set[asyncio.Task[None]]:
        """What is at work; none while nothing waits."""
        return {task for task in (self._worker, self._handing) if task is not None}

    def submit(self, operation: Append | Trim) -> None:
        """Queue a write of this node."""
        self._own.append(operation)
        self._begin()

    def take(self, batch: Batch) -> None:
        """Queue what another node hands on."""
        self._handed.append(batch)
        self._begin()

    def _begin(self) -> None:
        if self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._work())

    def refuse_waiting(self, error: StoreError) -> None:
        """Answer what is not under way."""
        own, self._own = self._own, deque()
        handed, self._handed = self._handed, deque()
        for operation in own:
            operation.error = error
            self._parts.done(operation)
        for batch in handed:
            batch.refuse(error)

    async def redo(self) -> None:
        """Write the records of frames that a crash kept from the journal; as `Appender.redo`."""
        await self._appender.redo()

    async def _work(self) -> None:
        try:
            while True:
                if self._behind:
                    await self._follow()
                elif self._away is not None and self._away_settled:
                    # Only now, because it is to be seen by who reads here what was confirmed here.
                    self._away.done(self._away)
                elif self._own_waits and isinstance(self._own[0], Trim):
                    await self._trim()
                elif self._own_waits or self._handed:
                    await self._go_on()
                else:
                    break
        finally:
            self._worker = None

    async def _go_on(self) -> None:
        """Publish what waits, or begin to hand it on."""
        owner = self._appender.owner()
        if owner is not None and self._own_waits and may_go(self._own[0]):
            if appends := self._take_own(self._room, owner):
                batch = self._away = Batch(appends, self._answer)
                self._away_settled = False
                task = self._hand_on(batch, owner)
                self._handing = asyncio.get_running_loop().create_task(task)
            return
        batches = self._next_batches(owner)
        if not batches:
            return
        error = await self._outcome(self._appender.append(batches))
        for batch in batches:
            if error is not None:
                batch.fail(error)
            batch.done(batch)

    async def _outcome(self, work: Coroutine[None, None, None]) -> StoreError | None:
        """Why a piece of work failed, if it has."""
        try:
            await work
        except Exception as error:
            return failure_of(error, "write")
        return None

    async def _hand_on(self, batch: Batch, owner: Member) -> None:
        """Wait until an owner has appended a batch, or leave it to the worker."""
        error = await self._outcome(self._appender.hand_on(batch, owner, self._known_end))
        if error is not None:
            batch.fail(error)
        self._away_settled = batch.is_settled
        if self._away_settled:
            self.told(batch.sequence)
        else:
            self._handed.appendleft(batch)
        self._handing = None
        self._begin()

    async def _known_end(self) -> int:
        """A sequence that the log has reached, not long ago."""
        if self._reached is None:
            self._reached = await self._parts.server.last_sequence(self.view.name) or 0
        self._reached = max(self._reached, self._told, self.view.last.sequence)
        return self._reached

    def _answer(self, batch: Batch) -> None:
        """Complete a batch of this node's."""
        self._parts.done(*batch.appends)
        if batch is self._away:
            self._away = None
            if not batch.sequence:
                self._appender.given_up = True
                self._reached = None
            self._begin()

    async def _trim(self) -> None:
        trim = self._own.popleft()
        assert isinstance(trim, Trim)
        trim.error = await self._outcome(self._trimmer.trim(trim))
        self._parts.done(trim)

    # What goes together ----------------------------------------------------------------------

    @property
    def _own_waits(self) -> bool:
        return bool(self._own) and self._away is None

    @property
    def _room(self) -> int:
        return min(self._parts.options.group_bytes_max, self._parts.server.room_bytes)

    def _next_batches(self, owner: Member | None) -> list[Batch]:
        """What makes the next frame: in turns this node's or the others' first."""
        self._own_first = not self._own_first
        batches: list[Batch] = []
        room = self._room
        if not self._own_first:
            room = self._take_handed(batches, room)
        if self._own_waits and (room > 0 or not batches):
            appends = self._take_own(room, owner, first=not batches)
            room -= sum(map(size_of_append, appends))
            if appends:
                batches.append(Batch(appends, self._answer))
        if self._own_first:
            self._take_handed(batches, room)
        return batches

    def _take_handed(self, batches: list[Batch], room: int) -> int:
        """Add batches of other nodes, of each one, as far as there is room, which is returned."""
        origins = {batch.origin for batch in batches}
        while self._handed and self._handed[0].origin not in origins:
            size = sum(map(size_of_append, self._handed[0].appends))
            if batches and size > room:
                break
            batch = self._handed.popleft()
            origins.add(batch.origin)
            batches.append(batch)
            room -= size
        return room

    def _take_own(self, room: int, owner: Member | None, *, first: bool = True) -> list[Append]:
        """This node's next appends that go the same way, as far as there is room for them.

        What cannot be appended at all is answered at once.
        """
        appends: list[Append] = []
        goes = owner is not None and may_go(self._own[0])
        while self._own:
            append = self._own[0]
            if isinstance(append, Trim) or goes != (owner is not None and may_go(append)):
                break
            room -= size_of_append(append)
            if room < 0 and not first:
                break
            self._own.popleft()
            try:
                self._check(append)
            except StoreError as error:
                append.error = error
                self._parts.done(append)
            else:
                appends.append(append)
                first = False
        return appends

    def _check(self, append: Append) -> None:
        check_not_removed(self._parts.journal.catalog, self._log)
        room = self._parts.server.room_bytes
        if size_of_append(append) > room:
            raise too_large_error(room)
        for key, _ in append.records:
            record_key(key)

    # What is committed -----------------------------------------------------------------------

    def _appended(self, frame: LogFrame, sequence: int) -> None:
        state = self.view.appended(frame, sequence)
        blocks = [(self._log, block) for block in blocks_of(frame)]
        self._parts.tail.commit(blocks, {self._log: state})
        self.keys.appended(sequence, frame.keys)
        self._appender.stamps.add(sequence, frame)
        self._appender.stamps.trim()
        self._written = True
        self._watches.tell(state.next_index)

    def _forget(self) -> None:
        """More may be there than is known: it must be read before anything is added."""
        self._parts.tail.forget(self._log)
        self.view.forget()

    # What other stores do --------------------------------------------------------------------

    @property
    def watched(self) -> bool:
        """Whether somebody waits for it to grow."""
        return bool(self._watches)

    def watch(self, operation: Watch) -> None:
        """Complete the operation once the log has grown so far."""
        self._watches.add(operation)
        if self.view.known:
            self._watches.tell(self.view.next_index)
        else:
            self.learn()

    def end_watches(self, error: StoreError) -> None:
        """Nobody waits any more."""
        self._watches.end(error)

    def told(self, sequence: int) -> None:
        """Another store has written a message."""
        self._told = max(self._told, sequence)
        if self._reached is not None:
            self._reached = max(self._reached, sequence)
        self._begin_if_behind()

    def learn(self) -> None:
        """Other stores may have written anything: nothing was heard for a while."""
        self._stale = True
        self._reached = None
        self._begin_if_behind()

    def look(self) -> bool:
        """Find what nobody has told of, when it is read; now (True) where somebody waits for it."""
        self._watches.age()
        if self.watched:
            return True
        if self._written:
            # What was written stands where this store has taken the log's end to be.
            self._written = False
        elif self._worker is None:
            self._forget()
        return False

    async def ask_end(self) -> None:
        """Ask where the log ends.

        Raises:
            StoreError: the cluster refuses to say.
            UnansweredError: no answer came.
        """
        self.told(await self._parts.server.last_sequence(self.view.name) or 0)

    def learn_start(self) -> None:
        """Another store may have trimmed the log, or removed its stream."""
        journal, view = self._parts.journal, self.view
        if is_removed(journal.catalog, self._log):
            self._parts.tail.forget(self._log)
            view.remove()
            self.end_watches(removed_error(self._log >> 32))
            return
        stored = journal.catalog.value(log_start_key(self._log))
        if stored is None or not view.known:
            return
        start = decode(LogStart, stored, "the journal")
        if view.start.first_index < start.first_index <= view.next_index:
            self._parts.tail.commit([], {self._log: view.trimmed(start)})
        elif start.first_index > view.next_index:
            self.learn()

    @property
    def _behind(self) -> bool:
        news = self._stale or self._told > self.view.last.sequence
        return news and (self.view.known or self.view.being_read or self.watched)

    def _begin_if_behind(self) -> None:
        if self._behind:
            self._begin()

    async def _follow(self) -> None:
        """Learn what others have appended: now where somebody waits for it, else when it is read.

        What fails is tried again when the next message is told of, or looked for.
        """
        stale, self._stale = self._stale, False
        told = self._told
        try:
            if not self.watched:
                self._forget()
            elif stale or not await self._read_on(told):
                self._forget()
                await self.view.state()
        except Exception as error:
            reason = failure_of(error, "read of what other nodes have written").text
            logger.debug("store_log_not_followed", extra={"reason": reason})
            self._forget()
        else:
            if self.view.known:
                self._watches.tell(self.view.next_index)
        if self._told == told:
            # Also where less is there than was told of.
            self._told = self.view.last.sequence

    async def _read_on(self, until: int) -> bool:
        """Take the messages up to a sequence; False where the log is better read anew."""
        view = self.view
        if not view.known or until - view.last.sequence > _FOLLOWED_MAX:
            return False
        for sequence in range(view.last.sequence + 1, until + 1):
            frame = await view.frame_at(sequence)
            if frame is None or frame.first_index != view.next_index:
                return False
            self._appended(frame, sequence)
            view.others_end = view.next_index
        return True
