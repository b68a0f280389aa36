"""Answers one request of a link again and again, until it ends: subscriptions and watches do.

Such an actor has an address of its own, which its asker learns with the first answer; it ends with
the link, on request, or for a reason that its asker is told.
"""

from abc import abstractmethod
from typing import ClassVar

from rillnode.actors.core.delivery import Delivery, Origin
from rillnode.actors.core.streams.context import StreamContext
from rillnode.actors.engine.described import Described
from rillnode.actors.engine.worker import Worker
from rillnode.codecs import native
from rillnode.codecs.errors import CodecError
from rillnode.codecs.requests import decode_request
from rillnode.codecs.routing.routes import Route


class Answering(Worker):
    """One request of a link that is answered until it ends.

    Attributes:
        prefix: begins its addresses.
        called: what it is, for its asker.
        anew: what that one may do again, when the node has ended it.
    """

    on_failure = "stop"
    prefix: ClassVar[bytes]
    called: ClassVar[str]
    anew: ClassVar[str]

    def __init__(
        self, context: StreamContext, origin: Origin, return_route: Route, request_id: int
    ) -> None:
        self._context = context
        self._origin = origin
        self._return_route = return_route
        self._id = request_id
        self._ended = False
        self._made_at = 0.0
        self._own_address = self.prefix + context.entropy(8).hex().encode()

    def started(self) -> None:
        """Take an address."""
        self._made_at = self.system.timing.monotonic()
        self._context.router.register(self._own_address, self.address)

    def stopped(self) -> None:
        """Give the address back; tell the asker if nobody has."""
        if not (self._ended or self._origin.ended):
            self._refuse("actor.stopped", f"The node has ended this {self.called}: {self.anew}")
        self._context.router.unregister(self._own_address)
        self._origin.detach(self.address)

    def _described(self, name: str) -> Described:
        """What its link and administrators may end."""
        return Described(
            "subscription",
            name=name,
            owner=self._origin.principal,
            origin=self._origin,
            made_at=self._made_at,
            open_to="owner",
            stop=self._stop,
        )

    @abstractmethod
    def _stop(self) -> None:
        """Stop it, as who may has asked at its address."""

    def _reply(self, payload: bytes) -> None:
        self._context.router.reply(self._origin, self._own_address, [(self._return_route, payload)])

    def _refuse(self, code: str, text: str) -> None:
        self._reply(native.encode(native.Failure(self._id, code, text)))

    def _end(self, code: str, text: str) -> None:
        """Tell the asker why nothing follows, and exit; what still comes is passed over."""
        if not self._ended:
            self._refuse(code, text)
            self._leave()

    def _leave(self) -> None:
        self._ended = True
        self.system.exit(self.address)

    def _requests(self, delivery: Delivery) -> None:
        """Take what the asker sends to the address."""
        if delivery.origin is not self._origin:
            self._context.router.undeliverable("refused", delivery)
            return
        for wire in delivery.messages:
            try:
                request = decode_request(wire.payload, speaks_native=True)
            except CodecError:
                continue
            match request:
                case native.CreditRequest(credit_bytes=credit):
                    self._grant(credit)
                case native.UnsubscribeRequest():
                    self._leave()
                    return
                case _:
                    pass

    def _grant(self, credit: int) -> None:
        """Take credit, where that counts."""
