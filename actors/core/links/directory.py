"""The peers under one prefix of local addresses, and the actors that are made for them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from rillnode.actors.core.access import NODE_PRINCIPAL
from rillnode.actors.core.delivery import Origin
from rillnode.actors.core.links.connection import PeerContext
from rillnode.actors.core.links.dialling import PeerActor, PeerSettings, PeerStatus
from rillnode.actors.core.pauses import PAUSE_SECONDS_MAX
from rillnode.actors.core.router import Admits
from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.codecs.errors import ActorError
from rillnode.codecs.limits import FRAME_BYTES_MAX


@dataclass(frozen=True, slots=True)
class _Peer:
    settings: PeerSettings
    status: PeerStatus


class PeerDirectory:
    """Makes the actor of each peer, and another where one was given up for its failures.

    That one follows after a pause: with the next message, and where a link is kept open without.

    Args:
        context: the node's parts.
        prefix: begins the local addresses of these peers.
        admits: whether an origin may send to an address, and know that there is a peer.
        actor: makes an actor out of the context, settings and status.
    """

    def __init__(
        self,
        context: PeerContext,
        prefix: bytes,
        admits: Admits,
        actor: Callable[[PeerContext, PeerSettings, PeerStatus], Worker] = PeerActor,
    ) -> None:
        self._context = context
        self._actor = actor
        self._peers: dict[bytes, _Peer] = {}
        self._origin = Origin(NODE_PRINCIPAL, FRAME_BYTES_MAX, native=True)
        context.router.register_guard(prefix, admits)
        context.router.register_resolver(prefix, self._make)

    def add(self, address: bytes, settings: PeerSettings, status: PeerStatus) -> None:
        """Let a peer be reached at a local address."""
        if settings.kept:
            settings = replace(settings, on_gone=partial(self._look_later, address))
        self._peers[address] = _Peer(settings, status)
        self.reach(address)

    def remove(self, address: bytes) -> None:
        """Forget a peer, and end its actor and link; harmless when repeated."""
        self._peers.pop(address, None)
        cell = self._context.router.lookup(address)
        self._context.router.unregister(address)
        if cell is not None:
            self._context.system.exit(cell)

    def reach(self, address: bytes) -> Cell | None:
        """The actor of a peer; None where there is no such peer.

        Raises:
            ActorError: `actor.busy`, it was given up, and another follows after a pause.
        """
        return self._context.router.reach(address, self._origin)

    def cells(self) -> Iterator[Cell]:
        """The actors that there are."""
        for address in self._peers:
            cell = self._context.router.lookup(address)
            if cell is not None:
                yield cell

    def _make(self, address: bytes, _: Origin) -> Cell | None:
        peer = self._peers.get(address)
        if peer is None:
            return None
        actor = partial(self._actor, self._context, peer.settings, peer.status)
        return self._context.system.spawn(actor, name=peer.settings.name)

    def _look_later(self, address: bytes, seconds: float = PAUSE_SECONDS_MAX) -> None:
        self._context.system.timing.call_later(seconds, partial(self._look, address))

    def _look(self, address: bytes) -> None:
        """Make another actor for a peer that is kept, if the one that has failed was given up."""
        peer = self._peers.get(address)
        if peer is not None and peer.settings.may_dial():
            try:
                self.reach(address)
            except ActorError as error:
                if error.code == "actor.busy":  # else the system has ended
                    self._look_later(address, error.retry_seconds)
