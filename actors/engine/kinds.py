"""What one actor system knows of an actor class: its policy, and what its actors did."""

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, get_args

from thespian.actors import Actor

from rillnode.actors.engine.worker import OnFailure, Worker
from rillnode.codecs.limits import MAILBOX_MESSAGES_MAX

if TYPE_CHECKING:
    from rillnode.actors.engine.cell import Cell

TURN_BOUNDS: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0,
)  # fmt: skip
"""Upper bounds of the histogram of turns, seconds. Own choice: a pump's slice is 0.5 ms."""

TURN_USUAL_SECONDS: Final = TURN_BOUNDS[0]
"""Turns up to this are only counted: nearly all are."""

_POLICIES_KEPT: Final = 1_024

UNKNOWN: Final = "unknown"
"""Name of the class of actors whose factory has not made an instance yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorStats:
    """What the actors of one class did, and what there is of them.

    Attributes:
        cells: actors that exist, instances or not.
        instances: actors that have an instance now.
        handled: messages taken out of mailboxes.
        failures: handlers that raised; `failure_reasons` counts them by exception class.
        last_failure: the newest failure's exception class and text.
        mailbox_depth: messages waiting now, in all mailboxes together.
        turns: how many turns took up to each of `TURN_BOUNDS`, and last those that took longer.
        turn_seconds: what all turns took together.
        parent: the class that made the newest of them; None for actors without a parent.
    """

    cells: int
    instances: int
    handled: int
    failures: int
    failure_reasons: dict[str, int]
    last_failure: str
    restarts: int
    mailbox_depth: int
    slowest_handler_seconds: float
    turns: list[int]
    turn_seconds: float
    parent: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How one actor class is to be treated, the same in all systems of a process; see `Worker`.

    It is read from class attributes of any Thespian Actor. One that sets none is resumed after a
    failure, as Thespian does.

    Attributes:
        name: of the class that it counts as.
        is_worker: whether its instances have the hooks of `Worker`.
    """

    name: str
    is_worker: bool
    mailbox_messages_max: int
    on_failure: OnFailure
    restarts_max: int
    restart_window_seconds: float
    idle_seconds: float | None

    @property
    def lasting(self) -> bool:
        """Whether a cell's first instance is also its last."""
        return self.on_failure != "restart" and self.idle_seconds is None


@lru_cache(_POLICIES_KEPT)
def _policy_of(actor_class: type[Actor] | None) -> Policy:
    """The policy of an actor class; None: of factories that have not shown theirs.

    Raises:
        ValueError: its `on_failure` is none that there is.
    """
    policy: Any = actor_class
    name = UNKNOWN
    if actor_class is not None:
        counted: type[Actor] = getattr(policy, "stands_for", None) or actor_class
        name = f"{counted.__module__}.{counted.__qualname__}"
    on_failure: OnFailure = getattr(policy, "on_failure", "resume")
    if on_failure not in get_args(OnFailure):
        raise ValueError(f"{name}.on_failure is {on_failure!r}, not one of {get_args(OnFailure)}")
    return Policy(
        name=name,
        is_worker=actor_class is not None and issubclass(actor_class, Worker),
        mailbox_messages_max=getattr(policy, "mailbox_messages_max", MAILBOX_MESSAGES_MAX),
        on_failure=on_failure,
        restarts_max=getattr(policy, "restarts_max", Worker.restarts_max),
        restart_window_seconds=getattr(
            policy, "restart_window_seconds", Worker.restart_window_seconds
        ),
        idle_seconds=getattr(policy, "idle_seconds", None),
    )


class ActorKind:
    """The counters of one actor class in one system.

    Attributes:
        awake: cells to look at when idle instances are sought; None while no look is scheduled.
        turns: turns that were taken.
        turn_seconds: what they took together.
        long_turns: those above `TURN_USUAL_SECONDS`, by the place of the bound in `TURN_BOUNDS`;
            None while there are none.
        failure_reasons: failures by exception class; None while there are none.
        parent: the kind of the newest instance's parent.
    """

    __slots__ = (
        "awake",
        "cells",
        "failure_reasons",
        "handled",
        "instances",
        "last_failure",
        "long_turns",
        "parent",
        "policy",
        "restarts",
        "slowest_seconds",
        "turn_seconds",
        "turns",
    )

    def __init__(self, actor_class: type[Actor] | None) -> None:
        hashable: Any = actor_class  # a class is, although its type does not say so
        self.policy = _policy_of(hashable)
        self.cells = 0
        self.instances = 0
        self.handled = 0
        self.restarts = 0
        self.slowest_seconds = 0.0
        self.turns = 0
        self.turn_seconds = 0.0
        self.long_turns: dict[int, int] | None = None
        self.failure_reasons: Counter[str] | None = None
        self.last_failure = ""
        self.awake: list[Cell] | None = None
        self.parent: ActorKind | None = None

    def failed(self, error: BaseException) -> None:
        """Count a failure and keep its reason."""
        if self.failure_reasons is None:
            self.failure_reasons = Counter()
        self.failure_reasons[type(error).__name__] += 1
        self.last_failure = f"{type(error).__name__}: {error}"

    def took(self, seconds: float) -> None:
        """Count a turn."""
        self.turns += 1
        self.turn_seconds += seconds
        if seconds > TURN_USUAL_SECONDS:
            self.took_long(seconds)

    def took_long(self, seconds: float) -> None:
        """Count a turn that was not usual by how long it was."""
        place = bisect_left(TURN_BOUNDS, seconds)
        if self.long_turns is None:
            self.long_turns = {}
        self.long_turns[place] = self.long_turns.get(place, 0) + 1

    def stats(self, mailbox_depth: int) -> ActorStats:
        """The counters as they are now."""
        reasons = dict(self.failure_reasons or Counter[str]())
        long_turns = self.long_turns or {}
        return ActorStats(
            cells=self.cells,
            instances=self.instances,
            handled=self.handled,
            failures=sum(reasons.values()),
            failure_reasons=reasons,
            last_failure=self.last_failure,
            restarts=self.restarts,
            mailbox_depth=mailbox_depth,
            slowest_handler_seconds=self.slowest_seconds,
            turns=[
                self.turns - sum(long_turns.values()),
                *(long_turns.get(place, 0) for place in range(1, len(TURN_BOUNDS) + 1)),
            ],
            turn_seconds=self.turn_seconds,
            parent=None if self.parent is None else self.parent.policy.name,
        )


def class_of(factory: object) -> type[Actor] | None:
    """The class that a factory makes instances of, where that can be told without calling it."""
    made = factory.func if isinstance(factory, partial) else factory
    return made if isinstance(made, type) and issubclass(made, Actor) else None
