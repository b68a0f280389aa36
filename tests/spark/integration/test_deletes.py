"""Rows of bronze that somebody deletes or changes: what is made of bronze goes on, or says why not.

An erasure is `DeltaTable(table).delete(...)`, beside a job that runs.
"""

import asyncio
import json
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from chained_tables import Pipeline, in_process
from every_kind_of_row import OLD_TABLES, TABLES
from nodes import node_config
from rillnode.node.config import Location
from rillnode.node.runtime import Node
from rillnode.node.spark import parts
from rillnode.node.spark.config import SinkTables, SparkSink
from rillnode.node.spark.derived import Derived
from rillnode.node.spark.tables import CHAINS
from rillnode.node.testing.contract.stores.driver import wait_until
from streamr_samples import make_message
from table_readers import plain_rows, wrong_answers

SECONDS_MAX = 600.0


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    monkeypatch.setattr(parts, "VIEW_SECONDS", 0.1)
    monkeypatch.setattr(parts, "BACKOFF_SECONDS", (0.5,))
    monkeypatch.setattr(parts, "LOOK_SECONDS", 0.1)
    return Pipeline(tmp_path)


def counted(pipeline: Pipeline) -> int:
    """How many messages gold has counted."""
    return sum(row["messages"] for row in pipeline.gold_rows(CHAINS))


def test_what_is_made_of_bronze_goes_on_after_a_delete(pipeline: Pipeline) -> None:
    derived = Derived(pipeline.config(), in_process)
    derived.start()
    pipeline.land(*(make_message(at) for at in range(5)))
    wait_until(lambda: counted(pipeline) == 5)
    DeltaTable(pipeline.bronze.table).delete("index < 2")
    pipeline.land(*(make_message(at) for at in range(5, 8)))
    wait_until(lambda: counted(pipeline) == 8)
    # Silver keeps what it had, until it is deleted there, too; gold counted what happened.
    assert pipeline.indexes() == list(range(8))
    assert {part["state"] for part in derived.report().values()} == {"running"}
    derived.finish()


def test_silver_is_deleted_from_and_tells_of_a_change_of_bronze(pipeline: Pipeline) -> None:
    derived = Derived(pipeline.config(), in_process)
    derived.start()
    pipeline.land(*(make_message(at) for at in range(8)))
    wait_until(lambda: counted(pipeline) == 8)
    DeltaTable(pipeline.silver).delete("index < 2")
    pipeline.land(make_message(8))
    wait_until(lambda: pipeline.indexes() == list(range(2, 9)))
    assert {part["state"] for part in derived.report().values()} == {"running"}

    # A change is none that silver could take in. It says so, and how far it is behind.
    DeltaTable(pipeline.bronze.table).update({"publisher": "'nobody'"}, predicate="index = 3")
    pipeline.land(make_message(9), make_message(10))
    wait_until(lambda: derived.report()["silver"]["state"] == "failed")
    wait_until(lambda: int(str(derived.report()["silver"].get("rows_behind", 0))) > 2)
    told = derived.report()["silver"]
    assert "rewrites rows (UPDATE)" in str(told["error"])
    assert "`rillnode pipeline replay NAME`" in str(told["error"])
    derived.finish()


def test_a_table_that_works_again_says_so_although_nothing_is_new(pipeline: Pipeline) -> None:
    pipeline.land(make_message(1))
    derived = Derived(pipeline.config(), in_process)
    derived.start()
    wait_until(lambda: counted(pipeline) == 1)
    newest = max((pipeline.bronze.table / "_delta_log").glob("*.json"))
    later = newest.with_name(f"{int(newest.stem) + 1:020}.json")
    later.write_bytes(b"{")  # a log that cannot be read
    wait_until(lambda: derived.report()["silver"]["state"] == "failed")
    later.unlink()
    wait_until(lambda: derived.report()["silver"]["state"] == "running")
    derived.finish()


