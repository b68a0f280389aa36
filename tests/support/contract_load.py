"""A small load of every kind of client on simulated nodes, and what it was promised.

Each client does one round of all that it can: it connects, asks, and leaves. What it asks has an
outcome within `OUTCOME_SECONDS`, an error too; what was confirmed to it is there at the end.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Final, TypeVar

import aiohttp
import msgspec
import pytest
from msgspec.structs import replace

from nextgraph_document import ACCESS, ALICE, BRANCH, INNER, REPO, TOPIC, commit
from rillnode import Context, Message, nextgraph, streamr
from rillnode.actors.core.access import VERBS
from rillnode.actors.core.links.dialling import FORGET_SECONDS
from rillnode.actors.core.streams.retention import SWEEP_SECONDS
from rillnode.actors.log import StoreHealth
from rillnode.codecs.channel_key import ChannelKey
from rillnode.codecs.entries import Entry
from rillnode.codecs.errors import RequestError, RillnodeError, TransportError
from rillnode.codecs.limits import LINK_BUFFER_HIGH_BYTES
from rillnode.codecs.ockam.hub import TEXT
from rillnode.codecs.routing.routes import Route, WireMessage, local, parse_route
from rillnode.codecs.routing.stream import (
    BidirectionalPublisherRequest,
    BidirectionalRequest,
    CreateRequest,
    CreateResponse,
    ErrorResponse,
    GetIndexRequest,
    IndexResponse,
    PullRequest,
    PushConfirm,
    PushRequest,
    Request,
    SaveIndexRequest,
    Status,
    decode_response,
    encode_request,
)
from rillnode.codecs.streamr.key_requests import REQUESTS_MAX, RETRY_MS
from rillnode.node.client import Client, Stream
from rillnode.node.client.appends import TOGETHER_MIN
from rillnode.node.client.messages import Answer
from rillnode.node.config import Config, GrantTable, StreamTable
from rillnode.node.iteration import Iteration
from rillnode.node.nextgraph.config import NextgraphListener
from rillnode.node.ockam.client.channel import SecureChannel
from rillnode.node.ockam.config import ChannelTable, OckamListener, ServicesTable
from rillnode.node.overlay.config import OverlayTable, StreamrNetworkListener
from rillnode.node.runtime import Node
from rillnode.node.simulation.disk import Disk
from rillnode.node.spark.config import SinkTables
from rillnode.node.streamr.client.endpoints import endpoints_of
from rillnode.node.streamr.client.login import Login
from rillnode.node.streamr.client.rest import Rest
from rillnode.node.streamr.config import StreamrListener
from rillnode.testing import Network
from streamr_keys_support import PUBLISHER, SUBSCRIBER, rsa_key

T = TypeVar("T")

OUTCOME_SECONDS: Final = 10.0
MANY: Final = 200
"""Messages at once: more than actors handle in one turn."""
NODE: Final = "a"
PEER: Final = "b"
CHANNEL_SECONDS: Final = 4.0
"""How long a secure channel may take to open, and how long it may be idle."""

CONFIG: Final = Config(
    name=NODE,
    on_fatal="stay",
    grants=(
        GrantTable(who="eth:*", streams="*", may=("create",)),
        GrantTable(who="noise:*", streams="*", may=VERBS),
        GrantTable(who="noise:*", addresses="*", may=("admin",)),
        GrantTable(who="ockam:*", streams="*", may=VERBS),
        GrantTable(who="anonymous", streams="shared-released*", may=("push", "subscribe")),
    ),
    streams=(StreamTable(name="limited", retain_entries_max=1),),
    tables=[
        StreamrListener(),
        NextgraphListener(registration="invitation", public_name="broker.example"),
        OverlayTable(streams=("shared*",)),
        StreamrNetworkListener(),
        OckamListener(
            listen=f"{NODE}:4000",
            allow_plain=True,
            channel=ChannelTable(
                handshake_seconds_max=CHANNEL_SECONDS, idle_seconds=CHANNEL_SECONDS
            ),
        ),
    ],
)
PEER_CONFIG: Final = Config(
    name=PEER,
    on_fatal="stay",
    grants=(GrantTable(who="noise:*", streams="*", may=VERBS),),
    tables=[OckamListener(listen=f"{PEER}:4000", allow_plain=True)],
)
MEMBER: Final = "c"
GUEST: Final = "d"
STOPPED: Final = "e"
STOPPED_CONFIG: Final = Config(
    name=STOPPED,
    on_fatal="stay",
    grants=CONFIG.grants,
    tables=[StreamrListener(), NextgraphListener(registration="open"), ServicesTable()],
)
CHANGES: Final = 40
"""How often grants change, 0.1 s for each: while everybody else has something under way."""


def add_nodes(network: Network, sink: SinkTables) -> None:
    """Add the node that all of this is about, its peer, and two that share streams with it.

    It has this sink, and so has a node that is stopped.
    """
    network.add_node(PEER, config=PEER_CONFIG)
    network.add_node(NODE, peers=(PEER,), config=CONFIG.having(sink))
    for name in (MEMBER, GUEST):
        config = Config(
            name=name,
            on_fatal="stay",
            grants=(GrantTable(who="noise:*", streams="*", may=VERBS),),
            tables=[OverlayTable(streams=("shared*",), trackers=(NODE,))],
        )
        network.add_node(name, peers=(NODE,), config=config)
    network.add_node(STOPPED, peers=(PEER,), config=STOPPED_CONFIG.having(sink))


SEVERAL: Final = tuple(f"several-{nth}" for nth in range(TOGETHER_MIN))
"""Streams that are pushed to together."""

SUBSCRIBED_SECONDS: Final = 0.01
"""Virtual time in which a subscription has been made, on links of a millisecond."""
EXCHANGED_SECONDS: Final = 1.5
"""Virtual time in which a key was asked for, as clients do after a second, and given."""
LARGE_TEXT_CHARACTERS: Final = LINK_BUFFER_HIGH_BYTES // 3
"""Of an encrypted message: three of them are more than a link is to hold."""
KEY_SECONDS: Final = OUTCOME_SECONDS + RETRY_MS * 2**REQUESTS_MAX / 1_000
"""How long it may take to give up messages whose key does not come."""
LEFT_SECONDS: Final = 3.0
"""Virtual time after which the actor of a stream that is no more has left; retention has swept by
the end of two rounds."""
LINKED_SECONDS: Final = 1.0
"""Virtual time in which nodes that share a stream are linked in it, mostly."""
SHARED_SECONDS: Final = 60
"""Virtual time within which each has what the other has, whatever has failed between them."""
GONE_SECONDS: Final = 6.0
"""How long a subscriber stays away, while what is for it waits."""
SUBSCRIBING: Final = parse_route("stream_subscribe")
GRANTED: Final = "0x" + "22" * 20
SERVICES: Final = (
    ("echo", b"hello"),
    ("uppercase", b"\x05hello"),
    ("forwarding_service", b"hello"),
    ("static_forwarding_service", TEXT.encode("native")),
    ("pub_sub_service", TEXT.encode("native:topic")),
)


def answer_all(message: Message, ctx: Context) -> bytes:
    """An actor of an application: answers with what it was sent."""
    return message.payload


def link_of(message: Message, ctx: Context) -> bytes:
    """Answers with the address of the link by which it was asked."""
    return message.return_route[0].value


def broker_url(node: str) -> str:
    """Where a node's NextGraph broker is."""
    return f"ws://{node}:1440"


