"""The topic actor: one topic's events on the common log, its heads, and who follows it.

A topic is a stream of one partition; each entry is an event, byte for byte. Which commit an event
brings, and which it comes after, stands in the log's secondary keys, so that heads and history are
found again without reading events. An event, its keys and its blocks are written at once.

An event is forwarded when it is durable, and only then is its publisher answered. One that is
there already is answered like the first time, and not forwarded again.
"""

import logging
from collections.abc import Container
from dataclasses import dataclass, field, replace
from typing import Final, cast

from rillnode.actors.nextgraph.context import BrokerContext, LodgerActor
from rillnode.actors.nextgraph.errands import Errand, Found, Steps
from rillnode.actors.nextgraph.history import History, commit_key, parse_commit_key
from rillnode.actors.nextgraph.publication import Publish
from rillnode.actors.nextgraph.reader import OneBlock, OneEvent, Plan, spawn_reader
from rillnode.actors.nextgraph.records import topic_stream
from rillnode.actors.nextgraph.session import Asked, Forwarded, Gone, Refusal, Session
from rillnode.actors.storage import (
    FindStream,
    ListKeys,
    Operation,
    PutStream,
    StreamRecord,
    key_after,
    log_id,
)
from rillnode.actors.streams.context import StreamRemoved
from rillnode.actors.streams.inside import AppendEntries, EntriesAppended
from rillnode.actors.streams.resolving import stream_cell
from rillnode.codecs.entries import EntryKind
from rillnode.codecs.errors import StoreError
from rillnode.codecs.nextgraph.client import ClientMessage
from rillnode.codecs.nextgraph.events import EVENT
from rillnode.codecs.nextgraph.messages import encode_message
from rillnode.codecs.nextgraph.requests import TopicSyncReq
from rillnode.codecs.nextgraph.responses import TopicSubRes
from rillnode.codecs.nextgraph.results import ResultCode
from rillnode.codecs.nextgraph.types import OverlayId

logger = logging.getLogger("rillnode.actors.nextgraph.topic")

PAGE_KEYS: Final = 1_000

FENCED_MAX: Final = 10
"""An event is tried again so often where other nodes write the same topic."""


@dataclass(slots=True, eq=False)
class Join(Errand):
    """Look at a topic, make it, follow it: as far as is asked.

    Attributes:
        topic: the topic.
        follower: who is to have its events; None: nobody.
        overlay: on which the follower has asked, and is to have them.
        creator: principal whose the topic will be if it is made; None: it is not made.
        found: result: whether there is such a topic now.
        heads: result: commits that no other comes after.
        commits: result: number of commits.
    """

    topic: bytes = b""
    follower: Session | None = None
    overlay: OverlayId | None = None
    creator: str | None = None
    found: bool = False
    heads: list[bytes] = field(default_factory=list[bytes])
    commits: int = 0

    def response(self, *, publisher: bool) -> TopicSubRes:
        """The result as a client gets it."""
        return TopicSubRes(self.topic, self.heads, publisher, self.commits)


@dataclass(frozen=True, slots=True)
class Unfollow:
    """A connection wants a topic's events on an overlay no longer."""

    session: Session
    overlay: OverlayId


@dataclass(frozen=True, slots=True)
class Sync:
    """Send what a client has not of a topic."""

    asked: Asked
    content: TopicSyncReq
    known: Container[bytes]


