"""A client of NextGraph brokers: of a rillnode's `nextgraph` listener, or of any other."""

import ssl
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Self

import aiohttp

from rillnode.actors.ports import Entropy
from rillnode.codecs.errors import CodecError, RequestError, RillnodeError
from rillnode.codecs.events import event_logger
from rillnode.codecs.keys import SEED_BYTES, Identity
from rillnode.codecs.nextgraph.adverts import sign_publisher_advert
from rillnode.codecs.nextgraph.blocks import Block, block_id
from rillnode.codecs.nextgraph.bloom import make_filter
from rillnode.codecs.nextgraph.client_dialogue import ClientDialogue, ClientLogin
from rillnode.codecs.nextgraph.events import (
    Event,
    EventContent,
    check_event,
    crypt_event_key,
    sign_event,
)
from rillnode.codecs.nextgraph.objects import Object
from rillnode.codecs.nextgraph.requests import (
    BlocksExist,
    BlocksGet,
    BlocksPut,
    CommitGet,
    PinRepo,
    RepoPinStatusReq,
    TopicSub,
    TopicSyncReq,
    TopicUnsub,
    UnpinRepo,
    WalletPutExport,
)
from rillnode.codecs.nextgraph.responses import (
    BlocksFound,
    RepoOpened,
    RepoPinStatus,
    TopicSubRes,
    TopicSyncRes,
)
from rillnode.codecs.nextgraph.sealing import Branch
from rillnode.codecs.nextgraph.types import (
    KEY_BYTES,
    NIL_OVERLAY,
    ForwardedPeer,
    OverlayAccess,
    OverlayId,
    ReadWriteAccess,
)
from rillnode.node.iteration import Iteration, iterate
from rillnode.node.nextgraph.client.connection import Connection, expected, unexpected
from rillnode.node.nextgraph.client.inboxes import Inboxes
from rillnode.node.nextgraph.client.objects import Objects
from rillnode.node.nextgraph.client.portions import portions
from rillnode.node.nextgraph.client.subscription import Subscription, TopicKey
from rillnode.node.nextgraph.client.wire import open_wire

logger = event_logger("rillnode.node.nextgraph.client")


@dataclass(frozen=True, slots=True)
class Published:
    """A commit that the broker has.

    Attributes:
        event: as it was sent.
        new: it was not there before, so others get it now.
    """

    event: Event
    new: bool


