"""Mistakes that somebody could make in the overlay, each as a patch of the right code."""

# Mistakes are made inside of classes.
# pyright: reportPrivateUsage=false

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from planted_bugs import Patch, always
from rillnode.actors.overlay import intake, loading, neighbours, rendering, resending, sharing
from rillnode.actors.overlay.announcing import LogReader
from rillnode.actors.overlay.intake import Intake
from rillnode.actors.overlay.keeping import Keeper
from rillnode.actors.overlay.linking import Neighbourhood
from rillnode.actors.overlay.missing import Missing
from rillnode.actors.overlay.settling import Settling
from rillnode.actors.overlay.sharing import Sharing
from rillnode.actors.overlay.topology import Topology
from rillnode.codecs.entries import NewEntry
from rillnode.codecs.streamr.control_messages import ResendRangeRequest
from rillnode.codecs.streamr.duplicates import ChainDuplicates
from rillnode.codecs.streamr.ordering import OrderedChains
from rillnode.node.overlay.simulation.table import SharedOverlay
from rillnode.node.simulation.scenario import (
    ClientsTable,
    FaultKind,
    FaultTable,
    LatencyTable,
    RandomFaults,
    Scenario,
)

FAULTS: tuple[FaultKind, ...] = ("kill", "power_cut", "partition", "one_way", "clog")
ALONE = (
    FaultTable(kind="kill", nodes=("n0", "n2", "n3", "n4"), count=4, at_seconds=2.0, seconds=150.0),
    FaultTable(kind="kill", nodes=("n1",), at_seconds=145.0, seconds=2.0),
)
"""A node that is alone for so long that others are not told of all by what happened lately."""

WRONG_CLOCK = (
    FaultTable(kind="clock_jump", nodes=("n1",), at_seconds=5.0, seconds=10.0),
    FaultTable(kind="kill", nodes=("n1",), at_seconds=12.0, seconds=100.0),
)
"""A node that is away for long, and was wrong about when it heard the last of the others."""


@dataclass(frozen=True, slots=True)
class PlantedOverlay:
    """A mistake, the rules of which it must break one, and where it shows.

    Attributes:
        patch: plants it.
        rules: one of them must be found broken.
        kinds: of faults that the scenario draws.
        table: faults beside those.
        seconds: how long they happen.
        nodes: how many there are.
        degree: neighbours of each.
        messages: how many are pushed.
    """

    patch: Patch
    rules: tuple[str, ...]
    kinds: tuple[FaultKind, ...] = FAULTS
    table: tuple[FaultTable, ...] = ()
    seconds: float = 10.0
    nodes: int = 5
    degree: int = 2
    messages: int = 60

    @property
    def name(self) -> str:
        """Of the mistake."""
        return self.patch.__name__.replace("_", "-")

    @property
    def scenario(self) -> Scenario:
        """A small scenario in which the mistake can show."""
        return Scenario(
            name=self.name,
            nodes=self.nodes,
            messages=self.messages,
            seconds=self.seconds,
            heal_seconds=60.0,
            latency=LatencyTable(model="lognormal", mean_ms=30.0),
            clients=ClientsTable(producers=5, followers=1, consumers=0, readers=0),
            random_faults=RandomFaults(count=4 if self.kinds else 0, kinds=self.kinds),
            fault=self.table,
            tables=(SharedOverlay(degree=self.degree),),
        )


def forwarded_to_the_source(patch: pytest.MonkeyPatch) -> None:
    """What comes from a neighbour goes back to it, too."""
    flush = Sharing.flush

    def thorough(self: Sharing, _: Any) -> Any:
        return flush(self, None)

    patch.setattr(Sharing, "flush", thorough)


def forwarded_to_one(patch: pytest.MonkeyPatch) -> None:
    """What is new goes to the first neighbour only."""
    flush = Sharing.flush

    def lazy(self: Sharing, source: Any) -> Any:
        table = self._neighbourhood
        all_linked = table.linked
        table.linked = dict(list(all_linked.items())[:1])
        try:
            return flush(self, source)
        finally:
            table.linked = all_linked

    patch.setattr(Sharing, "flush", lazy)


