"""Finds what plug-ins say of themselves where they are not in use.

An application may not take an address that a plug-in would have, and a client says what to do about
an error of a plug-in that only the node has. So a package names its words apart, in a module that
imports nothing else of it:

    [project.entry-points."rillnode.words"]
    mqtt = "rillnode_mqtt.words:WORDS"    # the plug-in's name, and its `Words`
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Final, NamedTuple

from rillnode.codecs.entry_points import entry_points

GROUP: Final = "rillnode.words"


class Kind(NamedTuple):
    """A kind of principals, which are written `kind:name`.

    Attributes:
        names: a regular expression of the names; `*` alone always stands for all of them.
        form: what a name looks like, for people, such as `0xHEX (40)`.
        proved: whoever has such a principal has proved it. What anybody can say of himself is for
            grants alone: no quota and no peer names it.
    """

    names: str
    form: str
    proved: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """Says of a plug-in what is known of it whether it is in use or not.

    Attributes:
        steps: what to do about an error, by its code, or by what stands before the code's dot.
        event_steps: what to do about a line of the log, by the event's name, where that is not what
            the code among its details has.
        addresses: patterns of addresses that no application may take: `*` stands for any
            characters, `?` for one.
        principals: kinds of principals that grants may name, by what stands before the colon.
    """

    steps: Mapping[str, str] = field(default_factory=dict[str, str])
    event_steps: Mapping[str, str] = field(default_factory=dict[str, str])
    addresses: tuple[str, ...] = ()
    principals: Mapping[str, Kind] = field(default_factory=dict[str, Kind])


@cache
def brought_words() -> tuple[Words, ...]:
    """The words of all plug-ins that are installed, in the order of their names.

    They are read once, which takes some 20 ms. Where a package is broken it goes without: whoever
    uses the plug-in is told so.
    """
    found: list[Words] = []
    for point in sorted(entry_points(group=GROUP), key=lambda one: one.name):
        try:
            words: object = point.load()
        except Exception:  # it is anybody's code, and an error is being told, or an actor made
            continue
        if isinstance(words, Words):
            found.append(words)
    return tuple(found)
