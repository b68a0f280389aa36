"""Nodes that keep their streams in one log: no rule is broken, and what breaks one is found."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from deleted_rooms import deleted_rooms
from rillnode.actors.log import FindStream, ListStreams, ReadOperation, memory_tables
from rillnode.actors.log.shared import applying
from rillnode.actors.log.shared.applying import ApplyFrame
from rillnode.actors.log.shared.memory_view import MemoryView
from rillnode.actors.log.shared.snapshots import Snapshots
from rillnode.actors.log.shared.writing import Writing
from rillnode.node.ockam.simulation.table import OckamClients
from rillnode.node.simulation.run import Run
from rillnode.node.simulation.scenario import (
    LOG_KINDS,
    ClientsTable,
    FaultKind,
    FaultTable,
    RandomFaults,
    Scenario,
    parse_scenario,
)

FILE: Final = Path(__file__).parents[2] / "configs/sim-shared.toml"


def without(rooms: Iterable[str]) -> Scenario:
    """The file's scenario without the tables of some plug-ins."""
    text = FILE.read_text("utf-8")
    for room in rooms:
        text = re.sub(rf"^\[{room}\]\n(.+\n)+", "", text, flags=re.MULTILINE)
    return parse_scenario(text, FILE)


EVERYBODY: Final = without(deleted_rooms())

NATIVE: Final = replace(
    without(("ockam", "nextgraph", "streamr")),
    clients=ClientsTable(producers=4, followers=4, consumers=2, readers=3, examiners=0),
    tables=(OckamClients(users=3),),
)
"""Without clients of other software, which take most of the time."""

SEEDS_MAX: Final = 20

Patch = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.needs("nextgraph")
def test_no_rule_is_broken() -> None:
    assert Run(replace(EVERYBODY, messages=40, seconds=8.0), 0).run().violations == []


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 60, 20))
def test_no_rule_is_broken_by_many_seeds(first: int) -> None:
    for seed in range(first, first + 20):
        assert Run(EVERYBODY, seed).run().violations == [], f"seed {seed}"


@pytest.mark.parametrize("kind", LOG_KINDS)
def test_each_fault_of_the_log_happens_and_breaks_no_rule(kind: FaultKind) -> None:
    faults = tuple(FaultTable(kind=kind, at_seconds=at, seconds=1.5) for at in (1.0, 3.0, 5.0))
    clients = ClientsTable(producers=2, followers=2, consumers=1, readers=1, examiners=0)
    scenario = replace(
        NATIVE,
        messages=40,
        seconds=8.0,
        clients=clients,
        tables=(OckamClients(),),
        fault=faults,
        random_faults=RandomFaults(),
    )
    result = Run(scenario, 1).run()
    assert result.violations == []
    assert sum(event.what == "fault" and event.text == kind for event in result.events) == 3


def test_a_run_comes_to_snapshots_and_to_trimmed_logs_and_shows_what_a_log_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    restored: list[int] = []
    found: list[ReadOperation] = []
    restore = Snapshots.restore

    async def noted(self: Snapshots, shard: int, sequence: int, view: Path) -> None:
        await restore(self, shard, sequence, view)
        restored.append(sequence)

    def look() -> None:
        for operation in (ListStreams(), FindStream(name="events-n0")):
            run.world.nodes["n0"].disk.look(operation)
            found.append(operation)

    monkeypatch.setattr(Snapshots, "restore", noted)
    run = Run(NATIVE, 0)
    run.on_settled = look
    result = run.run()
    assert result.violations == []
    assert restored
    servers = run.world.servers
    assert servers is not None
    assert any(shard.trimmed for shard in servers.shards)
    listed, one = found
    assert isinstance(listed, ListStreams)
    assert isinstance(one, FindStream)
    names = [record.name for record in listed.records]
    assert names == sorted(names)
    assert {"events-n0", "events-n1"} <= set(names)
    at = names.index("events-n0")
    assert listed.extents[at] == one.extents
    assert one.extents[0].next_index > 0
    # The seed gives the same run, whoever watches.
    assert Run(NATIVE, 0).run().trace_hash == result.trace_hash


@pytest.mark.long
def test_limits_hold_for_streams_that_come_to_hand_after_their_node_has_started() -> None:
    whole = EVERYBODY
    clients = replace(whole.clients, examiners=2, examined=1.0)
    scenario = replace(whole, messages=240, clients=clients, tables=NATIVE.tables)
    assert Run(scenario, 18).run().violations == []


# Planted mistakes ----------------------------------------------------------------------------


def copies_carried_out(patch: pytest.MonkeyPatch) -> None:
    """A frame that was sent twice is carried out twice."""

    def careless(_: Any, __: Any) -> bool:
        return True

    patch.setattr(applying.Applier, "_counts", careless)


def carried_out_before_stored(patch: pytest.MonkeyPatch) -> None:
    """A node carries out what it writes, and confirms it, before the engine has it."""
    send = Writing._send  # pyright: ignore[reportPrivateUsage]

    def hasty(self: Any, frame: Any) -> None:
        reader = self._reader
        reader.found(max(reader.known, reader.handed) + 1, frame)
        send(self, frame)

    patch.setattr(Writing, "_send", hasty)


def frames_passed_over(patch: pytest.MonkeyPatch) -> None:
    """A node's view leaves out the operations of some frames that others have written."""
    apply = MemoryView.apply

    def careless(self: MemoryView, frame: ApplyFrame) -> None:
        if frame.token is None and frame.sequence % 7 == 0:
            frame.operations = ()
        apply(self, frame)

    patch.setattr(MemoryView, "apply", careless)


def times_not_put_in_order(patch: pytest.MonkeyPatch) -> None:
    """Entries have come when who has written them says, be it before those they stand behind."""

    def careless(_: Any, __: Any) -> None:
        pass

    patch.setattr(memory_tables, "put_behind", careless)


@pytest.mark.parametrize(
    ("mistake", "rules", "scenario"),
    [
        pytest.param(copies_carried_out, {"too-many-copies"}, NATIVE, marks=pytest.mark.long),
        pytest.param(
            carried_out_before_stored,
            {"view-differs", "confirm-lost", "index-reassigned"},
            NATIVE,
            marks=pytest.mark.long,
        ),
        (frames_passed_over, {"view-differs", "index-reassigned"}, NATIVE),
        pytest.param(
            times_not_put_in_order,
            {"no-progress"},
            EVERYBODY,
            marks=[pytest.mark.needs("nextgraph"), pytest.mark.long],
        ),
    ],
)
def test_a_planted_mistake_is_found(
    mistake: Patch, rules: set[str], scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    for seed in range(SEEDS_MAX):
        if rules & {one.rule for one in Run(scenario, seed).run().violations}:
            return
    pytest.fail(f"no seed below {SEEDS_MAX} has shown it")
