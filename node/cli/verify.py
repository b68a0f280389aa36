"""`rillnode verify`: looks at every row of a store, or at a backup and the store in it."""

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rillnode.node.cli.failures import Exit
from rillnode.node.cli.interrupting import interrupted_at_once
from rillnode.node.cli.parsing import Commands, add_verb
from rillnode.node.cli.progress import progress
from rillnode.node.cli.resting import add_resting_options, configured, resting_store
from rillnode.node.cli.terminal import Terminal

if TYPE_CHECKING:
    from rillnode.actors.log.rocks.verify import Verdict

_NEXT: Final = "next: keep this store, `rillnode restore` a backup beside it, and compare them"


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_verb(
        commands, "verify", verify,
        summary="check every row of a store, or of a backup",
        text="Checks checksums, order, density, positions and secondary keys; changes nothing. A\n"
        "running node is asked for a copy of its store first. The exit code is 1 if\n"
        "anything is wrong.",
        examples=[
            "rillnode verify -c edge/node.toml",
            "rillnode verify /backup/edge-2026-11-22",
            "rillnode verify -c edge/node.toml --json | jq .problems",
        ],
    )  # fmt: skip
    parser.add_argument("backup", nargs="?", type=Path, metavar="BACKUP", help="a backup to check")
    add_resting_options(parser)


async def verify(args: argparse.Namespace, terminal: Terminal) -> int:
    """Verify a store."""
    from rillnode.node.backup import STORE, check_backup, read_manifest

    if args.backup is not None:
        with interrupted_at_once():
            with progress(terminal, "checksums", read_manifest(args.backup).size) as on_bytes:
                check_backup(args.backup, on_bytes)
            verdict = _look_at(args.backup / STORE, terminal)
        return _tell(verdict, terminal)
    config, _ = configured(args, terminal)
    async with resting_store(args, terminal, config) as store:
        with interrupted_at_once():
            verdict = _look_at(store, terminal)
    return _tell(verdict, terminal)


def _look_at(store: Path, terminal: Terminal) -> "Verdict":
    from rillnode.actors.log.rocks.format import check_copied, check_format
    from rillnode.actors.log.rocks.layout import COPY_KEY
    from rillnode.actors.log.rocks.tables import Tables, Tuning
    from rillnode.actors.log.rocks.verify import verify_store

    tables = Tables(store, Tuning(), read_only=True)
    try:
        check_format(tables, store)
        check_copied(tables.record(COPY_KEY) is not None)
        size = sum(path.stat().st_size for path in store.glob("*.sst"))
        with progress(terminal, "verifying", size) as on_bytes:
            return verify_store(tables, on_bytes)
    finally:
        tables.close()


def _tell(verdict: "Verdict", terminal: Terminal) -> int:
    terminal.record(asdict(verdict))
    if not verdict.problem_count:
        return Exit.OK
    terminal.error(f"rillnode: {verdict.problem_count} problems\n  {_NEXT}")
    return Exit.FAILED
