"""Checks what a node still has of clients that are long gone.

What is kept for nobody is memory that is lost at each connection, and what was counted for somebody
and is not given back stops a link one day. No client sees either in a short run.
"""

from collections.abc import Iterator
from typing import Final

from rillnode.actors.core.links.connection import ConnectionActor
from rillnode.actors.engine.cell import GONE
from rillnode.node.observation import Observation
from rillnode.node.simulation.remembered import remembered
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
