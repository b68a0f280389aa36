"""A NextGraph broker on a memory store, and clients that speak to it in real frames."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from core_support import Core, with_core
from nextgraph_support import BROKER, INFO, make_commit
from rillnode.actors.core.quotas import Quota, Quotas
from rillnode.actors.core.streams.context import StreamRemoved
from rillnode.actors.core.streams.rules import StreamRules
from rillnode.actors.log import StreamRecord
from rillnode.actors.nextgraph.broker import spawn_broker, stream_removed
from rillnode.actors.nextgraph.connection import BrokerEvents
from rillnode.actors.nextgraph.context import BrokerContext, Registration
from rillnode.codecs.keys import Identity
from rillnode.codecs.links import LinkInfo
from rillnode.codecs.nextgraph.admin import AdminRequest
from rillnode.codecs.nextgraph.adverts import sign_publisher_advert
from rillnode.codecs.nextgraph.bootstrap import BootstrapContent, BrokerServer, Localhost
from rillnode.codecs.nextgraph.client import ClientMessage
from rillnode.codecs.nextgraph.client_dialogue import AppLogin, ClientDialogue, ClientLogin
from rillnode.codecs.nextgraph.commits import CommitHeader
from rillnode.codecs.nextgraph.events import Event, EventContent, sign_event
from rillnode.codecs.nextgraph.external import ExtRequest
from rillnode.codecs.nextgraph.messages import encode_message
from rillnode.codecs.nextgraph.requests import ClientRequest, PinRepo, RequestContent, TopicSub
from rillnode.codecs.nextgraph.responses import ClientResponse
from rillnode.codecs.nextgraph.start import Registration as Wish
from rillnode.codecs.nextgraph.types import (
    ForwardedPeer,
    InnerOverlay,
    OuterOverlay,
    OverlayAccess,
    OverlayId,
    ReadOnlyAccess,
    ReadWriteAccess,
    WriteOnlyAccess,
)

INNER = InnerOverlay(b"i" * 32)
OUTER = OuterOverlay(b"o" * 32)
PRIVATE = InnerOverlay(b"p" * 32)
READ_WRITE = ReadWriteAccess(INNER, OUTER)
READ_ONLY = ReadOnlyAccess(OUTER)
WRITE_ONLY = WriteOnlyAccess(PRIVATE)
REPO_HASH = b"h" * 32
NO_CODE = Wish(None)
"""A wish to be registered without an invitation."""


def identity(name: str) -> Identity:
    """A key of its own for each name."""
    return Identity.from_seed(name.encode().ljust(32, b"."))


TOPIC_A = identity("topic a")
TOPIC_B = identity("topic b")


class Wire:
    """Stands where a WebSocket would; what is sent to it waits to be read.

    Attributes:
        stalls: what waits counts as not taken by the client.
    """

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.closed: tuple[int, str] | None = None
        self.reading = True
        self.stalls = False
        self.info = LinkInfo(
            principal="anonymous",
            remote="test:1",
            transport="nextgraph",
            dialled=False,
            message_bytes_max=4_194_304,
        )

    @property
    def buffered_bytes(self) -> int:
        return sum(map(len, self.sent)) if self.stalls else 0

    def send(self, messages: Sequence[bytes]) -> None:
        if self.closed is None:
            self.sent += messages

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self, reason: str, code: int = 1_000) -> None:
        self.closed = self.closed or (code, reason)


class Broker:
    """A broker; what it keeps outlives `restart`."""

    def __init__(
        self,
        core: Core,
        registration: Registration = "open",
        quotas: Sequence[Quota] = (),
        peer: Identity = BROKER,
    ) -> None:
        self.core = core
        self.key = peer
        self._quotas = quotas
        self.registration: Registration = registration
        self.changes: list[StreamRecord | StreamRemoved] = []
        self._spawn()

    def _spawn(self) -> None:
        self.context = BrokerContext(
            streams=self.core.context,
            peer=self.key,
            registration=self.registration,
            discoverable=False,
            bootstrap=lambda: BootstrapContent(
                [BrokerServer(Localhost(1_440), False, True, self.key.public_key)]
            ),
            rules=StreamRules(),
            stream_changed=self.changed,
        )
        spawn_broker(self.context)

    def changed(self, change: StreamRecord | StreamRemoved) -> None:
        self.changes.append(change)
        if isinstance(change, StreamRemoved):
            stream_removed(self.context, change)

    async def restart(self) -> None:
        """Lose power, and start again on what is durable."""
        self.core.store.crash()
        self.core.store.open()
        quotas = Quotas(self._quotas, self.core.clock)
        self.core.context = replace(self.core.context, quotas=quotas)
        self._spawn()
        await self.core.settle()

    def peer(self, user: str, name: str = "", registration: Wish | None = NO_CODE) -> "Client":
        """A client that has not come in yet."""
        login = ClientLogin(
            user=identity(f"user {user}"),
            client=identity("client"),
            info=INFO,
            registration=registration,
        )
        return Client(self, identity(f"peer {name or user}"), login)

    async def visit(self, purpose: AppLogin | AdminRequest | ExtRequest) -> "Client":
        """Who comes for something else than a client, after all has been said."""
        visitor = Client(self, identity("visitor"), purpose)
        await visitor.settle()
        return visitor

    async def client(self, user: str = "alice", name: str = "") -> "Client":
        """A client that has been admitted; `name` tells one user's devices apart."""
        client = self.peer(user, name)
        await client.settle()
        assert client.said, client.wire.closed
        client.said.clear()
        return client


