"""Work on all streams of a node is done in slices: a turn does a bounded part of it."""

from collections.abc import Iterable

import pytest

from core_support import Core
from rillnode.actors.core.streams import index_service, retention, service
from rillnode.actors.core.streams.listing import ANSWER_PARTS
from rillnode.actors.core.streams.retention import SWEEP_SECONDS
from rillnode.actors.core.streams.revising import EnsureStream
from rillnode.actors.log import FOR_EVER, PAGE_LOGS, PAGE_STREAMS, Retention
from rillnode.codecs import native
from rillnode.codecs.limits import PARTITIONS_MAX
from rillnode.codecs.routing.stream import PushRequest
from turn_support import counted_by_turn

LIMITED = Retention(entries_max=1)


async def make(
    core: Core, names: Iterable[str], partitions: int = 1, limits: Retention = FOR_EVER
) -> None:
    for name in names:
        core.system.post(core.streams, EnsureStream(name, partitions, limits))
    await core.settle(200)


async def listed(core: Core) -> list[native.StreamInfo]:
    """All streams, answer by answer."""
    found: list[native.StreamInfo] = []
    peer, after = core.peer(), ""
    while True:
        (answer,) = await peer.ask("stream", native.ListRequest(1, "", after))
        found += answer.streams
        after = answer.next_after
        if not after:
            return found


async def test_a_list_describes_a_page_of_streams_in_each_turn(core: Core) -> None:
    names = [f"s{number:04}" for number in range(1_200)]
    await make(core, names)
    with counted_by_turn(service, "stream_info") as described:
        found = await listed(core)
    assert [info.name for info in found] == names
    assert described.total == len(names)
    assert described.most <= PAGE_STREAMS


async def test_a_list_of_streams_of_many_partitions_comes_in_answers_that_fit_a_frame(
    core: Core,
) -> None:
    # The longest names there are, each byte of which is three in an address.
    names = [f"{number}{'ü' * 255}" for number in range(6)]
    await make(core, names, PARTITIONS_MAX)
    with counted_by_turn(native, "PartitionInfo") as described:
        found = await listed(core)
    assert [info.name for info in found] == names
    assert all(len(info.partitions) == PARTITIONS_MAX for info in found)
    assert described.total == len(names) * PARTITIONS_MAX
    assert described.most < ANSWER_PARTS + PARTITIONS_MAX


async def test_a_list_of_positions_looks_at_a_page_of_them_in_each_turn(core: Core) -> None:
    peer, found = core.peer(), list[native.SavedIndex]()
    consumers = [f"c{number:04}" for number in range(1_200)]
    saves = [native.SaveIndexRequest(1, consumer, "s", 0, 1) for consumer in consumers]
    await peer.ask("stream_index", *saves)
    await core.settle(200)
    last: native.SavedIndex | None = native.SavedIndex("", 0, "", 0)
    with counted_by_turn(core.access, "allows") as looked_at:
        while last is not None:
            place = (last.stream, last.partition, last.client_id)
            request = native.ListIndexesRequest(1, "", *place)
            (answer,) = await peer.ask("stream_index", request)
            found += answer.indexes
            last = answer.last
    assert [one.client_id for one in found] == consumers
    assert looked_at.most <= index_service.PAGE_INDEXES


@pytest.mark.parametrize(("streams", "partitions"), [(1_000, 1), (1, 1_000), (7, 100)])
async def test_a_sweep_submits_a_slice_of_trims_in_each_turn(
    core: Core, streams: int, partitions: int
) -> None:
    await make(core, (f"s{number}" for number in range(streams)), partitions, LIMITED)
    with counted_by_turn(core.store, "submit") as submitted:
        core.clock.advance(SWEEP_SECONDS + 0.1)
        await core.settle(200)
    assert submitted.total == streams * partitions
    assert submitted.most <= retention.SLICE_TRIMS


async def test_a_sweep_passes_over_what_has_not_reached_its_age(core: Core) -> None:
    await make(core, ("s0", "s1", "s2"), 1, Retention(seconds=100.0))
    await make(core, ("counted",), 1, Retention(seconds=100.0, entries_max=9))
    peer = core.peer()
    for name in ("s0", "s1", "s2", "counted"):
        (opened,) = await peer.ask("stream", native.OpenRequest(1, name, 1))
        await peer.ask(opened.stream.partitions[0].address, PushRequest(1, b"x"))

    async def submitted(seconds: float) -> int:
        with counted_by_turn(core.store, "submit") as trims:
            core.clock.advance(seconds)
            await core.settle(200)
        return trims.total

    sweep = SWEEP_SECONDS + 0.1
    assert [await submitted(sweep) for _ in range(3)] == [4, 1, 1]
    await make(core, ("s0",), 1, Retention(seconds=12.0))  # and now it is over that
    assert [await submitted(sweep) for _ in range(2)] == [2, 2]  # what is empty is looked at
    await make(core, ("s1",), 1, FOR_EVER)
    core.clock.advance(80.0)
    await core.settle(200)
    # s2 too has reached its age, and is empty then.
    assert await submitted(sweep) == 3
    described = await peer.ask("stream", native.DescribeRequest(1, "s2"))
    assert described[0].stream.partitions[0].first_index == 1


async def test_the_streams_that_are_there_at_the_start_are_counted_page_by_page(core: Core) -> None:
    await make(core, (f"w{number}" for number in range(20)), 200)
    await make(core, (f"s{number}" for number in range(1_000)))
    with counted_by_turn(retention.RetentionActor, "_note") as noted:
        core.system.post(core.retention, retention.Recount())
        await core.settle(200)
    assert noted.total == 1_020
    assert noted.most <= PAGE_STREAMS
    # Those of many partitions fill a page each few: it ends with so many logs.
    assert noted.turns[-1] <= PAGE_LOGS // 200 + 1
