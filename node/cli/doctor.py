"""`rillnode doctor`: what a node would suffer from here, and what to do about it."""

import argparse
from dataclasses import asdict
from typing import Final

from rillnode.node.cli.config import add_config_options
from rillnode.node.cli.connection import config_file
from rillnode.node.cli.failures import Exit
from rillnode.node.cli.parsing import Commands, add_verb
from rillnode.node.cli.terminal import Terminal

_DEFAULTS: Final = "name=doctor"
"""What a node without a configuration is called."""


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_verb(
        commands, "doctor", doctor,
        summary="check this machine and a configuration, and say what to do",
        text="Looks at the versions of Python and packages, the clock, the limit of open files,\n"
        "ports, room and sync time of the disk, keys, and what else the configuration needs:\n"
        "Java, say, or the servers of a shared log. Each is ok, warn or fail; the exit code\n"
        "is 1 if anything fails.",
        examples=["rillnode doctor -c edge/node.toml", "rillnode doctor --json | jq .advice"],
    )  # fmt: skip
    add_config_options(parser)


def doctor(args: argparse.Namespace, terminal: Terminal) -> int:
    """Look at everything."""
    from rillnode.node.config import load_config
    from rillnode.node.doctor import examine

    file = config_file(args.config)
    overrides = list(args.overrides) if file is not None else [_DEFAULTS, *args.overrides]
    config = load_config(file, overrides, terminal.environ)
    findings = list(examine(config, terminal.environ))
    terminal.rows([asdict(finding) for finding in findings], empty="")
    failed = sum(finding.state == "fail" for finding in findings)
    if failed:
        terminal.message(f"{failed} of {len(findings)} checks failed")
    return Exit.FAILED if failed else Exit.OK
