"""Faults that tests of single actors plant."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from thespian.actors import Actor

from rillnode.actors.engine.faults import FAULTS, Fault, When

WHEN: Final[tuple[When, ...]] = ("before", "after")


@contextmanager
def fault(
    actor_class: type[Actor], message: type | None, when: When = "before", times: int = 1
) -> Generator[Fault]:
    """Have a class of actors fail at a kind of message."""
    planted = Fault(actor_class, message, times, when, lambda: RuntimeError("planted"))
    FAULTS.append(planted)
    try:
        yield planted
    finally:
        FAULTS.remove(planted)
