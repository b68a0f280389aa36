"""Tests what a node holds of a shared log, and to whom it sends others."""

import asyncio
from typing import Any

import pytest

from coroutines import handed_by
from rillnode.actors.log import (
    Append,
    FindStream,
    GetRecord,
    ListIndexes,
    ListStreams,
    LoadIndex,
    Operation,
    PutRecord,
    PutStream,
    Read,
    RemoveStream,
    SavedIndexKey,
    SaveIndex,
    StreamRecord,
)
from rillnode.actors.log.nodes import NodeRecord
from rillnode.actors.log.shared.holding import NODES_TOLD_MAX, Holding, elsewhere, shards_of
from shared_nodes import (
    ANSWER_SECONDS,
    Cluster,
    Node,
    name_in,
    until,
    with_cluster,
)

cluster = handed_by(with_cluster)


def views(node: Node) -> set[int]:
    return {view["shard"] for view in node.store.describe()["views"]}


async def views_of(node: Node, shards: set[int]) -> None:
    await until(lambda: views(node) == shards)


def where(operation: Operation) -> list[tuple[str, str]]:
    """The nodes that a refused operation is to be asked of."""
    assert operation.error is not None
    assert (operation.error.code, operation.error.retryable) == ("store.elsewhere", False)
    nodes: Any = operation.error.context["nodes"]
    return list(nodes)


# Rules ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "name", "shard", "expected"),
    [
        ((), "a", 1, None),
        (("a*",), "ab", 1, True),
        (("a*",), "b", 1, None),
        (("!a*",), "ab", 1, False),
        (("a1", "!a*"), "a1", 1, True),
        (("!a*", "a1"), "a1", 1, False),
        (("shard:1-2",), "b", 2, True),
        (("!shard:1", "b"), "b", 1, False),
        (("b", "!shard:1"), "b", 1, True),
        (("b", "!shard:1"), "c", 1, False),
        (("b", "!*"), "c", 0, False),
        (("shard:3", "!*"), "c", 3, True),
    ],
)
def test_the_first_rule_that_speaks_of_a_stream_counts(
    rules: tuple[str, ...], name: str, shard: int, expected: bool | None
) -> None:
    assert Holding(rules).of_stream(name, shard) is expected


@pytest.mark.parametrize(
    ("rules", "shard", "expected"),
    [
        ((), 1, None),
        (("shard:1",), 1, True),
        (("!shard:1",), 1, False),
        (("!shard:1",), 2, None),
        # Some of its streams may be held.
        (("b", "!shard:1"), 1, None),
        (("b", "!*"), 1, None),
        (("!a*",), 1, None),
        (("shard:1", "!*"), 1, True),
        (("shard:1", "!*"), 2, False),
        (("!*",), 2, False),
        # It has the catalogue.
        (("!*",), 0, True),
    ],
)
def test_a_shard_is_never_held_where_no_stream_in_it_may_be(
    rules: tuple[str, ...], shard: int, expected: bool | None
) -> None:
    assert Holding(rules).of_shard(shard) is expected


def test_an_entry_is_about_shards_or_about_streams() -> None:
    assert shards_of("shard:4") == range(4, 5)
    assert shards_of("shard:4-6") == range(4, 7)
    assert shards_of("shards") is shards_of("shard:x") is None


# Whom to ask ---------------------------------------------------------------------------------


def told(*records: NodeRecord) -> list[tuple[str, bytes]]:
    return [(record.key, record.encode()) for record in records]


def test_nodes_that_hold_it_always_are_named_first_then_who_has_told_last() -> None:
    one = NodeRecord(name="one", identity="1", address="a:1", serve=("!logs*",), told_at=9)
    two = NodeRecord(name="two", identity="2", address="a:2", told_at=5)
    three = NodeRecord(name="three", identity="3", address="a:3", told_at=7)
    always = NodeRecord(name="always", identity="4", address="a:4", serve=("logs*",), told_at=1)
    unreachable = NodeRecord(name="five", identity="5", address="", serve=("logs*",))
    known = told(one, two, three, always, unreachable)
    error = elsewhere("logs-1", 1, [*known, ("nodes/6", b"of another version")])
    assert error.context["nodes"] == [("a:4", "4"), ("a:3", "3"), ("a:2", "2")]
    assert "stream logs-1" in error.text
    assert "ask always at a:4, three at a:3, two at a:2" in error.text
    assert elsewhere(None, 1, known).context["nodes"] == [
        ("a:1", "1"), ("a:3", "3"), ("a:2", "2"), ("a:4", "4")
    ]  # fmt: skip


