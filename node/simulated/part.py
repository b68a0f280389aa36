"""Declares what plug-ins add to simulated runs, and what they are given for it.

A plug-in names the maker of its part in `PlugIn.simulated`; the simulation alone imports it, and
calls it anew for each run of a scenario that has a table of the plug-in's.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from rillnode.node.config import Config
from rillnode.node.simulated.history import History, LogContents
from rillnode.node.simulated.programs import Program, Share
from rillnode.node.simulated.tables import Scenario
from rillnode.node.simulated.world import Machine, NodeMachine, World

Cast = Callable[[Machine, str, int], Program]
"""Makes a client: its machine, the node that it talks to, its number among those of its kind."""


class SimulatedPart(Protocol):
    """A plug-in's part of one run of a scenario; what a part leaves out adds nothing."""

    def configured(self, config: Config) -> Config:
        """A node's configuration, with what the plug-in's clients need of it."""
        return config

    def clients(self, share: Share, nodes: Sequence[str]) -> Mapping[str, Cast]:
        """Makers of the plug-in's clients, by the prefixes of the table's `kinds`.

        Args:
            share: what all clients have in common.
            nodes: names of the nodes that have clients.
        """
        return {}

    def check(self, logs: LogContents) -> None:
        """Hold what its clients have seen to what stands in all logs, once all is over."""
        return

    async def read(self, seconds: float) -> None:
        """Read what its clients have left on the nodes, within so many seconds, likewise."""
        return


MakePart = Callable[[Any, Scenario, World, History], SimulatedPart]
"""Makes a plug-in's part of a run, of its table in the scenario, in a world that is empty still."""


@runtime_checkable
class SharedNodes(Protocol):
    """A part that adds the nodes of a run, which share the stream `SHARED_STREAM`."""

    def add_nodes(self, configure: Callable[[str], Config]) -> None:
        """Add them all to the world; `configure` makes the configurations that it adds to."""
        ...

    def neighbours(self, machine: NodeMachine, partition: int) -> Sequence[str]:
        """The nodes that a node hands the stream's entries on to, by their names."""
        ...

    def copies(self) -> int:
        """How many entries nodes have handed on so far, each as often as they did."""
        ...

    async def missing(self) -> list[str]:
        """What is not as it should be yet."""
        ...

    async def repaired(self) -> list[str]:
        """What is not as it should be yet between the nodes that run."""
        ...

    async def push_aside(self, away: Machine) -> None:
        """Push something at another node than one that is away."""
        ...

    def look_for_leftovers(self) -> None:
        """Look for what nodes should have let go of."""
        ...

    async def probe(self) -> None:
        """See how an entry of each node spreads, in quiet."""
        ...
