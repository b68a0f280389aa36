"""The topic actor: one topic's events on the common log, its heads, and who follows it.

A topic is a stream of one partition; each entry is an event, byte for byte. Which commit an event
brings, and which it comes after, stands in the log's secondary keys, so that heads and history are
found again without reading events. An event, its keys and its blocks are written at once.

An event is forwarded when it is durable, and only then is its publisher answered. One that is
there already is answered like the first time, and not forwarded again. What the log holds that did
not come through this actor, of other nodes or of a write that failed, it reads there: followers
get all events in the order of the log, each once.
"""

import logging
from dataclasses import dataclass, replace
from typing import Final, assert_never, cast

from rillnode.actors.engine.system import Cell
from rillnode.actors.nextgraph.context import BrokerContext, LodgerActor, Unused
from rillnode.actors.nextgraph.errands import FENCED, FENCED_MAX, Found, Steps
from rillnode.actors.nextgraph.followers import Followers
from rillnode.actors.nextgraph.history import History, commit_key, parse_commit_key
from rillnode.actors.nextgraph.publication import Publish, stored_event
from rillnode.actors.nextgraph.reader import OneBlock, OneEvent, Plan, spawn_reader
from rillnode.actors.nextgraph.records import topic_stream
from rillnode.actors.nextgraph.repairs import Repaired
from rillnode.actors.nextgraph.session import Gone, Refusal, Session
from rillnode.actors.nextgraph.topic_requests import Again, Join, SendCommit, Sync, Unfollow
from rillnode.actors.storage import (
    FindStream,
    ListKeys,
    Operation,
    PutStream,
    Read,
    StreamRecord,
    key_after,
    log_id,
)
from rillnode.actors.streams.context import StreamRemoved
from rillnode.actors.streams.inside import AppendEntries, EntriesAppended, Follow, Following
from rillnode.actors.streams.resolving import stream_cell
from rillnode.actors.streams.subscription import Grown, Removed, Unsubscribed
from rillnode.codecs.entries import Entry, EntryKind, entries_of
from rillnode.codecs.errors import CodecError, StoreError
from rillnode.codecs.nextgraph.client import STORED_BEFORE
from rillnode.codecs.nextgraph.events import EVENT, Event
from rillnode.codecs.nextgraph.results import ResultCode
from rillnode.codecs.nextgraph.types import OverlayId

logger = logging.getLogger("rillnode.actors.nextgraph.topic")

PAGE_KEYS: Final = 1_000

UNKNOWN: Final = -1
"""Stands for the log until the stream is found."""

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
    | EntriesAppended
    | Following
    | Grown
    | Removed
    | StreamRemoved
    | Repaired
    | Again
    | Unused
    | Operation
)


@dataclass(slots=True)
class _Topic:
    """What is known of a topic that there is."""

    record: StreamRecord
    history: History


