"""More of the load on simulated nodes: clients that serve addresses, and others that call."""

import asyncio
from typing import Final

from msgspec.structs import replace

from contract_load import NODE, Round
from rillnode.node.client import Client
from rillnode.node.config import GrantTable
from rillnode.node.runtime import Node

LEASE_SECONDS: Final = 0.5
AGAIN_SECONDS: Final = 2.0
"""Virtual time in which a client serves again that was told that something has failed."""


class Served(Round):
    """Serves addresses, alone and in a group, is called, cut off, and does not come back."""

    async def talk(self) -> None:
        client = await self.ask("connect", self.network.client(NODE))
        try:
            other = await self.ask("connect", self.network.client(NODE))
            try:
                await self._alone(client, other)
                await self._together(client, other)
                await self._away(other)
            finally:
                await self.ask("close", other.close())
        finally:
            await self.ask("close", client.close(), 30.0)

    async def _alone(self, client: Client, other: Client) -> None:
        address = f"alone-{self.number}"
        service = await self.ask("serve", client.serve(address, lambda one: one.payload))
        await self._call(other, address)
        revise(self.network.running(NODE), self.number)
        cut(client)
        await asyncio.sleep(AGAIN_SECONDS)
        await self._call(other, address)
        await self.ask("stop", service.stop(timeout_seconds=1.0), 15.0)

    async def _together(self, client: Client, other: Client) -> None:
        address = f"together-{self.number}"
        for one in (client, other):
            serving = one.serve(address, lambda message: message.payload, group=True)
            await self.once("serve together", serving)
        calls = (self._call(other, address, b"%d" % nth) for nth in range(20))
        await asyncio.gather(*calls)

    async def _away(self, other: Client) -> None:
        address = f"away-{self.number}"
        leaving = await self.ask("connect", self.network.client(NODE, reconnect=False))
        serving = leaving.serve(address, lambda one: one.payload, lease_seconds=LEASE_SECONDS)
        await self.once("serve for a while", serving)
        cut(leaving)
        await asyncio.sleep(LEASE_SECONDS + AGAIN_SECONDS)
        await self.either("call nobody", other.ask(address, b"x", timeout_seconds=5.0))
        await self.ask("close", leaving.close())

    async def _call(self, other: Client, address: str, payload: bytes = b"x") -> None:
        calling = other.ask(address, payload, timeout_seconds=5.0)
        answer = await self.once("call", calling)
        assert answer is None or answer.payload == payload

    async def check(self) -> None:
        pass  # nothing is kept of it


def revise(node: Node, number: int) -> None:
    """Take a right of somebody else back: all that goes on by one looks again."""
    grants = node.config.grants
    one = GrantTable(who=f"noise:{number:064x}", streams="x", addresses="x", may=("pull", "send"))
    node.reload(replace(node.config, grants=(*grants, one)))
    node.reload(replace(node.config, grants=grants))


def cut(client: Client) -> None:
    """Have a client lose its link."""
    link = client._session._link  # pyright: ignore[reportPrivateUsage]
    if link is not None:
        link.close("cut")


ROUNDS: Final = (Served,)
