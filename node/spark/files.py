"""Local files that must survive a power cut, or that one process at a time may use."""

import fcntl
import time
from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

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
