"""Views of silver, gold among them: made step by step they are what silver and bronze hold."""

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from chained_tables import Pipeline
from rillnode.codecs.entries import EntryKind
from rillnode.node.entries import TIME_MS_MAX
from rillnode.node.spark.views.planning import View, gold_views
from rillnode.node.spark.views.query import SilverSource, ViewQuery
from streamr_samples import KEY, START_MS, make_message
from table_readers import plain_rows, wrong_answers

MINUTE = 60_000
AT = START_MS - START_MS % MINUTE
VIEWS = {
    "by_minute": (
        "select stream, date_trunc('minute', received_at) as minute, format, count(*) as n "
        "from silver group by 1, 2, 3",
        ("stream", "minute"),
    ),
    "by_event": (
        "select date_trunc('minute', ts) as minute, count(*) as n, min(publisher) as who "
        "from silver group by 1",
        ("minute",),
    ),
    "by_event_hour": (
        "select date_trunc('hour', ts) as hour, count(*) as n from silver group by 1",
        ("hour",),
    ),
    "by_format": ("select format, sum(data_bytes) as bytes from silver group by 1", ("format",)),
    "repeated": ("select stream, count(*) as n from repeats group by 1", ("stream",)),
}


class Lake:
    """A bronze table, silver that is made of it, and views of that."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._pipeline = Pipeline(directory)
        self.bronze, self.silver = self._pipeline.bronze, str(self._pipeline.silver)

    def land(self, *items: bytes, **keys: Any) -> None:
        """Land entries as one batch of bronze."""
        keys.setdefault("received_at", AT)
        self._pipeline.land(*items, **keys)

    def follow(self) -> None:
        """Take into silver what bronze has."""
        self._pipeline.run()

    def query(self, name: str, under: str = "views") -> ViewQuery:
        place = str(self.directory / under)
        if name in VIEWS:
            sql, slot = VIEWS[name]
            view = View(name=name, sql=sql, slot=slot, dir=f"{place}/{name}")
        else:
            view = next(one for one in gold_views(place) if one.name == name)
        return ViewQuery(view, SilverSource(str(self.bronze.table), self.silver))

    def rows(self, name: str, under: str = "views") -> list[dict[str, Any]]:
        """The rows of a view, in some order."""
        rows = plain_rows(str(self.directory / under / name)).to_pylist()
        return sorted(rows, key=lambda row: [str(value) for value in row.values()])


ALL = [*VIEWS, "minutes", "chains", "publishers"]


def run(query: ViewQuery) -> int:
    steps = 0
    while query.step():
        steps += 1
    return steps


def message(at: int, previous: int | None = None) -> bytes:
    """A message of so many milliseconds after the first minute's beginning."""
    offset = AT - START_MS
    return make_message(offset + at, previous=None if previous is None else offset + previous)


def filled(directory: Path) -> Lake:
    """Silver, and views that have followed it step by step."""
    lake = Lake(directory)
    steps: list[list[tuple[list[bytes], dict[str, Any]]]] = [
        [([message(10), message(30, 20), message(20, 10), message(10), b"no"],
          {"received_at": AT + 1_000}),
         ([b"plain"], {"kind": EntryKind.BYTES, "partition": 1, "received_at": AT + 2_000})],
        [([message(40, 30), message(60, 50)], {"received_at": AT + MINUTE})],
        # Only repeats, which leave no row in silver.
        [([message(10), message(20, 10)], {"received_at": AT + 2 * MINUTE})],
        [([b'{"a":1}', b"{"], {"kind": EntryKind.BYTES, "stream": "it's", "received_at": AT}),
         # Of a partition that is behind the others.
         ([message(70, 60)], {"partition": 2, "received_at": AT + 1_500})],
    ]  # fmt: skip
    for batches in steps:
        for items, keys in batches:
            lake.land(*items, **keys)
        lake.follow()
        for name in ALL:
            assert run(lake.query(name)) == 1
            assert run(lake.query(name)) == 0
    return lake


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Silver and its views, of which no test changes anything."""
    return filled(tmp_path_factory.mktemp("followed"))


@pytest.fixture(scope="module")
def erased(followed: Lake, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The same in another place, after rows of silver were deleted."""
    lake = Lake(tmp_path_factory.mktemp("erased"))
    made_again = shutil.ignore_patterns("again")
    shutil.copytree(followed.directory, lake.directory, ignore=made_again, dirs_exist_ok=True)
    gone = "stream = 'it''s' or (partition = 0 and index in (5, 6))"
    for table in (lake.bronze.table, Path(lake.silver)):
        DeltaTable(table).delete(gone.replace("index", '"index"'))
    return lake


