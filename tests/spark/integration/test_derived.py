"""The tables made of bronze, as the job and the command line keep them: up to date, or anew."""

from pathlib import Path

import pytest
from deltalake import DeltaTable
from msgspec.structs import replace

from chained_tables import Pipeline, in_process
from rillnode.codecs.errors import StoreError
from rillnode.node.spark import parts
from rillnode.node.spark.derived import Derived, replay
from rillnode.node.spark.tables import CHAINS, DERIVED, LAG, MINUTES, PUBLISHERS, SILVER_SCHEMA
from rillnode.node.testing.contract.stores.driver import wait_until
from streamr_samples import make_message

PARTS = ("silver", "gold/minutes", "gold/chains", "gold/publishers", "gold/lag")


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    monkeypatch.setattr(parts, "VIEW_SECONDS", 0.1)
    monkeypatch.setattr(parts, "BACKOFF_SECONDS", (0.0,))
    return Pipeline(tmp_path)


def test_tables_are_kept_up_to_date_until_they_are_stopped(pipeline: Pipeline) -> None:
    derived = Derived(pipeline.config(), in_process)
    derived.start()  # there is no bronze yet
    pipeline.land(*(make_message(at) for at in range(5)))
    derived.note_lag({"sink/bronze": {("s", 0): 5}}, {("s", 0): 8})
    wait_until(lambda: bool(pipeline.gold_rows(MINUTES)))
    with pytest.raises(StoreError, match=r"pipeline\.busy"):
        Derived(pipeline.config(), in_process).run_once()
    derived.finish()
    states = {name: part["state"] for name, part in derived.report().items()}
    assert states == dict.fromkeys(PARTS, "running")
    assert pipeline.indexes() == list(range(5))
    assert [row["messages"] for row in pipeline.gold_rows(MINUTES)] == [5]
    assert [row["rows_behind"] for row in pipeline.gold_rows(LAG)] == [3]


def test_a_failure_is_told_and_tried_again(pipeline: Pipeline) -> None:
    pipeline.land(make_message(1))
    # A bronze table lies where silver is to be.
    config = pipeline.config()
    derived = Derived(replace(config, silver_dir=config.bronze_dir), in_process)
    derived.start()
    wait_until(lambda: "failed" in str(derived.report()))
    wait_until(lambda: "'failures': 2" in str(derived.report()))
    assert "other columns" in str(derived.report())
    derived.finish()


def test_a_gold_table_that_fails_holds_up_no_other(pipeline: Pipeline) -> None:
    pipeline.land(make_message(1))
    DeltaTable.create(pipeline.gold / MINUTES.name, SILVER_SCHEMA)  # it is none of ours
    derived = Derived(pipeline.config(), in_process)
    derived.start()
    wait_until(lambda: bool(pipeline.gold_rows(PUBLISHERS)))
    wait_until(lambda: "'failures': 2" in str(derived.report()))
    derived.finish()
    states = {name: part["state"] for name, part in derived.report().items()}
    assert states == {**dict.fromkeys(PARTS, "running"), "gold/minutes": "failed"}
    assert [row["messages"] for row in pipeline.gold_rows(CHAINS)] == [1]


def test_a_replay_makes_the_same_tables_which_then_go_on(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    said: list[str] = []
    pipeline.land(make_message(1), make_message(2), make_message(1))
    derived = Derived(pipeline.config(), in_process)
    derived.run_once()
    derived.note_lag({"sink/bronze": {("s", 0): 5}}, {("s", 0): 8})
    derived.start()
    derived.finish()
    rows = pipeline.rows()
    gold = {table: pipeline.gold_rows(table) for table in (*DERIVED, LAG)}
    assert gold[LAG]
    for file in pipeline.silver.glob("*.parquet"):
        file.unlink()
    replay(pipeline.config(), in_process, said.append)
    assert pipeline.rows() == rows
    assert {table: pipeline.gold_rows(table) for table in (*DERIVED, LAG)} == gold
    places = (pipeline.silver, pipeline.gold)
    assert said[0] == "silver has 2 rows"
    assert said[-2:] == [f"made anew: {place}" for place in places]
    assert sorted(path.name for path in tmp_path.iterdir() if "repla" in path.name) == []
    # The tables have moved, and so has the checkpoint: the query knows what it has seen.
    pipeline.land(make_message(2), make_message(3))
    pipeline.run()
    assert pipeline.indexes() == [0, 1, 4]
