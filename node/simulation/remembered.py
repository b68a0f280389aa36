"""What actors remember of what is over: actors that have ended, and work that is done.

What an actor keeps of another (whom to tell, what is counted for whom) it must let go of when that
one ends, or memory is lost for good; and what it counts as under way must be nothing once all is
quiet, or one day it takes no more.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from rillnode.actors.cell import GONE, Cell
from rillnode.actors.system import AsyncioSystemBase

_PLAIN: Final = frozenset((bytes, str, int, float, bool, type(None)))
_OURS: Final = "rillnode.actors."

UNDER_WAY: Final = frozenset(
    ("_held_bytes", "_outgoing_bytes", "_waiting_bytes", "reserved_bytes", "unhandled", "waiting")
)
"""Numbers of what is under way, wherever actors keep such."""


def remembered(system: AsyncioSystemBase) -> Iterator[str]:
    """What the actors of a node have of what is over, for people."""
    cells = list(system.life.roots)
    for cell in cells:
        cells += cell.children or ()
    seen = {id(system.dead_letters)}  # they are for people to look at, and few are kept
    for cell in cells:
        for name, value in _attributes(cell.instance):
            ended, counted = _found_in(name, value, seen)
            where = f"in {name} of {type(cell.instance).__name__}"
            if ended:
                yield f"{ended} actors that have ended {where}"
            for text in counted:
                yield f"{text} {where}, though nothing is under way"


def _attributes(thing: object) -> Iterator[tuple[str, Any]]:
    yield from getattr(thing, "__dict__", {}).items()
    for kind in type(thing).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(thing, name) and not name.startswith("__"):
                yield name, getattr(thing, name)


def _found_in(name: str, value: object, seen: set[int]) -> tuple[int, list[str]]:
    """How many ended actors something leads to, and what it counts; not what was seen before."""
    ended, counted = 0, list[str]()
    if name in UNDER_WAY and isinstance(value, int) and value:
        counted.append(f"{name} {value}")
    left: list[Any] = [value]
    while left:
        one = left.pop()
        kind: type[Any] = type(one)
        if kind in _PLAIN:
            continue
        if kind is Cell:
            ended += one.mailbox is GONE
        elif id(one) not in seen:
            seen.add(id(one))
            if issubclass(kind, dict):
                left += one.keys()
                left += one.values()
            elif issubclass(kind, list | tuple | set | frozenset | deque):
                left += one
            elif kind.__module__.startswith(_OURS):
                for inner, found in _attributes(one):
                    left.append(found)
                    if inner in UNDER_WAY and isinstance(found, int) and found:
                        counted.append(f"{inner} {found}")
    return ended, counted
