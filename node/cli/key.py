"""`rillnode key`: identities. The secret part is never printed."""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from rillnode.node.cli.failures import Exit
from rillnode.node.cli.parsing import Commands, add_noun, add_verb
from rillnode.node.cli.terminal import Terminal

if TYPE_CHECKING:
    from rillnode.codecs.channel_key import ChannelKey
    from rillnode.codecs.keys import Identity


def add(commands: Commands) -> None:
    """Add the noun and its verbs."""
    verbs = add_noun(commands, "key", "key files: make one, show its public part, replace it")
    for name, verb, summary in (
        ("new", new, "make a key file; an existing file is never overwritten"),
        ("show", show, "show the public part of a key file"),
    ):
        parser = add_verb(
            verbs, name, verb,
            summary=summary,
            usage="FILE [options]",
            text="The principal is what a [[grant]] in node.toml names.",
            examples=[
                f"rillnode key {name} producer.key",
                f"rillnode key {name} --channel device.key",
            ],
        )  # fmt: skip
        parser.add_argument("file", type=Path, metavar="FILE", help="the key file, mode 0600")
        parser.add_argument(
            "--channel", action="store_true",
            help="a static key for Ockam secure channels, such as a node's ockam.key",
        )  # fmt: skip

    parser = add_verb(
        verbs, "rotate", rotate,
        summary="replace a key in two steps; both are good in between",
        usage="FILE [options]",
        text="The first step makes the next key beside the file and shows both identities: let\n"
        "peers and clients know the new one beside the old. The second, --finish, puts it in\n"
        "place of the old one, which is kept beside it; then restart the node.",
        examples=[
            "rillnode key rotate edge/data/identity.key",
            "rillnode key rotate edge/data/identity.key --finish",
        ],
    )  # fmt: skip
    parser.add_argument("file", type=Path, metavar="FILE", help="the key file, mode 0600")
    parser.add_argument("--finish", action="store_true", help="put the next key in place")


def new(args: argparse.Namespace, terminal: Terminal) -> int:
    """Make a key file."""
    from rillnode.codecs.channel_key import KEY_BYTES, ChannelKey
    from rillnode.codecs.keys import Identity
    from rillnode.node.keys.files import write_key

    key = ChannelKey(os.urandom(KEY_BYTES)) if args.channel else Identity.generate()
    write_key(args.file, key)
    _show(terminal, args.file, key)
    return Exit.OK


def show(args: argparse.Namespace, terminal: Terminal) -> int:
    """Show a key file's public part."""
    from rillnode.node.keys.files import read_channel_key, read_key

    read = read_channel_key if args.channel else read_key
    _show(terminal, args.file, read(args.file))
    return Exit.OK


def rotate(args: argparse.Namespace, terminal: Terminal) -> int:
    """Make the next key, or put it in place."""
    from rillnode.codecs.keys import SEED_BYTES
    from rillnode.node.keys.rotation import begin_rotation, finish_rotation, next_path

    file: Path = args.file
    if args.finish:
        rotation = finish_rotation(file)
        terminal.record({"file": str(file), **rotation})
        terminal.message("next: restart the node; then peers and clients can forget the old one")
        return Exit.OK
    rotation = begin_rotation(file, os.urandom(SEED_BYTES))
    terminal.record({"file": str(next_path(file)), **rotation})
    terminal.message(
        "next: tell peers and clients both identities, grant the new one what the old one has, "
        f"then `rillnode key rotate {file} --finish`"
    )
    return Exit.OK


def _show(terminal: Terminal, file: Path, key: "Identity | ChannelKey") -> None:
    from rillnode.codecs.keys import Identity

    public = key.public_hex
    name, kind = ("identity", "noise") if isinstance(key, Identity) else ("channel_key", "ockam")
    terminal.record({"file": str(file), name: public, "principal": f"{kind}:{public}"})