class TopicActor(LodgerActor[tuple[bytes, bytes]]):
    """One topic of one overlay."""

    def __init__(self, context: BrokerContext, key: tuple[bytes, bytes]) -> None:
        super().__init__(context, context.topics, key)
        self._name = topic_stream(*key)
        self._topic: _Topic | None = None
        self._looked = False
        self._outdated = False
        self._followers = Followers()
        self._publishing: dict[bytes, list[Publish]] = {}
        # Of the stream that was found last: the followers have all events below `told`, and
        # those from there up to `end` were in the log when it was looked for.
        self._log: int = UNKNOWN
        self._told = self._end = 0
        # What was published here and stands behind others' events, by index.
        self._ahead: dict[int, Publish] = {}
        self._advancing = False

    @property
    def busy(self) -> bool:
        """Whether anything is under way."""
        return super().busy or bool(self._publishing)

    @property
    def unused(self) -> bool:
        """Whether there is no such topic."""
        return self._looked and self._topic is None

    def may_passivate(self) -> bool:
        """Stay while somebody follows."""
        return not self.busy and not self._followers

    def handle(self, message: Message, sender: Cell | None) -> None:
        """Take requests, what the log has done, and the end of connections."""
        if self.passed_on(message, sender):
            return
        match message:
            case EntriesAppended():
                self._appended(message)
            case Grown(next_index=end):
                if end > self._told:
                    self._advance()
            case Following():
                self._advance()
            case Repaired():
                self._forget()
                self._advance()
            case Again():
                self._follow()
                self._advance()
            case Gone(session=session):
                self._leave(session)
            case Unfollow(session=session, overlay=overlay):
                self._unfollow(session, overlay)
            case StreamRemoved(record=record):
                if self._topic is not None and self._topic.record.id == record.id:
                    self._forget()
            case Removed():
                self.wake_after(RETRY_SECONDS, Again())
            case Join():
                self.in_order(self._join(message), message.fail)
            case Publish(asked=asked) | Sync(asked=asked) | SendCommit(asked=asked):
                self.answer_in_order(asked, self._with_topic(message))
            case Unused():
                self.leave()
            case Operation():
                self.complete(message)
            case _:
                assert_never(message)

    # The topic -------------------------------------------------------------------------------

    def _look(self) -> Steps:
        """Find the topic and its history, if that has not been done."""
        if self._looked and not (self._context.shared and self._topic is None):
            self._leave_if_none()
            return
        self._looked = False
        while not self._looked:
            self._outdated = False
            find = FindStream(name=self._name)
            yield (find,)
            if find.record is not None:
                self._topic = _Topic(find.record, (yield from self._load(find.record)))
                self._begin(find.record, find.extents[0].next_index)
                if self._context.streams.quotas.enabled:
                    self._context.streams.quotas.found(find.record, find.extents)
            # An event that became durable meanwhile may not be among what was found.
            self._looked = not self._outdated
        self._leave_if_none()

    def _leave_if_none(self) -> None:
        if self._topic is None:
            self.leave_later()

    def _load(self, record: StreamRecord) -> Found[History]:
        commits: list[tuple[int, bytes]] = []
        listing = ListKeys(log=log_id(record.id, 0), limit=PAGE_KEYS)
        while True:
            yield (listing,)
            commits += [(index, key) for key, index in listing.pairs]
            if len(listing.pairs) < PAGE_KEYS:
                break
            start = key_after(*listing.pairs[-1])
            listing = ListKeys(log=listing.log, start=start, limit=PAGE_KEYS)
        history = History()
        for index, key in sorted(commits):
            history.add(*parse_commit_key(key), index)
        return history

    def _make(self, principal: str) -> Steps:
        streams, name = self._context.streams, self._name
        if not streams.quotas.admit_stream(principal, name):
            self._context.counters["quota.streams"] += 1
            raise Refusal(ResultCode.ACCESS_DENIED)
        record = StreamRecord(
            name=name,
            created_at=streams.clock.now_ms(),
            owner=principal,
            retention=self._context.rules.find(name).retention,
            require_signed=True,
        )
        put = PutStream(record=record)
        try:
            yield (put,)
        except StoreError as error:
            streams.quotas.not_created(principal, name)
            if error.code != "store.exists":
                raise
            yield from self._look()  # another node was first
            return
        self._topic = _Topic(put.record, History())
        self._begin(put.record, 0)
        self._context.stream_changed(put.record)

    def _begin(self, record: StreamRecord, end: int) -> None:
        """Go on where followers are in a log; of another one they have nothing."""
        log = log_id(record.id, 0)
        if log != self._log:
            self._log, self._told = log, 0 if self._followers else end
            self._ahead.clear()
        self._end = end
        self._follow()

    def _forget(self) -> None:
        """The stream may be no more, or another than is known: what comes looks again."""
        self._topic, self._looked, self._outdated = None, False, True

    # Following -------------------------------------------------------------------------------

    def _join(self, join: Join) -> Steps:
        yield from self._know()
        if self._topic is None and join.creator is not None:
            yield from self._make(join.creator)
        if self._topic is not None:
            history = self._topic.history
            join.found, join.heads, join.commits = True, history.heads, len(history)
            follower, overlay = join.follower, join.overlay
            if follower is not None and overlay is not None and follower.attach(self.address):
                self._followers.add(follower, overlay)
                self._follow()
        join.done()

    def _unfollow(self, session: Session, overlay: OverlayId) -> None:
        if self._followers.leave(session, overlay):
            self._leave(session)
            session.attached.discard(self.address)

    def _leave(self, session: Session) -> None:
        if self._followers.remove(session) and not self._followers and self._context.shared:
            self.system.post(self._stream(), Unsubscribed(self.address))

    def _follow(self) -> None:
        """Hear of what other nodes append, while somebody here follows."""
        if self._topic is not None and self._followers and self._context.shared:
            self.system.post(self._stream(), Follow(self.address))

    def _stream(self) -> Cell:
        return stream_cell(self._context.streams, self._name, 0)

    # What the log holds ----------------------------------------------------------------------

    def _know(self, publish: Publish | None = None) -> Steps:
        """Know the topic as its log is now, and forward what is new; `publish` is on its way."""
        yield from self._look()
        while (topic := self._topic) and (self._context.shared or self._told < self._end):
            read = Read(log=self._log, index=self._told, bytes_max=READ_BYTES)
            yield (read,)
            if topic is not self._topic:
                yield from self._look()  # forgotten meanwhile, but there perhaps
                continue
            self._told = max(self._told, read.extent.first_index)
            for block in read.blocks:
                for entry in entries_of(block, first=self._told):
                    self._found_entry(entry, publish)
            if self._told >= read.extent.next_index:
                break

    def _advance(self) -> None:
        """Forward what is in the log and did not come through here."""
        if not self._advancing:
            self._advancing = True
            self.in_order(self._advanced(), self._retry)

    def _advanced(self) -> Steps:
        self._advancing = False
        yield from self._know()

    def _retry(self, _: ResultCode) -> None:
        self.wake_after(RETRY_SECONDS, Again())

    def _found_entry(self, entry: Entry, publish: Publish | None) -> None:
        """Take the next entry of the log; `publish` is on its way."""
        self._told = entry.index + 1
        own = self._ahead.pop(entry.index, None)
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
        for one in (publish, *self._publishing.get(commit, ())[:1]):
            if one is not None and one.commit == commit:
                own = own or one
        self._forward(event, None if own is None else own.asked.session)

    def _forward(self, event: Event, publisher: Session | None) -> int:
        return self._followers.forward(event, publisher)

    # Requests --------------------------------------------------------------------------------

    def _with_topic(self, message: Publish | Sync | SendCommit) -> Steps:
        yield from self._know(message if isinstance(message, Publish) else None)
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
        waiting = self._publishing.setdefault(publish.commit, [])
        waiting.append(publish)
        if len(waiting) > 1:
            return
        append = AppendEntries(
            self.address,
            publish.asked.session.principal,
            self._log,
            EntryKind.NEXTGRAPH,
            [EVENT.encode(publish.event)],
            keys=[(commit_key(publish.commit, publish.parents), 0)],
            records=publish.records,
            seen=self._told,
            token=publish,
        )
        self.system.post(self._stream(), append)

    def _appended(self, appended: EntriesAppended) -> None:
        publish = cast(Publish, appended.request.token)
        waiting = self._publishing.pop(publish.commit)
        error = appended.error
        if error is not None:
            logger.info("event_not_stored", extra={"code": error.code, "stream": self._name})
            fenced = error.code == FENCED
            if not fenced and (isinstance(error, StoreError) or error.code == "stream.unknown"):
                # It may have reached the disk all the same, or there is no stream any more.
                self._forget()
            for one in waiting:
                if fenced and one.fenced < FENCED_MAX:
                    self._publish_again(one)
                else:
                    one.asked.refuse(ResultCode.STORAGE_ERROR)
            return
        self._stored(publish, appended.first_index)
        for one in waiting:
            one.asked.answer(padding=b"" if one is publish else STORED_BEFORE)

    def _stored(self, publish: Publish, index: int) -> None:
        """Forward an event that is durable, be it behind those of others."""
        if self._topic is None:
            self._outdated = True
        if index == self._told:
            self._told += 1
            if self._topic is not None and publish.parents is not None:
                self._topic.history.add(publish.commit, publish.parents, index)
            self._forward(publish.event, publish.asked.session)
        elif index > self._told:
            self._ahead[index], self._end = publish, max(self._end, index + 1)
            self._advance()

    def _publish_again(self, publish: Publish) -> None:
        """Another node was first: look at what it has written, and decide anew."""
        again = replace(publish, fenced=publish.fenced + 1)
        self.answer_in_order(publish.asked, self._with_topic(again))

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
            self.system.post(
                there, replace(message, others=others), message.asked.session.connection
            )
            return
        plan = Plan(message.asked, overlay, items, empty=ResultCode.NOT_FOUND)
        spawn_reader(self._context, plan)

    def _item(self, history: History, log: int, commit: bytes) -> OneEvent | OneBlock:
        index = history.index(commit)
        if index is None:
            return OneBlock(commit, children=True)
        return OneEvent(log, index, commit)
