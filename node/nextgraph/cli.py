"""`rillnode nextgraph`: invitations for NextGraph's clients, the broker's id, keys of branches."""

import argparse
import time
from pathlib import Path
from typing import Final

from rillnode.codecs.errors import RequestError
from rillnode.node.cli.connection import CONFIG_FILE, add_connection_options, connected
from rillnode.node.cli.failures import Exit
from rillnode.node.cli.parsing import Commands, add_noun, add_verb, days
from rillnode.node.cli.terminal import Terminal

_DAY_MS: Final = 86_400_000
_DESK: Final = "nextgraph"


def add(commands: Commands) -> None:
    """Add the noun and its verbs."""
    verbs = add_noun(commands, "nextgraph", "NextGraph's broker: invite, show its id, find keys")
    parser = add_verb(
        verbs, "invite", invite,
        summary="make an invitation to register, and show its link and code",
        text="Whoever registers with an `admin` invitation may make others, with NextGraph's own\n"
        "tools. Your key must be granted `admin` on some stream.",
        examples=[
            "rillnode nextgraph invite",
            "rillnode nextgraph invite --kind multi --days 7 --origin http://localhost:1440",
        ],
    )  # fmt: skip
    parser.add_argument(
        "--kind", choices=("unique", "multi", "admin"), default="unique",
        help="for one user, for any number, or for one administrator (default: unique)",
    )  # fmt: skip
    parser.add_argument(
        "--days", type=days, metavar="N", help="how long it is valid (default: for ever)"
    )
    parser.add_argument("--memo", metavar="TEXT", help="a note, shown in lists of invitations")
    parser.add_argument(
        "--origin", default="", metavar="URL", help="URL of the web app that the link opens"
    )
    add_connection_options(parser)
    parser = add_verb(
        verbs, "show", show,
        summary="show the broker's id, which clients must know",
        text="Read from the key file; the node need not run, but must have run once.",
        examples=["rillnode nextgraph show -c edge/node.toml"],
    )  # fmt: skip
    parser.add_argument(
        "-c", "--config", type=Path, metavar="FILE", help=f"configuration (default: {CONFIG_FILE})"
    )
    parser = add_verb(
        verbs, "keys", keys,
        summary="add to a file of keys those of all branches that its keys lead to",
        text="Tables decrypt events with such a file (`decrypt` of a sink). FILE is yours alone\n"
        '(mode 0600), and has at least one line: {"repo": "ID", "key": "HEX"}, the id and the\n'
        "read cap's key of a repo or store. That of a user's private store, which is in the\n"
        "wallet, leads to all documents. Run it again when there are new ones. Your key must be\n"
        "granted `pull` on `nextgraph/*`.",
        examples=["rillnode nextgraph keys alice.keys"],
    )  # fmt: skip
    parser.add_argument("file", type=Path, metavar="FILE", help="the file of keys")
    add_connection_options(parser)


async def invite(args: argparse.Namespace, terminal: Terminal) -> int:
    """Make an invitation."""
    import msgspec

    expires_at = 0 if args.days is None else int(time.time() * 1_000 + args.days * _DAY_MS)
    request = {
        "kind": args.kind,
        "expires_at": expires_at,
        "memo": args.memo,
        "origin": args.origin,
    }
    async with connected(args, terminal) as client:
        answer = await client.ask(_DESK, msgspec.json.encode(request))
    made = msgspec.json.decode(answer.payload, type=dict[str, str | None])
    if made.get("error"):
        raise RequestError("nextgraph.invite", f"no invitation was made: {made['error']}")
    terminal.record({"kind": args.kind, "code": made.get("code"), "link": made.get("link")})
    return Exit.OK


def show(args: argparse.Namespace, terminal: Terminal) -> int:
    """Show the broker's id in both forms."""
    # Only who has to do with NextGraph waits for its codecs.
    from rillnode.codecs.nextgraph.text_ids import format_id
    from rillnode.node.config import load_config
    from rillnode.node.keys.files import read_key
    from rillnode.node.nextgraph.config import nextgraph_key_file

    config = load_config(args.config or CONFIG_FILE, (), terminal.environ)
    peer = read_key(nextgraph_key_file(config))
    terminal.record({"peer_id": peer.public_hex, "text_id": format_id(peer.public_key)})
    return Exit.OK


async def keys(args: argparse.Namespace, terminal: Terminal) -> int:
    """Find the keys of branches in those that can be read."""
    from rillnode.node.nextgraph.branches import find_branches, read_branches, write_branches

    known = read_branches(args.file)
    async with connected(args, terminal) as client:
        found = await find_branches(client, known)
    added = [one for one in found if one not in known]
    write_branches(args.file, added)
    terminal.record({"file": str(args.file), "added": len(added), "keys": len(known) + len(added)})
    return Exit.OK
