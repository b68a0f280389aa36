from pathlib import Path

import pytest

from rillnode.codecs.errors import StoreError
from rillnode.node.config import Location, SparkSink
from rillnode.node.pipeline.derived import BACKOFF_SECONDS, Part
from rillnode.node.pipeline.job_config import JobConfig, load_job_config, save_job_config
from rillnode.node.pipeline.process import derived_config, job_config


def test_a_sink_without_silver_makes_nothing_of_bronze() -> None:
    sink = SparkSink(name="bronze", streams=("*",), table_dir=Location("bronze"))
    assert derived_config(sink) is None
    assert job_of(sink).derived is None


def test_a_sinks_tables_are_told_to_its_job(tmp_path: Path) -> None:
    sink = SparkSink(
        name="bronze",
        streams=("*",),
        table_dir=Location("/t/bronze"),
        silver_dir=Location("/t/silver"),
        gold_dir=Location("/t/gold"),
        duplicate_seconds=60.0,
    )
    config = job_of(sink)
    save_job_config(config, tmp_path / "job.json")
    assert load_job_config(tmp_path / "job.json") == config
    assert config.derived is not None
    assert config.derived.bronze_dir == config.table_dir == "/t/bronze"
    assert (config.derived.silver_dir, config.derived.gold_dir) == ("/t/silver", "/t/gold")
    assert config.derived.checkpoint_dir == "/t/silver/_checkpoints/silver"
    assert (config.derived.consumer, config.derived.duplicate_seconds) == ("sink/bronze", 60.0)


def test_a_part_tells_why_it_fails_and_waits_longer_each_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    part = Part("silver")
    assert part.report() == {"state": "running"}
    delays = [part.failed(StoreError("spark.log", "gone")) for _ in range(4)]
    assert delays == [*BACKOFF_SECONDS, BACKOFF_SECONDS[-1]]
    assert part.report() == {"state": "failed", "failures": 4, "error": "gone [spark.log]"}
    assert capsys.readouterr().err.startswith(
        "silver failed, next attempt in 5 s: gone [spark.log]\n"
    )
    part.worked()
    assert part.report() == {"state": "running"}
    assert part.failed(StoreError("spark.log", "gone")) == BACKOFF_SECONDS[0]


def job_of(sink: SparkSink) -> JobConfig:
    return job_config(sink, "00" * 32, "127.0.0.1:4100", Path("job.key"), Path("work"))
