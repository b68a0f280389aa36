"""NextGraph's clients in the load on simulated nodes."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import Final

import aiohttp
import msgspec
import pytest

from contract_load import MANY, NODE, STOPPED, Part, Round
from nextgraph_document import ACCESS, ALICE, BRANCH, INNER, REPO, TOPIC, commit, identity
from rillnode import nextgraph
from rillnode.actors.nextgraph import wallets
from rillnode.actors.nextgraph.actor import UNUSED_SECONDS
from rillnode.actors.nextgraph.names import topic_stream
from rillnode.codecs.errors import RequestError, RillnodeError, TransportError
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
from rillnode.node.config import PlugInTable
from rillnode.node.nextgraph.config import NextgraphListener

ADMIN: Final = identity("admin")
GUEST: Final = identity("guest")
ANOTHER_REPO: Final = nextgraph.repo_hash(identity("another repo").public_key)
LARGE_BYTES: Final = LINK_BUFFER_HIGH_BYTES * 3 // 2
"""Of a commit whose event is one entry still, and more than a link is to hold."""
BEGUN_SECONDS: Final = 2.4
"""Virtual time in which other clients have begun what a failing store would keep them from."""
WALLET_SECONDS: Final = 5.0
"""How long a wallet waits for who fetches it, and he for the wallet, instead of ten minutes."""
REPAIRED_SECONDS: Final = 1.5
"""Virtual time in which what could not be read is read again."""


def broker_url(node: str) -> str:
    """Where a node's NextGraph broker is."""
    return f"ws://{node}:1440"


class AtBroker(Round):
    """Clients of a broker."""

    def broker_of(self, node: str) -> bytes:
        """The key of a node's broker."""
        return _broker_of(self, node)

    async def broker_client(
        self, user: nextgraph.Identity, kind: str = "unique", *, node: str = NODE
    ) -> nextgraph.Client:
        """Come to a broker as a user, who is invited first."""
        request = msgspec.json.encode({"kind": kind})
        async with await self.ask("connect", self.network.client(NODE)) as native:
            asking = native.ask("nextgraph", request, timeout_seconds=5.0)
            answer = msgspec.json.decode((await self.ask("invite", asking)).payload)
        if answer["error"] is not None:
            raise RequestError("desk.error", answer["error"])
        connecting = nextgraph.connect(
            broker_url(node),
            user=user,
            broker=self.broker_of(node),
            invitation=bytes.fromhex(answer["code"]),
        )
        return await self.ask("connect", connecting)


def _broker_of(one: Round, node: str) -> bytes:
    return bytes.fromhex(one.network.running(node).facts["nextgraph_peer_id"])


