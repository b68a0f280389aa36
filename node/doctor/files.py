"""The data directory: room, the time of a sync, and who may read keys."""

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rillnode.codecs.errors import ConfigError
from rillnode.node.config import Config
from rillnode.node.doctor.finding import Finding, State
from rillnode.node.keys.files import read_key

_ROOM_BYTES_MIN: Final = 268_435_456
"""The store's log, which is replayed and rewritten at a start."""

_ROOM_BYTES_GOOD: Final = 5_368_709_120

_SYNCS: Final = 30
_SYNC_BYTES: Final = 4_096
_SYNC_SECONDS_GOOD: Final = 0.010
"""An SSD needs 0.1 to 2 ms, a hard disk about 10."""

_GIBIBYTE: Final = 1_073_741_824


def room(config: Config) -> Iterator[Finding]:
    """How much the disk of the data directory has left."""
    directory = _existing(config.data_dir)
    free = shutil.disk_usage(directory).free
    text = f"{free / _GIBIBYTE:,.1f} GiB free for {config.data_dir}"
    state: State = "ok"
    if free < _ROOM_BYTES_GOOD:
        state = "warn" if free >= _ROOM_BYTES_MIN else "fail"
    advice = "" if state == "ok" else "make room, set [[stream]] retention, or move data_dir"
    yield Finding("room", state, text, advice)


def sync_time(config: Config) -> Iterator[Finding]:
    """How long a confirm has to wait for the disk."""
    directory = _existing(config.data_dir)
    try:
        seconds = _sync_seconds(directory)
    except OSError as error:
        text = f"{directory} cannot be written: {error.strerror}"
        advice = "run as the user that owns it, or choose another data_dir"
        yield Finding("disk sync", "fail", text, advice)
        return
    middle, longest = statistics.median(seconds), max(seconds)
    text = f"{1_000 * middle:.2f} ms, at most {1_000 * longest:.2f} ms in {_SYNCS}"
    if middle <= _SYNC_SECONDS_GOOD:
        yield Finding("disk sync", "ok", text)
        return
    advice = "put data_dir on an SSD; many clients share a sync, a single one waits for each"
    yield Finding("disk sync", "warn", text, advice)


def keys(config: Config) -> Iterator[Finding]:
    """Whether every key is there, is one, and nobody else may read it."""
    yield _key("identity key", config.key_file, "the node makes it at its first start")
    yield _key("admin key", config.admin_key_file, "`rillnode key new` and a [[grant]]")
    for table in config.tables:
        for check, path in table.key_files(config).items():
            yield _key(check, path, "the node makes it")
    if os.path.isdir(config.data_dir) and config.data_dir.stat().st_mode & 0o022:
        text = f"{config.data_dir} may be written by others"
        yield Finding("data directory", "fail", text, f"`chmod go-w {config.data_dir}`")


def _key(check: str, path: Path, maker: str) -> Finding:
    try:
        path.stat()
    except FileNotFoundError:
        return Finding(check, "warn", f"{path} is not there yet", maker)
    except OSError as error:
        text = f"{path} cannot be looked at: {error.strerror}"
        return Finding(check, "fail", text, "look as the user that the node runs as")
    try:
        read_key(path)
    except ConfigError as error:
        return Finding(
            check, "fail", error.text, f"`rillnode key show {path}` tells when it is right"
        )
    return Finding(check, "ok", str(path))


def _existing(path: Path) -> Path:
    """The nearest directory above that is there: the node makes the rest."""
    # Not `is_dir` of the path, which fails where this user may not look.
    return path if os.path.isdir(path) else _existing(path.parent)


def _sync_seconds(directory: Path) -> list[float]:
    seconds: list[float] = []
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(_SYNCS):
            os.write(file.fileno(), bytes(_SYNC_BYTES))
            begun = time.perf_counter()
            os.fsync(file.fileno())
            seconds.append(time.perf_counter() - begun)
    return seconds
