"""Checks what a node still has of clients that are long gone.

What is kept for nobody is memory that is lost at each connection, and what was counted for somebody
and is not given back stops a link one day. No client sees either in a short run.
"""

from collections import deque
from collections.abc import Iterator
from functools import cache
from typing import Any, Final, cast

from rillnode.actors.core.links.connection import ConnectionActor
from rillnode.actors.engine.cell import GONE, Cell
from rillnode.actors.engine.system import AsyncioSystemBase
from rillnode.node.observation import Observation
from rillnode.transports.groups import LinkGroup
from rillnode.transports.tcp import TcpListener
from rillnode.transports.web_server import WebServer

FOLLOWING: Final = "NeighboursActor"
"""Actors that follow a stream each, whether there are clients or not."""

OF_CLIENTS: Final = (
    "SubscriptionActor", "StreamWatchActor", "QueueActor", "ServedActor", "GroupActor",
    "ResendingActor", "StreamrConnection", "ResendActor",
)  # fmt: skip
"""Actors that there are for somebody who is connected, and for nobody else."""


def subscriptions(observed: Observation) -> int:
    """How many subscriptions native clients have at a node, as workers and as members too."""
    found = observed.system.stats().items()
    subscribed = sum(stats.cells for name, stats in found if name.endswith(".SubscriptionActor"))
    return subscribed + observed.members + sum(one.workers for one in observed.queues)


def leftovers(observed: Observation, sockets: int) -> Iterator[str]:
    """What a node has that it should not have when nobody uses it.

    Args:
        observed: the node; all that it keeps links to are other nodes.
        sockets: its process has open.
    """
    found = {name.rpartition(".")[2]: stats for name, stats in observed.system.stats().items()}
    for name in OF_CLIENTS:
        if name in found and found[name].cells:
            yield f"{found[name].cells} {name} for clients that are gone"
    followed = found[FOLLOWING].cells if FOLLOWING in found else 0
    awake = found["StreamActor"].instances if "StreamActor" in found else 0
    if awake > followed:
        yield f"{awake} instances of StreamActor, of which {followed} are followed"
    for name, listener in observed.parts.links.items():
        if isinstance(listener, WebServer) and listener.link_count + listener.connection_count:
            links, others = listener.link_count, listener.connection_count
            yield f"{links} WebSockets and {others} other connections of {name}"
        yield from _of_links(name, listener.group) if isinstance(listener, TcpListener) else ()
    channels = observed.of_plug_ins().get("channels")
    if channels is not None and channels["open"]:
        yield f"{channels['open']} secure channels that nobody uses"
    for address, cell in observed.router.table.items():
        if cell.mailbox is GONE:
            yield f"the address {address!r} of an actor that has ended"
    yield from remembered(observed.system)
    inside = 0
    for cell in observed.connections:
        actor = cell.instance
        if isinstance(actor, ConnectionActor):
            account = actor.origin
            inside += account.link is not None and account.link.info.transport == "memory"
            if account.reserved_bytes or actor.unhandled:
                yield (
                    f"{account.reserved_bytes} bytes and {actor.unhandled} batches that count "
                    f"for {account.principal[:22]} though nothing is under way"
                )
    if len(observed.connections) - inside > sockets:
        yield f"{len(observed.connections) - inside} connections on {sockets} sockets"
    if observed.store.pending_bytes:
        yield f"{observed.store.pending_bytes} bytes that count as not written yet"


def _of_links(name: str, group: LinkGroup) -> Iterator[str]:
    """What a listener counts for links that are gone: at its limits it takes no more of them."""
    if held := group.unfinished.held_bytes:
        yield f"{held} bytes of messages of {name} that nobody ends"
    counted = sum(group._per_host.values())  # pyright: ignore[reportPrivateUsage]
    if counted != len(group):
        yield f"{counted} links of {name} by their hosts, of which there are {len(group)}"


_PLAIN: Final = frozenset((bytes, str, int, float, bool, type(None)))
_OURS: Final = "rillnode.actors."

UNDER_WAY: Final = frozenset(
    (
        "_held_bytes",
        "_outgoing_bytes",
        "_waiting_bytes",
        "kept_bytes",
        "reading_bytes",
        "reserved_bytes",
        "unhandled",
        "waiting",
    )
)
"""Numbers of what is under way, wherever actors keep such."""


def remembered(system: AsyncioSystemBase) -> Iterator[str]:
    """What the actors of a node have of what is over, for people.

    What an actor keeps of another it must let go of when that one ends; and what it counts as under
    way must be nothing once all is quiet, or one day it takes no more.
    """
    seen = {id(system.dead_letters)}  # they are for people to look at, and few are kept
    # Those that failed too often are known for a while, to who still has their address.
    seen.add(id(system._supervision))  # pyright: ignore[reportPrivateUsage]
    # Whose idle time is looked for is let go of when that is over, which may be long.
    seen.update(id(awake) for awake in system.life.passivation.awake.values())
    for cell in _cells(system):
        for name, value in _attributes(cell.instance):
            ended, where = 0, f"in {name} of {type(cell.instance).__name__}"
            for inner, found in _parts(name, value, seen):
                if type(found) is Cell:
                    ended += found.mailbox is GONE
                elif inner in UNDER_WAY and isinstance(found, int) and found:
                    yield f"{inner} {found} {where}, though nothing is under way"
            if ended:
                yield f"{ended} actors that have ended {where}"


def holding(system: AsyncioSystemBase, kind: type) -> Iterator[str]:
    """The actors of a node that hold something of a kind, each by the name of its class."""
    seen = {id(system.dead_letters)}
    for cell in _cells(system):
        parts = (_parts(*one, seen) for one in _attributes(cell.instance))
        if any(type(found) is kind for one in parts for _, found in one):
            yield type(cell.instance).__name__


def _cells(system: AsyncioSystemBase) -> Iterator[Cell]:
    cells = list(system.life.roots)
    for cell in cells:
        cells += cell.children or ()
        yield cell


def _parts(name: str, value: object, seen: set[int]) -> Iterator[tuple[str, object]]:
    """All that an actor's attribute leads to, each with the name of the attribute that has it.

    What was `seen` before leads nowhere.
    """
    left: list[tuple[str, Any]] = [(name, value)]
    while left:
        name, one = left.pop()
        yield name, one
        kind = cast(Any, type(one))
        if kind in _PLAIN or kind is Cell or id(one) in seen:
            continue
        seen.add(id(one))
        if issubclass(kind, dict):
            inside = (*one, *one.values())
        elif issubclass(kind, list | tuple | set | frozenset | deque):
            inside = tuple(one)
        elif kind.__module__.startswith(_OURS):
            left += _attributes(one)
            continue
        else:
            continue
        left += [("", item) for item in inside if type(item) not in _PLAIN]


def _attributes(thing: object) -> Iterator[tuple[str, Any]]:
    own: dict[str, Any] | None = getattr(thing, "__dict__", None)
    if own:
        yield from own.items()
    for name in _slots(cast(Any, type(thing))):
        try:
            yield name, getattr(thing, name)
        except AttributeError:
            continue  # it has no value yet


@cache
def _slots(kind: type) -> tuple[str, ...]:
    """The slots of a class and of those that it inherits."""
    found: list[str] = []
    for one in kind.__mro__:
        slots = one.__dict__.get("__slots__", ())
        found += (slots,) if isinstance(slots, str) else slots
    return tuple(name for name in found if not name.startswith("__"))
