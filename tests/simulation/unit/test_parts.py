"""Parts that plug-ins add to runs of the simulator."""

from collections.abc import Iterator, Mapping, Sequence

import pytest
from msgspec.structs import replace

from rillnode.codecs.errors import ConfigError
from rillnode.node.client.client import Client
from rillnode.node.client.stream import Stream
from rillnode.node.config import Config
from rillnode.node.plugin import PlugIn
from rillnode.node.simulated.history import History
from rillnode.node.simulated.part import Cast, SimulatedPart
from rillnode.node.simulated.programs import Program, Share
from rillnode.node.simulation import casting
from rillnode.node.simulation.run import Run
from rillnode.node.simulation.scenario import ClientsTable, Scenario
from rillnode.node.simulation.world import World

SMALL = Scenario(
    nodes=1, messages=4, seconds=1.0, clients=ClientsTable(producers=1, ockam_users=0, examiners=0)
)


class Part(SimulatedPart):
    """Notes what it is asked; finds fault with all logs."""

    made: Sequence["Part"] = ()

    def __init__(self, scenario: Scenario, world: World, history: History) -> None:
        assert world.nodes == {}
        self.asked: list[str] = []
        self.history = history
        type(self).made = (*self.made, self)

    def configured(self, config: Config) -> Config:
        self.asked.append(f"configured {config.name}")
        return config

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


class WithClients(SimulatedPart):
    """A part that has clients of a kind of its own."""

    def __init__(self, scenario: Scenario, world: World, history: History) -> None:
        assert scenario.clients_named("lookers") == ["lookers-0", "lookers-1"]

    def clients(self, share: Share, nodes: Sequence[str]) -> Mapping[str, Cast]:
        return {"lookers": lambda machine, node, _: Reader(share, machine, node)}


def no_part(*_: object) -> None:
    """A part that has nothing to do in this run."""


class Other(PlugIn):
    """A plug-in with a part."""

    simulated = f"{__name__}:Part"


class Looking(PlugIn):
    """A plug-in whose part has clients."""

    simulated = f"{__name__}:WithClients"


class Silent(PlugIn):
    """A plug-in whose part leaves this run out."""

    simulated = f"{__name__}:no_part"


NONE: list[ConfigError] = []
"""What is lacking where all extras are installed."""


def test_a_plug_in_takes_part_in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(casting, "usable_plug_ins", lambda: ([PlugIn, Other, Silent], NONE))
    monkeypatch.setattr(Part, "made", ())
    result = Run(SMALL, 1).run()
    (part,) = Part.made
    assert part.asked == ["configured n0", "check", "read"]
    assert [one.text for one in result.violations] == ["as the part says"]


def test_a_plug_in_has_clients_of_kinds_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    clients = ClientsTable(producers=1, ockam_users=0, examiners=0, others={"lookers": 2})
    scenario = replace(SMALL, clients=clients)
    monkeypatch.setattr(casting, "usable_plug_ins", lambda: ([Looking], NONE))
    run = Run(scenario, 1)
    result = run.run()
    assert result.violations == []
    assert {name for name, one in run.programs.items() if one.done} >= {"lookers-0", "lookers-1"}
    assert {one.who for one in result.events if one.what == "looks"} == {"lookers-0", "lookers-1"}


def test_clients_that_nobody_has_are_refused() -> None:
    clients = ClientsTable(others={"lookers": 1})
    with pytest.raises(ConfigError, match="'lookers'"):
        Run(replace(SMALL, clients=clients), 1)


@pytest.mark.needs("nextgraph")
def test_our_own_take_part() -> None:
    names = {type(one).__name__ for one in Run(SMALL, 1).parts}
    assert names == {"NextgraphPart", "OckamPart", "StreamrPart"}
