"""Faults that tests plant: a class of actors fails at a kind of message.

The only state of a process that the engine has, because a test plants a fault before it knows which
systems there will be; nothing is in it unless one has.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from thespian.actors import Actor

When = Literal["before", "after"]


@dataclass(slots=True, eq=False)
class Fault:
    """One planted fault.

    Attributes:
        actor_class: whose actors fail; subclasses too.
        message: the class of messages, or of completed operations, that they fail at; None: any.
        times: how often they still do.
        when: before the message has any effect, or after all that it has at once.
        error: makes what is raised.
        here: whether it strikes where the code runs now; None: everywhere.
        hits: how often it was raised.
    """

    actor_class: type[Actor]
    message: type | None
    times: int
    when: When
    error: Callable[[], BaseException]
    here: Callable[[], bool] | None = None
    hits: int = 0


FAULTS: Final[list[Fault]] = []


def fail_at(actor_class: type[Actor] | None, message: Any, when: When) -> None:
    """Raise what is planted for a message, if anything is."""
    for fault in FAULTS:
        if (
            fault.times > 0
            and fault.when == when
            and actor_class is not None
            and issubclass(actor_class, fault.actor_class)
            and (fault.message is None or isinstance(message, fault.message))
            and (fault.here is None or fault.here())
        ):
            fault.times -= 1
            fault.hits += 1
            raise fault.error()
