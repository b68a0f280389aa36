"""The reader: answers one request with a stream of events or blocks, out of the store.

It reads no faster than its client takes what it sends, and ends with the client's connection.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from msgspec.structs import replace
from thespian.actors import ActorAddress

from rillnode.actors.log import GetRecords, Read
from rillnode.actors.nextgraph.actor import BrokerActor, Question
from rillnode.actors.nextgraph.context import BrokerContext
from rillnode.actors.nextgraph.records import name_of, unpack_block
from rillnode.actors.nextgraph.session import Asked
from rillnode.codecs.entries import EntryKind, entries_of
from rillnode.codecs.limits import LINK_BUFFER_HIGH_BYTES
from rillnode.codecs.nextgraph.blocks import Block
from rillnode.codecs.nextgraph.events import EVENT, Event
from rillnode.codecs.nextgraph.responses import ResponseContent, TopicSyncRes
from rillnode.codecs.nextgraph.results import ResultCode
from rillnode.codecs.nextgraph.types import OuterOverlay

PAUSE_SECONDS: Final = 0.005
"""How often a reader looks whether its client has taken enough to go on."""

UNSEEN_BYTES_MAX: Final = 262_144
"""What a reader sends before it lets the connection write, and looks at what waits there."""

ANSWERS_MAX: Final = 2 * UNSEEN_BYTES_MAX // 32
"""Answers that a reader has sent by then: none is smaller than an id."""

RUN_EVENTS_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class OneEvent:
    """An event of a topic's log, and the commit that it brought."""

    log: int
    index: int
    commit: bytes


@dataclass(frozen=True, slots=True)
class OneBlock:
    """A block, and if asked for all below it."""

    id: bytes
    children: bool


Item = OneEvent | OneBlock


@dataclass(frozen=True, slots=True)
class Plan:
    """The list of what is to be sent.

    Attributes:
        overlay: id of the inner overlay that the blocks are of.
        items: in order; what is not there is left out, an event whose entry is gone is sent as
            its commit's blocks.
        empty: the result where nothing is there at all.
        synchronizes: events are sent as they are; otherwise the blocks of each.
    """

    asked: Asked
    overlay: bytes
    items: Sequence[Item]
    empty: ResultCode
    synchronizes: bool = False


class CatchUp(Question[None]):
    """To a connection: reply when all that was sent to it before is with its link."""


class ReaderActor(BrokerActor):
    """An answer of many parts."""

    on_failure = "stop"

    _plan: Plan
    _strips: bool

    def __init__(self, context: BrokerContext) -> None:
        super().__init__(context)
        self._sent: set[bytes] = set()
        self._answers = 0
        self._unseen_bytes = 0

    async def handle(self, message: Plan, sender: ActorAddress | None) -> None:
        """Take the plan, carry it out, and end."""
        self._plan = message
        # On an outer overlay commits are read without the keys of their headers.
        self._strips = isinstance(message.asked.overlay, OuterOverlay)
        await self.carry_out(message.asked, self._send_all())
        self.system.exit(self.address)

    async def _send_all(self) -> None:
        for run in _runs(self._plan.items):
            if isinstance(run, OneBlock):
                await self._send_blocks(run)
            else:
                await self._send_events(run)
        self._plan.asked.refuse(ResultCode.END_OF_STREAM if self._answers else self._plan.empty)

    # Events ----------------------------------------------------------------------------------

    async def _send_events(self, run: Sequence[OneEvent]) -> None:
        at, end = 0, run[-1].index + 1
        while at < len(run):
            item = run[at]
            read = Read(log=item.log, index=item.index, until=end, bytes_max=UNSEEN_BYTES_MAX)
            await self.read(read)
            found = {
                entry.index: entry.data
                for block in read.blocks
                for entry in entries_of(block, first=item.index, until=end)
                if entry.kind is EntryKind.NEXTGRAPH
            }
            if item.index not in found:
                await self._send_blocks(OneBlock(item.commit, children=True))
                at += 1
                continue
            while at < len(run) and (data := found.get(run[at].index)) is not None:
                self._send_event(EVENT.decode(data), len(data))
                at += 1
            await self._pace()

    def _send_event(self, event: Event, size: int) -> None:
        if self._plan.synchronizes:
            self._answer(TopicSyncRes(event), size)
            return
        for block in event.content.blocks:
            self._answer(self._shown(block), size)

    # Blocks ----------------------------------------------------------------------------------

    async def _send_blocks(self, item: OneBlock) -> None:
        overlay = self._plan.overlay
        waiting = [item.id]
        while waiting:
            block = waiting.pop()
            if block in self._sent:
                continue
            self._sent.add(block)
            keys = [name_of(family, overlay, block) for family in ("published", "block")]
            get = GetRecords(keys=keys)
            await self.read(get)
            value = next((value for value in get.values if value is not None), None)
            if value is None:
                continue
            _, found = unpack_block(value)
            shown = self._shown(found)
            self._answer(TopicSyncRes(shown) if self._plan.synchronizes else shown, len(value))
            if item.children:
                waiting += reversed(found.content.children)
            await self._pace()

    def _shown(self, block: Block) -> Block:
        return replace(block, commit_header_key=None) if self._strips else block

    # Sending ---------------------------------------------------------------------------------

    def _answer(self, content: ResponseContent, size: int) -> None:
        self._plan.asked.answer(content, ResultCode.PARTIAL_CONTENT)
        self._answers += 1
        self._unseen_bytes += size

    async def _pace(self) -> None:
        while self._unseen_bytes > UNSEEN_BYTES_MAX or self._is_held():
            self._unseen_bytes = 0
            await self.question(self._plan.asked.session.connection, CatchUp())
            if self._is_held():
                await self.sleep(PAUSE_SECONDS)

    def _is_held(self) -> bool:
        return self._plan.asked.session.link.buffered_bytes > LINK_BUFFER_HIGH_BYTES


def spawn_reader(context: BrokerContext, plan: Plan) -> None:
    """Make the actor that carries a plan out; it ends with the asker's connection."""
    system, connection = context.streams.system, plan.asked.session.connection
    if not connection.exited:
        system.post(system.spawn(partial(ReaderActor, context), parent=connection), plan)


def _runs(items: Sequence[Item]) -> list[list[OneEvent] | OneBlock]:
    """The items, with events that stand one after the other in the log put together."""
    runs: list[list[OneEvent] | OneBlock] = []
    for item in items:
        last = runs[-1] if runs else None
        if isinstance(item, OneBlock):
            runs.append(item)
        elif (
            isinstance(last, list)
            and len(last) < RUN_EVENTS_MAX
            and item.index == last[-1].index + 1
        ):
            last.append(item)
        else:
            runs.append([item])
    return runs
