"""`rillnode context`: nodes by name, so that no verb needs an address and a key."""

import argparse

from rillnode.codecs.errors import ConfigError
from rillnode.node.cli.connection import add_connection_options, find_target
from rillnode.node.cli.parsing import Commands, add_noun, add_verb
from rillnode.node.cli.terminal import Terminal

_ORDER = (
    "A verb takes the first node of: its options, RILLNODE_CONTEXT or RILLNODE_URL with\n"
    "RILLNODE_IDENTITY and RILLNODE_KEY, ./node.toml, the selected context, the node of\n"
    "`rillnode run --dev`. Programs do the same, without ./node.toml."
)


def add(commands: Commands) -> None:
    """Add the noun and its verbs."""
    verbs = add_noun(commands, "context", "nodes to talk to, by name: add, use, ls, rm")
    parser = add_verb(
        verbs, "add", add_context,
        summary="save a node under a name",
        text="Saves address, identity and the path of the key, for this user; the first one\n"
        "saved is selected. A node already saved under the name is replaced.\n\n" + _ORDER,
        examples=[
            "rillnode context add home -c ~/edge/node.toml",
            "rillnode context add hub --node noise://hub:4100 --node-identity HEX --key me.key",
        ],
    )  # fmt: skip
    parser.add_argument("name", metavar="NAME")
    add_connection_options(parser)
    parser = add_verb(
        verbs, "use", use,
        summary="select the node that verbs and programs talk to",
        usage="NAME | --none",
        text=_ORDER,
        examples=["rillnode context use hub", "rillnode context use --none"],
    )  # fmt: skip
    parser.add_argument("name", metavar="NAME", nargs="?")
    parser.add_argument("--none", action="store_true", help="select none")
    add_verb(
        verbs, "ls", list_contexts,
        summary="list the saved nodes",
        examples=["rillnode context ls"],
    )  # fmt: skip
    parser = add_verb(
        verbs, "rm", remove,
        summary="forget a saved node; its key file stays",
        usage="NAME",
        examples=["rillnode context rm hub"],
    )  # fmt: skip
    parser.add_argument("name", metavar="NAME")


def add_context(args: argparse.Namespace, terminal: Terminal) -> None:
    """Save a node; a key that cannot be read is none to save."""
    from rillnode.node.contexts import Context, read_contexts, write_contexts

    target = find_target(args, terminal)
    identity = target.identity
    key = None if target.key is None else str(target.key.absolute())
    saved = read_contexts(terminal.environ)
    saved.contexts[args.name] = Context(
        url=target.url, node_identity=target.node_identity, key_file=key
    )
    saved.current = saved.current or args.name
    write_contexts(terminal.environ, saved)
    chosen = saved.current == args.name
    used = "selected" if chosen else f"`rillnode context use {args.name}` selects it"
    terminal.record(
        {
            "name": args.name,
            "url": target.url,
            "node_identity": target.node_identity,
            "key": None if identity is None else identity.public_hex,
        }
    )
    terminal.message(used)


def use(args: argparse.Namespace, terminal: Terminal) -> None:
    """Select one, or none."""
    from rillnode.node.contexts import load_context, read_contexts, write_contexts

    if (args.name is None) != args.none:
        raise ConfigError("context.unknown", "name a context, or say --none")
    if args.name is not None:
        load_context(terminal.environ, args.name)
    saved = read_contexts(terminal.environ)
    saved.current = args.name
    write_contexts(terminal.environ, saved)


def list_contexts(args: argparse.Namespace, terminal: Terminal) -> None:
    """List what is saved."""
    from rillnode.node.contexts import read_contexts

    saved = read_contexts(terminal.environ)
    rows = [
        {
            "name": name,
            "selected": name == saved.current,
            "url": one.url,
            "node_identity": one.node_identity,
            "key_file": one.key_file,
        }
        for name, one in sorted(saved.contexts.items())
    ]
    terminal.rows(rows, empty="no contexts: `rillnode context add NAME -c FILE` saves one")


def remove(args: argparse.Namespace, terminal: Terminal) -> None:
    """Forget one."""
    from rillnode.node.contexts import load_context, read_contexts, write_contexts

    load_context(terminal.environ, args.name)
    saved = read_contexts(terminal.environ)
    del saved.contexts[args.name]
    if saved.current == args.name:
        saved.current = None
    write_contexts(terminal.environ, saved)
