"""The change of a key in two steps, with both known in between.

    identity.key        the key in use
    identity.key.next   the one to come, while peers and clients learn of it
    identity.key.old    the one before, kept until the next change

At every moment there is a key in use: a process that is killed has done a step or not.
"""

import os
from pathlib import Path
from typing import Final

from rillnode.actors.log.directories import sync
from rillnode.codecs.errors import ConfigError
from rillnode.codecs.keys import Identity
from rillnode.node.keys.files import read_key, read_or_make_key

_NEXT: Final = ".next"
_OLD: Final = ".old"


def next_path(file: Path) -> Path:
    """Where the key stands that comes after the one in a file."""
    return file.with_name(file.name + _NEXT)


def old_path(file: Path) -> Path:
    """Where the key stands that came before the one in a file."""
    return file.with_name(file.name + _OLD)


def begin_rotation(file: Path, seed: bytes) -> dict[str, str]:
    """Make the next key, of `seed`, unless it was made before; returns both identities.

    Raises:
        ConfigError: the key in use, or the next one, cannot be read or written.
    """
    current = read_key(file)
    following = read_or_make_key(next_path(file), seed)
    return {"identity": current.public_hex, "next_identity": following.public_hex}


def finish_rotation(file: Path) -> dict[str, str]:
    """Put the next key in place of the one in use; returns both identities.

    Raises:
        ConfigError: there is no next key, or a file cannot be written.
    """
    if not next_path(file).exists():
        text = f"{next_path(file)}: there is no next key; `rillnode key rotate {file}` makes it"
        raise ConfigError("key.rotation", text, file=str(file))
    current, following = read_key(file), read_key(next_path(file))
    try:
        # A second name for the key in use, so that its own is never without one.
        spare = file.with_name(f"{file.name}.{os.getpid()}")
        os.link(file, spare)
        spare.replace(old_path(file))
        next_path(file).replace(file)
        sync(file.absolute().parent)
    except OSError as error:
        raise ConfigError("key.file", f"{file}: cannot be replaced: {error.strerror}") from None
    return {"identity": following.public_hex, "old_identity": current.public_hex}


def rotation_identities(file: Path) -> list[str]:
    """The identities under which the node of a key file may be met: in use, next, and before.

    A node that was not restarted since the last step still has the one before.

    Raises:
        ConfigError: the key in use cannot be read.
    """
    found: list[Identity] = [read_key(file)]
    found += [read_key(path) for path in (next_path(file), old_path(file)) if path.exists()]
    return [identity.public_hex for identity in found]
