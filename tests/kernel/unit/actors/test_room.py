"""The room of a link: reads for its peer wait for it, and take turns."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any, cast

import pytest

from actor_support import run, tell
from channel_support import FakeLink, House, connection, frame
from core_support import Core, Link
from coroutines import handed_by, run_with
from link_support import ManualClock
from rillnode.actors.core.access import Grant
from rillnode.actors.core.delivery import Origin
from rillnode.actors.core.links.connection import (
    READS_WAITING_MAX,
    SLICE_FRAMES,
    STALLED_SECONDS,
    ConnectionActor,
    ConnectionEvents,
)
from rillnode.actors.core.room import LOOK_SECONDS, LOOK_SECONDS_MAX, READING_HIGH_BYTES, Room
from rillnode.actors.engine.system import AsyncioSystemBase, Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import LogStore, Read
from rillnode.actors.log.waiting import read
from rillnode.codecs import native
from rillnode.codecs.entries import Block, pack_body
from rillnode.codecs.errors import StoreError
from rillnode.codecs.limits import LINK_BUFFER_HIGH_BYTES
from rillnode.codecs.routing.routes import WireMessage, decode_message
from rillnode.codecs.routing.stream import (
    PullRequest,
    PullResponse,
    decode_response,
    encode_request,
)
from rillnode.node.testing.contract.engines.parts import Boom, Probe, boom

FULL = LINK_BUFFER_HIGH_BYTES + 1


class Disk:
    """Answers reads when it is told to, or at once; all logs hold blocks of `size` bytes."""

    def __init__(self, system: AsyncioSystemBase, size: int, *, at_once: bool = False) -> None:
        self._system = system
        self._size = size
        self._at_once = at_once
        self.under_way: list[Read] = []
        self.logs: list[int] = []

    def read(self, operation: Read) -> bool:
        self.logs.append(operation.log)
        if self._at_once:
            self._fill(operation)
            return True
        self.under_way.append(operation)
        return False

    def answer(self, error: StoreError | None = None) -> None:
        """The longest under way is completed, as the node completes it."""
        operation = self.under_way.pop(0)
        operation.error = error
        if error is None:
            self._fill(operation)
        self._system.post_threadsafe([(operation.reply_to, operation, operation.then)])

    def _fill(self, operation: Read) -> None:
        operation.blocks.append(Block(0, bytes(self._size)))


class Bench:
    """A room, an actor that reads through it, and what that has got."""

    def __init__(self, system: AsyncioSystemBase, clock: ManualClock, disk: Disk) -> None:
        self.system = system
        self.clock = clock
        self.disk = disk
        self.link = Link()
        self.room = Room(cast(LogStore, disk), self.link, clock.call_later)
        self.got: list[Any] = []
        self.reader = system.spawn(partial(Probe, self.got))

    def read(self, *logs: int, bytes_max: int = 1_000, reader: Cell | None = None) -> list[bool]:
        cell = reader or self.reader
        return [self.room.read(Read(reply_to=cell, log=log, bytes_max=bytes_max)) for log in logs]

    @property
    def logs(self) -> list[int]:
        return [operation.log for operation in self.got]

    @property
    def counted(self) -> tuple[int, int, int]:
        return self.room.reading_bytes, self.room.read_bytes, self.room.kept_bytes


def with_bench(
    test: Callable[[Bench], Awaitable[None]], size: int = 10, *, at_once: bool = False
) -> None:
    async def main(system: AsyncioSystemBase, clock: ManualClock) -> None:
        await test(Bench(system, clock, Disk(system, size, at_once=at_once)))

    run(main)


bench = handed_by(with_bench)


async def test_where_there_is_room_a_read_is_the_stores(bench: Bench) -> None:
    assert bench.read(1) == [False]
    assert bench.counted == (1_000, 0, 0)
    bench.disk.answer()
    await bench.system.drain()
    (done,) = bench.got
    assert (done.log, done.reply_to, len(done.blocks)) == (1, bench.reader, 1)
    assert bench.counted == (0, 10, 0)
    bench.room.flushed(0, all_of_it=True)
    assert bench.counted == (0, 0, 0)


@run_with(at_once=True)
async def test_an_answer_that_comes_at_once_is_returned_and_counted(bench: Bench) -> None:
    assert bench.read(1) == [True]
    assert bench.counted == (0, 10, 0)
    await bench.system.drain()
    assert bench.got == []


@run_with(FULL - 1, at_once=True)
async def test_reads_wait_for_the_peer_and_take_turns(bench: Bench) -> None:
    bench.link.buffered_bytes = FULL
    assert bench.read(1, 2, 3) == [False] * 3
    assert bench.disk.logs == []
    bench.link.buffered_bytes = 0
    assert bench.read(4) == [False]  # behind those that wait
    bench.room.look()
    await bench.system.drain()
    assert bench.logs == [1, 2]  # the second is above the mark
    bench.room.flushed(0, all_of_it=True)
    await bench.system.drain()
    assert bench.logs == [1, 2, 3, 4]
    assert bench.room.waiting == 0
    assert bench.clock.timers == 1  # it finds nothing
    bench.clock.advance(LOOK_SECONDS)
    assert bench.clock.timers == 0


@run_with(FULL + 20, at_once=True)
async def test_what_waits_for_its_connection_counts_until_that_has_sent_it(bench: Bench) -> None:
    assert bench.read(1, 2) == [True, False]
    bench.room.flushed(10, all_of_it=False)
    assert bench.counted == (0, FULL + 10, 0)
    assert bench.room.waiting == 1
    bench.room.flushed(20, all_of_it=False)
    assert bench.counted == (0, FULL - 10 + FULL + 20, 0)  # the other was read
    assert bench.room.waiting == 0
    bench.room.post(500)
    bench.room.flushed(0, all_of_it=True)
    assert bench.counted == (0, 0, 0)


async def test_only_so_much_is_read_at_one_time(bench: Bench) -> None:
    bench.read(1, 2, 3, bytes_max=READING_HIGH_BYTES)
    assert bench.disk.logs == [1, 2]
    bench.disk.answer()
    assert bench.disk.logs == [1, 2, 3]
    bench.disk.answer(StoreError("store.read", "not now"))
    bench.disk.answer()
    await bench.system.drain()
    assert [(one.log, one.error is None) for one in bench.got] == [(1, True), (2, False), (3, True)]
    assert bench.counted[0] == 0


async def test_without_a_word_of_the_link_it_is_looked_at_less_and_less_often(bench: Bench) -> None:
    bench.link.buffered_bytes = FULL
    bench.read(1)
    bench.clock.advance(1.5 * LOOK_SECONDS)
    bench.link.buffered_bytes = 0
    bench.clock.advance(0.5 * LOOK_SECONDS)
    assert bench.disk.logs == []
    bench.clock.advance(0.5 * LOOK_SECONDS)
    assert bench.disk.logs == [1]
    bench.link.buffered_bytes = FULL
    bench.read(2)
    bench.clock.advance(60.0)
    bench.link.buffered_bytes = 0
    bench.clock.advance(LOOK_SECONDS_MAX)
    assert bench.disk.logs == [1, 2]


@run_with(FULL, at_once=True)
async def test_an_answer_that_is_lost_on_its_way_takes_no_room_for_ever(bench: Bench) -> None:
    assert bench.read(1, 2) == [True, False]
    bench.clock.advance(20.0)
    await bench.system.drain()
    assert bench.logs == [2]


async def test_what_a_reader_that_is_gone_had_reserved_is_given_back(bench: Bench) -> None:
    other = bench.system.spawn(Probe)
    bench.read(1, bytes_max=READING_HIGH_BYTES + 1, reader=other)
    bench.read(2, reader=other)
    bench.read(3)
    bench.system.exit(other)
    await bench.system.drain()
    bench.disk.answer()
    assert bench.disk.logs == [1, 3]  # what is for nobody is not read
    bench.disk.answer()
    await bench.system.drain()
    assert bench.logs == [3]
    assert bench.counted == (0, 10, 0)


async def test_what_a_failed_reader_had_reserved_is_given_back(bench: Bench) -> None:
    tell(bench.system, bench.reader, boom)
    bench.read(1)
    await bench.system.drain()
    bench.disk.answer()
    assert bench.counted[0] == 0


async def test_at_the_links_end_what_waits_fails_and_what_comes(bench: Bench) -> None:
    bench.link.buffered_bytes = FULL
    gone = bench.system.spawn(Probe)
    bench.read(1)
    bench.read(2, reader=gone)
    bench.system.exit(gone)
    await bench.system.drain()
    bench.room.close()
    await bench.system.drain()
    late = Read(reply_to=bench.reader)
    assert bench.room.read(late)
    errors = [one.error for one in (*bench.got, late)]
    assert [error.code for error in errors if error] == ["link.closed"] * 2
    assert bench.disk.logs == []
    assert bench.clock.timers == 0
    assert not bench.system.dead_letters


@run_with(FULL + 10, at_once=True)
async def test_what_is_sent_bit_by_bit_takes_room_until_it_is_sent(bench: Bench) -> None:
    first = Read(reply_to=bench.reader, log=1)
    assert bench.room.read(first)
    bench.room.keep(first, FULL)
    bench.room.flushed(0, all_of_it=True)
    assert bench.counted == (0, 0, FULL)
    assert bench.read(2) == [False]
    bench.room.sent(FULL)
    await bench.system.drain()
    assert bench.logs == [2]
    assert bench.counted == (0, FULL + 10, 0)


class Reader(Worker):
    """Reads what it is told to, and goes on with that by itself; or waits for it."""

    on_failure = "restart"

    def __init__(self, bench: Bench, got: list[int], late: list[int]) -> None:
        self._bench = bench
        self._got = got
        self._late = late

    async def handle(self, message: int | str, sender: Cell | None) -> None:
        if message == "fail":
            raise Boom(message)
        operation = Read(log=int(message), bytes_max=1_000)
        if isinstance(message, str):
            await read(self._bench.room, operation)
            self._got.append(operation.log)
        elif self._bench.room.read(self.then(operation, self._go_on, self._too_late)):
            self._go_on(operation)

    def _go_on(self, operation: Read) -> None:
        self._got.append(operation.log)

    def _too_late(self, operation: Read) -> None:
        self._late.append(operation.log)


async def test_readers_go_on_with_what_has_waited(bench: Bench) -> None:
    got: list[int] = []
    late: list[int] = []
    reader = bench.system.spawn(partial(Reader, bench, got, late))
    bench.link.buffered_bytes = FULL
    for message in (1, "2"):
        bench.system.post(reader, message)
    await bench.system.drain()
    assert got == []
    bench.link.buffered_bytes = 0
    bench.room.look()
    bench.disk.answer()
    bench.disk.answer()
    await bench.system.drain()
    assert (got, late) == ([1, 2], [])
    assert bench.counted[0] == 0


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("end", ["fail", "exit"])
async def test_readers_that_are_gone_have_an_outcome_and_no_room(
    bench: Bench, end: str, waits: bool
) -> None:
    got: list[int] = []
    late: list[int] = []
    reader = bench.system.spawn(partial(Reader, bench, got, late))
    bench.link.buffered_bytes = FULL if waits else 0
    bench.system.post(reader, 1)
    if end == "fail":
        bench.system.post(reader, end)
    else:
        bench.system.exit(reader)
    await bench.system.drain()
    bench.link.buffered_bytes = 0
    bench.room.look()
    while bench.disk.under_way:
        bench.disk.answer()
    await bench.system.drain()
    assert (got, late) == ([], [1])
    assert (bench.counted[0], bench.room.waiting) == (0, 0)


# Connections -----------------------------------------------------------------------------------

ENTRIES = 64
ENTRY = bytes(60_000)


class SlowLink(FakeLink):
    """Keeps what is sent until its peer takes it."""

    def send(self, messages: Any) -> None:
        super().send(messages)
        self.buffered_bytes += sum(map(len, messages))

    def take(self) -> list[WireMessage]:
        """What the peer takes now: all that there is."""
        frames, self.frames, self.buffered_bytes = self.frames, [], 0
        return [decode_message(frame) for frame in frames]


async def ask_for_all(
    house: House, link: FakeLink, count: int, **info: Any
) -> tuple[ConnectionEvents, ConnectionActor]:
    """Store a partition, and have a link ask for it from its beginning, so often at once."""
    peer = house.core.peer()
    (opened,) = await peer.ask("stream", native.OpenRequest(1, "s", 1))
    address = opened.stream.partitions[0].address
    for _ in range(ENTRIES):
        await peer.ask(address, native.AppendRequest(2, 1, pack_body([ENTRY])))
    house.core.access.add(Grant(who="anonymous", streams="s", may=frozenset(["pull"])))
    link.info = replace(link.info, **info)
    events = connection(house, link)
    request = encode_request(PullRequest(7, 0, ENTRIES))
    events.messages_received([frame(address.decode(), request) for _ in range(count)])
    await house.core.settle()
    (actor,) = [cell.instance for cell in house.context.system.life.roots if is_connection(cell)]
    return events, cast(ConnectionActor, actor)


def is_connection(cell: Cell) -> bool:
    return isinstance(cell.instance, ConnectionActor)


async def test_large_answers_wait_until_the_peer_takes_them(house: House) -> None:
    """All at once they were more than a link may have buffered: it was cut."""
    link = SlowLink()
    events, actor = await ask_for_all(house, link, 60, message_bytes_max=4_194_304)
    answers, most = 0, 0
    while link.frames:
        most = max(most, link.buffered_bytes)
        taken = [decode_response(wire.payload) for wire in link.take()]
        assert [len(cast(PullResponse, one).messages) for one in taken] == [ENTRIES]
        answers += len(taken)
        events.link_drained()
        await house.core.settle()
    assert answers == 60
    assert LINK_BUFFER_HIGH_BYTES < most < LINK_BUFFER_HIGH_BYTES + len(ENTRY) * ENTRIES
    room = actor.origin.own_room
    assert room is not None
    assert (room.reading_bytes, room.read_bytes, room.waiting) == (0, 0, 0)


async def test_who_asks_for_ever_and_takes_nothing_is_read_from_no_more(house: House) -> None:
    link = SlowLink()
    over = READS_WAITING_MAX + 3 * SLICE_FRAMES
    _, actor = await ask_for_all(house, link, over, message_bytes_max=4_194_304)
    for _ in range(100):
        house.core.clock.advance(STALLED_SECONDS)
        await house.core.settle()
    room = actor.origin.own_room
    assert room is not None
    assert READS_WAITING_MAX < room.waiting <= READS_WAITING_MAX + SLICE_FRAMES
    assert link.paused
    assert len(link.frames) == 1


async def test_the_reads_of_a_link_that_is_gone_end_with_it(house: House) -> None:
    link = SlowLink()
    events, actor = await ask_for_all(house, link, 60, message_bytes_max=4_194_304)
    room = actor.origin.own_room
    assert room is not None
    assert room.waiting
    events.link_closed("gone")
    await house.core.settle()
    assert (room.reading_bytes, room.waiting) == (0, 0)
    assert len(link.frames) == 1
    assert actor.origin.room(house.core.store) is room
    assert room.read(Read())


async def test_what_comes_out_of_a_channel_is_read_for_the_link_that_carries_it(core: Core) -> None:
    outer = core.peer().origin
    inner = Origin("ockam:peer", 65_000, native=False, carrier=outer)
    assert inner.room(core.store) is None
    outer.link, outer.connection = FakeLink(), core.system.spawn(Probe)
    room = inner.room(core.store)
    assert room is not None
    assert room is outer.room(core.store)


async def test_a_link_that_ended_before_anything_was_read_has_no_room(core: Core) -> None:
    origin = Origin("noise:peer", 65_000, native=True, link=FakeLink())
    origin.connection = core.system.spawn(Probe)
    origin.end()
    room = origin.room(core.store)
    assert room is not None
    assert room.read(Read())
