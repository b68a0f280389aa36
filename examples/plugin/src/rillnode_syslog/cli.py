"""`rillnode syslog`: sends a message, to see whether a node takes it."""

import argparse
import socket
import time

from rillnode.codecs.errors import TransportError
from rillnode.node.cli.parsing import Commands, add_noun, add_verb
from rillnode.node.cli.terminal import Terminal
from rillnode.node.config import parse_address


def add(commands: Commands) -> None:
    """Add the noun and its verb."""
    verbs = add_noun(commands, "syslog", "syslog messages: send one to a node")
    parser = add_verb(
        verbs, "send", send,
        summary="send a message over TCP",
        examples=['rillnode syslog send 127.0.0.1:5514 "is anybody there?"'],
    )  # fmt: skip
    parser.add_argument("address", metavar="ADDRESS", help="host:port of the node's [syslog]")
    parser.add_argument("text", metavar="TEXT", help="what is said")


def send(args: argparse.Namespace, terminal: Terminal) -> None:
    """Send one message."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    line = f"<14>1 {now} {socket.gethostname()} rillnode - - - {args.text}".encode()
    try:
        with socket.create_connection(parse_address(args.address), timeout=10) as connection:
            connection.sendall(b"%d %s" % (len(line), line))
    except OSError as error:
        raise TransportError("link.failed", f"{args.address}: {error}") from error
    terminal.message("sent")
