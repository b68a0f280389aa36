"""Finds memories of what is over: actors that have ended, work that is done.

What an actor keeps of another (whom to tell, what is counted for whom) it must let go of when that
one ends, or memory is lost for good; and what it counts as under way must be nothing once all is
quiet, or one day it takes no more.
"""

from collections import deque
from collections.abc import Iterator
from functools import cache
from typing import Any, Final, cast

from rillnode.actors.engine.cell import GONE, Cell
from rillnode.actors.engine.system import AsyncioSystemBase

_PLAIN: Final = frozenset((bytes, str, int, float, bool, type(None)))
_OURS: Final = "rillnode.actors."

UNDER_WAY: Final = frozenset(
    (
        "_held_bytes",
        "_outgoing_bytes",
        "_waiting_bytes",
        "kept_bytes",
        "reading_bytes",
        "reserved_bytes",
        "unhandled",
        "waiting",
    )
)
"""Numbers of what is under way, wherever actors keep such."""


def remembered(system: AsyncioSystemBase) -> Iterator[str]:
    """What the actors of a node have of what is over, for people."""
    cells = list(system.life.roots)
    for cell in cells:
        cells += cell.children or ()
    seen = {id(system.dead_letters)}  # they are for people to look at, and few are kept
    # Those that failed too often are known for a while, to who still has their address.
    seen.add(id(system._supervision))  # pyright: ignore[reportPrivateUsage]
    # Whose idle time is looked for is let go of when that is over, which may be long.
    seen.update(id(awake) for awake in system.life.passivation.awake.values())
    for cell in cells:
        for name, value in _attributes(cell.instance):
            ended, counted = _found_in(name, value, seen)
            where = f"in {name} of {type(cell.instance).__name__}"
            if ended:
                yield f"{ended} actors that have ended {where}"
            for text in counted:
                yield f"{text} {where}, though nothing is under way"


def holding(system: AsyncioSystemBase, kind: type) -> Iterator[str]:
    """The actors of a node that hold something of a kind, each by the name of its class."""
    cells = list(system.life.roots)
    for cell in cells:
        cells += cell.children or ()
    seen = {id(system.dead_letters)}
    for cell in cells:
        if any(_holds(value, kind, seen) for _, value in _attributes(cell.instance)):
            yield type(cell.instance).__name__


def _holds(value: object, kind: type, seen: set[int]) -> bool:
    """Whether something of a kind is in a value of an actor, not counting what was seen before."""
    left: list[Any] = [value]
    while left:
        one = left.pop()
        its = cast(Any, type(one))
        if its is kind:
            return True
        if its in _PLAIN or its is Cell or id(one) in seen:
            continue
        seen.add(id(one))
        if issubclass(its, dict):
            left += one.keys()
            left += one.values()
        elif issubclass(its, list | tuple | set | frozenset | deque):
            left += one
        elif _is_ours(its):
            left += [found for _, found in _attributes(one)]
    return False


def _attributes(thing: object) -> Iterator[tuple[str, Any]]:
    own: dict[str, Any] | None = getattr(thing, "__dict__", None)
    if own:
        yield from own.items()
    kind = cast(Any, type(thing))
    for name in _slots(kind):
        try:
            yield name, getattr(thing, name)
        except AttributeError:
            continue  # it has no value yet


@cache
def _slots(kind: type) -> tuple[str, ...]:
    """The slots of a class and of those that it inherits."""
    found: list[str] = []
    for one in kind.__mro__:
        slots = one.__dict__.get("__slots__", ())
        found += (slots,) if isinstance(slots, str) else slots
    return tuple(name for name in found if not name.startswith("__"))


@cache
def _is_ours(kind: type) -> bool:
    """Whether it is part of what actors are made of."""
    return kind.__module__.startswith(_OURS)


def _found_in(name: str, value: object, seen: set[int]) -> tuple[int, list[str]]:
    """How many ended actors something leads to, and what it counts; not what was seen before."""
    ended, counted = 0, list[str]()
    if name in UNDER_WAY and isinstance(value, int) and value:
        counted.append(f"{name} {value}")
    left: list[Any] = [value]
    while left:
        one = left.pop()
        kind = cast(Any, type(one))
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
            elif _is_ours(kind):
                for inner, found in _attributes(one):
                    if inner in UNDER_WAY and isinstance(found, int) and found:
                        counted.append(f"{inner} {found}")
                    if type(found) not in _PLAIN:
                        left.append(found)
    return ended, counted
