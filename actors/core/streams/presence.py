"""Tells whether the peer that a worker was made for is still connected."""

from rillnode.actors.core.delivery import Origin
from rillnode.actors.core.router import Router
from rillnode.actors.ports import Clock
from rillnode.codecs.routing.routes import Address


class Presence:
    """The connection of a peer that may come back through another one.

    Args:
        router: knows which connections there are.
        clock: measures the time without one.
        origin: the peer's connection.
        link: the address of that connection.
    """

    def __init__(self, router: Router, clock: Clock, origin: Origin, link: Address) -> None:
        self._router = router
        self._clock = clock
        self.renew(origin, link)

    def renew(self, origin: Origin, link: Address) -> None:
        """The peer has come, or come back, through a connection."""
        self._origin = origin
        self.link = link
        self._seen_at = self._clock.monotonic()

    @property
    def connected(self) -> bool:
        """Whether its connection is there."""
        return self._router.lookup(self.link.value) is not None

    @property
    def congested(self) -> bool:
        """Whether it is there and has much to take still of what was sent to it."""
        return self.connected and self._origin.congested

    def away_seconds(self) -> float:
        """Time since its connection was last seen, by this call or by `renew`."""
        now = self._clock.monotonic()
        if self.connected:
            self._seen_at = now
        return now - self._seen_at
