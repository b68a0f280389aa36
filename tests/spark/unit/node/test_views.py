"""Views of typed tables: what their slots hold is what their source holds, however it came."""

import datetime
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from rillnode.codecs.errors import ConfigError
from rillnode.node.spark import upsert as upserting
from rillnode.node.spark.maintenance import compact
from rillnode.node.spark.typed.layout import Layout
from rillnode.node.spark.views import query as querying
from rillnode.node.spark.views.planning import View
from rillnode.node.spark.views.query import TypedSource, ViewQuery
from table_readers import BY_STATISTICS, plain_rows, rows_of, wrong_answers
from typed_samples import Lake, run

START = datetime.datetime(2026, 3, 1, 10, 0, tzinfo=datetime.UTC)
BY_ARRIVAL = (
    "select _stream as stream, date_trunc('minute', _received_at) as minute, count(*) as n, "
    "avg(temp) as temp from t group by 1, 2"
)
BY_EVENT = (
    "select _stream as stream, date_trunc('minute', at) as minute, count(*) as n, "
    "avg(temp) as temp from t group by 1, 2"
)
OF_ALL = "select date_trunc('hour', at) as hour, count(*) as n from t group by 1"
BY_SITE = "select id % 3 as site, count(*) as n, max(temp) as high from t group by 1"
SLOTS: dict[str, tuple[str, ...]] = {
    BY_ARRIVAL: ("stream", "minute"),
    BY_EVENT: ("stream", "minute"),
    OF_ALL: ("hour",),
    BY_SITE: ("site",),
}
SOME = [
    pytest.param(sql, marks=() if sql in (BY_EVENT, BY_SITE) else pytest.mark.long) for sql in SLOTS
]
"""Of a stream's minutes, and of no time; the others are long."""


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def reading(number: int, minute: float = 0.0, temp: float | None = None) -> bytes:
    at = START + datetime.timedelta(minutes=minute)
    return json.dumps({"id": number, "at": at.isoformat(), "temp": temp}).encode()


def milliseconds(minute: float) -> int:
    return round((START.timestamp() + 60 * minute) * 1_000)


def view_of(
    lake: Lake, sql: str, slot: tuple[str, ...] | None = None, name: str = "v"
) -> ViewQuery:
    view = View(name=name, sql=sql, slot=slot or SLOTS[sql], dir=str(lake.directory / name))
    return ViewQuery(view, TypedSource("t", str(lake.directory / "t")))


def run_view(query: ViewQuery) -> int:
    steps = 0
    while query.step():
        steps += 1
    return steps


def rows(lake: Lake, name: str = "v") -> list[dict[str, Any]]:
    found = plain_rows(str(lake.directory / name)).to_pylist()
    return sorted(found, key=lambda row: [str(value) for value in row.values()])


def made_at_once(lake: Lake, sql: str, slot: tuple[str, ...] | None = None) -> list[dict[str, Any]]:
    """The rows that a view has which is made only now."""
    name = f"w{len(list(lake.directory.iterdir()))}"
    run_view(view_of(lake, sql, slot, name))
    return rows(lake, name)


@pytest.mark.parametrize("sql", SLOTS)
def test_a_view_kept_up_step_by_step_is_the_one_made_at_once(lake: Lake, sql: str) -> None:
    table, query = lake.table(), view_of(lake, sql)
    assert not query.step()  # there is no typed table yet
    for part in range(4):
        items = [reading(n + part, n % 3 + part / 2, n + part) for n in range(5)]
        lake.push(*items, stream=f"s{part % 2}", received_at=milliseconds(part / 2))
        run(table)
        assert run_view(query) == 1
    assert run_view(query) == 0
    # Late, and in a minute that only another stream has had.
    lake.push(reading(9, 0.5, 9.0), reading(8, 90), stream="s1", received_at=milliseconds(0.1))
    run(table)
    run_view(query)
    assert rows(lake) == made_at_once(lake, sql)
    assert sum(row["n"] for row in rows(lake)) == 22


def test_slots_of_numbers_are_told_apart_as_sql_does(lake: Lake) -> None:
    """What is no number is one slot, and -0 is that of 0."""
    sql = "select round(temp / 10) / (id % 2) as part, count(*) as n from t group by 1"
    table, query = lake.table(), view_of(lake, sql, ("part",))
    for temps in ((1.0, -1.0), (0.0,), (-2.0, 30.0), (2.0,), (-3.0,)):
        for number in (1, 2):
            lake.push(*(reading(number, temp=temp) for temp in temps))
            run(table)
            run_view(query)
            assert str(rows(lake)) == str(made_at_once(lake, sql, ("part",)))


