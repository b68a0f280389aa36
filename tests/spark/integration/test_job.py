"""The whole job as a child process: it ends well, and it ends badly at any moment."""

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from fake_sink import FakeSink, job_settings
from rillnode.actors.spark.sink_job import PASSING_CODE
from rillnode.node.spark.job_config import JobConfig
from rillnode.node.spark.process import SparkJob, last_words, session_members, start_job

pytestmark = pytest.mark.spark

START_SECONDS_MAX = 900.0


class Runner:
    """Starts the job, waits for what it does, and tells how it ended."""

    def __init__(self, config: JobConfig, log: Path, python_path: str) -> None:
        self.config = config
        self.log = log
        self._environment = {"PYTHONPATH": python_path}
        self.job: SparkJob | None = None
        self.exit_code: int | None = None

    def start(self) -> SparkJob:
        self.exit_code = None
        self.job = start_job(self.config, self.log, self._environment, self._on_exit)
        return self.job

    def _on_exit(self, code: int) -> None:
        # As a node does where the machine was too busy for Spark.
        if code == PASSING_CODE and last_words(self.log, 0).endswith("[job.busy]"):
            self.start()
        else:
            self.exit_code = code

    async def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while not condition():
            assert time.monotonic() < deadline, self.log.read_text()
            assert self.exit_code is None, self.log.read_text()
            await asyncio.sleep(0.02)

    async def ended(self) -> int:
        deadline = time.monotonic() + START_SECONDS_MAX
        while self.exit_code is None:
            assert time.monotonic() < deadline, self.log.read_text()
            await asyncio.sleep(0.02)
        return self.exit_code

    def version(self) -> int:
        """Number of the table's last version, as its log's file names tell."""
        log = Path(self.config.table_dir) / "_delta_log"
        return max((int(one.stem) for one in log.glob("*.json")), default=-1)

    def unfinished(self) -> bool:
        """Whether tasks have written files that no transaction has added."""
        written = {one.name for one in Path(self.config.table_dir).glob("part-*.parquet")}
        return bool(
            written - {Path(one).name for one in DeltaTable(self.config.table_dir).file_uris()}
        )


@pytest.fixture
def runner(sink: FakeSink, tmp_path: Path, worker_path: str) -> Runner:
    options = sink.serve()
    config = JobConfig(
        **job_settings(options),
        table_dir=str(tmp_path / "table"),
        checkpoint_dir=str(tmp_path / "table" / "_checkpoints" / "bronze"),
        work_dir=str(tmp_path / "work"),
        trigger_seconds=0.1,
        batch_rows_max=5_000,
        compact_commits=20,
    )
    return Runner(config, tmp_path / "bronze.log", worker_path)


def counted_rows(table: str) -> Counter[tuple[int, int]]:
    counts: Counter[tuple[int, int]] = Counter()
    for name in DeltaTable(table).file_uris():
        columns = pq.read_table(name, columns=["partition", "index"])
        partitions, indexes = (columns.column(at).to_pylist() for at in (0, 1))
        counts.update(zip(partitions, indexes, strict=True))
    return counts


def fill(sink: FakeSink, blocks: int) -> int:
    for at in range(blocks):
        sink.append("s", [b"%0200d" % i for i in range(500)], partition=at % 3)
    return 500 * blocks


@pytest.mark.long  # the demo does so, too
def test_a_job_lands_what_comes_and_stops_after_its_batch(sink: FakeSink, runner: Runner) -> None:
    async def scenario() -> None:
        job = runner.start()
        total = fill(sink, 30)
        await runner.until(lambda: sum(sink.positions.values()) == total)
        sink.append("t", [b"late"])
        await runner.until(lambda: sink.positions.get(("t", 0)) == 1)
        job.terminate()
        assert await runner.ended() == 0

    asyncio.run(scenario())
    counts = counted_rows(runner.config.table_dir)
    assert (len(counts), set(counts.values())) == (15_001 - 1, {1, 2})  # (0, 0) is in s and in t
    written = [report for report in sink.reports if "rows" in report]
    assert sum(report["rows"] for report in written) == 15_001
    assert written[-1]["rows_behind"] == 0
    assert not (Path(runner.config.work_dir) / "drain").exists()
    assert runner.log.read_text() == ""


@pytest.mark.long
def test_a_job_ends_when_its_node_is_gone(sink: FakeSink, runner: Runner) -> None:
    async def scenario() -> None:
        job = runner.start()
        total = fill(sink, 3)
        await runner.until(lambda: sum(sink.positions.values()) == total)
        stdin = job._process.stdin  # pyright: ignore[reportPrivateUsage] - the death closes it
        assert stdin is not None
        stdin.close()
        assert await runner.ended() == 0

    asyncio.run(scenario())


@pytest.mark.long
def test_five_kills_lose_and_repeat_nothing(sink: FakeSink, runner: Runner) -> None:
    total = fill(sink, 900)

    def java_only(job: SparkJob) -> None:
        for pid in session_members(job.pid):
            if (Path("/proc") / str(pid) / "comm").read_text().strip() == "java":
                os.kill(pid, signal.SIGKILL)

    def leader_only(job: SparkJob) -> None:
        os.kill(job.pid, signal.SIGKILL)

    in_flight: list[bool] = []

    def in_the_middle(before: int) -> bool:
        return runner.version() > before + 3 and runner.unfinished()

    async def scenario() -> None:
        for kill in (SparkJob.kill, java_only, leader_only, java_only, SparkJob.kill):
            before = runner.version()
            job = runner.start()
            await runner.until(partial(in_the_middle, before))
            in_flight.append(runner.unfinished())
            kill(job)
            assert await runner.ended() != 0
            ended = "Java virtual machine has ended" if kill is java_only else "killed by SIGKILL"
            assert ended in job.last_words
            await _all_gone(job.pid)
        job = runner.start()
        await runner.until(lambda: sum(sink.positions.values()) == total)
        job.terminate()
        assert await runner.ended() == 0

    asyncio.run(scenario())
    assert any(in_flight)
    counts = counted_rows(runner.config.table_dir)
    assert len(counts) == total
    assert set(counts.values()) == {1}
    assert "merged" in runner.log.read_text()


async def _all_gone(session: int) -> None:
    deadline = time.monotonic() + 120
    while session_members(session):
        assert time.monotonic() < deadline, "processes have outlived the job"
        await asyncio.sleep(0.05)


@pytest.mark.long
def test_a_cluster_of_separate_executors_lands_everything_once(
    sink: FakeSink, runner: Runner, worker_path: str
) -> None:
    """Executors in processes of their own, one of which is killed in the middle."""
    runner.config = msgspec.structs.replace(
        runner.config,
        master="local-cluster[2,1,1024]",
        settings={"spark.executorEnv.PYTHONPATH": worker_path},
    )
    total = fill(sink, 300)

    def executors(job: SparkJob) -> list[int]:
        return [pid for pid in session_members(job.pid) if b"ExecutorBackend" in command(pid)]

    async def scenario() -> None:
        job = runner.start()
        await runner.until(lambda: runner.version() >= 4)
        running = executors(job)
        assert len(running) == 2
        os.kill(running[0], signal.SIGKILL)
        await runner.until(lambda: sum(sink.positions.values()) == total)
        job.terminate()
        assert await runner.ended() == 0

    asyncio.run(scenario())
    counts = counted_rows(runner.config.table_dir)
    assert len(counts) == total
    assert set(counts.values()) == {1}


def command(pid: int) -> bytes:
    try:
        return (Path("/proc") / str(pid) / "cmdline").read_bytes()
    except OSError:
        return b""
