"""Tables in an object store, their checkpoints on this machine."""

import os
import shutil
import subprocess
import sys
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from fake_sink import FakeSink, job_settings
from rillnode.node.spark.job_config import DerivedConfig, JobConfig, save_job_config
from s3_support import SECRET, object_store

pytestmark = [pytest.mark.spark, pytest.mark.long]

JOB_SECONDS_MAX = 600


@pytest.fixture
def store(tmp_path_factory: pytest.TempPathFactory) -> Generator[dict[str, str]]:
    """What the environment of a job says of a store with the bucket `lake`."""
    with object_store(tmp_path_factory.mktemp("store")) as environment:
        yield environment


class Job:
    """The whole job, run until the present ends."""

    def __init__(self, sink: FakeSink, directory: Path, environment: Mapping[str, str]) -> None:
        options = sink.serve()
        self.checkpoints = directory / "checkpoints"
        self.log = ""
        self._environment = environment
        self._file = directory / "job.json"
        config = JobConfig(
            **job_settings(options),
            table_dir="s3://lake/bronze",
            checkpoint_dir=str(self.checkpoints / "bronze"),
            work_dir=str(directory / "work"),
            derived=DerivedConfig(
                bronze_dir="s3://lake/bronze",
                silver_dir="s3://lake/silver",
                gold_dir="s3://lake/gold",
                checkpoint_dir=str(self.checkpoints / "silver"),
                consumer="sink/bronze",
            ),
        )
        save_job_config(config, self._file)

    def run(self) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "rillnode.node.spark.job", self._file, "--available-now"],
            env={**os.environ, **self._environment},
            capture_output=True,
            text=True,
            timeout=JOB_SECONDS_MAX,
            check=False,
        )
        self.log += done.stdout + done.stderr
        assert done.returncode == 0, done.stderr

    def indexes(self, table: str) -> list[int]:
        rows = self._table(table).to_pyarrow_table(columns=["index"])
        return sorted(rows.column("index").to_pylist())

    def messages(self) -> int:
        rows = self._table("gold/minutes").to_pyarrow_table(columns=["messages"])
        return pc.sum(rows.column("messages")).as_py() or 0

    def _table(self, name: str) -> Any:
        return DeltaTable(f"s3://lake/{name}", storage_options=dict(self._environment))


def test_every_entry_is_in_each_table_once(
    sink: FakeSink, store: dict[str, str], tmp_path: Path, worker_path: str
) -> None:
    job = Job(sink, tmp_path, {**store, "PYTHONPATH": worker_path})
    sink.append("s", [b'{"n": %d}' % n for n in range(500)])
    job.run()
    sink.append("s", [b'{"n": %d}' % n for n in range(500, 700)])
    job.run()
    shutil.rmtree(job.checkpoints / "silver")
    sink.append("s", [b'{"n": %d}' % n for n in range(700, 800)])
    job.run()
    assert job.indexes("bronze") == job.indexes("silver") == list(range(800))
    assert job.messages() == 800
    assert SECRET not in job.log
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert SECRET.encode() not in file.read_bytes(), file
