"""Follows the log of a shard: reads what is stored, and has the view carry it out in order."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from rillnode.actors.log import Operation
from rillnode.actors.log.shared.applying import ApplyFrame, Progress
from rillnode.actors.log.shared.frames import Contents, FrameError, checksum_of, decode_frame
from rillnode.actors.log.shared.owner import Owner, View
from rillnode.actors.log.shared.port import Frame, LogLost
from rillnode.actors.log.shared.writing import NO_CHECK, Sent, Writing
from rillnode.codecs.errors import StoreError
from rillnode.codecs.events import event_logger

logger = event_logger("rillnode.actors.log")

APPLYING_BYTES_MAX: Final = 16_777_216
APPLYING_FRAMES_MAX: Final = 256
"""What may wait to be carried out on the view: while it is that much, no more is read."""

CHECK_FRAMES: Final = 1_024
"""Views are compared at each so many frames."""

CHECKS_KEPT: Final = 8
"""Digests that are kept to be compared."""

LOOK_SECONDS: Final = 1.0
"""A view looks so often whether its last frame is still in the log, when it reads what comes next:
servers that have lost frames are gone for longer, and what is stored afterwards does not follow."""


class Following:
    """The progress of a view, and its next frames. All calls on the loop, but `completed`.

    Args:
        number: of the shard.
        owner: the store.
        begin: has work done until the shard is closed.
        leave: told why the view cannot go on with the log as that is.
        stop: told why the view does not carry out what it was given.

    Attributes:
        writing: the frames of this node.
        view: what frames are carried out on; None: it is not open.
        failed: why it carries out nothing; None: nothing is wrong.
        applied: sequence of the last frame that was carried out.
        handed: of the last one that the view was given: what it is given next comes after.
        known: the last sequence that is known to be in the log.
        life: how often it was begun with a view: what was read before that is over.
        unsaved_bytes: of the frames that were carried out since a snapshot was made, here or, as
            far as this node has seen it, elsewhere.
        damaged: frames that nobody can read, and that were passed over since this was made.
        last: sequence and checksum of the last frame that was given to the view, if known.
        check: a place, and what the view was there, which other nodes are told once.
    """

    writing: Writing

    def __init__(
        self,
        number: int,
        owner: Owner,
        begin: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"],
        leave: Callable[[StoreError], None],
        stop: Callable[[StoreError], None],
    ) -> None:
        self.view: View | None = None
        self.failed: StoreError | None = None
        self.applied = self.handed = self.known = self.life = self.unsaved_bytes = 0
        self.damaged = 0
        self.check = NO_CHECK
        self._number = number
        self._owner = owner
        self._begin = begin
        self._leave = leave
        self._stop = stop
        self._loop = asyncio.get_running_loop()
        # Frames that are known and not given to the view yet, by their sequences.
        self._ahead: dict[int, Sent] = {}
        self._fetching: asyncio.Task[None] | None = None
        self.last = (0, 0)
        self._looked_at = 0.0
        self._begun: Progress | None = None
        self._applying: deque[tuple[ApplyFrame, int]] = deque()
        self._applying_bytes = 0
        self._room = asyncio.Event()
        self._stirred = asyncio.Event()
        # By sequence, what the view was there.
        self._checks: dict[int, int] = {}
        self._differed: set[int] = set()

    def begin(self, view: View) -> None:
        """Go on where a view is; a frame that it has begun is given to it again."""
        progress = view.progress
        self.view, self.failed = view, None
        self._begun = progress
        self.handed = self.applied = _reached(progress)
        self.last = (progress.sequence, progress.checksum)
        self._ahead.clear()
        self._checks.clear()
        self.check = NO_CHECK
        self.writing.begun_anew()
        self.life += 1
        self._forget_given()

    def fail(self, error: StoreError) -> None:
        """Carry out nothing more."""
        self.failed = error
        self._forget_given()
        self._stirred.set()

    def _forget_given(self) -> None:
        self._applying.clear()
        self._applying_bytes = 0
        self._room.set()

    async def stirring(self) -> None:
        """Wait until something was carried out, or has failed."""
        self._stirred.clear()
        await self._stirred.wait()

    # What comes next -------------------------------------------------------------------------

    def heard(self, sequence: int) -> None:
        """The log has reached a sequence."""
        self.known = max(self.known, sequence)
        # It may be a frame of this node, which is about to be told of.
        if self.view is not None and not self.writing.sends:
            self.advance()

    def found(self, sequence: int, frame: Sent) -> None:
        """An own frame stands there."""
        self.known = max(self.known, sequence)
        if sequence > self.handed:
            if sequence not in self._ahead:
                self._ahead[sequence] = frame
                frame.copies += 1
        elif self.writing.is_under_way(frame) and sequence not in frame.places:
            # The view has another frame there.
            self._leave(lost_frames(self._number, sequence))
        self.advance()

    def advance(self) -> None:
        """Give to the view what comes next, and read what is not known."""
        while self._has_room and (frame := self._ahead.pop(self.handed + 1, None)):
            self._hand(self.handed + 1, frame.data, frame)
        if self.handed < self.known and self._fetching is None and self.can_apply:
            self._fetching = self._begin(self._fetch())

    @property
    def can_apply(self) -> bool:
        """Whether the view carries out what it is given."""
        return self.view is not None and self.failed is None

    @property
    def _has_room(self) -> bool:
        return (
            self.can_apply
            and self._applying_bytes < APPLYING_BYTES_MAX
            and len(self._applying) < APPLYING_FRAMES_MAX
        )

    async def _fetch(self) -> None:
        """Read what others have stored, and what of this node is not known to be there."""
        options, log = self._owner.options, self._owner.log
        pause = options.retry_seconds / 8
        try:
            while self.handed < self.known and self.can_apply:
                life, after, last, looks = self.life, self.handed, self.last, self._looks()
                try:
                    found = await log.read(self._number, after - looks, options.read_bytes_max)
                except LogLost:
                    await asyncio.sleep(options.retry_seconds)
                    continue
                if looks and found:
                    self._looked_at = self._loop.time()
                    if self.life == life:
                        check_same(self._number, found[0], *last)
                    if found[-1].sequence <= after:
                        continue  # what comes next is read now
                if not found:
                    # Who has answered is behind; or nothing is there, and who has told so erred.
                    if pause > options.patience_seconds:
                        self.known = self.handed
                        break
                    await asyncio.sleep(pause)
                    pause *= 2
                    continue
                pause = options.retry_seconds / 8
                await self._take(found, life)
        except StoreError as error:
            self._leave(error)
            return
        finally:
            self._fetching = None
        if self._ahead or self.handed < self.known:
            self.advance()

    def _looks(self) -> bool:
        """Whether the view's last frame is to be read with what comes next."""
        is_due = self._loop.time() - self._looked_at >= LOOK_SECONDS
        return is_due and 0 < self.handed == self.last[0]

    async def _take(self, found: Sequence[Frame], life: int) -> None:
        for sequence, data in found:
            if self.life != life:
                return
            if sequence <= self.handed:
                continue
            if sequence != self.handed + 1:
                raise StoreError(
                    "store.trimmed",
                    f"frame {self.handed + 1} of shard {self._number} is not in the log any more",
                )
            while not self._has_room:
                if not self.can_apply:
                    return
                self._room.clear()
                await self._room.wait()
                if self.life != life:
                    return
            frame = self._ahead.pop(sequence, None)
            if frame is not None and frame.data != data:
                # The servers have said that it stands there.
                raise lost_frames(self._number, sequence)
            self._hand(sequence, data, frame)

    def _hand(self, sequence: int, data: bytes, frame: Sent | None) -> None:
        """Give a frame to the view. Raises StoreError: a later version has written it."""
        apply = ApplyFrame(sequence=sequence, checksum=checksum_of(data))
        frame = frame or self.writing.own(data)
        if frame is not None and self.writing.is_under_way(frame):
            frame.places.add(sequence)
            apply.token = frame
            apply.contents = Contents(frame.session)
            apply.operations = frame.operations
        else:
            try:
                contents = apply.contents = decode_frame(data)
                apply.operations = contents.operations
            except FrameError as error:
                extra = {"shard": self._number, "sequence": sequence, "reason": str(error)}
                logger.error("frame_damaged", extra=extra)
                self.damaged += 1
        self.handed = sequence
        self.last = (sequence, apply.checksum)
        self._applying.append((apply, len(data)))
        self._applying_bytes += len(data)
        assert self.view is not None
        self.view.apply(apply)

    # Carried out -----------------------------------------------------------------------------

    def completed(self, operations: Sequence[Operation]) -> None:
        """The view's threads tell of frames; reads go to who has asked."""
        frames = [one for one in operations if isinstance(one, ApplyFrame)]
        others = [one for one in operations if not isinstance(one, ApplyFrame)]
        if others:
            if self._is_behind:
                for operation in others:
                    operation.error = behind_error()
            self._owner.answered(self._number, others)
        if frames:
            self.on_loop(partial(self._landed, frames))

    @property
    def _is_behind(self) -> bool:
        """Whether the view was opened again after a failure, and lacks what readers were shown."""
        view = self.view
        progress = None if view is None else view.progress
        return (
            progress is not None
            and progress is not self._begun
            and _reached(progress) < self.applied
        )

    def on_loop(self, call: Callable[[], None]) -> None:
        """Call it on the loop; at once, where this is."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            with suppress(RuntimeError):  # the loop is closed, and nobody waits
                self._loop.call_soon_threadsafe(call)
        else:
            call()

    def _landed(self, frames: Sequence[ApplyFrame]) -> None:
        for apply in frames:
            if not self._applying or self._applying[0][0] is not apply:
                continue  # of a view that was closed
            if apply.error is not None:
                # It is read again when it can be carried out.
                if self.failed is None:
                    self._stop(apply.error)
                break
            _, size = self._applying.popleft()
            self._applying_bytes -= size
            self.unsaved_bytes += size
            self._carried_out(apply)
        self._room.set()
        self._stirred.set()
        if self.can_apply:
            self.advance()
            self.writing.go_on()

    def _carried_out(self, apply: ApplyFrame) -> None:
        sequence = self.applied = apply.sequence
        frame: Sent | None = apply.token
        if frame is not None:
            self.writing.carried_out(frame, sequence, counts=apply.counts)
        if apply.counts:
            self._owner.landed(self._number, apply, is_own=frame is not None)
        self._compare(apply)

    def _compare(self, apply: ApplyFrame) -> None:
        """Keep what the view is now and then, and see whether others' was the same there."""
        progress: Progress | None = apply.progress
        contents = apply.contents
        if progress is not None and progress.sequence % CHECK_FRAMES == 0:
            self._checks[progress.sequence] = progress.digest
            self.check = (progress.sequence, progress.digest)
            if len(self._checks) > CHECKS_KEPT:
                del self._checks[next(iter(self._checks))]
        if contents is not None and contents.mark and apply.token is None:
            mine = self._checks.get(contents.mark)
            if mine is not None and mine != contents.digest:
                self._differs(contents.mark)

    def _differs(self, sequence: int) -> None:
        """Another node has decided differently: one of the two views is wrong, and is made anew."""
        again = sequence in self._differed
        extra = {"shard": self._number, "sequence": sequence, "again": again}
        logger.critical("views_differ", extra=extra)
        if again:
            return  # it was made anew, and is the same: the other one is wrong
        self._differed.add(sequence)
        self._leave(
            StoreError(
                "store.differs",
                f"at frame {sequence} of shard {self._number} another node has another view of "
                "the log: this node makes its view anew; report what has happened",
            )
        )


def _reached(progress: Progress) -> int:
    """The last frame that is carried out whole."""
    return progress.sequence - (not progress.is_whole)


def behind_error() -> StoreError:
    """Why a view answers nothing whose disk has not kept all that was carried out."""
    return StoreError("store.failed", "the disk has lost writes of a view, which is made good")


def check_same(shard: int, frame: Frame, sequence: int, checksum: int) -> None:
    """See that a frame that was read is the one that a view has at its place.

    Raises:
        StoreError: `store.lost`.
    """
    if frame.sequence == sequence and checksum_of(frame.data) != checksum:
        raise lost_frames(shard, sequence)


def lost_frames(shard: int, sequence: int) -> StoreError:
    """The log does not have a frame that it has had."""
    return StoreError(
        "store.lost",
        f"the log of shard {shard} is not what it was: this node has seen frame {sequence}, and "
        "the servers have lost what they confirmed; restore them from a backup, or accept the loss "
        f"by deleting the directory {shard:04x} of this node's views while it is stopped",
        retryable=False,
    )
