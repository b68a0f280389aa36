"""`rillnode backup`: a node's store and keys into a directory, while it runs or not."""

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rillnode import __version__
from rillnode.node.cli.interrupting import interrupted_at_once
from rillnode.node.cli.parsing import Commands, add_verb
from rillnode.node.cli.progress import progress
from rillnode.node.cli.resting import add_resting_options, configured, resting_store
from rillnode.node.cli.terminal import Terminal

if TYPE_CHECKING:
    from rillnode.node.backup import Manifest
    from rillnode.node.config import Config


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_verb(
        commands, "backup", backup,
        summary="copy a node's store, keys and configuration into a new directory",
        text="Works whether or not the node runs; if it does, on its own machine. The copy is of\n"
        "one moment; every file has a checksum, and the copy is read back before it gets its\n"
        "name. It holds the node's secret keys: keep it as safe as them. Sinks' tables are not\n"
        "part of it.",
        examples=[
            "rillnode backup /backup/edge-2026-11-22 -c edge/node.toml",
            "rillnode backup /backup/edge-today -c edge/node.toml --quiet",
        ],
    )  # fmt: skip
    parser.add_argument(
        "target", type=Path, metavar="DIR", help="a directory that does not exist yet"
    )
    add_resting_options(parser)


async def backup(args: argparse.Namespace, terminal: Terminal) -> None:
    """Make a backup."""
    from rillnode.node.backup import Source, make_backup, refuse_inside, source_bytes

    config, file = configured(args, terminal)
    target: Path = args.target.absolute()
    refuse_inside(target, config.store_dir, "the store")
    refuse_inside(target, config.checkpoints_dir, "the directory of the node's own copies")
    async with resting_store(args, terminal, config) as store:
        keys = tuple(sorted(path for path in config.data_dir.glob("*.key*") if path.is_file()))
        source = Source(store=store, keys=keys, config=file)
        size = 2 * source_bytes(source)
        with interrupted_at_once(), progress(terminal, "copying", size) as on_bytes:
            manifest = make_backup(source, target, _about(config), on_bytes)
    terminal.record(
        {
            "backup": str(target),
            "node": manifest.name,
            "files": len(manifest.files),
            "bytes": manifest.size,
        }
    )
    for path in _keys_elsewhere(config):
        terminal.message(f"not in the backup, because it is not in data_dir: {path}")
    terminal.message(f"next: rillnode verify {target}")


def _about(config: "Config") -> "Manifest":
    from rillnode.actors.log import FORMAT_VERSION
    from rillnode.node.backup import BACKUP_VERSION, Manifest
    from rillnode.node.keys.files import read_key

    return Manifest(
        version=BACKUP_VERSION,
        made_at=int(time.time()),
        software=__version__,
        store_format=FORMAT_VERSION,
        name=config.name,
        identity=read_key(config.key_file).public_hex,
        files=(),
    )


def _keys_elsewhere(config: "Config") -> list[Path]:
    of_plug_ins = (path for one in config.tables for path in one.key_files(config).values())
    named = (config.key_file, config.admin_key_file, *of_plug_ins)
    return [path for path in named if path.parent != config.data_dir and path.is_file()]
