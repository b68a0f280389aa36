"""Directories whose names survive a power cut."""

import os
from pathlib import Path


def make_directory(path: Path) -> None:
    """Create a directory and its parents so that they survive a power cut; for its owner only."""
    if path.is_dir():
        return
    make_directory(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Return once all changes of names in a directory would survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
