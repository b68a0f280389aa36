"""How batches get into one log: published here, or by the node that owns it.

A frame is published with the last sequence known: where another node has appended since, nothing
is stored, the log's end is read anew, and the batches are published behind it. Only batches with
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

from rillnode.actors.storage.jetstream.failures import fenced_error
from rillnode.actors.storage.jetstream.frames import LogFrame, applied_key, corrupt_error, encode
from rillnode.actors.storage.jetstream.log_view import LogView
from rillnode.actors.storage.jetstream.membership import Member
from rillnode.actors.storage.jetstream.packing import pack
from rillnode.actors.storage.jetstream.parts import Parts
from rillnode.actors.storage.jetstream.plan import check_not_removed
from rillnode.actors.storage.jetstream.server import UnansweredError, WrongLastSequenceError
from rillnode.actors.storage.jetstream.stamps import Batch, Stamps
from rillnode.actors.storage.layout import INDEX, Change
from rillnode.codecs.errors import CodecError, StoreError


class Appender:
    """Appends to one log; one call at a time.

    `appended` is told each frame of this store's, `forget` when more may be there than is known.

    Attributes:
        stamps: of the frames that were read or written last.
        given_up: an owner may still append what was given up here; what follows must show that.
    """

    def __init__(
        self,
        log: int,
        parts: Parts,
        view: LogView,
        *,
        appended: Callable[[LogFrame, int], None],
        forget: Callable[[], None],
    ) -> None:
        self._log = log
        self._parts = parts
        self._view = view
        self._appended = appended
        self._forget = forget
        self._owner = parts.forwarding.owner_of(log)
        self.stamps = Stamps()
        # The journal has the records of all frames up to this one.
        self._applied = 0
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
            batch: appends without records.
            owner: another node.
            known_end: tells a sequence that the log has reached.

        Raises:
            StoreError: it is not known to be appended.
        """
        gate, forwarding = self._parts.gate, self._parts.forwarding
        forwarding.stamp(batch, await gate.patiently(known_end))
        following: Member | None = owner
        while following is not None:
            hand = partial(forwarding.hand, following, self._log, batch)
            await gate.patiently(hand)
            following = None if batch.is_settled else self.owner()

    async def append(self, batches: Sequence[Batch]) -> None:
        """Publish batches in one frame, those that are not in the log yet.

        Raises:
            StoreError: they are not appended, or not known to be.
        """
        gate, server, view = self._parts.gate, self._parts.server, self._view
        await gate.patiently(view.state)
        check = partial(check_not_removed, self._parts.journal.catalog, self._log)
        check()
        if not view.last.sequence:
            await gate.patiently(lambda: server.make_stream(view.name))
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._parts.options.settle_seconds_max
        if any(one.records for batch in batches for one in batch.appends):
            # The journal takes records in the order of their frames.
            await gate.surely(self.redo)
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
                sequence = await gate.commit(
                    server, view.name, encode(frame), after=view.last.sequence, check=check
                )
                break
            except WrongLastSequenceError:
                await self._read_again()
                if frame.records or loop.time() > deadline:
                    raise fenced_error("appended to this log") from None
            except StoreError:
                self._forget()
                raise
        if frame.records:
            await gate.surely(lambda: self._put_records(frame.records, sequence))
        for batch in left:
            batch.sequence = sequence
        if self._applied == sequence - 1:
            self._applied = sequence
        self._appended(frame, sequence)
        self._parts.tell(self._log, sequence)

    # Batches that may be there already --------------------------------------------------------

    async def _is_left(self, batch: Batch) -> bool:
        """Whether a batch is still to be published behind all that is known."""
        if not batch.origin:
            return True
        if batch.is_settled:
            return False
        try:
            await self._parts.gate.patiently(lambda: self._look_through(batch.since))
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
        await self._view.state()
        last = self._view.last.sequence
        if self._applied >= last:
            return
        stored = self._parts.journal.catalog.value(applied_key(self._log))
        applied = max(self._applied, 0 if stored is None else INDEX.unpack(stored)[0])
        async for sequence, frame in self._view.frames_after(applied):
            if frame.records:
                await self._put_records(frame.records, sequence)
        self._applied = last

    async def _announce_records(self) -> None:
        """Let the journal say that this log may hold records that are not in it."""
        key = applied_key(self._log)
        if self._parts.journal.catalog.row(key) is None:
            change = (key, INDEX.pack(self._view.last.sequence))
            await self._parts.journal.write([change])

    async def _put_records(self, records: Sequence[Change], sequence: int) -> None:
        changes = [*records, (applied_key(self._log), INDEX.pack(sequence))]
        try:
            await self._parts.journal.write(changes)
        except StoreError as error:
            # The frame stands: its records must follow, if not now then when it is opened next.
            raise UnansweredError(error.text) from error

    async def _read_again(self) -> None:
        self._forget()
        await self._parts.gate.surely(self._view.state)
        if self._parts.journal.catalog.row(applied_key(self._log)) is not None:
            # What has come may be our own, late, without its records.
            await self._parts.gate.surely(self.redo)
