"""`rillnode restore`: a backup into a new directory, ready to run."""

import argparse
from pathlib import Path

from rillnode.node.cli.parsing import Commands, add_verb
from rillnode.node.cli.progress import progress
from rillnode.node.cli.terminal import Terminal


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_verb(
        commands, "restore", restore,
        summary="write a backup into a new directory, ready to run",
        text="DIR gets node.toml and data. Every file is compared with its checksum; a damaged\n"
        "backup leaves nothing behind, and nothing is ever overwritten. Entries confirmed after\n"
        "the backup was made are missing: see the how-to on backups.",
        examples=[
            "rillnode restore /backup/edge-2026-11-22 edge",
            "rillnode restore /backup/edge-2026-11-22 edge --json",
        ],
    )  # fmt: skip
    parser.add_argument("backup", type=Path, metavar="BACKUP", help="a directory made by `backup`")
    parser.add_argument(
        "home", type=Path, metavar="DIR", help="a directory that does not exist yet"
    )


def restore(args: argparse.Namespace, terminal: Terminal) -> None:
    """Restore a backup."""
    from rillnode.node.backup import read_manifest, restore_backup

    backup: Path = args.backup.absolute()
    home: Path = args.home.absolute()
    with progress(terminal, "restoring", read_manifest(backup).size) as on_bytes:
        manifest = restore_backup(backup, home, on_bytes)
    terminal.record(
        {
            "restored": str(home),
            "node": manifest.name,
            "identity": manifest.identity,
            "made_at": manifest.made_at,
            "bytes": manifest.size,
        }
    )
    terminal.message(f"next: rillnode run -c {args.home}/node.toml --data-dir {args.home}/data")
