"""The job of a Python sink: batches, commits and notes, with a sink in memory."""

import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from msgspec.structs import replace

from fake_sink import FakeSink, job_settings
from rillnode.actors.spark.sink_job import PASSING_CODE, SinkStatus
from rillnode.codecs.errors import ConfigError, StoreError
from rillnode.node.spark import delta, landing as landing_module, parquet
from rillnode.node.spark.erasure import PLACES, Erasures, ranges_of, sweep
from rillnode.node.spark.job_config import JobConfig, PythonJobConfig, save_job_config
from rillnode.node.spark.landing import Landing as PythonLanding, fetch, main
from rillnode.node.spark.sinks import samples
from table_readers import plain_rows

CREATED = 1_600_000_000_000


def config_of(directory: Path, sink: FakeSink, **changes: Any) -> PythonJobConfig:
    options = sink.local_options
    config = PythonJobConfig(
        **job_settings(options),
        table_dir=str(directory / "table"),
        work_dir=str(directory / "work"),
        trigger_seconds=0.05,
    )
    return replace(config, **changes)


def sink_of(**counts: int) -> FakeSink:
    sink = FakeSink()
    for stream, count in counts.items():
        sink.reset(stream, created_at=CREATED)
        push(sink, count, stream)
    return sink


def push(sink: FakeSink, count: int, stream: str = "s", partition: int = 0) -> None:
    """Push entries, in blocks of four."""
    for first in range(0, count, 4):
        items = [b"%d" % at for at in range(first, min(count, first + 4))]
        sink.append(stream, items, partition=partition)


def run(config: PythonJobConfig) -> PythonLanding:
    """A job that lands all there is."""
    landing = PythonLanding(config)
    while landing.step():
        continue
    return landing


def rows(directory: Path) -> list[dict[str, Any]]:
    columns = ["stream", "partition", "index", "kind", "gap_until", "created_at"]
    table = plain_rows(str(directory / "table")).select(columns)
    return sorted(
        table.to_pylist(), key=lambda row: (row["stream"], row["partition"], row["index"])
    )


def indexes(directory: Path, stream: str = "s", kind: str = "bytes") -> list[int]:
    return [
        row["index"] for row in rows(directory) if (row["stream"], row["kind"]) == (stream, kind)
    ]


def test_batches_are_landed_saved_and_reported(tmp_path: Path) -> None:
    sink = sink_of(s=10, t=3)
    landing = run(config_of(tmp_path, sink, batch_rows_max=4))
    assert (indexes(tmp_path), indexes(tmp_path, "t")) == ([*range(10)], [0, 1, 2])
    assert sink.positions == {("s", 0): 10, ("t", 0): 3}
    history = DeltaTable(tmp_path / "table").history()
    assert [one["batch"]["rows"] for one in history if "batch" in one] == [1, 4, 4, 4]
    landing.report({"table/x": {"state": "running"}})
    landing.report({"table/x": {"state": "running"}})
    (report,) = sink.reports
    assert (report["state"], report["rows_behind"], report["batch"]) == ("waiting", 0, 4)
    status = SinkStatus(kind="python", report=report)
    told = samples({"bronze": status.document()})["rillnode_spark_batches_total"]
    assert list(told) == [(("bronze",), 4)]
    assert (report["entries_lost_total"], report["table/x"]) == (0, {"state": "running"})


def test_nothing_is_written_where_nothing_is_new(tmp_path: Path) -> None:
    sink = sink_of(s=3)
    landing = run(config_of(tmp_path, sink))
    table = DeltaTable(tmp_path / "table")
    assert not landing.step()
    sink.create("empty")
    assert not landing.step()
    table.update_incremental()
    assert table.version() == 1
    assert sink.positions == {("s", 0): 3, ("empty", 0): 0}


class Stop(BaseException):
    """As a kill stops a process: nothing after it is done."""


