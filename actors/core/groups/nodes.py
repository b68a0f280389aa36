"""Tells other nodes of a shared store that this one is well, and puts those out that are not.

A node that has members of groups has a record, which it writes again and again: each time it is
another, and follows from the one before. Who sees one that has stayed the same for as long as a
lease removes it, if it still is the same. So of the two the log takes whichever comes first, and
the other knows: either the node is well, or it is out, and no lease of its members is longer than
what it has written last. Only then others take what these had, whenever that is.

How late a node hears of another, and what it does not hear, makes a removal late or in vain, and
never wrong. A node that finds its record removed goes on under another name, to which its members
come anew.
"""

from collections.abc import Coroutine, Iterable, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, Final, assert_never

from rillnode.actors.core.groups.group import GroupActor
from rillnode.actors.core.groups.heard import HeardNodes
from rillnode.actors.core.groups.registry import (
    LEASE_SECONDS,
    GroupNews,
    LeftBehind,
    Meet,
    Vouch,
    Vouched,
)
from rillnode.actors.core.groups.state import NODES
from rillnode.actors.core.orders import Orders
from rillnode.actors.core.streams.context import StreamContext
from rillnode.actors.engine.cell import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import GetRecord, PutRecords, WatchValues, version_of
from rillnode.actors.log.records import GROUPS
from rillnode.actors.log.waiting import read, write
from rillnode.actors.ports import TimerHandle
from rillnode.codecs.errors import RillnodeError, StoreError
from rillnode.codecs.events import event_logger
from rillnode.codecs.group_address import parse_group_address

logger = event_logger("rillnode.actors.core.groups")

BEAT_SECONDS: Final = 0.7
"""How often a node that has groups tells others that it is well."""

VOUCHED_SECONDS: Final = 1.4
"""How long what it has told holds: less than others wait, so that its members stop before."""

_BEAT: Final = "beat"


@dataclass(frozen=True, slots=True)
class _Overdue:
    """Other nodes may have heard nothing of this one for too long."""


@dataclass(frozen=True, slots=True)
class _Silent:
    """Some node may have been silent for too long."""


@dataclass(frozen=True, slots=True)
class _Again:
    """Groups are to have actors, if they have none by now."""

    addresses: frozenset[bytes]


Message = Vouch | Meet | LeftBehind | _Again | _Overdue | _Silent


