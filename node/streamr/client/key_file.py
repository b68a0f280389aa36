"""Group keys in a file, so that they outlive the process.

One JSON object a line: publisher, stream, id, key (64 hexadecimal digits), and `reset` where the
key replaces those before it. Lines are only ever added. Whoever reads the file can read the
streams: its mode is 0600.
"""

import os
import stat
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from rillnode.codecs.errors import CodecError, ConfigError
from rillnode.codecs.streamr.encryption import GroupKey, from_hex


class _Line(Struct, omit_defaults=True):
    publisher: str
    stream: str
    id: str
    key: str
    reset: bool = False


class KeptKey(NamedTuple):
    """A key of the file.

    Attributes:
        is_reset: the keys of the stream before it are given to nobody any more.
    """

    publisher: str
    stream_id: str
    key: GroupKey
    is_reset: bool = False


class GroupKeyFile:
    """Reads and adds to one file; it is made when the first key is added."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> list[KeptKey]:
        """All keys, in the order they were added.

        Raises:
            ConfigError: the file cannot be read, others may read it, or a line is no key; the
                text names file and line, and repeats nothing of it.
        """
        try:
            with self._path.open("rb") as file:
                mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
                lines = file.read().splitlines()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _error("key.file", self._path, f"cannot be read: {error.strerror}") from None
        if mode & 0o077:
            text = f"others may read these keys (mode {mode:04o}); run `chmod 600 {self._path}`"
            raise _error("key.mode", self._path, text)
        found: list[KeptKey] = []
        for number, line_text in enumerate(lines, 1):
            try:
                line = msgspec.json.decode(line_text, type=_Line)
                key = GroupKey(line.id, from_hex(line.key))
            except (msgspec.DecodeError, UnicodeError, CodecError):
                # A crash may have cut the last one off; `add` removes what is left of it.
                if number == len(lines):
                    break
                raise _error("key.line", self._path, f"line {number} is no group key") from None
            found.append(KeptKey(line.publisher, line.stream, key, line.reset))
        return found

    def add(self, publisher: str, stream_id: str, *keys: GroupKey, is_reset: bool = False) -> None:
        """Add keys, durably; see `KeptKey` for `is_reset`.

        Raises:
            ConfigError: the file cannot be written.
        """
        lines = b"".join(
            msgspec.json.encode(_Line(publisher, stream_id, key.id, key.secret.hex(), is_reset))
            + b"\n"
            for key in keys
        )
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(descriptor, "r+b", buffering=0) as file:
                written = file.read()
                os.ftruncate(descriptor, written.rfind(b"\n") + 1)
                file.write(lines)
                os.fsync(descriptor)
        except OSError as error:
            raise _error("key.file", self._path, f"cannot be written: {error.strerror}") from None


def _error(code: str, path: Path, text: str) -> ConfigError:
    return ConfigError(code, f"{path}: {text}", file=str(path))