@dataclass(frozen=True, slots=True)
class SendCommit:
    """Send the blocks of a commit as its event has them, or else as they are stored."""

    asked: Asked
    commit: bytes


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
        # Each with the overlays that it follows the topic on: the inner, the outer, or both.
        self._followers: dict[Session, dict[OverlayId, None]] = {}
        self._publishing: dict[bytes, list[Publish]] = {}
        # Commits whose write has failed: if they are there after all, nobody was told.
        self._unsure: set[bytes] = set()

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

    def take(self, message: object) -> None:
        """Take requests, what the log has done, and the end of connections."""
        match message:
            case EntriesAppended():
                self._appended(message)
            case Gone(session=session):
                self._followers.pop(session, None)
            case Unfollow(session=session, overlay=overlay):
                self._unfollow(session, overlay)
            case StreamRemoved(record=record):
                if self._topic is not None and self._topic.record.id == record.id:
                    self._forget()
            case Join():
                self.in_order(self._join(message), message.fail)
            case Publish(asked=asked) | Sync(asked=asked) | SendCommit(asked=asked):
                self.answer_in_order(asked, self._with_topic(message))
            case Operation():
                self.complete(message)
            case _:
                pass

    # The topic -------------------------------------------------------------------------------

    def _look(self) -> Steps:
        """Find the topic and its history, if that has not been done."""
        while not self._looked:
            self._outdated = False
            find = FindStream(name=self._name)
            yield (find,)
            if find.record is not None:
                self._topic = _Topic(find.record, (yield from self._load(find.record)))
                if self._context.streams.quotas.enabled:
                    self._context.streams.quotas.found(find.record, find.extents)
            # An event that became durable meanwhile may not be among what was found.
            self._looked = not self._outdated

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
        except StoreError:
            streams.quotas.not_created(principal, name)
            raise
        self._topic = _Topic(put.record, History())
        self._context.stream_changed(put.record)

    def _forget(self) -> None:
        """The stream may be no more, or another than is known: what comes looks again."""
        self._topic, self._looked, self._outdated = None, False, True

    # Following -------------------------------------------------------------------------------

    def _join(self, join: Join) -> Steps:
        yield from self._look()
        if self._topic is None and join.creator is not None:
            yield from self._make(join.creator)
        if self._topic is not None:
            history = self._topic.history
            join.found, join.heads, join.commits = True, history.heads, len(history)
            follower, overlay = join.follower, join.overlay
            if follower is not None and overlay is not None and follower.attach(self.address):
                self._followers.setdefault(follower, {})[overlay] = None
        join.done()

    def _unfollow(self, session: Session, overlay: OverlayId) -> None:
        overlays = self._followers.get(session, {})
        overlays.pop(overlay, None)
        if not overlays:
            self._followers.pop(session, None)
            session.attached.discard(self.address)

    # Requests --------------------------------------------------------------------------------

    def _with_topic(self, message: Publish | Sync | SendCommit) -> Steps:
        yield from self._look()
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
            if publish.commit in self._unsure:
                self._unsure.discard(publish.commit)
                self._forward(publish)
            publish.asked.answer()
            return
        waiting = self._publishing.setdefault(publish.commit, [])
        waiting.append(publish)
        if len(waiting) > 1:
            return
        append = AppendEntries(
            self.address,
            publish.asked.session.principal,
            EntryKind.NEXTGRAPH,
            [EVENT.encode(publish.event)],
            keys=[(commit_key(publish.commit, publish.parents), 0)],
            records=publish.records,
            token=publish,
        )
        self.system.post(stream_cell(self._context.streams, self._name, 0), append)

    def _appended(self, appended: EntriesAppended) -> None:
        publish = cast(Publish, appended.request.token)
        waiting = self._publishing.pop(publish.commit)
        error = appended.error
        if error is not None:
            logger.info("event_not_stored", extra={"code": error.code, "stream": self._name})
            if isinstance(error, StoreError) or error.code == "stream.unknown":
                # It may have reached the disk all the same, or there is no stream any more.
                self._forget()
                self._unsure.add(publish.commit)
            for one in waiting:
                if error.code == "store.fenced" and one.fenced < FENCED_MAX:
                    self._publish_again(one)
                else:
                    one.asked.refuse(ResultCode.STORAGE_ERROR)
            return
        if self._topic is None:
            self._outdated = True
        elif publish.parents is not None:
            self._topic.history.add(publish.commit, publish.parents, appended.first_index)
        self._unsure.discard(publish.commit)
        self._forward(publish)
        for one in waiting:
            one.asked.answer()

    def _publish_again(self, publish: Publish) -> None:
        """Another node was first: look at what it has written, and decide anew."""
        again = replace(publish, fenced=publish.fenced + 1)
        self.answer_in_order(publish.asked, self._with_topic(again))

    def _forward(self, publish: Publish) -> int:
        """Encode the event once for each overlay that it is followed on, and send it to all.

        Returns:
            the bytes of what was encoded.
        """
        encoded: dict[OverlayId, Forwarded] = {}
        for session, overlays in self._followers.items():
            if session is publish.asked.session:
                continue
            for overlay in overlays:
                if overlay not in encoded:
                    message = ClientMessage(overlay, publish.event)
                    encoded[overlay] = Forwarded(encode_message(message))
                self.system.post(session.connection, encoded[overlay])
        return sum(len(one.plaintext) for one in encoded.values())

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
        items: list[OneEvent | OneBlock] = [OneBlock(message.commit, children=True)]
        if self._topic is not None and message.commit in self._topic.history:
            log = log_id(self._topic.record.id, 0)
            items = [self._item(self._topic.history, log, message.commit)]
        spawn_reader(
            self._context, Plan(message.asked, self._key[0], items, empty=ResultCode.NOT_FOUND)
        )

    def _item(self, history: History, log: int, commit: bytes) -> OneEvent | OneBlock:
        index = history.index(commit)
        if index is None:
            return OneBlock(commit, children=True)
        return OneEvent(log, index, commit)
