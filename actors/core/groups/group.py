"""The actor of a group: the members whose links are this node's, and the group's record.

Whatever changes the group is a function of its record, and written only if the record is still as
it was read; so the actors of several nodes need not know of each other. A member is told what it
has when that is durable. A position is saved by the index service as any other, bound to the
record by which the member has the partition.
"""

from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass
from math import inf
from typing import ClassVar, Final, assert_never

from rillnode.actors.core.access import Access
from rillnode.actors.core.delivery import Delivery, LinkLost, Origin
from rillnode.actors.core.groups.registry import (
    LEASE_SECONDS,
    GroupNews,
    GroupView,
    Vouch,
    Vouched,
)
from rillnode.actors.core.groups.state import (
    NOTHING,
    Claims,
    GroupState,
    Hold,
    Member,
    claims,
    joined,
    left,
    node_of,
    record_name,
    released,
)
from rillnode.actors.core.orders import Orders
from rillnode.actors.core.queues.names import queue_record
from rillnode.actors.core.refusals import not_granted
from rillnode.actors.core.return_routes import leads_out
from rillnode.actors.core.rights import RightsChanged
from rillnode.actors.core.router import told
from rillnode.actors.core.streams.answers import failed, invalid_request, is_error, unknown_stream
from rillnode.actors.core.streams.asked import ServiceRequest
from rillnode.actors.core.streams.context import StreamContext, StreamRemoved
from rillnode.actors.core.streams.index_service import ADDRESSES, AskPosition, Position
from rillnode.actors.engine.described import Described
from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import (
    FindStream,
    GetRecord,
    PutRecords,
    SavedIndexKey,
    StreamRecord,
)
from rillnode.actors.log.waiting import read, write
from rillnode.actors.ports import TimerHandle
from rillnode.codecs import native
from rillnode.codecs.errors import (
    ActorError,
    CodecError,
    RequestError,
    RillnodeError,
    StoreError,
)
from rillnode.codecs.events import event_logger
from rillnode.codecs.limits import CONNECTIONS_MAX, GROUPS_PER_LINK_MAX
from rillnode.codecs.requests import decode_request
from rillnode.codecs.routing.routes import Route

logger = event_logger("rillnode.actors.core.groups")

TOKEN_BYTES: Final = 16

SILENCE_SECONDS: Final = 10.0
"""How long a member may keep partitions without a sign of life: its link may be dead, and nobody
knows. Who has nothing need not say anything."""

RELEASE_SECONDS: Final = 10.0
"""How long a member may take to give up what it is asked for."""

LOOK_SECONDS: Final = 5.0
"""How often the record is read again that others may change, if nothing was heard of it."""

RETRY_SECONDS: Final = 0.5
"""Pause after the store could not write what follows from a loss."""

LATE_SECONDS: Final = 0.5
"""A turn that is so late has kept signs of life waiting, too: all get that time again."""

TRIES_MAX: Final = 100
"""How often a change is tried that others are quicker than: as many as nodes could have."""

_DIRECT_HOPS: Final = 2
"""Of the way back to a member: its connection, and its own address."""

_RECORD: Final = "record"

_OUT: Final = RequestError(
    "group.member", "The group has no such member, or has given it up: join anew"
)
_LATE: Final = RequestError(
    "group.generation",
    "This partition is another member's by now: its position is saved by that one alone",
)
_REVOKED: Final = RequestError(
    "group.revoked", "The right to consume this stream has ended: ask for a grant, and join anew"
)
_REMOVED: Final = RequestError("stream.removed", "The stream was removed")
_FAR: Final = RequestError("group.route", "A member joins over a link of its own to the node")
_BUSY: Final = StoreError("store.busy", "Other nodes change this group all the time: try again")


