"""A stream as a client sees it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final, Literal, NamedTuple

from rillnode.actors.core.queues.names import queue_address
from rillnode.actors.log import INDEX_MAX, Retention
from rillnode.codecs import arguments, native
from rillnode.codecs.entries import Entry, NewEntry, entries_of
from rillnode.codecs.errors import ConsumerError, RequestError
from rillnode.codecs.keyed import Headers, Key, partition_of
from rillnode.codecs.times import Time, milliseconds_of
from rillnode.codecs.where import Where
from rillnode.node.client.consumer import (
    IN_FLIGHT,
    SAVE_SECONDS,
    Ack,
    Consumer,
    Feed,
    Ledger,
    check_seconds,
)
from rillnode.node.client.group import OnPartitions, Sharing, Single
from rillnode.node.client.producer import (
    Data,
    NamedProducer,
    Producer,
    beside,
    new_entry,
    push_keyed,
)
from rillnode.node.client.pusher import IN_FLIGHT as PUSHES_IN_FLIGHT, Pusher
from rillnode.node.client.reading import Opened, Reading, Terms
from rillnode.node.client.session import Session
from rillnode.node.client.subscription import Wanted
from rillnode.node.client.work import (
    ATTEMPTS,
    IN_FLIGHT as WORK_IN_FLIGHT,
    VISIBILITY_SECONDS,
    WorkQueue,
    work_queue,
)
from rillnode.node.iteration import Iteration, each

Start = int | Literal["start", "end"] | Time
"""Where reading begins: an index, the first entry kept, the end, or a time (`Stream.index_at`)."""

READ_BYTES: Final = 1_048_576


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition: its address and committed extent.

    Attributes:
        partition: its number, from 0.
        address: where messages for it go.
        first_index: the lowest index that is kept.
        next_index: the index that the next entry gets.
        data_bytes: bytes of the entries that are kept.
    """

    partition: int
    address: str
    first_index: int
    next_index: int
    data_bytes: int


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """A node's description of a stream; `created_at` in milliseconds since 1970.

    Attributes:
        name: its name.
        partitions: each partition, by number.
        retention: what is kept of it.
        created_at: when it was made, in milliseconds since 1970; another one for each stream that
            has had the name.
        owner: the principal that has made it.
    """

    name: str
    partitions: list[PartitionInfo]
    retention: Retention
    created_at: int
    owner: str

    @classmethod
    def of(cls, info: native.StreamInfo) -> "StreamInfo":
        """Take it out of a node's answer."""
        milliseconds = info.retain_milliseconds
        return cls(
            info.name,
            [
                PartitionInfo(
                    partition.partition,
                    partition.address.decode(errors="backslashreplace"),
                    partition.first_index,
                    partition.next_index,
                    partition.data_bytes,
                )
                for partition in info.partitions
            ],
            Retention(
                seconds=None if milliseconds is None else milliseconds / 1000,
                entries_max=info.retain_entries_max,
                bytes_max=info.retain_bytes_max,
            ),
            info.created_at,
            info.owner,
        )


