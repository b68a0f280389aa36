"""The asynchronous client."""

import asyncio
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, Final, Self, TypeVar, overload
from urllib.parse import urlsplit
from weakref import WeakSet

import msgspec

from rillnode.actors.core.queues.names import queue_address
from rillnode.codecs import arguments, native
from rillnode.codecs.errors import (
    ConfigError,
    HandshakeError,
    RequestError,
    StreamError,
    StreamRemoved,
)
from rillnode.codecs.keys import Identity
from rillnode.codecs.limits import OPENS_MAX, PARTITIONS_MAX
from rillnode.codecs.noise.cipher import Suite
from rillnode.codecs.noise.link import NoiseLink
from rillnode.codecs.routing.routes import Route, local, utf8
from rillnode.node.client import lookup
from rillnode.node.client.correspondent import Correspondent
from rillnode.node.client.following import Following, FollowStart
from rillnode.node.client.lookup import About
from rillnode.node.client.messages import ANSWER_SECONDS, as_route, as_way
from rillnode.node.client.round_trip import round_trip
from rillnode.node.client.serving import CALLS_MAX, LEASE_SECONDS, Handler, Service
from rillnode.node.client.session import (
    CLOSE_SECONDS,
    Closing,
    Connect,
    Follow,
    OnDisconnect,
    OnReconnect,
    Session,
    unexpected_answer,
)
from rillnode.node.client.stream import Stream, StreamInfo, describe
from rillnode.node.client.typed import EntryCodec, TypedStream
from rillnode.node.client.work import QueueInfo
from rillnode.node.contexts import Context, find
from rillnode.node.iteration import Iteration, each, iterate
from rillnode.node.keys.files import read_key
from rillnode.transports.clock import SystemClock
from rillnode.transports.links import LinkEvents
from rillnode.transports.tcp import dial