def streamr_url(node: str) -> str:
    """Where a node's Streamr clients come to."""
    return f"ws://{node}:8890"


class NoOutcome(AssertionError):
    """Somebody asked, and nothing came of it in time."""


class Round(ABC):
    """One kind of client; each round is a link of its own.

    Attributes:
        confirmed: what the node has confirmed.
        index: the highest that it has confirmed to have saved.
        strict: whether an error that a client is told is one too many.
        much: whether more is sent than links hold, which takes the most time by far.
        lossy: whether messages may be lost where something fails, as those over a link between
            nodes: that nobody has answered in time is an outcome then.
        second: the node that the second of two clients comes to.
    """

    lossy = False

    def __init__(self, network: Network, *, much: bool, second: str = NODE) -> None:
        self.network = network
        self.much = much
        self.second = second
        self.confirmed: list[object] = []
        self.index = 0
        self.number = 0
        self.strict = False

    @property
    def disk(self) -> Disk:
        """What the node's store is on."""
        return self.network._world.nodes[NODE].disk  # pyright: ignore[reportPrivateUsage]

    def broker_of(self, node: str) -> bytes:
        """The key of a node's NextGraph broker."""
        return bytes.fromhex(self.network.running(node).nextgraph_peer_id or "")

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

    async def ask(self, what: str, asked: Awaitable[T], seconds: float = OUTCOME_SECONDS) -> T:
        """Have the outcome of one question in time."""
        try:
            return await asyncio.wait_for(asked, seconds)
        except TimeoutError:
            raise NoOutcome(f"{type(self).__name__}: {what}") from None
        except aiohttp.ClientError as error:
            raise TransportError("link.closed", f"{what}: {error}") from None
        except RillnodeError as error:
            if error.code == "message.timeout" and (self.strict or not self.lossy):
                raise NoOutcome(f"{type(self).__name__}: {what}: {error}") from None
            raise

    async def once(self, what: str, asked: Awaitable[T]) -> T | None:
        """Ask something that nothing else depends on; None where the outcome is an error."""
        try:
            return await self.ask(what, asked)
        except RillnodeError:
            if self.strict:
                raise
            return None

    def there(self, asked: Coroutine[Any, Any, T]) -> "asyncio.Future[T]":
        """Do something where the node's own application is: hosts have a loop each."""
        hosting = self.network.running(NODE)._hosting  # pyright: ignore[reportPrivateUsage]
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asked, hosting.loop))

    async def either(
        self, what: str, asked: Awaitable[object], seconds: float = OUTCOME_SECONDS
    ) -> None:
        """Ask for what there is not: an error is its outcome as well, or nothing found."""
        with suppress(RillnodeError):
            await self.ask(what, asked, seconds)

    async def run(self) -> None:
        """Do a round; what it is told to have failed is an outcome as well."""
        self.number += 1
        try:
            await self.talk()
        except RillnodeError:
            if self.strict:
                raise

    def saved(self, index: int) -> None:
        """A saved index was confirmed or read."""
        assert index >= self.index, f"a saved index went back from {self.index} to {index}"
        self.index = index

    @abstractmethod
    async def talk(self) -> None:
        """Connect, do all that there is, and leave."""

    @abstractmethod
    async def check(self) -> None:
        """Look for all that was confirmed."""


