"""The whole job with all its tables: killed at any moment, none of them misses or repeats a row."""

import asyncio
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from fake_sink import FakeSink, job_settings
from job_runs import Job
from rillnode.codecs.entries import EntryKind
from rillnode.node.spark.delta_log import open_table
from rillnode.node.spark.job_config import DerivedConfig, JobConfig
from rillnode.node.spark.tables import CHAINS, LAG, MINUTES, GoldTable
from rillnode.node.spark.upsert import read_rows
from streamr_samples import make_message

pytestmark = [pytest.mark.spark, pytest.mark.long]

MESSAGES = 12_000
REPEATED = 1_000


@pytest.mark.needs("streamr")
def test_kills_leave_every_event_in_silver_once_and_gold_counts_them(
    sink: FakeSink, tmp_path: Path, worker_path: str
) -> None:
    """Each kill comes while a step of silver is between its tasks and its commit."""
    messages = [
        make_message(at, previous=at - 1 if at else None, content=f'{{"n":{at}}}')
        for at in range(MESSAGES)
    ]
    for first in range(0, MESSAGES, 500):
        sink.append("s", messages[first : first + 500], kind=EntryKind.STREAMR)
    sink.append("s", messages[-REPEATED:], kind=EntryKind.STREAMR)
    sink.others["report"] = {("s", 0): 7}
    options = sink.serve()
    silver = tmp_path / "silver"
    derived = DerivedConfig(
        bronze_dir=str(tmp_path / "bronze"),
        silver_dir=str(silver),
        gold_dir=str(tmp_path / "gold"),
        checkpoint_dir=str(silver / "_checkpoints" / "silver"),
        consumer="sink/bronze",
        trigger_seconds=0.1,
        batch_rows_max=1_000,
        compact_commits=10,
    )
    config = JobConfig(
        **job_settings(options),
        table_dir=derived.bronze_dir,
        checkpoint_dir=str(tmp_path / "bronze" / "_checkpoints" / "bronze"),
        work_dir=str(tmp_path / "work"),
        trigger_seconds=0.1,
        batch_rows_max=1_000,
        compact_commits=10,
        derived=derived,
    )

    def gold(table: GoldTable) -> list[dict[str, Any]]:
        return read_rows(str(tmp_path / "gold" / table.name), table).to_pylist()

    def versions() -> list[Path]:
        return list((silver / "_delta_log").glob("*.json"))

    def in_the_middle(steps: int, files: set[str]) -> bool:
        """Whether there was another step, and is a new file that no commit has added."""
        told = "".join(one.read_text() for one in versions())
        new = {one.name for one in silver.glob("*.parquet")} - files
        return len(versions()) > steps and any(one not in told for one in new)

    async def scenario() -> None:
        job = Job(config, tmp_path / "bronze.log", worker_path)
        for _ in range(3):
            files = {one.name for one in silver.glob("*.parquet")}
            steps = len(versions())
            job.start()
            await job.until(partial(in_the_middle, steps, files))
            await job.stop(kill=True)
        job.start()
        await job.until(
            lambda: (
                open_table(str(tmp_path / "gold" / CHAINS.name)) is not None
                and sum(row["messages"] for row in gold(CHAINS)) == MESSAGES
                and sum(row["duplicates"] for row in gold(CHAINS)) == REPEATED
                and {row["consumer"] for row in gold(LAG)} == {"sink/bronze", "report"}
            )
        )
        await job.stop(kill=False)

    asyncio.run(scenario())
    seen: Counter[str] = Counter()
    for name in DeltaTable(silver).file_uris():
        seen.update(pq.read_table(name, columns=["event_id"]).column(0).to_pylist())
    assert (len(seen), set(seen.values())) == (MESSAGES, {1})
    assert sum(row["messages"] for row in gold(MINUTES)) == MESSAGES
    assert sum(row["gaps"] + row["late"] for row in gold(CHAINS)) == 0
