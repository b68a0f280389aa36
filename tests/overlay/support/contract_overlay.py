"""More of the load on simulated nodes: released Streamr nodes, which ask the node's tracker."""

import asyncio
from typing import Any, Final

import aiohttp

from contract_load import NODE, Round
from rillnode.actors.overlay.tracker import DIAL_SECONDS

TRACKER_URL: Final = f"ws://{NODE}:30300/ws"
OWN_URL: Final = f"ws://{NODE}:30300/node"
NAMES: Final = ("first", "second")
FORMED_SECONDS: Final = 0.5
"""Virtual time in which the tracker hears of a stream and tells whom it will."""


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


ROUNDS: Final = (Released,)
