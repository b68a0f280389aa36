"""The overlay actor: one store's overlay, and what its users keep of the repos in it.

Everything of a store is kept under the id of its inner overlay, which only those know who may
write. Requests about one overlay are served in order, so that none sees half of what another does.
Where other nodes serve it, too, each request reads anew what is kept, and is served anew if one of
them changes that before it.
"""

from collections.abc import Container, Iterator, Mapping
from functools import partial
from typing import assert_never

from rillnode.actors.engine.cell import Cell
from rillnode.actors.nextgraph.context import BrokerContext, LodgerActor, Unused
from rillnode.actors.nextgraph.errands import Steps, anew
from rillnode.actors.nextgraph.outer import Expose
from rillnode.actors.nextgraph.publication import Publish, publication
from rillnode.actors.nextgraph.reader import OneBlock, Plan, spawn_reader
from rillnode.actors.nextgraph.records import (
    Overlay,
    Pin,
    Side,
    name_of,
    pack,
    side_of,
    unpack,
)
from rillnode.actors.nextgraph.repairs import Repaired
from rillnode.actors.nextgraph.repos import (
    NOTHING,
    OncePinned,
    check_reader,
    overlay_after,
    publishes,
    refuse_unknown,
    topics_of,
    with_topics,
)
from rillnode.actors.nextgraph.session import Asked, Gone, Refusal, Session
from rillnode.actors.nextgraph.topic_requests import Join, SendCommit, Sync, Unfollow
from rillnode.actors.storage import GetRecord, GetRecords, ListRecords, Operation, PutRecords
from rillnode.codecs.errors import CodecError
from rillnode.codecs.nextgraph.bloom import KnownDigests
from rillnode.codecs.nextgraph.events import Event
from rillnode.codecs.nextgraph.requests import (
    BlocksExist,
    BlocksGet,
    BlocksPut,
    CommitGet,
    InboxPost,
    InboxRegister,
    ObjectDel,
    ObjectPin,
    ObjectUnpin,
    OpenRepo,
    PinRepo,
    RepoPinStatusReq,
    TopicSub,
    TopicSyncReq,
    TopicUnsub,
    UnpinRepo,
    WalletPutExport,
)
from rillnode.codecs.nextgraph.responses import RepoOpened, RepoPinStatus
from rillnode.codecs.nextgraph.results import ResultCode
from rillnode.codecs.nextgraph.types import DIGEST_BYTES

RepoKey = tuple[Side, bytes]
"""A repo, and the side on which it is kept."""


