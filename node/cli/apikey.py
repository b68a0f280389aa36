"""`rillnode apikey`: keys of clients that hold no key pair; shown once and kept nowhere."""

import argparse
import os
from base64 import urlsafe_b64encode
from typing import Final

from rillnode.node.cli.parsing import Commands, UsageError, add_noun, add_verb
from rillnode.node.cli.terminal import Terminal

_KEY_BYTES: Final = 32
"""Random bytes of a key: nobody finds it by trying, so that its hash need not be slow."""


def add(commands: Commands) -> None:
    """Add the noun and its verb."""
    verbs = add_noun(commands, "apikey", "API keys, of clients that hold no key pair: make one")
    parser = add_verb(
        verbs, "new", new,
        summary="make an API key and show it, only this once",
        text="Put name and hash into an [[LISTENER.apikey]] table of node.toml, where LISTENER is\n"
        "the one that its holder connects to, and name the principal in a [[grant]]. To revoke\n"
        "a key, remove its table and reload the node's configuration (SIGHUP); whatever the key\n"
        "has open ends, too.",
        examples=["rillnode apikey new dashboard"],
    )  # fmt: skip
    parser.add_argument("name", metavar="NAME", help="name of the key's holder")


def new(args: argparse.Namespace, terminal: Terminal) -> None:
    """Make an API key."""
    from rillnode.codecs.api_keys import API_KEY, hash_of
    from rillnode.node.config.rules import NAME

    if not NAME.fullmatch(args.name):
        text = "NAME has 1 to 64 letters, digits, dots, dashes and underscores"
        raise UsageError(args.command, text)
    key = urlsafe_b64encode(os.urandom(_KEY_BYTES)).decode().rstrip("=")
    terminal.record(
        {"name": args.name, "key": key, "hash": hash_of(key), "principal": API_KEY + args.name}
    )
