"""Finds what plug-ins say of themselves where they are not in use.

An application may not take an address or make a stream that a plug-in would have, and a client says
what to do about an error of a plug-in that only the node has. So a package names its words apart,
in a module that imports nothing else of it:

    [project.entry-points."rillnode.words"]
    mqtt = "rillnode_mqtt.words:WORDS"    # the plug-in's name, and its `Words`
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

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
        streams: what names of streams that nobody makes but the plug-in have before their first
            slash. Streams outlive the configuration that has made them, and nodes may share them.
        principals: kinds of principals that grants may name, by what stands before the colon.
    """

    steps: Mapping[str, str] = field(default_factory=dict[str, str])
    event_steps: Mapping[str, str] = field(default_factory=dict[str, str])
    addresses: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()
    principals: Mapping[str, Kind] = field(default_factory=dict[str, Kind])


class BrokenWords(NamedTuple):
    """Words that cannot be read: of which plug-in and package, and what was raised."""

    plug_in: str
    package: str
    reason: str


@cache
def read_words() -> tuple[tuple[Words, ...], tuple[BrokenWords, ...]]:
    """The words of all plug-ins that are installed, in the order of their names, and what is none.

    They are read once, which takes some 20 ms. A package that is broken goes without: it is
    anybody's code, and an error is being told, or an actor made.
    """
    found, broken = list[Words](), list[BrokenWords]()
    for point in sorted(entry_points(group=GROUP), key=lambda one: one.name):
        try:
            words: object = point.load()
            if not isinstance(words, Words):
                raise TypeError(f"{point.value} is no Words")
            found.append(words)
        except Exception as error:
            if not _is_deleted(point, error):
                package = point.value if point.dist is None else point.dist.name
                broken.append(BrokenWords(point.name, package, f"{type(error).__name__}: {error}"))
    return tuple(found), tuple(broken)


def brought_words() -> tuple[Words, ...]:
    """The words of all plug-ins that are installed, but for those that are broken."""
    return read_words()[0]


def reserved_streams() -> tuple[str, ...]:
    """How names of streams begin that only plug-ins make, whichever of them a node has."""
    return tuple(f"{name}/" for words in brought_words() for name in words.streams)


def _is_deleted(point: "EntryPoint", error: Exception) -> bool:
    """Whether a room of rillnode's own was deleted, which its package names until it is set up."""
    lacking = error.name or "" if isinstance(error, ModuleNotFoundError) else ""
    return lacking.startswith("rillnode.") and f"{point.module}.".startswith(f"{lacking}.")
