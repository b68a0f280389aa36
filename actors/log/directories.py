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


def replace_file(file: Path, content: bytes) -> None:
    """Give a file its content, durably; a power cut leaves what it had before or all of this."""
    fresh = file.with_name(f"{file.name}.tmp")
    fresh.write_bytes(content)
    sync(fresh)
    fresh.replace(file)
    sync(file.parent)