class Nextgraph(AtBroker):
    """Publishes commits, follows them on two devices, syncs; leaves letters and wallets."""

    async def talk(self) -> None:
        client = await self.broker_client(ALICE)
        try:
            await self.ask("pin", client.pin(REPO, ACCESS, publish=[TOPIC]))
            await self._talk(client)
        finally:
            await self.ask("close", client.close())

    async def _talk(self, client: nextgraph.Client) -> None:
        topic = TOPIC.public_key
        following = await self.once("subscribe", client.subscribe(INNER, REPO, topic))
        made = commit(b"%d" % self.number)
        if await self.once("publish", client.publish(INNER, TOPIC, BRANCH, made)):
            self.confirmed.append(made.reference.id)
        await self.once("sync", self._stored(client))
        await self.once("blocks", client.put_blocks(INNER, made.blocks))
        await self.once("found", client.find_blocks(INNER, [made.reference.id]))
        await self.once("status", client.pin_status(INNER, REPO))
        if following is not None:
            following.close()
        device = await self.broker_client(ALICE, node=self.second)
        try:
            await self._share(client, device)
        finally:
            await self.ask("close", device.close())

    async def _share(self, client: nextgraph.Client, device: nextgraph.Client) -> None:
        topic, outer = TOPIC.public_key, ACCESS.outer
        following = await self.once("subscribe", device.subscribe(INNER, REPO, topic))
        made = commit(b"shared %d" % self.number)
        if await self.once("publish", client.publish(INNER, TOPIC, BRANCH, made)):
            self.confirmed.append(made.reference.id)
        if self.strict:
            assert following is not None
            await self.ask("follow", anext(following))
        one = made.reference.id
        await self.once("commit", device.get_commit(INNER, one, topic=topic))
        exposed = client.pin(REPO, ACCESS, publish=[TOPIC], expose_outer=True)
        await self.once("expose", exposed)
        await self.once("found outside", device.find_blocks(outer, [one]))
        url, broker = broker_url(self.second), self.broker_of(self.second)
        objects = nextgraph.fetch_objects(url, broker=broker, overlay=outer, ids=[one])
        await self.once("objects", objects)
        await self.once("register", client.inboxes.register(outer, TOPIC))
        await self.once("letter", device.inboxes.post(outer, topic, b"letter"))
        await self.once("fetch", client.inboxes.fetch())
        place = b"%032d" % self.number
        await self.once("leave", client.leave_wallet(b"wallet", place))
        wallet = nextgraph.fetch_wallet(url, broker=broker, rendezvous=place)
        await self.once("wallet", wallet)
        await self.once("leave for nobody", client.leave_wallet(b"wallet", b"n%031d" % self.number))
        place = b"f%031d" % self.number
        nothing = nextgraph.fetch_wallet(url, broker=broker, rendezvous=place)
        await self.either("no wallet", nothing)
        await self._miss(device, one)
        await self.once("unsubscribe", device.unsubscribe(INNER, REPO, topic))

    async def _miss(self, device: nextgraph.Client, block: bytes) -> None:
        """Ask for what there is not."""
        await self.either("no topic", device.subscribe(INNER, REPO, bytes(32)))
        store = b"s" * 32
        for overlay in (nextgraph.inner_overlay(store, store), nextgraph.outer_overlay(store)):
            await self.either("no overlay", device.find_blocks(overlay, [block]))

    async def _stored(self, client: nextgraph.Client) -> list[bytes]:
        events = client.sync(INNER, TOPIC.public_key)
        return [nextgraph.open_event(event, BRANCH).reference.id async for event in events]

    async def check(self) -> None:
        async with await self.broker_client(ALICE, node=self.second) as client:
            await client.pin(REPO, ACCESS, publish=[TOPIC])
            assert set(self.confirmed) <= set(await self._stored(client)), "a commit is lost"


class Registrar(AtBroker):
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
        # A round that failed may have left the guest behind.
        if said.result not in (ProtocolCode.NO_ERROR, ProtocolCode.ALREADY_EXISTS):
            raise TransportError("nextgraph.refused", f"refused with {said.result}")

    async def check(self) -> None:
        pass  # who is expelled has nothing left


class Removed(AtBroker):
    """Follows a topic past a failure of the store, until its stream is removed and forgotten."""

    async def talk(self) -> None:
        async with self._device(NODE) as client, self._device(self.second) as device:
            topic = identity(f"topic {self.number}")
            for one in (client, device):
                await self.ask("pin", one.pin(ANOTHER_REPO, ACCESS, publish=[topic]))
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
        subscribing = device.subscribe(INNER, ANOTHER_REPO, topic.public_key)
        following = await self.ask("subscribe", subscribing)
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


class NextgraphPart(Part):
    """Clients of a node's broker, and the broker."""

    rounds = (Nextgraph, Registrar, Removed)
    rare = (Registrar, Removed)
    of_shared_logs = True

    def tables(self, node: str, rounds: Sequence[type[Round]]) -> Sequence[PlugInTable]:
        if node == STOPPED:
            return (NextgraphListener(registration="open"),)
        return (NextgraphListener(registration="invitation", public_name="broker.example"),)

    def quicken(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(wallets, "NEXTGRAPH_WALLET_SECONDS", WALLET_SECONDS)
        patch.setattr(wallets, "_KEPT_MS", int(WALLET_SECONDS * 1_000))

    async def use(self, one: Round, node: str, stack: AsyncExitStack) -> None:
        broker = _broker_of(one, node)
        connecting = nextgraph.connect(broker_url(node), user=ALICE, broker=broker)
        client = await one.ask("connect", connecting)
        stack.push_async_callback(client.close)


PART: Final = NextgraphPart()
