"""Finds the files of tables and of Spark's checkpoints, and makes local ones survive a power cut.

Of a checkpoint, Spark writes `metadata` (the query's id, once), `offsets/N` (the positions that
batch N covers, before it runs) and `commits/N` (after it). It does not sync them. A power cut could
therefore take back what a synced table or a saved index already relies on: batch N would come
again, but with other positions, and be taken for the one that is in the table. So we sync these
files first.

Only local directories are synced, and locked; object stores keep what they confirmed.
"""

import fcntl
import json
import time
from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from pyarrow import fs

from rillnode.actors.log.directories import sync
from rillnode.codecs.errors import ConfigError, StoreError

_POLL_SECONDS: Final = 0.1


def local_path(location: str) -> Path | None:
    """The absolute local path that a path or `file:` URI names, or None for any other URI."""
    parts = urlsplit(location)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return None if parts.scheme else Path(location).absolute()


def absolute(location: str) -> str:
    """A location that means the same in every process: local paths absolute, URIs as they are.

    It is a plain text, which can be written down, whatever kind of text it was.
    """
    return str(local_path(location) or location)


def filesystem(table: str) -> tuple[fs.FileSystem, str]:
    """The file system that holds a table, made on demand, and the table's path in it."""
    local = local_path(table)
    if local is not None:
        return fs.LocalFileSystem(), str(local)
    return fs.FileSystem.from_uri(table)


def remove_files(table: str, names: Iterable[str]) -> None:
    """Remove files that no commit has added; those that are gone already are no error."""
    system, root = filesystem(table)
    for name in names:
        try:
            system.delete_file(f"{root}/{name}")
        except FileNotFoundError:
            continue


def sync_files(paths: Iterable[Path]) -> None:
    """Make files and their names durable: each file first, then each directory once."""
    files = list(paths)
    for path in files:
        sync(path)
    for directory in dict.fromkeys(path.parent for path in files):
        sync(directory)


@contextmanager
def locked(path: Path, *, seconds: float) -> Generator[None]:
    """Hold a lock file's lock; the system gives it back when the process ends, however it ends.

    Args:
        path: the lock file; it is made, with its directory, and stays.
        seconds: how long to wait for who holds it.

    Raises:
        StoreError: `file.locked`, another process holds it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        deadline = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise StoreError("file.locked", f"another process holds {path}") from None
                time.sleep(_POLL_SECONDS)
        yield


def locked_directory(location: str, name: str, *, seconds: float) -> AbstractContextManager[None]:
    """Hold a lock file in a directory, as `locked` does; an object store has no locks."""
    directory = local_path(location)
    return nullcontext() if directory is None else locked(directory / name, seconds=seconds)


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
