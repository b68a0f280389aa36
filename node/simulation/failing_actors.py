"""Actors that fail in a simulation: which class, and at which of a node's messages."""

import asyncio
from collections.abc import Callable, Iterable
from random import Random
from typing import Final

from thespian.actors import Actor

from rillnode.actors.apps.handling import HostedActor
from rillnode.actors.engine.faults import FAULTS, Fault, When
from rillnode.actors.engine.worker import Worker
from rillnode.node.testing.failing import PlantedFailure, actor_classes

TIMES_MAX: Final = 3
"""How often a drawn class fails: no more than it is started anew for."""


def classes_named(name: str) -> list[type[Worker]]:
    """The classes of actors with a name, or whose name with their modules ends so."""
    return [one for one in actor_classes() if _is_named(one, name)]


def _is_named(actor_class: type[Actor], name: str) -> bool:
    full = f"{actor_class.__module__}.{actor_class.__qualname__}"
    return f".{full}".endswith(f".{name}")


def plant(
    host: str,
    living: Iterable[type[Actor] | None],
    chance: Random,
    struck: Callable[[], object],
    *,
    actor: str | None = None,
    when: When | None = None,
    times: int | None = None,
) -> Callable[[], None]:
    """Let actors of one class fail on one host; return what ends that.

    Args:
        host: whose process.
        living: the classes of actors that there are on it; those of an application, if there are
            any, rather than the node's.
        chance: decides what is left open.
        struck: called with each message that fails.
        actor: name of the class; None: any of the living.
        when: as in `rillnode.testing.fail`.
        times: how often.
    """
    workers = [one for one in living if one is not None and issubclass(one, Worker)]
    own: list[type[Worker]] = [one for one in workers if issubclass(one, HostedActor)]
    own = own or [one for one in workers if one.__module__.startswith("rillnode.")]
    known = own if actor is None else [one for one in own if _is_named(one, actor)]
    known = known or ([] if actor is None else classes_named(actor))
    place, failures = chance.random(), chance.randint(1, TIMES_MAX)
    moment: When = "after" if chance.random() < 0.5 else "before"
    if not known:
        return lambda: None
    known.sort(key=lambda one: (one.__module__, one.__qualname__))
    failing = known[int(place * len(known))]
    moment = when or moment

    def failure() -> PlantedFailure:
        struck()
        return PlantedFailure(f"planted in {failing.__name__} of {host}, {moment} a message")

    fault = Fault(
        failing,
        None,
        times or failures,
        moment,
        failure,
        here=lambda: getattr(asyncio.get_running_loop(), "name", None) == host,
    )
    FAULTS.append(fault)

    def end() -> None:
        if fault in FAULTS:
            FAULTS.remove(fault)

    return end
