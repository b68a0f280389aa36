"""The stream core without sockets, threads or waiting: a peer asks, and gets its answers."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import pytest

from actor_support import run
from link_support import ManualClock
from rillnode.actors.core.access import VERBS, Access, Grant
from rillnode.actors.core.delivery import Delivery, Origin
from rillnode.actors.core.groups import addresses
from rillnode.actors.core.groups.nodes import GroupNodes
from rillnode.actors.core.queues import service as queue_service
from rillnode.actors.core.queues.names import PREFIX as QUEUE_PREFIX
from rillnode.actors.core.quotas import Quota, Quotas
from rillnode.actors.core.router import Router
from rillnode.actors.core.streams import appender, index_service, service
from rillnode.actors.core.streams.answers import not_done
from rillnode.actors.core.streams.appending import Appends, Insertion
from rillnode.actors.core.streams.context import (
    ADDRESS_PREFIX,
    PushedKeys,
    StreamContext,
    StreamRemoved,
    no_keys,
    stream_address,
)
from rillnode.actors.core.streams.following import StoreFollower
from rillnode.actors.core.streams.holds import Holds
from rillnode.actors.core.streams.resolving import explain_refusal, stream_guard, stream_resolver
from rillnode.actors.core.streams.retention import RetentionActor
from rillnode.actors.core.streams.rules import StreamRule, StreamRules
from rillnode.actors.engine.system import AsyncioSystemBase
from rillnode.actors.engine.waiting import last_of
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import Lookup, Operation, ReadOperation, StreamRecord
from rillnode.actors.log.memory import MemoryLogStore
from rillnode.codecs import native
from rillnode.codecs.errors import RillnodeError
from rillnode.codecs.group_address import GROUP_PREFIX
from rillnode.codecs.routing import stream as ockam, stream_admin
from rillnode.codecs.routing.routes import WireMessage, local
from rillnode.codecs.words import reserved_streams

Request = native.Request | ockam.Request | stream_admin.AdminRequest


class _Peer(Worker):
    """Stands where a connection would: notes what is routed to it."""

    def __init__(self, answers: list[WireMessage]) -> None:
        self._answers = answers

    def handle(self, message: Any, sender: Any) -> None:
        if isinstance(message, Delivery):
            self._answers += message.messages


class Inserter(Worker):
    """Appends what it is sent, as actors of other protocols do, and notes what comes of it.

    Attributes:
        told: in a turn of it ("run") or not ("late"), the first index, and the code of an error.
    """

    def __init__(self, context: StreamContext, log: int, told: list[tuple[str, int, str]]) -> None:
        self._appends = Appends(context, stream_address("s", 0), log, "node")
        self.told = told

    def handle(self, message: Insertion, sender: Any) -> None:
        run, late = partial(self._note, "run"), partial(self._note, "late")
        self._appends.insert(self, message, run, late)

    def _note(self, how: str, index: int, error: RillnodeError | None) -> None:
        self.told.append((how, index, "" if error is None else error.code))


class Core:
    """The services of a node on a memory store and a clock moved by hand."""

    def __init__(
        self,
        system: AsyncioSystemBase,
        clock: ManualClock,
        quotas: Sequence[Quota] = (),
        rules: Sequence[StreamRule] = (),
        pushed_keys: PushedKeys = no_keys,
    ) -> None:
        numbers = count(1)
        self.system = system
        self.clock = clock
        self.router = Router(system)
        self.access = Access(reserved=reserved_streams())
        self.holds = Holds()
        self.store = MemoryLogStore(
            complete=self._complete,
            on_health=lambda _: None,
            post=asyncio.get_running_loop().call_soon,
            clock=clock,
        )
        self.store.open()
        self.context = StreamContext(
            system,
            self.router,
            self.store,
            self.access,
            clock,
            lambda size: next(numbers).to_bytes(size, "big"),
            Quotas(quotas, clock),
            pushed_keys,
        )
        self.changes: list[Callable[[StreamRecord | StreamRemoved], None]] = []
        retention = system.spawn(partial(RetentionActor, self.context, self.holds))
        self.retention = retention

        self.partitions = appender.Partitions(self.context)

        def on_stream(change: StreamRecord | StreamRemoved) -> None:
            self.partitions.changed(change)
            system.post(retention, change)
            for told in self.changes:
                told(change)
            record = change.record if isinstance(change, StreamRemoved) else change
            self.context.groups.stream_changed(record.name, change)
            if isinstance(change, StreamRemoved):
                self.context.watches.removed(record)
                system.post(self.indexes, change)
            else:
                self.context.watches.changed(record)

        system.spawn(partial(StoreFollower, self.context, on_stream))
        system.spawn(partial(GroupNodes, self.context))
        streams = system.spawn(
            partial(service.StreamService, self.context, on_stream, StreamRules(rules))
        )
        self.streams = streams
        self.indexes = system.spawn(partial(index_service.IndexService, self.context))
        self.router.register(b"stream", streams)
        appends = partial(appender.AppenderService, self.context, self.partitions)
        self.router.register(appender.ADDRESS, system.spawn(appends))
        self.router.register(b"stream_index", self.indexes)
        queues = system.spawn(partial(queue_service.QueueService, self.context))
        self.router.register(queue_service.ADDRESS, queues)
        self.router.register_resolver(QUEUE_PREFIX, queue_service.queue_resolver(self.context))
        guard, explain = queue_service.queue_guard, queue_service.explain_queue_refusal
        self.router.register_guard(QUEUE_PREFIX, guard(self.access), explain)
        self.router.register_resolver(ADDRESS_PREFIX, stream_resolver(self.context))
        self.router.register_resolver(GROUP_PREFIX, addresses.group_resolver(self.context))
        explain_group = partial(addresses.explain_refusal, self.access)
        self.router.register_guard(GROUP_PREFIX, addresses.group_guard(self.access), explain_group)
        self.router.register_guard(ADDRESS_PREFIX, stream_guard(self.access), explain_refusal)
        for prefix in (ADDRESS_PREFIX, service.ADDRESSES[0]):  # all services' begin with that
            self.router.register_refusal(prefix, not_done)

    def _complete(self, operations: Any) -> None:
        self.system.post_threadsafe(
            [(done.reply_to, done, done.then) for done in operations if last_of(done)]
        )

    def complete(self, operation: Operation) -> None:
        """Hand on an operation that a test has kept from the store."""
        self._complete([operation])

    def share_store(self) -> None:
        """Have look-ups say that others may change what they find."""
        store: Any = self.store
        read = store.read

        def passing(operation: Operation) -> bool:
            if isinstance(operation, Lookup):
                operation.lasts = False
            answered: bool = read(operation)
            return answered

        store.read = passing

    async def settle(self, rounds: int = 20) -> None:
        """Let everything happen that needs no time to pass, and no more turns of the loop."""
        for _ in range(rounds):
            await self.system.drain()
            await asyncio.sleep(0)

    def peer(self, principal: str = "friend", *, native_too: bool = True) -> "Peer":
        """A new connection's peer; `friend` may do everything."""
        return Peer(self, principal, native_too)


