"""A node that cannot go on ends the block that it was entered by, as `asyncio.timeout` would."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

import rillnode
from nodes import store_with
from rillnode.actors.core.streams.service import StreamService
from rillnode.actors.engine.system import Cell
from rillnode.codecs.errors import NodeFailed, TransportError
from rillnode.node import runtime
from rillnode.node.config import Config, HttpListener, NoiseListener
from rillnode.node.runtime import Node

CAUSE = ValueError("planted")


def make_node(directory: Path, on_fatal: Literal["exit", "stay"] | None = "exit") -> Node:
    config = Config(
        name="a",
        data_dir=directory,
        on_fatal=on_fatal,
        noise=NoiseListener(enabled=False),
        http=HttpListener(enabled=False),
    )
    return Node(config, make_store=store_with())


def give_up(node: Node, error: BaseException = CAUSE) -> None:
    """What the actor system does when the stream service has failed too often."""
    service = node.observed.router.lookup(b"stream")
    assert isinstance(service, Cell)
    node._on_fatal(service, error)  # pyright: ignore[reportPrivateUsage]


def soon(*calls: Callable[[], object]) -> None:
    """Have something done in the loop's next turn, while the task waits."""
    for call in calls:
        asyncio.get_running_loop().call_soon(call)


async def enter_and_fail(node: Node) -> None:
    """Enter a node that then gives up."""
    async with node:
        soon(lambda: give_up(node))
        await for_ever()


def this_task() -> "asyncio.Task[Any]":
    task = asyncio.current_task()
    assert task is not None
    return task


async def for_ever() -> None:
    await asyncio.Event().wait()


def check_over(*nodes: Node) -> None:
    """All have stopped, and the task is as it was before."""
    assert {node.observed.state for node in nodes} == {"stopped"}
    assert this_task().cancelling() == 0


async def test_the_block_is_left_with_the_cause(tmp_path: Path) -> None:
    node = make_node(tmp_path)
    other = asyncio.create_task(for_ever())

    async def block() -> None:
        async with node:
            soon(lambda: give_up(node), lambda: give_up(node, KeyError("later")))
            await for_ever()

    with pytest.raises(rillnode.NodeFailed) as caught:
        await block()
    assert caught.value.code == "node.failed"
    assert caught.value.__cause__ is CAUSE
    assert "StreamService was given up at 2" in caught.value.text
    assert "(ValueError: planted)" in caught.value.text
    check_over(node)
    await asyncio.sleep(0)  # nothing of the cancellation is left
    assert not other.done()
    other.cancel()


@pytest.mark.parametrize("on_fatal", ["stay", None])
async def test_a_node_that_stays_is_not_ready_any_more(
    tmp_path: Path, on_fatal: Literal["stay"] | None
) -> None:
    async with make_node(tmp_path, on_fatal) as node:
        stream = await node.stream("s")
        soon(lambda: give_up(node))
        await asyncio.sleep(0.05)
        (check,) = [one for one in node.checks() if not one.ok]
        assert check.name == "actors"
        assert "StreamService" in check.reason
        assert "ValueError: planted" in check.reason
        assert await stream.push(b"goes on") == 0
        (lost,) = node.status()["lost"]
        assert (lost["kind"], lost["name"], lost["times"]) == ("actor", "StreamService", 1)
        assert lost["at"][:2] == "20"
        assert lost["at"][-1] == "Z"


async def test_without_a_block_nobody_is_cancelled(tmp_path: Path) -> None:
    node = make_node(tmp_path)
    await node.start()
    soon(lambda: give_up(node))
    await asyncio.sleep(0.05)
    assert not all(check.ok for check in node.checks())
    await node.stop()


async def test_only_the_task_that_entered_is_cancelled(tmp_path: Path) -> None:
    node, ready = make_node(tmp_path), asyncio.Event()

    async def owner() -> None:
        async with node:
            ready.set()
            await for_ever()

    async def user() -> None:
        await node.stream("s")
        await for_ever()

    tasks = [asyncio.create_task(owner())]
    await ready.wait()
    tasks.append(asyncio.create_task(user()))
    await asyncio.sleep(0.05)
    give_up(node)
    with pytest.raises(NodeFailed):
        await tasks[0]
    assert not tasks[1].done()
    tasks[1].cancel()


