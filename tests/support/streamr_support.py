"""Streamr's side of a node without sockets: clients on links in memory, messages to publish."""

import json
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from actor_support import run
from core_support import Core
from link_support import ManualClock
from rillnode.actors.core.access import VERBS, Grant, Verb
from rillnode.actors.core.quotas import Quota
from rillnode.actors.core.streams.revising import EnsureStream
from rillnode.actors.engine.system import AsyncioSystemBase, Cell
from rillnode.actors.log import FOR_EVER, PutStream, StreamRecord
from rillnode.actors.streamr.connection import StreamrEvents, Terms
from rillnode.actors.streamr.context import Relays, StreamrContext
from rillnode.actors.streamr.fanout import Audience
from rillnode.actors.streamr.key_exchange import KeyExchangeActor
from rillnode.actors.streamr.relay import RelayActor
from rillnode.actors.streamr.sessions import Sessions, SessionSettings
from rillnode.codecs.api_keys import hash_of
from rillnode.codecs.links import LinkInfo
from rillnode.codecs.streamr.ethereum import EthereumKey
from rillnode.codecs.streamr.message import encode_message
from rillnode.codecs.streamr.signing import sign_message
from rillnode.codecs.streamr.sort_keys import pushed_keys
from rillnode.codecs.streamr.stream_message import MessageId, MessageRef, StreamMessage

NODE_KEY = EthereumKey(b"\x05" * 32)
ALICE = EthereumKey(b"\x01" * 32)
BOB = EthereumKey(b"\x02" * 32)
API_KEY = "an api key of the tests"
STREAM = "0x01/weather"


class ClientLink:
    """A link whose other end takes everything at once, unless it is told to be slow."""

    def __init__(self) -> None:
        self.info = LinkInfo(
            principal="anonymous",
            remote="memory",
            transport="streamr",
            dialled=False,
            message_bytes_max=1_048_576,
        )
        self.buffered_bytes = 0
        self.taken: list[bytes] = []
        self.is_slow = False
        self.paused = False
        self.framed = 0
        self.reason: str | None = None

    def frame(self, messages: Sequence[bytes]) -> bytes:
        self.framed += len(messages)
        return b"".join(message + b"\n" for message in messages)

    def send(self, messages: Sequence[bytes]) -> None:
        if self.reason is not None:
            return
        self.taken += messages
        if self.is_slow:
            self.buffered_bytes += sum(map(len, messages))

    def send_framed(self, framed: bytes, count: int) -> None:
        self.send(framed.splitlines())

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def close(self, reason: str) -> None:
        self.reason = reason


class StreamrCore:
    """A node's core with what serves Streamr's clients."""

    def __init__(
        self, system: AsyncioSystemBase, clock: ManualClock, quotas: Sequence[Quota] = ()
    ) -> None:
        keys = partial(pushed_keys, NODE_KEY.address)
        self.core = core = Core(system, clock, quotas, pushed_keys=keys)
        relays = Relays(self._make_relay)
        self.sessions = Sessions(
            SessionSettings(token_key=b"t" * 32, api_keys={hash_of(API_KEY): "tests"}),
            clock,
            lambda count: b"e" * count,
            core.access.rights,
        )
        self.context = StreamrContext(
            streams=core.context,
            node_key=NODE_KEY,
            sessions=self.sessions,
            relays=relays,
            key_exchange=system.spawn(lambda: KeyExchangeActor(self.context)),
            directory=core.streams,
        )
        core.changes.append(relays.tell)
        self.grant("anonymous", *VERBS)

    def _make_relay(self, stream_id: str, partition: int) -> Cell:
        clients = Audience(self.context.counters, stream_id, partition)
        relay = partial(RelayActor, self.context, stream_id, partition, clients)
        return self.core.system.spawn(relay)

    async def stream(
        self, name: str = STREAM, *, signed: bool = False, encrypted: bool = False
    ) -> None:
        """Make a stream of one partition, and what it asks of messages."""
        if signed or encrypted:
            record = StreamRecord(name=name, require_signed=signed, require_encrypted=encrypted)
            self.core.store.submit(PutStream(reply_to=self.core.streams, record=record))
        else:
            self.core.system.post(self.core.streams, EnsureStream(name, 1, FOR_EVER))
        await self.core.settle()

    def grant(self, who: str | EthereumKey, *verbs: Verb, streams: str = "*") -> None:
        """Let somebody do something."""
        if isinstance(who, EthereumKey):
            who = f"eth:{who.address.lower()}"
        self.core.access.add(Grant(who=who, streams=streams, may=frozenset(verbs)))

    def client(self, control: int = 2, message: int = 32, **said: Any) -> "Client":
        """A new connection of a client; `said` are fields of its Terms."""
        return Client(self, Terms(control, message, **said))


class Client:
    """One connection's client."""

    def __init__(self, node: StreamrCore, terms: Terms) -> None:
        self.node = node
        self.link = ClientLink()
        self.control = terms.control_version
        self.events = StreamrEvents(node.context, terms)
        self.events.link_opened(self.link)

    def send(self, *requests: object) -> None:
        texts = [text if isinstance(text, bytes) else dump(text) for text in requests]
        self.events.messages_received(texts)

    async def ask(self, *requests: object) -> list[Any]:
        """Send requests, and return what has come by the time that nothing more happens."""
        await self.node.core.settle()
        self.link.taken.clear()
        self.send(*requests)
        return await self.heard()

    async def heard(self) -> list[Any]:
        """What has come since it was asked for last."""
        await self.node.core.settle()
        taken, self.link.taken = self.link.taken, []
        return [json.loads(text) for text in taken]

    async def subscribe(self, stream: str = STREAM, partition: int = 0) -> None:
        request: list[object] = [2, 9, "sub", stream, partition, None]
        if self.control == 1:
            request = [1, 9, stream, partition, None]
        (answer,) = await self.ask(request)
        assert answer[1] == 2, answer

    def close(self) -> None:
        self.events.link_closed("closed by the peer")


def dump(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def message(
    timestamp: int,
    sequence: int = 0,
    *,
    key: EthereumKey | None = ALICE,
    stream: str = STREAM,
    partition: int = 0,
    chain: str = "chain",
    publisher: str | None = None,
    previous: tuple[int, int] | None = None,
    content: str = '{"a":1}',
    **fields: Any,
) -> StreamMessage:
    """A message, signed where a key is given."""
    publisher = publisher or (key.address if key else "somebody")
    made = StreamMessage(
        id=MessageId(stream, partition, timestamp, sequence, publisher, chain),
        previous=None if previous is None else MessageRef(*previous),
        content=content,
        **fields,
    )
    return made if key is None else sign_message(made, key)


def array(made: StreamMessage, version: int = 32) -> list[Any]:
    """A message as its array."""
    found: list[Any] = json.loads(encode_message(made, version))
    return found


def publish(made: StreamMessage, request_id: str = "p", token: str | None = None) -> list[object]:
    """A request of version 2."""
    return [2, 8, request_id, array(made), token]


def with_streamr(
    test: Callable[[StreamrCore], Awaitable[None]], *, quotas: Sequence[Quota] = ()
) -> None:
    """Run a test with a core that serves Streamr's clients."""

    async def main(system: AsyncioSystemBase, clock: ManualClock) -> None:
        await test(StreamrCore(system, clock, quotas))

    run(main)
