"""A sink into files: a real node, its real job, and a reader that never sees the node."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from nodes import connect_to, node_config
from rillnode.node.runtime import Node
from rillnode.node.spark.arrow import read_ranges
from rillnode.node.spark.clients import sink_client
from rillnode.node.spark.config import FilesSink, SinkTables
from rillnode.node.spark.offsets import Offset, Range
from rillnode.node.spark.ranges import ClientOptions, ask

SECONDS_MAX = 120.0


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while not condition():
            await asyncio.sleep(0.05)


def landed(options: ClientOptions) -> list[tuple[str, int, bytes]]:
    ends = ask(options, lambda client: client.ends())
    ranges = [Range(*key, first, until) for key, (first, until) in sorted(ends.items())]
    return [
        (row["stream"], row["index"], row["data"])
        for batch in read_ranges(options, ranges, fail_on_data_loss=True)
        for row in batch.to_pylist()
    ]


def look(options: ClientOptions) -> None:
    """What a job's key sees beside ranges: of its sink's streams alone."""
    client = sink_client(options)
    ends = client.ends()
    assert set(ends) == {("s1", 0), ("s2", 0)}
    created = client.created()
    assert set(created) == {"s1", "s2"}
    assert all(at > 1_700_000_000_000 for at in created.values())
    assert client.consumers() == {
        "sink/remote": {("s1", 0): 3_000, ("s2", 0): 1},
        "reader": {("s1", 0): 7},
    }
    client.close()


def test_streams_go_through_files_to_a_reader_without_a_node(tmp_path: Path) -> None:
    files = tmp_path / "outgoing"
    sink = FilesSink(name="remote", streams=("s*",), directory=files, trigger_seconds=0.05)
    config = node_config(tmp_path / "data").having(SinkTables(files=(sink,)))
    items = [b"%d" % number for number in range(3_000)]

    async def scenario() -> None:
        async with Node(config) as node, await connect_to(node) as client:
            for name in ("s1", "other"):
                stream = await client.stream(name)
                await stream.push_many(items)

            async def saved(name: str, index: int) -> None:
                deadline = time.monotonic() + SECONDS_MAX
                while await client.get_index("sink/remote", name) != index:
                    assert time.monotonic() < deadline
                    await asyncio.sleep(0.05)

            await saved("s1", len(items))
            await (await client.stream("s2")).push(b"late")
            await saved("s2", 1)
            status = node.status()["sinks"]["remote"]
            assert (status["state"], status["report"]["state"]) == ("running", "running")
            for name in ("s1", "other"):
                await client.set_index("reader", name, 7)
            options = ClientOptions(
                url=f"noise://{node.addresses()['noise']}",
                node_identity=node.identity,
                key_file=str(tmp_path / "data" / "sinks" / "remote.key"),
                sink="remote",
            )
            await asyncio.to_thread(look, options)

    asyncio.run(scenario())
    options = ClientOptions.from_options({"url": files.as_uri(), "sink": "remote"}, {})
    expected = [("s1", index, data) for index, data in enumerate(items)]
    assert landed(options) == [*expected, ("s2", 0, b"late")]
    ask(options, lambda client: client.commit(Offset({("s1", 0): 3_000}, {})))
    assert landed(options) == [("s2", 0, b"late")]


async def test_a_job_that_cannot_be_started_waits_and_says_why(tmp_path: Path) -> None:
    """What is in the way is a file; a disk that is full, or not to be written, is the same."""
    files = tmp_path / "outgoing"
    sink = FilesSink(name="remote", streams=("s*",), directory=files, trigger_seconds=0.05)
    config = node_config(tmp_path / "data").having(SinkTables(files=(sink,)))
    (tmp_path / "data" / "sinks").mkdir(parents=True)
    in_the_way = tmp_path / "data" / "sinks" / "remote"
    in_the_way.touch()
    async with Node(config) as node, await connect_to(node) as client:
        await (await client.stream("s1")).push(b"0")
        await until(lambda: node.status()["sinks"]["remote"]["failures"] > 1)
        row = node.status()["sinks"]["remote"]
        assert (row["state"], row["pid"], row["starts"]) == ("waiting", None, 0)
        assert row["last_error"].startswith(
            f"the job cannot be started now: {in_the_way.parent}: [Errno 17] File exists"
        )
        (check,) = (one for one in node.status()["checks"] if one["name"] == "sink remote")
        assert not check["ok"]
        assert row["last_error"] in check["reason"]
        in_the_way.unlink()
        await until(lambda: node.status()["sinks"]["remote"]["state"] == "running")
        while await client.get_index("sink/remote", "s1") != 1:
            await asyncio.sleep(0.05)
