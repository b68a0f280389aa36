"""Reads the entry points of installed packages, once in a process and without importing any.

To read them takes 10 ms where many packages are installed, whichever group is asked for, and a
command asks for several.
"""

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints


def entry_points(group: str) -> "EntryPoints":
    """The entry points of a group, in no particular order."""
    found: EntryPoints = every_entry_point().select(group=group)
    return found


@cache
def every_entry_point() -> Any:
    """Those of all groups, as they were when they were first asked for.

    Python 3.11 has another class for them than later ones; both have `select`.
    """
    from importlib.metadata import entry_points  # a program that makes no node needs none of it

    return entry_points()