@pytest.mark.parametrize("sql", SOME)
def test_rows_that_are_deleted_or_changed_are_no_longer_counted(lake: Lake, sql: str) -> None:
    lake.push(*(reading(n, n, n) for n in range(6)), received_at=milliseconds(0))
    lake.push(*(reading(n, 70, n) for n in (3, 4)), received_at=milliseconds(70))
    run(lake.table())
    query = view_of(lake, sql)
    run_view(query)
    table = DeltaTable(lake.directory / "t")
    table.delete("id = 4")
    table.update({"id": "id + 1", "temp": "50.0"}, predicate="id = 3")
    run_view(query)
    assert rows(lake) == made_at_once(lake, sql)
    assert sum(row["n"] for row in rows(lake)) == 6
    table.delete()
    run_view(query)
    assert rows(lake) == []


@pytest.mark.parametrize("sql", SOME)
def test_rows_whose_files_are_gone_are_no_longer_counted(lake: Lake, sql: str) -> None:
    lake.push(*(reading(n, n, n) for n in range(6)))
    run(lake.table())
    query = view_of(lake, sql)
    run_view(query)
    table = DeltaTable(lake.directory / "t")
    table.delete("id = 4")
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    run_view(query)
    assert rows(lake) == made_at_once(lake, sql)
    assert sum(row["n"] for row in rows(lake)) == 5


def test_a_running_view_tells_that_its_table_was_made_anew(lake: Lake) -> None:
    query = view_of(lake, BY_SITE)
    for number in range(3):
        lake.push(reading(number))
        run(lake.table())
        run_view(query)
    shutil.rmtree(lake.directory / "t")
    run(lake.table())
    with pytest.raises(ConfigError, match="was made anew: remove"):
        query.step()
    shutil.rmtree(lake.directory / "v")
    run_view(query)
    assert sum(row["n"] for row in rows(lake)) == 3


TIMES = (
    "9999-12-31T23:59:59.999999Z", "0001-01-01T00:00:00Z", "2262-01-01T00:00:00Z",
    "1677-12-31T23:59:59Z",
)  # fmt: skip


@pytest.mark.parametrize(
    ("column", "key"),
    [
        ("date_trunc('minute', at)", ()),
        ("date_trunc('hour', at)", ("id",)),
        ("date_trunc('week', at + interval '1 hour')", ()),
        ("date_trunc('month', day)", ("id",)),
        *(
            pytest.param(column, (), marks=pytest.mark.long)
            for column in (
                *(f"date_trunc('{unit}', at)" for unit in ("second", "hour", "year")),
                "date_trunc('day', at)::date",
            )
        ),
    ],
)
def test_times_that_sql_cannot_cut_off_are_set_aside_and_counted(
    lake: Lake, column: str, key: tuple[str, ...]
) -> None:
    columns = {"id": "int", "at": "timestamp", "day": "date"}
    table = lake.table(columns=columns, layout=Layout(key=key))
    sql = f"select {column} as slot, count(*) as n from t group by 1"
    query = view_of(lake, sql, ("slot",))
    inside = (START.isoformat(), "1678-01-01T00:00:00Z", "1970-01-01T00:00:00Z")
    for number, time in enumerate((*TIMES, *inside)):
        lake.push(json.dumps({"id": number, "at": time, "day": time[:10]}).encode())
        if number % 3 == 0:
            run(table)
            run_view(query)
    any_time = "second" in column or "minute" in column
    assert sum(row["n"] for row in rows(lake)) == (7 if any_time else 3)
    assert query.figures()["rows_outside"] == (0 if any_time else 4)
    run_view(view_of(lake, sql, ("slot",), "w"))
    assert rows(lake) == rows(lake, "w")
    DeltaTable(lake.directory / "t").delete("id = 0")
    run_view(query)
    assert query.figures()["rows_outside"] == (0 if any_time else 3)


def test_a_time_that_sql_makes_and_cannot_cut_off_is_told_with_its_remedy(lake: Lake) -> None:
    sql = "select date_trunc('day', at + interval '400 years') as day from t"
    query = view_of(lake, sql, ("day",))
    lake.push(reading(1))
    run(lake.table())
    with pytest.raises(ConfigError, match=r"of view v: a row has the time .*`where at between"):
        run_view(query)


@pytest.mark.parametrize(
    ("sql", "slot"),
    [
        ("select id % 2 as odd, sum(n) as n from t group by 1", ("odd",)),
        ("select date_trunc('hour', at) as hour, max(n) as n from t group by 1", ("hour",)),
        ("select * from t", ("_index",)),
    ],
)
def test_a_view_takes_the_columns_that_its_table_takes(
    lake: Lake, sql: str, slot: tuple[str, ...]
) -> None:
    table = lake.table(evolve="widen", columns={"id": "int", "at": "timestamp", "n": "int"})
    query = view_of(lake, sql, slot)
    at = START.isoformat()
    entries: list[dict[str, object]] = [{"n": 1}, {"n": 2}, {"n": 2.5}, {"n": 3, "site": "roof"}]
    for number, more in enumerate(entries):
        lake.push(json.dumps({"id": number, "at": at, **more}).encode())
        run(table)
        assert run_view(query) == 1
    run_view(view_of(lake, sql, slot, "w"))
    assert rows(lake) == rows(lake, "w")
    kept_up, made_at_once = (plain_rows(str(lake.directory / name)) for name in "vw")
    assert kept_up.schema == made_at_once.schema
    assert wrong_answers(str(lake.directory / "v"), BY_STATISTICS) == []
    # Readers of old versions go on.
    assert rows_of(DeltaTable(lake.directory / "v", version=1)).num_rows == 1


