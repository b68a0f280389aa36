"""Exit codes, and the next step for everything that can go wrong."""

from enum import IntEnum
from typing import Final

from rillnode.codecs.errors import ConfigError, RillnodeError, TransportError


class Exit(IntEnum):
    """Exit codes of every command."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    INTERRUPTED = 130


_GRANT: Final = "grant your key: `rillnode key show FILE` prints it, a [[grant]] names it"
_ROUTE: Final = "check the route; `rillnode peer ls` shows which peers are in reach"
_NEXT_STEPS: Final = {
    "address": _ROUTE,
    "config": "correct it, then `rillnode config check -c FILE`",
    "config.connection": "`rillnode init` makes a node.toml; or see `--node` in the help",
    "config.file": "check the path after -c",
    "config.none": "`rillnode init` makes a node.toml, `rillnode run -c FILE` takes one",
    "entries": "push smaller entries",
    "key": "`rillnode key show FILE` checks a key file, `rillnode key new FILE` makes one",
    "link": "`rillnode run` starts a node; its banner says where it listens",
    "listen": "choose another address with `--set noise.listen=HOST:PORT` or in node.toml",
    "message": _ROUTE,
    "message.size": "send a smaller payload",
    "noise.unknown_identity": _GRANT,
    "noise.wrong_node": "`rillnode key show` on the node's identity.key prints its identity",
    "peer": "`rillnode peer ls` shows the peer's address and why it is out of reach",
    "quota": "`rillnode stream trim` and `stream rm` make room; [[quota]] on the node sets it",
    "store": "see the node's log; `rillnode status` tells whether the store takes writes",
    "stream.unknown": "`rillnode stream ls` lists what your key may see; `stream create` makes one",
}


def exit_code(error: RillnodeError, *, asks_node: bool) -> Exit:
    """The code that a command ends with; a node that cannot listen is no node out of reach."""
    if isinstance(error, ConfigError):
        return Exit.USAGE
    if isinstance(error, TransportError) and asks_node:
        return Exit.UNREACHABLE
    return Exit.FAILED


def next_step(error: RillnodeError, command: str) -> str:
    """What the user can do about an error."""
    code = error.code
    while code:
        if code in _NEXT_STEPS:
            return _NEXT_STEPS[code]
        code = code.rpartition(".")[0]
    if error.retryable:
        return "try again"
    return f"`{command} --help`"
