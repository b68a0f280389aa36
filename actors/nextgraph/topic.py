"""The topic actor: one topic's events on the common log, its heads, and who follows it.

A topic is a stream of one partition; each entry is an event, byte for byte. Which commit an event
brings, and which it comes after, stands in the log's secondary keys, so that heads and history are
found again without reading events. An event, its keys and its blocks are written at once.

An event is forwarded when it is durable, and only then is its publisher answered. One that is
there already is answered like the first time, and not forwarded again. What the log holds that did
not come through this actor, of other nodes or of a write that failed, it reads there: followers
get all events in the order of the log, each once.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Final, assert_never

from thespian.actors import ActorAddress

from rillnode.actors.core.streams.appending import Appends, Insertion
from rillnode.actors.core.streams.context import (
    STREAM_CHANGES_MAX,
    StreamRemoved,
    stream_address,
)
from rillnode.actors.core.streams.followers import Grown, Removed
from rillnode.actors.engine.system import Cell
from rillnode.actors.log import (
    FindStream,
    ListKeys,
    PutStream,
    Read,
    StreamRecord,
    key_after,
    log_id,
)
from rillnode.actors.nextgraph.actor import FENCED, FENCED_MAX, LodgerActor, Unused
from rillnode.actors.nextgraph.context import BrokerContext, TopicKey
from rillnode.actors.nextgraph.followers import Appended, Feed
from rillnode.actors.nextgraph.history import History, commit_key, parse_commit_key
from rillnode.actors.nextgraph.names import topic_stream
from rillnode.actors.nextgraph.publication import Publish, stored_event
from rillnode.actors.nextgraph.reader import OneBlock, OneEvent, Plan, spawn_reader
from rillnode.actors.nextgraph.repairs import Repaired
from rillnode.actors.nextgraph.session import Gone, Refusal, Session
from rillnode.actors.nextgraph.topic_requests import (
    Again,
    Join,
    Joined,
    SendCommit,
    Sync,
    Unfollow,
)
from rillnode.codecs.entries import Entry, EntryKind, entries_of
from rillnode.codecs.errors import CodecError, RequestError, RillnodeError, StoreError
from rillnode.codecs.events import event_logger
from rillnode.codecs.limits import CONNECTIONS_MAX
from rillnode.codecs.nextgraph.client import STORED_BEFORE
from rillnode.codecs.nextgraph.events import Event
from rillnode.codecs.nextgraph.results import ResultCode
from rillnode.codecs.nextgraph.types import OverlayId

logger = event_logger("rillnode.actors.nextgraph.topic")

PAGE_KEYS: Final = 1_000

READ_BYTES: Final = 65_536
"""Bytes of events that are looked into in one turn."""

RETRY_SECONDS: Final = 1.0
"""Pause after the log could not be read."""

Message = (
    Join
    | Publish
    | Sync
    | SendCommit
    | Unfollow
    | Gone
    | Appended
    | Grown
    | Removed
    | StreamRemoved
    | Repaired
    | Again
    | Unused
)


@dataclass(slots=True)
class _Topic:
    """What is known of a topic that there is."""

    record: StreamRecord
    history: History
    appends: Appends


class TopicActor(LodgerActor[TopicKey]):
    """One topic of one overlay.

    A new instance reads again what the log holds. It takes over the feed of the one before it: who
    follows does not say so again, and what was handed to the log is answered whatever fails here.
    """

    spare: ClassVar = {
        Gone: CONNECTIONS_MAX,
        Unfollow: CONNECTIONS_MAX,
        StreamRemoved: STREAM_CHANGES_MAX,
        Removed: 1,
    }
    batches: ClassVar = {"_forward": "deliver"}

    def __init__(self, context: BrokerContext, key: TopicKey) -> None:
        super().__init__(context, context.topics, key)
        self._name = topic_stream(*key)
        self._topic: _Topic | None = None
        self._looked = False
        # Whether nobody else makes the topic, or appends to its log.
        self._lasts = True
        self._feed = context.feeds.pop(key) if key in context.feeds else Feed()
        # What was in the log when it was looked for.
        self._end = 0

    def started(self) -> None:
        """Go on with the feed of an instance before this one."""
        for session in tuple(self._feed.followers):
            if not session.attach(self.address):
                self._feed.followers.remove(session)
        if self._feed.in_use:
            self.send(self.address, Again())

    def stopped(self) -> None:
        """Leave the feed to the instance that comes after this one."""
        if self._feed.in_use:
            self._context.feeds[self._key] = self._feed

    def followed_by(self, session: Session) -> str:
        """The topic's stream, where a client follows it."""
        return self._name if session in self._feed.followers else ""

    @property
    def unused(self) -> bool:
        """Whether there is no such topic."""
        return self._looked and self._topic is None and not self._feed.in_use

    def may_passivate(self) -> bool:
        """Stay while somebody follows, or waits for an event to be stored."""
        return not self._feed.in_use

    async def handle(self, message: Message, sender: ActorAddress | None) -> None:
        """Take requests, what the log has done, and the end of connections."""
        if self.passed_on(message, sender):
            return
        match message:
            case Publish() | Sync() | SendCommit():
                await self.carry_out(message.asked, self._with_topic(message))
            case Appended():
                await self._appended(message)
            case Join():
                await self.reply(sender, self._join(message))
            case Grown(next_index=end):
                if end > self._feed.told:
                    await self._advance()
            case Repaired():
                self._forget()
                await self._advance()
            case Again():
                self._follow()
                await self._advance()
            case Gone(session=session):
                self._leave(session)
            case Unfollow(session=session, overlay=overlay):
                self._unfollow(session, overlay)
            case StreamRemoved(record=record):
                if self._topic is not None and self._topic.record.id == record.id:
                    self._forget()
            case Removed(log=log):
                if log == self._feed.log:
                    self._forget()
                    self.wake_after(RETRY_SECONDS, Again())
            case Unused():
                self.leave()
            case _:
                assert_never(message)

    # The topic -------------------------------------------------------------------------------

    async def _look(self) -> None:
        """Find the topic and its history, if that has not been done."""
        if not self._looked or (self._topic is None and not self._lasts):
            find = FindStream(name=self._name)
            await self.read(find)
            self._lasts = find.lasts
            if find.record is not None:
                self._begin(find.record, await self._load(find.record), find.extents[0].next_index)
                if self._context.streams.quotas.enabled:
                    self._context.streams.quotas.found(find.record, find.extents)
            self._looked = True
        if self._topic is None:
            self.leave_later()

    async def _load(self, record: StreamRecord) -> History:
        commits: list[tuple[int, bytes]] = []
        listing = ListKeys(log=log_id(record.id, 0), limit=PAGE_KEYS)
        while True:
            await self.read(listing)
            commits += [(index, key) for key, index in listing.pairs]
            if len(listing.pairs) < PAGE_KEYS:
                break
            start = key_after(*listing.pairs[-1])
            listing = ListKeys(log=listing.log, start=start, limit=PAGE_KEYS)
        history = History()
        for index, key in sorted(commits):
            history.add(*parse_commit_key(key), index)
        return history

    async def _make(self, principal: str) -> None:
        streams, name = self._context.streams, self._name
        if not streams.quotas.admit_stream(principal, name):
            self._context.counters["quota.streams"] += 1
            raise Refusal(ResultCode.ACCESS_DENIED)
        record = StreamRecord(
            name=name,
            created_at=streams.removals.created_at(name, streams.clock.now_ms()),
            owner=principal,
            retention=self._context.rules.find(name).retention,
            require_signed=True,
        )
        put = PutStream(record=record)
        try:
            await self.write(put)
        except StoreError as error:
            streams.quotas.not_created(principal, name)
            if error.code != "store.exists":
                raise
            await self._look()  # another node was first
            return
        self._begin(put.record, History(), 0)
        self._context.stream_changed(put.record)

    def _begin(self, record: StreamRecord, history: History, end: int) -> None:
        """Resume followers at their position; start over if the log was replaced."""
        log = log_id(record.id, 0)
        address = stream_address(self._name, 0)
        appends = Appends(self._context.streams, address, log, record.owner)
        self._topic = _Topic(record, history, appends)
        if log != self._feed.log:
            self._context.streams.followers.remove(self._feed.log, self.address)
        self._feed.begin(log, end)
        self._end = end
        self._follow()

    def _forget(self) -> None:
        """The stream may be no more, or another than is known: what comes looks again."""
        self._topic, self._looked = None, False

    # Following -------------------------------------------------------------------------------

    async def _join(self, join: Join) -> Joined | None:
        await self._know()
        if self._topic is None and join.creator is not None:
            await self._make(join.creator)
        if self._topic is None:
            return None
        follower = join.follower
        if follower is not None and follower.attach(self.address):
            self._feed.followers.add(follower, join.overlay)
            self._follow()
            await self._advance()  # what came before the log was followed
        history = self._topic.history
        return Joined(history.heads, len(history))

    def _unfollow(self, session: Session, overlay: OverlayId) -> None:
        if self._feed.followers.leave(session, overlay):
            self._leave(session)
            session.attached.discard(self.address)

    def _leave(self, session: Session) -> None:
        followers = self._feed.followers
        if followers.remove(session) and not followers:
            self._context.streams.followers.remove(self._feed.log, self.address)

    def _follow(self) -> None:
        """Hear of what others append, where they do, while somebody here follows."""
        if self._topic is not None and self._feed.followers and not self._lasts:
            self._context.streams.followers.add(self._feed.log, self.address)

    # What the log holds ----------------------------------------------------------------------

    async def _know(self, publish: Publish | None = None) -> None:
        """Know the topic as its log is now, and forward what is new; `publish` is on its way."""
        await self._look()
        feed = self._feed
        while self._topic is not None and (feed.told < self._end or not self._lasts):
            read = Read(log=feed.log, index=feed.told, bytes_max=READ_BYTES)
            await self.read(read)
            feed.told = max(feed.told, read.extent.first_index)
            for block in read.blocks:
                for entry in entries_of(block, first=feed.told):
                    self._found_entry(entry, publish)
            if feed.told >= read.extent.next_index:
                break

    async def _advance(self) -> None:
        """Forward what is in the log and did not come through here."""
        try:
            await self._know()
        except RillnodeError as error:
            logger.warning("log_not_read", extra={"code": error.code, "stream": self._name})
            self.wake_after(RETRY_SECONDS, Again())

    def _found_entry(self, entry: Entry, publish: Publish | None) -> None:
        """Take the next entry of the log; `publish` is on its way."""
        feed = self._feed
        feed.told = entry.index + 1
        own = feed.ahead.pop(entry.index, None)
        try:
            event, commit, parents = stored_event(entry)
        except CodecError as error:
            logger.warning("no_event", extra={"stream": self._name, "code": error.code})
            return
        history = self._found().history
        history.add(commit, parents, entry.index)
        if history.index(commit) != entry.index:
            return  # it stands before, too
        # What is published here is read before the store has confirmed it, or after it was fenced.
        for one in (publish, *feed.publishing.get(commit, ())[:1]):
            if one is not None and one.commit == commit:
                own = own or one
        self._forward(event, None if own is None else own.asked.session)

    def batch_of(self) -> tuple[str, int]:
        """The topic's stream."""
        return self._name, 0

    def _forward(self, event: Event, publisher: Session | None) -> tuple[int, int] | None:
        size = self._feed.followers.forward(event, publisher)
        return (1, size) if size else None

    # Requests --------------------------------------------------------------------------------

    async def _with_topic(self, message: Publish | Sync | SendCommit) -> None:
        await self._know(message if isinstance(message, Publish) else None)
        match message:
            case Publish():
                self._publish(message)
            case Sync():
                self._sync(message)
            case SendCommit():
                self._send_commit(message)

    def _found(self) -> _Topic:
        if self._topic is None:
            raise Refusal(ResultCode.TOPIC_NOT_FOUND)
        return self._topic

    def _publish(self, publish: Publish) -> None:
        topic = self._found()
        if not publish.allowed:
            raise Refusal(ResultCode.ACCESS_DENIED)
        if publish.parents is None:
            raise Refusal(ResultCode.INVALID_HEADER)
        if publish.commit in topic.history:
            publish.asked.answer(padding=STORED_BEFORE)
            return
        if not self._feed.wait(publish):
            return
        # Whichever instance there is by then: events are not forgotten with this one.
        tell = partial(_tell, self.address, self._feed, publish)
        entries = Insertion(
            publish.asked.session.principal,
            EntryKind.NEXTGRAPH,
            [publish.asked.stored],
            keys=[(commit_key(publish.commit, publish.parents), 0)],
            records=publish.records,
            seen=self._feed.told,
        )
        topic.appends.insert(self, entries, tell, tell)

    async def _appended(self, appended: Appended) -> None:
        publish = appended.publish
        if appended.error is not None:
            self._not_stored(publish, appended.error)
            return
        await self._stored(publish, appended.index)
        for one in self._feed.settle(publish):
            one.asked.answer(padding=b"" if one is publish else STORED_BEFORE)

    def _not_stored(self, publish: Publish, error: RillnodeError) -> None:
        logger.info("event_not_stored", extra={"code": error.code, "stream": self._name})
        fenced = error.code == FENCED
        if not fenced and not isinstance(error, RequestError):
            # It may have reached the disk all the same, or there is no stream any more.
            self._forget()
        for one in self._feed.settle(publish):
            if fenced and one.fenced < FENCED_MAX:
                # Another node was first: look at what it has written, and decide anew.
                self.system.post(self.address, replace(one, fenced=one.fenced + 1))
            else:
                one.asked.fail(error)

    async def _stored(self, publish: Publish, index: int) -> None:
        """Forward an event that is durable, be it behind those of others."""
        feed = self._feed
        if index == feed.told:
            feed.told += 1
            if self._topic is not None and publish.parents is not None:
                self._topic.history.add(publish.commit, publish.parents, index)
            self._forward(publish.event, publish.asked.session)
        elif index > feed.told:
            feed.ahead[index], self._end = publish, max(self._end, index + 1)
            await self._advance()

    def _sync(self, sync: Sync) -> None:
        topic = self._found()
        history, content = topic.history, sync.content
        targets = content.target_heads or history.heads
        if not targets:
            raise Refusal(ResultCode.TOPIC_NOT_FOUND)
        missing = history.missing(content.known_heads, targets, sync.known)
        log = log_id(topic.record.id, 0)
        items = [self._item(history, log, commit) for commit in missing]
        empty = ResultCode.EMPTY_STREAM
        plan = Plan(sync.asked, self._key[0], items, empty=empty, synchronizes=True)
        spawn_reader(self._context, plan)

    def _send_commit(self, message: SendCommit) -> None:
        overlay, _ = self._key
        items: list[OneEvent | OneBlock] = [OneBlock(message.commit, children=True)]
        if self._topic is not None and message.commit in self._topic.history:
            log = log_id(self._topic.record.id, 0)
            items = [self._item(self._topic.history, log, message.commit)]
        elif message.others:
            first, *others = message.others
            there = self._context.topics.cell((overlay, first))
            self.system.post(there, replace(message, others=others))
            return
        plan = Plan(message.asked, overlay, items, empty=ResultCode.NOT_FOUND)
        spawn_reader(self._context, plan)

    def _item(self, history: History, log: int, commit: bytes) -> OneEvent | OneBlock:
        index = history.index(commit)
        if index is None:
            return OneBlock(commit, children=True)
        return OneEvent(log, index, commit)


def _tell(
    topic: Cell, feed: Feed, publish: Publish, index: int, error: RillnodeError | None
) -> None:
    # From nobody: what an actor sends itself goes with its instance.
    topic.base.post(topic, Appended(feed, publish, index, error))