def gaps_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Nobody is asked for what is missing in a chain."""
    patch.setattr(Missing, "ask_for", always(None))


def ranges_end_early(patch: pytest.MonkeyPatch) -> None:
    """The last message of a range that was asked for is not in the answer."""
    answer = Missing.answer

    def short(self: Missing, origin: Any, route: Any, dialect: Any, request: Any) -> None:
        if isinstance(request, ResendRangeRequest):
            last = request.to_ref
            earlier = last._replace(sequence=(last.sequence or 0) - 1)
            request = msgspec.structs.replace(request, to_ref=earlier)
        answer(self, origin, route, dialect, request)

    patch.setattr(Missing, "answer", short)


def nothing_told_to_who_was_away(patch: pytest.MonkeyPatch) -> None:
    """A new link brings nothing that was missed."""
    patch.setattr(Settling, "since_ms", always(None))


def resends_stop_early(patch: pytest.MonkeyPatch) -> None:
    """What was missed is told up to the end of one slice."""
    send = resending.ResendingActor._send

    def once(self: Any, entries: Any) -> None:
        send(self, entries)
        self._finish(True)

    patch.setattr(resending, "SLICE_ENTRIES", 4)
    patch.setattr(resending.ResendingActor, "_send", once)


def taken_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """After a restart it is not known what was taken."""
    patch.setattr(Intake, "restore", always(None))


def announced_from_the_end(patch: pytest.MonkeyPatch) -> None:
    """After a restart only what is new then is handed on."""
    load = loading.load

    async def forward(*parts: Any) -> Any:
        loaded = await load(*parts)
        *_, reader = parts
        reader.next = loaded.next_index
        return loaded

    patch.setattr(neighbours, "load", forward)


def announced_with_gaps(patch: pytest.MonkeyPatch) -> None:
    """Behind what came from others, one entry more is left out."""
    skip = LogReader.skip

    def hasty(self: LogReader, first: int, count: int) -> None:
        skip(self, first, count + 1)

    patch.setattr(LogReader, "skip", hasty)


def kept_in_any_order(patch: pytest.MonkeyPatch) -> None:
    """What waits to be appended is turned round."""
    flush = Keeper.flush

    def turned(self: Keeper) -> None:
        if not self._in_flight:
            self._waiting.reverse()
        flush(self)

    patch.setattr(Keeper, "flush", turned)


def failed_appends_dropped(patch: pytest.MonkeyPatch) -> None:
    """What could not be written is taken to be there."""
    appended = Keeper._appended

    def careless(self: Keeper, count: int, first_index: int, _: Any) -> None:
        appended(self, count, first_index, None)

    patch.setattr(Keeper, "_appended", careless)


def failed_appends_repeated(patch: pytest.MonkeyPatch) -> None:
    """What a failed sync has lost is written again, without a look whether it is there."""
    patch.setattr(Keeper, "_mark", property(always(("", None))))


def own_entries_taken_back(patch: pytest.MonkeyPatch) -> None:
    """What others hand back of a node's own entries is kept, if it has not announced them."""
    patch.setattr(Sharing, "_is_own", always(False))


def lost_links_kept(patch: pytest.MonkeyPatch) -> None:
    """A neighbour stays one when its link is gone."""
    patch.setattr(Neighbourhood, "lost", always(False))


def not_repaired(patch: pytest.MonkeyPatch) -> None:
    """The tracker gives neighbours to who is new, and to nobody else."""
    fill = Topology._fill

    def once(self: Topology, node: str) -> None:
        if not self._links[node]:
            fill(self, node)

    patch.setattr(Topology, "_fill", once)
    patch.setattr(Topology, "_insert", always(False))


def too_many_neighbours(patch: pytest.MonkeyPatch) -> None:
    """The tracker cuts no link."""
    patch.setattr(Topology, "_cut", always(None))

    def linked(self: Topology, node: str) -> None:
        for other in list(self._links):
            if other != node:
                self._link(node, other)

    patch.setattr(Topology, "_fill", linked)


def pieces_left(patch: pytest.MonkeyPatch) -> None:
    """The tracker leaves the graph in pieces."""
    patch.setattr(Topology, "_join_pieces", always(None))


def carried_bytes_changed(patch: pytest.MonkeyPatch) -> None:
    """What is carried in base64 loses its last byte."""
    entry_of = rendering._entry

    def short(content: str) -> NewEntry:
        entry = entry_of(content)
        return entry._replace(data=entry.data[:-1])

    patch.setattr(rendering, "_entry", short)


def few_chains_known(patch: pytest.MonkeyPatch) -> None:
    """Of all chains but the last three it is forgotten what was taken."""
    made = Intake.__init__

    def forgetful(self: Intake) -> None:
        made(self)
        self._duplicates = ChainDuplicates(chains_max=3)
        self._ordered = OrderedChains(chains_max=3)

    patch.setattr(sharing, "TEXTS_KEPT", 2)
    patch.setattr(intake, "STREAMR_CHAINS_MAX", 3)
    patch.setattr(Intake, "__init__", forgetful)


PLANTED = (
    PlantedOverlay(forwarded_to_the_source, ("overlay-copies",)),
    PlantedOverlay(forwarded_to_one, ("overlay-spread", "no-progress")),
    PlantedOverlay(few_chains_known, ("overlay-duplicate",)),
    PlantedOverlay(gaps_forgotten, ("no-progress", "overlay-lost"), (), WRONG_CLOCK, seconds=130.0),
    PlantedOverlay(
        ranges_end_early, ("no-progress", "overlay-lost"), (), WRONG_CLOCK, seconds=130.0
    ),
    PlantedOverlay(nothing_told_to_who_was_away, ("no-progress", "overlay-lost")),
    PlantedOverlay(resends_stop_early, ("no-progress", "overlay-lost")),
    PlantedOverlay(taken_is_forgotten, ("overlay-duplicate",)),
    PlantedOverlay(
        announced_from_the_end,
        ("no-progress", "overlay-lost"),
        (),
        ALONE,
        seconds=160.0,
    ),
    PlantedOverlay(announced_with_gaps, ("no-progress", "overlay-lost")),
    PlantedOverlay(kept_in_any_order, ("overlay-order", "overlay-lost")),
    PlantedOverlay(failed_appends_dropped, ("no-progress", "overlay-lost"), ("disk_failing",)),
    PlantedOverlay(failed_appends_repeated, ("overlay-duplicate",), ("disk_failing",)),
    PlantedOverlay(own_entries_taken_back, ("overlay-lost",), ("disk_failing", "kill")),
    PlantedOverlay(lost_links_kept, ("no-progress", "overlay-spread")),
    PlantedOverlay(not_repaired, ("no-progress",)),
    PlantedOverlay(too_many_neighbours, ("no-progress",)),
    PlantedOverlay(pieces_left, ("no-progress", "overlay-lost"), ("kill",), nodes=9),
    PlantedOverlay(carried_bytes_changed, ("unknown-entry",)),
)