class Native(Round):
    """Pushes, pulls, follows, saves its position, and calls services."""

    async def talk(self) -> None:
        client = await self.ask("connect", self.network.client(NODE))
        try:
            other = await self.ask("connect", self.network.client(self.second))
            try:
                await self._talk(client, other)
            finally:
                await self.ask("close", other.close())
        finally:
            await self.ask("close", client.close())

    async def _talk(self, client: Client, other: Client) -> None:
        stream = await self.ask("create", client.stream("events"))
        followed = await self.ask("open", other.stream("events"))
        data = b"native %d" % self.number
        async with followed.batches(start="end") as batches:
            following = asyncio.ensure_future(anext(batches))
            await asyncio.sleep(SUBSCRIBED_SECONDS)
            for part in range(2):
                entry = data + b" %d" % part
                if await self.once("push", stream.push(entry)) is not None:
                    self.confirmed.append(entry)
            if self.strict:
                await self.ask("follow", following)
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        await self._push_by_name(stream, followed, data)
        await self.once("pull", followed.pull(0))
        await self.once("describe", other.describe("events"))
        await self.once("list", other.streams())
        index = await self.once("save", client.set_index("n", "events", self.number))
        if index is not None:
            self.saved(index)
        index = await self.once("load", other.get_index("n", "events"))
        if index is not None:
            self.saved(index)
        await self.once("indexes", client.indexes("events"))
        await self.once("status", client.status())
        await self.once("look up", client.about("stream"))
        await self._close_a_link(client)
        for service, payload in SERVICES:
            await self.once(service, client.ask(service, payload, timeout_seconds=5.0))
        several = [await self.once("open", client.stream(name)) for name in SEVERAL]
        await asyncio.gather(*(self._push_one_of(one, data) for one in several if one is not None))
        limited = await self.once("open", client.stream("limited"))
        if limited is not None:
            await self.once("push there", limited.push(data))
        app = f"app-{self.number}"
        spawning = self.network.running(NODE).spawn(answer_all, address=app, allow=["noise:*"])
        if (spawned := await self.once("spawn", self.there(spawning))) is not None:
            await self.once("ask there", client.ask(app, data, timeout_seconds=5.0))
            await self.once("ask it", self.there(spawned.ask(data, timeout_seconds=5.0)))
            await self.ask("stop", self.there(spawned.stop()))
        asks = (client.ask("echo", b"%d" % nth, timeout_seconds=5.0) for nth in range(100))
        await asyncio.gather(*(self.once("one of many", one) for one in asks))
        own = await self.once("create another", client.stream(f"own-{self.number}"))
        there = await self.once("open", other.stream(f"own-{self.number}"))
        if own is not None and there is not None:
            await self._use(client, own, there)

    async def _close_a_link(self, client: Client) -> None:
        """Have the link of another client closed, which makes a new one."""
        spawning = self.network.running(NODE).spawn(link_of, address=f"link-of-{self.number}")
        spawned = await self.once("spawn", self.there(spawning))
        async with await self.ask("connect", self.network.client(NODE)) as other:
            if spawned is not None:
                asking = other.ask(spawned.address, b"", timeout_seconds=5.0)
                if (answer := await self.once("ask there", asking)) is not None:
                    await self.once("close", client.stop(answer.payload.decode()))
                await self.ask("stop", self.there(spawned.stop()))
            await self.once("ask over another", other.describe("events"))

    async def _push_one_of(self, stream: Stream, data: bytes) -> None:
        """Push to a stream while others are pushed to."""
        entry = data + b" " + stream.name.encode()
        if await self.once("push to several", stream.push(entry)) is not None:
            self.confirmed.append(entry)

    async def _push_by_name(self, stream: Stream, followed: Stream, data: bytes) -> None:
        """Push with a number, and once more after its producer was opened at another place."""
        entry = data + b" by name"
        producer = await self.once("open a producer", stream.producer("load"))
        if producer is None:
            return
        if await self.once("push by name", producer.push(entry, sequence=self.number)) is not None:
            self.confirmed.append(entry)
            again = await self.once("open it again", followed.producer("load"))
            assert again is None or again.last_sequence == self.number, "a number is forgotten"

    async def _use(self, client: Client, own: Stream, there: Stream) -> None:
        """Push to a stream, follow it, and remove it; its actor leaves."""
        async with there.batches(start="end") as batches:
            following = asyncio.ensure_future(anext(batches))
            await asyncio.sleep(SUBSCRIBED_SECONDS)
            await self.once("push there", own.push(b"x"))
            await self.once("trim", client.trim(own.name, before=1))
            await self.once("remove", client.remove(own.name))
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        await asyncio.sleep(LEFT_SECONDS)

    async def check(self) -> None:
        async with await self.network.client(self.second) as client:
            found: Counter[bytes] = Counter()
            for name in ("events", *SEVERAL):
                stream = await client.stream(name)
                found += Counter(bytes(entry.data) for entry in await stream.pull(0, 1_000))
            assert found.keys() >= set(self.confirmed), "what was confirmed is lost"
            pushed = set(self.confirmed)
            doubled = [entry for entry, count in found.items() if count > 1 and entry in pushed]
            assert not doubled, "what was sent again is stored twice"
            self.saved(await client.get_index("n", "events") or 0)
            await asyncio.sleep(2 * SWEEP_SECONDS)
            kept = (await client.describe("limited")).partitions[0]
            assert kept.next_index - kept.first_index == 1, "nothing is trimmed any more"


