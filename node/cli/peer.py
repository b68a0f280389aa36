"""`rillnode peer`: the nodes that a node has links to, or dials."""

import argparse

from rillnode.node.cli.connection import add_connection_options, connected
from rillnode.node.cli.parsing import Commands, add_noun, add_verb, seconds
from rillnode.node.cli.terminal import Terminal

_WAIT_SECONDS = 5.0


def add(commands: Commands) -> None:
    """Add the noun and its verbs."""
    verbs = add_noun(commands, "peer", "other nodes that a node sends to: ls, ping")
    parser = add_verb(
        verbs, "ls", ls,
        summary="list a node's peers, their links and last errors",
        text="Lists configured peers, and addresses that were dialled for a message. The\n"
        "key must be granted `admin` on some stream.",
        examples=["rillnode peer ls", "rillnode peer ls --json | jq -r .last_error"],
    )  # fmt: skip
    add_connection_options(parser)

    parser = add_verb(
        verbs, "ping", ping,
        summary="send a message to a peer and back, and show how long it took",
        examples=["rillnode peer ping core", "rillnode peer ping core --wait 1"],
    )  # fmt: skip
    parser.add_argument("name", metavar="NAME", help="name of the peer")
    parser.add_argument(
        "--wait", type=seconds, default=_WAIT_SECONDS, metavar="SECONDS",
        help=f"how long to wait for the answer (default: {_WAIT_SECONDS:g})",
    )  # fmt: skip
    add_connection_options(parser)


async def ls(args: argparse.Namespace, terminal: Terminal) -> None:
    """List peers."""
    async with connected(args, terminal) as client:
        document = await client.status()
    rows = [{"name": name, **peer} for name, peer in document["peers"].items()]
    terminal.rows(rows, empty="no peers; a [[peer]] in node.toml names one")


async def ping(args: argparse.Namespace, terminal: Terminal) -> None:
    """Ping one peer."""
    async with connected(args, terminal) as client:
        took = await client.ping(args.name, timeout_seconds=args.wait)
    terminal.record({"name": args.name, "milliseconds": round(1_000 * took, 3)})