def test_what_has_landed_and_is_not_decoded_is_not_counted(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    assert not lake.query("minutes").step()
    lake.land(message(10), message(10))
    assert not lake.query("minutes").step()
    lake.follow()
    lake.land(message(20), message(20))
    assert run(lake.query("minutes")) == 1
    (row,) = lake.rows("minutes")
    assert (row["messages"], row["duplicates"]) == (1, 1)
    lake.follow()
    assert run(lake.query("minutes")) == 1
    (row,) = lake.rows("minutes")
    assert (row["messages"], row["duplicates"]) == (2, 2)


def test_gold_counts_what_happened(followed: Lake) -> None:
    lake = followed
    counts = {
        (row["stream"], (row["minute"].timestamp() * 1_000 - AT) // MINUTE): (
            row["messages"], row["duplicates"], row["malformed"], row["publishers"],
            row["bytes"] > 0,
        )
        for row in lake.rows("minutes")
    }  # fmt: skip
    assert counts == {
        ("it's", 0): (2, 0, 1, 0, True),
        ("s", 0): (6, 1, 1, 1, True),
        ("s", 1): (2, 0, 0, 1, True),
        ("s", 2): (0, 2, 0, 0, False),
    }
    first = next(row for row in lake.rows("minutes") if row["messages"] == 6)
    assert first["landing_p50_ms"] > 0
    chains = sorted(lake.rows("chains"), key=lambda row: (row["minute"], row["partition"]))
    assert [
        (row["partition"], row["messages"], row["gaps"], row["late"], row["duplicates"])
        for row in chains
    ] == [(0, 3, 1, 1, 1), (2, 1, 0, 0, 0), (0, 2, 1, 0, 0), (0, 0, 0, 0, 2)]
    assert {row["publisher"] for row in chains} == {KEY.address.lower()}
    publishers = sorted(lake.rows("publishers"), key=lambda row: str(row["minute"]))
    assert [row["messages"] for row in publishers] == [4, 2]


@pytest.mark.parametrize("name", ALL)
def test_a_view_kept_up_step_by_step_is_the_one_made_at_once(followed: Lake, name: str) -> None:
    lake = followed
    run(lake.query(name, "again"))
    assert lake.rows(name) == lake.rows(name, "again")
    if name == "minutes":
        assert wrong_answers(str(lake.directory / "views" / name), ["delta-rs dataset"]) == []


@pytest.mark.parametrize("name", ALL)
def test_slots_that_were_erased_from_are_calculated_again(erased: Lake, name: str) -> None:
    lake = erased
    times = pa.array([1_000 * AT, 1_000 * (AT + MINUTE)], pa.int64()).cast(
        pa.timestamp("us", tz="UTC")
    )
    lake.query(name).again(pa.table({"stream": pa.array(["it's", "s"]), "time": times}))
    run(lake.query(name, "again"))
    assert lake.rows(name) == lake.rows(name, "again")
    assert not any(row.get("stream") == "it's" for row in lake.rows(name))


@pytest.mark.long
def test_times_of_publishers_at_the_ends_of_time_stop_no_table(tmp_path: Path) -> None:
    """The first and the last that Streamr's clients can say, and what comes after the year 9999."""
    lake, names = Lake(tmp_path), (*VIEWS, *(one.name for one in gold_views("")))
    last = TIME_MS_MAX - START_MS
    for some in ((5, -START_MS), (last, last + 1, 6)):
        for ts in some:
            lake.land(make_message(ts), make_message(ts, previous=-START_MS, chain=f"c{ts}"))
        lake.follow()
        for name in names:
            query = lake.query(name)
            while query.step():
                continue
    for name in names:
        query = lake.query(name, "anew")
        while query.step():
            continue
        assert lake.rows(name) == lake.rows(name, "anew"), name
    (minute,) = lake.rows("minutes")
    assert (minute["messages"], minute["malformed"]) == (10, 3)
    counts = {row["hour"]: row["n"] for row in lake.rows("by_event_hour")}
    assert sorted(counts.values()) == [1, 3, 4]
    assert lake.query("by_event_hour").figures()["rows_outside"] == 2