@pytest.mark.parametrize(
    "place", ["write_files", "read_ranges", "save", "sync_log", "replace_file", "summary"]
)
def test_a_job_killed_at_any_moment_loses_and_repeats_nothing(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = sink_of(s=10, t=5)
    config = config_of(tmp_path, sink, batch_rows_max=7)
    module = delta if place == "sync_log" else landing_module
    real, calls = getattr(module, place), 0

    def stopping(*args: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls % 2:
            raise Stop
        return real(*args, **named)

    monkeypatch.setattr(module, place, stopping)
    stopped = 0
    for _ in range(40):
        landing = PythonLanding(config)
        try:
            while landing.step():
                continue
        except Stop:
            stopped += 1
            continue
        if sum(sink.positions.values()) == 15:
            break
    assert stopped
    counts = Counter((row["stream"], row["index"]) for row in rows(tmp_path))
    assert counts == Counter([*(("s", at) for at in range(10)), *(("t", at) for at in range(5))])


def test_what_was_trimmed_has_a_row(tmp_path: Path) -> None:
    sink = sink_of(s=4)
    run(config_of(tmp_path, sink))
    push(sink, 8)
    sink.reset("late", created_at=CREATED)
    push(sink, 8, "late")
    sink.trim("s", 6)
    sink.trim("late", 3)
    landing = run(config_of(tmp_path, sink))
    gaps = [
        (row["stream"], row["index"], row["gap_until"])
        for row in rows(tmp_path)
        if row["kind"] == "gap"
    ]
    assert gaps == [("late", 0, 3), ("s", 4, 6)]
    assert indexes(tmp_path) == [*range(4), *range(6, 12)]
    landing.report({})
    assert sink.reports[-1]["entries_lost_total"] == 5


def test_a_stream_made_anew_is_landed_from_its_beginning_behind_a_gap(tmp_path: Path) -> None:
    sink = sink_of(s=6)
    config = config_of(tmp_path, sink)
    running = run(config)
    sink.reset("s", created_at=CREATED + 1)
    push(sink, 6)
    while running.step():
        continue
    assert sink.positions == {("s", 0): 6}, "in the new one, too"
    sink.reset("s", created_at=CREATED + 2)  # while no job runs
    push(sink, 2)
    run(config)
    run(config)
    found = [
        (row["index"], row["kind"], row["created_at"].microsecond // 1000) for row in rows(tmp_path)
    ]
    assert Counter(found) == Counter(
        [
            *((at, "bytes", 0) for at in range(6)),
            *((at, "bytes", 1) for at in range(6)),
            *((at, "bytes", 2) for at in range(2)),
            (6, "gap", 1),
            (6, "gap", 2),
        ]
    )


def test_a_kill_behind_the_commit_of_a_stream_made_anew_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = sink_of(s=6)
    sink.append("s", [b"x"], partition=1)
    config = config_of(tmp_path, sink)
    run(config)
    sink.reset("s", created_at=CREATED + 1)
    sink.reset("s", 1, created_at=CREATED + 1)
    push(sink, 6)
    sink.append("s", [b"y"], partition=1)
    landing = PythonLanding(config)
    with monkeypatch.context() as patch:
        patch.setattr(landing_module, "save", _stop)
        with pytest.raises(Stop):
            landing.step()
    before = rows(tmp_path)
    run(config)
    assert rows(tmp_path) == before
    assert Counter(row["kind"] for row in before) == {"bytes": 14, "gap": 2}


def _stop(*_args: object) -> None:
    raise Stop


def test_a_lost_note_costs_no_entry(tmp_path: Path) -> None:
    sink = sink_of(s=6)
    config = config_of(tmp_path, sink)
    run(config)
    shutil.rmtree(config.work_dir)
    push(sink, 2)
    run(config)
    assert indexes(tmp_path) == [*range(8)]
    (Path(config.work_dir) / "streams.json").write_text("{")
    with pytest.raises(ConfigError, match=r"streams\.json is damaged"):
        run(config)


def test_a_table_that_is_removed_is_made_of_all_that_is_kept(tmp_path: Path) -> None:
    sink = sink_of(s=6)
    config = config_of(tmp_path, sink)
    run(config)
    shutil.rmtree(config.table_dir)
    sink.trim("s", 2)
    run(config)
    assert indexes(tmp_path) == [2, 3, 4, 5]
    assert not indexes(tmp_path, kind="gap")


@pytest.mark.parametrize("landed", ["entries", "partition", "anew", "merged"])
def test_of_two_jobs_on_one_table_one_is_told(landed: str, tmp_path: Path) -> None:
    sink = sink_of(s=4)
    config = config_of(tmp_path, sink)
    late = run(config)
    if landed == "anew":
        sink.reset("s", created_at=CREATED + 1)
    push(sink, 4, partition=int(landed == "partition"))
    run(config)
    if landed == "merged":
        assert late.table is not None
        late.table.update_incremental()  # as maintenance does before it merges files
    push(sink, 4)
    before = rows(tmp_path)
    with pytest.raises(StoreError, match="another job has landed") as caught:
        late.step()
    assert caught.value.code == "landing.overtaken"
    run(config)
    assert len(rows(tmp_path)) == len(before) + 4
    files = {Path(name).name for name in DeltaTable(config.table_dir).file_uris()}
    assert {path.name for path in Path(config.table_dir).glob("*.parquet")} == files


def test_a_sink_is_changed_from_spark_to_python_and_back(tmp_path: Path) -> None:
    """Tasks may be Spark's; the batches are the same, and each job goes on where the table ends."""
    sink = sink_of(s=8)
    config = config_of(tmp_path, sink)
    told = {name: getattr(config, name) for name in config.__struct_fields__}
    of_spark = JobConfig(**told, checkpoint_dir=str(tmp_path / "checkpoint"))
    for count in (0, 20_000, 4):
        push(sink, count)
        landing = PythonLanding(of_spark, lambda tasks: [*map(fetch, tasks)], tasks_max=3)
        while landing.step():
            continue
        push(sink, 4)
        run(config)
    assert indexes(tmp_path) == [*range(8 + 20_004 + 12)]
    history = DeltaTable(tmp_path / "table").history()
    assert max(one["batch"]["files"] for one in history if "batch" in one) == 3


def test_a_failed_task_leaves_no_files_of_the_others(tmp_path: Path) -> None:
    sink = sink_of(s=20_000)
    written: list[bytes] = []

    def engine(tasks: Sequence[bytes]) -> list[bytes]:
        written.extend(map(fetch, tasks[:2]))
        raise OSError(28, "No space left on device")

    landing = PythonLanding(config_of(tmp_path, sink), engine, tasks_max=3)
    with pytest.raises(OSError, match="No space"):
        landing.step()
    assert len(written) == 2
    assert not list((tmp_path / "table").glob("*.parquet"))


def test_what_was_erased_does_not_come_back_from_the_log(tmp_path: Path) -> None:
    sink = sink_of(s=6)
    config = config_of(tmp_path, sink)
    run(config)
    found = plain_rows(config.table_dir)
    found = found.filter(pc.equal(found.column("index"), 3))
    erasures = Erasures(config.table_dir)
    erasures.note(ranges_of(found.select(PLACES.names).to_batches()), table="t", predicate="p")
    assert sweep(config.table_dir, erasures.erased()) == 1
    assert indexes(tmp_path) == [0, 1, 2, 4, 5]
    # Bronze is removed, and lands again what the node still has.
    shutil.rmtree(config.table_dir)
    push(sink, 4)
    run(config)
    assert indexes(tmp_path) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    push(sink, 1)
    run(config)
    assert indexes(tmp_path)[-1] == 10


def test_files_of_a_batch_that_fails_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = sink_of(s=40)
    config = config_of(tmp_path, sink)
    open_file = parquet._OpenFile  # pyright: ignore[reportPrivateUsage]
    real = open_file.write
    written = 0

    def full(file: Any, batches: Sequence[Any]) -> None:
        nonlocal written
        real(file, list(batches))
        written += 1
        if written == 1:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(open_file, "write", full)
    with pytest.raises(OSError, match="No space"):
        run(config)
    assert not list(Path(config.table_dir).glob("*.parquet"))
    run(config)
    assert indexes(tmp_path) == [*range(40)]


def test_a_job_ends_with_one_line_and_a_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.json"
    save_job_config(config_of(tmp_path, sink_of(s=5)), path)
    assert main([str(path), "--available-now"]) == 0
    assert indexes(tmp_path) == [*range(5)]
    path.write_text('{"sink": "x", "master": "local[2]"}')
    assert main([str(path)]) == 2
    assert capsys.readouterr().err.startswith(f"job failed: {path}: ")


def test_a_table_that_cannot_be_written_now_passes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.json"
    save_job_config(config_of(tmp_path, sink_of(s=5)), path)
    (tmp_path / "table").write_bytes(b"")
    assert main([str(path)]) == PASSING_CODE
    assert capsys.readouterr().err.endswith("[job.store]\n")


def test_a_damaged_log_is_told_with_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sink = sink_of(s=5)
    config = config_of(tmp_path, sink)
    path = tmp_path / "job.json"
    save_job_config(config, path)
    assert main([str(path), "--available-now"]) == 0
    damaged = tmp_path / "table" / "_delta_log" / f"{1:020}.json"
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:20])
    push(sink, 3)
    assert main([str(path), "--available-now"]) == 1
    assert f"{damaged}, version 1: " in capsys.readouterr().err
    damaged.write_bytes(whole)
    assert main([str(path), "--available-now"]) == 0
    assert indexes(tmp_path) == [*range(8)]


def test_the_job_imports_neither_spark_nor_what_it_needs() -> None:
    program = (
        "import sys, rillnode.node.spark.landing, rillnode.node.spark.clients;"
        "print(sorted({one.partition('.')[0] for one in sys.modules} & {'pyspark', 'py4j'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
