"""The forwarder: a worker that sends on to a recorded route whatever comes to its address.

It takes its own address off the onward route, puts the recorded route in its place, and does not
add itself to the return route: answers do not come back through it.

Source: the Elixir nodes of 2021 to 2024, where what follows the alias in the onward route is kept
since 2022-02.
"""

from functools import partial
from typing import Final

from rillnode.actors.core.delivery import Delivery, Origin
from rillnode.actors.core.router import Router
from rillnode.actors.engine.described import Described
from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.ockam.context import Ended
from rillnode.codecs.routing.routes import Route, WireMessage

HOLD_SECONDS: Final = 0.005
"""How often a forwarder looks whether its receiver has taken what it was sent."""


class Forwarder(Worker):
    """An alias: a recorded route, for as long as the connection that it begins with.

    While the receiver has much to take still, what is sent to it counts as reserved for its
    sender: so senders are held to what the receiver takes, and cannot have its link closed.

    Args:
        router: where messages go.
        own_address: the address to give back at the end; None where another actor has it.
        receiver: the origin of who registered.
        route: where messages are sent.
        ended: told of its end.
    """

    on_failure = "resume"

    def __init__(
        self,
        router: Router,
        own_address: bytes | None,
        receiver: Origin,
        route: Route,
        ended: Ended,
    ) -> None:
        self._router = router
        self._own_address = own_address
        self._receiver = receiver
        self._route = route
        self._ended = ended
        self._held: list[tuple[Origin, int]] = []

    def handle(self, message: Delivery, sender: Cell | None) -> None:
        """Send on; the sender's connection is held until the receiver's has taken it."""
        origin, messages = message.origin, message.messages
        forwarded = [
            WireMessage(self._route + onward_route[1:], return_route, payload)
            for onward_route, return_route, payload in messages
        ]
        self._router.route(origin, forwarded, tracked=message.tracked)
        if self._receiver.congested:
            self._hold(origin.account, sum(len(wire.payload) for wire in messages))

    def described(self, address: bytes) -> Described:
        """The alias; a named one is for all to send to, others are known to whom they were told."""
        return Described(
            "alias",
            owner=self._receiver.principal,
            origin=self._receiver,
            stop=partial(self.system.exit, self.address),
        )

    def stopped(self) -> None:
        """Give the address back, unless another has it by now, and let the senders go on."""
        own_address = self._own_address
        if own_address is not None and self._router.lookup(own_address) is self.address:
            self._router.unregister(own_address)
        self._release()
        self._ended(self.address)

    def _hold(self, sender: Origin, size: int) -> None:
        sender.reserved_bytes += size
        self._held.append((sender, size))
        if len(self._held) == 1:
            self.begin(self._taken())

    async def _taken(self) -> None:
        """Wait until the receiver has taken what it was sent, then let the senders go on."""
        try:
            while self._receiver.congested:
                await self.sleep(HOLD_SECONDS)
        finally:
            self._release()

    def _release(self) -> None:
        held, self._held = self._held, []
        for sender, size in held:
            sender.reserved_bytes -= size