def test_a_view_takes_in_rows_without_a_time(lake: Lake) -> None:
    columns = {"id": "int", "at": "timestamp?"}
    sql = "select date_trunc('day', at) as day, count(*) as n from t group by 1"
    query = view_of(lake, sql, ("day",))
    for items in ((b'{"id":1}', reading(1)), (reading(2),), (b'{"id":2}',)):
        lake.push(*items)
        run(lake.table(columns=columns))
        run_view(query)
    counts = {row["day"]: row["n"] for row in rows(lake)}
    assert counts == {None: 2, START.replace(hour=0): 2}


def test_rejects_that_are_landed_again_are_counted(lake: Lake) -> None:
    columns = {"id": "int", "at": "timestamp", "temp": "float"}
    lake.push(reading(1, temp=1.0), reading(7, 0.5))
    run(lake.table(columns=columns))
    query = view_of(lake, BY_EVENT)
    run_view(query)
    assert [row["n"] for row in rows(lake)] == [1]
    assert lake.table().retry() == (1, 0)
    run_view(query)
    assert [row["n"] for row in rows(lake)] == [2]


@pytest.mark.parametrize("sql", SOME)
def test_a_step_that_was_cut_off_is_done_again_with_the_same_outcome(
    lake: Lake, sql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.push(*(reading(n, n, n) for n in range(6)))
    run(lake.table())
    query = view_of(lake, sql)
    with monkeypatch.context() as patch:

        def dying(*_: object) -> bool:
            raise KeyboardInterrupt

        patch.setattr(upserting, "commit_unless_changed", dying)
        with pytest.raises(KeyboardInterrupt):
            query.step()
    run_view(view_of(lake, sql))
    assert rows(lake) == made_at_once(lake, sql)


def test_more_slots_than_are_named_one_by_one_are_a_range(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(querying, "TICKS_MAX", 2)
    query = view_of(lake, BY_EVENT)
    for first in (0, 3, 1):
        lake.push(*(reading(n, first + n, n) for n in range(5)), stream=f"s{first}")
        run(lake.table())
        run_view(query)
    assert rows(lake) == made_at_once(lake, BY_EVENT)


def test_compaction_of_the_source_changes_nothing(lake: Lake) -> None:
    query = view_of(lake, BY_EVENT)
    for n in range(3):
        lake.push(reading(n, n))
        run(lake.table())
    run_view(query)
    before = rows(lake)
    list(compact(str(lake.directory / "t")))
    run_view(query)
    assert rows(lake) == before


def test_every_reader_finds_the_rows_of_a_view(lake: Lake) -> None:
    query = view_of(lake, BY_EVENT)
    for n in range(3):
        lake.push(reading(n, n, n))
        run(lake.table())
        run_view(query)
    assert wrong_answers(str(lake.directory / "v")) == []


def test_another_sql_over_the_same_directory_says_what_to_do(lake: Lake) -> None:
    lake.push(reading(1))
    run(lake.table())
    run_view(view_of(lake, BY_EVENT))
    lake.push(reading(2))
    run(lake.table())
    with pytest.raises(ConfigError, match=r"has changed.*remove .*v, and the view") as caught:
        view_of(lake, BY_EVENT.replace("avg", "max"), SLOTS[BY_EVENT]).step()
    assert caught.value.code == "view.changed"


@pytest.mark.parametrize(
    ("sql", "slot", "code", "said"),
    [
        ("selec 1", ("a",), "view.sql", "Expected: an SQL statement"),
        ("select 1 as a; select 2", ("a",), "view.sql", "single SQL statement"),
        ("drop table t", ("a",), "view.sql", "Expected"),
        ("select nope from t", ("nope",), "view.sql", "No field named nope. Valid fields are t."),
        ("select id from other", ("id",), "view.sql", "other' not found"),
        ("select id from t", ("minute",), "view.slot", "no column 'minute', which its slot"),
        ("select id, count(*) from t group by 1", ("id",), "view.column", "name it with `as`"),
        ("select id, id as ID2, id as \"ID\" from t", ("id",), "view.column", "have one name"),
        ("select id, at - at as d from t", ("id",), "view.column", "cast it"),
        ("select make_array(id) as a from t", ("a",), "view.slot", "is nested"),
    ],
)  # fmt: skip
def test_sql_that_cannot_be_is_one_clear_error(
    lake: Lake, sql: str, slot: tuple[str, ...], code: str, said: str
) -> None:
    lake.push(reading(1))
    run(lake.table())
    with pytest.raises(ConfigError) as caught:
        view_of(lake, sql, slot).step()
    assert (caught.value.code, said in caught.value.text) == (code, True), caught.value.text