TAKE_BACK_ENTRIES: Final = 1_000
"""Dead letters that are given again by one call, where it does not say how many."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SavedIndex:
    """A consumer's saved position, and the end of what it reads (None: no such stream).

    Attributes:
        stream: the stream that it reads.
        partition: the partition.
        client_id: the consumer's name.
        index: the next index that it reads.
        next_index: the end of the partition; None: there is no such stream.
    """

    stream: str
    partition: int
    client_id: str
    index: int
    next_index: int | None

    @property
    def lag(self) -> int | None:
        """Entries that the consumer has not processed."""
        return None if self.next_index is None else max(0, self.next_index - self.index)


@dataclass(frozen=True, slots=True)
class TakenBack:
    """The outcome for dead letters: given to workers again, or gone from the stream.

    Attributes:
        taken: how many workers are given again.
        gone: how many the stream has no more.
    """

    taken: int
    gone: int


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group of consumers, or a single consumer: whose it is, and what it has.

    Attributes:
        id: tells it from others of its group.
        principal: who it has proved to be.
        partitions: those that it has at the moment; of a single consumer none are told.
    """

    id: str
    principal: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A group of consumers of one stream.

    Attributes:
        stream: name of the stream.
        name: under which positions are saved.
        shared: whether members share the partitions; else they are single consumers of one name,
            or there are none.
        generation: counts its changes.
        members: in the order in which they have come; none, where nobody uses the name now.
    """

    stream: str
    name: str
    shared: bool
    generation: int
    members: list[GroupMember]


class ConsoleTicket(msgspec.Struct, frozen=True):
    """A ticket to a node's page, which makes who has it act there as who has asked for it.

    Attributes:
        ticket: what the page exchanges, once.
        address: where the node serves the page, as `host:port`.
        tls: whether over TLS.
        seconds: for how long it is good.
    """

    ticket: str
    address: str
    tls: bool
    seconds: float


class _Checkpoint(msgspec.Struct):
    path: str


class Client(Correspondent):
    """A node's streams, indexes and status; an asynchronous context manager."""

    def __init__(self, session: Session) -> None:
        super().__init__(session.messages)
        self._session = session

    @cached_property
    def _parts(self) -> WeakSet[Closing]:
        """What goes over it; made when needed, as sets take much memory."""
        return WeakSet()

    @cached_property
    def _services(self) -> set[Service]:
        """Those that go on."""
        return set()

    def __repr__(self) -> str:
        state = "connected" if self.connected else "not connected"
        return f"<Client of {self._session.name or 'a node'}: {state}>"

    @property
    def connected(self) -> bool:
        """Whether there is a link to the node now; without one, what is asked waits for the next.

        See `on_disconnect` and `on_reconnect` of `connect`.
        """
        return self._session.connected

    async def __aenter__(self) -> Self:
        """Nothing more to do: `connect` has connected."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.close()

    async def close(self, *, timeout_seconds: float = CLOSE_SECONDS) -> None:
        """Answer open calls, save positions, wait for what is unconfirmed, and end the link.

        Cancelled, it ends the link at once.

        Args:
            timeout_seconds: how long to wait for the node, as where it is away: then what is
                unconfirmed fails, and what was processed since positions were saved comes again.

        Raises:
            RillnodeError: a position could not be saved; the client is closed all the same.
        """
        arguments.seconds("timeout_seconds", timeout_seconds)
        session, loop = self._session, asyncio.get_running_loop()
        until = loop.time() + timeout_seconds
        giving_up = loop.call_at(until, session.give_up)
        try:
            closing = [part.close() for part in session.to_close]
            await each(*[service.stop() for service in self._services], *closing)
        except asyncio.CancelledError:
            until = loop.time()
            raise
        finally:
            giving_up.cancel()
            await session.close(timeout_seconds=max(0.0, until - loop.time()))
            await each(*[part.close() for part in self._parts])

    @overload
    async def stream(self, name: str | None = None, *, partitions: int = 1) -> Stream: ...

    @overload
    async def stream(
        self, name: str | None = None, *, partitions: int = 1, schema: type[T]
    ) -> TypedStream[T]: ...

    async def stream(
        self, name: str | None = None, *, partitions: int = 1, schema: type[T] | None = None
    ) -> Stream | TypedStream[T]:
        """Open a stream; create it, or missing partitions.

        Args:
            name: its name; None: the node chooses one.
            partitions: the least number of partitions.
            schema: a class such as a `msgspec.Struct` whose JSON the entries are: they are checked
                before they are stored.

        Raises:
            RequestError: `stream.unknown`, it does not exist and may not be created;
                `stream.invalid`, an invalid name or number.
            ConfigError: `stream.schema`, the class cannot be a schema.
        """
        codec = None if schema is None else EntryCodec(schema)
        if name is not None and not arguments.text("name", name):
            text = "a stream has a name; None, and not an empty text, has the node choose one"
            raise StreamError("stream.invalid", text)
        name = name or ""
        stream = Stream(self._session, await self._open(name, partitions))
        return stream if codec is None else TypedStream(stream, codec)

    async def _open(self, name: str, partitions: int) -> native.StreamInfo:
        if not 1 <= arguments.whole("partitions", partitions) <= PARTITIONS_MAX:
            text = f"a stream has 1 to {PARTITIONS_MAX} partitions, not {partitions}"
            raise StreamError("stream.invalid", text)
        request = native.OpenRequest(self._session.next_id(), name, partitions)
        response = await self._session.request(b"stream", request, native.StreamResponse)
        return response.stream

    async def open_streams(self, names: Sequence[str], *, partitions: int = 1) -> list[Stream]:
        """Open many streams; create missing ones, or missing partitions.

        It sends one request for each hundred streams, all together.

        Args:
            names: any number of names.
            partitions: the least number of partitions of each.

        Raises:
            RequestError: one could not be opened, as `stream` says; others may be.
        """
        wanted = [arguments.text("names", name) for name in arguments.several("names", names)]
        wanted = list(dict.fromkeys(wanted))
        arguments.whole("partitions", partitions)
        some = (wanted[at : at + OPENS_MAX] for at in range(0, len(wanted), OPENS_MAX))
        found: dict[str, native.StreamInfo] = {}
        for infos in await asyncio.gather(*(self._open_some(one, partitions) for one in some)):
            found |= {info.name: info for info in infos}
        streams = {name: Stream(self._session, found[name]) for name in wanted}
        return [streams[name] for name in names]

    async def _open_some(self, names: Sequence[str], partitions: int) -> list[native.StreamInfo]:
        found: list[native.StreamInfo] = []
        left: list[str] = list(names)
        while left:
            request = native.OpenManyRequest(self._session.next_id(), left, partitions)
            response = await self._session.request(b"stream", request, native.OpenManyResponse)
            opened: list[native.StreamInfo] = list(response.streams)
            elsewhere: list[str] = []
            for failure in response.failures:
                if not failure.nodes or failure.request_id >= len(left):
                    raise native.failure_of(failure)
                elsewhere.append(left[failure.request_id])
            # Each may be served by others.
            opened += await asyncio.gather(*(self._open(one, partitions) for one in elsewhere))
            known: set[str] = {info.name for info in opened}
            if known.isdisjoint(left):
                raise unexpected_answer()
            found += opened
            left = [name for name in left if name not in known]
        return found

    async def describe(self, name: str) -> StreamInfo:
        """Tell about one stream.

        Raises:
            RequestError: `stream.unknown`.
        """
        return StreamInfo.of(await describe(self._session, name))

    async def streams(self, prefix: str = "") -> list[StreamInfo]:
        """All streams that this client may use, by name."""
        return [info async for info in self.iterate_streams(prefix)]

    def iterate_streams(self, prefix: str = "") -> Iteration[StreamInfo]:
        """All streams that this client may use, by name, fetched as they are asked for."""
        return iterate(self._pages_of_streams(prefix))

    async def _pages_of_streams(self, prefix: str) -> AsyncGenerator[list[StreamInfo]]:
        after = ""
        while True:
            request = native.ListRequest(self._session.next_id(), prefix, after)
            response = await self._session.request(b"stream", request, native.ListResponse)
            yield [StreamInfo.of(info) for info in response.streams]
            after = response.next_after
            if not after:
                return

    def follow(self, pattern: str, *, start: FollowStart = "end") -> Following:
        """Follow all streams whose names match a pattern, including those created later.

            async for stream, entry in client.follow("sensors.*"):
                ...

        It is `Stream.tail` over many streams, also across lost links. A stream that is removed, or
        that this client may no longer follow, ends quietly.

        Args:
            pattern: of names, as in grants: `*` stands for any characters, `?` for one, `[...]` for
                one of some.
            start: `end`, only what comes from now on; `start`, the first entries kept; or the
                `Following.position` of an earlier one. Streams that are not in that position, or
                are created later, also under a name that is in it, begin with their first entry.

        Raises:
            RequestError: `follow.invalid`, an invalid pattern or position; later, `follow.limit`,
                the streams have more than 5,000 partitions in all.
        """
        return Following(self._session, pattern, start)

    async def trim(self, name: str, *, partition: int = 0, before: int) -> int:
        """Drop a partition's entries below `before`; return the first index still kept.

        Raises:
            RequestError: `stream.unknown`, it is not there or this client may not administer it;
                `stream.partition`, there is none of the number.
            StreamRemoved: `stream.removed`, it was removed meanwhile.
        """
        # Asked again over another link, it must not be done to a later stream of the name.
        created_at = (await describe(self._session, name)).created_at
        request = native.TrimRequest(self._session.next_id(), name, partition, before, created_at)
        response = await self._session.request(b"stream", request, native.PositionResponse)
        return response.index

    async def remove(self, name: str) -> None:
        """Remove a stream with all entries and saved positions, for ever.

        Who follows it gets a RequestError `stream.removed`; a stream created under the name later
        is another one and begins with index 0.

        Raises:
            RequestError: `stream.unknown`, it is not there or this client may not administer it.
        """
        # As for `trim`.
        created_at = (await describe(self._session, name)).created_at
        request = native.RemoveRequest(self._session.next_id(), name, created_at)
        with suppress(StreamRemoved):  # by an attempt of before, of which this has not heard
            await self._session.request(b"stream", request, native.DoneResponse)

    async def queues(self, stream: str = "") -> list[tuple[str, str]]:
        """All work queues that this client may pull the streams of: stream and queue."""
        found: list[tuple[str, str]] = []
        last: native.QueueName | None = native.QueueName("", "")
        while last is not None:
            request = native.ListQueuesRequest(
                self._session.next_id(), stream, last.stream, last.queue
            )
            response = await self._session.request(b"queues", request, native.QueuesResponse)
            found += [(one.stream, one.queue) for one in response.queues]
            last = response.last
        return found

    async def queue(self, stream: str, queue: str) -> QueueInfo:
        """Return the state of a work queue.

        Raises:
            RequestError: `queue.unknown`, nobody has worked on it; `stream.unknown`.
        """
        request = native.DescribeQueueRequest(self._session.next_id())
        return await self._document(_queue_address(stream, queue), request, QueueInfo)

    async def take_back(
        self, stream: str, queue: str, *, entries_max: int = TAKE_BACK_ENTRIES
    ) -> TakenBack:
        """Give dead letters of a work queue to its workers again, the oldest first.

        Each is given out again once; the letters stay in `<stream>.dead`. Entries that the stream
        no longer keeps are counted.

        Args:
            stream: the stream that the queue is of.
            queue: the queue's name.
            entries_max: how many dead letters to look at, at most.

        Raises:
            RequestError: as of `queue`.
        """
        taken = gone = 0
        left = arguments.whole("entries_max", entries_max)
        while left > 0:
            request = native.TakeBackRequest(self._session.next_id(), min(left, TAKE_BACK_ENTRIES))
            response = await self._session.request(
                _queue_address(stream, queue), request, native.TakenBackResponse
            )
            taken, gone = taken + response.taken, gone + response.gone
            left -= response.taken + response.gone
            if not response.left:
                break
        return TakenBack(taken, gone)

    async def get_index(self, client_id: str, stream: str, *, partition: int = 0) -> int | None:
        """A consumer's saved position: the next index it reads, None when never saved."""
        request = native.LoadIndexRequest(self._session.next_id(), client_id, stream, partition)
        return await self._saved_index(request)

    async def set_index(
        self, client_id: str, stream: str, index: int, *, partition: int = 0, created_at: int = 0
    ) -> int:
        """Save a consumer's position; return what is durably saved then: never less than before.

        Args:
            client_id: the consumer.
            stream: the stream's name.
            index: the next index to read.
            partition: of which partition.
            created_at: `StreamInfo.created_at` of the stream that the position is in; 0: whichever
                has the name, or will have it.

        Raises:
            StreamRemoved: `stream.removed`, the one that is meant is no more.
        """
        request = native.SaveIndexRequest(
            self._session.next_id(), client_id, stream, partition, index, created_at
        )
        return await self._saved_index(request) or 0

    async def indexes(self, stream: str = "") -> list[SavedIndex]:
        """Saved positions of one stream's consumers, or of all."""
        ends = {
            (info.name, partition.partition): partition.next_index
            async for info in self.iterate_streams(stream)
            for partition in info.partitions
        }
        found: list[SavedIndex] = []
        last: native.SavedIndex | None = native.SavedIndex("", 0, "", 0)
        while last is not None:
            request = native.ListIndexesRequest(
                self._session.next_id(), stream, last.stream, last.partition, last.client_id
            )
            response = await self._session.request(
                b"stream_index", request, native.ListIndexesResponse
            )
            found += [
                SavedIndex(
                    item.stream,
                    item.partition,
                    item.client_id,
                    item.index,
                    ends.get((item.stream, item.partition)),
                )
                for item in response.indexes
            ]
            last = response.last
        return found

    async def groups(self, stream: str = "") -> list[GroupInfo]:
        """The groups of consumers of one stream, or of all streams with members at this node.

        At most 500 groups, or as many as have 1,000 members together.

        Raises:
            StreamUnknown: `stream.unknown`.
        """
        request = native.ListGroupsRequest(self._session.next_id(), stream)
        response = await self._session.request(b"stream_index", request, native.ListGroupsResponse)
        return [
            GroupInfo(
                group.stream,
                group.name,
                group.shared,
                group.generation,
                [
                    GroupMember(one.id, one.principal, tuple(one.partitions))
                    for one in group.members
                ],
            )
            for group in response.groups
        ]

    async def status(self) -> dict[str, Any]:
        """The node's status document."""
        request = native.StatusRequest(self._session.next_id())
        return await self._document(b"node", request, dict[str, Any])

    async def console_ticket(self) -> ConsoleTicket:
        """A ticket to an admin session on the node's page, as `rillnode console` makes a link of.

        What is done in the session is done as this client's principal.

        Raises:
            RequestError: `console.off`, the node's page has no sessions; `console.anonymous`, this
                client has proved no identity; `address.unknown`, no grant of `admin` names it.
        """
        request = native.ConsoleRequest(self._session.next_id())
        return await self._document(b"node", request, ConsoleTicket)

    async def checkpoint(self) -> str:
        """Have the node copy its store; return the copy's path there. Who asked removes it.

        Raises:
            RequestError: `backup.unsupported`, its store cannot; or the disk is full.
        """
        request = native.CheckpointRequest(self._session.next_id())
        return (await self._document(b"backup", request, _Checkpoint)).path

    async def _document(self, address: bytes, request: native.Request, kind: type[T]) -> T:
        response = await self._session.request(address, request, native.DocumentResponse)
        try:
            return msgspec.json.decode(response.document, type=kind)
        except msgspec.MsgspecError:
            raise unexpected_answer() from None

    async def run_sink(self, name: str, *, run: bool) -> None:
        """Let a sink's job run, or pause after its batch.

        Raises:
            RequestError: `sink.unknown`, there is none, or this client may not administer it.
        """
        arguments.text("name", name)
        request = native.SinkControlRequest(self._session.next_id(), run)
        try:
            await self._session.request(utf8(f"sink/{name}"), request, native.DoneResponse)
        except RequestError as error:
            if error.code != "address.unknown":
                raise
            text = f"the node has no sink {name!r}, or it is not yours to run"
            raise RequestError("sink.unknown", text) from None

    async def serve(
        self,
        address: str,
        handler: Handler,
        *,
        at: Route | str = "",
        group: bool = False,
        calls_max: int = CALLS_MAX,
        lease_seconds: float = LEASE_SECONDS,
    ) -> Service:
        """Serve an address at the node: messages to it come here, and are answered from here.

        It survives lost links, until `Service.stop` or the end of this client. A call whose link is
        lost fails for its caller (`call.lost`), whatever the handler does.

        Args:
            address: a name of at most 512 bytes, none that the node itself uses.
            handler: is given each `Message`, and returns the bytes of the answer, or None for
                none; to refuse, it raises `ActorReply`. It runs in the client's loop: an `async
                def` beside others, while a plain function must not block.
            at: leads to another node, at which the address is then, such as `peer/hub`: both nodes
                and their links are rillnode's, and what is granted is granted to the nearer one.
                At an Ockam hub `hub(at).serve` has an alias.
            group: others may serve the same address: each call goes to the one with the fewest.
            calls_max: open calls at a time, 1 to 4,096; further callers get `actor.busy`.
            lease_seconds: how long the address is kept for this client's key while its link is
                lost, at most an hour; callers get `peer.unreachable` meanwhile.

        Raises:
            CodecError: `at` is no route.
            RequestError: `address.taken`, another serves it; `address.reserved`,
                `address.invalid`, nobody may; `address.unknown`, no grant lets this client serve
                it; `serve.limit`, too many addresses or calls.
            TransportError: the client is closed.
        """
        arguments.called("handler", handler)
        arguments.whole("calls_max", calls_max)
        arguments.seconds("lease_seconds", lease_seconds)
        service = Service(
            self.messages,
            arguments.text("address", address, as_utf8=False),
            handler,
            at=as_route(at, "at"),
            group=group,
            calls_max=calls_max,
            lease_seconds=lease_seconds,
        )
        await service.begin()
        self._services.add(service)
        service.on_end(self._services.discard)
        return service

    def closes(self, part: Closing) -> None:
        """Close something that goes over this client when the client is closed, if it is in use."""
        self._parts.add(part)

    async def about(self, route: Route | str, *, timeout_seconds: float = ANSWER_SECONDS) -> About:
        """What is at the end of a route, here or at a node behind this one; nothing is woken.

        Without a grant of `admin` a client knows what is its own, what its grants name, and what
        it may send to.

        Raises:
            CodecError: the text is no route.
            RequestError: `address.unknown`, nothing is there, or nothing that this client may know
                of; `peer.unreachable`, `route.busy`.
            ActorError, TransportError: as `ask`.
        """
        arguments.seconds("timeout_seconds", timeout_seconds)
        return await lookup.about(self.messages, as_way(route), timeout_seconds)

    def routes(
        self,
        pattern: str = "*",
        *,
        kind: str = "",
        at: Route | str = "",
        timeout_seconds: float = ANSWER_SECONDS,
    ) -> Iteration[About]:
        """All that has a route, as `about` would tell of each; fetched as it is asked for.

        Args:
            pattern: of what is wanted: of the address, or of the name.
            kind: these alone, as `About.kind` has it.
            at: leads to another node, such as `peer/core`.
            timeout_seconds: how long each page may take.

        Raises:
            CodecError: `at` is no route.
        """
        arguments.text("pattern", pattern)
        arguments.text("kind", kind)
        arguments.seconds("timeout_seconds", timeout_seconds)
        found = lookup.pages(self.messages, as_route(at, "at"), pattern, kind, timeout_seconds)
        return iterate(found)

    async def watch(self, route: Route | str) -> About:
        """Wait until what is at the end of a route has ended; return how it was last.

        Raises:
            RequestError, ActorError, TransportError: as `about`.
        """
        return await lookup.watch(self.messages, as_way(route))

    async def stop(self, route: Route | str, *, timeout_seconds: float = ANSWER_SECONDS) -> None:
        """Have what is at the end of a route stop: its owner may, and who is granted `admin`.

        A link is closed, a subscription ends and its subscriber is told, an actor of an application
        works off what waits; a stream's actor goes, and the next message brings it back.

        Raises:
            RequestError: `route.kept`, such a thing is not stopped, and what to do instead;
                `route.refused`, not by this client; else as `about`.
            ActorError, TransportError: as `about`.
        """
        arguments.seconds("timeout_seconds", timeout_seconds)
        await lookup.stop(self.messages, as_way(route), timeout_seconds)

    async def ping(self, peer: str, *, timeout_seconds: float = ANSWER_SECONDS) -> float:
        """Ask whether a peer of the node answers; return the round trip's seconds.

        Raises:
            RequestError, ActorError, TransportError: as `ask`.
        """
        arguments.text("peer", peer)
        return await round_trip(self.ask, (local(f"peer/{peer}"),), timeout_seconds)

    async def _saved_index(
        self, request: native.LoadIndexRequest | native.SaveIndexRequest
    ) -> int | None:
        response = await self._session.request(b"stream_index", request, native.SavedIndexResponse)
        return response.index


