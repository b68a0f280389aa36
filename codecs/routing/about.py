"""The messages by which routes are looked up: what is at an address, and which addresses there are.

They are rillnode's own, in the envelope of `codecs/native.py`. Each goes to the address `about` of
the node that is asked; what it is about follows in the onward route, as one local address:

    onward route   [..., 0#about, 0#ST_S_0_sensors]
    about, stop    { request_id: uint }
    watch          { request_id: uint, milliseconds: uint }
    list_routes    { request_id: uint, pattern: string, kind: string, after: data }   (to `about`)
    route          { request_id: uint, route: RouteInfo }
    routes         { request_id: uint, routes: list<RouteInfo>, next_after: data }

The address is not asked itself, because to many everything means something else: a connection and a
peer send on whatever comes, an actor of an application takes any bytes as its own, and a stream at
rest would be woken for the question. So one protocol does for all of them, and costs none of them
anything.
"""

from msgspec import Struct

from rillnode.codecs.bare import UInt


class AboutRequest(Struct):
    """Tell what is at an address."""

    request_id: UInt


class WatchRequest(Struct):
    """Tell when what is at an address ends, or how it is after this long, a minute at most."""

    request_id: UInt
    milliseconds: UInt


class StopRequest(Struct):
    """Have what is at an address stop."""

    request_id: UInt


class ListRoutesRequest(Struct):
    """List addresses whose text, or whose name, a pattern stands for.

    Attributes:
        pattern: `*` stands for any characters, `?` for one.
        kind: of these alone; empty: of every kind.
        after: `next_after` of the answer before; empty: from the beginning.
    """

    request_id: UInt
    pattern: str
    kind: str
    after: bytes


class RouteInfo(Struct):
    """A description of what is at an address.

    Attributes:
        address: the local address on the node that answers: the last hop of its route.
        kind: `stream`, `index`, `subscription`, `link`, `peer`, `sink`, `actor` (an application's),
            `served` (by clients), `alias`, `channel`, or `service`, which is all else of a node.
        name: what people call it: a stream and its partition, the other end of a link.
        actor_class: of its actor; empty while it has none.
        owner: the principal whose it is; empty: the node's.
        parent: the address whose actor answers for it; empty: it has one of its own, or none.
        since: when it was made, ms since 1970; 0: not known.
        state: `idle`; `busy`, messages wait; `resting`, it has no instance until the next message;
            `ended`; of a peer how its link is.
        mailbox: messages that wait for it.
        handled: messages that all actors of its class have handled so far.
        failures: likewise failures.
        restarts: likewise restarts.
        slowest_microseconds: of the longest turn of them.
        stoppable: whether who asks may stop it.
    """

    address: bytes
    kind: str
    name: str
    actor_class: str
    owner: str
    parent: bytes
    since: UInt
    state: str
    mailbox: UInt
    handled: UInt
    failures: UInt
    restarts: UInt
    slowest_microseconds: UInt
    stoppable: bool


class RouteResponse(Struct):
    """Answers AboutRequest and WatchRequest."""

    request_id: UInt
    route: RouteInfo


class RoutesResponse(Struct):
    """Answers ListRoutesRequest; `next_after` is empty where there are no more."""

    request_id: UInt
    routes: list[RouteInfo]
    next_after: bytes
