"""What typed tables promise in either format: once, whatever is killed or comes between."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from iceberg_lake import IcebergLake
from rillnode.node.spark.typed.work import in_process
from typed_samples import Lake, die_after, run

GOOD = b'{"id":1,"at":"2026-01-01T12:00:00Z"}'
BAD = b'{"id":"x","at":"2026-01-01T12:00:00Z"}'
NEW = b'{"id":1,"at":"2026-01-01T12:00:00Z","site":"x","pos":{"lat":1.5}}'


@pytest.fixture(params=[Lake, IcebergLake], ids=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    made: Lake = request.param(tmp_path)
    return made


def rejected(lake: Lake) -> list[int]:
    return [row["_index"] for row in lake.rows("t_rejects")]


@pytest.mark.parametrize(
    "commits",
    [1, 3, *(pytest.param(commits, marks=pytest.mark.long) for commits in (0, 2))],
)
def test_a_kill_between_two_commits_loses_and_repeats_nothing(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    lake.push(GOOD)
    run(lake.table())
    lake.push(GOOD, BAD, GOOD)
    lake.push(BAD, NEW)
    die_after(monkeypatch, commits, lake.opened)
    with pytest.raises(KeyboardInterrupt):
        run(lake.table(batch_rows_max=3))
    monkeypatch.undo()
    run(lake.table())
    assert sorted(lake.places() + rejected(lake)) == [0, 1, 2, 3, 4, 5]
    assert len(rejected(lake)) == 2
    assert {"rows": 4, "rejects": 2, "schema_version": 2}.items() <= lake.table().figures().items()


def test_a_second_process_that_makes_the_same_step_changes_nothing(lake: Lake) -> None:
    lake.push(GOOD, BAD)

    def slow(works: Sequence[bytes]) -> list[bytes]:
        outcomes = in_process(works)
        run(lake.table())
        return outcomes

    run(lake.table(engine=slow))
    assert (lake.places(), rejected(lake)) == ([0], [1])


def test_rejects_are_landed_again_once_after_a_fix(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = {"id": "json", "at": "timestamp?"}
    lake.push(GOOD, BAD, b"{", b'{"id":3,"x":{"y":1}}')
    run(lake.table(columns={"id": "string", "at": "timestamp?"}))
    assert len(rejected(lake)) == 3
    die_after(monkeypatch, 1, lake.opened)
    with pytest.raises(KeyboardInterrupt):
        lake.table(columns=wanted).retry()
    monkeypatch.undo()
    assert lake.table(columns=wanted).retry() == (0, 1)
    assert (lake.places(), rejected(lake)) == ([0, 1, 3], [2])
    assert [row["id"] for row in lake.rows()] == ["1", "x", "3"]
    lake.push(BAD)
    run(lake.table(columns=wanted))
    assert len(lake.places()) == 4
    assert lake.table(columns=wanted).retry() == (0, 1)
