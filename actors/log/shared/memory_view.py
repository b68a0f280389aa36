"""The view of a shard in memory, for tests and simulations; see `rocks_view`."""

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rillnode.actors.log import (
    Checkpoint,
    Complete,
    GetRecord,
    LoadIndex,
    OnHealth,
    Operation,
    SavedIndexKey,
)
from rillnode.actors.log.memory import Faults, MemoryLogStore, Post
from rillnode.actors.log.memory_tables import MemoryTables
from rillnode.actors.log.shared.applying import (
    PROGRESS_KEY,
    Applier,
    ApplyFrame,
    Progress,
    check_empty,
)
from rillnode.actors.log.shared.frames import BeginLog, PutListing, SharedOperation
from rillnode.actors.ports import Clock

_DUMP: Final = "dump"


class ViewTables(MemoryTables):
    """Tables that frames are carried out on.

    Attributes:
        applier: what carries them out.
    """

    def __init__(self, shard: int, shards: int) -> None:
        super().__init__(first_id=shard or shards, id_step=shards)
        self._place = (shard, shards)
        self._rows: dict[bytes, bytes] = {}
        self.applier = Applier(self, shard, shards)

    def apply(self, operation: Operation) -> None:
        """Carry out a frame, or make a checkpoint."""
        match operation:
            case ApplyFrame():
                self.applier.apply(operation)
                self._rows[PROGRESS_KEY] = self.applier.progress.encode()
            case Checkpoint(path=path):
                path.mkdir(parents=True)
                state = {name: value for name, value in vars(self).items() if name != "applier"}
                (path / _DUMP).write_bytes(pickle.dumps(state))
            case _:
                raise TypeError(f"{operation!r} is no frame")

    def take_up(self, path: Path) -> None:
        """Begin with what a checkpoint has left in a directory, if one has."""
        dump = path / _DUMP
        if dump.exists():
            vars(self).update(pickle.loads(dump.read_bytes()))
            self.applier = Applier(self, *self._place)

    def row(self, key: bytes) -> bytes | None:
        """A row beside the tables of a store."""
        return self._rows.get(key)

    def put_row(self, key: bytes, value: bytes | None) -> None:
        """Change one, or remove it."""
        if value is None:
            self._rows.pop(key, None)
        else:
            self._rows[key] = value

    def rows(self, prefix: bytes) -> Sequence[tuple[bytes, bytes]]:
        """All rows whose keys begin so."""
        return [(key, row) for key, row in self._rows.items() if key.startswith(prefix)]

    def log_end(self, log: int) -> int:
        """The index after a log's last entry."""
        return self.end_of(log)

    def saved_index(self, key: SavedIndexKey) -> int | None:
        """A position that is saved."""
        load = LoadIndex(key=key)
        self.answer(load)
        return load.index

    def value(self, name: str) -> bytes | None:
        """A named value."""
        get = GetRecord(key=name)
        self.answer(get)
        return get.value

    def carry_out(self, operation: SharedOperation) -> None:
        """Carry an operation out as a store of one node does, or change the catalogue."""
        if isinstance(operation, PutListing):
            was = self.put_listed(operation.name, operation.record)
            operation.was = was if operation.record is None else None
        elif isinstance(operation, BeginLog):
            state = self.state_of(operation.log)
            check_empty(operation, state)
            state.first_index = state.next_index = operation.index
            state.first_position = state.next_position = operation.position
        else:
            super().apply(operation)

    def settled(self) -> None:
        """All is written already."""


class MemoryView(MemoryLogStore):
    """A LogStore in memory that takes frames, and says how far it is.

    What it holds is gone with it, but for what a checkpoint has left in its directory.

    Attributes:
        tables: what frames are carried out on.
    """

    def __init__(
        self,
        path: Path,
        shard: int,
        shards: int,
        *,
        complete: Complete,
        on_health: OnHealth,
        post: Post | None = None,
        clock: Clock | None = None,
        faults: Faults | None = None,
    ) -> None:
        tables = self.tables = ViewTables(shard, shards)
        super().__init__(
            complete=complete,
            on_health=on_health,
            post=post,
            clock=clock,
            faults=faults,
            tables=tables,
        )
        self._path = path

    @property
    def progress(self) -> Progress:
        """How far it is."""
        return self.tables.applier.progress

    def open(self) -> None:
        """Take operations, on what a checkpoint has left."""
        self.tables.take_up(self._path)
        super().open()

    def apply(self, frame: ApplyFrame) -> None:
        """Queue a frame."""
        self._take(frame)

    def checkpoint(self, operation: Checkpoint) -> None:
        """Queue a copy."""
        self._take(operation)

    def _take_writes(self) -> None:
        # Nothing of a failed group has survived, for its frames are given to the view again.
        self._survivors.clear()
        super()._take_writes()
