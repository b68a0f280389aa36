"""Decides when a snapshot of a shard is made, by which node, and when one is taken."""

import asyncio
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from struct import Struct, error as StructError
from typing import Final

from rillnode.actors.log import Checkpoint, GetRecord, PutRecords
from rillnode.actors.log.rocks.tables import open_error
from rillnode.actors.log.shared.applying import ApplyFrame
from rillnode.actors.log.shared.following import check_same, lost_frames
from rillnode.actors.log.shared.port import LogLost, SharedLog
from rillnode.actors.log.shared.shard import Shard
from rillnode.actors.log.shared.shards import Shards
from rillnode.actors.log.shared.snapshots import Snapshots
from rillnode.codecs.errors import StoreError
from rillnode.codecs.events import event_logger

logger = event_logger("rillnode.actors.log")

CLAIM: Final = "shared/snapshot"
"""Named value, in each shard, that changes when a node sets out to make a snapshot of it."""

MADE: Final = f"{CLAIM}/made"
"""Named value, in each shard: its newest snapshot's sequence, and when that was stored."""

_MADE: Final = Struct(">QQ")

_SAMPLE_BYTES: Final = 65_536
"""Frames behind the newest snapshot by which it is judged how large they are."""


class Saving:
    """Makes snapshots of the shards that this node has, and takes others'.

    Args:
        shards: the store's.
        log: the engine, which is trimmed behind the oldest snapshot that is kept.
        snapshots: where they are.
        path: the directory of a shard's view.
        entropy: gives random bytes.
        now_ms: the time, in ms since 1970.
    """

    def __init__(
        self,
        shards: Shards,
        log: SharedLog,
        snapshots: Snapshots,
        path: Callable[[int], Path],
        entropy: Callable[[int], bytes],
        now_ms: Callable[[], int],
    ) -> None:
        self._shards = shards
        self._log = log
        self._snapshots = snapshots
        self._path = path
        self._entropy = entropy
        self._now_ms = now_ms
        # By shard, the newest snapshot as its log tells of it.
        self._made: dict[int, tuple[int, int]] = {}
        # Shards of which a snapshot is being made.
        self._under_way: set[int] = set()

    async def restore(self, number: int, after: int) -> bool:
        """Put the newest snapshot of a shard in the place of its view, if it reaches `after`.

        Raises:
            LogLost: it did not come whole.
            StoreError: it cannot be used.
        """
        failure: StoreError | None = None
        sequences = await self._snapshots.sequences(number)
        for sequence in sequences:
            if sequence < after:
                break
            try:
                await self._check(number, sequence)
                await self._snapshots.restore(number, sequence, self._path(number))
                return True
            except OSError as error:
                raise open_error(self._path(number), error) from error
            except StoreError as error:
                failure = failure or error
                extra = {"shard": number, "sequence": sequence, "code": error.code}
                logger.error("snapshot_not_taken", extra=extra)
        if failure is not None:
            if await self._snapshots.sequences(number) != sequences:
                raise LogLost("other snapshots have taken the place of those that were fetched")
            raise failure
        return False

    async def _check(self, number: int, sequence: int) -> None:
        """See that a snapshot is of this log as it is: who has accepted a loss begins without it.

        Raises:
            LogLost: nobody answers.
            StoreError: `store.lost`, or it cannot be read.
        """
        checksum = await self._snapshots.checksum_of(number, sequence)
        found = await self._log.read(number, sequence - 1, 1)
        if found and checksum:
            check_same(number, found[0], sequence, checksum)
        if not found and sequence > (await self._log.span(number)).last:
            raise lost_frames(number, sequence)

    def landed(self, number: int, frame: ApplyFrame, *, is_own: bool) -> None:
        """Make a snapshot where the log has grown, unless another node has said that it does."""
        shard = self._shards[number]
        for one in frame.operations:
            if one.error is None and isinstance(one, PutRecords) and one.records:
                name, value = one.records[0]
                if name == CLAIM and not is_own:
                    shard.follows.unsaved_bytes = 0
                elif name == MADE and value is not None:
                    self._note(number, value)
        self._save_if_due(shard)

    def _save_if_due(self, shard: Shard) -> None:
        is_due = shard.follows.unsaved_bytes >= self._shards.options.snapshot_bytes
        if is_due and shard.number not in self._under_way:
            self._under_way.add(shard.number)
            self._shards.begin(self._save(shard))

    async def _save(self, shard: Shard) -> None:
        """Store a snapshot, unless another node does, and drop the log that is behind it."""
        options, number = self._shards.options, shard.number
        await asyncio.sleep(self._entropy(1)[0] / 256 * options.snapshot_seconds)
        path, follows = self._path(number), shard.follows
        copy = path.with_suffix(".copy")
        try:
            if follows.unsaved_bytes < options.snapshot_bytes or not await self._claims(shard):
                return
            follows.unsaved_bytes = 0
            await asyncio.to_thread(shutil.rmtree, copy, ignore_errors=True)
            sequence, last = follows.handed, follows.last
            await self._shards.wait_for(Checkpoint(path=copy), shard.checkpoint)
            checksum = last[1] if last[0] == sequence else 0
            await self._snapshots.put(number, sequence, path, copy, checksum=checksum)
            made = PutRecords(records=[(MADE, _MADE.pack(sequence, self._now_ms()))])
            await self._shards.wait_for(made, shard.submit)
            oldest = await self._snapshots.prune(number)
            if oldest is not None:
                await self._log.trim(number, oldest + 1)
        except (LogLost, StoreError, OSError) as error:
            # The log grows until the next one.
            logger.warning("snapshot_not_made", extra={"shard": number, "reason": str(error)})
        finally:
            self._under_way.discard(number)
            await asyncio.to_thread(shutil.rmtree, copy, ignore_errors=True)

    async def opened(self, number: int) -> None:
        """Learn of the newest snapshot of a shard whose view was opened, and what is behind it."""
        made = GetRecord(key=MADE)
        with suppress(LogLost, StoreError):  # it is opened again
            await self._shards.ask(number, made)
            if made.value is not None:
                self._note(number, made.value)
            newest, _ = self._made.get(number, (0, 0))
            frames = await self._log.read(number, newest, _SAMPLE_BYTES)
            if frames:
                # What was carried out before this node was started is taken to be as large.
                follows = self._shards[number].follows
                size = sum(len(frame.data) for frame in frames) // len(frames)
                behind = follows.applied + 1 - frames[0].sequence
                follows.unsaved_bytes = max(follows.unsaved_bytes, behind * size)
                self._save_if_due(self._shards[number])

    async def look_after(self, shard: Shard) -> None:
        """Make a snapshot where somebody has trimmed the log past the newest: none could begin."""
        number = shard.number
        with suppress(LogLost, StoreError):  # it is looked at again
            span = await self._log.span(number)
            newest, _ = self._made.get(number, (0, 0))
            if newest + 1 < span.first <= shard.follows.applied + 1 and shard.is_ready:
                extra = {"shard": number, "first": span.first, "snapshot": newest}
                logger.warning("log_trimmed_by_others", extra=extra)
                shard.follows.unsaved_bytes = self._shards.options.snapshot_bytes
                self._save_if_due(shard)

    def described(self, number: int) -> Mapping[str, int | float | None]:
        """The newest snapshot of a shard, and its age in seconds, for people; None: none is known.

        Clocks of nodes may differ: one that was made in the future is new.
        """
        sequence, at_ms = self._made.get(number, (None, 0))
        age = None if sequence is None else max(0, self._now_ms() - at_ms) / 1_000
        return {"snapshot": sequence, "snapshot_seconds": age}

    def _note(self, number: int, value: bytes) -> None:
        with suppress(StructError):  # whoever writes the log may have written this
            self._made[number] = max(self._made.get(number, (0, 0)), _MADE.unpack(value))

    async def _claims(self, shard: Shard) -> bool:
        """Whether this node is the one that makes a snapshot now; the others see it in the log."""
        claim = GetRecord(key=CLAIM)
        await self._shards.ask(shard.number, claim)
        put = PutRecords(records=[(CLAIM, self._entropy(8))], seen=[(CLAIM, claim.version)])
        try:
            await self._shards.wait_for(put, shard.submit)
        except StoreError as error:
            if error.code != "store.fenced":
                raise
            return False
        return True
