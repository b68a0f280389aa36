"""More of the load on simulated nodes: of a NextGraph broker, what is rarer than documents."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from random import Random
from typing import Final

import aiohttp
import pytest

from contract_load import MANY, NODE, Round, broker_url
from nextgraph_document import ACCESS, ALICE, BRANCH, INNER, commit, identity
from rillnode import nextgraph
from rillnode.actors.nextgraph.actor import UNUSED_SECONDS
from rillnode.actors.nextgraph.names import topic_stream
from rillnode.codecs.errors import RillnodeError, TransportError
from rillnode.codecs.limits import LINK_BUFFER_HIGH_BYTES
from rillnode.codecs.nextgraph.admin import (
    AddUser,
    AdminContent,
    AdminResponse,
    DelUser,
    sign_admin_request,
)
from rillnode.codecs.nextgraph.client_dialogue import ClientDialogue
from rillnode.codecs.nextgraph.messages import encode_message
from rillnode.codecs.nextgraph.results import ProtocolCode
from rillnode.codecs.nextgraph.start import Probe

ADMIN: Final = identity("admin")
GUEST: Final = identity("guest")
REPO: Final = nextgraph.repo_hash(identity("another repo").public_key)
LARGE_BYTES: Final = LINK_BUFFER_HIGH_BYTES * 3 // 2
"""Of a commit whose event is one entry still, and more than a link is to hold."""
BEGUN_SECONDS: Final = 2.4
"""Virtual time in which other clients have begun what a failing store would keep them from."""
REPAIRED_SECONDS: Final = 1.5
"""Virtual time in which what could not be read is read again."""


class Registrar(Round):
    """Registers a user and expels it, and asks the broker what anybody may."""

    async def talk(self) -> None:
        async with aiohttp.ClientSession() as http:
            await self.once("probe", self._probe(http))
            await self._expel(http)
        rendezvous = b"w%031d" % self.number
        waiting = nextgraph.fetch_wallet(
            broker_url(self.second),
            broker=self.broker_of(self.second),
            rendezvous=rendezvous,
            waits=True,
        )
        await self.either("nobody comes with a wallet", waiting)

    async def _probe(self, http: aiohttp.ClientSession) -> None:
        """Ask whether a broker is there: it closes soon after its answer."""
        async with http.ws_connect(broker_url(NODE)) as socket:
            await socket.send_bytes(encode_message(Probe()))
            while (await socket.receive()).type is aiohttp.WSMsgType.BINARY:
                pass

    async def _expel(self, http: aiohttp.ClientSession) -> None:
        await self.ask("close", (await self.broker_client(ADMIN, "admin")).close())
        await self.ask(
            "register", self._administer(http, AddUser(GUEST.public_key, is_admin=False))
        )
        guest = await self.broker_client(GUEST, node=self.second)
        try:
            inbox = await self.ask("register", guest.inboxes.register(ACCESS.outer, GUEST))
            await self.once("expel", self._administer(http, DelUser(GUEST.public_key)))
            if self.strict:
                with pytest.raises(RillnodeError):
                    await self.ask("be told", anext(inbox))
        finally:
            await self.ask("close", guest.close())

    async def _administer(self, http: aiohttp.ClientSession, content: AdminContent) -> None:
        """Ask something as the administrator, on a connection of its own."""
        request = sign_admin_request(content, ADMIN)
        dialogue = ClientDialogue(identity("visitor"), self.broker_of(NODE), request)
        said: object = None
        async with http.ws_connect(broker_url(NODE)) as socket:
            while said is None:
                for frame in dialogue.take_output():
                    await socket.send_bytes(frame)
                answer = await socket.receive()
                if answer.type is not aiohttp.WSMsgType.BINARY:
                    raise TransportError("link.closed", f"closed with {socket.close_code}")
                said = dialogue.receive(answer.data)
        assert isinstance(said, AdminResponse)
        if said.result != ProtocolCode.NO_ERROR:
            raise TransportError("nextgraph.refused", f"refused with {said.result}")

    async def check(self) -> None:
        pass  # who is expelled has nothing left


class Removed(Round):
    """Follows a topic past a failure of the store, until its stream is removed and forgotten."""

    async def talk(self) -> None:
        async with self._device(NODE) as client, self._device(self.second) as device:
            topic = identity(f"topic {self.number}")
            for one in (client, device):
                await self.ask("pin", one.pin(REPO, ACCESS, publish=[topic]))
            await self._have_much(client, device, topic)
            await self._fail(client, topic)
            async with await self.ask("connect", self.network.client(NODE)) as native:
                stream = topic_stream(INNER.id, topic.public_key)
                await self.once("remove", native.remove(stream))
            await self.either("publish", self._publish(client, topic, b"too late"))
            await asyncio.sleep(UNUSED_SECONDS)

    @asynccontextmanager
    async def _device(self, node: str) -> AsyncGenerator[nextgraph.Client]:
        client = await self.broker_client(ALICE, node=node)
        try:
            yield client
        finally:
            await self.ask("close", client.close())

    async def _publish(
        self, client: nextgraph.Client, topic: nextgraph.Identity, body: bytes
    ) -> nextgraph.Published:
        return await client.publish(INNER, topic, BRANCH, commit(body))

    async def _have_much(
        self, client: nextgraph.Client, device: nextgraph.Client, topic: nextgraph.Identity
    ) -> None:
        """Have forwarded and read what may be more than links hold; go on asking meanwhile."""
        following = await self.ask("subscribe", device.subscribe(INNER, REPO, topic.public_key))
        body = Random(0).randbytes(LARGE_BYTES if self.much else 1)
        await asyncio.gather(
            self.once("publish", self._publish(client, topic, body)),
            *(
                self.once("ask on", self._find(device, nth / 500))
                for nth in range(40 if self.much else 1)
            ),
        )
        if self.strict:
            await self.ask("follow", anext(following))
        await self.once("sync", self._sync(client, topic))

    async def _find(self, device: nextgraph.Client, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await device.find_blocks(INNER, [bytes(32)])

    async def _sync(self, client: nextgraph.Client, topic: nextgraph.Identity) -> None:
        async for _ in client.sync(INNER, topic.public_key):
            pass

    async def _fail(self, client: nextgraph.Client, topic: nextgraph.Identity) -> None:
        """Publish what the store says it has not written, and cannot read at once."""
        await asyncio.sleep(BEGUN_SECONDS)
        disk = self.disk
        disk.faults.failing_syncs = disk.faults.surviving = 1
        disk.spoil(MANY)
        await self.either("publish", self._publish(client, topic, b"survives"))
        await asyncio.sleep(disk.faults.repair_seconds)
        disk.repair()
        await asyncio.sleep(REPAIRED_SECONDS)
        await self.once("publish", self._publish(client, topic, b"survives"))

    async def check(self) -> None:
        pass  # its stream is no more


ROUNDS: Final = (Registrar, Removed)