@dataclass
class Link:
    """As much of a link as who reads for its peer looks at."""

    buffered_bytes: int = 0
    info: Any = field(default_factory=lambda: SimpleNamespace(claim=None))


class Peer:
    """One end of a connection."""

    def __init__(self, core: Core, principal: str, native_too: bool) -> None:
        if principal == "friend":
            core.access.add(Grant(who=principal, streams="*", may=frozenset(VERBS)))
        self.core = core
        self.answers: list[WireMessage] = []
        self.origin = Origin(principal, 4_194_304 if native_too else 65_000, native_too)
        address = b"peer %d" % id(self)
        self._cell = core.system.spawn(partial(_Peer, self.answers))
        core.router.register(address, self._cell)
        self.back = (local(address), local("me"))

    def links_up(self) -> "Link":
        """Give the connection a link, whose buffer is the test's."""
        link = Link()
        self.origin.link, self.origin.connection = cast(Any, link), self._cell
        return link

    def send(self, onward: str | bytes, *payloads: bytes) -> None:
        messages = [WireMessage((local(onward),), self.back, payload) for payload in payloads]
        self.core.router.route(self.origin, messages)

    async def ask(self, onward: str | bytes, *requests: Request) -> Any:
        """Send requests, and return what came back by the time that nothing more happens."""
        await self.core.settle()
        self.answers.clear()
        self.send(onward, *map(encode, requests))
        await self.core.settle()
        return [decode(answer.payload) for answer in self.answers]


def encode(request: Request) -> bytes:
    """Encode a request of any protocol."""
    if isinstance(request, stream_admin.AdminRequest):
        return stream_admin.encode_request(request)
    if type(request) in native.MESSAGES:
        return native.encode(request)  # type: ignore[arg-type]
    return ockam.encode_request(request)  # type: ignore[arg-type]


def decode(payload: bytes) -> Any:
    """Decode a response of any protocol."""
    if native.is_native(payload):
        return native.decode_response(payload)
    if stream_admin.is_admin(payload):
        return stream_admin.decode_response(payload)
    return ockam.decode_response(payload)


def with_core(
    test: Callable[[Core], Awaitable[None]],
    *,
    quotas: Sequence[Quota] = (),
    rules: Sequence[StreamRule] = (),
) -> None:
    """Run a test with a core."""

    async def main(system: AsyncioSystemBase, clock: ManualClock) -> None:
        await test(Core(system, clock, quotas, rules))

    run(main)


def held_reads(core: Core, patch: pytest.MonkeyPatch) -> list[ReadOperation]:
    """From now on, what the store is asked for, and does not read."""
    held = list[ReadOperation]()

    def hold(operation: ReadOperation) -> bool:
        held.append(operation)
        return False

    patch.setattr(core.store, "read", hold)
    return held


__all__ = ["Core", "Operation", "Peer", "decode", "encode", "held_reads", "with_core"]
