"""An object store that is away for long, and comes back, under a node's sink."""

import asyncio
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from nodes import node_config
from rillnode.actors.spark import sink_job
from rillnode.node.config import Location
from rillnode.node.runtime import Node
from rillnode.node.spark.config import SinkTables, SparkSink
from rillnode.node.testing.contract.proxy import Proxy
from s3_support import object_store

pytestmark = [pytest.mark.spark, pytest.mark.long]

SECONDS_MAX = 600.0
TABLE = "s3://lake/bronze"


@pytest.fixture
def store(tmp_path_factory: pytest.TempPathFactory) -> Generator[dict[str, str]]:
    with object_store(tmp_path_factory.mktemp("store")) as environment:
        yield environment


def indexes(store: dict[str, str]) -> list[int]:
    try:
        table: Any = DeltaTable(TABLE, storage_options=store)
    except TableNotFoundError:
        return []
    return sorted(table.to_pyarrow_table(columns=["index"]).column("index").to_pylist())


def test_a_sink_waits_for_its_store_and_goes_on(
    store: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_job, "FAILURES_MAX", 2)
    monkeypatch.setattr(sink_job, "BACKOFF_SECONDS", (0.5,))
    sink = SparkSink(
        name="bronze",
        streams=("s",),
        table_dir=Location(TABLE),
        checkpoint_dir=tmp_path / "checkpoint",
        trigger_seconds=0.5,
    )
    config = node_config(tmp_path / "data").having(SinkTables(spark=(sink,)))

    async def scenario() -> None:
        async with Proxy(store["AWS_ENDPOINT_URL"].removeprefix("http://")) as proxy:
            for name, value in {**store, "AWS_ENDPOINT_URL": f"http://{proxy.address}"}.items():
                monkeypatch.setenv(name, value)
            async with Node(config) as node:
                stream = await node.client.stream("s")

                async def status() -> dict[str, Any]:
                    return await node.client.status()

                async def landed(count: int) -> None:
                    deadline = time.monotonic() + SECONDS_MAX
                    while await asyncio.to_thread(indexes, store) != list(range(count)):
                        assert time.monotonic() < deadline, await status()
                        await asyncio.sleep(0.5)

                await stream.push_many([b"%d" % n for n in range(500)])
                await landed(500)
                await proxy.take_away()
                await stream.push_many([b"%d" % n for n in range(500, 800)])
                deadline = time.monotonic() + SECONDS_MAX
                # Longer than a job that only fails is started again.
                while (one := (await status())["sinks"]["bronze"])["failures"] < 4:
                    assert one["state"] in ("running", "waiting"), one
                    assert time.monotonic() < deadline, one
                    await asyncio.sleep(0.2)
                assert one["state"] == "waiting"
                assert f"{TABLE}: " in one["last_error"]
                assert one["last_error"].endswith("[job.store]")
                (check,) = [
                    one for one in (await status())["checks"] if one["name"] == "sink bronze"
                ]
                assert not check["ok"]
                assert check["reason"].startswith("waiting: ")
                await proxy.bring_back()
                await landed(800)
                while (await status())["sinks"]["bronze"]["state"] != "running":
                    assert time.monotonic() < deadline + SECONDS_MAX
                    await asyncio.sleep(0.2)

    asyncio.run(scenario())
