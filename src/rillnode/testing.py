"""For the tests of applications: simulated nodes (`MemoryNetwork`), actors that fail (`fail`)."""

from rillnode.node.failing import PlantedFailure, actor_classes, fail, message_types
from rillnode.node.testing import MemoryNetwork

__all__ = ["MemoryNetwork", "PlantedFailure", "actor_classes", "fail", "message_types"]
