"""Finds the files of tables, and makes local ones survive a power cut.

Only local directories are synced, and locked; object stores keep what they confirmed.
"""

import fcntl
import time
from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from pyarrow import fs

from rillnode.actors.log.directories import sync
from rillnode.codecs.errors import StoreError

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


def remove_begun(table: str, name: str) -> None:
    """Remove files that no commit has added, by what their names begin with, as far as it can."""
    with suppress(OSError):
        system, root = filesystem(table)
        found = system.get_file_info(fs.FileSelector(root, allow_not_found=True))
        remove_files(table, [one.base_name for one in found if one.base_name.startswith(name)])


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


def own_checkpoint(location: str, *, seconds: float) -> AbstractContextManager[None]:
    """Keep other jobs off a checkpoint; object stores have no locks.

    Args:
        location: the checkpoint's directory or URI.
        seconds: how long to wait for a job that is just ending.

    Raises:
        StoreError: `file.locked`, another job has it; raised on entering.
    """
    return locked_directory(location, _LOCK, seconds=seconds)
