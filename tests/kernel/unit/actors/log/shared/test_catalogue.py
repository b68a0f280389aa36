"""Lists over all shards, and who puts into the catalogue what became of a stream."""

import asyncio
from typing import Any

import pytest

from coroutines import handed_by
from rillnode.actors.log import (
    FindStream,
    GetRecord,
    ListIndexes,
    ListStreams,
    Operation,
    PutStream,
    RemoveStream,
    SavedIndexKey,
    SaveIndex,
    StreamRecord,
    WatchRecords,
)
from rillnode.actors.log.shared import catalogue
from rillnode.codecs.errors import StoreError
from shared_nodes import (
    ANSWER_SECONDS,
    Cluster,
    code,
    name_in,
    until,
    with_cluster,
    with_disks,
)

cluster = handed_by(with_cluster)
disks = handed_by(with_disks)


def passed_over(operation: Operation) -> None:
    """Stands for a node that dies before it can do this."""
    del operation


async def test_streams_and_positions_are_listed_over_all_shards_in_order(cluster: Cluster) -> None:
    one, other = cluster.nodes(2)
    names = sorted(f"s{number:02}" for number in range(20))
    keys = [SavedIndexKey(name, 0, "c") for name in names]
    for number, name in enumerate(names):
        log = await one.stream(name)
        await one.push(log, *[b"x"] * (number + 1))
        await one.write(SaveIndex(key=keys[number], index=number))
    await one.write(RemoveStream(name="s07"))
    del names[7], keys[7]
    await other.read(GetRecord(key="fresh"))
    found: list[str] = []
    ends: list[int] = []
    more = True
    while more:
        page = await other.read(ListStreams(after=found[-1] if found else "", limit=6))
        assert len(page.records) == len(page.extents) <= 6
        found += [record.name for record in page.records]
        ends += [extents[0].next_index for extents in page.extents]
        more = page.more
    assert found == names
    assert ends == [int(name[1:]) + 1 for name in names]
    listed: list[SavedIndexKey] = []
    while True:
        after = listed[-1] if listed else None
        indexes = (await other.read(ListIndexes(after=after, limit=7))).indexes
        if not indexes:
            break
        listed += [key for key, _ in indexes]
    assert listed == keys
    prefixed = await other.read(ListStreams(prefix="s1"))
    assert [record.name for record in prefixed.records] == names[9:19]


async def test_only_streams_at_hand_are_listed_where_that_is_asked_for(cluster: Cluster) -> None:
    one, other = cluster.nodes(2)
    for number in range(3):
        await one.stream(name_in(number))
    log = (await other.read(FindStream(name=name_in(1)))).record
    assert log is not None
    await other.read(GetRecord(key="fresh"))
    page = await other.read(ListStreams(at_hand=True))
    assert {record.name for record in page.records} == {name_in(0), name_in(1)}


async def test_names_are_listed_without_a_view_but_that_of_the_catalogue(cluster: Cluster) -> None:
    one, other = cluster.nodes(2)
    names = sorted(name_in(number) for number in range(3))
    for name in names:
        await one.stream(name)
    await other.read(GetRecord(key="fresh"))
    page = await other.read(ListStreams(names_only=True, limit=2))
    rest = await other.read(ListStreams(names_only=True, after=page.records[-1].name))
    assert [record.name for record in (*page.records, *rest.records)] == names
    assert (page.more, rest.more) == (True, False)
    assert [view["shard"] for view in other.store.describe()["views"]] == [0]


