"""Parts that plug-ins add to runs of the simulator."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import pytest
from msgspec.structs import replace

from rillnode.codecs.errors import ConfigError
from rillnode.node.client.client import Client
from rillnode.node.client.stream import Stream
from rillnode.node.config import Config
from rillnode.node.installed import SCENARIOS, installed, load_table
from rillnode.node.plugin import PlugIn
from rillnode.node.simulated.history import History
from rillnode.node.simulated.part import Cast, SimulatedPart
from rillnode.node.simulated.programs import Program, Share
from rillnode.node.simulated.tables import SimulatedTable, Whole
from rillnode.node.simulation import casting, scenario
from rillnode.node.simulation.run import Run
from rillnode.node.simulation.scenario import ClientsTable, Scenario
from rillnode.node.simulation.world import World


class Looking(SimulatedTable, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The table of a plug-in."""

    table: ClassVar[str] = "looking"
    plug_in: ClassVar[str] = "looking"
    kinds: ClassVar[Mapping[str, str]] = {"lookers": "looker-"}

    lookers: Whole = 0


SMALL = Scenario(
    nodes=1,
    messages=4,
    seconds=1.0,
    clients=ClientsTable(producers=1, examiners=0),
    tables=(Looking(lookers=2),),
)


class Part(SimulatedPart):
    """Notes what it is asked, has clients, and finds fault with all logs."""

    made: Sequence["Part"] = ()

    def __init__(self, table: Looking, _: Scenario, world: World, history: History) -> None:
        assert world.nodes == {}
        assert table.lookers == 2
        self.asked: list[str] = []
        self.history = history
        type(self).made = (*self.made, self)

    def configured(self, config: Config) -> Config:
        self.asked.append(f"configured {config.name}")
        return config

    def clients(self, share: Share, nodes: Sequence[str]) -> Mapping[str, Cast]:
        return {"looker-": lambda machine, node, _: Reader(share, machine, node)}

    def check(self, logs: object) -> None:
        self.asked.append("check")
        self.history.broken("no-progress", "as the part says")

    async def read(self, seconds: float) -> None:
        self.asked.append("read")


class Reader(Program):
    """A plug-in's client that looks at its node's stream."""

    async def live(self, client: Client, stream: Stream) -> None:
        self.share.history.note(self.name, "looks", str(await stream.pull()))
        self.done = True

    def missing(self, healed_at: float) -> Iterator[str]:
        yield from super().missing(healed_at)
        if not self.done:
            yield "it has not looked"


class Plugged(PlugIn):
    """A plug-in with a part."""

    simulated = f"{__name__}:Part"


def test_a_plug_in_takes_part_in_a_run_that_has_its_table(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[tuple[str, str]]()

    def plug_in_of(name: str, table: str) -> type[PlugIn]:
        asked.append((name, table))
        return Plugged

    monkeypatch.setattr(casting, "plug_in_of", plug_in_of)
    monkeypatch.setattr(Part, "made", ())
    run = Run(SMALL, 1)
    result = run.run()
    (part,) = Part.made
    assert asked == [("looking", "looking")]
    assert part.asked == ["configured n0", "check", "read"]
    assert [one.text for one in result.violations] == ["as the part says"]
    lookers = {"looker-0", "looker-1"}
    assert {name for name, one in run.programs.items() if one.done} >= lookers
    assert {one.who for one in result.events if one.what == "looks"} == lookers
    Run(replace(SMALL, tables=()), 1).run()
    assert Part.made == (part,)


@pytest.mark.parametrize(
    ("prefix", "owner"),
    [("looker-", "[looking]"), ("p", "[clients]"), ("n", "nodes"), ("seer-", "")],
)
def test_two_tables_whose_clients_have_the_same_names_are_refused(
    monkeypatch: pytest.MonkeyPatch, prefix: str, owner: str
) -> None:
    class Seeing(SimulatedTable, frozen=True, forbid_unknown_fields=True, kw_only=True):
        table: ClassVar[str] = "seeing"
        plug_in: ClassVar[str] = "looking"
        kinds: ClassVar[Mapping[str, str]] = {"seers": prefix}

        seers: Whole = 0

    tables: dict[str, type[SimulatedTable]] = {one.table: one for one in (Looking, Seeing)}

    def load(_group: str, name: str, _kind: type) -> type[SimulatedTable]:
        return tables[name]

    monkeypatch.setattr(scenario, "installed", {SCENARIOS: tables}.__getitem__)
    monkeypatch.setattr(scenario, "load_table", load)
    monkeypatch.setattr(scenario, "file_type", scenario.file_type.__wrapped__)
    text, path = "[looking]\n\n[seeing]\n", Path("two.toml")
    if not owner:
        read = scenario.parse_scenario(text, path).tables
        assert [one.table for one in read] == ["looking", "seeing"]
        return
    with pytest.raises(ConfigError) as refused:
        scenario.parse_scenario(text, path)
    assert refused.value.code == "scenario.value"
    told = (
        f"two.toml:3: seeing: its clients are {prefix}0, {prefix}1 and so on, as those of {owner}"
    )
    assert str(refused.value).startswith(told)


def test_a_plug_in_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^\[looking\]: the plug-in 'looking' is not installed"):
        Run(SMALL, 1)


@pytest.mark.needs("nextgraph", "overlay")
def test_our_own_take_part() -> None:
    tables = (load_table(SCENARIOS, name, SimulatedTable)() for name in installed(SCENARIOS))
    names = {type(one).__name__ for one in Run(replace(SMALL, tables=(*tables,)), 1).parts}
    assert names == {"NextgraphPart", "OckamPart", "SharedStream", "StreamrPart"}
