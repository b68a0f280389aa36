"""For the tests of applications: simulated nodes (`MemoryNetwork`), actors that fail (`fail`)."""

from rillnode.node.simulation.memory_network import MemoryNetwork
from rillnode.node.testing.failing import PlantedFailure, actor_classes, fail, message_types

__all__ = ["MemoryNetwork", "PlantedFailure", "actor_classes", "fail", "message_types"]