async def test_timeouts_around_and_inside_do_not_notice(tmp_path: Path) -> None:
    node = make_node(tmp_path)

    async def block() -> None:
        async with asyncio.timeout(60.0), node:
            soon(lambda: give_up(node))
            async with asyncio.timeout(60.0):
                await for_ever()

    with pytest.raises(NodeFailed):
        await block()
    check_over(node)


@pytest.mark.parametrize("first", [True, False])
async def test_a_timeout_around_that_expires_at_the_same_time_wins(
    tmp_path: Path, first: bool
) -> None:
    node = make_node(tmp_path)

    async def block() -> None:
        async with asyncio.timeout(None) as around, node:
            if first:
                give_up(node)
            around.reschedule(asyncio.get_running_loop().time())
            if not first:
                soon(lambda: soon(lambda: give_up(node)))
            await for_ever()

    with pytest.raises(TimeoutError):
        await block()
    check_over(node)


async def test_a_timeout_inside_that_expires_at_the_same_time_does_not(tmp_path: Path) -> None:
    node = make_node(tmp_path)

    async def block() -> None:
        async with node, asyncio.timeout(None) as inside:
            inside.reschedule(asyncio.get_running_loop().time())
            give_up(node)
            await for_ever()

    with pytest.raises(NodeFailed):
        await block()
    check_over(node)


@pytest.mark.parametrize("outer_first", [True, False])
async def test_whoever_cancels_the_task_besides_wins(tmp_path: Path, outer_first: bool) -> None:
    node, ready = make_node(tmp_path), asyncio.Event()

    async def owner() -> None:
        async with node:
            ready.set()
            await for_ever()

    task = asyncio.create_task(owner())
    await ready.wait()
    calls: list[Callable[[], object]] = [task.cancel, lambda: give_up(node)]
    soon(*(calls if outer_first else reversed(calls)))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (task.cancelled(), task.cancelling()) == (True, 1)
    check_over(node)


async def test_an_earlier_cancellation_that_was_not_taken_back_is_not_counted(
    tmp_path: Path,
) -> None:
    node = make_node(tmp_path)
    task = this_task()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.sleep(0)
    with pytest.raises(NodeFailed):
        await enter_and_fail(node)
    assert task.uncancel() == 0


async def test_a_task_group_around_is_told_by_the_error(tmp_path: Path) -> None:
    node = make_node(tmp_path)

    async def block() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(for_ever())
            group.create_task(enter_and_fail(node))

    with pytest.raises(ExceptionGroup) as caught:
        await block()
    assert [type(error) for error in caught.value.exceptions] == [NodeFailed]
    assert node.observed.state == "stopped"


async def test_a_task_group_whose_own_task_has_entered_is_told_by_the_error(tmp_path: Path) -> None:
    node = make_node(tmp_path)

    async def block() -> None:
        async with asyncio.TaskGroup() as group, node:
            group.create_task(for_ever())
            soon(lambda: give_up(node))
            await for_ever()

    with pytest.raises(ExceptionGroup) as caught:
        await block()
    assert [type(error) for error in caught.value.exceptions] == [NodeFailed]
    check_over(node)


async def test_a_task_group_around_that_fails_at_the_same_time_wins(tmp_path: Path) -> None:
    node, fail = make_node(tmp_path), asyncio.Event()

    async def fails() -> None:
        await fail.wait()
        raise KeyError("a task of the group")

    async def block() -> None:
        async with asyncio.TaskGroup() as group, node:
            group.create_task(fails())
            await asyncio.sleep(0)
            fail.set()
            soon(lambda: soon(lambda: give_up(node)))
            await for_ever()

    with pytest.raises(ExceptionGroup) as caught:
        await block()
    assert [type(error) for error in caught.value.exceptions] == [KeyError]
    check_over(node)


async def test_a_task_group_inside_ends_with_the_node(tmp_path: Path) -> None:
    node, ended = make_node(tmp_path), list[str]()

    async def work(name: str) -> None:
        try:
            await for_ever()
        finally:
            ended.append(name)

    async def block() -> None:
        async with node, asyncio.TaskGroup() as group:
            group.create_task(work("one"))
            group.create_task(work("two"))
            soon(lambda: give_up(node))

    with pytest.raises(NodeFailed):
        await block()
    assert sorted(ended) == ["one", "two"]
    check_over(node)


