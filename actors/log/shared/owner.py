"""Declares what a shard needs of its store: options, a view, and whom it tells."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rillnode.actors.log import (
    Checkpoint,
    Complete,
    OnHealth,
    Operation,
    ReadOperation,
    StoreHealth,
)
from rillnode.actors.log.shared.applying import ApplyFrame, Progress
from rillnode.actors.log.shared.frames import SharedOperation
from rillnode.actors.log.shared.port import SharedLog
from rillnode.actors.log.shared.versions import Versions
from rillnode.codecs.errors import StoreError


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedOptions:
    """The options of a store on a shared log.

    Attributes:
        shards: how many are made, where there are none yet.
        frame_bytes_max: writes that make one frame; at most what the engine takes.
        frame_bytes_min: writes that are worth a frame while others of their shard are under way.
        frames_max: frames of a shard that are under way at one time.
        frames_free: frames of all shards that are under way while fewer writes make one as well.
        read_bytes_max: frames that are read at one time.
        pending_bytes_max: writes are refused while so much waits.
        patience_seconds: how long writes wait for the engine before they are refused: longer than
            an election of its leader takes.
        retry_seconds: pause before something is tried again.
        idle_seconds: a view that nobody has used for this long is closed.
        late_frames: a view that lacks so many takes a snapshot, where there is a newer one.
        snapshot_bytes: frames behind the newest snapshot, by which another one is made.
        snapshot_seconds: nodes wait at most this long before one makes one, so that one does.
        serve: what the node holds always, and never; see `Holding`.
    """

    shards: int = 16
    frame_bytes_max: int = 524_288
    frame_bytes_min: int = 16_384
    frames_max: int = 4
    frames_free: int = 8
    read_bytes_max: int = 4_194_304
    pending_bytes_max: int = 268_435_456
    patience_seconds: float = 15.0
    retry_seconds: float = 0.25
    idle_seconds: float = 600.0
    late_frames: int = 4_096
    snapshot_bytes: int = 268_435_456
    snapshot_seconds: float = 10.0
    serve: tuple[str, ...] = ()


class View(Protocol):
    """A view that frames of a shard are applied to."""

    @property
    def progress(self) -> Progress:
        """How far it was when it was opened last."""
        ...

    @property
    def health(self) -> StoreHealth:
        """Whether it carries frames out."""
        ...

    def open(self) -> None:
        """Open or create it. Blocks. Raises StoreError."""
        ...

    def close(self) -> None:
        """Carry out what waits, and close. Blocks."""
        ...

    def apply(self, frame: ApplyFrame) -> None:
        """Queue a frame; completed in order, with an error where the view has failed."""
        ...

    def checkpoint(self, operation: Checkpoint) -> None:
        """Queue a copy of the view as it is between two frames."""
        ...

    def read(self, operation: ReadOperation) -> bool:
        """Answer at once (True), or later through `complete`."""
        ...


class Owner(Protocol):
    """The store that a shard is of."""

    @property
    def log(self) -> SharedLog:
        """Where frames are kept."""
        ...

    @property
    def options(self) -> SharedOptions:
        """How it is used."""
        ...

    @property
    def under_way(self) -> int:
        """Frames of all shards that are not carried out yet."""
        ...

    @property
    def versions(self) -> Versions:
        """Which frames the nodes of the log read."""
        ...

    def entropy(self, count: int, /) -> bytes:
        """Random bytes."""
        ...

    def completed(self, shard: int, operations: Sequence[SharedOperation], sequence: int) -> None:
        """Operations of this node were carried out; each once."""
        ...

    def refused(self, operations: Sequence[SharedOperation], error: StoreError) -> None:
        """Operations of this node end so, though what is under way may come yet."""
        ...

    def landed(self, shard: int, frame: ApplyFrame, *, is_own: bool) -> None:
        """A frame that counts was carried out on the view."""
        ...

    def answered(self, shard: int, operations: Sequence[Operation]) -> None:
        """Reads, or checkpoints, of a view are complete; called from any thread."""
        ...

    def opened(self, number: int, /) -> None:
        """The view of a shard has all that was in the log when it was opened."""
        ...

    def health_changed(self) -> None:
        """Whether some shard takes writes."""
        ...

    async def restore(self, shard: int, after: int, /) -> bool:
        """Put the newest snapshot of a shard, past a sequence, in the place of its closed view.

        Returns whether there was one. Raises LogLost, StoreError.
        """
        ...

    def discard(self, shard: int, code: str, /) -> None:
        """Put a view aside, which is not open, so that another one is made; the code says why."""
        ...

    def note_loss(self, shard: int, error: StoreError, /) -> None:
        """Note with a view, which is not open, what the log has lost of it. Blocks."""
        ...

    def check_loss(self, shard: int, /) -> None:
        """See that nothing is lost of a view, or that somebody has deleted it. Blocks.

        Raises:
            StoreError: `store.lost`, as it was noted.
        """
        ...

    def make_view(self, shard: int, complete: Complete, on_health: OnHealth, /) -> View:
        """The view of a shard, not open yet."""
        ...
