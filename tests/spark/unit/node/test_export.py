import json
import threading
from pathlib import Path

import msgspec
import pytest

from fake_sink import FakeSink, job_settings
from rillnode.codecs.errors import CodecError, ConfigError, RequestError
from rillnode.node.spark import export
from rillnode.node.spark.arrow import read_ranges
from rillnode.node.spark.export import Export, FilesClient, files_client, main
from rillnode.node.spark.job_config import ExportConfig
from rillnode.node.spark.offsets import Offset, Range
from rillnode.node.spark.ranges import ClientOptions

KEY = ("s", 0)
RUNNING = threading.Event()


def config_of(sink: FakeSink, directory: Path, bytes_max: int = 1_000_000) -> ExportConfig:
    options = sink.local_options
    (directory / "work").mkdir(exist_ok=True)
    return ExportConfig(
        **job_settings(options),
        directory=str(directory / "files"),
        bytes_max=bytes_max,
        work_dir=str(directory / "work"),
        trigger_seconds=0.01,
    )


def rows(directory: Path) -> list[tuple[int, str]]:
    """What a job lands from the files: index and kind of every row."""
    options = ClientOptions.from_options({"url": (directory / "files").as_uri(), "sink": "x"}, {})
    ends = files_client(options).ends()
    ranges = [Range(*key, first, until) for key, (first, until) in sorted(ends.items())]
    return [
        (row["index"], row["kind"])
        for batch in read_ranges(options, ranges, fail_on_data_loss=False)
        for row in batch.to_pylist()
    ]


def fill(sink: FakeSink, blocks: int) -> None:
    for _ in range(blocks):
        sink.append("s", [bytes(100)] * 5)


def test_what_is_new_goes_into_files_round_by_round(tmp_path: Path) -> None:
    sink = FakeSink()
    job = Export(config_of(sink, tmp_path))
    fill(sink, 3)
    job.step(RUNNING)
    job.step(RUNNING)
    fill(sink, 2)
    job.step(RUNNING)
    assert rows(tmp_path) == [(index, "bytes") for index in range(25)]
    assert len(list((tmp_path / "files").glob("*/*/*"))) == 2
    assert sink.positions == {KEY: 25}
    assert sink.reports[-1]["rows"] == 10
    assert (sink.reports[1]["files"], sink.reports[-1]["rows_behind"]) == (0, 0)


def test_large_ranges_are_cut_into_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "FILE_BYTES_MAX", 1_500)
    monkeypatch.setattr("rillnode.node.spark.ranges.FETCH_BYTES_MAX", 600)
    sink = FakeSink()
    fill(sink, 10)
    Export(config_of(sink, tmp_path)).step(RUNNING)
    assert len(list((tmp_path / "files").glob("*/*/*"))) == 4
    assert rows(tmp_path) == [(index, "bytes") for index in range(50)]


def test_a_full_directory_waits_until_files_are_taken_away(tmp_path: Path) -> None:
    sink = FakeSink()
    job = Export(config_of(sink, tmp_path, bytes_max=1))
    fill(sink, 1)
    job.step(RUNNING)
    fill(sink, 1)
    job.step(RUNNING)
    assert (sink.positions, sink.reports[-1]["state"]) == ({KEY: 5}, "full")
    assert sink.reports[-1]["rows_behind"] == 5
    for path in (tmp_path / "files").glob("*/*/*"):
        path.unlink()
    job.step(RUNNING)
    assert sink.positions == {KEY: 10}
    assert [path.name[:41] for path in (tmp_path / "files").glob("*/*/*")] == [f"{5:020}-{10:020}"]


def test_a_new_process_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    sink = FakeSink()
    fill(sink, 2)
    Export(config_of(sink, tmp_path)).step(RUNNING)
    fill(sink, 1)
    Export(config_of(sink, tmp_path)).step(RUNNING)
    assert rows(tmp_path) == [(index, "bytes") for index in range(15)]


def test_a_crash_before_the_state_was_saved_repeats_nothing(tmp_path: Path) -> None:
    sink = FakeSink()
    fill(sink, 2)
    Export(config_of(sink, tmp_path)).step(RUNNING)
    (tmp_path / "work" / "exported.json").unlink()
    fill(sink, 2)
    Export(config_of(sink, tmp_path)).step(RUNNING)
    assert rows(tmp_path) == [(index, "bytes") for index in range(20)]
    client = FilesClient(tmp_path / "files", ("*",))
    client.commit(Offset({KEY: 20}, {}))
    assert not list((tmp_path / "files").glob("*/*/*"))


def test_what_was_trimmed_is_told(tmp_path: Path) -> None:
    sink = FakeSink()
    fill(sink, 3)
    sink.trim("s", 7)
    Export(config_of(sink, tmp_path)).step(RUNNING)
    assert rows(tmp_path) == [(0, "gap"), *((index, "bytes") for index in range(7, 15))]


def test_a_stream_that_was_made_anew_ends_the_job(tmp_path: Path) -> None:
    sink = FakeSink()
    fill(sink, 2)
    job = Export(config_of(sink, tmp_path))
    job.step(RUNNING)
    sink.reset("s")
    with pytest.raises(RequestError, match="made anew"):
        job.step(RUNNING)
    sink.reset("s", created_at=1)
    fill(sink, 2)
    job.step(RUNNING)  # whether it is another stream was not known until now
    sink.reset("s", created_at=2)
    fill(sink, 3)
    for again in (job, Export(config_of(sink, tmp_path))):
        with pytest.raises(RequestError, match="made anew"):
            again.step(RUNNING)


def test_a_damaged_file_is_not_landed(tmp_path: Path) -> None:
    sink = FakeSink()
    fill(sink, 1)
    Export(config_of(sink, tmp_path)).step(RUNNING)
    (path,) = (tmp_path / "files").glob("*/*/*")
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    with pytest.raises(CodecError, match="damaged"):
        rows(tmp_path)


def test_a_job_ends_with_a_code_and_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "none.json")]) == 2
    sink = FakeSink()
    config = config_of(sink, tmp_path)
    refused = msgspec.structs.replace(config, client="fake_sink:refuse")
    file = tmp_path / "job.json"
    file.write_bytes(msgspec.json.encode(refused))
    assert main([str(file)]) == 3
    (tmp_path / "work" / "exported.json").write_text("[")
    file.write_bytes(msgspec.json.encode(config))
    assert main([str(file)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("job failed: ") for line in lines)
    (tmp_path / "work" / "exported.json").write_text(json.dumps({"s": 1}))
    with pytest.raises(ConfigError):
        Export(config)
