"""The overlay actor: one store's overlay, and what its users keep of the repos in it.

Everything of a store is kept under the id of its inner overlay, which only those know who may
write. Requests about one overlay are served in order, so that none sees half of what another does.
Where other nodes serve it, too, each request reads anew what is kept, and is served anew if one of
them changes that before it.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from functools import partial
from typing import assert_never

from thespian.actors import ActorAddress

from rillnode.actors.log import GetRecord, GetRecords, ListRecords, PutRecords
from rillnode.actors.nextgraph.actor import LodgerActor, Unused, anew
from rillnode.actors.nextgraph.context import BrokerContext
from rillnode.actors.nextgraph.outer import Expose
from rillnode.actors.nextgraph.publication import Publish, publication
from rillnode.actors.nextgraph.reader import OneBlock, Plan, spawn_reader
from rillnode.actors.nextgraph.records import (
    Overlay,
    Pin,
    RepoKey,
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
from rillnode.actors.nextgraph.session import Asked, Refusal, Session
from rillnode.actors.nextgraph.topic_requests import Join, Joined, SendCommit, Sync, Unfollow
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
from rillnode.codecs.nextgraph.responses import RepoOpened, RepoPinStatus, TopicSubRes
from rillnode.codecs.nextgraph.results import ResultCode
from rillnode.codecs.nextgraph.types import DIGEST_BYTES


class OverlayActor(LodgerActor[bytes]):
    """One inner overlay, and what is read of it on the outer one."""

    def __init__(self, context: BrokerContext, key: bytes) -> None:
        super().__init__(context, context.overlays, key)
        self._looked = False
        self._lasts = True
        self._overlay: Overlay | None = None
        self._pins: dict[bytes, dict[RepoKey, Pin]] = {}
        # Of what was read for the request that is served, by name.
        self._versions: dict[str, int] = {}

    @property
    def unused(self) -> bool:
        """Whether nobody has pinned or opened anything of it."""
        return self._looked and self._overlay is None

    async def handle(self, message: Asked | Repaired | Unused, sender: ActorAddress | None) -> None:
        """Take requests."""
        if self.passed_on(message, sender):
            return
        match message:
            case Asked():
                await self.carry_out(message, anew(partial(self._serve, message)))
            case Repaired():
                self._looked, self._overlay = False, None
                self._pins.clear()
            case Unused():
                self.leave()
            case _:
                assert_never(message)

    # What there is ---------------------------------------------------------------------------

    async def _look(self, user: bytes) -> None:
        """Read the overlay and what a user keeps of it, if what was read may be out of date."""
        if not self._looked or not self._lasts:
            get = GetRecord(key=name_of("overlay", self._key))
            await self.read(get)
            self._overlay = None if get.value is None else unpack(get.value, Overlay)
            self._looked, self._lasts = True, get.lasts
            self._versions = {get.key: get.version}
        if self._overlay is None:
            self.leave_later()
            return
        if user in self._pins and self._lasts:
            return
        pins: dict[RepoKey, Pin] = {}
        prefix, after = name_of("pin", self._key, user, ""), ""
        while True:
            listing = ListRecords(prefix=prefix, after=after)
            await self.read(listing)
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

    def _opened(self, session: Session) -> dict[RepoKey, Pin]:
        """The repos that a connection has open."""
        return session.opened.get(self._key, {})

    def _kept(self, session: Session, key: RepoKey) -> Pin | None:
        """What a connection has of a repo, pinned or opened."""
        pinned = self._pins.get(session.user, {}).get(key)
        opened = self._opened(session).get(key)
        if pinned is None or opened is None:
            return pinned or opened
        return Pin(
            expose_outer=pinned.expose_outer, topics=with_topics(pinned.topics, opened.topics)
        )

    def _kept_on(self, session: Session, *sides: Side) -> Iterator[Pin]:
        """All that a connection has of repos on these sides, pinned or opened."""
        for pins in (self._pins[session.user], self._opened(session)):
            for (side, _), pin in pins.items():
                if side in sides:
                    yield pin

    async def _serve(self, asked: Asked) -> None:
        await self._look(asked.session.user)
        content = asked.content
        if self._overlay is None and not isinstance(content, PinRepo | OpenRepo):
            refuse_unknown(asked)
        if isinstance(content, OncePinned):
            # Who may write may read on the outer overlay as well.
            kept = self._kept_on(asked.session, "inner", side_of(asked.overlay))
            check_reader(asked, content, kept)
        match content:
            case PinRepo() | OpenRepo():
                await self._keep(asked, content)
            case UnpinRepo():
                await self._unpin(asked, content)
            case RepoPinStatusReq():
                await self._status(asked, content)
            case TopicSub():
                await self._subscribe(asked, content)
            case TopicUnsub():
                await self._unsubscribe(asked, content)
            case Event():
                self._publish(asked, content)
            case TopicSyncReq():
                self._sync(asked, content)
            case CommitGet():
                await self._get_commit(asked, content)
            case BlocksGet():
                await self._get_blocks(asked, content)
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
        self.system.post(self._context.blocks.cell(self._key), asked)

    # Repos -----------------------------------------------------------------------------------

    async def _keep(self, asked: Asked, request: PinRepo | OpenRepo) -> None:
        overlay = overlay_after(self._overlay, request)
        if overlay is None:
            raise Refusal(ResultCode.NOT_FOUND)
        session, key = asked.session, _repo(asked, request.hash)
        kept = self._kept(session, key) or NOTHING
        topics = with_topics(kept.topics, topics_of(request))
        exposes = isinstance(request, PinRepo) and request.expose_outer
        if exposes and overlay.outer is not None:
            await self.question(self._context.outers.cell(overlay.outer), Expose(self._key))
        joined = await self._join(asked, topics, follow=True)
        topics = {topic: topics[topic] for topic in joined}
        pin = Pin(expose_outer=kept.expose_outer or exposes, topics=topics)
        if isinstance(request, PinRepo):
            await self._put(overlay, session.user, key, pin)
        else:
            await self._put(overlay)
            session.opened.setdefault(self._key, {})[key] = pin
        asked.answer(RepoOpened(_responses(joined, topics)))

    async def _unpin(self, asked: Asked, request: UnpinRepo) -> None:
        session, key = asked.session, _repo(asked, request.hash)
        kept = self._kept(session, key)
        if kept is None:
            raise Refusal(ResultCode.NOT_FOUND)
        await self._put(self._overlay, session.user, key, None)
        self._opened(session).pop(key, None)
        for topic in kept.topics:
            self._unfollow(asked, topic)
        asked.answer()

    async def _status(self, asked: Asked, request: RepoPinStatusReq) -> None:
        pin = self._pins[asked.session.user].get(_repo(asked, request.hash))
        if pin is None:
            raise Refusal(ResultCode.FALSE)
        joined = await self._join(asked, pin.topics, follow=False)
        none = Joined()
        there = {topic: joined.get(topic, none) for topic in pin.topics}
        topics = _responses(there, pin.topics)
        asked.answer(RepoPinStatus(request.hash, pin.expose_outer, topics))

    async def _put(
        self,
        overlay: Overlay | None,
        user: bytes = b"",
        key: RepoKey | None = None,
        pin: Pin | None = None,
    ) -> None:
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
            await self.write(PutRecords(records=records, seen=seen))
        self._overlay = overlay
        if key is not None and pin is not None:
            pins[key] = pin
        elif key is not None:
            pins.pop(key, None)

    # Topics ----------------------------------------------------------------------------------

    async def _join(
        self, asked: Asked, topics: Iterable[bytes], *, follow: bool
    ) -> dict[bytes, Joined]:
        """Look at topics, and make and follow them if asked; those that there are, in order."""
        writes = side_of(asked.overlay) == "inner"
        join = Join(
            follower=asked.session if follow else None,
            overlay=asked.overlay,
            creator=asked.session.principal if follow and writes else None,
        )
        cells = {topic: self._context.topics.cell((self._key, topic)) for topic in topics}
        replies = await self.questions([*cells.values()], join)
        return {
            topic: joined
            for topic, joined in zip(cells, replies, strict=True)
            if joined is not None
        }

    async def _subscribe(self, asked: Asked, request: TopicSub) -> None:
        session, key = asked.session, _repo(asked, request.repo_hash)
        kept = self._kept(session, key)
        if kept is None:
            raise Refusal(ResultCode.NOT_FOUND)
        more = {request.topic: request.publisher is not None}
        topics = with_topics(kept.topics, more)
        joined = await self._join(asked, more, follow=True)
        if not joined:
            raise Refusal(ResultCode.TOPIC_NOT_FOUND)
        await self._change(session, key, more, None)
        (response,) = _responses(joined, topics)
        asked.answer(response)

    async def _unsubscribe(self, asked: Asked, request: TopicUnsub) -> None:
        session, key = asked.session, _repo(asked, request.repo_hash)
        kept = self._kept(session, key)
        if kept is None or request.topic not in kept.topics:
            raise Refusal(ResultCode.SUBSCRIPTION_NOT_FOUND)
        await self._change(session, key, {}, request.topic)
        self._unfollow(asked, request.topic)
        asked.answer()

    async def _change(
        self, session: Session, key: RepoKey, more: Mapping[bytes, bool], less: bytes | None
    ) -> None:
        """Add topics to what is kept of a repo, or take one away, wherever it is kept."""

        def changed(pin: Pin) -> Pin:
            topics = with_topics(pin.topics, more)
            if less is not None:
                topics.pop(less, None)
            return Pin(expose_outer=pin.expose_outer, topics=topics)

        opened = self._opened(session)
        if key in opened:
            opened[key] = changed(opened[key])
        pinned = self._pins[session.user].get(key)
        if pinned is not None:
            await self._put(self._overlay, session.user, key, changed(pinned))

    def _unfollow(self, asked: Asked, topic: bytes) -> None:
        cell = self._context.topics.find((self._key, topic))
        if cell is not None:
            self.system.post(cell, Unfollow(asked.session, asked.overlay))

    def _to_topic(self, topic: bytes, message: Publish | Sync | SendCommit) -> None:
        self.system.post(self._context.topics.cell((self._key, topic)), message)

    def _sync(self, asked: Asked, request: TopicSyncReq) -> None:
        try:
            known: Container[bytes] = ()
            if request.known_commits is not None:
                known = KnownDigests(request.known_commits)
        except CodecError:
            raise Refusal(ResultCode.INVALID_REQUEST) from None
        self._to_topic(request.topic, Sync(asked, request, known))

    async def _look_at(self, asked: Asked, topic: bytes | None) -> None:
        """Know the topic that a request names as its log is now, with what others have written."""
        if topic is not None and not await self._join(asked, (topic,), follow=False):
            raise Refusal(ResultCode.TOPIC_NOT_FOUND)

    async def _get_blocks(self, asked: Asked, request: BlocksGet) -> None:
        await self._look_at(asked, request.topic)
        items = [OneBlock(one, request.include_children) for one in request.ids]
        spawn_reader(self._context, Plan(asked, self._key, items, empty=ResultCode.NOT_FOUND))

    async def _get_commit(self, asked: Asked, request: CommitGet) -> None:
        """Find out which topics' events may have brought the commit; its blocks are sent there."""
        await self._look_at(asked, request.topic)
        get = GetRecords(keys=[name_of("published", self._key, request.id)])
        await self.read(get)
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


def _responses(
    joined: Mapping[bytes, Joined], publishers: Mapping[bytes, bool]
) -> list[TopicSubRes]:
    return [
        TopicSubRes(topic, one.heads, publishers[topic], one.commits)
        for topic, one in joined.items()
    ]


def _repo(asked: Asked, repo: bytes) -> RepoKey:
    return side_of(asked.overlay), repo
