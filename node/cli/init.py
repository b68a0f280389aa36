"""`rillnode init`: a directory with keys and a configuration, ready to run."""

import argparse
from pathlib import Path
from shlex import quote
from typing import Final

from rillnode.codecs.errors import ConfigError
from rillnode.node.cli.connection import CONFIG_FILE
from rillnode.node.cli.parsing import Commands, add_verb, is_text
from rillnode.node.cli.terminal import Terminal

_DEFAULT_NAME: Final = "node"


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_verb(
        commands, "init", init,
        summary="make keys and a configuration",
        text="Writes a short node.toml, data/identity.key (who the node is), data/admin.key (may\n"
        "do everything) and keys of installed plug-ins. Nothing is ever overwritten.",
        examples=["rillnode init edge", "rillnode run -c edge/node.toml"],
    )  # fmt: skip
    parser.add_argument(
        "directory", nargs="?", type=Path, default=Path(), metavar="DIR",
        help="where (default: here)",
    )  # fmt: skip
    parser.add_argument("--name", metavar="NAME", help="the node's name (default: the directory's)")


def init(args: argparse.Namespace, terminal: Terminal) -> None:
    """Make keys and a configuration."""
    from rillnode.codecs.keys import Identity
    from rillnode.node.config.describe import template
    from rillnode.node.config.file_type import table_type
    from rillnode.node.installed import TABLES, installed
    from rillnode.node.keys.files import write_key

    directory: Path = args.directory
    config, data = directory / CONFIG_FILE, directory / "data"
    node_key, admin_key = data / "identity.key", data / "admin.key"
    of_plug_ins = {
        data / file: public
        for table in installed(TABLES)
        for file, public in table_type(table).made_keys.items()
    }
    for path in (config, node_key, admin_key, *of_plug_ins):
        if path.exists():
            text = f"{path} exists; nothing was written: choose another directory"
            raise ConfigError("config.exists", text)
    name = args.name or directory.resolve().name or _DEFAULT_NAME
    if not is_text(name):
        raise ConfigError("config.unwritable", f"{name!r} has no UTF-8 form: name it with --name")
    node, admin = Identity.generate(), Identity.generate()
    text = template(name, admin.public_hex)
    write_key(node_key, node)
    write_key(admin_key, admin)
    told: dict[str, str] = {}
    for path, public in of_plug_ins.items():
        key = Identity.generate()
        write_key(path, key)
        told |= {public: key.public_hex, path.name.replace(".", "_"): str(path)}
    try:
        with config.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        text = f"{config}: cannot be written: {error.strerror}"
        raise ConfigError("config.unwritable", text) from None
    terminal.record(
        {
            "config": str(config),
            "identity": node.public_hex,
            "identity_key": str(node_key),
            "admin": admin.public_hex,
            "admin_key": str(admin_key),
            **told,
        }
    )
    terminal.message(f"next: rillnode run -c {quote(str(config))}")
