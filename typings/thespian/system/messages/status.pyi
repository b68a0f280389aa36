from thespian.actors import ActorAddress, ActorSystemMessage
from thespian.system.timing import ExpirationTimer

class Thespian_StatusReq(ActorSystemMessage): ...

class Thespian_ActorStatus(ActorSystemMessage):
    actorAddress: ActorAddress
    actorClass: str
    adminAddress: ActorAddress
    childActors: list[ActorAddress]
    pendingWakeups: list[tuple[ActorAddress, ExpirationTimer]]
    def __init__(
        self, address: ActorAddress, actorClass: str, adminAddress: ActorAddress
    ) -> None: ...
    def addChild(self, childAddress: ActorAddress) -> None: ...
    def addWakeups(self, wakeups_list: list[tuple[ActorAddress, ExpirationTimer]]) -> None: ...
