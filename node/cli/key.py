"""`rillnode key`: identities. The secret part is never printed."""

import argparse
import os
from pathlib import Path

from rillnode.codecs.keys import SEED_BYTES, Identity
from rillnode.node.cli.failures import Exit
from rillnode.node.cli.parsing import Commands, add_noun, add_verb
from rillnode.node.cli.terminal import Terminal
from rillnode.node.keyfiles import read_key, write_key


def add(commands: Commands) -> None:
    """Add the noun and its verbs."""
    verbs = add_noun(commands, "key", "key files: make one, show its public part")
    for name, verb, summary in (
        ("new", new, "make a key file; an existing file is never overwritten"),
        ("show", show, "show the public part of a key file"),
    ):
        parser = add_verb(
            verbs, name, verb,
            summary=summary,
            usage="FILE [options]",
            text="The principal is what a [[grant]] in node.toml names.",
            examples=[f"rillnode key {name} producer.key"],
        )  # fmt: skip
        parser.add_argument("file", type=Path, metavar="FILE", help="the key file, mode 0600")


def new(args: argparse.Namespace, terminal: Terminal) -> int:
    """Make a key file."""
    identity = Identity.from_seed(os.urandom(SEED_BYTES))
    write_key(args.file, identity)
    _show(terminal, args.file, identity)
    return Exit.OK


def show(args: argparse.Namespace, terminal: Terminal) -> int:
    """Show a key file's public part."""
    _show(terminal, args.file, read_key(args.file))
    return Exit.OK


def _show(terminal: Terminal, file: Path, identity: Identity) -> None:
    public = identity.public_hex
    terminal.record({"file": str(file), "identity": public, "principal": f"noise:{public}"})
