"""A small load of every kind of client on simulated nodes, and what it was promised.

Each client does one round of all that it can: it connects, asks, and leaves. What it asks has an
outcome within `OUTCOME_SECONDS`, an error too; what was confirmed to it is there at the end. The
clients of plug-ins are in their folders; `contract_rooms` has them.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from types import MappingProxyType
from typing import Any, Final, TypeVar

import aiohttp
import pytest
from msgspec.structs import replace

from rillnode import Context, Message
from rillnode.actors.core.access import VERBS
from rillnode.actors.core.links.dialling import FORGET_SECONDS
from rillnode.actors.core.streams.retention import SWEEP_SECONDS
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import StoreHealth
from rillnode.codecs.entries import Entry
from rillnode.codecs.errors import RillnodeError, TransportError
from rillnode.codecs.limits import LINK_BUFFER_HIGH_BYTES
from rillnode.codecs.ockam.hub import TEXT
from rillnode.node.client import Client, Stream
from rillnode.node.client.appends import TOGETHER_MIN
from rillnode.node.client.messages import Answer
from rillnode.node.config import Config, GrantTable, PlugInTable, StreamTable
from rillnode.node.iteration import Iteration
from rillnode.node.ockam.config import ChannelTable, OckamListener
from rillnode.node.simulation.disk import Disk
from rillnode.testing import Network

T = TypeVar("T")

OUTCOME_SECONDS: Final = 10.0
MANY: Final = 200
"""Messages at once: more than actors handle in one turn."""
NODE: Final = "a"
PEER: Final = "b"
STOPPED: Final = "e"
CHANNEL_SECONDS: Final = 4.0
"""How long a secure channel may take to open, and how long it may be idle."""

CONFIG: Final = Config(
    name=NODE,
    on_fatal="stay",
    grants=(
        GrantTable(who="noise:*", streams="*", may=VERBS),
        GrantTable(who="noise:*", addresses="*", may=("admin",)),
        GrantTable(who="ockam:*", streams="*", may=VERBS),
        GrantTable(who="anonymous", streams="shared-released*", may=("push", "subscribe")),
    ),
    streams=(StreamTable(name="limited", retain_entries_max=1),),
    tables=[
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
CHANGES: Final = 40
"""How often grants change, 0.1 s for each: while everybody else has something under way."""


SEVERAL: Final = tuple(f"several-{nth}" for nth in range(TOGETHER_MIN))
"""Streams that are pushed to together."""

SUBSCRIBED_SECONDS: Final = 0.01
"""Virtual time in which a subscription has been made, on links of a millisecond."""
LEFT_SECONDS: Final = 3.0
"""Virtual time after which the actor of a stream that is no more has left; retention has swept by
the end of two rounds."""
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

    def __init__(self, network: Network, *, much: bool, second: str = NODE) -> None:
        super().__init__(network, much=much, second=second)
        # What a producer with a name has pushed, and what it has pushed behind that at once.
        self.in_order: list[tuple[bytes, bytes]] = []

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
        """Push with numbers, and open their producer once more at another place."""
        first, behind = data + b" by name", data + b" behind it"
        producer = await self.once("open a producer", stream.producer("load"))
        if producer is None:
            return
        number = 2 * self.number
        pushing = [producer.push_nowait(first, sequence=number)]
        await asyncio.sleep(0.001)  # the other one comes by itself
        pushing.append(producer.push_nowait(behind, sequence=number + 1))
        self.in_order.append((first, behind))
        if await self.once("push by name", pushing[0]) is not None:
            self.confirmed.append(first)
        if await self.once("push behind it", pushing[1]) is not None:
            self.confirmed.append(behind)
            again = await self.once("open it again", followed.producer("load"))
            last = None if again is None else again.last_sequence
            assert last in (None, number + 1), "a number is forgotten"

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
            passed = [a for a, behind in self.in_order if behind in found and a not in found]
            assert not passed, "what was refused is passed over"
            self.saved(await client.get_index("n", "events") or 0)
            await asyncio.sleep(2 * SWEEP_SECONDS)
            kept = (await client.describe("limited")).partitions[0]
            assert kept.next_index - kept.first_index == 1, "nothing is trimmed any more"


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


class Part:
    """What a plug-in brings to the load: its clients, and what nodes need for them."""

    rounds: tuple[type[Round], ...] = ()
    """Its kinds of clients."""

    rare: tuple[type[Round], ...] = ()
    """Those of them that are not of the usual load, as they take long."""

    of_shared_logs: bool = False
    """Whether they also come to nodes of one log."""

    grants: tuple[GrantTable, ...] = ()
    """What its clients may do, where no grant of the load says it."""

    members: tuple[str, ...] = ()
    """Nodes of its own that are there all the time."""

    first: Mapping[str, tuple[type[Worker], type, int]] = MappingProxyType({})
    """For cases to which only a failure leads: what fails before, at which message, how often."""

    def tables(self, node: str, rounds: Sequence[type[Round]]) -> Sequence[PlugInTable]:
        """What a node's configuration has for these clients, of all that come to it."""
        return ()

    def add_nodes(self, network: Network) -> None:
        """Add nodes of its own."""

    def quicken(self, patch: pytest.MonkeyPatch) -> None:
        """Shorten what would take long, even in virtual time."""

    async def use(self, one: Round, node: str, stack: AsyncExitStack) -> None:
        """Come to a node as a client, until the stack is closed."""

    async def act_unheard(self, one: Round) -> None:
        """Do at one node of a shared log what the others are to hear of, but cannot now."""


ROUNDS: Final = (Native, Peer, Operator)
