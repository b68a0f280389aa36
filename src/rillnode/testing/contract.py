"""Suites of tests for parts of your own: subclass one, say how the part is made, and run pytest."""

from rillnode.node.testing.contract.actor_forms import (
    ActorFormContract,
    Deeds,
    Doing,
    RefusingFormContract,
    StatefulFormContract,
    ToldToFail,
    WaitingFormContract,
)
from rillnode.node.testing.contract.actors import (
    ActorContract,
    ActorSite,
    AskingActorContract,
    DurableActorContract,
    RestingActorContract,
    Sample,
)
from rillnode.node.testing.contract.base import Contract

__all__ = [
    "ActorContract",
    "ActorFormContract",
    "ActorSite",
    "AskingActorContract",
    "Contract",
    "Deeds",
    "Doing",
    "DurableActorContract",
    "RefusingFormContract",
    "RestingActorContract",
    "Sample",
    "StatefulFormContract",
    "ToldToFail",
    "WaitingFormContract",
]
