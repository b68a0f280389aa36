from pathlib import Path
from typing import cast

import pytest

from chained_tables import in_process
from rillnode.actors.spark.sink_job import DERIVED_TABLES
from rillnode.codecs.errors import StoreError
from rillnode.node.config import Config, Location
from rillnode.node.spark import parts
from rillnode.node.spark.config import SparkSink
from rillnode.node.spark.configuring import derived_config, job_config
from rillnode.node.spark.derived import Derived, own_tables
from rillnode.node.spark.job_config import (
    DerivedConfig,
    JobConfig,
    read_config,
    save_job_config,
)
from rillnode.node.spark.parts import BACKOFF_SECONDS, Duties, Part
from rillnode.node.spark.tables import GOLD
from rillnode.node.spark.views.query import ViewQuery
from rillnode.node.testing.contract.stores.driver import wait_until


def test_a_sink_without_silver_makes_nothing_of_bronze() -> None:
    sink = SparkSink(name="bronze", streams=("*",), table_dir=Location("bronze"))
    assert derived_config(Config(name="a"), sink) is None
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
    assert read_config(tmp_path / "job.json", JobConfig) == config
    assert config.derived is not None
    assert config.derived.bronze_dir == config.table_dir == "/t/bronze"
    assert (config.derived.silver_dir, config.derived.gold_dir) == ("/t/silver", "/t/gold")
    assert config.derived.checkpoint_dir == "/t/silver/_checkpoints/silver"
    assert (config.derived.consumer, config.derived.duplicate_seconds) == ("sink/bronze", 60.0)


def test_tables_at_urls_are_told_to_a_job(tmp_path: Path) -> None:
    sink = SparkSink(
        name="bronze",
        streams=("*",),
        table_dir=Location("s3://lake/bronze"),
        silver_dir=Location("s3://lake/silver"),
        checkpoint_dir=Path("/c/bronze"),
    )
    save_job_config(job_of(sink), tmp_path / "job.json")
    config = read_config(tmp_path / "job.json", JobConfig)
    assert config.locations == ("s3://lake/bronze", "s3://lake/silver")
    assert config.places == (*config.locations, "/c/bronze", "/c/bronze-silver")


def test_a_part_tells_why_it_fails_and_waits_longer_each_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    part = Part("silver", [str(tmp_path)])
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


def test_a_part_whose_place_is_away_waits_and_tells_how_far_it_is_behind(tmp_path: Path) -> None:
    place = tmp_path / "silver"
    place.write_bytes(b"")  # no directory can be made there
    part = Part("silver", [str(place)])
    part.behind = {"rows_behind": 7}
    part.failed(StoreError("spark.log", "gone"))
    report = part.report()
    assert (report["state"], report["failures"], report["rows_behind"]) == ("waiting", 1, 7)
    assert "cannot be written now" in str(report["error"])
    part.worked()
    assert part.report() == {"state": "running", "rows_behind": 7}


def test_tables_are_made_by_one_process_at_a_time(tmp_path: Path) -> None:
    sink = SparkSink(
        name="bronze",
        streams=("*",),
        table_dir=Location(tmp_path / "bronze"),
        silver_dir=Location(tmp_path / "silver"),
    )
    config = derived_config(Config(name="a"), sink)
    assert config is not None
    with own_tables(config):
        with (
            pytest.raises(StoreError, match=r"makes .*silver already") as caught,
            own_tables(config),
        ):
            pass
        assert caught.value.code == "pipeline.busy"
    with own_tables(config):
        pass


def test_a_sink_tells_of_every_table_that_is_made_of_bronze() -> None:
    assert ("silver", *(f"gold/{table.name}" for table in GOLD)) == DERIVED_TABLES


def job_of(sink: SparkSink) -> JobConfig:
    paths = (Path("job.key"), Path("work"))
    job = job_config(Config(name="a"), sink, "00" * 32, "127.0.0.1:4100", *paths)
    assert isinstance(job, JobConfig)
    return job


class Panic(BaseException):
    """As a panic of a library's native code reaches Python."""


def gold_tables(tmp_path: Path) -> Derived:
    """What makes gold tables, which no query makes in truth."""
    config = DerivedConfig(
        bronze_dir=str(tmp_path / "bronze"),
        silver_dir=str(tmp_path / "silver"),
        gold_dir=str(tmp_path / "gold"),
        checkpoint_dir=str(tmp_path / "checkpoint"),
        consumer="sink/bronze",
        trigger_seconds=0.1,
    )
    derived = Derived(config, in_process)
    derived._is_owner = True  # pyright: ignore[reportPrivateUsage]
    return derived


def test_a_panic_is_a_failure_of_the_table_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def panic(_: ViewQuery) -> bool:
        raise Panic("an index out of bounds")

    monkeypatch.setattr(ViewQuery, "step", panic)
    monkeypatch.setattr(parts, "BACKOFF_SECONDS", (0.0,))
    derived = gold_tables(tmp_path)
    derived.start()
    wait_until(lambda: cast(int, derived.report()["gold/minutes"].get("failures", 0)) > 1)
    assert derived.report()["gold/minutes"]["error"] == "an index out of bounds [job.spark]"
    derived.finish()


def test_the_end_of_the_threads_that_make_tables_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> float:
        raise Panic("not even that")

    monkeypatch.setattr(Duties, "attempt", fail)
    derived = gold_tables(tmp_path)
    derived.start()
    wait_until(lambda: {one["state"] for one in derived.report().values()} == {"failed"})
    assert {
        name: (part["state"], part.get("error")) for name, part in derived.report().items()
    } == {
        name: ("failed", "the thread that makes it has ended: not even that")
        for name in DERIVED_TABLES
    }
    derived.finish()