async def test_what_the_block_has_raised_by_itself_stands(tmp_path: Path) -> None:
    node = make_node(tmp_path)

    async def block() -> None:
        async with node:
            soon(lambda: give_up(node))
            try:
                await for_ever()
            finally:
                raise KeyError("of its own")

    with pytest.raises(KeyError, match="of its own"):
        await block()
    check_over(node)


async def test_what_the_block_raises_before_it_notices_stands(tmp_path: Path) -> None:
    node = make_node(tmp_path)

    async def block() -> None:
        async with node:
            give_up(node)
            raise KeyError("unnoticed")

    with pytest.raises(KeyError, match="unnoticed"):
        await block()
    check_over(node)
    await asyncio.sleep(0)


async def test_a_block_that_has_ended_by_itself_has_ended_well(tmp_path: Path) -> None:
    node = make_node(tmp_path)
    async with node:
        give_up(node)  # before its next await it is over
    check_over(node)
    await asyncio.sleep(0)


async def test_somebody_elses_cancellation_is_not_swallowed_with_the_nodes(tmp_path: Path) -> None:
    node = make_node(tmp_path)

    async def owner() -> None:
        async with node:
            give_up(node)
            this_task().cancel()

    task = asyncio.create_task(owner())
    with pytest.raises(asyncio.CancelledError):
        await task
    assert node.observed.state == "stopped"


@pytest.mark.parametrize("failing", ["inner", "outer", "both"])
async def test_nodes_in_each_other(tmp_path: Path, failing: str) -> None:
    outer, inner = make_node(tmp_path / "outer"), make_node(tmp_path / "inner")
    told: list[BaseException] = []

    async def block() -> None:
        async with outer:
            try:
                async with inner:
                    if failing != "outer":
                        soon(lambda: give_up(inner, KeyError("inner")))
                    if failing != "inner":
                        soon(lambda: give_up(outer, KeyError("outer")))
                    await for_ever()
            except BaseException as error:
                told.append(error)
                raise

    with pytest.raises(NodeFailed) as caught:
        await block()
    assert str(caught.value.__cause__) == repr("inner" if failing == "inner" else "outer")
    # With both, the outer one's is for the inner one somebody else's, and wins.
    kinds = {"inner": NodeFailed, "outer": asyncio.CancelledError}
    assert [type(error) for error in told] == [kinds.get(failing, asyncio.CancelledError)]
    check_over(outer, inner)


async def test_a_node_that_fails_while_it_starts_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = make_node(tmp_path)

    async def listen(_: Node) -> None:
        soon(lambda: give_up(node))
        await for_ever()

    monkeypatch.setattr(Node, "_listen", listen)

    async def block() -> None:
        async with node:
            pytest.fail("it has not started")

    with pytest.raises(NodeFailed) as caught:
        await block()
    assert caught.value.__cause__ is CAUSE
    check_over(node)


async def test_a_node_can_be_entered_again(tmp_path: Path) -> None:
    node = make_node(tmp_path)
    with pytest.raises(NodeFailed):
        await enter_and_fail(node)
    async with make_node(tmp_path) as again:
        await again.stream("s")
        assert all(check.ok for check in again.checks())


async def test_a_failed_node_does_not_drain_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "FAILED_DRAIN_SECONDS", 0.2)
    handle = StreamService.handle

    def answers_nobody(self: StreamService, message: Any, sender: Cell | None) -> Any:
        return None if asking else handle(self, message, sender)

    monkeypatch.setattr(StreamService, "handle", answers_nobody)
    asking: list[asyncio.Task[Any]] = []
    node = make_node(tmp_path)

    async def block() -> None:
        async with node:
            asking.append(asyncio.create_task(node.stream("s")))
            await asyncio.sleep(0.05)
            give_up(node)
            await for_ever()

    began = time.monotonic()
    with pytest.raises(NodeFailed):
        await block()
    assert time.monotonic() - began < 10.0
    with pytest.raises(TransportError) as told:
        await asking[0]
    assert told.value.code == "client.closed"
    check_over(node)