def test_no_more_nodes_are_named_than_anybody_asks() -> None:
    many = told(*(NodeRecord(name="n", identity=str(n), address="a:1") for n in range(40)))
    nodes: Any = elsewhere("s", 1, many).context["nodes"]
    assert len(nodes) == NODES_TOLD_MAX
    assert "no other node has said" in elsewhere("s", 1, []).text


# A store -------------------------------------------------------------------------------------


async def test_a_node_refuses_what_it_never_holds_and_names_who_does(cluster: Cluster) -> None:
    other = cluster.node("0")
    node = cluster.node("1", serve=("!shard:1", "!logs*"))
    record = NodeRecord(name="other", identity="ab" * 32, address="b:4100")
    await other.write(PutRecord(key=record.key, value=record.encode()))
    never, mine = name_in(1), name_in(2)
    log = await other.stream(never)
    logs = await other.stream("logs")
    await other.push(log, b"x")
    assert await node.stream(mine)
    key = SavedIndexKey("logs", 0, "c")
    operations: list[Operation] = [
        await node.read(FindStream(name=never)),
        await node.read(FindStream(name="logs")),
        await node.read(Read(log=log)),
        await node.read(LoadIndex(key=key)),
        await node.read(ListIndexes(stream="logs")),
        await node.write(SaveIndex(key=key, index=1)),
        await node.write(PutStream(record=StreamRecord(name="logs-2"))),
        await node.write(RemoveStream(name=never)),
        await node.push(log, b"y"),
    ]
    assert [where(one) for one in operations] == [[("b:4100", "ab" * 32)]] * len(operations)
    # Also by who knows but the log of what is refused by name, though its shard is in use.
    for late in (logs, await other.stream("logs-3")):
        by_id = FindStream(id=late >> 32)
        async with asyncio.timeout(ANSWER_SECONDS):
            while (await node.read(by_id)).error is None:
                await asyncio.sleep(0.01)
                by_id = FindStream(id=late >> 32)
        assert where(by_id)
        assert where(await node.push(late, b"y"))
    assert 1 not in views(node)
    assert await other.texts(log) == [b"x"]


async def test_lists_have_what_is_served_and_names_have_all(cluster: Cluster) -> None:
    other = cluster.node("0")
    node = cluster.node("1", serve=("!shard:1", "!logs*"))
    names = [name_in(0), name_in(1), name_in(2), "logs"]
    for name in names:
        await other.stream(name)
        await other.write(SaveIndex(key=SavedIndexKey(name, 0, "c"), index=1))
    await node.read(GetRecord(key="fresh"))
    found = await node.read(ListStreams())
    assert {record.name for record in found.records} == {names[0], names[2]}
    found = await node.read(ListStreams(names_only=True))
    assert {record.name for record in found.records} == set(names)
    saved = await node.read(ListIndexes())
    assert saved.error is None
    assert names[1] not in {key.stream for key, _ in saved.indexes}
    assert 1 not in views(node)


async def test_what_a_node_holds_always_is_open_before_anybody_asks_and_stays_so(
    cluster: Cluster,
) -> None:
    other = cluster.node("0")
    early, late = name_in(1), name_in(2)
    await other.stream(early)
    for rules in (("shard:1",), (early,)):
        node = cluster.node("1", serve=(*rules, late), idle_seconds=4.0)
        await views_of(node, {0, 1})
        await asyncio.sleep(20.0)
        assert views(node) == {0, 1}
        assert [view["always"] for view in node.store.describe()["views"]] == [True, True]
        await node.close()
    node = cluster.node("2", serve=(late,), idle_seconds=4.0)
    await node.read(GetRecord(key="fresh"))
    log = await other.stream(late)
    await views_of(node, {0, 2})
    await asyncio.sleep(20.0)
    await other.push(log, b"x")
    await asyncio.sleep(5.0)
    assert await node.texts(log) == [b"x"]
    assert node.store.shards[2].is_ready


async def test_a_node_that_says_nothing_of_it_holds_what_is_used(cluster: Cluster) -> None:
    node = cluster.node()
    await node.read(GetRecord(key="fresh"))
    assert views(node) == {0}
    appended = await node.write(Append(log=await node.stream(name_in(1)), count=0))
    assert appended.error is not None
    assert appended.error.code == "store.void"
    assert views(node) == {0, 1}