def _queue_address(stream: str, queue: str) -> bytes:
    return queue_address(arguments.text("stream", stream), arguments.text("queue", queue))


async def move_index(client: Client, stream: str, name: str, partition: int, index: int) -> None:
    """Move a consumer's saved position.

    Raises:
        RequestError: `index.kept`, it is already further; or it was refused.
    """
    kept = await client.set_index(name, stream, index, partition=partition)
    if kept != index:
        text = f"the position stays at {kept}: it never goes back to {index}"
        raise RequestError("index.kept", text)


def noise_connect(
    url: str, identity: Identity, node_identity: str | None, *, chacha: bool = False
) -> Connect:
    """A way to open Noise links to `noise://host:port`.

    Raises:
        ConfigError: the address is no such URL.
    """
    parts = urlsplit(url)
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if parts.scheme != "noise" or host is None or port is None or parts.path not in ("", "/"):
        raise ConfigError("client.url", f"{url!r} is no address of a node: noise://host:port")
    suite = Suite.CHACHAPOLY_SHA256 if chacha else Suite.AESGCM_SHA256

    async def open_link(events: LinkEvents) -> object:
        codec = NoiseLink.initiator(identity, node_identity=node_identity, suite=suite)
        clock = SystemClock(asyncio.get_running_loop())
        return await dial(
            host, port, codec=codec, events=events, transport_name="noise", clock=clock
        )

    return open_link


