from datetime import UTC, datetime, timedelta
from pathlib import Path

from deltalake import DeltaTable

from pipeline_samples import Query, rows
from rillnode.node.spark.delta_log import Position, TableLog
from rillnode.node.spark.maintenance import compact
from rillnode.node.spark.parts import VERSIONS_MAX, Behind


class Followed:
    """A table of 10 rows per version from the first on, and what follows it."""

    def __init__(self, directory: Path, commits: int) -> None:
        self.query = Query(directory)
        self.commits = 0
        self.add(commits)
        self.log = TableLog(str(self.query.table))
        self.behind = Behind(self.log)
        self.start = Position(str(DeltaTable(self.query.table).metadata().id))

    def add(self, commits: int) -> None:
        for batch in range(self.commits, self.commits + commits):
            self.query.run(batch, rows(batch * 10, 10))
        self.commits += commits

    def look(self, position: Position | None, later: timedelta = timedelta()) -> dict[str, int]:
        table = self.log.open()
        assert table is not None
        now = datetime.now(UTC) + later
        return self.behind.look(table, {"silver": position}, now).get("silver", {})


def test_a_position_at_the_end_is_behind_by_nothing(tmp_path: Path) -> None:
    followed = Followed(tmp_path, 3)
    end = followed.log.plan(followed.start, None)
    assert followed.look(end, timedelta(hours=1)) == {
        "versions_behind": 0,
        "rows_behind": 0,
        "seconds_behind": 0,
    }


def test_rows_are_behind_since_the_first_of_them_was_committed(tmp_path: Path) -> None:
    followed = Followed(tmp_path, 3)
    end = followed.log.plan(followed.start, None)
    followed.add(2)
    found = followed.look(end, timedelta(hours=1))
    assert (found["versions_behind"], found["rows_behind"]) == (2, 20)
    assert 3_590 < found["seconds_behind"] <= 3_660
    # Versions that only rearrange rows are behind, too, and hold no row more.
    list(compact(str(followed.query.table)))
    found = followed.look(end)
    assert (found["versions_behind"], found["rows_behind"]) == (3, 20)


def test_what_is_left_of_the_first_content_counts(tmp_path: Path) -> None:
    followed = Followed(tmp_path, 4)
    assert followed.look(followed.start) == {"versions_behind": 5, "rows_behind": 40}
    part = followed.log.plan(followed.start, 10)
    followed.add(1)
    found = followed.look(part, timedelta(hours=1))
    assert (found["versions_behind"], found["rows_behind"]) == (1, 40)
    assert found["seconds_behind"] > 3_590


def test_one_look_reads_few_versions(tmp_path: Path) -> None:
    followed = Followed(tmp_path, 1)
    end = followed.log.plan(followed.start, None)
    followed.add(VERSIONS_MAX + 3)
    assert followed.look(end) == {"versions_behind": VERSIONS_MAX + 3}
    assert followed.look(end)["rows_behind"] == 10 * (VERSIONS_MAX + 3)


def test_nothing_is_known_of_a_position_elsewhere(tmp_path: Path) -> None:
    followed = Followed(tmp_path, 1)
    assert followed.look(None) == {}
    assert followed.look(Position("another", 1, 1, 1)) == {}


def test_what_cannot_be_followed_is_counted(tmp_path: Path) -> None:
    """A table that stands before rewritten rows is the one whose lag matters."""
    followed = Followed(tmp_path, 2)
    end = followed.log.plan(followed.start, None)
    DeltaTable(followed.query.table).delete("index < 5")
    assert followed.look(end)["rows_behind"] == 0
    DeltaTable(followed.query.table).update({"publisher": "'nobody'"}, predicate="index < 10")
    followed.add(1)
    found = followed.look(end, timedelta(hours=1))
    assert (found["versions_behind"], found["rows_behind"]) == (3, 15)
    assert found["seconds_behind"] > 3_590