class Stream:
    """A stream of a node; made by `Client.stream`.

    Attributes:
        name: its name.
        partitions: number of its partitions, as of when it was opened.
        created_at: when it was made, as of `StreamInfo`: a later one of the name is another stream.
    """

    # An application may have very many, most of which are only pushed to: they are made of as few
    # objects as possible, all of which the garbage collector looks at again and again.
    __slots__ = (
        "__weakref__", "_addresses", "_consumers", "_first_producer", "_producers",
        "_session", "created_at", "name", "partitions",
    )  # fmt: skip

    def __init__(self, session: Session, info: native.StreamInfo) -> None:
        self.name = info.name
        self.partitions = len(info.partitions)
        self._session = session
        self.created_at = info.created_at
        self._addresses = tuple([partition.address for partition in info.partitions])
        self._first_producer: Producer | None = None  # of partition 0
        # Of each there was none yet.
        self._producers: dict[int, Producer] | None = None  # of the other partitions
        self._consumers: set[Callable[[], Awaitable[None]]] | None = None

    def __repr__(self) -> str:
        return f"<Stream {self.name!r}, partitions {self.partitions}>"

    # Pushing ---------------------------------------------------------------------------------

    async def push(
        self,
        data: Data,
        *,
        key: Key | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> int:
        """Push one entry; return its index once it is durable.

        Args:
            data: bytes, bytearray or memoryview.
            key: what the entry is about, bytes or text; at most 1,024 bytes.
            headers: values, bytes or text, by their names, which are text: at most 64, of 16,384
                bytes together.
            partition: where it goes; None: where entries with its key go (the CRC-32 of the key,
                modulo the number of partitions), or to partition 0 if it has none.

        Raises:
            ArgumentError: something is of another type.
            StreamUnknown: `stream.unknown`, it was removed, or this client may not push to it; all
                else that is asked of a stream says the same.
            RequestError: the node refused it, or a limit does: `entries.size`, `entries.key`,
                `entries.headers`, `entries.header_name`; `stream.partition`, there is none of the
                number.
        """
        return await self.push_nowait(data, key=key, headers=headers, partition=partition)

    def push_nowait(
        self,
        data: Data,
        *,
        key: Key | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> asyncio.Future[int]:
        """Push one entry without waiting; the future gets its index once it is durable.

        What is pushed in one turn of the event loop travels together. Entries of one partition
        are stored in the order of the calls. Nothing bounds what is unconfirmed; `pusher` does.
        Arguments and errors as of `push`. Futures that the client's end or a link lost for good
        leaves without an outcome fail; all that nobody waits for make one warning in the log.
        """
        if key is None and headers is None:
            number = 0 if partition is None else self._numbered(partition)
            return self._producer(number).push(data)
        entry = new_entry(data, key, headers)
        return self._producer(self._place(entry, partition)).push(entry.data, entry)

    async def push_many(
        self,
        items: Iterable[bytes],
        *,
        keys: Iterable[Key | None] | None = None,
        headers: Iterable[Headers | None] | None = None,
        partition: int | None = None,
    ) -> int:
        """Push entries in whole blocks; return the index after the last, once all are durable.

        With keys and without a partition, each goes to the partition of its key, and the index is
        the one after the last entry in that entry's partition.

        Args:
            items: the data of each.
            keys: the key of each, or None; at least as many as items.
            headers: the headers of each, or None; likewise.
            partition: where all go, as for `push`.

        Raises:
            ArgumentError: there are fewer keys or headers than items, or something is of another
                type.
            RequestError: as of `push`; earlier entries may be stored.
        """
        if keys is None and headers is None:
            return await self._producer(self._numbered(partition)).push_all(items)
        entries = (new_entry(*parts) for parts in beside(items, keys, headers))
        return await push_keyed(
            self._producer, ((self._place(entry, partition), entry) for entry in entries)
        )

    def partition_of(self, key: Key | None) -> int:
        """The partition that entries with a key are pushed to; 0 for those without.

        Raises:
            ArgumentError: the key is neither bytes nor text.
            RequestError: `entries.key`, it is too large.
        """
        return self._place(new_entry(b"", key, None), None)

    def _place(self, entry: NewEntry, partition: int | None) -> int:
        if partition is not None:
            return self._numbered(partition)
        return 0 if entry.key is None else partition_of(entry.key, self.partitions)

    def _numbered(self, partition: int | None) -> int:
        return 0 if partition is None else arguments.whole("partition", partition)

    async def producer(self, name: str, *, partition: int = 0) -> NamedProducer:
        """Open a named producer, which continues its numbers; others with its name are fenced.

        All pushes are numbered, so that nothing is stored twice while this client lives. A named
        producer is for a process that must know what an earlier one has stored. A partition
        remembers 1,024 names, each for 30 days after its last use.

        Args:
            name: 1 to 128 bytes in UTF-8; whoever may push to the stream may use it.
            partition: the partition that its numbers belong to.

        Raises:
            RequestError: `producer.name`, or the node refuses it otherwise.
        """
        return await open_producer(self._session, self._address(partition), partition, name)

    def _producer(self, partition: int) -> Producer:
        if not partition:
            producer = self._first_producer
            if producer is None:
                producer = self._first_producer = Producer(self._session, self._address(0))
            return producer
        producers = self._producers = self._producers or {}
        producer = producers.get(partition)
        if producer is None:
            producer = producers[partition] = Producer(self._session, self._address(partition))
        return producer

    def pusher(self, *, in_flight: int = PUSHES_IN_FLIGHT) -> Pusher:
        """Push with a limit on unconfirmed entries: see `Pusher`.

        Args:
            in_flight: unconfirmed entries at a time.

        Raises:
            RequestError: `pusher.invalid`, it is less than 1.
        """
        return Pusher(self.push_nowait, in_flight)

    # Reading ---------------------------------------------------------------------------------

    async def pull(
        self,
        index: int = 0,
        limit: int = 100,
        *,
        start: Time | None = None,
        until: int | Time | None = None,
        where: str = "",
        partition: int = 0,
    ) -> list[Entry]:
        """Read at most `limit` entries with an index of at least `index`; none past the end.

        Args:
            index: the lowest index wanted; if negative, counted from the end: -10 begins with the
                last ten.
            limit: how many entries at most.
            start: only entries received at this time or later; see `index_at`.
            until: only entries with a lower index, or received before this time.
            where: only entries that meet this condition, such as `mag > 5 and not place.test`; the
                node examines some thousand entries per request.
            partition: whose entries.

        Raises:
            RequestError: the node refused it; `client.time`, see `index_at`; `where.*`, an invalid
                condition.
            StreamRemoved: `stream.removed`, it was removed, and another has its name.
        """
        self._address(partition)  # refuses at once a number that is none
        arguments.whole("limit", limit)
        if arguments.text("where", where):
            Where(where)  # refuses at once what is no condition
        if arguments.whole("index", index) < 0:
            index = _before_end((await self._extents())[partition], index)
        if start is not None:
            index = max(index, await self.index_at(start, partition=partition))
        if until is None:
            end = INDEX_MAX
        elif isinstance(until, int):
            end = arguments.whole("until", until)
        else:
            end = await self.index_at(until, partition=partition)
        arguments.unsigned("index", index)
        arguments.unsigned("limit", max(0, limit))
        found: list[Entry] = []
        more = True
        while more and len(found) < limit:
            wanted = Wanted(self._address(partition), partition, index, self.created_at, where)
            page = await read_page(self._session, wanted, limit - len(found), until=end)
            found += page.entries
            index, more = page.next_index, page.more
        return found

    async def index_at(self, time: Time, *, partition: int = 0) -> int:
        """Return the index of the first entry received at a time or later.

        Times never decrease within a partition, even if the node's clock is set back. This is
        quick, however long the stream is.

        Args:
            time: a datetime with a zone, or a timedelta: that long ago by the node's clock.
            partition: whose entries.

        Returns:
            The first index kept, if all entries came later; the end, which is the next entry's
            index, if none did, as for a time in the future.

        Raises:
            RequestError: `client.time`, a datetime without a zone or a timedelta below zero.
        """
        request = native.LocateRequest(self._session.next_id(), *milliseconds_of(time))
        response = await self._session.request(
            self._address(partition), request, native.PositionResponse
        )
        return response.index

    def batches(
        self,
        *,
        start: Start = "start",
        where: str = "",
        partitions: Sequence[int] | None = None,
    ) -> Iteration[list[Entry]]:
        """Follow partitions for ever, in batches of entries of one partition each.

        Args:
            start: an index, if negative counted from the end; `start`, the first entry kept; `end`,
                only what comes after its `async with` is entered, or the first batch asked for; or
                a time, a datetime with a zone or a timedelta ago (`index_at`). Before an index that
                the log has yet to reach nothing comes, and a warning is logged.
            where: only entries that meet this condition, as for `pull`.
            partitions: the partitions to follow; None: all.

        Raises:
            RequestError: `stream.partition`, there is none of a number; `client.time`, see
                `index_at`; `where.*`, that is no condition.
        """
        return Iteration(_Batches(self._following(start, partitions, where)))

    def tail(
        self,
        *,
        start: Start = "end",
        where: str = "",
        partitions: Sequence[int] | None = None,
    ) -> Iteration[Entry]:
        """Follow partitions for ever, entry by entry; arguments and errors as of `batches`."""
        return Iteration(self._following(start, partitions, where))

    def consumer(
        self,
        name: str,
        *,
        start: Start = "start",
        partitions: Sequence[int] | None = None,
        group: bool = False,
        ack: Ack = "next",
        max_in_flight: int = IN_FLIGHT,
        save_seconds: float = SAVE_SECONDS,
        on_assigned: OnPartitions | None = None,
        on_revoked: OnPartitions | None = None,
    ) -> Consumer[Entry]:
        """Open a consumer that resumes where `name` stopped and saves its position.

        Args:
            name: the name under which positions are saved, one for each partition. A name belongs
                to a group, to a single consumer or to a work queue. Two single consumers with one
                name each get everything, and share the higher position.
            start: where to begin, as for `tail`, in partitions without a saved position; it is
                saved before the first entry comes.
            partitions: the partitions to read; None: all, or those that the group assigns.
            group: share the partitions among the members of the group. When a member joins, leaves
                or is lost, as few partitions as needed move: their owner saves its position and
                gives them up once its entries in flight are acknowledged, or after 3 s; one whose
                link is lost is waited for 2 s, and is handed nothing while others may have its
                partitions. So only entries that were not saved as processed can come to two
                members. `Consumer.partitions` has the current ones.
            ack: what makes an entry count as processed. `next`: asking for the next one, even if
                none comes, or `Consumer.ack`; the entry at which a loop is left comes again.
                `explicit`: only `Consumer.ack`, so that several entries can be processed at a time.
            max_in_flight: unacknowledged entries at a time; further ones wait.
            save_seconds: how often positions are saved; after a crash, the entries processed since
                then come again.
            on_assigned: called in the loop with partitions that the group has assigned.
            on_revoked: called with those that are no longer this member's: an `ack` of their
                entries is refused.

        Raises:
            ConsumerError: `consumer.invalid`, an invalid value.
            QueueError: `queue.name`, a work queue of this stream has the name.
            GroupError: later, while it reads: `group.name`, the name is used the other way;
                `group.limit`, too many members; `group.revoked`, the right to consume has ended.
                From `save`: `group.generation`, a partition now belongs to another member.
            RequestError: `client.time`, see `index_at`.
            PartitionUnknown: `stream.partition`, there is none of a number.
            StreamRemoved: `stream.removed`, later: the stream was removed with its positions.
        """
        check_seconds(save_seconds)
        for argument, told in (("on_assigned", on_assigned), ("on_revoked", on_revoked)):
            if told is not None:
                arguments.called(argument, told)
        arguments.text("name", name)
        ledger: Ledger[Entry] = Ledger()
        described = partial(describe, self._session, self.name)
        consumers = self._consumers
        if consumers is None:
            consumers = self._consumers = set()
            self._session.to_close.add(self)
        terms = Terms(self.created_at, described, save_seconds, consumers)
        feed: Feed[Entry]
        lapsed: Callable[[], bool] | None = None
        if group:
            if partitions is not None:
                text = "a group gives its members partitions: none can be chosen"
                raise ConsumerError("consumer.invalid", text)
            sharing = feed = Sharing(
                self._session, self.name, name, ledger, terms,
                begin=self._starts(start), on_assigned=on_assigned, on_revoked=on_revoked,
            )  # fmt: skip
            lapsed = sharing.lapsed
        else:
            feed = _Consuming(
                self._session, self.name, name, ledger, terms, address=self._address,
                partitions=self._chosen(partitions), begin=self._starts(start),
            )  # fmt: skip
        return Consumer(
            feed, ledger, name=name, stream=self.name, ack=ack, in_flight=max_in_flight,
            lapsed=lapsed,
        )  # fmt: skip

    def work(
        self,
        queue: str,
        *,
        attempts: int = ATTEMPTS,
        visibility_seconds: float = VISIBILITY_SECONDS,
        in_flight: int = WORK_IN_FLIGHT,
        queue_in_flight: int | None = None,
        by_key: bool = False,
    ) -> WorkQueue:
        """Work on a queue: each entry of the stream goes to one of its workers.

        The first worker creates the queue, which begins with the first entry that the stream keeps.
        The node keeps its state, which survives workers and nodes. Dead letters go into the stream
        `<stream>.dead`, which is created when needed, with the same owner.

        Args:
            queue: its name, which no consumer of this stream may have.
            attempts: attempts after which an entry becomes a dead letter: 1 to 1,000.
            visibility_seconds: a job that is not answered in this time is given out again, and a
                later answer is refused: 0.01 s to 12 hours.
            in_flight: jobs that this worker has at a time: 1 to 10,000, including those that wait
                here for `next`. What has waited here for half of `visibility_seconds` is given
                back, which costs no attempt.
            queue_in_flight: jobs of all workers together; None: no limit.
            by_key: give out entries of one key, in one partition, in order: the next one when the
                one before is done or a dead letter. Entries without a key have no order.

        The queue uses the `attempts`, `queue_in_flight` and `by_key` of the latest worker.

        Raises:
            QueueError: `queue.limit`, a number that cannot be; others as it is entered.
        """
        return work_queue(
            self._session,
            queue_address(self.name, arguments.text("queue", queue)),
            name=queue,
            stream=self.name,
            created_at=self.created_at,
            attempts=attempts,
            visibility_seconds=visibility_seconds,
            in_flight=in_flight,
            queue_in_flight=queue_in_flight,
            by_key=by_key,
        )

    async def close(self) -> None:
        """Save the positions of consumers that are still open, and leave their groups."""
        await each(*[finish() for finish in self._consumers or ()])

    def _following(
        self, start: Start, partitions: Sequence[int] | None, where: str
    ) -> "_Following":
        chosen = self._chosen(partitions)
        if arguments.text("where", where):
            Where(where)  # refuses at once what is no condition
        begin = self._starts(start)

        async def find() -> list[Wanted]:
            return [
                Wanted(self._address(partition), partition, index, self.created_at, where)
                for partition, index in (await begin(chosen)).items()
            ]

        return _Following(self._session, find)

    def _starts(self, start: Start) -> "_Starts":
        """What finds out where partitions begin."""
        if isinstance(start, datetime | timedelta):
            milliseconds_of(start)  # refuses at once what is no time
        elif (
            start is True
            or start is False
            or not (isinstance(start, int) or start in ("start", "end"))
        ):
            raise arguments.refused("start", 'is "start", "end", an index or a time', start)

        async def starts(chosen: Sequence[int]) -> dict[int, int]:
            if start == "end":
                extents = await self._extents()
                return {partition: extents[partition].next_index for partition in chosen}
            if isinstance(start, datetime | timedelta):
                return await indexes_at(self, start, chosen)
            if isinstance(start, int) and start < 0:
                extents = await self._extents()
                return {one: _before_end(extents[one], start) for one in chosen}
            return dict.fromkeys(chosen, 0 if start == "start" else start)

        return starts

    async def _extents(self) -> list[native.PartitionInfo]:
        return (await describe(self._session, self.name)).partitions

    def _chosen(self, partitions: Sequence[int] | None) -> Sequence[int]:
        if partitions is None:
            return range(self.partitions)
        given = tuple(arguments.several("partitions", partitions))
        if not given:  # nothing would ever come
            raise arguments.refused("partitions", "has at least one, or is None for all", given)
        for partition in given:
            self._address(partition)
        return tuple(dict.fromkeys(given))

    def _address(self, partition: int) -> bytes:
        if not 0 <= arguments.whole("partition", partition) < self.partitions:
            raise RequestError(
                "stream.partition",
                f"stream {self.name} has partitions 0 to {self.partitions - 1}, not {partition}",
            )
        return self._addresses[partition]


_Starts = Callable[[Sequence[int]], Awaitable[dict[int, int]]]
"""Finds out where partitions begin."""


def _before_end(extent: native.PartitionInfo, index: int) -> int:
    """The index that is so many before the end, `index` being below zero."""
    return max(extent.first_index, extent.next_index + index)


async def open_producer(
    session: Session, address: bytes, partition: int, name: str
) -> NamedProducer:
    """Open a producer of a partition.

    Raises:
        RequestError: as `Stream.producer`.
    """
    arguments.text("name", name)
    request = native.OpenProducerRequest(session.next_id(), name)
    response = await session.request(address, request, native.ProducerResponse)
    return NamedProducer(session, address, partition, name, response)


async def describe(session: Session, name: str) -> native.StreamInfo:
    """Ask a node about one stream.

    Raises:
        RequestError: `stream.unknown`.
    """
    request = native.DescribeRequest(session.next_id(), name)
    response = await session.request(b"stream", request, native.StreamResponse)
    return response.stream


async def indexes_at(stream: Stream, time: Time, partitions: Iterable[int]) -> dict[int, int]:
    """The index of each partition's first entry that came at a time or later, as `index_at`."""
    chosen = [*partitions]
    found = await asyncio.gather(*(stream.index_at(time, partition=one) for one in chosen))
    return dict(zip(chosen, found, strict=True))


class Page(NamedTuple):
    """The entries of one answer.

    Attributes:
        entries: those that are wanted, ascending.
        next_index: where to go on.
        more: whether something was there as the node answered.
    """

    entries: list[Entry]
    next_index: int
    more: bool


async def read_page(session: Session, wanted: Wanted, limit: int, *, until: int) -> Page:
    """Ask the node once for entries of a partition, as many as one answer has.

    Args:
        session: asks the node.
        wanted: which entries; those that meet its condition are looked for among some thousand.
        limit: how many entries at most.
        until: the index before which they are.

    Raises:
        RequestError: the node refused it.
    """
    partition, index, created_at = wanted.partition, wanted.index, wanted.created_at
    if index >= until:
        return Page([], index, more=False)
    number = session.next_id()
    request: native.Request
    response: native.BlocksResponse | native.FoundResponse
    if wanted.where:
        request = native.SearchRequest(number, index, until, limit, wanted.where, created_at)
        response = await session.request(wanted.address, request, native.FoundResponse)
    else:
        most = min(limit, until - index)
        request = native.ReadRequest(number, index, most, READ_BYTES, created_at)
        response = await session.request(wanted.address, request, native.BlocksResponse)
    first = max(index, response.first_index)
    end = min(until, response.next_index)
    found: list[Entry] = []
    for block in native.blocks_of(response):
        behind = min(until, max(first, block.first_index) + limit - len(found))
        found += entries_of(block, partition=partition, first=first, until=behind)
        first = found[-1].index + 1 if found else first
    if isinstance(response, native.FoundResponse):
        first = max(first, response.reached)
    return Page(found, first, more=index < first < end)


class _Following(Opened):
    """Follows what is wanted, once that is found out."""

    def __init__(self, session: Session, find: Callable[[], Awaitable[list[Wanted]]]) -> None:
        super().__init__()
        self._session = session
        self._find = find

    async def _open(self) -> None:
        for wanted in await self._find():
            self._follower.follow(self._session, wanted)


class _Batches:
    """Entries as they come together; satisfies `Source`."""

    def __init__(self, following: _Following) -> None:
        self._following = following
        self.open = following.open
        self.close = following.close

    async def fetch(self) -> tuple[list[Entry]]:
        """Wait for the next batch."""
        return (await self._following.fetch(),)


class _Consuming(Reading):
    """Follows partitions from a consumer's positions, and saves these.

    Args:
        session: asks the node.
        stream: name of the stream.
        name: under which positions are saved.
        ledger: the consumer's.
        address: of a partition.
        partitions: which to follow.
        begin: finds out where those begin in which nothing is saved.
        terms: what holds for it.
    """

    def __init__(
        self,
        session: Session,
        stream: str,
        name: str,
        ledger: Ledger[Entry],
        terms: Terms,
        *,
        address: Callable[[int], bytes],
        partitions: Iterable[int],
        begin: _Starts,
    ) -> None:
        super().__init__(session, stream, name, ledger, terms)
        self._single = Single(session, stream, name, terms.created_at, self._follower.fail)
        self._address = address
        self._partitions = partitions
        self._begin = begin

    async def _open(self) -> None:
        self._consumers.add(self._finish)
        await self._single.join()
        loads = [self._load_position(partition) for partition in self._partitions]
        saved = dict(zip(self._partitions, await asyncio.gather(*loads), strict=True))
        begun = await self._begin([one for one, index in saved.items() if index is None])
        starts: dict[int, int] = {}
        for partition, index in saved.items():
            starts[partition] = begun[partition] if index is None else index
            self._ledger.assign(partition, starts[partition])
            self._saving.loaded(partition, index or 0)
        await self.save()  # a consumer that ends before its first entry goes on from there, too
        await self._find_ends()
        self._saving.every(self._save_seconds, self._follow_ends)
        for partition, index in starts.items():
            wanted = Wanted(self._address(partition), partition, index, self._created_at)
            self._follower.follow(self._session, wanted)

    async def _leave(self) -> None:
        await self._single.leave()

    async def _save_position(self, partition: int, index: int) -> None:
        request = native.SaveIndexRequest(
            self._session.next_id(), self._name, self._stream, partition, index, self._created_at
        )
        await self._session.request(b"stream_index", request, native.SavedIndexResponse)
