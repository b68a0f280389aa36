"""Clients of the `nextgraph` listener: they write a document together, and follow each other.

Each is the project's own NextGraph client, in a process of its own. A broker's client does not
connect again by itself: the program does, asks for what it has missed, and sends again what was not
confirmed. Every event says what it comes after, so that nothing can be missed unseen.
"""

import asyncio
from collections.abc import Coroutine, Iterator
from itertools import count
from typing import Any, Final, TypeVar

from rillnode.codecs.errors import CodecError, RequestError, RillnodeError, TransportError
from rillnode.codecs.keys import SEED_BYTES, Identity
from rillnode.node.nextgraph.client.client import Client
from rillnode.node.nextgraph.client.connecting import connect
from rillnode.node.nextgraph.simulation.audit import NEXTGRAPH_PORT
from rillnode.node.nextgraph.simulation.document import Document, Publication, encoded_blocks
from rillnode.node.nextgraph.simulation.following import Following
from rillnode.node.nextgraph.simulation.objects import BROKEN, NOT_FOUND, REFUSED, ObjectUser
from rillnode.node.simulated.programs import (
    AGAIN_SECONDS,
    CALM_SECONDS,
    REST_SECONDS,
    Program,
    Share,
    payload_of,
)
from rillnode.node.simulated.world import Machine

T = TypeVar("T")

LOOK_SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 60.0
"""Within which an answer comes when all is well."""


class Patience:
    """Bounds one user's wait for an answer, and tells whose fault none is.

    The protocol has no pings, and a WebSocket's frames are not sealed: where a bit has flipped in a
    frame's length, the other side waits for the rest of it, and who waits for an answer does not
    learn that. A program gives up then. Where nothing was harmed, an answer must come once all
    faults are over: that a broker has lost power, a client's system finds out by itself.

    Attributes:
        healed_at: when all faults were over; None: they are not.
    """

    def __init__(self, share: Share, document: Document, name: str) -> None:
        self._share = share
        self._document = document
        self._name = name
        self._began = 0
        self.healed_at: float | None = None

    def begin(self) -> None:
        """A connection begins."""
        self._began = self._harm

    @property
    def excused(self) -> bool:
        """Whether something has happened since then that no broker can help."""
        return self._harm != self._began

    @property
    def _harm(self) -> int:
        """What a connection may not outlast: it is another value after each time."""
        return self._share.world.network.harmed

    async def ask(self, asking: Coroutine[Any, Any, T]) -> T:
        """Wait for an answer.

        Raises:
            RillnodeError: as what is waited for; TransportError `link.closed`, none comes.
        """
        history = self._share.history
        began, task = history.now(), asyncio.get_running_loop().create_task(asking)
        try:
            while True:
                done, _ = await asyncio.wait((task,), timeout=LOOK_SECONDS)
                if done:
                    return task.result()
                if self.excused:
                    break
                healed = self.healed_at
                if healed is not None and history.now() > max(began, healed) + ANSWER_SECONDS:
                    self._document.broken("no-progress", self._name, "what it asks is not answered")
                    break
        finally:
            task.cancel()
        raise TransportError("link.closed", "there is no answer")


BODY_BYTES_MAX: Final = 300
LARGE_BODY_BYTES: Final = 9_000
"""Now and then a commit's body takes several blocks."""

FORK_MAX: Final = 3
"""Commits that are published at once, none of them after another."""

PAUSE_SECONDS: Final = (0.1, 0.6)
CALM_PAUSE_SECONDS: Final = (0.5, 2.0)
"""Between two things that a user does, while faults happen and when that is over."""

AWAY_SECONDS: Final = 2.0
"""How long a topic is left."""


