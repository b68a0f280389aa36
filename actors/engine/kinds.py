"""Keeps a system's knowledge of each actor class: its policy, and what its actors did."""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from types import UnionType
from typing import Any, ClassVar, Final, Literal, Union, get_args, get_origin, get_type_hints

from thespian.actors import Actor, ActorSystemMessage

from rillnode.codecs.limits import MAILBOX_BYTES_MAX, MAILBOX_MESSAGES_MAX

OnFailure = Literal["resume", "restart", "stop"]

RESTARTS_MAX: Final = 5

TURN_BOUNDS: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0,
)  # fmt: skip
"""Upper bounds of the histogram of turns, seconds. Own choice: a pump's slice is 0.5 ms."""

TURN_USUAL_SECONDS: Final = TURN_BOUNDS[0]
"""Turns up to this are only counted: nearly all are."""

_CLASSES_KEPT: Final = 1_024

UNKNOWN: Final = "unknown"
"""Name of the class of actors whose factory has not made an instance yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorStats:
    """The figures of one class of actors.

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


def message_types(actor_class: type[Actor] | None) -> tuple[type, ...] | None:
    """The classes of messages that an actor class declares to take; None: it takes any.

    A `Worker` declares them by the annotation of its handler's `message`: a class, or a union.

    Raises:
        NameError: the annotation names what its module does not have at run time.
    """
    if not getattr(actor_class, "is_worker", False):
        return None
    handle: Any = getattr(actor_class, "handle", None)
    hints = get_type_hints(handle)
    declared = hints.get("message", object)
    found = tuple(_classes_of(declared))
    return None if object in found else found


def _classes_of(declared: Any) -> list[type]:
    if get_origin(declared) in (Union, UnionType):
        return [one for part in get_args(declared) for one in _classes_of(part)]
    origin = get_origin(declared) or declared
    return [origin if isinstance(origin, type) and origin is not Any else object]


# A class is hashable, although its type does not say so.
_declared_by: Final[Callable[[Any], tuple[type, ...] | None]] = lru_cache(_CLASSES_KEPT)(
    message_types
)


class Policy:
    """The treatment of classes that say nothing of it: Thespian's.

    Any class of actors may set each of these; `Worker` says what they mean.
    """

    is_worker: ClassVar[bool] = False
    mailbox_messages_max: ClassVar[int] = MAILBOX_MESSAGES_MAX
    mailbox_bytes_max: ClassVar[int] = MAILBOX_BYTES_MAX
    spare: ClassVar[Mapping[type, int]] = {}
    attempts: ClassVar[int] = 2
    interleaves: ClassVar[bool] = False
    handlers_max: ClassVar[int | None] = None
    essential: ClassVar[bool] = False
    on_failure: ClassVar[OnFailure] = "resume"
    restarts_max: ClassVar[int] = RESTARTS_MAX
    restart_window_seconds: ClassVar[float] = 60.0
    idle_seconds: ClassVar[float | None] = None
    stops_when_idle: ClassVar[bool] = False
    ends_when_idle: ClassVar[bool] = False
    stands_for: ClassVar[type[Actor] | None] = None


class ActorKind(Policy):
    """One actor class in one system: its policy, and its counters, see `ActorStats`.

    Attributes:
        actor_class: None stands for factories that have not shown theirs.
        name: of the class that it counts as.
        declares: the classes of messages that its handler declares; None: any.
        spare_messages: how many more than `mailbox_messages_max` may wait: all of `spare`, and one
            of each class that can be merged.
        plain: those and the classes below them, as far as such messages have come, without those of
            the system's own messages: a handler is given them as they are.
        turns: turns that were taken.
        long_turns: those above `TURN_USUAL_SECONDS`, by the place of the bound in `TURN_BOUNDS`.
        parent: the kind of the newest instance's parent.

    Raises:
        ValueError: its `on_failure` is none that there is.
    """

    __slots__ = (
        *Policy.__annotations__, "actor_class", "cells", "declares", "failure_reasons", "handled",
        "instances", "last_failure", "long_turns", "name", "parent", "plain", "restarts",
        "slowest_seconds", "spare_messages", "turn_seconds", "turns",
    )  # fmt: skip

    def __init__(self, actor_class: type[Actor] | None) -> None:
        for asked in Policy.__annotations__:
            setattr(self, asked, getattr(actor_class, asked, getattr(Policy, asked)))
        self.actor_class = actor_class
        counted = self.stands_for or actor_class
        self.name = UNKNOWN if counted is None else f"{counted.__module__}.{counted.__qualname__}"
        if self.on_failure not in get_args(OnFailure):
            raise ValueError(
                f"{self.name}.on_failure is {self.on_failure!r}, not one of {get_args(OnFailure)}"
            )
        self.declares = _declared_by(actor_class)
        merged = sum(hasattr(one, "merged") for one in self.declares or ())
        self.spare_messages = sum(self.spare.values()) + merged
        self.plain: set[type] = set()
        self.cells = self.instances = self.handled = self.restarts = self.turns = 0
        self.slowest_seconds = self.turn_seconds = 0.0
        self.long_turns: dict[int, int] = {}
        self.failure_reasons: dict[str, int] = {}
        self.last_failure = ""
        self.parent: ActorKind | None = None

    def admits(self, message: object) -> bool:
        """Whether messages of this class are declared; where they are plain they are known then."""
        if self.declares is not None and not isinstance(message, self.declares):
            return False
        if not isinstance(message, ActorSystemMessage):
            self.plain.add(type(message))
        return True

    def failed(self, error: BaseException) -> None:
        """Count a failure and keep its reason."""
        name = type(error).__name__
        self.failure_reasons[name] = self.failure_reasons.get(name, 0) + 1
        try:
            text = str(error)
        except Exception:  # it may be anybody's class
            text = "which cannot be shown"
        self.last_failure = f"{name}: {text}"

    def took_long(self, seconds: float) -> None:
        """Count a turn that was not usual by how long it was."""
        place = bisect_left(TURN_BOUNDS, seconds)
        self.long_turns[place] = self.long_turns.get(place, 0) + 1

    def stats(self, mailbox_depth: int) -> ActorStats:
        """The counters as they are now."""
        long_turns = self.long_turns
        return ActorStats(
            cells=self.cells,
            instances=self.instances,
            handled=self.handled,
            failures=sum(self.failure_reasons.values()),
            failure_reasons=dict(self.failure_reasons),
            last_failure=self.last_failure,
            restarts=self.restarts,
            mailbox_depth=mailbox_depth,
            slowest_handler_seconds=self.slowest_seconds,
            turns=[
                self.turns - sum(long_turns.values()),
                *(long_turns.get(place, 0) for place in range(1, len(TURN_BOUNDS) + 1)),
            ],
            turn_seconds=self.turn_seconds,
            parent=None if self.parent is None else self.parent.name,
        )


def class_of(factory: object) -> type[Actor] | None:
    """The class that a factory makes instances of, where that can be told without calling it."""
    made = factory.func if isinstance(factory, partial) else factory
    return made if isinstance(made, type) and issubclass(made, Actor) else None