class Ockam(Round):
    """Speaks Ockam's stream protocols, as its workers do."""

    async def talk(self) -> None:
        client = await self.ask("connect", self.network.client(NODE))
        try:
            await self._talk(client)
        finally:
            await self.ask("close", client.close())

    async def _told(
        self, client: Client, route: Route | str, request: Request
    ) -> tuple[object, Route]:
        answer = await client.ask(route, encode_request(request), timeout_seconds=5.0)
        return decode_response(answer.payload), answer.return_route

    async def _talk(self, client: Client) -> None:
        made = await self.once("create", self._told(client, "stream", CreateRequest("ockam")))
        if made is None or isinstance(made[0], ErrorResponse):
            return
        assert isinstance(made[0], CreateResponse)
        data = b"ockam %d" % self.number
        pushed = await self.once(
            "push", self._told(client, made[1], PushRequest(self.number, data))
        )
        if pushed is not None and isinstance(pushed[0], PushConfirm):
            if pushed[0].status is Status.OK:
                self.confirmed.append(data)
            else:
                assert not self.strict
        await self.once("pull", self._told(client, made[1], PullRequest(1, 0, 10)))
        save = SaveIndexRequest("o", "ockam", self.number)
        await self.once("save", client.send("stream_index", encode_request(save)))
        await self._index(client)

    async def _index(self, client: Client) -> None:
        found = await self.once(
            "load", self._told(client, "stream_index", GetIndexRequest("o", "ockam"))
        )
        if found is not None and isinstance(found[0], IndexResponse):
            self.saved(found[0].index or 0)

    async def check(self) -> None:
        async with await self.network.client(NODE) as client:
            found = [bytes(one.data) for one in await (await client.stream("ockam")).pull(0, 1_000)]
            assert set(self.confirmed) <= set(found), "what was confirmed is lost"
            await self._index(client)


