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
from rillnode.node.testing.contract.clients import (
    CancellableClientContract,
    ClientContract,
    ClientSite,
    FollowingClientContract,
    Place,
    RepeatingClientContract,
)

__all__ = [
    "ActorContract",
    "ActorFormContract",
    "ActorSite",
    "AskingActorContract",
    "CancellableClientContract",
    "ClientContract",
    "ClientSite",
    "Contract",
    "Deeds",
    "Doing",
    "DurableActorContract",
    "FollowingClientContract",
    "Place",
    "RefusingFormContract",
    "RepeatingClientContract",
    "RestingActorContract",
    "Sample",
    "StatefulFormContract",
    "ToldToFail",
    "WaitingFormContract",
]