@pytest.mark.parametrize("what", ["made", "changed", "removed"])
async def test_what_became_of_a_stream_is_listed_by_another_node(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    one, other = cluster.nodes(2)
    name = name_in(1)
    log = await one.stream(name_in(1, but=[name]))
    await other.fresh(log)
    if what != "made":
        await one.stream(name)
    monkeypatch.setattr(one.store.shards[0], "submit", passed_over)
    write: Any = RemoveStream(name=name)
    record = (await one.read(FindStream(name=name))).record
    if what == "made":
        write = PutStream(record=StreamRecord(name=name))
    elif what == "changed":
        assert record is not None
        changed = StreamRecord(name=name, id=record.id, owner="somebody")
        write = PutStream(record=changed)
    one.store.submit(write)
    await asyncio.sleep(0.1)
    await one.die()
    await asyncio.sleep(catalogue.LISTING_SECONDS + 1.0)
    page = await other.read(ListStreams())
    found = {one.name: one for one in page.records}
    assert (name in found) == (what != "removed")
    if what == "changed":
        assert found[name].owner == "somebody"


async def test_a_view_opened_before_the_catalogue_knows_does_not_hide_that_a_stream_is_gone(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = cluster.nodes(2)
    name = name_in(1)
    log = await one.stream(name_in(1, but=[name]))
    await one.stream(name)
    await other.read(GetRecord(key="fresh"))
    catalogue_of_one, held = one.store.shards[0], list[Any]()
    monkeypatch.setattr(catalogue_of_one, "submit", held.append)
    one.store.submit(RemoveStream(name=name))
    await until(lambda: bool(held))
    await other.fresh(log)
    before, watch = WatchRecords(), WatchRecords()
    other.store.watch(before)
    other.store.watch(watch)
    assert not before.removed
    monkeypatch.undo()
    catalogue_of_one.submit(*held)
    await until(lambda: bool(watch.removed))
    assert [record.name for record in watch.removed] == [name]


@pytest.mark.parametrize("has_view", [True, False], ids=["with its view", "without"])
async def test_a_listing_of_long_ago_brings_back_no_stream_that_was_removed_since(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, *, has_view: bool
) -> None:
    one, other = cluster.nodes(2)
    name = name_in(1)
    log = await one.stream(name_in(1, but=[name]))
    await other.read(GetRecord(key="fresh"))
    catalogue_of_one, held = one.store.shards[0], list[Any]()
    monkeypatch.setattr(catalogue_of_one, "submit", held.append)
    made = PutStream(record=StreamRecord(name=name))
    again = PutStream(record=StreamRecord(name=name, owner="somebody"))
    writes: tuple[PutStream | RemoveStream, ...] = (made, RemoveStream(name=name), again)
    for count, write in enumerate(writes, 1):
        one.store.submit(write)
        await until(lambda: len(held) == count)  # noqa: B023
    monkeypatch.undo()
    if has_view:
        await other.fresh(log)
    else:
        catalogue_of_one.submit(held[2])
    told = list[StreamRecord]()
    for listing in (held[0], held[1]):
        watch = WatchRecords()
        other.store.watch(watch)
        catalogue_of_one.submit(listing)
        await asyncio.sleep(0.2)
        told += watch.changed
        assert made.record.id not in {record.id for record in watch.changed}
    assert again.record.id in {record.id for record in told}


@pytest.mark.parametrize("what", ["made", "removed"])
async def test_what_became_of_a_stream_is_listed_though_all_who_saw_it_were_closed(
    disks: Cluster, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(catalogue, "LISTING_SECONDS", 0.2)
    node = disks.node()
    kept, name = name_in(1), name_in(1, but=[name_in(1)])
    for other in (name_in(0), kept, *([name] if what == "removed" else [])):
        await node.stream(other)
    monkeypatch.setattr(node.store.shards[0], "submit", passed_over)
    before = node.store.shards[1].follows.applied
    write: Any = PutStream(record=StreamRecord(name=name))
    node.store.submit(RemoveStream(name=name) if what == "removed" else write)
    await until(lambda: node.store.shards[1].follows.applied > before)
    await node.die()
    node = disks.node(seed=1)
    assert (await node.read(FindStream(name=name))).record is None or what == "made"
    names = [] if what == "made" else [name]
    async with asyncio.timeout(ANSWER_SECONDS):
        while (name in names) == (what == "removed"):
            names = [record.name for record in (await node.read(ListStreams())).records]
    assert {name_in(0), kept} <= set(names)


async def test_a_listing_that_was_refused_is_written_later(cluster: Cluster) -> None:
    node = cluster.node()
    await node.stream(name_in(0))
    first = node.store.shards[0].writes
    first.refusal = StoreError("store.full", "")
    made = await node.write(PutStream(record=StreamRecord(name=name_in(1))))
    assert code(made) == ""
    first.refusal = None
    await asyncio.sleep(catalogue.LISTING_SECONDS + 1.0)
    names = [one.name for one in (await node.read(ListStreams())).records]
    assert sorted(names) == sorted([name_in(0), name_in(1)])