class Streamr(Round):
    """Publishes, follows, has resent what is stored, and gives another its key for a while."""

    async def _open(self, node: str, key: streamr.EthereumKey = PUBLISHER) -> streamr.Client:
        client = streamr.Client(endpoints_of(streamr_url(node)), key=key, make_rsa_key=rsa_key)
        await self.ask("connect", client.open())
        return client

    async def talk(self) -> None:
        client = await self._open(NODE)
        try:
            await self._talk(client)
            await self._share(client)
        finally:
            await self.ask("close", client.close())
        async with aiohttp.ClientSession() as http:
            await self._call(http)

    async def _talk(self, client: streamr.Client) -> None:
        await self.ask("create", client.get_or_create_stream("sensors"))
        following = await self.once("subscribe", client.subscribe("sensors"))
        text = f"streamr {self.number}"
        if await self._published(client, "sensors", text):
            self.confirmed.append(text)
        if self.strict:
            assert following is not None
            await self.ask("follow", anext(following))
        await self.once("resend", self._stored(client))
        await self.once("grant", client.grant("sensors", "subscribe", user=GRANTED))
        await self.once("permissions", client.permissions("sensors"))
        await self.once("revoke", client.revoke("sensors", "subscribe", user=GRANTED))
        await self.once("describe", client.get_stream("sensors"))
        with pytest.raises(RillnodeError):
            await self.ask("be refused", client.subscribe("sensors", partition=7))
        if following is not None:
            await self.once("unsubscribe", following.close())

    async def _published(self, client: streamr.Client, stream: str, text: str) -> bool:
        async def publish() -> bool:
            await client.publish(stream, text)
            await client.flush()
            return True

        return bool(await self.once("publish", publish()))

    async def _share(self, client: streamr.Client) -> None:
        """Encrypt for another, who may not follow any more then; the stream is removed."""
        stream = f"secret-{self.number}"
        await self.ask("create", client.create_stream(stream))
        await self.once("encrypt", client.encrypt(stream))
        await self.once("grant", client.grant(stream, "subscribe", user=SUBSCRIBER.address))
        own = await self.once("subscribe", client.subscribe(stream))
        other = await self._open(NODE, SUBSCRIBER)
        try:
            following = await self.once("subscribe", other.subscribe(stream))
            first = asyncio.ensure_future(_next(following))
            await self._published(client, stream, "secret")
            await asyncio.sleep(EXCHANGED_SECONDS)
            if self.strict:
                assert (await self.ask("follow", first)).content == "secret"
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            for _ in range(3 if self.much else 0):
                await self._published(client, stream, "s" * LARGE_TEXT_CHARACTERS)
                if self.strict:
                    await self.ask("follow", _next(following))
            revoking = client.revoke(stream, "subscribe", user=SUBSCRIBER.address)
            await asyncio.gather(
                self.either("resend", self._stored(other, stream), KEY_SECONDS),
                self.once("revoke", revoking),
            )
            if self.strict:
                with pytest.raises(RillnodeError):
                    await self.ask("be told", _next(following))
        finally:
            await self.ask("close", other.close())
        async with await self.ask("connect", self.network.client(NODE)) as native:
            await self.once("remove", native.remove(stream))
        if own is not None:
            await self.once("unsubscribe", own.close())
        await asyncio.sleep(LEFT_SECONDS)

    async def _call(self, http: aiohttp.ClientSession) -> None:
        """Ask over REST alone."""
        url = endpoints_of(streamr_url(NODE)).rest
        login = Login(http, url, key=PUBLISHER)
        rest = Rest(http, url, login.token)
        await self.once("list", rest.get("/streams", query={"public": "true"}))
        await self.once("publishers", rest.get("/streams/sensors/publishers"))
        await self.once("log out", rest.post("/logout", {}))

    async def _stored(self, client: streamr.Client, stream: str = "sensors") -> list[object]:
        return [one.content async for one in client.resend(stream, streamr.From(0))]

    async def check(self) -> None:
        async with await self._open(self.second) as client:
            assert set(self.confirmed) <= set(await self._stored(client)), "a message is lost"