class OverlayActor(LodgerActor[bytes]):
    """One inner overlay, and what is read of it on the outer one."""

    def __init__(self, context: BrokerContext, key: bytes) -> None:
        super().__init__(context, context.overlays, key)
        self._looked = False
        self._overlay: Overlay | None = None
        self._pins: dict[bytes, dict[RepoKey, Pin]] = {}
        self._opened: dict[Session, dict[RepoKey, Pin]] = {}
        # Of what was read for the request that is served, by name.
        self._versions: dict[str, int] = {}

    @property
    def unused(self) -> bool:
        """Whether nobody has pinned or opened anything of it."""
        return self._looked and self._overlay is None

    def may_passivate(self) -> bool:
        """Stay while repos are open."""
        return not self.busy and not self._opened

    def handle(
        self, message: Asked | Repaired | Gone | Unused | Operation, sender: Cell | None
    ) -> None:
        """Take requests, and the end of connections."""
        if self.passed_on(message, sender):
            return
        match message:
            case Asked():
                self.answer_in_order(message, anew(partial(self._serve, message)))
            case Repaired():
                self.in_order(self._forget(), lambda _: None)
            case Gone(session=session):
                self._opened.pop(session, None)
            case Unused():
                self.leave()
            case Operation():
                self.complete(message)
            case _:
                assert_never(message)

    # What there is ---------------------------------------------------------------------------

    def _look(self, user: bytes) -> Steps:
        """Read the overlay and what a user keeps of it, if what was read may be out of date."""
        shared = self._context.shared
        if not self._looked or shared:
            get = GetRecord(key=name_of("overlay", self._key))
            yield (get,)
            self._overlay = None if get.value is None else unpack(get.value, Overlay)
            self._looked = True
            self._versions = {get.key: get.version}
        if self._overlay is None:
            self.leave_later()
        if self._overlay is None or (user in self._pins and not shared):
            return
        pins: dict[RepoKey, Pin] = {}
        prefix, after = name_of("pin", self._key, user, ""), ""
        while True:
            listing = ListRecords(prefix=prefix, after=after)
            yield (listing,)
            for name, value in listing.records:
                side, repo = name.removeprefix(prefix).split("/")
                key: RepoKey = ("outer" if side == "outer" else "inner", bytes.fromhex(repo))
                pins[key] = unpack(value, Pin)
            names = (name for name, _ in listing.records)
            self._versions.update(zip(names, listing.versions, strict=False))
            if len(listing.records) < listing.limit:
                break
            after = listing.records[-1][0]
        self._pins[user] = pins

    def _forget(self) -> Steps:
        """Know nothing of what is stored: it is read again when it is needed."""
        self._looked, self._overlay = False, None
        self._pins.clear()
        yield ()

    def _kept(self, session: Session, key: RepoKey) -> Pin | None:
        """What a connection has of a repo, pinned or opened."""
        pinned = self._pins.get(session.user, {}).get(key)
        opened = self._opened.get(session, {}).get(key)
        if pinned is None or opened is None:
            return pinned or opened
        return Pin(
            expose_outer=pinned.expose_outer, topics=with_topics(pinned.topics, opened.topics)
        )

    def _kept_on(self, session: Session, *sides: Side) -> Iterator[Pin]:
        """All that a connection has of repos on these sides, pinned or opened."""
        for pins in (self._pins[session.user], self._opened.get(session, {})):
            for (side, _), pin in pins.items():
                if side in sides:
                    yield pin

    def _serve(self, asked: Asked) -> Steps:
        yield from self._look(asked.session.user)
        content = asked.content
        if self._overlay is None and not isinstance(content, PinRepo | OpenRepo):
            refuse_unknown(asked)
        if isinstance(content, OncePinned):
            # Who may write may read on the outer overlay as well.
            kept = self._kept_on(asked.session, "inner", side_of(asked.overlay))
            check_reader(asked, content, kept)
        match content:
            case PinRepo() | OpenRepo():
                yield from self._keep(asked, content)
            case UnpinRepo():
                yield from self._unpin(asked, content)
            case RepoPinStatusReq():
                yield from self._status(asked, content)
            case TopicSub():
                yield from self._subscribe(asked, content)
            case TopicUnsub():
                yield from self._unsubscribe(asked, content)
            case Event():
                self._publish(asked, content)
            case TopicSyncReq():
                self._sync(asked, content)
            case CommitGet():
                yield from self._get_commit(asked, content)
            case BlocksGet():
                yield from self._get_blocks(asked, content)
            case BlocksExist() | BlocksPut():
                self._to_blocks(asked)
            case ObjectPin() | ObjectUnpin() | ObjectDel():
                pinned = self._pins.get(asked.session.user, {})
                if not any(side == "inner" for side, _ in pinned):
                    raise Refusal(ResultCode.ACCESS_DENIED)
                self._to_blocks(asked)
            case WalletPutExport() | InboxRegister() | InboxPost():
                raise Refusal(ResultCode.INVALID_REQUEST)  # they concern no overlay
            case _:
                assert_never(content)

    def _to_blocks(self, asked: Asked) -> None:
        self.system.post(self._context.blocks.cell(self._key), asked, asked.session.connection)

    # Repos -----------------------------------------------------------------------------------

    def _keep(self, asked: Asked, request: PinRepo | OpenRepo) -> Steps:
        overlay = overlay_after(self._overlay, request)
        if overlay is None:
            raise Refusal(ResultCode.NOT_FOUND)
        session, key = asked.session, _repo(asked, request.hash)
        kept = self._kept(session, key) or NOTHING
        topics = with_topics(kept.topics, topics_of(request))
        exposes = isinstance(request, PinRepo) and request.expose_outer
        if exposes and overlay.outer is not None:
            yield (Expose(actor=self._context.outers.cell(overlay.outer), inner=self._key),)
        joins = self._joins(asked, topics, follow=True)
        yield joins
        topics = {join.topic: topics[join.topic] for join in joins if join.found}
        pin = Pin(expose_outer=kept.expose_outer or exposes, topics=topics)
        if isinstance(request, PinRepo):
            yield from self._put(overlay, session.user, key, pin)
        else:
            yield from self._put(overlay)
            if session.attach(self.address):
                self._opened.setdefault(session, {})[key] = pin
        found = [join for join in joins if join.found]
        asked.answer(RepoOpened([join.response(publisher=topics[join.topic]) for join in found]))

    def _unpin(self, asked: Asked, request: UnpinRepo) -> Steps:
        session, key = asked.session, _repo(asked, request.hash)
        kept = self._kept(session, key)
        if kept is None:
            raise Refusal(ResultCode.NOT_FOUND)
        yield from self._put(self._overlay, session.user, key, None)
        self._opened.get(session, {}).pop(key, None)
        for topic in kept.topics:
            self._unfollow(asked, topic)
        asked.answer()

    def _status(self, asked: Asked, request: RepoPinStatusReq) -> Steps:
        pin = self._pins[asked.session.user].get(_repo(asked, request.hash))
        if pin is None:
            raise Refusal(ResultCode.FALSE)
        joins = self._joins(asked, pin.topics, follow=False)
        yield joins
        topics = [join.response(publisher=pin.topics[join.topic]) for join in joins]
        asked.answer(RepoPinStatus(request.hash, pin.expose_outer, topics))

    def _put(
        self,
        overlay: Overlay | None,
        user: bytes = b"",
        key: RepoKey | None = None,
        pin: Pin | None = None,
    ) -> Steps:
        """Store what has changed: the overlay, and what a user keeps of a repo."""
        records: list[tuple[str, bytes | None]] = []
        if overlay is not None and overlay != self._overlay:
            records.append((name_of("overlay", self._key), pack(overlay)))
        pins = self._pins.setdefault(user, {}) if key is not None else {}
        if key is not None and pins.get(key) != pin:
            value = None if pin is None else pack(pin)
            records.append((name_of("pin", self._key, user, *key), value))
        if records:
            seen = [(name, self._versions.get(name, 0)) for name, _ in records]
            yield (PutRecords(records=records, seen=seen),)
        self._overlay = overlay
        if key is not None and pin is not None:
            pins[key] = pin
        elif key is not None:
            pins.pop(key, None)

    # Topics ----------------------------------------------------------------------------------

    def _joins(self, asked: Asked, topics: Mapping[bytes, bool], *, follow: bool) -> list[Join]:
        writes = side_of(asked.overlay) == "inner"
        return [
            Join(
                actor=self._context.topics.cell((self._key, topic)),
                topic=topic,
                follower=asked.session if follow else None,
                overlay=asked.overlay,
                creator=asked.session.principal if follow and writes else None,
            )
            for topic in topics
        ]

    def _subscribe(self, asked: Asked, request: TopicSub) -> Steps:
        session, key = asked.session, _repo(asked, request.repo_hash)
        kept = self._kept(session, key)
        if kept is None:
            raise Refusal(ResultCode.NOT_FOUND)
        more = {request.topic: request.publisher is not None}
        topics = with_topics(kept.topics, more)
        (join,) = self._joins(asked, more, follow=True)
        yield (join,)
        if not join.found:
            raise Refusal(ResultCode.TOPIC_NOT_FOUND)
        yield from self._change(session, key, more, None)
        asked.answer(join.response(publisher=topics[request.topic]))

    def _unsubscribe(self, asked: Asked, request: TopicUnsub) -> Steps:
        session, key = asked.session, _repo(asked, request.repo_hash)
        kept = self._kept(session, key)
        if kept is None or request.topic not in kept.topics:
            raise Refusal(ResultCode.SUBSCRIPTION_NOT_FOUND)
        yield from self._change(session, key, {}, request.topic)
        self._unfollow(asked, request.topic)
        asked.answer()

    def _change(
        self, session: Session, key: RepoKey, more: Mapping[bytes, bool], less: bytes | None
    ) -> Steps:
        """Add topics to what is kept of a repo, or take one away, wherever it is kept."""

        def changed(pin: Pin) -> Pin:
            topics = with_topics(pin.topics, more)
            if less is not None:
                topics.pop(less, None)
            return Pin(expose_outer=pin.expose_outer, topics=topics)

        opened = self._opened.get(session, {})
        if key in opened:
            opened[key] = changed(opened[key])
        pinned = self._pins[session.user].get(key)
        if pinned is not None:
            yield from self._put(self._overlay, session.user, key, changed(pinned))

    def _unfollow(self, asked: Asked, topic: bytes) -> None:
        cell = self._context.topics.find((self._key, topic))
        if cell is not None:
            self.system.post(cell, Unfollow(asked.session, asked.overlay))

    def _to_topic(self, topic: bytes, message: Publish | Sync | SendCommit) -> None:
        cell = self._context.topics.cell((self._key, topic))
        self.system.post(cell, message, message.asked.session.connection)

    def _sync(self, asked: Asked, request: TopicSyncReq) -> None:
        try:
            known: Container[bytes] = ()
            if request.known_commits is not None:
                known = KnownDigests(request.known_commits)
        except CodecError:
            raise Refusal(ResultCode.INVALID_REQUEST) from None
        self._to_topic(request.topic, Sync(asked, request, known))

    def _look_at(self, asked: Asked, topic: bytes | None) -> Steps:
        """Know the topic that a request names as its log is now, with what others have written."""
        if topic is not None:
            (join,) = self._joins(asked, {topic: False}, follow=False)
            yield (join,)
            if not join.found:
                raise Refusal(ResultCode.TOPIC_NOT_FOUND)

    def _get_blocks(self, asked: Asked, request: BlocksGet) -> Steps:
        yield from self._look_at(asked, request.topic)
        items = [OneBlock(one, request.include_children) for one in request.ids]
        spawn_reader(self._context, Plan(asked, self._key, items, empty=ResultCode.NOT_FOUND))

    def _get_commit(self, asked: Asked, request: CommitGet) -> Steps:
        """Find out which topics' events may have brought the commit; its blocks are sent there."""
        yield from self._look_at(asked, request.topic)
        get = GetRecords(keys=[name_of("published", self._key, request.id)])
        yield (get,)
        (value,) = get.values
        last = None if value is None else value[:DIGEST_BYTES]
        topics = [one for one in dict.fromkeys((request.topic, last)) if one is not None]
        if topics:
            first, *others = topics
            self._to_topic(first, SendCommit(asked, request.id, others))
            return
        items = [OneBlock(request.id, children=True)]
        spawn_reader(self._context, Plan(asked, self._key, items, empty=ResultCode.NOT_FOUND))

    def _publish(self, asked: Asked, event: Event) -> None:
        topic = event.content.topic
        allowed = publishes(self._kept_on(asked.session, "inner"), topic)
        self._to_topic(topic, publication(asked, self._key, event, allowed=allowed))


def _repo(asked: Asked, repo: bytes) -> RepoKey:
    return side_of(asked.overlay), repo