@dataclass(slots=True, eq=False)
class _Here:
    """A member whose link is this node's.

    Attributes:
        node: under which name of this node it has come.
        heard_at: when it has last shown that it is well.
        joined: its record is durable, and it does not know that it is out.
        told: what it was told that it has; None: nothing yet.
        lost_at: when its link was lost; inf: it is there.
        asked_at: since when it is to give something up; inf: it is not.
        leaving: it is being taken out of the record.
    """

    id: str
    origin: Origin
    return_route: Route
    request_id: int
    node: str
    heard_at: float
    joined: bool = False
    told: Claims | None = None
    lost_at: float = inf
    asked_at: float = inf
    leaving: bool = False

    @property
    def due_at(self) -> float:
        """When it is given up, unless it shows that it is well."""
        if self.leaving:
            return inf
        keeps = self.told is not None and bool(self.told.held)
        silent = self.heard_at + SILENCE_SECONDS if keeps else inf
        return min(silent, self.lost_at + LEASE_SECONDS)


@dataclass(frozen=True, slots=True)
class _Tick:
    """Time to see to what is due by then."""

    at: float


@dataclass(slots=True, eq=False)
class _Ask(ServiceRequest):
    """One request of a member."""

    def refuse(self, error: RillnodeError) -> None:
        """Answer why it was not done."""
        if self.request is not None:
            self.reply(failed(self.request.request_id, told(error)))


Message = Delivery | LinkLost | RightsChanged | StreamRecord | StreamRemoved | GroupNews | _Tick


