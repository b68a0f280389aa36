"""Lets an actor describe itself to those who look it up, beside what its cell shows."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from rillnode.actors.engine.cell import Cell

OpenTo = Literal["all", "granted", "owner"]
"""Who but administrators may see it: whoever reaches it at all; who is granted to send to its
address; or whose it is alone."""


class Described(NamedTuple):
    """A description of what is at one address of an actor.

    Attributes:
        kind: as `about` has it.
        name: what people call it.
        owner: the principal whose it is; empty: the node's.
        origin: the link that it lives on: what is anonymous is its own link's alone.
        made_at: when it was made, by the system's monotonic clock; None: not known.
        state: empty: what the cell shows.
        open_to: who may see it.
        stop: ends it at its address; None: that cannot be.
        kept: what to do where it cannot be stopped, for people.
        cell: another one than that at the address; for what has none of its own, its parent's.
        parent: the address of the actor that answers for it.
    """

    kind: str = "service"
    name: str = ""
    owner: str = ""
    origin: object = None
    made_at: float | None = None
    state: str = ""
    open_to: OpenTo = "all"
    stop: Callable[[], object] | None = None
    kept: str = "the node needs it"
    cell: "Cell | None" = None
    parent: bytes = b""


SERVICE = Described()
"""What the node itself offers to all."""

PRIVATE = Described(open_to="owner")
"""What it has for administrators."""
