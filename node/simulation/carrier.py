"""Declares what pipes carry, and what they ask of their network."""

from collections.abc import Callable
from enum import Enum
from random import Random
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rillnode.node.simulation.pipes import Pipe


class Sign(Enum):
    """A sign that travels beside bytes."""

    OPEN = "open"
    END = "end"
    RESET = "reset"


Item = bytes | Sign


class Carrier(Protocol):
    """The part of a network that a pipe needs."""

    def random(self, purpose: str) -> Random:
        """A source of chance of its own for each purpose."""
        ...

    def arrival(self, pipe: "Pipe", size: int) -> float:
        """When a segment that is sent now arrives."""
        ...

    def carry(self, pipe: "Pipe", when: float, arrive: Callable[[], object]) -> None:
        """Call `arrive` then, in the receiver's process where it runs, or without."""
        ...

    def blocked(self, pipe: "Pipe") -> bool:
        """Whether nothing gets through now; the pipe is told by `Pipe.unblocked`."""
        ...

    def sent(self, pipe: "Pipe", data: bytes) -> None:
        """A process has handed over bytes."""
        ...

    def delivered(self, pipe: "Pipe", data: bytes) -> bytes:
        """Bytes arrive; what of them the receiver is to see."""
        ...
