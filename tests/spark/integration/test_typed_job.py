"""A sink's whole job with typed tables: killed, it loses and repeats nothing, and Spark decodes."""

import asyncio
import json
import os
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fake_sink import FakeSink, job_settings
from job_runs import Job
from rillnode.node.spark.delta_log import open_table
from rillnode.node.spark.job_config import JobConfig, TypedConfig, ViewConfig
from rillnode.node.spark.typed.schemas import SchemaSource
from table_readers import plain_rows

pytestmark = [pytest.mark.spark, pytest.mark.long]

ENTRIES = 30_000
GOOD = len([at for at in range(ENTRIES) if at % 7])
EVEN = len([at for at in range(0, ENTRIES, 2) if at % 7])


def entry(number: int) -> bytes:
    """Every seventh does not fit, and later ones have a new field."""
    fields: dict[str, Any] = {"id": number, "at": "2026-01-01T00:00:00Z", "pos": {"lat": 1.5}}
    if number % 7 == 0:
        fields["id"] = str(number)
    if number >= ENTRIES // 2:
        fields["pos"]["site"] = "x"
    return json.dumps(fields).encode()


def rows(directory: Path, *columns: str) -> list[Any]:
    if open_table(str(directory)) is None:
        return []
    return plain_rows(str(directory)).select(columns).to_pylist()


def test_two_kills_lose_and_repeat_nothing(
    sink: FakeSink, tmp_path: Path, worker_path: str
) -> None:
    options = sink.serve()
    columns = {"id": "int", "at": "timestamp", "pos": {"lat": "float"}}
    typed = TypedConfig(
        name="typed", streams=("s",), dir=str(tmp_path / "typed"),
        source=SchemaSource(columns=columns), batch_rows_max=12_000,
    )  # fmt: skip
    config = JobConfig(
        **job_settings(options),
        table_dir=str(tmp_path / "table"),
        checkpoint_dir=str(tmp_path / "table" / "_checkpoints" / "bronze"),
        work_dir=str(tmp_path / "work"),
        trigger_seconds=0.1,
        batch_rows_max=9_000,
        typed=(typed,),
        views=(
            ViewConfig(
                name="digits", of="typed", dir=str(tmp_path / "digits"), slot=("digit",),
                sql="select id % 10 as digit, count(*) as n from typed group by 1",
            ),
        ),
        modules=("job_tables",),
    )  # fmt: skip
    (tmp_path / "job_tables.py").write_text(
        f"import rillnode\n@rillnode.table(streams='s', dir={str(tmp_path / 'even')!r})\n"
        "def even(rows):\n    return rows.where('id % 2 = 0').select('id')\n"
    )
    job = Job(config, tmp_path / "bronze.log", f"{worker_path}{os.pathsep}{tmp_path}")

    def landed() -> int:
        return len(rows(tmp_path / "typed", "_index"))

    def done() -> bool:
        rejects = len(rows(tmp_path / "typed_rejects", "_index"))
        counted = sum(row["n"] for row in rows(tmp_path / "digits", "n"))
        evens = len(rows(tmp_path / "even", "id"))
        return landed() + rejects >= ENTRIES and counted >= GOOD and evens >= EVEN

    def has_more_than(before: int) -> bool:
        return landed() > before or done()

    async def scenario() -> None:
        job.start()
        for first in range(0, ENTRIES, 500):
            sink.append("s", [entry(first + at) for at in range(500)], partition=first // 500 % 3)
        for _ in range(2):
            await job.until(partial(has_more_than, landed()))
            await job.stop(kill=True)
            job.start()
        await job.until(done)
        await job.stop(kill=False)

    asyncio.run(scenario())
    found = rows(tmp_path / "typed", "id", "pos")
    digits = {row["digit"]: row["n"] for row in rows(tmp_path / "digits", "digit", "n")}
    assert digits == Counter(row["id"] % 10 for row in found)
    evens = [row["id"] for row in rows(tmp_path / "even", "id")]
    assert sorted(evens) == [at for at in range(0, ENTRIES, 2) if at % 7]
    rejected = rows(tmp_path / "typed_rejects", "data", "reason")
    assert sorted(row["id"] for row in found) == [at for at in range(ENTRIES) if at % 7]
    assert sorted(int(json.loads(row["data"])["id"]) for row in rejected) == [*range(0, ENTRIES, 7)]
    assert {row["reason"] for row in rejected} == {"Expected int, got str - at $.id"}
    sites = {row["id"] for row in found if row["pos"]["site"] == "x"}
    assert sites == {row["id"] for row in found if row["id"] >= ENTRIES // 2}
    told = next(
        report["table/typed"] for report in reversed(sink.reports) if "table/typed" in report
    )
    assert (told["state"], told["rows"], told["rejects"]) == (
        "running", len(found), len(rejected),
    )  # fmt: skip
