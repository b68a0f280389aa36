"""Groups of consumers as a member sees them: what it has of a stream, and what becomes of that."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from functools import cached_property
from math import inf
from typing import Any, Final, Protocol

from rillnode.codecs import native
from rillnode.codecs.entries import Entry
from rillnode.codecs.errors import (
    UNHANDLED,
    RequestError,
    RillnodeError,
    StreamRemoved,
    TransportError,
)
from rillnode.codecs.events import event_logger
from rillnode.codecs.group_address import group_address
from rillnode.codecs.routing.routes import Route
from rillnode.node.client.consumer import LATE, Ledger
from rillnode.node.client.reading import Reading, Terms
from rillnode.node.client.session import Session
from rillnode.node.client.subscription import Wanted
from rillnode.node.iteration import kept

logger = event_logger("rillnode.node.client")

BEAT_SECONDS: Final = 0.5
"""How often a member that has partitions tells that it is well, and has its lease made longer."""

MARGIN_SECONDS: Final = 0.2
"""By which a lease ends earlier here than at the node: for clocks of which one goes slow, and for
what is handed out and still on its way to the application."""

ANSWER_SECONDS: Final = 5.0
"""How long either, or the end of a membership, may take."""

GIVE_SECONDS: Final = 3.0
"""How long a partition is kept that is to be given up, while entries of it are in flight."""

LOOK_SECONDS: Final = 0.02
"""How often it is looked meanwhile whether they are acknowledged."""

AGAIN_SECONDS: Final = 0.2
"""Pause before a member whose group's actor has ended joins anew; a node waits for 2 s."""

RETRY_SECONDS: Final = 1.0
"""Likewise where the node cannot do it now."""

_TOKEN_BYTES: Final = 16

_ANEW: Final = UNHANDLED | {"actor.failed", "group.member"}

OnPartitions = Callable[[Sequence[int]], object]
"""Told of partitions that have come, or are gone."""


class Claimant(Protocol):
    """The owner of a membership, who is told what becomes of it."""

    def claimed(self, response: native.GroupResponse) -> None:
        """This is what the member has now."""
        ...

    def away(self) -> None:
        """The node is not reached: what the member has it may lose without being told."""
        ...

    def failed(self, error: RillnodeError) -> None:
        """The membership is over."""
        ...