async def _next(following: streamr.Subscription | None) -> streamr.Message:
    assert following is not None
    return await anext(following)


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


class Nextgraph(Round):
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


class Channel(Round):
    """Opens a secure channel, uses it, and leaves it alone until it is closed."""

    lossy = True

    async def talk(self) -> None:
        client = await self.ask("connect", self.network.client(NODE))
        try:
            opening = SecureChannel.open(client, "SC_listener", timeout_seconds=5.0)
            channel = await self.ask("open", opening)
            await self.once("echo", channel.ask("echo", b"sealed", timeout_seconds=5.0))
            await asyncio.sleep(3 * CHANNEL_SECONDS)
            await channel.close()
        finally:
            await self.ask("close", client.close())

    async def check(self) -> None:
        pass  # nothing is kept of it


class Hub(Round):
    """Has what is sent to aliases come, and talks to a service over streams of both directions.

    It goes while something is on its way to it, and comes back over another link.
    """

    lossy = True

    async def talk(self) -> None:
        async with self._channel() as (client, channel):
            await self._talk(channel)
            await self.once("echo", client.ask("echo", b"all is sent", timeout_seconds=5.0))
        await asyncio.sleep(GONE_SECONDS)
        async with self._channel() as (client, channel):
            await self._come_back(channel)
            for stream in self._streams():  # others end when their subscriber has been away
                await self.once("remove", client.remove(stream))

    @asynccontextmanager
    async def _channel(self) -> AsyncGenerator[tuple[Client, SecureChannel]]:
        """A channel of the same peer over a new link."""
        client = await self.ask("connect", self.network.client(NODE))
        try:
            key = ChannelKey(b"%032d" % self.number)
            opening = SecureChannel.open(client, "SC_listener", key=key, timeout_seconds=5.0)
            channel = await self.ask("open", opening)
            yield client, channel
            await channel.close()
        finally:
            await self.ask("close", client.close())

    def _streams(self, kind: str = "") -> tuple[str, str]:
        return f"{kind}there-{self.number}", f"{kind}here-{self.number}"

    async def _talk(self, channel: SecureChannel) -> None:
        told = _Told(channel)
        for service, onward in (("forwarding_service", ""), ("tracing_service", "echo")):
            made = await self._comes(told.of(parse_route(service), b"hello"))
            if made is not None:
                await self._comes(told.of(made.return_route + parse_route(onward), b"hello"))
        publisher = await self._go_around(told, *self._streams())
        if publisher is not None:
            for nth in range(MANY):  # nobody takes it: it is handed on at once, turn by turn
                told.send(publisher + parse_route("nobody"), b"many %d" % nth)
            told.send(publisher + parse_route("echo"), b"late")

    async def _come_back(self, channel: SecureChannel) -> None:
        """Subscribe again, and to others while the store takes no writes for a moment."""
        told = _Told(channel)
        for stream in self._streams():
            told.send(SUBSCRIBING, encode_request(BidirectionalRequest(stream, "foo")))
        await self.once("echo", channel.ask("echo", b"again", timeout_seconds=5.0))
        self.disk.faults.failing_syncs = 1
        await self._go_around(told, *self._streams("late"))

    async def _go_around(self, told: "_Told", there: str, here: str) -> Route | None:
        """Have a service answer over two streams; the way to the publisher."""
        request = BidirectionalPublisherRequest(there, here, "")
        made = await self._comes(told.of(SUBSCRIBING, encode_request(request)))
        for stream in (there, here):
            told.send(SUBSCRIBING, encode_request(BidirectionalRequest(stream, "foo")))
        if made is not None:
            await self._comes(told.of(made.return_route + parse_route("echo"), b"around"))
        return None if made is None else made.return_route

    async def _comes(self, coming: Awaitable[WireMessage]) -> WireMessage | None:
        """What comes; None: nothing does, as where it was lost."""
        try:
            return await asyncio.wait_for(coming, 3.0)
        except TimeoutError:
            if self.strict:
                raise NoOutcome("what was sent to an alias has not come") from None
            return None

    async def check(self) -> None:
        pass  # of aliases nothing is kept; subscriptions wait for their subscriber for some time


