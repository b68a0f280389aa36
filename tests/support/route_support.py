"""Everything on a node that has a route, each made by a real client of its protocol."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
from thespian.actors import Actor as StockActor

from nextgraph_document import ACCESS, ALICE, INNER, REPO, TOPIC
from nodes import CLIENT, connect_to, node_config, store_with
from ockam_peer import OckamPeer
from rillnode import Actor, Client, Context, Message, Node, nextgraph
from rillnode.actors.core.access import VERBS
from rillnode.codecs.keys import Identity
from rillnode.codecs.streamr.ethereum import EthereumKey
from rillnode.node.client.lookup import About
from rillnode.node.config import GrantTable, PeerTable, StreamTable
from rillnode.node.config.location import Location
from rillnode.node.keys.files import write_key
from rillnode.node.nextgraph.config import NextgraphListener
from rillnode.node.ockam.client.channel import SecureChannel
from rillnode.node.overlay.config import OverlayTable, StreamrNetworkListener, TrackerTable
from rillnode.node.spark.config import SinkTables, SparkSink
from rillnode.node.streamr.client.client import Client as StreamrClient
from rillnode.node.streamr.client.endpoints import endpoints_of
from rillnode.node.streamr.config import StreamrListener
from rillnode.node.testing.contract.ports import free_address
from streamr_keys_support import rsa_key

STRANGER: Final = Identity.from_seed(b"somebody else of the tests".ljust(32, b"."))
SECONDS: Final = 60.0

GRANTS: Final = (
    GrantTable(who=f"noise:{CLIENT.public_hex}", streams="*", may=VERBS),
    GrantTable(who=f"noise:{CLIENT.public_hex}", addresses="*", may=("serve", "send")),
    GrantTable(who=f"noise:{STRANGER.public_hex}", streams="open", may=("pull",)),
    GrantTable(who="anonymous", streams="*", may=("create", "push", "pull", "subscribe")),
    GrantTable(who="eth:*", streams="*", may=("create", "push", "pull", "subscribe")),
    GrantTable(who="nextgraph:*", streams="nextgraph/*", may=("create", "push", "pull")),
)


@dataclass
class Site:
    """A node with all its listeners, a client that administers it, and one that may do little."""

    node: Node
    client: Client
    stranger: Client
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def only(self, kind: str, pattern: str = "*") -> About:
        """The one thing of a kind, once it is there."""
        async with asyncio.timeout(SECONDS):
            while True:
                found = [one async for one in self.client.routes(pattern, kind=kind)]
                if len(found) == 1:
                    return found[0]
                await asyncio.sleep(0.02)


@asynccontextmanager
async def site(directory: Path) -> AsyncGenerator[Site]:
    """A node on which everything can be made that has a route."""
    directory.mkdir(exist_ok=True)
    key = directory / "job.key"
    write_key(key, Identity.from_seed(bytes(31) + b"j"))
    sink = SparkSink(
        name="bronze",
        streams=("open",),
        table_dir=Location(str(directory)),
        key_file=key,
        external=True,
    )
    config = msgspec.structs.replace(
        node_config(directory / "data", *GRANTS),
        streams=(StreamTable(name="open"), StreamTable(name="hidden", partitions=2)),
        peers=(PeerTable(name="away", ockam=free_address()),),
    ).having(
        StreamrListener(listen="127.0.0.1:0"),
        NextgraphListener(listen="127.0.0.1:0", registration="open"),
        TrackerTable(enabled=True),
        OverlayTable(),
        StreamrNetworkListener(listen="127.0.0.1:0"),
        SinkTables(spark=(sink,)),
    )
    async with (
        asyncio.timeout(SECONDS),
        Node(config, make_store=store_with()) as node,
        await connect_to(node) as client,
        await connect_to(node, STRANGER) as stranger,
        AsyncExitStack() as stack,
    ):
        yield Site(node, client, stranger, stack)


Make = Callable[[Site], Awaitable[About]]
"""Makes a thing on a site, and finds it there."""


class Greeter(Actor):
    async def started(self, ctx: Context) -> None:
        if ctx.address == "greeter":
            await ctx.spawn(Greeter, name="child")

    async def receive(self, message: Message, ctx: Context) -> bytes:
        return b"hello"


class Stock(StockActor):
    def receiveMessage(self, msg: Any, sender: Any) -> None:
        self.send(sender, msg)


async def hidden_stream(site: Site) -> About:
    stream = await site.client.stream("hidden")
    await stream.push(b"an entry", partition=1)
    return await site.client.about("ST_S_1_hidden")


async def resting_stream(site: Site) -> About:
    await site.client.stream("at rest_%")
    return await site.only("stream", "at rest*")


async def index(site: Site) -> About:
    await site.client.set_index("a_client", "hidden", 7, partition=1)
    return await site.only("index")


async def subscription(site: Site) -> About:
    entries = (await site.client.stream("hidden")).tail(partitions=[1])
    site.stack.push_async_callback(entries.aclose)
    waiting = asyncio.ensure_future(anext(entries))
    site.stack.callback(waiting.cancel)
    return await site.only("subscription")


async def link(site: Site) -> About:
    found = [one async for one in site.client.routes("noise *", kind="link")]
    return next(one for one in found if one.owner == f"noise:{STRANGER.public_hex}")


async def ockam_link(site: Site) -> About:
    peer = await OckamPeer.connect(site.node.addresses()["ockam"])
    await site.stack.enter_async_context(peer)
    assert (await peer.ask("echo", b"there")).payload == b"there"
    return await site.only("link", "ockam *")


async def streamr_client(site: Site) -> StreamrClient:
    url = f"ws://{site.node.addresses()['streamr']}"
    key = EthereumKey(bytes(31) + b"s")
    client = StreamrClient(endpoints_of(url), key=key, make_rsa_key=rsa_key)
    await client.open()
    return await site.stack.enter_async_context(client)


async def streamr_link(site: Site) -> About:
    await (await streamr_client(site)).subscribe("open")
    return await site.only("link", "streamr *")


async def streamr_subscription(site: Site) -> About:
    await (await streamr_client(site)).subscribe("open")
    return await site.only("subscription", "WS_*")


async def nextgraph_client(site: Site) -> nextgraph.Client:
    url = f"ws://{site.node.addresses()['nextgraph']}"
    broker = bytes.fromhex(site.node.facts["nextgraph_peer_id"])
    connecting = await nextgraph.connect(url, user=ALICE, broker=broker)
    client = await site.stack.enter_async_context(connecting)
    await client.pin(REPO, ACCESS, publish=[TOPIC])
    await site.stack.enter_async_context(await client.subscribe(INNER, REPO, TOPIC.public_key))
    return client


async def nextgraph_link(site: Site) -> About:
    await nextgraph_client(site)
    return await site.only("link", "nextgraph *")


async def nextgraph_subscription(site: Site) -> About:
    await nextgraph_client(site)
    return await site.only("subscription", "NG_*")


async def released_link(site: Site) -> About:
    session = await site.stack.enter_async_context(aiohttp.ClientSession())
    url = f"ws://{site.node.addresses()['streamr_network']}/ws?address=ws://127.0.0.1:39999"
    headers = {"streamr-peer-id": "node-1", "streamr-peer-type": "node"}
    peer = await site.stack.enter_async_context(session.ws_connect(url, headers=headers))
    # By its first frame it is known how it writes, and that it has a link.
    status: Any = {"open::0": {"inboundNodes": [], "outboundNodes": [], "counter": 0}}
    await peer.send_bytes(json.dumps([1, 1, "r", {"streams": status, "started": ""}]).encode())
    return await site.only("link", "streamr_network *")


async def peer(site: Site) -> About:
    return await site.client.about("peer/away")


async def sink(site: Site) -> About:
    return await site.client.about("sink/bronze")


async def actor(site: Site) -> About:
    await site.node.spawn(Greeter, address="greeter")
    return await site.client.about("greeter")


async def child(site: Site) -> About:
    await actor(site)
    return await site.client.about("greeter/child")


async def function(site: Site) -> About:
    await site.node.spawn(lambda message, ctx: b"hello", address="function")
    return await site.client.about("function")


async def stock(site: Site) -> About:
    await site.node.spawn(Stock, address="stock")
    return await site.client.about("stock")


async def essential(site: Site) -> About:
    await site.node.spawn(Greeter, address="needed", essential=True)
    return await site.client.about("needed")


async def on_demand(site: Site) -> About:
    site.node.on_demand("device/", lambda name: Greeter())
    assert (await site.node.client.ask("device/7", b"hi")).payload == b"hello"
    return await site.client.about("device/7")


async def served(site: Site) -> About:
    await site.client.serve("printer", lambda message: b"printed")
    return await site.client.about("printer")


async def alias(site: Site) -> About:
    made = await OckamPeer.connect(site.node.addresses()["ockam"])
    peer = await site.stack.enter_async_context(made)
    await peer.ask("forwarding", b"register")
    return await site.only("alias")


async def channel(site: Site) -> About:
    await SecureChannel.open(site.client, "SC_listener")
    found = [one async for one in site.client.routes(kind="channel")]
    return found[0]


async def service(site: Site) -> About:
    return await site.client.about("echo")


async def private_service(site: Site) -> About:
    return await site.client.about("node")


@dataclass(frozen=True)
class Thing:
    """One kind of what has a route.

    Attributes:
        make: makes it.
        kind: as `about` has it.
        state: how it is when nothing has to do with it.
        stopped: what follows when it is stopped: it `ends`, it `rests`, or the code of a refusal.
        open: whether a stranger may know of it.
        parent: what answers for it, or has made it.
    """

    name: str
    make: Make
    kind: str
    state: str = "idle"
    stopped: str = "ends"
    open: bool = False
    parent: str = ""


THINGS: Final = (
    Thing("a stream that is used", hidden_stream, "stream", stopped="rests"),
    Thing("a stream at rest", resting_stream, "stream", "resting", stopped="rests"),
    Thing("a saved position", index, "index", "resting", "route.kept", parent="stream_index"),
    Thing("a subscription", subscription, "subscription"),
    Thing("a link", link, "link"),
    Thing("a link of Ockam", ockam_link, "link"),
    Thing("a link of Streamr", streamr_link, "link"),
    Thing("a subscription of Streamr", streamr_subscription, "subscription", parent="WS_*"),
    Thing("a link of NextGraph", nextgraph_link, "link"),
    Thing(
        "a topic that is followed", nextgraph_subscription, "subscription",
        stopped="route.kept", parent="NG_*",
    ),
    Thing("a link of a released node", released_link, "link"),
    Thing("a peer", peer, "peer", "*", "route.kept", open=True),
    Thing("a sink", sink, "sink", stopped="route.kept"),
    Thing("an actor", actor, "actor"),
    Thing("a child", child, "actor", parent="greeter"),
    Thing("a function", function, "actor"),
    Thing("one of Thespian's actors", stock, "actor"),
    Thing("an essential actor", essential, "actor", stopped="route.kept"),
    Thing("an actor on demand", on_demand, "actor"),
    Thing("a served address", served, "served"),
    Thing("an alias", alias, "alias"),
    Thing("a secure channel", channel, "channel"),
    Thing("a service", service, "service", stopped="route.kept", open=True),
    Thing("a service for administrators", private_service, "service", stopped="route.kept"),
)  # fmt: skip
