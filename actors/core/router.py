"""The router: one table from address bytes to actors, and the envelope that messages travel in.

A router hands a message to the first onward address and changes nothing in it: the worker sees
its own address still first. Messages of one batch that go to the same address travel together, as
one mailbox message, in their order.

Source: the routing rules that released Ockam nodes follow (docs/protocols/ockam.md).
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from rillnode.actors.core.delivery import Delivery, Origin, Slice
from rillnode.actors.core.pauses import Pauses
from rillnode.actors.engine.cell import GONE
from rillnode.actors.engine.system import AsyncioSystemBase, Cell
from rillnode.codecs import native
from rillnode.codecs.errors import ActorError, RequestError, RillnodeError
from rillnode.codecs.events import event_logger
from rillnode.codecs.routing.routes import LOCAL, Address, Route, WireMessage, local

logger = event_logger("rillnode.actors.core.router")

UNKNOWN: Final = RequestError("address.unknown", "No such address, or it is not yours to use")
"""Says of an address that nobody has, and of one that somebody may not use, the same."""

_TEXTS: Final = {
    "actor.failed": "The node failed at this request: its log says why",
    "actor.busy": "Too much waits here: try again",
    "actor.stopped": "What was to do this has ended: try again",
}
"""What peers are told, who need not know what the actors of a node are called."""

Resolve = Callable[[bytes, Origin], Cell | None]
"""Makes the actor of an address that none has yet, or None where nobody may have it."""

Admits = Callable[[bytes, Origin], bool]
"""Tells whether an origin may know what is at an address, or whether anything is."""

Explain = Callable[[bytes, Origin, bytes], RillnodeError]
"""Tells an origin why a guard has kept its payload from an address; it is asked of native ones."""

Refuse = Callable[[bytes, bool, RillnodeError], bytes | None]
"""Says why a payload was not handled, in its own protocol, to an origin that speaks rillnode's own
protocols (True) or does not; None: that protocol has no words for it."""


class Router:
    """The table of a node. All calls on the loop's thread."""

    def __init__(self, system: AsyncioSystemBase) -> None:
        self._system = system
        self._table: dict[bytes, Cell] = {}
        self._resolvers: list[tuple[bytes, Resolve]] = []
        self._stand_ins: list[tuple[bytes, Resolve]] = []
        self._guards: list[tuple[bytes, Admits]] = []
        self._guarded: tuple[bytes, ...] = ()
        self._reasons: list[tuple[bytes, Explain]] = []
        self._keepers: dict[bytes, Admits] = {}
        self._transports: dict[int, Resolve] = {}
        self._refusals: list[tuple[bytes, Refuse]] = []
        self._pauses = Pauses(system.timing.monotonic)
        self.undelivered: Counter[str] = Counter()
        system.outcomes[Delivery] = self._not_handled
        system.handled[Delivery] = Delivery.handled
        system.sizes[Delivery] = Delivery.size
        # Of who has answered last: a connection knows what it encodes for the same route again.
        self._own: Route = (local(b""),)

    def register(self, address: bytes, cell: Cell, admits: Admits | None = None) -> None:
        """Let links reach `cell` under `address`; several addresses may lead to one actor.

        Where `admits` is given it decides who does, as a guard; to others the address is unknown.
        """
        self._table[address] = cell
        if admits is not None:
            self._keepers[address] = admits

    def unregister(self, address: bytes) -> None:
        """Forget an address; harmless when it is not there."""
        self._table.pop(address, None)
        self._keepers.pop(address, None)

    def register_resolver(self, prefix: bytes, resolve: Resolve) -> None:
        """Let `resolve` make the actors of unknown addresses that begin with `prefix`.

        It is registered before the message that asked for it is delivered, so that order is kept.
        After one that was given up for its failures the next follows after a pause.
        """
        self._resolvers.append((prefix, resolve))

    def register_stand_in(self, prefix: bytes, resolve: Resolve) -> None:
        """Let `resolve` find who answers at unknown addresses that begin with `prefix`.

        It is an actor that has addresses of its own: nothing is kept of these, of which there may
        be any number.
        """
        self._stand_ins.append((prefix, resolve))

    def register_guard(self, prefix: bytes, admits: Admits, explain: Explain | None = None) -> None:
        """Let `admits` decide who reaches the local addresses that begin with `prefix`.

        It is asked before anything is looked up, so that who is not admitted cannot tell from
        the answer, its place or its time whether there is an actor. What `explain` says, if it is
        given, must not depend on that either.
        """
        self._guards.append((prefix, admits))
        if explain is not None:
            self._reasons.append((prefix, explain))
        self._guarded = tuple(prefix for prefix, _ in self._guards)

    def register_transport(self, kind: int, resolve: Resolve) -> None:
        """Let `resolve` find the actor for each address of type `kind`, which is not local.

        It is asked for every batch, and what it finds for one origin is not kept for another.
        """
        self._transports[kind] = resolve

    def register_refusal(self, prefix: bytes, refuse: Refuse) -> None:
        """Let `refuse` say what the workers could not do whose local addresses begin with `prefix`.

        Requests to all others get a Failure, where the origin understands that.
        """
        self._refusals.append((prefix, refuse))

    @property
    def table(self) -> Mapping[bytes, Cell]:
        """What leads where, to be looked at."""
        return self._table

    def lookup(self, address: bytes) -> Cell | None:
        """The actor of an address; what has exited is none."""
        cell = self._table.get(address)
        return None if cell is None or cell.exited else cell

    def makes(self, address: bytes) -> bool:
        """Whether an address is of those whose actors are made by their first message."""
        return any(address.startswith(prefix) for prefix, _ in self._resolvers)

    def reach(self, address: bytes, origin: Origin) -> Cell | None:
        """The actor of a local address, made now where its first message makes it.

        None: there is none, or it is not the origin's to use.

        Raises:
            ActorError: `actor.busy`, the one before was given up, and another follows after a
                pause; `retry_seconds` tells how much of it is left.
        """
        cell = self._table.get(address)
        if cell is not None and cell.mailbox is not GONE:
            return cell
        for prefix, resolve in self._resolvers:
            if address.startswith(prefix):
                self._check_pause(address, cell)
                made = resolve(address, origin)
                break
        else:
            made = None
        if made is not None:
            self._table[address] = made
            return made
        self._table.pop(address, None)
        for prefix, resolve in self._stand_ins:
            if address.startswith(prefix):
                return resolve(address, origin)
        return None

    def _check_pause(self, address: bytes, lost: Cell | None) -> None:
        if lost is not None and self._system.given_up(lost):
            self._pauses.begin(address, lost)
        left = self._pauses.left(address) if self._pauses else 0.0
        if left > 0.0:
            text = f"This has failed too often: try again in {left:.1f} s"
            raise ActorError("actor.busy", text, retry_seconds=left)

    def admits(self, address: bytes, origin: Origin) -> bool:
        """Whether guards let an origin know what is at a local address."""
        keeper = self._keepers.get(address)
        if keeper is not None and not keeper(address, origin):
            return False
        for prefix, admits in self._guards:
            if address.startswith(prefix) and not admits(address, origin):
                return False
        return True

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
        self, reason: str, delivery: Delivery, error: RillnodeError = UNKNOWN
    ) -> None:
        """Count messages that reach nobody, and tell an origin that understands it.

        To the peer an unknown address and one that it may not use look the same; another `error`
        is for what it may use and cannot now.
        """
        self._note_undelivered(reason, delivery)
        if delivery.origin.native:
            self._answer(delivery, lambda message: native.failure_for(message.payload, error))

    def keep_out(self, address: bytes, delivery: Delivery) -> None:
        """Count messages that a guard has refused, and tell an origin why that understands it."""
        origin = delivery.origin
        reasons = (one for prefix, one in self._reasons if address.startswith(prefix))
        explain = next(reasons, None) if origin.native else None
        if explain is None:
            self.undeliverable("refused", delivery)
            return

        def told(message: WireMessage) -> bytes | None:
            error = explain(address, origin, message.payload)
            return native.failure_for(message.payload, error)

        self._note_undelivered("refused", delivery)
        self._answer(delivery, told)

    def refuse(self, reason: str, delivery: Delivery, error: RillnodeError) -> None:
        """Count messages that their worker has not handled, and tell who asked.

        Requests of Ockam's protocols are answered in their own words too, so that their askers do
        not wait for nothing: they are known to have come to whom they may ask.
        """
        self._note_undelivered(reason, delivery)
        self._answer(delivery, lambda message: self._refusal(delivery.origin, message, error))

    def _refusal(self, origin: Origin, message: WireMessage, error: RillnodeError) -> bytes | None:
        kind, value = message.onward_route[0]
        if kind == LOCAL:
            for prefix, refuse in self._refusals:
                if value.startswith(prefix):
                    return refuse(message.payload, origin.native, error)
        return native.failure_for(message.payload, error) if origin.native else None

    def _answer(self, delivery: Delivery, answer: Callable[[WireMessage], bytes | None]) -> None:
        """Answer messages, other than those that are answers themselves or await none."""
        answers = [
            WireMessage(message.return_route, (), payload)
            for message in delivery.messages
            if message.onward_route
            and message.return_route
            and (payload := answer(message)) is not None
        ]
        if answers:
            self.route(delivery.origin, answers)

    def _not_handled(self, delivery: Delivery, error: RillnodeError) -> None:
        """Nothing comes of messages: tell who waits.

        What a link's own actor has no room for is answers: their askers ask again over another.
        """
        link = delivery.origin.connection
        if link is not None and error.code == "actor.busy":
            onward = delivery.messages[0].onward_route
            if onward and self._table.get(onward[0].value) is link:
                self._system.exit(link)
        self.refuse(error.code.removeprefix("actor."), delivery, told(error))
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
        try:
            if kind == LOCAL:
                if (value in self._keepers or value.startswith(self._guarded)) and not self.admits(
                    value, origin
                ):
                    self.keep_out(value, delivery)
                    return
                cell = self._table.get(value)
                if cell is None or cell.mailbox is GONE:
                    cell = self.reach(value, origin)
            else:
                resolve = self._transports.get(kind)
                cell = None if resolve is None else resolve(value, origin)
        except ActorError as error:  # of an actor that was given up, or cannot be made
            self.refuse(error.code.removeprefix("actor."), delivery, error)
            return
        if cell is not None:
            if delivery.tracked is not None:
                delivery.tracked.unhandled += 1
            self._system.post(cell, delivery)
        else:
            self.undeliverable("unknown_address", delivery)


def told(error: RillnodeError) -> RillnodeError:
    """An error of the engine as it is told to peers."""
    text = _TEXTS.get(error.code)
    return error if text is None else ActorError(error.code, text)
