"""Declares what plug-ins add to the file of a scenario: tables, each of which asks for a part."""

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Protocol

from msgspec import Meta, Struct

from rillnode.node.config.paths import KeyPath

Whole = Annotated[int, Meta(ge=0, le=10_000)]
Some = Annotated[int, Meta(ge=1, le=10_000)]


class Scenario(Protocol):
    """The scenario of a run, as far as plug-ins look at it."""

    @property
    def nodes(self) -> int:
        """How many nodes have clients: `n0`, `n1` and so on."""
        ...

    @property
    def partitions(self) -> int:
        """Partitions of each stream."""
        ...

    @property
    def has_faults(self) -> bool:
        """Whether anything goes wrong."""
        ...


class SimulatedTable(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of a scenario that asks for a plug-in's part in the run.

    Packages name theirs as entry points of the group `rillnode.scenarios`, by the table's name. As
    with a `PlugInTable`, its module imports no more than describing it takes, and its docstring
    describes it and its keys to users.
    """

    table: ClassVar[str]
    """The table's name in the file."""
    plug_in: ClassVar[str]
    """The name of the plug-in whose `simulated` makes the part."""
    kinds: ClassVar[Mapping[str, str]] = {}
    """Keys that say how many clients there are of a kind, each with what stands before the numbers
    in their names, which is no other kind's."""

    @property
    def needs_peers(self) -> bool:
        """Whether its clients go through their node to the next one, which has to be its peer."""
        return False

    def problems(self, scenario: Scenario) -> Iterator[tuple[KeyPath, str]]:
        """What is wrong with a scenario that has it, each with its key; types have been checked."""
        return iter(())


class SharingTable(SimulatedTable, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One that has all nodes share a stream, handed on between neighbours.

    The part is one of `SharedNodes`.

    Attributes:
        degree: Neighbours of each node.
    """

    more_nodes: ClassVar[tuple[str, ...]] = ()
    """Names of nodes without clients that the part adds."""

    degree: Some