class Membership:
    """One member of a group, or one single consumer, at a node; satisfies `Subscriber`.

    It goes on over lost links, with the same token: within a short time the member is the same.

    Args:
        session: asks the node.
        stream: name of the stream.
        name: of the group, or the consumer.
        created_at: of the stream, as of SubscribeRequest.
        shared: whether it is a group.
        owner: told of what becomes of it.
    """

    def __init__(
        self,
        session: Session,
        stream: str,
        name: str,
        created_at: int,
        *,
        shared: bool,
        owner: Claimant,
    ) -> None:
        self._names = (stream, name)
        self._created_at = created_at
        self.token = session.messages.entropy(_TOKEN_BYTES)
        self._session = session
        self._shared = shared
        self._owner = owner
        self._id: int | None = None
        self._joined: asyncio.Future[None] | None = None
        self._again: asyncio.TimerHandle | None = None
        self._left = False

    @cached_property
    def address(self) -> bytes:
        """The group's. Raises RequestError: `index.invalid`, nobody can have such a name."""
        return group_address(*self._names)

    async def join(self) -> None:
        """Become a member; raises why it cannot be one."""
        if self._joined is None:
            _ = self.address  # before anything waits for an answer
            self._joined = asyncio.get_running_loop().create_future()
            self._subscribe()
        await asyncio.shield(self._joined)

    def join_anew(self, seconds: float = AGAIN_SECONDS) -> None:
        """Ask again, soon: the group does not know this member any more."""
        if self._again is None and not self._left:
            self._owner.away()
            self._forget()
            self._again = asyncio.get_running_loop().call_later(seconds, self._subscribe)

    async def leave(self) -> None:
        """Be a member no more, as far as the node can be told."""
        self._left = True
        if self._again is not None:
            self._again.cancel()
        if self._joined is None:
            return
        self._forget()
        if self._session.connected:  # else the node knows soon enough
            request = native.LeaveGroupRequest(self._session.next_id(), self.token)
            with suppress(RillnodeError):
                await self._session.request(
                    self.address, request, native.DoneResponse, seconds=ANSWER_SECONDS
                )
        if not self._joined.done():
            self._joined.cancel()

    def _subscribe(self) -> None:
        self._again = None
        self._id = self._session.next_id()
        self._session.subscribe(self._id, self)

    def _forget(self) -> None:
        if self._id is not None:
            self._session.drop(self._id)
            self._id = None

    def resume(self) -> tuple[bytes, native.Request]:
        """Join, or tell over another link that it is still there."""
        assert self._id is not None, "it has asked"
        return self.address, native.JoinGroupRequest(
            self._id, self.token, self._shared, self._created_at
        )

    def received(self, response: native.Response, route: Route) -> None:
        """Take what the member has."""
        if isinstance(response, native.GroupResponse):
            if self._joined is not None and not self._joined.done():
                self._joined.set_result(None)
            self._owner.claimed(response)

    def link_lost(self) -> None:
        """Wait for the next one."""
        self._owner.away()

    def failed(self, error: RillnodeError) -> None:
        """Join anew where that may help; else it is over."""
        self._id = None
        joined = self._joined is not None and self._joined.done()
        if error.code in _ANEW:
            self.join_anew(max(AGAIN_SECONDS, error.retry_seconds))
        elif joined and error.retryable and not isinstance(error, TransportError):
            self.join_anew(RETRY_SECONDS)
        elif joined:
            self._owner.failed(error)
        elif self._joined is not None:
            self._joined.set_exception(error)
            self._joined.exception()  # whoever waits is told; nobody has to


class Single:
    """A single consumer's claim: that no group has its name meanwhile."""

    def __init__(
        self,
        session: Session,
        stream: str,
        name: str,
        created_at: int,
        failed: Callable[[RillnodeError], None],
    ) -> None:
        membership = Membership(session, stream, name, created_at, shared=False, owner=self)
        self.join, self.leave = membership.join, membership.leave
        self._failed = failed

    def claimed(self, response: native.GroupResponse) -> None:
        """It has the name, and nothing else."""

    def away(self) -> None:
        """It goes on all the same."""

    def failed(self, error: RillnodeError) -> None:
        """A group has the name by now, or the right to consume has ended."""
        self._failed(error)


class _Held:
    """A partition that a member has; what it had before and was given again is another.

    Attributes:
        generation: of the partition, which each save has to name. It may be the same again.
    """

    __slots__ = ("generation",)

    def __init__(self, generation: int) -> None:
        self.generation = generation


