"""Nodes that share streams, and released Streamr nodes, in the load on simulated nodes."""

import asyncio
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import aiohttp
from msgspec.structs import replace

from contract_load import NODE, Part, Round
from rillnode.actors.core.access import VERBS
from rillnode.actors.engine.kinds import RESTARTS_MAX
from rillnode.actors.overlay.member import MemberActor
from rillnode.actors.overlay.messages import Instructed, Linked
from rillnode.actors.overlay.neighbours import NeighboursActor
from rillnode.actors.overlay.tracker import DIAL_SECONDS
from rillnode.codecs.limits import LINK_BUFFER_HIGH_BYTES
from rillnode.node.client import Client, Stream
from rillnode.node.config import Config, GrantTable, PlugInTable
from rillnode.node.overlay.config import OverlayTable, StreamrNetworkListener
from rillnode.node.runtime import Node
from rillnode.testing import Network

MEMBER: Final = "c"
GUEST: Final = "d"
LINKED_SECONDS: Final = 1.0
"""Virtual time in which nodes that share a stream are linked in it, mostly."""
SHARED_SECONDS: Final = 60
"""Virtual time within which each has what the other has, whatever has failed between them."""

TRACKER_URL: Final = f"ws://{NODE}:30300/ws"
OWN_URL: Final = f"ws://{NODE}:30300/node"
NAMES: Final = ("first", "second")
FORMED_SECONDS: Final = 0.5
"""Virtual time in which the tracker hears of a stream and tells whom it will."""


class Overlay(Round):
    """Pushes to streams that nodes share, at two of them; a third comes and dies.

    Then the second one's link to the tracker is lost.
    """

    async def talk(self) -> None:
        self.network.restart(GUEST)
        clients = {
            name: await self.ask("connect", self.network.client(name))
            for name in (NODE, MEMBER, GUEST)
        }
        try:
            await self._talk(clients)
        finally:
            for client in clients.values():
                await self.ask("close", client.close())
            self.network.kill(GUEST)
        self._lose_link()
        if self.strict:
            await self.check()

    async def _talk(self, clients: Mapping[str, Client]) -> None:
        brief = f"shared-{self.number}"
        first = await self.ask("create another", clients[NODE].stream(brief))
        await self._push_much(first)
        for name, client in clients.items():
            stream = await self.ask("create", client.stream("shared"))
            data = b"shared %d at %b" % (self.number, name.encode())
            if name != GUEST and await self.once("push", stream.push(data)) is not None:
                self.confirmed.append(data)
            own = await self.once("create another", client.stream(brief))
            if own is not None:
                await self.once("push there", own.push(data))
        if self.much:
            await self._change_grants()
        await self.once("push more", first.push(b"more"))
        await asyncio.sleep(LINKED_SECONDS)
        for client in clients.values():
            await self.once("remove", client.remove(brief))

    async def _push_much(self, stream: Stream) -> None:
        """Push what may be more than links to neighbours hold."""
        large = bytes(LINK_BUFFER_HIGH_BYTES if self.much else 1)
        await asyncio.gather(*(self.once("push", stream.push(one)) for one in (large, b"more")))

    async def _change_grants(self) -> None:
        """Change grants while one node tells another what it has missed, if it does."""
        node = self.network.running(NODE)
        until = self.network.now + LINKED_SECONDS
        while not _exist(node, "ResendingActor") and self.network.now < until:
            await asyncio.sleep(0.002)
        grants = node.config.grants
        one = GrantTable(who=f"noise:{0:064x}", streams="shared*", may=("pull",))
        for changed in ((*grants, one), grants):
            node.reload(replace(node.config, grants=changed))

    def _lose_link(self) -> None:
        """What the second node sends to the first is damaged on its way, once."""
        network = self.network._world.network  # pyright: ignore[reportPrivateUsage]
        network.harms = True
        network.harm(MEMBER, NODE, "corrupted")

    async def check(self) -> None:
        for name in (NODE, MEMBER):
            await self._has_all(name)

    async def _has_all(self, name: str) -> None:
        """Wait until a node has all that was confirmed at either."""
        async with await self.network.client(name) as client:
            stream = await client.stream("shared")
            for _ in range(SHARED_SECONDS):
                found = [bytes(entry.data) for entry in await stream.pull(0, 1_000)]
                if set(self.confirmed) <= set(found):
                    return
                await asyncio.sleep(1.0)
        raise AssertionError(f"what was confirmed has not come to {name}")


def _exist(node: Node, actor: str) -> bool:
    """Whether a node has actors of a class now."""
    kinds = node.observed.system.life.kinds.values()
    return any(kind.cells for kind in kinds if kind.name.endswith(f".{actor}"))


class Released(Round):
    """Two nodes come at once to a stream of the node's: one is told to dial, the other waits."""

    async def talk(self) -> None:
        stream = f"shared-released-{self.number}"
        async with await self.ask("connect", self.network.client(NODE)) as client:
            await self.ask("create", client.stream(stream))
            await asyncio.sleep(FORMED_SECONDS)
            await self._join(stream)
            await self.once("remove", client.remove(stream))

    async def _join(self, stream: str) -> None:
        async with aiohttp.ClientSession() as http:
            nodes = [await self.ask("connect", self._connect(http, name)) for name in NAMES]
            for node in nodes:
                await self.ask("tell", self._tell(node, stream))
            await asyncio.sleep(FORMED_SECONDS + DIAL_SECONDS)
            for node in nodes:
                if self.strict:
                    told = await self.ask("be told", node.receive_json())
                    assert OWN_URL in told[5]
                await self.ask("close", node.close())

    async def _connect(
        self, http: aiohttp.ClientSession, name: str
    ) -> aiohttp.ClientWebSocketResponse:
        headers = {"streamr-peer-id": name, "streamr-peer-type": "node"}
        return await http.ws_connect(f"{TRACKER_URL}?address={_url(name)}", headers=headers)

    async def _tell(self, node: aiohttp.ClientWebSocketResponse, stream: str) -> None:
        """Say that it has no neighbours in a stream."""
        said: Any = {"inboundNodes": [], "outboundNodes": [], "counter": 0}
        streams = {"streams": {f"{stream}::0": said}, "started": ""}
        await node.send_json([1, 1, "", streams])

    async def check(self) -> None:
        pass  # a tracker forgets who has gone


def _url(name: str) -> str:
    return f"ws://{name}.example:30300"


class OverlayPart(Part):
    """Two nodes that share streams with the one that all is about, which has the tracker."""

    rounds = (Overlay, Released)
    rare = (Released,)
    members = (MEMBER,)
    first = MappingProxyType(
        {
            # A member that begins anew tells the actors of all that is shared.
            "overlay.neighbours.NeighboursActor: BeganAnew": (MemberActor, Linked, 1),
            # It makes another where one was given up.
            "overlay.member.MemberActor: _Respawn": (
                NeighboursActor,
                Instructed,
                6 * RESTARTS_MAX,
            ),
        }
    )

    def tables(self, node: str, rounds: Sequence[type[Round]]) -> Sequence[PlugInTable]:
        if node != NODE:
            return ()
        return (OverlayTable(streams=("shared*",)), StreamrNetworkListener())

    def add_nodes(self, network: Network) -> None:
        for name in (MEMBER, GUEST):
            config = Config(
                name=name,
                on_fatal="stay",
                grants=(GrantTable(who="noise:*", streams="*", may=VERBS),),
                tables=[OverlayTable(streams=("shared*",), trackers=(NODE,))],
            )
            network.add_node(name, peers=(NODE,), config=config)


PART: Final = OverlayPart()
