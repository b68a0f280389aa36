"""Key files: 64 hexadecimal digits, readable by their owner only.

An identity's file holds an Ed25519 seed, a secure channel's an X25519 secret.
"""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from rillnode.actors.log.directories import make_directory, sync
from rillnode.codecs.channel_key import ChannelKey
from rillnode.codecs.errors import ConfigError
from rillnode.codecs.keys import Identity

Key = TypeVar("Key")

_FILE_BYTES_MAX: Final = 256
"""More than any key file; a wrong path is not read into memory whole."""


def read_key(path: Path) -> Identity:
    """Read the identity in a key file.

    Raises:
        ConfigError: no such file, not a key, or others may read it; the text names the file and
            what to do, and never repeats what is in it.
    """
    return read_secret(path, Identity.from_hex, "rillnode key new")


def read_channel_key(path: Path) -> ChannelKey:
    """Read the key in a secure channel's key file; raises as `read_key`."""
    return read_secret(path, ChannelKey.from_hex, "rillnode key new --channel")


def write_key(path: Path, key: Identity | ChannelKey) -> None:
    """Write a new key file; see `write_secret`."""
    write_secret(path, key.seed_hex if isinstance(key, Identity) else key.private_hex)


def write_secret(path: Path, secret: str) -> None:
    """Write a new key file, durably, with mode 0600 from its first moment.

    Missing directories are made with mode 0700.

    Raises:
        ConfigError: the file exists (it is never overwritten), or cannot be written.
    """
    try:
        make_directory(path.parent)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(secret + "\n")
                file.flush()
                os.fsync(descriptor)
        except OSError:
            path.unlink(missing_ok=True)  # it would stand for a key, and in the way of the next try
            raise
        sync(path.parent)
    except FileExistsError as error:
        if error.filename != str(path):
            text = f"cannot be written: {error.filename} is a file, not a directory"
            raise _error("key.unwritable", path, text) from None
        text = "exists; a key is never overwritten: choose another name or remove it yourself"
        raise _error("key.exists", path, text) from None
    except OSError as error:
        raise _error("key.unwritable", path, f"cannot be written: {error.strerror}") from None


def read_or_make_key(path: Path, seed: bytes) -> Identity:
    """Read a key file, or write one with the identity of `seed` where there is none.

    Raises:
        ConfigError: as `read_key` and `write_key`.
    """
    if _may_be_there(path):
        return read_key(path)
    identity = Identity.from_seed(seed)
    write_key(path, identity)
    return identity


def read_or_make_channel_key(path: Path, secret: bytes) -> ChannelKey:
    """Read a secure channel's key file, or write one with `secret` where there is none.

    Raises:
        ConfigError: as `read_key` and `write_key`.
    """
    if _may_be_there(path):
        return read_channel_key(path)
    key = ChannelKey(secret)
    write_key(path, key)
    return key


def read_secret(path: Path, parse: Callable[[str], Key], maker: str) -> Key:
    """Read a key file of any kind; raises as `read_key`.

    Args:
        path: the file.
        parse: makes the key of its text.
        maker: what makes such a file, for who misses it.
    """
    content, mode = _read(path, _FILE_BYTES_MAX, f"; `{maker} {path}` makes one")
    try:
        key = parse(content.decode("ascii", "replace"))
    except ConfigError as error:
        raise _error(error.code, path, f"no key file: {error.text}") from None
    _check_mode(path, mode)
    return key


def read_private(path: Path, bytes_max: int) -> bytes:
    """Read a file of secrets in whatever form, which only its owner may read.

    Args:
        path: the file.
        bytes_max: more than such a file has; one that is longer is not read.

    Raises:
        ConfigError: no such file, it is too long, or others may read it; the text names the file
            and what to do.
    """
    content, mode = _read(path, bytes_max + 1)
    _check_mode(path, mode)
    if len(content) > bytes_max:
        raise _error("key.size", path, f"a file of keys has at most {bytes_max:,} bytes")
    return content


def _may_be_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # its directory lets nobody look; who reads the file is told so
        return True


def _read(path: Path, size: int, remedy: str = "") -> tuple[bytes, int]:
    """The first bytes of a file, and its mode."""
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            return file.read(size), mode
    except FileNotFoundError:
        raise _error("key.file", path, f"no such key file{remedy}") from None
    except OSError as error:
        raise _error("key.file", path, f"cannot be read: {error.strerror}") from None


def _check_mode(path: Path, mode: int) -> None:
    if mode & 0o077:
        text = f"others may read this file (mode {mode:04o}); run `chmod 600 {path}`"
        raise _error("key.mode", path, text)


def _error(code: str, path: Path, text: str) -> ConfigError:
    return ConfigError(code, f"{path}: {text}", file=str(path))