@pytest.mark.spark
@pytest.mark.long
def test_a_node_tells_of_a_silver_that_stands_and_of_one_that_goes_on(tmp_path: Path) -> None:
    """The whole node and its job, over tables that an earlier version has begun."""
    shutil.unpack_archive(OLD_TABLES, tmp_path)
    sink = SparkSink(
        name="lake",
        streams=("t",),
        table_dir=Location(tmp_path / "table"),
        silver_dir=Location(tmp_path / "silver"),
        gold_dir=Location(tmp_path / "gold"),
        trigger_seconds=0.5,
    )
    config = node_config(tmp_path / "data").having(SinkTables(spark=(sink,)))

    def indexes(table: str) -> list[int]:
        try:
            rows = plain_rows(str(tmp_path / table)).to_pylist()
        except TableNotFoundError:
            return []
        return sorted(row["index"] for row in rows if row["stream"] == "t")

    def is_healed(table: str) -> bool:
        return not wrong_answers(str(tmp_path / table), ["delta-rs dataset"])

    async def scenario() -> None:
        async with Node(config) as node:
            http = f"http://{node.addresses()['http']}"

            def look(path: str) -> tuple[int, str]:
                try:
                    with urllib.request.urlopen(f"{http}{path}", timeout=60) as answer:
                        return answer.status, answer.read().decode()
                except urllib.error.HTTPError as error:
                    return error.code, error.read().decode()

            async def get(path: str) -> tuple[int, str]:
                return await asyncio.to_thread(look, path)

            async def until(condition: Callable[[], bool]) -> None:
                deadline = time.monotonic() + SECONDS_MAX
                while not await asyncio.to_thread(condition):
                    status = node.status()["sinks"]["lake"]
                    assert time.monotonic() < deadline, status
                    assert status["state"] != "parked", status
                    await asyncio.sleep(0.2)

            def state() -> str:
                return str(node.status()["sinks"]["lake"]["state"])

            stream = await node.client.stream("t")
            await stream.push_many([b"%d" % n for n in range(100)])
            await until(lambda: indexes("silver") == list(range(100)))
            for table in TABLES:  # the job heals each with its first step there
                await until(partial(is_healed, table))
            assert json.loads((await get("/v1/sinks"))[1])["sinks"][0]["tables"]["silver"] == {
                "state": "running", "error": "",
            }  # fmt: skip

            await asyncio.to_thread(
                DeltaTable(tmp_path / "table").delete, "stream = 't' AND index < 10"
            )
            await stream.push_many([b"%d" % n for n in range(100, 150)])
            await until(lambda: indexes("silver") == list(range(150)))
            assert indexes("table") == list(range(10, 150))
            assert (state(), (await get("/readyz"))[0]) == ("running", 200)

            await asyncio.to_thread(
                DeltaTable(tmp_path / "table").update,
                {"publisher": "'nobody'"}, None, "stream = 't' AND index = 20",
            )  # fmt: skip
            await stream.push_many([b"%d" % n for n in range(150, 160)])
            await until(lambda: state() == "failed")
            await until(lambda: indexes("table") == list(range(10, 160)))
            code, text = await get("/readyz")
            assert code == 503
            assert "[-] sink lake: silver failed: " in text
            assert "rewrites rows (UPDATE)" in text
            series = 'sink="lake",state="failed",table="silver"'
            await until(
                lambda: f"rillnode_spark_table_state{{{series}}} 1.0" in look("/metrics")[1]
            )
            await until(
                lambda: (
                    'rillnode_spark_table_rows_behind{sink="lake",table="silver"}'
                    in look("/metrics")[1]
                )
            )

            # What the error says.
            await node.client.run_sink("lake", run=False)
            await until(lambda: state() == "paused")
            await asyncio.to_thread(run_replay, tmp_path, sink)
            assert indexes("silver") == list(range(10, 160))
            await node.client.run_sink("lake", run=True)
            await stream.push(b"160")
            await until(lambda: indexes("silver") == list(range(10, 161)))
            await until(lambda: state() == "running" and look("/readyz")[0] == 200)

    asyncio.run(scenario())


def run_replay(directory: Path, sink: SparkSink) -> None:
    """Run `rillnode pipeline replay`, with a configuration of its own."""
    tables = {name: getattr(sink, name) for name in ("table_dir", "silver_dir", "gold_dir")}
    file = directory / "node.toml"
    file.write_text(
        f'name = "test"\ndata_dir = "{directory / "data"}"\n'
        '[[sink.spark]]\nname = "lake"\nstreams = ["t"]\n'
        + "".join(f'{name} = "{place}"\n' for name, place in tables.items())
    )
    command = [sys.executable, "-m", "rillnode", "pipeline", "replay", "lake", "-c", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stderr