class _Told:
    """What is sent through a channel, and what comes of it."""

    def __init__(self, channel: SecureChannel) -> None:
        self._messages = channel.messages
        self._came: asyncio.Queue[WireMessage] = asyncio.Queue()
        self._back: Route = (local(self._messages.attach(self._came.put_nowait)),)

    def send(self, route: Route, payload: bytes) -> None:
        """Send, and wait for nothing."""
        self._messages.send(route, payload, self._back)

    def of(self, route: Route, payload: bytes) -> Awaitable[WireMessage]:
        """Send; the next that comes."""
        while not self._came.empty():
            self._came.get_nowait()  # copies of what was traced
        self.send(route, payload)
        return self._came.get()


class Peer(Round):
    """Reaches the node's peer, in every way; that one dies, and comes again."""

    lossy = True

    async def talk(self) -> None:
        client = await self.ask("connect", self.network.client(NODE))
        try:
            await self._talk(client)
        finally:
            await self.ask("close", client.close())

    async def _talk(self, client: Client) -> None:
        await self._reach(client)
        large, count = bytes(2 * LINK_BUFFER_HIGH_BYTES), 40 if self.much else 1
        await asyncio.gather(
            self.once("send much", self._echo(client, payload=large)),
            *(self.once("send on", self._echo_later(client, nth / 500)) for nth in range(count)),
        )
        await self.once("dial", self._echo(client, f"1#{PEER}:4000"))
        self.network.kill(PEER)
        await asyncio.sleep(0.1)
        with pytest.raises(RillnodeError) as refused:
            await self.ask("be refused", self._echo(client))
        if self.strict:
            assert refused.value.code == "peer.unreachable"
        self.network.restart(PEER)
        await self._reach(client)
        await asyncio.sleep(FORGET_SECONDS)

    async def _reach(self, client: Client) -> None:
        """Ask until the peer answers, as it does once it is there."""
        for _ in range(30):
            try:
                await self._echo(client)
            except RillnodeError:
                await asyncio.sleep(1.0)
            else:
                return
        raise NoOutcome("the peer is not reached again")

    async def _echo(
        self, client: Client, way: str = f"peer/{PEER}", payload: bytes = b""
    ) -> Answer:
        return await client.ask(f"{way};echo", payload, timeout_seconds=5.0)

    async def _echo_later(self, client: Client, seconds: float) -> Answer:
        await asyncio.sleep(seconds)
        return await self._echo(client)

    async def check(self) -> None:
        pass  # nothing is kept of it


