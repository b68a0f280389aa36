"""Mistakes in links between nodes and in what nodes remember of each other, each as a patch."""

# Mistakes are made inside of classes.
# pyright: reportPrivateUsage=false

from typing import Any

import pytest

from planted_bugs import Patch, Planted, always
from planted_overlay import PlantedOverlay
from planted_service_bugs import CALLERS
from rillnode.actors.core.delivery import LinkLost, Origin
from rillnode.actors.core.links.connection import SLICE_FRAMES, ConnectionActor
from rillnode.actors.core.links.dialling import PeerActor
from rillnode.actors.overlay.linking import Neighbourhood
from rillnode.actors.overlay.missing import Missing
from rillnode.actors.overlay.tracker import TrackerActor
from rillnode.node.overlay.overlay import OverlayLinks


def pauses_only_grow(patch: pytest.MonkeyPatch) -> None:
    """The pause before a peer is dialled again grows with each failure, and never shrinks."""
    lost = PeerActor._lost

    def resentful(self: PeerActor, message: Any) -> None:
        failures = self._failures
        lost(self, message)
        self._failures = max(failures, self._failures)

    patch.setattr(PeerActor, "_lost", resentful)


def waiting_turned_round(patch: pytest.MonkeyPatch) -> None:
    """What has waited for a link goes on last come, first served."""
    take = PeerActor._take_waiting

    def turned(self: PeerActor) -> Any:
        return take(self)[::-1]

    patch.setattr(PeerActor, "_take_waiting", turned)


def waiting_counted_for_ever(patch: pytest.MonkeyPatch) -> None:
    """What has waited for a link still counts as waiting when it has gone on."""
    take = PeerActor._take_waiting

    def counting(self: PeerActor) -> Any:
        waiting = self._waiting_bytes
        taken = take(self)
        self._waiting_bytes = waiting
        return taken

    patch.setattr(PeerActor, "_take_waiting", counting)


def reads_from_the_end(patch: pytest.MonkeyPatch) -> None:
    """Of a read that is too much for one turn the end is handed on first."""
    dispatch = ConnectionActor._dispatch

    def hasty(self: ConnectionActor) -> None:
        over = len(self._frames) - SLICE_FRAMES
        if over > 0:
            self._frames = [*self._frames[over:], *self._frames[:over]]
        dispatch(self)

    patch.setattr(ConnectionActor, "_dispatch", hasty)


def attached_for_ever(patch: pytest.MonkeyPatch) -> None:
    """A connection remembers actors of it that have ended before."""
    patch.setattr(Origin, "detach", always(None))


def answers_remembered(patch: pytest.MonkeyPatch) -> None:
    """A node remembers answers to others that are over, and one day gives no more."""
    patch.setattr(Missing, "ended", always(None))


def links_held_for_ever(patch: pytest.MonkeyPatch) -> None:
    """The link to who is no neighbour any more stays open."""
    patch.setattr(OverlayLinks, "release", always(None))


def admitted_for_ever(patch: pytest.MonkeyPatch) -> None:
    """Whom a tracker has named once may connect from then on."""
    want = Neighbourhood._want

    def generous(self: Neighbourhood, nodes: Any) -> Any:
        before = self.wanted
        gone = want(self, nodes)
        for identity in before:
            self._context.admitted[identity] += identity not in self.wanted
        return gone

    patch.setattr(Neighbourhood, "_want", generous)


def dead_nodes_kept(patch: pytest.MonkeyPatch) -> None:
    """The tracker names nodes whose links to it are gone, until they say something again."""
    handle = TrackerActor.handle

    def deaf(self: TrackerActor, message: Any, sender: Any) -> None:
        if not isinstance(message, LinkLost):
            handle(self, message, sender)

    patch.setattr(TrackerActor, "handle", deaf)


def _planted(patch: Patch, *rules: str, **more: Any) -> Planted:
    name = patch.__name__.replace("_", "-")
    return Planted(name, patch, rules, clients=CALLERS, nodes=3, **more)


PLANTED_LINKS = (
    _planted(pauses_only_grow, "back-soon", faults=("kill",)),
    _planted(waiting_turned_round, "route-order", faults=("kill",)),
    _planted(waiting_counted_for_ever, "left-over", faults=("kill",)),
    _planted(reads_from_the_end, "route-order", faults=("kill",)),
    _planted(attached_for_ever, "left-over", faults=("kill",)),
    PlantedOverlay(answers_remembered, ("left-over",)),
    PlantedOverlay(links_held_for_ever, ("left-over",)),
    PlantedOverlay(admitted_for_ever, ("left-over",)),
    PlantedOverlay(dead_nodes_kept, ("back-soon",)),
)