class GroupActor(Worker):
    """A group's members at one node, or a name's single consumers, at `GR_<name>_<stream>`.

    It ends when it has no members, and at its first failure: they are told, and join anew.
    """

    mailbox_messages_max = 8_192
    spare: ClassVar = {LinkLost: CONNECTIONS_MAX, StreamRemoved: 1}
    on_failure = "stop"
    interleaves = True
    idle_seconds = 5.0
    stops_when_idle = True
    ends_when_idle = True

    def __init__(self, context: StreamContext, own_address: bytes, stream: str, name: str) -> None:
        self._context = context
        self._own_address = own_address
        self._stream = stream
        self._name = name
        # Members of before are those of another instance, which nobody hears of.
        self._instance = context.entropy(4).hex()
        self._refusal: RillnodeError | None = None
        self._view: GroupView | None = None
        self._stream_id = self._created_at = 0
        self._partitions = 0
        self._version = 0
        self._known = False
        self._lasts = True
        self._here: dict[str, _Here] = {}
        # Since when instances of before are known.
        self._before: dict[str, float] = {}
        # Likewise members in the record that are not here, though they should be: a write that was
        # refused may be done when the store is repaired.
        self._orphans: dict[str, float] = {}
        self._orders = Orders()
        self._timer: TimerHandle | None = None
        self._timer_at = inf
        self._look_at = self._retry_at = 0.0
        self._made_at = 0.0

    async def started(self) -> None:
        """Find the stream, and what the group is."""
        self._made_at = self._now()
        router = self._context.router
        if router.lookup(self._own_address) is None:  # an instance before this one was idle
            router.register(self._own_address, self.address)
        try:
            if router.lookup(self._own_address) is not self.address:
                raise ActorError("actor.stopped", "Another actor has this group by now")
            await self._find()
        except RillnodeError as error:
            self._refusal = error

    def handle(self, message: Message, sender: Cell | None) -> None:
        """Take requests, and what becomes of members, rights, the stream and other nodes."""
        match message:
            case Delivery(origin=origin, messages=messages):
                for wire in messages:
                    ask = _Ask(self._context.router, origin, wire)
                    self.begin(self._serve(ask), ask.refuse)
                if self._refusal is not None:
                    self.system.exit(self.address)
            case LinkLost(origin=origin):
                for here in self._here.values():
                    if here.origin is origin:
                        here.lost_at = self._now()
                self._arm()
            case RightsChanged():
                self._revoke([one for one in self._here.values() if self._lacking(one.origin)])
            case StreamRecord(id=stream_id, partitions=partitions):
                if stream_id == self._stream_id and partitions != self._partitions:
                    self._partitions = partitions
                    self.begin(self._settle())
            case StreamRemoved():
                self._dismiss(_REMOVED)
                self.system.exit(self.address)
            case GroupNews(out=out):
                if self._context.groups.suspended:
                    self._tell()
                else:
                    self._known = False
                    self.begin(self._without(out) if out else self._refresh(), self._not_done)
            case _Tick(at=at):
                self._tick(at)
            case _:
                assert_never(message)

    def stopped(self) -> None:
        """Tell the members that are left, and give the address back."""
        text = "The node has ended this group's actor: join anew"
        self._dismiss(RequestError("actor.stopped", text, retryable=True))
        router = self._context.router
        if router.table.get(self._own_address) is self.address:
            router.unregister(self._own_address)
        if self._view is not None:
            self._context.groups.remove(self._view)
            self._context.access.rights.unwatch(self._stream, self.address)
            if self._view.shared and any(
                one.node == self._node for one in self._view.state.members
            ):
                self._context.groups.leave_behind(self._own_address)

    def may_passivate(self) -> bool:
        """Whether it has no members."""
        return not self._here

    def described(self, address: bytes) -> Described:
        """The group, and how many members it has."""
        members = () if self._view is None else self._view.state.members
        name = f"{self._name} of {self._stream}: {len(members)} members"
        kept = "its members end it: each leaves, or its link is closed"
        return Described("group", name, made_at=self._made_at, open_to="owner", kept=kept)

    # The record ------------------------------------------------------------------------------

    async def _find(self) -> None:
        """Find the stream, and read the record.

        Raises:
            RequestError: `stream.unknown`; `queue.name`, a work queue has the name.
            StoreError: that cannot be told.
        """
        context, find = self._context, FindStream(name=self._stream)
        with context.removals as removed:
            await read(context.store, find)
            while find.record is not None and find.record.id in removed:
                find = FindStream(name=self._stream)
                await read(context.store, find)
            if find.record is None:
                raise unknown_stream(self._stream)
            self._stream_id, self._partitions = find.record.id, find.record.partitions
            self._created_at = find.record.created_at
            name = record_name(self._stream_id, self._name)
            self._view = GroupView(self._stream, self._name, name, self.address, GroupState())
            context.groups.add(self._view)
            context.access.rights.watch(self._stream, self.address)
        await queue_record(context.store, self._stream, self._name)
        await self._refresh()

    @property
    def _node(self) -> str:
        """Whose members' links are this instance's, as the record has it."""
        return f"{self._context.groups.node}.{self._instance}"

    @property
    def _shown(self) -> GroupView:
        assert self._view is not None, "nothing is done before the stream is found"
        return self._view

    async def _refresh(self) -> None:
        """Read the record, where it may be another by now."""
        async with self._orders.of(_RECORD):
            if not self._known:
                await self._look()

    async def _look(self) -> None:
        look = GetRecord(key=self._shown.record_name)
        self._known = True  # what comes meanwhile makes it look again
        try:
            await read(self._context.store, look)
        except StoreError:
            self._known = False
            raise
        self._version, self._lasts = look.version, look.lasts
        self._look_at = self._now() + LOOK_SECONDS
        self._shown.shared = not self._lasts
        self._take(GroupState.decode(look.value))

    def _take(self, state: GroupState) -> None:
        """This is the group now."""
        self._shown.state = state
        others = {one.node for one in state.members} - {self._node}
        here = f"{self._context.groups.node}."
        before = {node for node in others if self._lasts or node.startswith(here)}
        self._before = {node: self._before.get(node, self._now()) for node in before}
        self._context.groups.meet({node_of(node) for node in others - before})
        mine = {one.id for one in state.members if one.node == self._node}
        alone = mine - self._here.keys()
        self._orphans = {one: self._orphans.get(one, self._now()) for one in alone}
        self._tell()
        self._arm()

    async def _change(self, change: Callable[[GroupState], GroupState]) -> None:
        """Make the group another, for good.

        Raises:
            RequestError: that cannot be.
            StoreError: it is not written.
        """
        async with self._orders.of(_RECORD):
            for _ in range(TRIES_MAX):
                if not self._known:
                    await self._look()
                before, name = self._shown.state, self._shown.record_name
                after = change(before)
                if after is before:
                    return
                if self._lasts and not (before.holds or after.holds):
                    # Single consumers keep the name as long as they have links to this node, which
                    # nobody else needs to know.
                    self._take(after)
                    return
                put = PutRecords(records=[(name, after.encode())], seen=[(name, self._version)])
                self._known = False
                try:
                    await write(self._context.store, put)
                except StoreError as error:
                    if error.code != "store.fenced":
                        raise
                else:
                    await self._look()
                    return
            raise _BUSY

    async def _settle(self) -> None:
        """Give out what nobody has."""
        await self._change(lambda state: left(state, frozenset(), self._partitions))

    # Requests --------------------------------------------------------------------------------

    def _lacking(self, origin: Origin) -> str:
        return lacking(self._context.access, origin.principal, self._stream)

    async def _serve(self, ask: _Ask) -> None:
        try:
            request = decode_request(ask.wire.payload, speaks_native=ask.origin.native)
        except CodecError as error:
            if not is_error(error):
                ask.reply(invalid_request(error))
            return
        if type(request) not in native.MESSAGES:
            ask.reply(invalid_request(request))
            return
        ask.request = request
        if self._refusal is not None:
            raise self._refusal
        if verb := self._lacking(ask.origin):  # since this was sent
            raise not_granted("stream.unknown", ask.origin.principal, verb, self._stream)
        match request:
            case native.JoinGroupRequest(member=token):
                # Who leaves before it has joined must not stay for ever.
                async with self._orders.of(token):
                    await self._join(ask, request)
            case native.LeaveGroupRequest(member=token):
                async with self._orders.of(token):
                    here = self._here.get(token.hex())
                    if here is not None and here.origin.principal == ask.origin.principal:
                        await self._leave([here])
                self._done(ask)
            case native.BeatGroupRequest(member=token):
                here = self._well(ask, token)
                milliseconds = int(1_000 * self._lease(here))
                lease = native.GroupLeaseResponse(request.request_id, milliseconds)
                ask.reply(native.encode(lease))
            case native.ReleaseGroupRequest(member=token, partitions=parts):
                here = self._well(ask, token)
                held = {one.partition: one.generation for one in parts}
                await self._change(lambda state: released(state, here.id, held, self._partitions))
                self._done(ask)
            case native.SaveGroupRequest():
                await self._save(ask, request)
            case _:
                ask.reply(invalid_request(request))

    def _done(self, ask: _Ask) -> None:
        ask.reply(native.encode(native.DoneResponse(ask.request.request_id)))

    def _well(self, ask: _Ask, token: bytes) -> _Here:
        """The member that asks, which is well. Raises RequestError: there is none."""
        here = self._here.get(token.hex())
        if here is None or here.origin.principal != ask.origin.principal:
            raise _OUT
        here.heard_at = self._now()
        return here

    def _lease(self, here: _Here) -> float:
        """For how many seconds from now nobody else gets what a member has.

        Whatever becomes meanwhile of its link, of this actor or of this node.
        """
        if here.leaving or not here.joined or here.node != self._node:
            return 0.0
        seconds = min(LEASE_SECONDS, here.due_at - self._now())
        if self._shown.shared:
            vouched_at = self._context.groups.vouched_at
            seconds = min(seconds, vouched_at + LEASE_SECONDS - self._context.clock.elapsed())
        return max(0.0, seconds)

    async def _join(self, ask: _Ask, request: native.JoinGroupRequest) -> None:
        origin, route = ask.origin, ask.wire.return_route
        if not leads_out(self._context.router, origin, route) or len(route) > _DIRECT_HOPS:
            raise _FAR
        if request.created_at not in (0, self._created_at):
            raise _REMOVED
        if len(request.member) != TOKEN_BYTES:
            raise RequestError("group.member", f"A member's token has {TOKEN_BYTES} bytes")
        if not self._lasts:
            await self._vouched()
        here = _Here(
            request.member.hex(), origin, route, request.request_id, self._node, self._now()
        )
        member = Member(here.id, here.node, origin.principal, request.shared)
        links, before = self._context.groups.links, self._here.get(here.id)
        if before is None and links[origin.account] >= GROUPS_PER_LINK_MAX:
            text = f"A link has at most {GROUPS_PER_LINK_MAX:,} members of groups"
            raise RequestError("group.limit", text)
        if before is not None:
            if before.origin.principal != origin.principal:
                raise _OUT  # a token that it cannot know
            self._forget(before)
        self._here[here.id] = here
        links[origin.account] += 1
        origin.watch(self.address)
        try:
            await self._change(lambda state: joined(state, member, self._partitions))
        except StoreError:
            self._lose([here])  # it may be written all the same
            raise
        except BaseException:
            self._forget(here)
            raise
        if self._here.get(here.id) is not here:
            raise _OUT
        here.joined = True
        self._tell()
        self._arm()

    async def _vouched(self) -> None:
        """See that others know of this node. Raises RillnodeError: they could not be told."""
        nodes = self._context.groups.nodes
        assert nodes is not None, "it is there before any group is"
        vouched: Vouched = await self.ask(nodes, Vouch())
        if vouched.error is not None:
            raise vouched.error

    async def _save(self, ask: _Ask, request: native.SaveGroupRequest) -> None:
        """Save a position, as long as the record says that the partition is the member's."""
        here = self._well(ask, request.member)
        key = SavedIndexKey(self._stream, request.partition, self._name)
        indexes = self._context.router.table[ADDRESSES[0]]
        for _ in range(TRIES_MAX):
            await self._refresh()
            hold = self._shown.state.holds.get(request.partition)
            if hold != Hold(here.id, request.generation):
                raise _LATE
            seen = () if self._lasts else ((self._shown.record_name, self._version),)
            asked = AskPosition(key, request.index, seen, self._created_at)
            saved: Position = await self.ask(indexes, asked)
            if saved.error is None:
                response = native.SavedIndexResponse(request.request_id, saved.index)
                ask.reply(native.encode(response))
                return
            if saved.error.code != "store.fenced":
                raise saved.error
            self._known = False
        raise _BUSY

    # Members ---------------------------------------------------------------------------------

    def _tell(self) -> None:
        """Tell members what they have, where that is another; and those that are out.

        While other nodes may take this one for dead they have nothing.
        """
        state = self._shown.state
        suspended = self._context.groups.suspended
        found = {} if suspended else claims(state, self._partitions)
        mine = {one.id for one in state.members if one.node == self._node}
        for here in [one for one in self._here.values() if one.joined and not one.leaving]:
            if here.id not in mine:
                self._refuse(here, _OUT)
            elif (has := found.get(here.id, NOTHING)) != here.told:
                self._answer(here, has)

    def _answer(self, here: _Here, has: Claims) -> None:
        """Tell a member what it has."""
        before, here.told = here.told or NOTHING, has
        if has.held and not before.held:
            here.heard_at = self._now()
        if has.asked != before.asked:
            here.asked_at = self._now() if has.asked else inf
        held = [native.HeldPartition(*one) for one in has.held]
        generation = self._shown.state.generation
        response = native.GroupResponse(here.request_id, generation, held, list(has.asked))
        self._send(here, native.encode(response))

    def _send(self, here: _Here, payload: bytes) -> None:
        if not here.origin.ended:
            answer = (here.return_route, payload)
            self._context.router.reply(here.origin, self._own_address, [answer])

    def _refuse(self, here: _Here, error: RequestError) -> None:
        """A member is out, and told why."""
        self._forget(here)
        self._send(here, failed(here.request_id, error))

    def _dismiss(self, error: RequestError) -> None:
        """All members here are out."""
        for here in list(self._here.values()):
            self._refuse(here, error)

    def _forget(self, here: _Here) -> None:
        """A member is here no more; harmless when repeated."""
        if self._here.get(here.id) is not here:
            return
        del self._here[here.id]
        self._context.groups.links.drop(here.origin.account)
        if not any(one.origin is here.origin for one in self._here.values()):
            here.origin.unwatch(self.address)

    async def _leave(self, gone: Iterable[_Here]) -> None:
        """Have members out of the group, unless they have come anew by then.

        Where that cannot be written they are lost, and it is tried again.

        Raises:
            StoreError: it is not written.
        """
        leaving = list(gone)
        for here in leaving:
            here.leaving = True

        def change(state: GroupState) -> GroupState:
            ids = {one.id for one in leaving if self._here.get(one.id) is one}
            return left(state, ids, self._partitions)

        try:
            await self._change(change)
        except StoreError:
            self._lose(leaving)
            raise
        for here in leaving:
            self._forget(here)

    def _lose(self, gone: Iterable[_Here]) -> None:
        """Have members out of the group once that can be written."""
        for here in gone:
            here.leaving, here.lost_at = False, -inf
        self._retry_at = self._now() + RETRY_SECONDS
        self._arm()

    def _revoke(self, revoked: Iterable[_Here]) -> None:
        """Tell members that they are out, and wait as for lost ones until they must know."""
        for here in revoked:
            if here.joined:
                here.joined = False
                self._send(here, failed(here.request_id, _REVOKED))
            here.lost_at = min(here.lost_at, self._now())
        self._arm()

    def _give_up(self, gone: Iterable[_Here], error: RequestError) -> None:
        """Have members out of the group that have not asked for that, and tell them."""
        leaving = list(gone)
        for here in leaving:
            if here.joined:
                here.joined = False  # it is told once, however often that cannot be written
                self._send(here, failed(here.request_id, error))
        if leaving:
            self.begin(self._leave(leaving), self._not_done)

    def _not_done(self, error: RillnodeError) -> None:
        logger.warning("group_not_changed", extra={"group": self._name, "code": error.code})

    # Time ------------------------------------------------------------------------------------

    def _now(self) -> float:
        return self.system.timing.monotonic()

    def _arm(self) -> None:
        """Have a tick when the next thing is due."""
        due = [one.due_at for one in self._here.values()]
        due += [one.asked_at + RELEASE_SECONDS for one in self._here.values()]
        due += [since + LEASE_SECONDS for since in self._before.values()]
        due += [since + LEASE_SECONDS for since in self._orphans.values()]
        if self._here and not self._lasts:
            due.append(self._look_at)
        at = max(min(due, default=inf), self._retry_at)
        if at < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = at
            self._timer = self.wake_after(max(0.0, at - self._now()), _Tick(at))

    def _tick(self, at: float) -> None:
        self._timer, self._timer_at = None, inf
        now = self._now()
        if now - at > LATE_SECONDS:
            self._wait(now - at)
        lost = [one for one in self._here.values() if one.due_at <= now]
        silent = [one for one in lost if one.lost_at == inf]
        self._give_up(lost, _OUT)
        if silent:
            logger.warning("members_silent", extra={"group": self._name, "members": len(silent)})
        away = {node for node, since in self._before.items() if since + LEASE_SECONDS <= now}
        if away:
            self._before |= dict.fromkeys(away, now)  # not again before this has come to something
        orphans = {one for one, since in self._orphans.items() if since + LEASE_SECONDS <= now}
        self._orphans |= dict.fromkeys(orphans, now)
        if (away or orphans) and not self._context.groups.suspended:
            self.begin(self._without(away, orphans), self._not_done)
        for here in [one for one in self._here.values() if one.asked_at + RELEASE_SECONDS <= now]:
            here.asked_at = now
            self.begin(self._take_back(here), self._not_done)
        if self._here and not self._lasts and self._look_at <= now:
            self._look_at = now + LOOK_SECONDS
            self._known = False
            self.begin(self._refresh(), self._not_done)
        self._arm()

    def _wait(self, seconds: float) -> None:
        """Signs of life wait behind this turn."""
        for here in self._here.values():
            here.heard_at += seconds
        self._before = dict.fromkeys(self._before, self._now())

    async def _without(self, nodes: Set[str], orphans: Set[str] = frozenset()) -> None:
        """Nodes, or instances of before, are gone with their members; so are some of this one."""

        def change(state: GroupState) -> GroupState:
            gone = {one.id for one in state.members if {one.node, node_of(one.node)} & nodes}
            return left(state, gone | (orphans - self._here.keys()), self._partitions)

        await self._change(change)

    async def _take_back(self, here: _Here) -> None:
        """Take what a member does not give up."""
        asked = set(() if here.told is None else here.told.asked)

        def change(state: GroupState) -> GroupState:
            held = {number: hold.generation for number, hold in state.holds.items()}
            taken = {number: held[number] for number in asked & held.keys()}
            return released(state, here.id, taken, self._partitions)

        await self._change(change)


def lacking(access: Access, principal: str, stream: str) -> str:
    """What somebody may not do with a stream that a consumer does: nothing, mostly."""
    verbs = access.verbs(principal, stream)
    return next((verb for verb in ("pull", "subscribe") if verb not in verbs), "")
