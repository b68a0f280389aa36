"""Reads a Spark checkpoint directory, and makes it as durable as the table.

Spark writes `metadata` (the query's id, once), `offsets/N` (the positions that batch N covers,
before it runs) and `commits/N` (after it). It does not sync them. A power cut could therefore
take back what a synced table or a saved index already relies on: batch N would come again, but
with other positions, and be taken for the one that is in the table. So we sync these files first.

Only local directories are synced; object stores keep what they confirmed.
"""

import json
import os
from contextlib import AbstractContextManager
from typing import Any, Final

from pyarrow import fs

from rillnode.codecs.errors import ConfigError
from rillnode.node.spark.files import local_path, locked_directory, sync_files
from rillnode.node.spark.parquet import filesystem

_LOCK: Final = "job.lock"


def query_id(location: str) -> str:
    """The id of the query that the checkpoint belongs to; a new checkpoint has a new id.

    Raises:
        ConfigError: there is no readable checkpoint.
    """
    try:
        return str(json.loads(_read(location, "metadata"))["id"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            "spark.checkpoint", f"{location}/metadata does not hold a query's id: {error}"
        ) from error


def batch_offset(location: str, batch_id: int) -> dict[str, Any]:
    """Where a batch of a query with one source ends, as its source has planned.

    Layout of `offsets/N`: a version, what the engine notes, then one line of JSON per source.

    Raises:
        ConfigError: the checkpoint does not tell.
    """
    try:
        lines = _read(location, f"offsets/{batch_id}").splitlines()
        return dict(json.loads(lines[2]))
    except (OSError, ValueError, IndexError, TypeError) as error:
        raise ConfigError(
            "spark.checkpoint", f"{location}/offsets/{batch_id} does not hold an offset: {error}"
        ) from error


def sync_batch(location: str, batch_id: int) -> None:
    """Make durable which positions the batch covers, before its rows become durable."""
    local = local_path(location)
    if local is not None:
        sync_files([local / "metadata", local / "offsets" / str(batch_id)])


def sync_commits(location: str) -> None:
    """Make durable which batches are done, before the node may trim what they covered."""
    local = local_path(location)
    if local is not None:
        names = [name for name in os.listdir(local / "commits") if name.isdecimal()]
        if names:
            sync_files([local / "commits" / max(names, key=int)])


def forget(location: str) -> None:
    """Remove a checkpoint; the id that tells that it is to be removed goes last."""
    system, root = filesystem(location)
    for info in system.get_file_info(fs.FileSelector(root)):
        if info.type == fs.FileType.Directory:
            system.delete_dir(info.path)
        elif info.base_name not in (_LOCK, "metadata"):
            system.delete_file(info.path)
    system.delete_file(f"{root}/metadata")


def own_checkpoint(location: str, *, seconds: float) -> AbstractContextManager[None]:
    """Keep other jobs off a checkpoint; object stores have no locks.

    Args:
        location: the checkpoint's directory or URI.
        seconds: how long to wait for a job that is just ending.

    Raises:
        StoreError: `file.locked`, another job has it; raised on entering.
    """
    return locked_directory(location, _LOCK, seconds=seconds)


def _read(location: str, name: str) -> bytes:
    system, root = filesystem(location)
    with system.open_input_stream(f"{root}/{name}") as stream:
        return bytes(stream.read())