class Client:
    """Talks to one broker over one connection; made by `connect`. All calls on one event loop.

    A lost connection is not made again: every call raises then, and another client goes on, after a
    `sync` for what it missed.

    All requests raise:
        RequestError: the broker refuses; the code is `nextgraph.` and the result's name in lower
            case, such as `nextgraph.not_found`.
        CodecError: the request is longer than a message may be, or the answer is not what was
            asked for.
        TransportError: `link.closed`, the connection is over.

    Attributes:
        peer: the key of this connection, and so the publisher of its events.
        inboxes: letters from and to other stores' owners.
        objects: how long what was put by `put_blocks` is kept.
    """

    def __init__(self, broker: bytes, entropy: Entropy) -> None:
        self._broker = broker
        self._entropy = entropy
        # A fresh key for each connection: its numbers begin at 1, and no event's key is ever
        # sealed with the same numbers again.
        self.peer = Identity.from_seed(entropy(SEED_BYTES))
        self._seq = 0
        self._subscriptions: dict[TopicKey, list[Subscription]] = {}
        self.inboxes = Inboxes(lambda: self._link, entropy)
        self.objects = Objects(lambda: self._link)
        self._http: aiohttp.ClientSession
        self._connection: Connection | None = None

    async def open(self, url: str, login: ClientLogin, tls: ssl.SSLContext | None = None) -> None:
        """Connect; see `connect`."""
        self._http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls or True))
        try:
            dialogue = ClientDialogue(
                self.peer, self._broker, login, ephemeral=self._entropy(KEY_BYTES)
            )
            wire = await open_wire(self._http, url, dialogue)
        except BaseException:
            await self._http.close()
            raise
        self._connection = Connection(wire, self._forwarded, self.inboxes.received, self._ended)

    async def __aenter__(self) -> Self:
        """It is connected already."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.close()

    async def close(self) -> None:
        """End the connection and all subscriptions."""
        await self._link.close()
        await self._http.close()

    # Repos and topics ------------------------------------------------------------------------

    async def pin(
        self,
        repo_hash: bytes,
        access: OverlayAccess,
        *,
        publish: Sequence[Identity] = (),
        read: Sequence[bytes] = (),
        expose_outer: bool = False,
    ) -> list[TopicSubRes]:
        """Have the broker keep a repo's topics for the user; needed before anything else.

        Their events are forwarded from then on, and dropped until `subscribe` asks for them.

        Args:
            repo_hash: see `overlays.repo_hash`.
            access: on which overlays.
            publish: keys of topics to publish on.
            read: topics to read.
            expose_outer: let others read the repo on its outer overlay.

        Returns:
            The topics with their heads.
        """
        request = PinRepo(
            hash=repo_hash,
            overlay=access,
            overlay_root_topic=None,
            expose_outer=expose_outer,
            peers=[],
            max_peer_count=0,
            ro_topics=list(read),
            rw_topics=[sign_publisher_advert(topic, self._broker) for topic in publish],
        )
        overlay = access.inner if isinstance(access, ReadWriteAccess) else access.overlay
        return expected(await self._link.ask(overlay, request), RepoOpened).topics

    async def pin_status(self, overlay: OverlayId, repo_hash: bytes) -> RepoPinStatus | None:
        """Tell what the user has pinned of a repo on this side of its store; None: nothing."""
        try:
            answer = await self._link.ask(overlay, RepoPinStatusReq(repo_hash))
        except RequestError as error:
            if error.code == "nextgraph.false":
                return None
            raise
        return expected(answer, RepoPinStatus)

    async def unpin(self, overlay: OverlayId, repo_hash: bytes) -> None:
        """Have the broker keep a repo no longer."""
        await self._link.ask(overlay, UnpinRepo(repo_hash))

    async def subscribe(
        self,
        overlay: OverlayId,
        repo_hash: bytes,
        topic: bytes,
        *,
        publisher: Identity | None = None,
    ) -> Subscription:
        """Follow a topic of a pinned repo from now on.

        What others publish after the heads of `Subscription.topic` is forwarded, so a `sync` up to
        these, before or after, leaves no gap.

        Args:
            overlay: where.
            repo_hash: the repo that the topic is pinned with.
            topic: the topic.
            publisher: the topic's key, to publish on it as well.
        """
        advert = None if publisher is None else sign_publisher_advert(publisher, self._broker)
        subscription = Subscription((overlay, topic), self._left)
        self._subscriptions.setdefault(subscription.key, []).append(subscription)
        try:
            answer = await self._link.ask(overlay, TopicSub(topic, repo_hash, advert))
            subscription.topic = expected(answer, TopicSubRes)
        except BaseException:
            subscription.close()
            raise
        return subscription

    async def unsubscribe(self, overlay: OverlayId, repo_hash: bytes, topic: bytes) -> None:
        """Have nothing more forwarded of a topic, which leaves the pin as well."""
        await self._link.ask(overlay, TopicUnsub(topic, repo_hash))

    # Events ----------------------------------------------------------------------------------

    async def publish(
        self,
        overlay: OverlayId,
        topic: Identity,
        branch: Branch,
        commit: Object,
        *,
        files: Sequence[bytes] = (),
    ) -> Published:
        """Publish a commit; returns when it is durable and forwarded.

        A commit that the broker has already is confirmed again, and not forwarded again: a client
        whose answer was lost may send it once more. A commit has the same id if it says the same
        after the same commits within the same minute.

        Args:
            overlay: the inner one.
            topic: the topic's key.
            branch: whose members can open the commit.
            commit: the commit with all blocks that its event is to carry, as of `make_commit`.
            files: ids of objects that are put apart.

        Returns:
            The event as it was sent, and whether it brought the commit.
        """
        self._seq += 1
        key = crypt_event_key(
            commit.reference.key,
            repo_id=branch.repo_id,
            branch_id=branch.id,
            read_cap_key=branch.read_cap_key,
            publisher=self.peer.public_key,
            seq=self._seq,
        )
        content = EventContent(
            topic=topic.public_key,
            publisher=ForwardedPeer(self.peer.public_key),
            seq=self._seq,
            blocks=commit.blocks,
            file_ids=list(files),
            key=key,
        )
        event = sign_event(content, topic, self.peer)
        return Published(event, new=await self._link.publish(overlay, event))

    def sync(
        self,
        overlay: OverlayId,
        topic: bytes,
        *,
        known: Sequence[bytes] = (),
        until: Sequence[bytes] = (),
        local: Sequence[bytes] = (),
    ) -> Iteration[Event]:
        """Read a topic's stored events, parents before children; each has been verified.

        Args:
            overlay: where.
            topic: the topic.
            known: ids of commits that are had, with all before them.
            until: up to these; empty: all that there are.
            local: ids of all commits that are had, where some have others before them that are not.
                The broker is told by a filter, which takes about one commit in 100,000 for one
                that is had, and leaves it out with what only it leads to: where a parent is
                missing afterwards, ask again without.

        Raises:
            RequestError: also `nextgraph.topic_not_found`: nothing was published there yet.
            NextGraphError: a signature of an event does not hold.
        """
        filtered = make_filter(local, len(local)) if local else None
        request = TopicSyncReq(topic, list(known), list(until), filtered)
        return iterate(self._sync(overlay, request))

    async def _sync(
        self, overlay: OverlayId, request: TopicSyncReq
    ) -> AsyncGenerator[tuple[Event]]:
        async with aclosing(self._link.stream(overlay, request)) as answers:
            async for answer in answers:
                item = expected(answer, TopicSyncRes).item
                if not isinstance(item, Event):
                    continue  # blocks in place of an event that is gone
                check_event(item)
                if item.content.topic != request.topic:
                    raise unexpected(answer)
                yield (item,)

    # Blocks ----------------------------------------------------------------------------------

    async def put_blocks(self, overlay: OverlayId, blocks: Sequence[Block]) -> None:
        """Store blocks, with as many requests as it takes; returns when all are durable.

        Where one is refused, those before it may have been stored.
        """
        for some in portions(blocks):
            await self._link.ask(overlay, BlocksPut(some))

    def get_blocks(
        self, overlay: OverlayId, ids: Iterable[bytes], *, children: bool = False
    ) -> Iteration[Block]:
        """Read blocks, those that the broker has; each is one that was asked for.

        Args:
            overlay: where.
            ids: which.
            children: and all that are below them, depth first.

        Raises:
            RequestError: also `nextgraph.not_found`: there is none of them.
        """
        return iterate(self._get_blocks(overlay, list(dict.fromkeys(ids)), children))

    async def _get_blocks(
        self, overlay: OverlayId, asked: list[bytes], children: bool
    ) -> AsyncGenerator[tuple[Block]]:
        wanted = set(asked)
        request = BlocksGet(asked, children, None)
        async with aclosing(self._link.stream(overlay, request)) as answers:
            async for answer in answers:
                block = expected(answer, Block)
                if block_id(block) not in wanted:
                    raise CodecError("block.id", "the block is none that was asked for")
                if children:
                    wanted.update(block.content.children)
                yield (block,)

    async def get_commit(
        self, overlay: OverlayId, commit: bytes, *, topic: bytes | None = None
    ) -> list[Block]:
        """Read a commit with the blocks that its event carried, in the event's order.

        Raises:
            RequestError: also `nextgraph.not_found`.
        """
        async with aclosing(self._link.stream(overlay, CommitGet(commit, topic))) as answers:
            blocks = [expected(answer, Block) async for answer in answers]
        if all(block_id(block) != commit for block in blocks):
            raise CodecError("block.id", "the commit that was asked for is not among the blocks")
        return blocks

    async def find_blocks(self, overlay: OverlayId, ids: Sequence[bytes]) -> BlocksFound:
        """Tell which blocks the broker has."""
        return expected(await self._link.ask(overlay, BlocksExist(list(ids))), BlocksFound)

    async def leave_wallet(self, wallet: bytes, rendezvous: bytes, *, waits: bool = False) -> None:
        """Leave a sealed wallet for another device, which fetches it with `fetch_wallet`.

        Args:
            wallet: the wallet.
            rendezvous: 32 random bytes, which the other device is told in another way.
            waits: hand it to a device that waits already, or fail.
        """
        await self._link.ask(NIL_OVERLAY, WalletPutExport(wallet, rendezvous, waits))

    # Forwarding ------------------------------------------------------------------------------

    def _left(self, subscription: Subscription) -> None:
        others = self._subscriptions.get(subscription.key, [])
        if subscription in others:
            others.remove(subscription)
        if not others:
            self._subscriptions.pop(subscription.key, None)

    @property
    def _link(self) -> Connection:
        assert self._connection is not None, "`connect` opens it"
        return self._connection

    def _forwarded(self, overlay: OverlayId, event: Event) -> None:
        # One may leave while it is handed an event.
        followers = tuple(self._subscriptions.get((overlay, event.content.topic), ()))
        if not followers:
            return
        try:
            check_event(event)
        except CodecError as error:
            logger.warning("event_refused", extra={"code": error.code})
            for follower in followers:
                follower.refused += 1
            return
        for follower in followers:
            follower.received(event)

    def _ended(self, error: RillnodeError) -> None:
        for followers in tuple(self._subscriptions.values()):
            for follower in tuple(followers):
                follower.failed(error)
        for inbox in self.inboxes.open:
            inbox.failed(error)
