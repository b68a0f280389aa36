"""`rillnode pub` and `rillnode sub`: short for `stream push` and `stream tail`."""

from rillnode.node.cli import push, read
from rillnode.node.cli.parsing import Commands


def add(commands: Commands) -> None:
    """Add both."""
    push.add(commands, "pub", ["echo hello | rillnode pub greetings --create"])
    read.add_tail(commands, "sub", ["rillnode sub greetings --from start --count 5"])
