"""Serves what only Thespian's API asks for: actors by class and capabilities, status answers."""

import importlib
import inspect
import sys
from datetime import timedelta
from functools import partial
from typing import Any, cast

from thespian.actors import (
    Actor,
    ActorAddress,
    InvalidActorSpecification,
    NoCompatibleSystemForActor,
    Thespian_ActorStatus,
    ThespianGeneration,
)
from thespian.system.timing import ExpirationTimer

from rillnode.actors.engine.cell import Cell, Factory
from rillnode.actors.engine.timers import Timer


def common_capabilities() -> dict[str, Any]:
    """The capabilities that every Thespian system says of itself."""
    return {
        "Python Version": tuple(sys.version_info),
        "Thespian Generation": ThespianGeneration,
        "Thespian Version": "rillnode",
        "Thespian ActorSystem Name": "rillnode",
        "Thespian ActorSystem Version": 1,
        "Thespian Watch Supported": False,
        "AllowRemoteActorSources": "No",
    }


def factory_of(
    actor_class: type[Actor] | str,
    capabilities: dict[str, Any],
    requirements: dict[str, Any] | None,
) -> Factory:
    """Resolve what `createActor` was given into something that makes instances.

    A class takes `capabilities` and `requirements` in its constructor where it names them.

    Raises:
        InvalidActorSpecification: a name without its module.
        ImportError: no such module.
        NoCompatibleSystemForActor: the class refuses these capabilities.
    """
    if isinstance(actor_class, str):
        module, _, name = actor_class.rpartition(".")
        if not module:
            raise InvalidActorSpecification(actor_class)
        actor_class = cast(type[Actor], getattr(importlib.import_module(module), name))
    check = getattr(actor_class, "actorSystemCapabilityCheck", None)
    if check is not None and not check(capabilities, requirements or {}):
        raise NoCompatibleSystemForActor(actor_class, "No compatible system")
    given = {"capabilities": capabilities, "requirements": requirements}
    named = inspect.signature(actor_class).parameters
    arguments = {name: value for name, value in given.items() if name in named}
    return partial(actor_class, **arguments) if arguments else actor_class


def status_of(cell: Cell, now: float) -> Thespian_ActorStatus:
    """Answer a Thespian_StatusReq in an actor's place."""
    status = Thespian_ActorStatus(cell, type(cell.instance).__name__, ActorAddress("/system"))
    for child in cell.children or ():
        status.addChild(child)
    status.addWakeups(
        [
            (cell, ExpirationTimer(timedelta(seconds=max(0.0, timer.due - now))))
            for timer in cell.owned or ()
            if isinstance(timer, Timer)
        ]
    )
    return status