class NextgraphUser(Program):
    """Publishes, follows, looks things up, puts objects; all for as long as there are faults.

    Afterwards it publishes no more.

    Attributes:
        document: which it writes.
        user: the key that it speaks for.
    """

    def __init__(self, share: Share, machine: Machine, node: str, document: Document) -> None:
        super().__init__(share, machine, node)
        self.document = document
        self.user = Identity.from_seed(machine.entropy(SEED_BYTES))
        self._key = Identity.from_seed(machine.entropy(SEED_BYTES))
        self._topic = document.join(self.name)
        self._pinned = False  # which outlives the process
        self._objects = ObjectUser(document, self.name, self.random)
        self._numbers = count()
        self._patience = Patience(share, document, self.name)
        self._following: Following
        self._pending: list[Publication] = []
        self._looked_at = self._healed_at = -1.0
        self._rests_until: float | None = None

    def start(self) -> None:
        """Begin with what the broker keeps, and nothing else."""
        self._following = Following(self.document, self.name)
        self._pending = []
        self._objects = ObjectUser(self.document, self.name, self.random)
        self._looked_at = -1.0
        super().start()

    def rest(self) -> None:
        """Stay connected, do nothing, and publish once more after it."""
        self._rests_until = self.share.history.now() + CALM_SECONDS + REST_SECONDS

    def healed(self) -> None:
        """All faults are over: what is asked must be answered from now on."""
        self._healed_at = self._patience.healed_at = self.share.history.now()

    def missing(self, healed_at: float) -> Iterator[str]:
        """Confirms, and what others were told is durable."""
        if self._rests_until is not None:
            yield "it has not published after its rest"
        if self._pending:
            yield f"{len(self._pending)} commits are not confirmed"
        if self._looked_at < healed_at:
            yield "it is not connected, or gets no answer"
        for topic in self.document.topics:
            confirmed = self.document.confirmed(topic.public_key)
            known = self._following.of(topic.public_key).known
            lacking = sum(one.id not in known for one in confirmed)
            if lacking:
                name = self.document.name_of(topic.public_key)
                yield f"it lacks {lacking} of {len(confirmed)} commits of {name}"

    # Its life --------------------------------------------------------------------------------

    async def live(self, client: Any, stream: Any) -> None:
        """Never called: it is no native client."""

    async def _run(self) -> None:
        while True:
            try:
                await self._session()
            except RillnodeError as error:
                self.share.history.note(self.name, "failed", error.code)
                self._judge(error)
            await asyncio.sleep(AGAIN_SECONDS)

    def _judge(self, error: RillnodeError) -> None:
        """An error of a connection's is nothing special; others say what a broker does wrong."""
        if isinstance(error, RequestError):
            if error.code == BROKEN:
                if not self.share.history.failed[self.node]:
                    self.document.broken("unhandled-error", self.name, error.text)
            elif error.code != REFUSED and self._pinned:
                text = f"is refused what it may do: {error.code}"
                self.document.broken("confirm-lost", self.name, text)
            self._pinned = self._pinned and not self.document.lost
        elif error.code == "block.id":
            self.document.broken("block-id", self.name, "gets a block that it has not asked for")
        elif isinstance(error, CodecError) and not self._patience.excused:
            self.document.broken("route-answer", self.name, error.text)

    async def _session(self) -> None:
        """Connect, catch up, and do what there is to do until the connection is over.

        Raises:
            RillnodeError: it is over; or the broker refuses something.
        """
        self._patience.begin()
        node = self.share.world.nodes[self.node].node
        client = await connect(
            f"ws://{self.node}:{NEXTGRAPH_PORT}",
            broker=bytes.fromhex(node.facts["nextgraph_peer_id"]),
            user=self.user,
            client=self._key,
            entropy=self.machine.entropy,
        )
        self.share.history.note(self.name, "connected")
        try:
            await self._pin(client)
            await self._following.begin(client, self._patience.ask, self._topic, self.random)
            while True:
                for publication in tuple(self._pending):
                    await self._publish(client, publication)
                await self._rested(client)
                await self._do_something(client)
                self._looked_at = self.share.history.now()
                busy = self._looked_at < self.share.seconds
                await asyncio.sleep(
                    self.random.uniform(*(PAUSE_SECONDS if busy else CALM_PAUSE_SECONDS))
                )
        finally:
            self._following.end()
            await client.close()

    async def _pin(self, client: Client) -> None:
        """Pin the document; what was pinned once is pinned for ever."""
        document, ask = self.document, self._patience.ask
        publish = [self._topic, document.shared]
        read = [one.public_key for one in document.own.values() if one is not self._topic]
        if self._pinned:
            status = await ask(client.pin_status(document.inner, document.repo))
            there = {} if status is None else {one.topic: one.publisher for one in status.topics}
            if not all(there.get(one.public_key) for one in publish):
                document.broken("confirm-lost", self.name, "has not pinned what it had pinned")
                self._pinned = False
        if not self._pinned:
            pinning = client.pin(document.repo, document.access, publish=publish, read=read)
            opened = {one.topic for one in await ask(pinning)}
            if opened != {one.public_key for one in document.topics}:
                document.broken("route-answer", self.name, "has pinned other topics than it said")
            self._pinned = True

    async def _rested(self, client: Client) -> None:
        """Do nothing for as long as it is to rest, and publish after it."""
        until = self._rests_until
        if until is not None:
            await asyncio.sleep(max(0.0, until - self.share.history.now()))
            await self._publish_new(client, self._topic)
            self._rests_until = None

    async def _do_something(self, client: Client) -> None:
        """Do what chance says; raises as `_session`."""
        ask, random, document = self._patience.ask, self.random, self.document
        if self.share.history.now() >= self.share.seconds:
            if random.random() < 0.5:
                await self._objects.look(client, ask)
            await self._following.look(client, ask, random.choice(document.topics), random)
            return
        match random.randrange(8):
            case 0 | 1:
                await self._publish_new(client, self._topic)
            case 2 | 3:
                await self._publish_new(client, document.shared)
            case 4:
                await self._get_commit(client)
            case 5:
                others = [one for one in document.own.values() if one is not self._topic]
                if others:
                    topic = random.choice(others)
                    away = random.uniform(0.0, AWAY_SECONDS)
                    await self._following.leave(client, ask, topic, away, random)
            case _:
                await self._objects.step(client, ask)
        await self._following.look(client, ask, random.choice(document.topics), random)

    # Publishing ------------------------------------------------------------------------------

    async def _publish_new(self, client: Client, topic: Identity) -> None:
        """Publish one commit after all that is known of a topic, or some that know each other not.

        Raises:
            RillnodeError: as `_session`; they are published again later.
        """
        document, random = self.document, self.random
        heads = self._following.of(topic.public_key).heads
        files = [thing.root for thing in document.things if thing.owner == self.name][:1]
        made: list[Publication] = []
        for number in range(random.choice((1, 1, random.randrange(1, FORK_MAX + 1)))):
            size = LARGE_BODY_BYTES if random.random() < 0.1 else random.randrange(BODY_BYTES_MAX)
            number = next(self._numbers)
            body = payload_of(self.life, number, size)
            now = self.machine.clock.now_ms() / 1_000
            made.append(document.make(self.life, self.user, topic, body, heads, files, now))
        self._pending += made
        await asyncio.gather(*[self._publish(client, one) for one in made])

    async def _publish(self, client: Client, publication: Publication) -> None:
        """Publish until it is confirmed; raises as `_session`."""
        history, document = self.share.history, self.document
        publication.publishers[client.peer.public_key] = None
        while True:
            history.note(self.name, "publish", publication.id.hex()[:8])
            try:
                await self._patience.ask(
                    client.publish(
                        document.inner,
                        publication.topic,
                        document.branch,
                        publication.commit,
                        files=publication.files,
                    )
                )
                break
            except RequestError as error:
                history.note(self.name, "refused", error.code)
                if error.code != REFUSED:
                    raise
                self._following.refused(publication)
            await asyncio.sleep(AGAIN_SECONDS)
        history.note(self.name, "published", publication.id.hex()[:8])
        publication.confirmed = True
        self._pending.remove(publication)
        self._following.has(publication)

    async def _get_commit(self, client: Client) -> None:
        """Read a commit that is durable: it has the blocks that it was published with."""
        document = self.document
        fit = [one for one in document.publications.values() if one.confirmed]
        if fit:
            one = self.random.choice(fit)
            try:
                blocks = await self._patience.ask(client.get_commit(document.inner, one.id))
            except RequestError as error:
                if error.code != NOT_FOUND:
                    raise
                document.broken("confirm-lost", self.name, "does not get a commit that is durable")
                return
            if encoded_blocks(blocks) != encoded_blocks(one.commit.blocks):
                document.broken("block-id", self.name, "gets a commit with other blocks")
