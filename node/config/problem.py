"""What the rules say of a configuration whose types are right."""

from typing import NamedTuple

from rillnode.node.config.paths import KeyPath


class Problem(NamedTuple):
    """What is wrong with the value at a path."""

    path: KeyPath
    code: str
    text: str
