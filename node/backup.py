"""Backups: a node's store and keys as files with checksums, made and restored whole or not at all.

    backup.json      when and by what it was made, every file with its size and SHA-256
    node.toml        the configuration, where there was one
    data/*.key       the node's keys: whoever holds a backup holds them
    data/store/      the store's files

Everything is written beside the place that it is meant for, checked, and then renamed: a process
that is killed leaves an older `.partial` directory, which the next attempt removes, and nothing
under the name asked for.
"""

import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final

import msgspec

from rillnode.actors.log.directories import make_directory, sync
from rillnode.codecs.errors import RillnodeError

BACKUP_VERSION: Final = 1
MANIFEST: Final = "backup.json"
STORE: Final = PurePosixPath("data/store")

_MANIFEST_BYTES_MAX: Final = 67_108_864
"""Of a store of some 500,000 files; a store of 1 TB has 8,000."""

_CHUNK_BYTES: Final = 1_048_576

_UNNEEDED: Final = ("LOCK", "LOG", "LOG.old.*", "*.dbtmp", "*.tmp")
"""RocksDB's files that say nothing of what is stored."""

OnBytes = Callable[[int], None]
"""Told how many bytes more were copied or read."""


class BackupError(RillnodeError):
    """A backup could not be made, is harmed, or may not be restored there."""


class StoredFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file of a backup: its path below the backup, with slashes."""

    path: str
    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The content of `backup.json`.

    Attributes:
        made_at: seconds since 1970.
        software: version of rillnode that made it.
        store_format: version of the store's layout.
        identity: of the node, hex.
    """

    version: int
    made_at: int
    software: str
    store_format: int
    name: str
    identity: str
    files: tuple[StoredFile, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a backup, by their path in it."""

    store: Path
    keys: tuple[Path, ...]
    config: Path | None

    def files(self) -> dict[str, Path]:
        """Every file, by its path in the backup."""
        stored = (path for path in sorted(self.store.iterdir()) if _is_needed(path))
        found = {f"{STORE}/{path.name}": path for path in stored}
        found |= {f"{STORE.parent}/{path.name}": path for path in self.keys}
        return found if self.config is None else {**found, "node.toml": self.config}


def source_bytes(source: Source) -> int:
    """How many bytes a backup will copy."""
    return sum(path.stat().st_size for path in source.files().values())


def make_backup(
    source: Source, target: Path, about: Manifest, on_bytes: OnBytes = lambda size: None
) -> Manifest:
    """Copy a store that does not change meanwhile, and read the copy back.

    Args:
        source: what to copy.
        target: a directory that is not there yet, or empty; no mount point.
        about: everything but the files.
        on_bytes: told of the progress, twice for each byte: copied, read back.

    Raises:
        BackupError: there is something at the target, or it cannot be put there, or a file cannot
            be read or written.
    """
    try:
        with _begun(target) as partial:
            files: list[StoredFile] = []
            for path, original in source.files().items():
                # The node's own files may be links; those of a backup are not.
                copied = _copy(original.resolve(), partial / path, on_bytes)
                files.append(StoredFile(path, *copied))
            manifest = msgspec.structs.replace(about, files=tuple(files))
            _check_files(partial, manifest, on_bytes)
            _write(partial / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)))
    except OSError as error:
        raise _failed(target, error) from error
    return manifest


def read_manifest(backup: Path) -> Manifest:
    """Read what a backup says of itself.

    Raises:
        BackupError: there is no backup, it is harmed or of a newer version.
    """
    path = backup / MANIFEST
    try:
        with path.open("rb") as file:
            content = file.read(_MANIFEST_BYTES_MAX + 1)
    except OSError as error:
        text = f"{backup} is no backup: {path.name} cannot be read: {error.strerror}"
        raise BackupError("backup.none", text) from None
    try:
        version = msgspec.json.decode(content, type=_Versioned).version
        if version > BACKUP_VERSION:
            text = f"{path} has version {version}, this rillnode reads up to {BACKUP_VERSION}"
            raise BackupError("backup.version", text)
        manifest = msgspec.json.decode(content, type=Manifest)
    except msgspec.MsgspecError as error:
        raise BackupError("backup.harmed", f"{path} is harmed: {error}") from None
    for stored in manifest.files:
        if not _is_inside(stored.path):
            raise BackupError("backup.harmed", f"{path} names a file outside: {stored.path!r}")
    return manifest


def check_backup(backup: Path, on_bytes: OnBytes = lambda size: None) -> Manifest:
    """Read every file of a backup and compare it with its checksum.

    Raises:
        BackupError: it is harmed; the text names the first file that differs.
    """
    manifest = read_manifest(backup)
    try:
        _check_files(backup, manifest, on_bytes)
    except OSError as error:
        raise BackupError("backup.harmed", f"{backup} is harmed: {error}") from error
    return manifest


def restore_backup(backup: Path, home: Path, on_bytes: OnBytes = lambda size: None) -> Manifest:
    """Write a backup's files into a new directory, each checked while it is copied.

    Args:
        backup: what `make_backup` has made.
        home: a directory that is not there yet, or empty and no mount point; it gets
            `node.toml` and `data`.
        on_bytes: told of the progress.

    Raises:
        BackupError: there is something at `home`, or it cannot be put there, or the backup is
            harmed: then nothing is there.
    """
    manifest = read_manifest(backup)
    refuse_inside(home, backup, "the backup")
    try:
        with _begun(home) as partial:
            for stored in manifest.files:
                copied = _copy(backup / stored.path, partial / stored.path, on_bytes)
                _compare(stored, copied, backup)
    except OSError as error:
        raise _failed(home, error) from error
    return manifest


def refuse_inside(target: Path, directory: Path, what: str) -> None:
    """Keep a directory as it is.

    Raises:
        BackupError: the target lies in it, or is it.
    """
    if Path(os.path.realpath(target)).is_relative_to(os.path.realpath(directory)):
        text = f"{target} lies in {what}, which stays as it is: name a directory elsewhere"
        raise BackupError("backup.occupied", text)


def remove_abandoned_copies(directory: Path) -> None:
    """Remove the copies of a store whose command was killed: nobody holds a lock on them.

    Args:
        directory: where a node makes copies of its store.
    """
    for copy in directory.glob("*") if directory.is_dir() else ():
        try:
            descriptor = os.open(copy, os.O_RDONLY)
        except FileNotFoundError:
            # Its command was at its end.
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        else:
            shutil.rmtree(copy, ignore_errors=True)
        finally:
            os.close(descriptor)


class _Versioned(msgspec.Struct):
    version: int


# Files ---------------------------------------------------------------------------------------


@contextmanager
def _begun(named: Path) -> Generator[Path]:
    """An empty directory that has the name at the end of the block, durably; if it fails, none.

    An empty directory there is replaced, and so is one that a link leads to. What an earlier
    attempt that was killed left beside it is removed.

    Raises:
        BackupError: there is something, or nothing can take the place of the directory there.
    """
    _refuse_occupied(named)
    target = Path(os.path.realpath(named))
    partial = target.with_name(f".{target.name}.partial")
    if partial.exists():
        shutil.rmtree(partial)
    make_directory(partial.parent)
    if target.exists():
        _move_away(target, partial)
    partial.mkdir(mode=0o700)
    try:
        yield partial
        for directory, _, _ in os.walk(partial):
            sync(Path(directory))
        partial.replace(target)
    except BaseException:  # it may be large, where there was no room, and has secret keys
        shutil.rmtree(partial, ignore_errors=True)
        raise
    sync(target.parent)


def _copy(original: Path, copy: Path, on_bytes: OnBytes) -> tuple[int, str]:
    """Copy a file durably; returns its size and checksum as they were read."""
    copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # In a backup from elsewhere, a link could lead anywhere.
    source = os.open(original, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(source, "rb") as reader:
        target = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(target, "wb") as writer:
            found = _digest(reader, on_bytes, writer)
            writer.flush()
            os.fsync(target)
    return found


def _write(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)


def _digest(reader: BinaryIO, on_bytes: OnBytes, writer: BinaryIO | None = None) -> tuple[int, str]:
    size, digest = 0, hashlib.sha256()
    while chunk := reader.read(_CHUNK_BYTES):
        digest.update(chunk)
        size += len(chunk)
        if writer is not None:
            writer.write(chunk)
        on_bytes(len(chunk))
    return size, digest.hexdigest()


def _check_files(backup: Path, manifest: Manifest, on_bytes: OnBytes) -> None:
    for stored in manifest.files:
        with (backup / stored.path).open("rb") as file:
            _compare(stored, _digest(file, on_bytes), backup)


def _compare(stored: StoredFile, found: tuple[int, str], backup: Path) -> None:
    if found != (stored.size, stored.sha256):
        text = f"{backup} is harmed: {stored.path} is not what was written; use another backup"
        raise BackupError("backup.harmed", text)


def _is_needed(path: Path) -> bool:
    return path.is_file() and not any(path.match(pattern) for pattern in _UNNEEDED)


def _is_inside(path: str) -> bool:
    return "\0" not in path and not {"", ".", ".."}.intersection(path.split("/"))


def _refuse_occupied(target: Path) -> None:
    try:
        occupied = any(target.iterdir())
    except FileNotFoundError:
        return
    except OSError:
        occupied = True
    if occupied:
        text = f"{target} is not empty, and nothing is ever overwritten: name a new directory"
        raise BackupError("backup.occupied", text)


def _move_away(empty: Path, aside: Path) -> None:
    """Find out, before there is anything to lose, whether an empty directory can be replaced."""
    try:
        empty.rename(aside)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        text = f"{empty} is a mount point, which nothing can replace: name a new directory in it"
        raise BackupError("backup.occupied", text) from None
    aside.rename(empty)


def _failed(target: Path, error: OSError) -> BackupError:
    reason = error.strerror or error
    return BackupError("backup.failed", f"{target} could not be written: {reason}")