def noise_follow(identity: Identity, *, chacha: bool = False) -> Follow:
    """Ways to nodes that others have named, by the same key; each must prove who it is."""

    def follow(node: native.NodeAddress) -> Connect:
        return noise_connect(f"noise://{node.address}", identity, node.identity, chacha=chacha)

    return follow


async def connect(
    url: str | None = None,
    *,
    key_file: str | Path | None = None,
    identity: Identity | None = None,
    node_identity: str | None = None,
    context: str | None = None,
    reconnect: bool = True,
    chacha: bool = False,
    on_disconnect: OnDisconnect | None = None,
    on_reconnect: OnReconnect | None = None,
) -> Client:
    """Connect to a node's `noise` listener.

    Without an address the node is found, as the command line finds it: by a saved context's name,
    by `RILLNODE_URL`, `RILLNODE_IDENTITY` and `RILLNODE_KEY` or `RILLNODE_CONTEXT` in the
    environment, by the context that `rillnode context use` has selected, or as the one that
    `rillnode run --dev` runs on this machine.

    Where the node says that others serve a stream, which on a shared log its configuration may
    have (`store.serve`), the client goes to one of these for it, by the same key.

    Args:
        url: `noise://host:port`; None: that of the node that is found.
        key_file: file with this client's key; None: that of the context, if it has one.
        identity: this client's key, instead of a file. With neither, a key is made that is
            forgotten with the client: for nodes that let everybody in, such as those of `--dev`.
        node_identity: the node's identity (hex); no other node is accepted. Required with `url`.
        context: the name of a saved context to find the node by.
        reconnect: reconnect with backoff when the link is lost.
        chacha: use ChaCha20-Poly1305, for machines without AES instructions.
        on_disconnect: called in the loop, with the reason, when the link is lost, but not when the
            client is closed. It may be `async def`.
        on_reconnect: called without arguments when there is a link again.

    Raises:
        TransportError: the node is not reached.
        HandshakeError: it is another node, or does not know this identity; the text has the grant
            that lets it in.
        ConfigError: the address or the key cannot be used; `client.nowhere`, no node was found.
    """
    for name, value in (("url", url), ("node_identity", node_identity), ("context", context)):
        if value is not None:
            arguments.text(name, value)
    if not isinstance(key_file, str | PathLike | None):
        raise arguments.refused("key_file", "is a path", key_file)
    if not isinstance(identity, Identity | None):
        raise arguments.refused("identity", "is an Identity: a file is `key_file`", identity)
    for name, call in (("on_disconnect", on_disconnect), ("on_reconnect", on_reconnect)):
        if call is not None:
            arguments.called(name, call)
    if url is None:
        found = _found(context)
        url, node_identity = found.url, node_identity or found.node_identity
        if identity is None and key_file is None:
            key_file = found.key_file
    elif context is not None:
        raise ConfigError("client.url", "an address and a context name two nodes: leave one out")
    if node_identity is None:
        text = "name the node's public key as `node_identity`: no other node is talked to"
        raise ConfigError("client.identity", text)
    made = identity is None and key_file is None
    if identity is None:
        identity = Identity.generate() if key_file is None else read_key(Path(key_file))
    way = noise_connect(url, identity, node_identity, chacha=chacha)
    session = Session(
        way,
        reconnect=reconnect,
        follow=noise_follow(identity, chacha=chacha),
        on_disconnect=on_disconnect,
        on_reconnect=on_reconnect,
        name=url,
    )
    try:
        await session.open()
    except HandshakeError as error:
        if made and error.code == "noise.unknown_identity":
            text = f"{error.text}; no key was given, so this one is forgotten with the client: "
            text += "make one to keep with `rillnode key new FILE`, and connect with it"
            raise HandshakeError(error.code, text) from None
        raise
    return Client(session)


def _found(context: str | None) -> Context:
    found = find(os.environ, name=context)
    if found is None:
        text = (
            "no node named: neither RILLNODE_URL nor a context is set, and no node of "
            "`rillnode run --dev` runs"
        )
        raise ConfigError("client.nowhere", text)
    return found.context
