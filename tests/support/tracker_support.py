"""Nodes as a tracker sees them."""

from functools import partial
from random import Random

from core_support import Core, Peer
from rillnode.actors.core.access import Grant
from rillnode.actors.overlay.dialect import Dialect, decode
from rillnode.actors.overlay.tracker import ADDRESS, QUIET_SECONDS, TrackerActor
from rillnode.codecs.streamr.network import Form, Instruction, Status, StatusMessage, StreamStatus
from rillnode.codecs.streamr.node_address import NodeAddress, parse_node_address


class TrackedNode:
    """A node as the tracker sees it."""

    def __init__(self, core: Core, number: int, *, storage: bool = False, streams: str = "*"):
        self.address = NodeAddress(f"{number:064x}", "h", 4000 + number, storage)
        self.identity = self.address.identity
        principal = f"noise:{self.identity}"
        core.access.add(Grant(who=principal, streams=streams, may=frozenset(("push",))))
        self.peer: Peer = core.peer(principal)
        self.core = core
        self.counter = 0
        self.neighbours: list[str] = []

    async def say(
        self, *keys: str, source: str = "", counter: int | None = None, form: Form = Form.EXTENDED
    ) -> None:
        """Say the status; hear what the tracker has to say."""
        self.send_status(*keys, source=source, counter=counter, form=form)
        await gathered(self.core)
        self.hear()

    def send_status(
        self, *keys: str, source: str = "", counter: int | None = None, form: Form = Form.EXTENDED
    ) -> None:
        """Send the status."""
        streams = {
            key: StreamStatus(
                inbound_nodes=tuple(self.neighbours),
                outbound_nodes=(),
                counter=self.counter if counter is None else counter,
            )
            for key in keys
        }
        message = StatusMessage(status=Status(streams=streams, started="now"))
        self.send(Dialect(source or str(self.address), form).encode(message))

    def send(self, payload: bytes) -> None:
        self.peer.send(ADDRESS, payload)

    def hear(self) -> list[Instruction]:
        """Carry out the newest instruction."""
        heard = [decode(answer.payload).message for answer in self.peer.answers]
        self.peer.answers.clear()
        told = [one for one in heard if isinstance(one, Instruction)]
        if told:
            self.counter = told[-1].counter or 0
            addresses = map(parse_node_address, told[-1].node_addresses)
            self.neighbours = [address.identity for address in addresses]
        return told


async def gathered(core: Core) -> None:
    """Let the tracker do what it has gathered."""
    await core.settle()
    core.clock.advance(QUIET_SECONDS)
    await core.settle()


def spawn_tracker(core: Core, degree: int = 4) -> None:
    factory = partial(
        TrackerActor, core.router, core.access, degree=degree, random=partial(Random, 7)
    )
    core.router.register(ADDRESS, core.system.spawn(factory))
