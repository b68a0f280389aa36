"""The reference of the actors, made of their classes."""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from typing import Final

import rillnode.actors
from rillnode.actors.engine.worker import Worker

_INTRO: Final = """# Actors

Every class of actors of a node, as the status page and `/v1/actors` name them. After a failure an
actor *goes on* with its next message, is *restarted* with a new instance, or *ends* ([what
follows](../explanation/runtime-semantics.md#when-an-actor-fails)). A node cannot do without an
*essential* one ([`on_fatal`](../explanation/runtime-semantics.md#failure)). The
[architecture](../explanation/architecture.md#actors-and-addresses) shows how they work together.
"""

_FATES: Final = {"resume": "goes on", "restart": "is restarted", "stop": "ends"}


def page() -> str:
    """Every actor by its room: what it is, and what follows when it fails."""
    rooms: dict[str, list[type[Worker]]] = {}
    for one in sorted(classes(), key=lambda one: (one.__module__, one.__name__)):
        rooms.setdefault(one.__module__.split(".")[2], []).append(one)
    parts = [_INTRO]
    for room, found in rooms.items():
        parts.append(f"\n## `actors/{room}`\n\n| class | what it is | after a failure it |\n")
        parts.append("|---|---|---|\n")
        for one in found:
            what = " ".join((inspect.getdoc(one) or "").partition("\n\n")[0].split())
            fate = _FATES[one.on_failure] + (", essential" if one.essential else "")
            parts.append(f"| `{one.__name__}` | {what} | {fate} |\n")
    return "".join(parts)


def classes() -> Iterator[type[Worker]]:
    """The classes of which there are actors.

    Left out are those that others only build on, and those that stand for another in traces.
    """
    for module in pkgutil.walk_packages(rillnode.actors.__path__, "rillnode.actors."):
        importlib.import_module(module.name)
    waiting = [one for one in Worker.__subclasses__() if _is_ours(one)]
    while waiting:
        one = waiting.pop()
        heirs = [
            heir for heir in one.__subclasses__() if heir.stands_for is None and _is_ours(heir)
        ]
        waiting += heirs
        if not heirs:
            yield one


def _is_ours(one: type[Worker]) -> bool:
    return one.__module__.startswith("rillnode.actors.")
