"""Group keys in a file, so that they outlive the process.

The codec `key_lines` tells what a line is; here all have a publisher and a stream. Lines are only
ever added. Whoever reads the file can read the streams: its mode is 0600.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from rillnode.actors.log.directories import sync
from rillnode.codecs.errors import ConfigError
from rillnode.codecs.streamr.encryption import GroupKey
from rillnode.codecs.streamr.key_lines import KeyLine, read_lines, write_line
from rillnode.node.keys.files import read_private

_BYTES_MAX: Final = 1_073_741_824
"""Some millions of keys, of which the newest are kept in memory."""


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
        with suppress(OSError):  # who reads it tells what else there is
            if not self._path.exists():
                return []
        text = read_private(self._path, _BYTES_MAX)
        try:
            lines = list(read_lines(text))
        except ConfigError as error:
            raise _error(error.code, self._path, error.text) from None
        return [KeptKey(line.publisher, line.stream, key, line.reset) for line, key in lines]

    def add(self, publisher: str, stream_id: str, *keys: GroupKey, is_reset: bool = False) -> None:
        """Add keys, durably; see `KeptKey` for `is_reset`.

        Raises:
            ConfigError: the file cannot be written.
        """
        lines = b"".join(
            write_line(
                KeyLine(
                    publisher=publisher,
                    stream=stream_id,
                    id=key.id,
                    key=key.secret.hex(),
                    reset=is_reset,
                )
            )
            for key in keys
        )
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(descriptor, "r+b", buffering=0) as file:
                written = file.read()
                os.ftruncate(descriptor, written.rfind(b"\n") + 1)
                file.write(lines)
                os.fsync(descriptor)
            if not written:  # its name is new, too
                sync(self._path.parent)
        except OSError as error:
            raise _error("key.file", self._path, f"cannot be written: {error.strerror}") from None


def _error(code: str, path: Path, text: str) -> ConfigError:
    return ConfigError(code, f"{path}: {text}", file=str(path))
