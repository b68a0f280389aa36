"""How batches get into one log: published here, or by the node that owns it.

A frame is published with the last sequence known: where another node has appended since, nothing
is stored, the log's end is read, and the batches are published behind it. Only batches with
records are refused then: what they put may follow from what had been there. At most one frame is
under way, so one that was not answered is settled by a look at its place.

A batch that was handed to an owner, and of which nothing was heard, is published here or by the
next owner; its stamp tells whether the first one has appended it after all.

Records that come with an append stand in its frame, which makes them durable together, and are
copied to the journal before the append is confirmed. The journal knows which logs have such frames
and how far it has their records, so that what a crash has kept from it is written after it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from rillnode.actors.storage.jetstream.failures import (
    UnansweredError,
    WrongLastSequenceError,
    fenced_error,
)
from rillnode.actors.storage.jetstream.frames import LogFrame, applied_key, corrupt_error, encode
from rillnode.actors.storage.jetstream.log_view import LogView
from rillnode.actors.storage.jetstream.membership import Member
from rillnode.actors.storage.jetstream.packing import pack
from rillnode.actors.storage.jetstream.parts import Parts
from rillnode.actors.storage.jetstream.patience import Patience
from rillnode.actors.storage.jetstream.plan import check_not_removed
from rillnode.actors.storage.jetstream.stamps import Batch, Stamps
from rillnode.actors.storage.layout import INDEX, Change
from rillnode.codecs.errors import CodecError, StoreError


class Appender:
    """Appends to one log; one call at a time.

    `appended` is told each frame of this store's, `forget` when more may be there than is known.
    `read_on` learns what others have appended up to a sequence, unless that is better read anew.

    Attributes:
        stamps: of the frames that were read or written last.
        given_up: an owner may still append what was given up here; what follows must show that.
    """

    def __init__(
        self,
        log: int,
        parts: Parts,
        view: LogView,
        patience: Patience,
        *,
        appended: Callable[[LogFrame, int], None],
        forget: Callable[[], None],
        read_on: Callable[[int], Awaitable[bool]],
    ) -> None:
        self._log = log
        self._parts = parts
        self._view = view
        self._patience = patience
        self._appended = appended
        self._forget = forget
        self._read_on = read_on
        self._owner = parts.forwarding.owner_of(log)
        self.stamps = Stamps()
        # The journal has the records of all frames up to this one.
        self._applied = 0
        self._redoing = asyncio.Lock()
        self.given_up = False

    def owner(self) -> Member | None:
        """The other node that is to append now; None where that is this one."""
        owner = self._parts.forwarding.owner_of(self._log)
        if owner != self._owner:
            self._owner = owner
            self._parts.forwarding.hand_overs += 1
        return owner

    async def hand_on(
        self, batch: Batch, owner: Member, known_end: Callable[[], Awaitable[int]]
    ) -> None:
        """Let the owner append a batch, or the next one; not settled if this node has to do it.

        Args:
            batch: appends that may go there (`stamps.may_go`).
            owner: another node.
            known_end: tells a sequence that the log has reached.

        Raises:
            StoreError: it is not known to be appended.
        """
        patience, forwarding = self._patience, self._parts.forwarding
        forwarding.stamp(batch, await patience.patiently(known_end))
        following: Member | None = owner
        while following is not None:
            hand = partial(forwarding.hand, following, self._log, batch)
            await patience.patiently(hand)
            following = None if batch.is_settled else self.owner()

    async def append(self, batches: Sequence[Batch]) -> None:
        """Publish batches in one frame, those that are not in the log yet.

        Raises:
            StoreError: they are not appended, or not known to be.
        """
        patience, server, view = self._patience, self._parts.server, self._view
        await patience.patiently(view.state)
        check_not_removed(self._parts.journal.catalog, self._log)
        if not view.last.sequence:
            await patience.patiently(lambda: server.make_stream(view.name))
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._parts.options.settle_seconds_max
        for batch in batches:
            if self.given_up and not batch.origin:
                self._parts.forwarding.stamp(batch, view.last.sequence)
        while True:
            state = await view.state()
            left = [batch for batch in batches if await self._is_left(batch)]
            if not left:
                return
            frame = pack(left, state, self._parts.token())
            if frame.records:
                await self._announce_records()
            try:
                sequence = await patience.commit(
                    server, encode(frame), after=view.last.sequence, check=self._check
                )
                break
            except WrongLastSequenceError:
                await self._read_again()
                if frame.records or loop.time() > deadline:
                    raise fenced_error("appended to this log") from None
                await self._redo_own()
            except StoreError:
                self._forget()
                raise
        if frame.records:
            # The journal takes records in the order of their frames.
            await patience.surely(self.redo)
            await patience.surely(lambda: self._put_records(frame.records, sequence))
        for batch in left:
            batch.sequence = sequence
        if self._applied == sequence - 1:
            self._applied = sequence
        self._appended(frame, sequence)
        self._parts.tell(self._log, sequence)

    async def _check(self) -> None:
        """Learn whether another store has removed the log's stream."""
        await self._parts.journal.catch_up()
        check_not_removed(self._parts.journal.catalog, self._log)

    # Batches that may be there already --------------------------------------------------------

    async def _is_left(self, batch: Batch) -> bool:
        """Whether a batch is still to be published behind all that is known."""
        others_end = self._view.others_end
        for one in batch.appends:
            if one.seen is not None and one.seen < others_end:
                batch.fail(fenced_error("appended to this log"))
                return False
        if not batch.origin:
            return True
        if batch.is_settled:
            return False
        try:
            await self._patience.patiently(lambda: self._look_through(batch.since))
            return not self.stamps.settle(batch, await self._view.state())
        except StoreError as error:
            # The others in its frame have nothing to do with it.
            batch.fail(error)
            return False

    async def _look_through(self, since: int) -> None:
        """Know the stamps of all frames past a sequence.

        Raises:
            StoreError: some of them were trimmed, or are damaged.
            UnansweredError: no answer came.
        """
        stamps, view = self.stamps, self._view
        await view.state()
        if stamps.cover(since, view.last.sequence):
            return
        stamps.begin(since)
        try:
            async for sequence, frame in view.frames_after(since):
                stamps.add(sequence, frame)
        except CodecError as error:
            raise corrupt_error(f"the stream {view.name}") from error
        if not stamps.cover(since, view.last.sequence):
            raise fenced_error("trimmed this log")

    # Records ---------------------------------------------------------------------------------

    async def redo(self) -> None:
        """Write the records of others' frames, or of a crash, that the journal may not have yet.

        Raises:
            StoreError: the journal takes nothing.
            UnansweredError: no answer came.
        """
        # One at a time: records of an older frame must not come behind those of a newer one.
        async with self._redoing:
            await self._view.state()
            await self._redo(self._view.last.sequence)

    async def _redo(self, last: int) -> None:
        if self._applied >= last:
            return
        if self._copied < last:
            # Who has appended them has most likely seen to it.
            await self._parts.journal.catch_up()
        applied = max(self._applied, self._copied)
        async for sequence, frame in self._view.frames_after(applied):
            if frame.records:
                await self._put_records(frame.records, sequence)
        self._applied = last

    @property
    def _copied(self) -> int:
        """The journal is known to have the records of all frames up to this one."""
        stored = self._parts.journal.catalog.value(applied_key(self._log))
        return 0 if stored is None else INDEX.unpack(stored)[0]

    async def _announce_records(self) -> None:
        """Let the journal say that this log may hold records that are not in it."""
        key, journal = applied_key(self._log), self._parts.journal
        if journal.catalog.row(key) is not None:
            return
        # Another node may have said so, and what it says is not to be written over.
        await journal.patience.patiently(journal.catch_up)
        if journal.catalog.row(key) is None:
            await journal.write([(key, INDEX.pack(self._view.last.sequence))])

    async def _put_records(self, records: Sequence[Change], sequence: int) -> None:
        changes = [*records, (applied_key(self._log), INDEX.pack(sequence))]
        try:
            await self._parts.journal.write(changes)
        except StoreError as error:
            # The frame stands: its records must follow, if not now then when it is opened next.
            raise UnansweredError(error.text) from error

    async def _redo_own(self) -> None:
        """Write the records of what has come: it may be our own, late, without them."""
        if self._parts.journal.catalog.row(applied_key(self._log)) is not None:
            await self._patience.surely(self.redo)

    async def _read_again(self) -> None:
        """Know what another store has appended since."""
        patience, server, view = self._patience, self._parts.server, self._view
        last = await patience.surely(lambda: server.last_sequence(view.name)) or 0
        if not await patience.surely(lambda: self._read_on(last)):
            self._forget()
            await patience.surely(view.state)
