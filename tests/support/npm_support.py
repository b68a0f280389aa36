"""Packages from npm, installed once for all checkouts as a lock file has them.

A folder of scripts may have packages of its own in folders of it, and an .npmrc.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

INSTALL_SECONDS: Final = 300
_FILES: Final = (".npmrc", "package.json", "package-lock.json", "*/package.json", "*/*.js")
_OPTIONS: Final = ("--ignore-scripts", "--omit=optional", "--no-audit", "--no-fund")


def npm_packages(scripts: Path) -> Path:
    """The folder that scripts find their packages in; skips the test where it cannot be made.

    Only tests that need "node" ask for it.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    locked = b"".join(path.read_bytes() for path in _files(scripts))
    folder = base / "rillnode" / f"{scripts.name}-{hashlib.sha256(locked).hexdigest()[:12]}"
    try:
        _install(scripts, folder)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"npm cannot install the clients: {error.stderr.strip()[-500:]}")
    except (OSError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"npm cannot install the clients: {error}")
    return folder / "node_modules"


def _files(scripts: Path) -> list[Path]:
    """All that says what is installed."""
    return [path for name in _FILES for path in sorted(scripts.glob(name))]


def _install(scripts: Path, folder: Path) -> None:
    """Have npm put the packages into a folder; whole, or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of several test runs, one installs
        if folder.exists():
            return
        fresh = folder.with_suffix(".new")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        for path in _files(scripts):
            copied = fresh / path.relative_to(scripts)
            copied.parent.mkdir(exist_ok=True)
            shutil.copy(path, copied)
        subprocess.run(
            ("npm", "ci", *_OPTIONS),
            cwd=fresh,
            check=True,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
        )
        fresh.rename(folder)
