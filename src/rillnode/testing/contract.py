"""Suites of tests for parts of your own: subclass one, say how the part is made, and run pytest."""

from rillnode.node.testing.contract.actor_forms import (
    ActorFormContract,
    Deeds,
    Doing,
    FormSite,
    RefusingFormContract,
    Replies,
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
from rillnode.node.testing.contract.engines import EngineContract, TimedEngineContract
from rillnode.node.testing.contract.engines.parts import Engine, Letters
from rillnode.node.testing.contract.links import LinkContract, Recorder, SizedLinkContract
from rillnode.node.testing.contract.plug_ins import PlugInContract, Used
from rillnode.node.testing.contract.shared_logs import SharedLogContract, SharedLogSite
from rillnode.node.testing.contract.stores import (
    SharedStoreContract,
    StoreContract,
    StoreOnEngineContract,
)
from rillnode.node.testing.contract.stores.driver import StoreDriver, ThreadedDriver
from rillnode.transports.links import LinkLimits

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
    "Engine",
    "EngineContract",
    "FollowingClientContract",
    "FormSite",
    "Letters",
    "LinkContract",
    "LinkLimits",
    "Place",
    "PlugInContract",
    "Recorder",
    "RefusingFormContract",
    "RepeatingClientContract",
    "Replies",
    "RestingActorContract",
    "Sample",
    "SharedLogContract",
    "SharedLogSite",
    "SharedStoreContract",
    "SizedLinkContract",
    "StatefulFormContract",
    "StoreContract",
    "StoreDriver",
    "StoreOnEngineContract",
    "ThreadedDriver",
    "TimedEngineContract",
    "ToldToFail",
    "Used",
    "WaitingFormContract",
]
