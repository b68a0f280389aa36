"""Checkpoints: a store as it was at one moment, beside itself, for backups and inspection.

Not every store can make one: one that can is a `Checkpointing`.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from rillnode.actors.log import Operation
from rillnode.actors.log.directories import make_directory
from rillnode.actors.log.rocks.tables import Tables, full_error, is_full
from rillnode.codecs.errors import StoreError


@dataclass(slots=True, eq=False)
class Checkpoint(Operation):
    """Copy the store, with all that was submitted before, to a directory that is not there yet.

    Writes wait meanwhile, for as long as the disk takes to write what is in memory; what is on
    disk already is linked. The directory is there whole, or not at all.

    Errors: `store.full`, `store.checkpoint` (it could not be made; the store goes on), and those of
    a write where what was submitted before could not be made durable.

    Attributes:
        path: the new directory, on the store's file system.
    """

    path: Path = field(default_factory=Path)


@runtime_checkable
class Checkpointing(Protocol):
    """A store that can copy itself while it is in use."""

    def checkpoint(self, operation: Checkpoint) -> None:
        """Queue a copy; it is completed through the store's `complete`."""
        ...


def make_checkpoint(tables: Tables, path: Path) -> None:
    """Carry out a Checkpoint, on the writer's thread.

    Raises:
        StoreError: the directory is there already, or the disk did not take it.
        Exception: what was written before could not be synced.
    """
    # Outside of what follows: when this fails, what else was written is lost, too.
    tables.sync()
    try:
        make_directory(path.parent)
        tables.checkpoint(path)
    except Exception as error:
        if is_full(str(error)):
            raise full_error(path.parent) from error
        text = f"no copy of the store could be made in {path}: {error}"
        raise StoreError("store.checkpoint", text, path=str(path)) from error
