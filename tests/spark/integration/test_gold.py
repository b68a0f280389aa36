"""Gold is what silver says of every minute, however often and in whatever parts it is made."""

import shutil
from pathlib import Path

import pytest

from chained_tables import Pipeline
from rillnode.codecs.entries import EntryKind
from rillnode.node.spark.tables import CHAINS, DERIVED, MINUTES, PUBLISHERS
from streamr_samples import KEY, START_MS, make_message

MINUTE = 60_000


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return Pipeline(tmp_path)


def test_minutes_chains_and_publishers_are_counted(pipeline: Pipeline) -> None:
    at = START_MS - START_MS % MINUTE
    offset = at - START_MS

    def message(ts: int, previous: int | None) -> bytes:
        return make_message(offset + ts, previous=None if previous is None else offset + previous)

    # The message at 30 names one at 20, which comes late; the one at 10 comes twice.
    pipeline.land(
        message(10, None), message(30, 20), message(20, 10), message(10, None), b"no",
        received_at=at + 1_000,
    )  # fmt: skip
    pipeline.land(b"plain", kind=EntryKind.BYTES, partition=1, received_at=at + 2_000)
    pipeline.run()
    assert pipeline.run_gold() == len(DERIVED)
    # A minute later: nothing is missing, as the chain's end is known; then one is.
    pipeline.land(message(40, 30), message(60, 50), received_at=at + MINUTE)
    # Only duplicates, which leave no row in silver.
    pipeline.land(message(10, None), message(20, 10), received_at=at + 2 * MINUTE)
    pipeline.run()
    assert pipeline.run_gold() == len(DERIVED)
    assert pipeline.run_gold() == 0

    first, second, third = pipeline.gold_rows(MINUTES)
    assert (first["messages"], first["duplicates"], first["malformed"]) == (5, 1, 1)
    assert (first["publishers"], first["latency_p50_ms"]) == (1, 980.0)
    assert first["landing_p50_ms"] > 0
    assert (second["messages"], second["duplicates"]) == (2, 0)
    assert (third["messages"], third["duplicates"]) == (0, 2)
    chains = pipeline.gold_rows(CHAINS)
    counts = [
        (row["messages"], row["gaps"], row["late"], row["duplicates"], row["publisher"])
        for row in chains
    ]
    publisher = KEY.address.lower()
    assert counts == [
        (3, 1, 1, 1, publisher),
        (2, 1, 0, 0, publisher),
        (0, 0, 0, 2, publisher),
    ]
    active = pipeline.gold_rows(PUBLISHERS)
    assert [(row["publisher"], row["messages"]) for row in active] == [
        (publisher, 3),
        (publisher, 2),
    ]


def test_gold_made_again_is_the_same(pipeline: Pipeline) -> None:
    at = START_MS
    for part in range(3):
        pipeline.land(
            *(make_message(100 * part + n) for n in range(4)), received_at=at + part * MINUTE // 2
        )
        pipeline.land(b"x", kind=EntryKind.BYTES, partition=1, received_at=at)
    pipeline.run(batch_rows_max=4)
    pipeline.run_gold()
    rows = {table: pipeline.gold_rows(table) for table in DERIVED}
    assert sum(row["messages"] for row in rows[MINUTES]) == 15
    shutil.rmtree(pipeline.gold / "chains")
    pipeline.run_gold()
    shutil.rmtree(pipeline.gold)
    pipeline.run_gold()
    assert {table: pipeline.gold_rows(table) for table in DERIVED} == rows