class Client:
    """One client and its connection.

    Attributes:
        said: what the broker has said and nobody has taken yet.
    """

    def __init__(
        self,
        broker: Broker,
        key: Identity,
        purpose: ClientLogin | AppLogin | AdminRequest | ExtRequest,
    ) -> None:
        self.broker = broker
        self.key = key
        self.dialogue = ClientDialogue(key, broker.key.public_key, purpose)
        self.wire = Wire()
        self.said: list[Any] = []
        self.ids = 0
        self._seq = 0
        self.events = BrokerEvents(broker.context)
        self.events.link_opened(self.wire)

    async def settle(self) -> None:
        """Carry frames to and fro until nothing more happens."""
        await self.broker.core.settle()
        while (output := self.dialogue.take_output()) or self.wire.sent:
            if output:
                self.events.messages_received(output)
            await self.broker.core.settle()
            frames, self.wire.sent = self.wire.sent, []
            for frame in frames:
                said = self.dialogue.receive(frame)
                if said is not None:
                    self.said.append(said)

    def post(self, overlay: OverlayId, content: RequestContent, number: int | None = None) -> int:
        """Send a request; return its id."""
        self.ids = self.ids + 1 if number is None else number
        message = ClientMessage(overlay, ClientRequest(self.ids, content))
        self.events.messages_received([self.dialogue.seal(encode_message(message))])
        return self.ids

    async def ask(self, overlay: OverlayId, content: RequestContent) -> list[tuple[int, Any]]:
        """Send a request, and return result and content of each answer."""
        number = self.post(overlay, content)
        await self.settle()
        return self.answers(number)

    def answers(self, number: int) -> list[tuple[int, Any]]:
        """Take the answers to a request out of what was said."""
        mine = [
            message
            for message in self.said
            if isinstance(message.content, ClientResponse) and message.content.id == number
        ]
        self.said = [message for message in self.said if message not in mine]
        return [(message.content.result, message.content.content) for message in mine]

    async def result(self, overlay: OverlayId, content: RequestContent) -> int:
        """Send a request that has one answer, and return its result."""
        ((result, _),) = await self.ask(overlay, content)
        return int(result)

    async def pin(self, *topics: Identity, **options: Any) -> list[tuple[int, Any]]:
        """Pin a repo as publisher on topics."""
        request = pin(*topics, **options)
        access = request.overlay
        overlay = access.inner if isinstance(access, ReadWriteAccess) else access.overlay
        return await self.ask(overlay, request)

    def event(
        self,
        body: bytes = b"body",
        *,
        topic: Identity = TOPIC_A,
        after: Sequence[bytes] = (),
        header: CommitHeader | None = None,
    ) -> tuple[Event, bytes]:
        """An event of this client, and its commit's id; `after` names its parents."""
        self._seq += 1
        commit, blocks = make_commit(body, header or CommitHeader(acks=list(after)))
        content = EventContent(
            topic=topic.public_key,
            publisher=ForwardedPeer(self.key.public_key),
            seq=self._seq,
            blocks=blocks,
            file_ids=[],
            key=b"k" * 32,
        )
        return sign_event(content, topic, self.key), commit.reference.id

    def heard(self) -> list[Any]:
        """Take what was forwarded."""
        heard, self.said = self.said, []
        return [message.content for message in heard]

    def leave(self) -> None:
        """Be gone."""
        self.events.link_closed("gone")


def pin(
    *topics: Identity,
    access: OverlayAccess = READ_WRITE,
    reads: Sequence[Identity] = (),
    expose: bool = False,
    repo: bytes = REPO_HASH,
) -> PinRepo:
    """A request to pin a repo as publisher on topics, and as reader of others."""
    return PinRepo(
        hash=repo,
        overlay=access,
        overlay_root_topic=None,
        expose_outer=expose,
        peers=[],
        max_peer_count=0,
        ro_topics=[topic.public_key for topic in reads],
        rw_topics=[sign_publisher_advert(topic, BROKER.public_key) for topic in topics],
    )


def subscribe(
    topic: Identity, *, publisher: bool = False, repo: bytes = REPO_HASH, broker: Identity = BROKER
) -> TopicSub:
    """A request to subscribe to a topic of a repo."""
    advert = sign_publisher_advert(topic, broker.public_key) if publisher else None
    return TopicSub(topic.public_key, repo, advert)


def with_broker(
    test: Callable[[Broker], Awaitable[None]],
    *,
    registration: Registration = "open",
    quotas: Sequence[Quota] = (),
) -> None:
    """Run a test with a broker."""

    async def main(core: Core) -> None:
        await test(Broker(core, registration, quotas))

    with_core(main, quotas=quotas)