class Sharing(Reading):
    """A member's part of a stream: follows what it has, and saves its positions.

    A partition that is to go to another member is given up once what is in flight of it is
    acknowledged, or after `GIVE_SECONDS`, and its position saved. Nothing is handed out while there
    is no link, nor once its lease is over: others may have it by then. The node renews the lease
    whenever the member tells that it is well, so it also ends behind a link that stands still, and
    in a process, or on a machine, that does.

    Args:
        session: asks the node.
        stream: name of the stream.
        name: of the group.
        ledger: the consumer's.
        begin: finds out where partitions begin in which nothing is saved.
        on_assigned: told in the loop of partitions that have come.
        on_revoked: likewise of those that are gone.
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
        begin: Callable[[Sequence[int]], Awaitable[dict[int, int]]],
        on_assigned: OnPartitions | None,
        on_revoked: OnPartitions | None,
    ) -> None:
        super().__init__(session, stream, name, ledger, terms)
        self._begins = begin
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._membership = Membership(
            session, stream, name, terms.created_at, shared=True, owner=self
        )
        self._held: dict[int, _Held] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._giving: set[int] = set()
        # Since which generation it had what it has given up, by partition. Until that is done at
        # the node, it may still be told to have it, and must not take what another may get.
        self._given: dict[int, int] = {}
        self._beating: asyncio.Task[None] | None = None
        self._ended = False
        # Whether what the group has said last holds: it was said over this link.
        self._told = False
        self._until = -inf  # of the lease
        self._renewing: set[asyncio.Task[None]] = set()
        self._is_late = False
        self._claimed = asyncio.Event()

    # Feed ------------------------------------------------------------------------------------

    async def _open(self) -> None:
        self._consumers.add(self._finish)
        await self._membership.join()
        self._saving.every(self._save_seconds, self._follow_ends)

    async def fetch(self) -> list[Entry]:
        """Wait for the next entries of a partition, and first for a lease that is over."""
        if self.lapsed():
            self._hold()
        return await super().fetch()

    def lapsed(self) -> bool:
        """Whether the lease is over."""
        return self._session.elapsed() >= self._until

    async def _leave(self) -> None:
        await self._membership.leave()

    async def _finish(self) -> None:
        self._ended = True
        beating = () if self._beating is None else (self._beating,)
        for task in (*self._tasks, *self._renewing, *beating):
            task.cancel()
        await super()._finish()

    # What the member has ---------------------------------------------------------------------

    def claimed(self, response: native.GroupResponse) -> None:
        """Take on what has come, and give up what is asked for."""
        told = {one.partition: one.generation for one in response.held}
        for partition, held in tuple(self._held.items()):
            if told.get(partition) != held.generation:
                self._lose(partition)
        self._claimed.set()
        if self._ended:
            return
        for partition, generation in told.items():
            if partition in self._held:
                continue
            if self._given.get(partition) != generation:
                held = self._held[partition] = _Held(generation)
                self._begin(self._take(partition, held))
            elif partition not in self._giving:
                # The node has not done it: this was no member when it was asked.
                self._giving.add(partition)
                self._begin(self._release(partition, generation))
        for partition in response.asked:
            if partition in self._held and partition not in self._giving:
                self._giving.add(partition)
                self._begin(self._give_up(partition, self._held[partition]))
        self._told = True
        if self._held and self.lapsed():
            self._renew()
        else:
            self._follower.go_on()
        if self._held and (self._beating is None or self._beating.done()):
            self._beating = kept(self._beat())

    def away(self) -> None:
        """Hand out nothing until it is known whether the member has it still."""
        self._told = self._is_late = False
        self._until = -inf
        for task in self._renewing:
            task.cancel()
        self._hold()

    def _hold(self) -> None:
        waiting = list(self._ledger.ready)
        self._ledger.ready.clear()
        self._follower.hold(waiting)

    def failed(self, error: RillnodeError) -> None:
        """The member is out, for good."""
        if isinstance(error, StreamRemoved):
            for partition in tuple(self._held):
                self._lose(partition)
        for task in self._tasks:
            task.cancel()
        self._claimed.set()
        self._follower.fail(error)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = kept(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _take(self, partition: int, held: _Held) -> None:
        """Follow a partition from the group's position on."""
        while self._held.get(partition) is held and not self._ended:
            try:
                described = await self._find_ends()
                saved = await self._load_position(partition)
                position = saved
                if position is None:
                    position = (await self._begins([partition]))[partition]
            except RillnodeError as error:
                if not error.retryable and not isinstance(error, TransportError):
                    self._follower.fail(error)
                    return
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if self._held.get(partition) is held and not self._ended:
                self._ledger.assign(partition, position)
                self._saving.loaded(partition, saved or 0)
                if position != (saved or 0):
                    self._begin(self._saved_at_once())
                address = described.partitions[partition].address
                wanted = Wanted(address, partition, position, self._created_at)
                self._follower.follow(self._session, wanted)
                self._tell(self._on_assigned, partition)
            return

    async def _saved_at_once(self) -> None:
        """Save where partitions begin: who has them next goes on from there, too."""
        try:
            await self.save()
        except RillnodeError as error:
            logger.warning("position_not_saved", extra={"code": error.code})

    async def _give_up(self, partition: int, held: _Held) -> None:
        """Let another member have a partition."""
        try:
            self._follower.unfollow(partition)
            self._ledger.recall(partition)
            loop = asyncio.get_running_loop()
            until = loop.time() + GIVE_SECONDS
            while self._ledger.is_out(partition) and loop.time() < until:
                await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.save()
            except RillnodeError as error:
                logger.warning("position_not_saved", extra={"code": error.code})
            if self._held.get(partition) is not held:
                return
            self._lose(partition)
            self._given[partition] = held.generation
            await self._release(partition, held.generation)
        finally:
            self._giving.discard(partition)

    async def _release(self, partition: int, generation: int) -> None:
        """Have the group do it, however often that fails: nobody has the partition until then."""
        given = [native.HeldPartition(partition, generation)]
        try:
            while True:
                request_id, token = self._session.next_id(), self._membership.token
                request = native.ReleaseGroupRequest(request_id, token, given)
                try:
                    await self._session.request(
                        self._membership.address, request, native.DoneResponse
                    )
                    return
                except RillnodeError as error:
                    if not error.retryable:
                        return  # it is no member now, and is told once it is again
                await asyncio.sleep(RETRY_SECONDS)
        finally:
            self._giving.discard(partition)

    def _lose(self, partition: int) -> None:
        """The partition is another member's, or will be."""
        del self._held[partition]
        self._follower.unfollow(partition)
        if partition in self._ledger.positions:
            self._ledger.revoke(partition)
            self._saving.forget(partition)
            self._tell(self._on_revoked, partition)

    def _tell(self, told: OnPartitions | None, partition: int) -> None:
        if told is not None:
            # By the loop: what it raises is not ours.
            asyncio.get_running_loop().call_soon(told, (partition,))

    async def _beat(self) -> None:
        """Tell that the member is well, as long as it has anything."""
        while self._held:
            await asyncio.sleep(BEAT_SECONDS)
            if self._told:
                self._renew()

    def _renew(self) -> None:
        """Have the lease made longer; how long an answer takes delays no other."""
        task = kept(self._renewed())
        self._renewing.add(task)
        task.add_done_callback(self._renewing.discard)

    async def _renewed(self) -> None:
        asked_at = self._session.elapsed()
        request = native.BeatGroupRequest(self._session.next_id(), self._membership.token)
        try:
            lease = await self._session.request(
                self._membership.address, request, native.GroupLeaseResponse, seconds=ANSWER_SECONDS
            )
        except RillnodeError as error:
            if error.code == "group.member":
                self._membership.join_anew()
            return
        # From when it was asked: the answer may have waited as long as it likes.
        until = asked_at + lease.milliseconds / 1_000 - MARGIN_SECONDS
        self._until = max(self._until, until)
        if not self.lapsed():
            self._follower.go_on()
        elif lease.milliseconds and not self._is_late:
            self._is_late = True
            seconds = round(self._session.elapsed() - asked_at, 3)
            logger.warning("member_waits", extra={"stream": self._stream, "seconds": seconds})

    # Positions -------------------------------------------------------------------------------

    async def _save_position(self, partition: int, index: int) -> None:
        held = self._held.get(partition)
        if held is None:
            raise RequestError("group.generation", LATE)
        try:
            await self._save_since(held.generation, partition, index)
        except RequestError as error:
            if error.code == "group.member":
                # Perhaps only the group's actor has ended: then it has the partition still.
                await self._claim_anew()
                now = self._held.get(partition)
                if now is None or now.generation != held.generation:
                    raise RequestError("group.generation", LATE) from None
                await self._save_since(held.generation, partition, index)
                return
            if error.code == "group.generation" and self._held.get(partition) is held:
                self._lose(partition)
            raise

    async def _save_since(self, generation: int, partition: int, index: int) -> None:
        token, request_id = self._membership.token, self._session.next_id()
        request = native.SaveGroupRequest(request_id, token, partition, generation, index)
        await self._session.request(self._membership.address, request, native.SavedIndexResponse)

    async def _claim_anew(self) -> None:
        """Join anew, and wait until it is known what the member has."""
        self._claimed.clear()
        self._membership.join_anew()
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._claimed.wait()
