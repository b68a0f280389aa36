"""Directories and files that survive a power cut."""

import os
from pathlib import Path


def make_directory(path: Path) -> None:
    """Create a directory and its parents so that they survive a power cut; for its owner only."""
    if path.is_dir():
        return
    make_directory(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    sync(path.parent)


def sync(path: Path) -> None:
    """Return once a file's data, or the names in a directory, would survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(file: Path, content: bytes, *, mode: int = 0o666) -> None:
    """Give a file its content, durably; a power cut leaves what it had before or all of this.

    Args:
        file: need not be there yet; its directory must.
        content: all of it.
        mode: who may read it from its first moment on, less what the umask takes away.

    Raises:
        OSError: it has what it had before.
    """
    fresh = file.with_name(f"{file.name}.{os.getpid()}.tmp")
    fresh.unlink(missing_ok=True)
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as writer:
            writer.write(content)
            writer.flush()
            os.fsync(descriptor)
        fresh.replace(file)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    sync(file.parent)
