"""From bronze to silver inside Spark: decoded, once, and once only whatever is lost."""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from chained_tables import Pipeline
from rillnode.codecs.entries import EntryKind
from streamr_samples import make_message

pytestmark = pytest.mark.spark


@pytest.fixture
def pipeline(spark: SparkSession, tmp_path: Path) -> Pipeline:
    return Pipeline(spark, tmp_path)


def test_events_are_decoded_once_and_what_is_wrong_is_kept(pipeline: Pipeline) -> None:
    first, second = make_message(1, signed=True), make_message(2, previous=1)
    pipeline.land(first, second, first, b"[32,")
    pipeline.land(b'{"a":1}', kind=EntryKind.BYTES)
    pipeline.run()
    pipeline.land(second, make_message(3, previous=2), make_message(2, content='{"n":2}'))
    pipeline.run()
    rows = pipeline.rows()
    assert [row["index"] for row in rows] == [0, 1, 3, 4, 6, 7]
    assert [row["signature"] for row in rows[:2]] == ["valid", "unsigned"]
    assert (rows[2]["data"], rows[2]["error"] is None) == (b"[32,", False)
    assert (rows[3]["format"], rows[3]["content"]) == ("json", '{"a":1}')
    # Of two messages under one id that differ, neither is lost.
    assert [row["event_id"] for row in rows].count(rows[1]["event_id"]) == 2


@pytest.mark.long
def test_neither_a_lost_checkpoint_nor_a_lost_commit_skips_or_repeats(pipeline: Pipeline) -> None:
    for at in range(4):
        pipeline.land(make_message(10 * at), make_message(10 * at + 1))
    pipeline.run(rows_max=3)
    assert pipeline.indexes() == list(range(8))
    commits = pipeline.checkpoint / "commits"
    last = max((path for path in commits.iterdir() if path.name.isdecimal()), key=lambda p: p.name)
    last.unlink()
    (commits / f".{last.name}.crc").unlink(missing_ok=True)
    pipeline.land(make_message(100))
    pipeline.run()
    assert pipeline.indexes() == list(range(9))
    shutil.rmtree(pipeline.checkpoint)
    pipeline.land(make_message(200))
    pipeline.run()
    assert pipeline.indexes() == list(range(10))
