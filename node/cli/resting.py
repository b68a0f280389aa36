"""Opens a consistent snapshot of a store for offline tools, whether the node runs or not.

A node that does not run cannot start meanwhile, as its store is locked. One that runs is asked for
a copy of its store, which is removed afterwards.
"""

import argparse
import errno
import fcntl
import os
import shutil
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rillnode.codecs.errors import ConfigError
from rillnode.node.cli.connection import (
    CONFIG_FILE,
    add_connection_options,
    connected,
    refuse_another,
)
from rillnode.node.cli.parsing import Parser
from rillnode.node.cli.terminal import Terminal

if TYPE_CHECKING:
    from rillnode.node.config import Config


def add_resting_options(parser: Parser) -> None:
    """Let a verb take the options that name a node on this machine."""
    add_connection_options(parser)
    parser.add_argument(
        "--data-dir", type=Path, metavar="DIR",
        help="the node's data directory, if not the configured one",
    )  # fmt: skip


def configured(args: argparse.Namespace, terminal: Terminal) -> "tuple[Config, Path]":
    """The configuration of the node, and the file that it is in.

    Raises:
        ConfigError: there is none.
    """
    from rillnode.node.config import load_config

    file: Path = args.config or CONFIG_FILE
    if args.config is None and not file.is_file():
        text = "there is no node.toml here, and no -c FILE was given"
        raise ConfigError("config.none", text)
    overrides = [] if args.data_dir is None else [f"data_dir={args.data_dir.absolute()}"]
    return load_config(file, overrides, terminal.environ), file


@asynccontextmanager
async def resting_store(
    args: argparse.Namespace, terminal: Terminal, config: "Config"
) -> AsyncGenerator[Path]:
    """The directory of a store that does not change within the block.

    Raises:
        BackupError: there is no store, or the node runs on another machine.
        ConfigError: the options name another node than the configuration.
        RillnodeError: a running node could not be asked.
    """
    from rillnode.node.backup import BackupError, remove_abandoned_copies
    from rillnode.node.config import SharedStore

    refuse_another(args, terminal, config)
    store = config.store_dir
    if isinstance(config.store, SharedStore):
        text = (
            f"the store is not on this machine: {config.store.backed_up_by} copies it where it is"
        )
        raise BackupError("backup.unsupported", text)
    if not (store / "CURRENT").is_file():
        raise BackupError("backup.nothing", f"{store}: there is no store yet")
    with _locked(store) as idle:
        if idle:
            if args.node and args.config is None:
                text = f"{args.node} is another node than that of {store}, which does not run"
                raise ConfigError("config.another", text)
            yield store
            return
    remove_abandoned_copies(config.checkpoints_dir)
    async with connected(args, terminal, reconnect=False) as client:
        copy = Path(await client.checkpoint())
    try:
        with _in_use(copy):
            yield copy
    finally:
        shutil.rmtree(copy, ignore_errors=True)


@contextmanager
def _locked(store: Path) -> Generator[bool]:
    """Hold RocksDB's own lock on a store; False where a node holds it."""
    from rillnode.node.backup import BackupError

    try:
        descriptor = os.open(store / "LOCK", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        text = f"{store} cannot be locked: {error.strerror}: run as the user that the node runs as"
        raise BackupError("backup.failed", text) from None
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if error.errno not in (errno.EACCES, errno.EAGAIN):
            raise
        yield False
        return
    try:
        yield True
    finally:
        os.close(descriptor)


@contextmanager
def _in_use(copy: Path) -> Generator[None]:
    """Keep other commands from taking a copy for an abandoned one."""
    from rillnode.node.backup import BackupError

    try:
        descriptor = os.open(copy, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        text = f"the node made its copy in {copy}, which is not here: run this on its machine"
        raise BackupError("backup.elsewhere", text) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)
