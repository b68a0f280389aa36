"""The reader: answers one request with a stream of events or blocks, out of the store.

It reads no faster than its client takes what it sends, and ends with the client's connection.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, assert_never

from rillnode.actors.engine.system import Cell
from rillnode.actors.nextgraph.context import BrokerContext
from rillnode.actors.nextgraph.errands import Errand, ErrandActor, Steps
from rillnode.actors.nextgraph.records import name_of, unpack_block
from rillnode.actors.nextgraph.session import Asked
from rillnode.actors.storage import GetRecords, Operation, Read
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
    """What is to be sent.

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


@dataclass(slots=True, eq=False)
class _Pause(Errand):
    """Time for the connection to write."""

    due: bool = False


class ReaderActor(ErrandActor):
    """One stream of answers."""

    on_failure = "stop"

    def __init__(self, context: BrokerContext, plan: Plan) -> None:
        super().__init__(context.streams.store)
        self._plan = plan
        # On an outer overlay commits are read without the keys of their headers.
        self._strips = isinstance(plan.asked.overlay, OuterOverlay)
        self._sent: set[bytes] = set()
        self._answers = 0
        self._unseen_bytes = 0

    def started(self) -> None:
        """Begin."""
        self.at_once(self._send_all(), self._fail)

    def handle(self, message: Operation, sender: Cell | None) -> None:
        """Take back what it waits for."""
        match message:
            case _Pause(due=False):
                message.due = True
                if self._is_held():
                    self.wake_after(PAUSE_SECONDS, message)
                else:
                    self.system.post(self.address, message)  # the connection has its turn first
            case Operation():
                self.complete(message)
            case _:
                assert_never(message)

    def _fail(self, result: ResultCode) -> None:
        self._plan.asked.refuse(result)
        self.system.exit(self.address)

    def _send_all(self) -> Steps:
        for run in _runs(self._plan.items):
            if isinstance(run, OneBlock):
                yield from self._send_blocks(run)
            else:
                yield from self._send_events(run)
        self._plan.asked.refuse(ResultCode.END_OF_STREAM if self._answers else self._plan.empty)
        self.system.exit(self.address)

    # Events ----------------------------------------------------------------------------------

    def _send_events(self, run: Sequence[OneEvent]) -> Steps:
        at, end = 0, run[-1].index + 1
        while at < len(run):
            item = run[at]
            read = Read(log=item.log, index=item.index, until=end, bytes_max=UNSEEN_BYTES_MAX)
            yield (read,)
            found = {
                entry.index: entry.data
                for block in read.blocks
                for entry in entries_of(block, first=item.index, until=end)
                if entry.kind is EntryKind.NEXTGRAPH
            }
            if item.index not in found:
                yield from self._send_blocks(OneBlock(item.commit, children=True))
                at += 1
                continue
            while at < len(run) and (data := found.get(run[at].index)) is not None:
                self._send_event(EVENT.decode(data), len(data))
                at += 1
            yield from self._pace()

    def _send_event(self, event: Event, size: int) -> None:
        if self._plan.synchronizes:
            self._answer(TopicSyncRes(event), size)
            return
        for block in event.content.blocks:
            self._answer(self._shown(block), size)

    # Blocks ----------------------------------------------------------------------------------

    def _send_blocks(self, item: OneBlock) -> Steps:
        overlay = self._plan.overlay
        waiting = [item.id]
        while waiting:
            block = waiting.pop()
            if block in self._sent:
                continue
            self._sent.add(block)
            keys = [name_of(family, overlay, block) for family in ("published", "block")]
            get = GetRecords(keys=keys)
            yield (get,)
            value = next((value for value in get.values if value is not None), None)
            if value is None:
                continue
            _, found = unpack_block(value)
            shown = self._shown(found)
            self._answer(TopicSyncRes(shown) if self._plan.synchronizes else shown, len(value))
            if item.children:
                waiting += reversed(found.content.children)
            yield from self._pace()

    def _shown(self, block: Block) -> Block:
        return replace(block, commit_header_key=None) if self._strips else block

    # Sending ---------------------------------------------------------------------------------

    def _answer(self, content: ResponseContent, size: int) -> None:
        self._plan.asked.answer(content, ResultCode.PARTIAL_CONTENT)
        self._answers += 1
        self._unseen_bytes += size

    def _pace(self) -> Steps:
        while self._unseen_bytes > UNSEEN_BYTES_MAX or self._is_held():
            self._unseen_bytes = 0
            yield (_Pause(actor=self.address),)

    def _is_held(self) -> bool:
        return self._plan.asked.session.link.buffered_bytes > LINK_BUFFER_HIGH_BYTES


def spawn_reader(context: BrokerContext, plan: Plan) -> None:
    """Make the actor that carries a plan out; it ends with the asker's connection."""
    connection = plan.asked.session.connection
    context.streams.system.spawn(partial(ReaderActor, context, plan), parent=connection)


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
