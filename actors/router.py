"""The router: one table from address bytes to actors, and the envelope that messages travel in.

A router hands a message to the first onward address and changes nothing in it: the worker sees
its own address still first. Messages of one batch that go to the same address travel together, as
one mailbox message, in their order.

Source: the routing rules that released Ockam nodes follow (docs/protocols/ockam.md).
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from rillnode.actors.delivery import Delivery, Origin, Slice
from rillnode.actors.engine.cell import GONE
from rillnode.actors.engine.system import AsyncioSystemBase, Cell
from rillnode.codecs import native
from rillnode.codecs.errors import RillnodeError
from rillnode.codecs.ockam.routing import LOCAL, Address, Route, WireMessage, local

logger = logging.getLogger("rillnode.actors.router")

UNKNOWN_TEXT: Final = "No such address, or it is not yours to use"


Resolve = Callable[[bytes, Origin], Cell | None]
"""Makes the actor of an address that none has yet, or None where nobody may have it."""

Admits = Callable[[bytes, Origin], bool]
"""Tells whether an origin may know what is at an address, or whether anything is."""


class Router:
    """The table of a node. All calls on the loop's thread."""

    def __init__(self, system: AsyncioSystemBase) -> None:
        self._system = system
        self._table: dict[bytes, Cell] = {}
        self._resolvers: list[tuple[bytes, Resolve]] = []
        self._guards: list[tuple[bytes, Admits]] = []
        self._guarded: tuple[bytes, ...] = ()
        self._transports: dict[int, Resolve] = {}
        self.undelivered: Counter[str] = Counter()
        system.outcomes[Delivery] = self._not_handled
        system.handled[Delivery] = Delivery.handled
        system.sizes[Delivery] = Delivery.size
        # Of who has answered last: a connection knows what it encodes for the same route again.
        self._own: Route = (local(b""),)

    def register(self, address: bytes, cell: Cell) -> None:
        """Let links reach `cell` under `address`; several addresses may lead to one actor."""
        self._table[address] = cell

    def unregister(self, address: bytes) -> None:
        """Forget an address; harmless when it is not there."""
        self._table.pop(address, None)

    def register_resolver(self, prefix: bytes, resolve: Resolve) -> None:
        """Let `resolve` make the actors of unknown addresses that begin with `prefix`.

        It is registered before the message that asked for it is delivered, so that order is kept.
        """
        self._resolvers.append((prefix, resolve))

    def register_guard(self, prefix: bytes, admits: Admits) -> None:
        """Let `admits` decide who reaches the local addresses that begin with `prefix`.

        It is asked before anything is looked up, so that who is not admitted cannot tell from
        the answer, its place or its time whether there is an actor.
        """
        self._guards.append((prefix, admits))
        self._guarded = tuple(prefix for prefix, _ in self._guards)

    def register_transport(self, kind: int, resolve: Resolve) -> None:
        """Let `resolve` find the actor for each address of type `kind`, which is not local.

        It is asked for every batch, and what it finds for one origin is not kept for another.
        """
        self._transports[kind] = resolve

    @property
    def table(self) -> Mapping[bytes, Cell]:
        """What leads where, to be looked at."""
        return self._table

    def lookup(self, address: bytes) -> Cell | None:
        """The actor of an address; what has exited is none."""
        cell = self._table.get(address)
        return None if cell is None or cell.exited else cell

    def route(
        self, origin: Origin, messages: Sequence[WireMessage], *, tracked: Slice | None = None
    ) -> None:
        """Hand each message to the actor of its first onward address.

        Order is kept between messages for the same address. What has no actor is counted, and a
        native origin is told. `tracked` counts how many batches of them are not handled.
        """
        start = 0
        count = len(messages)
        if count == 1:  # as mostly, where messages travel one by one
            (message,) = messages
            onward = message.onward_route
            self._deliver(onward[0] if onward else None, Delivery(origin, messages, tracked))
            return
        while start < count:
            onward = messages[start].onward_route
            first = onward[0] if onward else None
            end = start + 1
            while end < count:
                other = messages[end].onward_route
                if other is not onward and (other[0] if other else None) != first:
                    break
                end += 1
            run = messages if end - start == count else messages[start:end]
            self._deliver(first, Delivery(origin, run, tracked))
            start = end

    def reply(
        self, origin: Origin, own_address: bytes, answers: Sequence[tuple[Route, bytes]]
    ) -> None:
        """Send answers: onward = the request's return route, return = the answering worker."""
        own = self._own
        if own[0].value is not own_address:
            own = self._own = (local(own_address),)
        self.route(origin, [WireMessage(onward, own, payload) for onward, payload in answers])

    def undeliverable(
        self,
        reason: str,
        delivery: Delivery,
        code: str = "address.unknown",
        text: str = UNKNOWN_TEXT,
    ) -> None:
        """Count messages that reach nobody, and tell an origin that understands it.

        To the peer an unknown address and one that it may not use look the same; another `code`
        is for what it may use and cannot now.
        """
        self._note_undelivered(reason, delivery)
        if not delivery.origin.native:
            return
        for message in delivery.messages:
            if not message.onward_route or not message.return_route:
                continue  # an answer to nobody, or one that nobody waits for: no answer to it
            failure = native.failure_for(message.payload, code, text)
            if failure is not None:
                answer = WireMessage(message.return_route, (), failure)
                self.route(delivery.origin, [answer])

    def _not_handled(self, delivery: Delivery, error: RillnodeError) -> None:
        """Nothing comes of messages: tell who waits."""
        if error.code == "actor.failed":
            text = "The node failed at this request: its log says why"
            self.undeliverable("failed", delivery, error.code, text)
        elif error.code == "actor.busy":
            self.undeliverable("busy", delivery, error.code, "Too much waits here: try again")
        else:
            self.undeliverable("unknown_address", delivery)  # as if they had come a little later
        delivery.handled()

    def _note_undelivered(self, reason: str, delivery: Delivery) -> None:
        self.undelivered[reason] += len(delivery.messages)
        logger.debug("undelivered", extra={"reason": reason, "messages": len(delivery.messages)})

    def _deliver(self, address: Address | None, delivery: Delivery) -> None:
        origin = delivery.origin
        if address is None:
            self.undeliverable("no_address", delivery)
            return
        kind, value = address
        if kind == LOCAL:
            if value.startswith(self._guarded) and not self._admits(value, origin):
                self.undeliverable("refused", delivery)
                return
            cell = self._table.get(value)
            if cell is None or cell.mailbox is GONE:
                # One that was given up for its failures: its address may have another.
                self._table.pop(value, None)
                cell = self._resolve(value, origin)
        else:
            resolve = self._transports.get(kind)
            cell = None if resolve is None else resolve(value, origin)
        if cell is not None:
            if delivery.tracked is not None:
                delivery.tracked.unhandled += 1
            self._system.post(cell, delivery)
        else:
            self.undeliverable("unknown_address", delivery)

    def _admits(self, address: bytes, origin: Origin) -> bool:
        for prefix, admits in self._guards:
            if address.startswith(prefix) and not admits(address, origin):
                return False
        return True

    def _resolve(self, address: bytes, origin: Origin) -> Cell | None:
        for prefix, resolve in self._resolvers:
            if address.startswith(prefix):
                cell = resolve(address, origin)
                if cell is not None:
                    self._table[address] = cell
                return cell
        return None