class Operator(Round):
    """Changes grants and streams while clients are connected, and asks for a copy of the store."""

    async def talk(self) -> None:
        node = self.network.running(NODE)
        grants = node.config.grants
        one = GrantTable(who=f"noise:{self.number:064x}", streams="*", may=("pull",))
        async with await self.ask("connect", self.network.client(NODE)) as client:
            await self._change(client, (*grants, one), grants)
        table = StreamTable(name="configured", partitions=self.number)
        node.reload(replace(node.config, streams=(*CONFIG.streams, table)))
        async with await self.ask("connect", self.network.client(NODE)) as client:
            await self.once("open", client.stream("configured"))
            await self.once("copy", self._copied(client))

    async def _change(self, client: Client, *changes: tuple[GrantTable, ...]) -> None:
        """Change grants while many have something under way; then the store fails for a moment."""
        node = self.network.running(NODE)
        stream = await self.ask("create", client.stream("operated"))
        async with stream.batches(start="end") as batches:
            following = asyncio.ensure_future(anext(batches))
            for _ in range(CHANGES):
                for changed in changes:
                    await asyncio.sleep(0.05)
                    node.reload(replace(node.config, grants=changed))
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await self._spoil(stream, batches)
        for health in (StoreHealth(writable=False, reason="as told"), StoreHealth(writable=True)):
            node._on_health(health)  # pyright: ignore[reportPrivateUsage]
            await asyncio.sleep(0.05)

    async def _spoil(self, stream: Stream, batches: Iteration[list[Entry]]) -> None:
        """Have the store fail to read, which passes: who follows does not see it."""
        self.disk.spoil(MANY)
        pushed = await self.once("push", stream.push(b"%d" % self.number))
        await asyncio.sleep(SUBSCRIBED_SECONDS)
        self.disk.repair()
        if pushed is not None:
            await self.once("follow", anext(batches))

    async def _copied(self, client: Client) -> None:
        try:
            await client.checkpoint()
        except RillnodeError as error:
            if error.code != "backup.unsupported":  # as every store in memory answers
                raise

    async def check(self) -> None:
        async with await self.network.client(NODE) as client:
            made = await client.describe("configured")
            assert len(made.partitions) == self.number


class Stopped(Round):
    """Uses a node that is stopped while everybody is connected, and comes again."""

    lossy = True

    async def talk(self) -> None:
        self.network.restart(STOPPED)
        try:
            async with AsyncExitStack() as stack:
                await self._talk(stack)
        finally:
            self.network.kill(STOPPED)  # also where it could not start

    async def _talk(self, stack: AsyncExitStack) -> None:
        node = self.network.running(STOPPED)
        client = await self.ask("connect", self.network.client(STOPPED))
        stack.push_async_callback(client.close)
        endpoints = endpoints_of(streamr_url(STOPPED))
        other = streamr.Client(endpoints, key=PUBLISHER, make_rsa_key=rsa_key)
        stack.push_async_callback(other.close)
        await self.ask("connect", other.open())
        broker = self.broker_of(STOPPED)
        connecting = nextgraph.connect(broker_url(STOPPED), user=ALICE, broker=broker)
        third = await self.ask("connect", connecting)
        stack.push_async_callback(third.close)
        stream = await self.ask("create", client.stream("events"))
        entry = b"%d" % self.number
        if await self.once("push", stream.push(entry)) is not None:
            self.confirmed.append(entry)
        await self.once("reach", client.ask(f"peer/{PEER};echo", b"x", timeout_seconds=5.0))
        await self.ask("stop", self._stop(node))

    async def _stop(self, node: Node) -> None:
        world = self.network._world  # pyright: ignore[reportPrivateUsage]
        await world.on(world.nodes[STOPPED], node.stop())

    async def check(self) -> None:
        self.network.restart(STOPPED)
        async with await self.network.client(STOPPED) as client:
            found = [bytes(one.data) for one in await (await client.stream("events")).pull(0, 99)]
            assert set(self.confirmed) <= set(found), "what was confirmed is lost"
        self.network.kill(STOPPED)


ROUNDS: Final = (
    Native, Ockam, Streamr, Overlay, Nextgraph, Channel, Hub, Peer, Operator, Stopped,
)  # fmt: skip
