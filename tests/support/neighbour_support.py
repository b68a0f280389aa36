"""Another node that shares a stream with the one under test."""

from pathlib import Path

from core_support import Core, Peer
from rillnode.actors.core.access import Grant
from rillnode.actors.core.links.connection import PeerContext
from rillnode.actors.core.threads import SYSTEM_THREADS
from rillnode.actors.overlay.dialect import Dialect, decode, decode_wrapped
from rillnode.actors.overlay.stream_keys import overlay_address
from rillnode.codecs import native
from rillnode.codecs.keys import Identity
from rillnode.codecs.routing.stream import CreateRequest
from rillnode.codecs.streamr.control_messages import (
    BroadcastMessage,
    ControlMessage,
    SubscribeRequest,
)
from rillnode.codecs.streamr.network import Wrapper
from rillnode.codecs.streamr.stream_message import MessageId, MessageRef, StreamMessage
from rillnode.node.config import Config
from rillnode.node.overlay.config import OverlayTable
from rillnode.node.overlay.overlay import Overlay
from rillnode.node.plugin import Host

FRIEND = "2" * 64
ADDRESS = overlay_address("s", 0)
CONFIG = Config(name="a", data_dir=Path("a"), tables=[OverlayTable()])
STORAGE_CONFIG = CONFIG.having(OverlayTable(storage=True))


class Node:
    """Another node, and what it has heard."""

    def __init__(self, core: Core) -> None:
        grant = Grant(who=f"noise:{FRIEND}", streams="s", may=frozenset(("push", "subscribe")))
        core.access.add(grant)
        self.core = core
        self.peer: Peer = core.peer(f"noise:{FRIEND}")
        self.dialect = Dialect(f"noise://{FRIEND}@h:1")

    async def say(self, *messages: ControlMessage) -> list[ControlMessage]:
        """Send messages; return what comes back by the time that nothing more happens."""
        return await self.send(*map(self.dialect.encode_control, messages))

    async def send(self, *payloads: bytes) -> list[ControlMessage]:
        self.peer.answers.clear()
        self.peer.send(ADDRESS, *payloads)
        return await self.heard()

    async def heard(self) -> list[ControlMessage]:
        await self.core.settle()
        frames = [decode(answer.payload).message for answer in self.peer.answers]
        self.peer.answers.clear()
        return [decode_wrapped(one) for one in frames if isinstance(one, Wrapper)]


async def started(core: Core, config: Config = CONFIG) -> tuple[Node, Peer]:
    """A node with the stream `s`, another node, and a client of the first."""
    overlay = overlay_at(core, config, Identity.from_seed(bytes(32)))
    core.changes.append(overlay.changed)
    client = core.peer()
    await client.ask("stream", CreateRequest("s"))
    return Node(core), client


def overlay_at(core: Core, config: Config, identity: Identity) -> Overlay:
    """The overlay's side of a node that is made of a core."""
    host = Host(
        config=config,
        identity=identity,
        entropy=core.context.entropy,
        threads=SYSTEM_THREADS,
        given={},
    )
    overlay = Overlay(host)
    overlay.spawn(core.context, peers(core), "127.0.0.1:1")
    return overlay


def peers(core: Core) -> PeerContext:
    return PeerContext(core.system, core.router, core.store, core.access, core.context.entropy)


def subscribe() -> SubscribeRequest:
    return SubscribeRequest(stream_id="s", partition=0, request_id="r")


def broadcast(number: int, previous: int | None = None) -> BroadcastMessage:
    before = None if previous is None else MessageRef(previous, 0)
    name = MessageId("s", 0, number, 0, "publisher", "chain")
    message = StreamMessage(id=name, content='{"n":1}', previous=before)
    return BroadcastMessage(message=message, request_id="")


async def log_length(core: Core, client: Peer) -> int:
    (answer,) = await client.ask("ST_S_0_s", native.ReadRequest(1, 0, 1_000, 1_000_000))
    return int(answer.next_index)