class GroupNodes(Worker):
    """A node's word that it is well, and its ear for others that have members of groups."""

    on_failure = "restart"
    interleaves = True
    essential = True

    def __init__(self, context: StreamContext) -> None:
        self._context = context
        self._beating = False
        self._orders = Orders()
        # Of this node's record; None: that is not known.
        self._version: int | None = None
        self._heard = HeardNodes()
        self._said_at = -inf
        self._timer: TimerHandle | None = None
        self._overdue_timer: TimerHandle | None = None

    def started(self) -> None:
        """Be there for the node's groups."""
        groups = self._context.groups
        groups.nodes = self.address
        groups.node = groups.node or self._new_name()
        groups.known = self._heard.names
        self._watch()
        if groups.shared:  # an instance before this one has failed
            self._begin()
            self.begin(self._meet(groups.with_members - {groups.node}), self._not_done)

    def handle(self, message: Message, sender: Cell | None) -> Coroutine[Any, Any, None] | None:
        """Take what groups ask for, and what is due."""
        match message:
            case Vouch():
                return self._vouch_for(sender)
            case Meet(nodes=nodes):
                self.begin(self._meet(nodes), self._not_done)
            case LeftBehind(addresses=addresses):
                self.wake_after(BEAT_SECONDS, _Again(addresses))
            case _Again(addresses=addresses):
                self._wake(addresses)
            case _Overdue():
                self._overdue()
            case _Silent():
                self._look_for_silent()
            case _:
                assert_never(message)
        return None

    def _new_name(self) -> str:
        return self._context.entropy(8).hex()

    def _now(self) -> float:
        return self.system.timing.monotonic()

    def _elapsed(self) -> float:
        return self._context.clock.elapsed()

    def _not_done(self, error: RillnodeError) -> None:
        logger.info("node_not_vouched_for", extra={"code": error.code})

    # This node -------------------------------------------------------------------------------

    async def _vouch_for(self, sender: Cell | None) -> None:
        """See that others know of this node, and will as long as it has groups."""
        vouched = Vouched()
        try:
            async with self._orders.of(_BEAT):
                if self._context.groups.vouched_at == -inf:
                    await self._say()
        except StoreError as error:
            vouched = Vouched(error)
        self._begin()
        if sender is not None:
            self.send(sender, vouched)

    def _begin(self) -> None:
        if not self._beating:
            self._beating = True
            self._heard.wait(self._now())
            self._arm()
            self.begin(self._beat())
            self._overdue()

    async def _beat(self) -> None:
        """Tell other nodes that this one is well, as long as it has groups.

        Its record stands as long as a lease that it may have given.
        """
        groups = self._context.groups
        while groups.shared or self._elapsed() < groups.vouched_at + LEASE_SECONDS:
            await self.sleep(max(0.0, self._said_at + BEAT_SECONDS - self._elapsed()))
            self._said_at = self._elapsed()
            if groups.shared:
                try:
                    async with self._orders.of(_BEAT):
                        await self._say()
                except StoreError as error:
                    self._not_done(error)
        self._beating = False
        name, version = groups.node, self._version
        self._leave()
        if version is not None:
            with suppress(StoreError):
                await self._put(name, None, version)

    async def _say(self) -> None:
        """Write this node's record; it may be out, which it is told of by that.

        Raises:
            StoreError: it is not written, or may not be.
        """
        groups = self._context.groups
        if self._version is None:
            await self._learn_own()
        begun, name, version = self._elapsed(), groups.node, self._version or 0
        self._said_at, self._version = begun, None
        value = self._context.entropy(8)
        await self._put(name, value, version)
        if name == groups.node:
            self._version = version_of(value)
            self._vouch(begun)

    async def _put(self, node: str, value: bytes | None, version: int) -> None:
        """Write a node's record, or remove it, if it is still as it was."""
        name = f"{NODES}{node}"
        await write(
            self._context.store, PutRecords(records=[(name, value)], seen=[(name, version)])
        )

    def _vouch(self, begun: float) -> None:
        """Others have heard, from that time on."""
        groups = self._context.groups
        groups.vouched_at = begun
        if groups.suspended and self._elapsed() - begun < VOUCHED_SECONDS:
            groups.suspended = False
            self._heard.wait(self._now())  # as little as this one could be heard
            groups.tell(GroupNews())

    def _overdue(self) -> None:
        """See whether others may take this node for dead soon."""
        groups = self._context.groups
        left = groups.vouched_at + VOUCHED_SECONDS - self._elapsed()
        if left <= 0.0 and not groups.suspended and groups.vouched_at > -inf:
            logger.warning("groups_suspended")
            groups.suspended = True
            groups.tell(GroupNews())
        if self._overdue_timer is not None:
            self._overdue_timer.cancel()
        if self._beating:
            seconds = left if left > 0.0 else BEAT_SECONDS
            self._overdue_timer = self.wake_after(seconds, _Overdue())

    def _out(self) -> None:
        """Others have put this node out: what its members have is theirs, or will be."""
        logger.warning("groups_out")
        self._leave()
        self._context.groups.tell(GroupNews())

    def _leave(self) -> None:
        """Be known no more under this name; no other node may be by the next one."""
        groups = self._context.groups
        groups.node, groups.vouched_at, groups.suspended = self._new_name(), -inf, False
        self._version = None

    def _wake(self, addresses: Set[bytes]) -> None:
        """Have groups' actors take out whom those before have left: other nodes do not."""
        context = self._context
        for address in sorted(addresses):  # in an order that does not depend on how they are hashed
            parsed = parse_group_address(address)
            if parsed is not None and context.router.table.get(address) is None:
                context.system.spawn(partial(context.actor(GroupActor), context, address, *parsed))

    # Others ----------------------------------------------------------------------------------

    def _watch(self) -> None:
        self._context.store.watch(self.then(WatchValues(prefix=GROUPS), self._changed))

    def _changed(self, news: WatchValues) -> None:
        """Others have changed what is kept of groups and nodes."""
        found = {name: value for name, value in news.changed if name.startswith(NODES)}
        if found:
            self._hear((name.removeprefix(NODES), value) for name, value in found.items())
        self._context.groups.others_changed(name for name, _ in news.changed)
        self._watch()

    def _hear(self, records: Iterable[tuple[str, bytes | None]]) -> None:
        """These are nodes' records, or are no more."""
        groups, out = self._context.groups, set[str]()
        for node, value in records:
            if node == groups.node:
                if value is None and groups.vouched_at > -inf:
                    self._out()
            elif value is None:
                out.add(node)
            else:
                self._heard.hear(node, version_of(value), self._now())
        self._gone(out)
        self._arm()

    def _gone(self, nodes: Set[str]) -> None:
        """Nodes are out."""
        for node in nodes:
            self._heard.forget(node)
        if nodes:
            self._context.groups.tell(GroupNews(frozenset(nodes)))

    async def _learn_own(self) -> None:
        """Read this node's record: it is not known whether what was written last is there.

        Raises:
            StoreError: that cannot be told.
        """
        groups = self._context.groups
        look = GetRecord(key=f"{NODES}{groups.node}")
        await read(self._context.store, look)
        if look.value is not None:
            self._version = look.version
        elif groups.vouched_at > -inf:
            self._out()

    async def _meet(self, nodes: Set[str]) -> None:
        """Read the records of nodes that have had members.

        Who has none is out: a node has one before its first member, and never again under the same
        name.

        Raises:
            StoreError: that cannot be told.
        """
        for node in sorted(nodes):  # in an order that does not depend on hashes
            look = GetRecord(key=f"{NODES}{node}")
            await read(self._context.store, look)
            self._hear([(node, look.value)])

    def _arm(self) -> None:
        """Look when the first node may have been silent for too long."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        at = self._heard.silent_at()
        if at is not None and self._beating:
            self._timer = self.wake_after(max(0.0, at - self._now()), _Silent())

    def _look_for_silent(self) -> None:
        """Put out who is silent, unless this node was: what kept it may have kept others, too."""
        self._timer, now = None, self._now()
        if self._elapsed() > self._context.groups.vouched_at + VOUCHED_SECONDS:
            self._heard.wait(now)
        for node, version in self._heard.take_silent(now):
            self.begin(self._put_out(node, version), self._not_done)
        self._arm()

    async def _put_out(self, node: str, version: int) -> None:
        """Remove the record of a node that has stayed the same for too long."""
        try:
            await self._put(node, None, version)
        except StoreError:
            await self._meet({node})  # it is well, or out by another
        else:
            logger.warning("node_put_out", extra={"node": node})
            self._gone({node})
