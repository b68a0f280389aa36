"""`rillnode config`: check a configuration, show what is in effect, print the schema."""

import argparse
from pathlib import Path

from rillnode.node.cli.connection import CONFIG_FILE
from rillnode.node.cli.parsing import Commands, Parser, add_noun, add_verb
from rillnode.node.cli.terminal import Terminal


def add(commands: Commands) -> None:
    """Add the noun and its verbs."""
    verbs = add_noun(commands, "config", "a node's configuration: check, show, schema")
    parser = add_verb(
        verbs, "check", check,
        summary="check a configuration without starting anything",
        text="The exit code is 2 when a node would refuse to run with it.",
        examples=["rillnode config check -c edge/node.toml"],
    )  # fmt: skip
    add_config_options(parser)
    parser = add_verb(
        verbs, "show", show,
        summary="show every value in effect and where it comes from",
        text="The first of these that has a value wins: --set, environment, file, default.",
        examples=[
            "rillnode config show",
            "RILLNODE__NOISE__LISTEN=127.0.0.1:0 rillnode config show",
            "rillnode config show --defaults > all.toml",
        ],
    )  # fmt: skip
    add_config_options(parser)
    parser.add_argument(
        "--defaults", action="store_true",
        help="all keys with defaults and descriptions, as TOML to copy from",
    )  # fmt: skip
    add_verb(
        verbs, "schema", print_schema,
        summary="print the JSON schema of node.toml",
        examples=["rillnode config schema > node.schema.json"],
    )  # fmt: skip


def add_config_options(parser: Parser) -> None:
    """Let a verb take the options that say what a node is configured with."""
    group = parser.add_argument_group("configuration")
    group.add_argument(
        "-c", "--config", type=Path, metavar="FILE", help="configuration (default: ./node.toml)"
    )
    group.add_argument(
        "--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE",
        help="set one value, such as noise.listen=127.0.0.1:0; may be repeated",
    )  # fmt: skip


def check(args: argparse.Namespace, terminal: Terminal) -> None:
    """Check a configuration, and that the plug-ins that it asks for can be had."""
    from rillnode.node.config import load

    # Here, because other verbs do without what plug-ins stand on.
    from rillnode.node.plugins import asked_plug_ins, plug_in_of

    loaded = load(args.config or CONFIG_FILE, args.overrides, terminal.environ)
    for name, table in asked_plug_ins(loaded.config).items():
        plug_in_of(name, table)
    terminal.message(f"{args.config or CONFIG_FILE}: valid")


def show(args: argparse.Namespace, terminal: Terminal) -> None:
    """Show the values in effect, or every default."""
    from rillnode.node.config import load
    from rillnode.node.config.describe import defaults, effective

    if args.defaults:
        terminal.write_text(defaults())
        return
    loaded = load(args.config or CONFIG_FILE, args.overrides, terminal.environ)
    rows = [
        {"key": key, "value": value, "source": source} for key, value, source in effective(loaded)
    ]
    terminal.rows(rows, empty="")


def print_schema(_: argparse.Namespace, terminal: Terminal) -> None:
    """Print the schema."""
    import msgspec

    from rillnode.node.config.describe import schema

    terminal.write(msgspec.json.format(msgspec.json.encode(schema())) + b"\n")
