"""For the tests of applications: simulated nodes (`Network`), actors that fail (`fail`)."""

from rillnode.actors.engine.faults import Fault
from rillnode.node.simulated.history import Event
from rillnode.node.simulation.application import InvariantBroken, Network, Program
from rillnode.node.simulation.libraries import NotSimulated
from rillnode.node.simulation.trials import ScenarioBroken, check
from rillnode.node.testing.failing import PlantedFailure, actor_classes, fail, message_types

__all__ = [
    "Event",
    "Fault",
    "InvariantBroken",
    "Network",
    "NotSimulated",
    "PlantedFailure",
    "Program",
    "ScenarioBroken",
    "actor_classes",
    "check",
    "fail",
    "message_types",
]
