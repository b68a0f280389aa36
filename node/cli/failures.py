"""Exit codes of commands."""

from enum import IntEnum

from rillnode.codecs.errors import ConfigError, NodeFailed, RillnodeError, TransportError


class Exit(IntEnum):
    """Exit codes of every command."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    NODE_FAILED = 4
    INTERRUPTED = 130


def exit_code(error: RillnodeError, *, asks_node: bool) -> Exit:
    """The code that a command ends with; a node that cannot listen is no node out of reach."""
    if isinstance(error, ConfigError):
        return Exit.USAGE
    if isinstance(error, NodeFailed):
        return Exit.NODE_FAILED
    if isinstance(error, TransportError) and asks_node:
        return Exit.UNREACHABLE
    return Exit.FAILED
