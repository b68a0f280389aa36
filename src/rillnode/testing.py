"""For the tests of applications: simulated nodes (`Network`), actors that fail (`fail`)."""

from rillnode.node.simulation.application import Network
from rillnode.node.testing.failing import PlantedFailure, actor_classes, fail, message_types

__all__ = ["Network", "PlantedFailure", "actor_classes", "fail", "message_types"]
