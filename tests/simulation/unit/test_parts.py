"""Parts that plug-ins add to runs of the simulator."""

from collections.abc import Sequence

import pytest

from rillnode.node.config import Config
from rillnode.node.plugin import PlugIn
from rillnode.node.simulated.history import History
from rillnode.node.simulated.part import SimulatedPart
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


def no_part(*_: object) -> None:
    """A part that has nothing to do in this run."""


class Other(PlugIn):
    """A plug-in with a part."""

    simulated = f"{__name__}:Part"


class Silent(PlugIn):
    """A plug-in whose part leaves this run out."""

    simulated = f"{__name__}:no_part"


def test_a_plug_in_takes_part_in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(casting, "every_plug_in", lambda: [PlugIn, Other, Silent])
    monkeypatch.setattr(Part, "made", ())
    result = Run(SMALL, 1).run()
    (part,) = Part.made
    assert part.asked == ["configured n0", "check", "read"]
    assert [one.text for one in result.violations] == ["as the part says"]


def test_our_own_take_part() -> None:
    names = {type(one).__name__ for one in Run(SMALL, 1).parts}
    assert names == {"NextgraphPart", "OckamPart", "StreamrPart"}
