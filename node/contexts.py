"""Finds a node that nobody named: in the environment, in a saved context, or on this machine.

A context is a node's address and identity, and whose key to connect with, kept under a name for
one user of a machine: `rillnode context add` saves one, `context use` selects it.

    $XDG_CONFIG_HOME/rillnode/contexts.json   or ~/.config/rillnode/contexts.json
    $XDG_RUNTIME_DIR/rillnode/dev-<process>.json   or <temporary directory>/rillnode-<user id>/...

The second is written by `rillnode run --dev` for as long as the node runs. Its directory must be
this user's alone: another could else have programs talk to a node of his own.
"""

import os
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from rillnode.actors.log.directories import replace_file
from rillnode.codecs.errors import ConfigError
from rillnode.codecs.keys import Identity, parse_identities
from rillnode.node.keys.files import read_key

URL: Final = "RILLNODE_URL"
NODE_IDENTITY: Final = "RILLNODE_IDENTITY"
KEY: Final = "RILLNODE_KEY"
CONTEXT: Final = "RILLNODE_CONTEXT"

_BYTES_MAX: Final = 1_048_576
"""More than anybody's contexts."""


class Context(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node to talk to, and as whom.

    Attributes:
        url: `noise://host:port`.
        node_identity: the node's public key in hexadecimal, or several with commas between.
        key_file: the key to connect with; None: a new one each time, which is forgotten.
    """

    url: str
    node_identity: str
    key_file: str | None = None

    @property
    def identity(self) -> Identity | None:
        """The key in the file.

        Raises:
            ConfigError: it cannot be read.
        """
        return None if self.key_file is None else read_key(Path(self.key_file))


class Contexts(msgspec.Struct, kw_only=True):
    """The saved contexts by name, and the one that is used when nothing else is said."""

    current: str | None = None
    contexts: dict[str, Context] = {}


class DevNode(msgspec.Struct, frozen=True, kw_only=True):
    """The running node of `rillnode run --dev`."""

    url: str
    node_identity: str
    pid: int


@dataclass(frozen=True, slots=True)
class Found:
    """A context, and where it was found, for people."""

    context: Context
    origin: str


def find(environ: Mapping[str, str], *, name: str | None = None) -> Found | None:
    """The first of: a context by name, the environment, the selected context, a `--dev` node.

    Args:
        environ: where to look for `RILLNODE_URL` with `RILLNODE_IDENTITY` and `RILLNODE_KEY`, or
            `RILLNODE_CONTEXT`, and for the user's directories.
        name: a saved context; None: nobody has named one.

    Raises:
        ConfigError: `context.unknown`, none has that name; `context.environment`, one of the two
            variables is missing; `context.file`, what is saved cannot be read.
    """
    if name is not None:
        return Found(load_context(environ, name), f"context {name}")
    return named(environ) or selected(environ)


def named(environ: Mapping[str, str]) -> Found | None:
    """What the environment names; raises as `find`."""
    if name := environ.get(CONTEXT):
        return Found(load_context(environ, name), f"{CONTEXT}={name}")
    values = {variable: environ.get(variable) or None for variable in (URL, NODE_IDENTITY)}
    url, identity = values.values()
    if url and identity:
        _check_identities(identity)
        key = environ.get(KEY) or None
        return Found(Context(url=url, node_identity=identity, key_file=key), URL)
    for variable, value in values.items():
        if value is None and any(values.values()):
            other = next(name for name in values if name != variable)
            text = f"{variable} is not set, and has to be beside {other}"
            raise ConfigError("context.environment", text)
    return None


def _check_identities(text: str) -> None:
    try:
        parse_identities(text)
    except ConfigError as error:
        raise ConfigError("context.environment", f"{NODE_IDENTITY}: {error.text}") from None


def selected(environ: Mapping[str, str]) -> Found | None:
    """The selected context, or else the node of `rillnode run --dev`; raises as `find`."""
    saved = read_contexts(environ)
    if saved.current is not None:
        return Found(load_context(environ, saved.current), f"context {saved.current}")
    node = read_dev_node(environ)
    if node is None:
        return None
    context = Context(url=node.url, node_identity=node.node_identity)
    return Found(context, "the node of `rillnode run --dev`")


def load_context(environ: Mapping[str, str], name: str) -> Context:
    """A saved context.

    Raises:
        ConfigError: `context.unknown`, `context.file`.
    """
    saved = read_contexts(environ).contexts
    if name not in saved:
        known = ", ".join(sorted(saved)) or "there are none"
        raise ConfigError("context.unknown", f"no context {name!r}; saved ones: {known}")
    return saved[name]


def contexts_file(environ: Mapping[str, str]) -> Path:
    """Where contexts are saved."""
    base = environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "rillnode" / "contexts.json"


def read_contexts(environ: Mapping[str, str]) -> Contexts:
    """All that is saved.

    Raises:
        ConfigError: `context.file`, it cannot be read.
    """
    path = contexts_file(environ)
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(_BYTES_MAX), type=Contexts)
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        raise ConfigError("context.file", f"{path}: cannot be read: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise ConfigError("context.file", f"{path}: cannot be read: {error}") from None


def write_contexts(environ: Mapping[str, str], saved: Contexts) -> None:
    """Save all, whole or not at all.

    Raises:
        ConfigError: `context.unwritable`, it cannot be written.
    """
    path = contexts_file(environ)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        content = msgspec.json.format(msgspec.json.encode(saved), indent=2) + b"\n"
        replace_file(path, content, mode=0o600)
    except OSError as error:
        text = f"{path}: cannot be written: {error.strerror}"
        raise ConfigError("context.unwritable", text) from None


def dev_node_file(environ: Mapping[str, str], pid: int) -> Path:
    """Where a `--dev` node of a process says that it runs."""
    return _dev_directory(environ) / f"dev-{pid}.json"


def _dev_directory(environ: Mapping[str, str]) -> Path:
    if runtime := environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime) / "rillnode"
    return Path(tempfile.gettempdir()) / f"rillnode-{os.getuid()}"


def write_dev_node(environ: Mapping[str, str], node: DevNode) -> bool:
    """Say that a `--dev` node runs; False where there is no safe place to say so."""
    path = dev_node_file(environ, node.pid)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_ours(path.parent):
            return False
        replace_file(path, msgspec.json.encode(node), mode=0o600)
    except OSError:
        return False
    return True


def read_dev_node(environ: Mapping[str, str]) -> DevNode | None:
    """The `--dev` node that this user runs, if one does; of several, the one started last."""
    directory = _dev_directory(environ)
    try:
        if not _is_ours(directory):
            return None
        files = sorted(directory.glob("dev-*.json"), key=_changed_at, reverse=True)
    except OSError:
        return None
    return next(filter(None, map(_running, files)), None)


def _changed_at(file: Path) -> int:
    """When a file was written; one that its node has removed meanwhile comes last."""
    try:
        return file.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _running(file: Path) -> DevNode | None:
    """What a file says of a node, if that still runs; what a killed one has left is removed."""
    try:
        node = msgspec.json.decode(file.read_bytes(), type=DevNode)
        os.kill(node.pid, 0)
    except ProcessLookupError:
        file.unlink(missing_ok=True)
        return None
    except (OSError, msgspec.DecodeError, OverflowError):
        return None
    return node


def remove_dev_node(environ: Mapping[str, str]) -> None:
    """Take back what this process said."""
    dev_node_file(environ, os.getpid()).unlink(missing_ok=True)


def _is_ours(directory: Path) -> bool:
    info = directory.lstat()
    private = not stat.S_IMODE(info.st_mode) & 0o077
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.getuid() and private
