"""`rillnode key`: identities. The secret part is never printed."""

import argparse
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from rillnode.codecs.errors import ConfigError
from rillnode.node.cli.parsing import Commands, Parser, UsageError, add_noun, add_verb
from rillnode.node.cli.terminal import Terminal

if TYPE_CHECKING:
    from rillnode.codecs.channel_key import ChannelKey
    from rillnode.codecs.keys import Identity


def add(commands: Commands) -> None:
    """Add the noun and its verbs."""
    verbs = add_noun(commands, "key", "key files: new, show, grant, rotate")
    for name, verb, summary in (
        ("new", new, "make a key file; an existing file is never overwritten"),
        ("show", show, "show the public part of a key file"),
    ):
        parser = add_verb(
            verbs, name, verb,
            summary=summary,
            text="Put the principal into a [[grant]] in node.toml.",
            examples=[
                f"rillnode key {name} producer.key",
                f"rillnode key {name} --channel device.key",
            ],
        )  # fmt: skip
        _add_file(parser)

    parser = add_verb(
        verbs, "grant", grant,
        summary="print the [[grant]] that lets a key do something, for node.toml",
        usage="FILE (--streams PATTERN | --addresses PATTERN) --may VERB [VERB ...] [options]",
        text="A PATTERN has * for any characters and ? for one. For streams a VERB is create,\n"
        "push, pull, subscribe or admin, for addresses send, serve or admin. A node reads its\n"
        "grants when it starts, and on SIGHUP.",
        examples=[
            "rillnode key grant me.key --streams 'sensors*' --may create push >> edge/node.toml",
            "rillnode key grant me.key --addresses greeter --may send >> edge/node.toml",
        ],
    )  # fmt: skip
    _add_file(parser)
    names = parser.add_mutually_exclusive_group(required=True)
    names.add_argument("--streams", metavar="PATTERN", help="which streams")
    names.add_argument("--addresses", metavar="PATTERN", help="which addresses")
    parser.add_argument(
        "--may", nargs="+", required=True, metavar="VERB", help="what is allowed with them"
    )

    parser = add_verb(
        verbs, "rotate", rotate,
        summary="replace a key in two steps; both keys are valid in between",
        text="The first step makes the next key beside the file and shows both identities: tell\n"
        "peers and clients the new one, too. The second step, --finish, replaces the old key,\n"
        "which is kept beside the new one; then restart the node.",
        examples=[
            "rillnode key rotate edge/data/identity.key",
            "rillnode key rotate edge/data/identity.key --finish",
        ],
    )  # fmt: skip
    parser.add_argument("file", type=Path, metavar="FILE", help="the key file, mode 0600")
    parser.add_argument("--finish", action="store_true", help="put the next key in place")


def _add_file(parser: Parser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="the key file, mode 0600")
    parser.add_argument(
        "--channel", action="store_true",
        help="a static key for Ockam secure channels, such as a node's ockam.key",
    )  # fmt: skip


def new(args: argparse.Namespace, terminal: Terminal) -> None:
    """Make a key file."""
    from rillnode.codecs.channel_key import KEY_BYTES, ChannelKey
    from rillnode.codecs.keys import Identity
    from rillnode.node.keys.files import write_key

    key = ChannelKey(os.urandom(KEY_BYTES)) if args.channel else Identity.generate()
    write_key(args.file, key)
    _show(terminal, args.file, key)


def show(args: argparse.Namespace, terminal: Terminal) -> None:
    """Show a key file's public part."""
    _show(terminal, args.file, _read(args))


def grant(args: argparse.Namespace, terminal: Terminal) -> None:
    """Print a grant, which is checked as the one in a file is."""
    from rillnode.node.config import parse_config

    said = {
        "who": _principal(_read(args)),
        "streams": args.streams,
        "addresses": args.addresses,
        "may": args.may,
    }
    keys = {key: value for key, value in said.items() if value is not None}
    lines = (f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in keys.items())
    text = "".join(("\n[[grant]]\n", *lines))
    try:
        parse_config(f'name = "node"\n{text}', Path())
    except ConfigError as error:
        wrong = re.sub(r"^\S+ grant\[0\]\.", "--", error.text, flags=re.MULTILINE)
        raise UsageError(args.command, wrong) from None
    if terminal.as_json:
        terminal.document(keys)
    else:
        terminal.write_text(text)


def rotate(args: argparse.Namespace, terminal: Terminal) -> None:
    """Make the next key, or put it in place."""
    from rillnode.codecs.keys import SEED_BYTES
    from rillnode.node.keys.rotation import begin_rotation, finish_rotation, next_path

    file: Path = args.file
    if args.finish:
        rotation = finish_rotation(file)
        terminal.record({"file": str(file), **rotation})
        terminal.message("next: restart the node; then peers and clients can forget the old one")
        return
    rotation = begin_rotation(file, os.urandom(SEED_BYTES))
    terminal.record({"file": str(next_path(file)), **rotation})
    terminal.message(
        "next: tell peers and clients both identities, grant the new one what the old one has, "
        f"then `rillnode key rotate {file} --finish`"
    )


def _read(args: argparse.Namespace) -> "Identity | ChannelKey":
    from rillnode.node.keys.files import read_channel_key, read_key

    return read_channel_key(args.file) if args.channel else read_key(args.file)


def _principal(key: "Identity | ChannelKey") -> str:
    from rillnode.codecs.keys import Identity

    return f"{'noise' if isinstance(key, Identity) else 'ockam'}:{key.public_hex}"


def _show(terminal: Terminal, file: Path, key: "Identity | ChannelKey") -> None:
    principal = _principal(key)
    name = "identity" if principal.startswith("noise:") else "channel_key"
    terminal.record({"file": str(file), name: key.public_hex, "principal": principal})
