"""The plug-in `overlay` keeps the contract of plug-ins."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from rillnode.actors.overlay.member import MemberActor
from rillnode.actors.overlay.neighbours import NeighboursActor
from rillnode.actors.overlay.tracker import TrackerActor
from rillnode.node.config import PlugInTable
from rillnode.node.overlay.config import OverlayTable, StreamrNetworkListener
from rillnode.testing.contract import PlugInContract, Used

pytestmark = pytest.mark.long


class TestOverlay(PlugInContract):
    name = "overlay"
    listeners = ("streamr_network",)
    actors = (MemberActor, NeighboursActor, TrackerActor)
    scenario = """
        nodes = 4
        messages = 10
        seconds = 5.0
        overlay.degree = 2
    """
    wrong = (
        ("[overlay]\ntrackers = ['nobody']", "config.value"),
        ("[streamr_network]", "config.missing"),
    )

    def tables(self, directory: Path) -> Sequence[PlugInTable]:
        return (
            OverlayTable(streams=("shared*",)),
            StreamrNetworkListener(listen="127.0.0.1:0"),
        )

    async def use(self, used: Used) -> None:
        stream = await used.client.stream("shared")
        await stream.push(b"x")
        url = f"ws://{used.addresses['streamr_network']}"
        headers = {"streamr-peer-id": "somebody", "streamr-peer-type": "node"}
        told = f"{url}/ws?address=ws://somebody.example:30300"
        async with aiohttp.ClientSession() as http, http.ws_connect(told, headers=headers) as node:
            said: Any = {"inboundNodes": [], "outboundNodes": [], "counter": 0}
            await node.send_json([1, 1, "", {"streams": {"shared::0": said}, "started": ""}])
            (told_of,) = (await node.receive_json())[5]
            assert told_of.endswith("/node")
