"""What was erased is gone from every table, stays gone, and stops nothing; kills in between."""

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from msgspec.structs import replace

from chained_tables import Pipeline, in_process as silver_in_process
from pipeline_samples import TIME
from rillnode.codecs.errors import ConfigError
from rillnode.node.spark import erasing, erasure
from rillnode.node.spark.arrow import BatchBuilder
from rillnode.node.spark.delta import commit_unless_changed
from rillnode.node.spark.delta_log import TableLog
from rillnode.node.spark.erasing import (
    Held,
    Lake as Tables,
    Sweeps,
    counts,
    find,
    forget_old_files,
    held,
    sweep_all,
)
from rillnode.node.spark.erasure import Erasures, applied, of_ranges
from rillnode.node.spark.job_config import TypedConfig, ViewConfig
from rillnode.node.spark.maintenance import compact
from rillnode.node.spark.parquet import TableFile
from rillnode.node.spark.typed.keys import Keyed
from rillnode.node.spark.typed.layout import Expectation, Layout
from rillnode.node.spark.typed.query import TypedQuery
from rillnode.node.spark.typed.work import Engine, in_process
from rillnode.node.spark.views.planning import View, gold_views
from rillnode.node.spark.views.query import SilverSource, TypedSource, ViewQuery
from table_readers import READERS, Filter, plain_rows, rows_of
from typed_samples import CREATED_AT, Lake, die_after, run

COLUMNS: dict[str, Any] = {"id": "int", "user": "string", "note": "string?"}
SECRET = b"u17"
MINUTE = 60_000


def entry(number: int, user: str = "u1", **more: Any) -> bytes:
    return json.dumps({"id": number, "user": user, **more}).encode()


class Site:
    """Bronze, silver, a typed table and one for each stream."""

    def __init__(self, directory: Path) -> None:
        self.lake = Lake(directory)
        self.bronze = str(self.lake.bronze.table)
        self.pipeline = Pipeline(directory, self.lake.bronze)
        self.typed = self.lake.config(columns=COLUMNS, streams=("s", "s/*"))
        self.each = self.lake.config("each/{stream}", columns=COLUMNS)
        self.erasures = Erasures(self.bronze)
        self.tables = Tables(
            bronze=self.bronze,
            derived=replace(self.pipeline.config(), gold_dir=None),
            typed=(self.typed, self.each),
        )

    def query(self, config: TypedConfig | None = None) -> TypedQuery:
        return TypedQuery(config or self.typed, TableLog(self.bronze), in_process)

    def follow(self) -> None:
        """Let all tables take in what bronze has."""
        self.pipeline.run()
        run(self.query())
        for config in self.tables.typed_of(["s", "s/2"]):
            run(self.query(config))

    def erase(self, predicate: str) -> int:
        match = find(self.tables, self.typed, predicate)
        self.erasures.note(match.ranges, table="t", predicate=predicate)
        sweep_all(self.tables, Erasures(self.bronze))
        return match.entries

    def places(self) -> dict[str, list[int]]:
        """The indexes that each table has, of entries and not of what was lost."""
        found: dict[str, list[int]] = {}
        for name in ("table", "silver", "t", "t_rejects", "each/s", "each/s_rejects"):
            if not DeltaTable.is_deltatable(str(self.lake.directory / name)):
                continue
            rows = plain_rows(str(self.lake.directory / name)).to_pylist()
            prefix = "_" if name not in ("table", "silver") else ""
            found[name] = sorted(row[f"{prefix}index"] for row in rows if row.get("kind") != "gap")
        return found


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def bytes_of(site: Site, readers: Iterable[str] = ()) -> list[str]:
    """The tables that still say the secret, whichever reader asks."""
    found: list[str] = []
    for place in erasing.tables_of(site.tables, ["s", "s/2"]):
        if not DeltaTable.is_deltatable(place) or not (table := DeltaTable(place)).file_uris():
            continue
        columns = [one.name for one in rows_of(table).schema if one.name in ("user", "content")]
        for name in readers:
            count = READERS[name](table)
            for column in columns:
                value = "u17" if column == "user" else entry(1, "u17").decode()
                if count(Filter(column, pa.string(), "=", value)):
                    found.append(f"{place} {column} {name}")
        if SECRET in str(rows_of(table).to_pylist()).encode():
            found.append(place)
    return found


@pytest.fixture(scope="module")
def filled_once(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """A site whose tables have followed bronze, of which no test changes anything."""
    site = Site(tmp_path_factory.mktemp("filled"))
    lake = site.lake
    lake.push(entry(0), entry(1, "u17"), entry(2), b'{"id":"x","user":"u17"}', b'{"id":"y"}')
    lake.push(entry(1, "u17"), entry(6), received_at=TIME + MINUTE)
    site.follow()
    return site


@pytest.fixture
def filled(site: Site, filled_once: Site) -> Site:
    """The same in another place."""
    site.lake.go_on(filled_once.lake)
    return site


@pytest.mark.usefixtures("filled")
def test_what_is_erased_is_gone_from_every_table(site: Site) -> None:
    found = bytes_of(site, READERS)
    assert {name for name in READERS if any(name in one for one in found)} == set(READERS)
    match = find(site.tables, site.typed, "user = 'u17'")
    assert (match.entries, match.unread) == (3, 0)
    seen = {place.rpartition("/")[2]: count for place, count in counts(
        site.tables, of_ranges(match.ranges)).items()}  # fmt: skip
    assert seen == {"table": 3, "silver": 3, "t": 2, "t_rejects": 1, "s": 2, "s_rejects": 1}
    assert site.erase("user = 'u17'") == 3
    assert bytes_of(site, READERS) == []
    assert site.places() == {
        "table": [0, 2, 4, 6], "silver": [0, 2, 4, 6], "t": [0, 2, 6], "t_rejects": [4],
        "each/s": [0, 2, 6], "each/s_rejects": [4],
    }  # fmt: skip
    assert find(site.tables, site.typed, "user = 'u17'").entries == 0
    (said,) = site.erasures.history()
    assert (said["erasure"], said["table"], said["predicate"]) == (1, "t", "user = 'u17'")
    assert (said["entries"], bool(said["by"])) == (3, True)


@pytest.mark.usefixtures("filled")
def test_everything_goes_on_over_an_erasure(site: Site) -> None:
    site.erase("user = 'u17'")
    site.lake.push(entry(7), entry(8, "u17"))
    site.follow()
    assert site.places()["silver"] == [0, 2, 4, 6, 7, 8]
    # What comes later is another matter.
    assert site.places()["t"] == [0, 2, 6, 7, 8]
    assert site.erase("user = 'u17'") == 1
    assert site.places()["t"] == site.places()["each/s"] == [0, 2, 6, 7]
    assert [one["erasure"] for one in site.erasures.history()] == [1, 2]
    list(compact(site.bronze))
    site.follow()
    assert site.places()["table"] == [0, 2, 4, 6, 7]


def test_tables_that_are_behind_or_made_anew_do_not_bring_it_back(site: Site) -> None:
    site.lake.push(entry(0), entry(1, "u17"))
    run(site.query())
    site.lake.push(entry(1, "u17"), entry(3))  # not landed in any table yet
    assert site.erase("user = 'u17'") == 2
    site.follow()
    assert site.places() == {
        "table": [0, 3], "silver": [0, 3], "t": [0, 3], "each/s": [0, 3],
    }  # fmt: skip
    again = site.lake.config("again", columns=COLUMNS)
    run(site.query(again))
    assert site.lake.places("again") == [0, 3]


@pytest.mark.usefixtures("filled")
def test_bronze_made_anew_from_the_log_does_not_bring_it_back(site: Site) -> None:
    site.erase("user = 'u17'")
    # A rebuild: bronze, which has its places again, and what is made of it.
    other = Lake(site.lake.directory / "other")
    other.push(entry(0), entry(1, "u17"), entry(2), b'{"id":"x","user":"u17"}', b'{"id":"y"}')
    bronze = str(other.bronze.table)
    files = DeltaTable(bronze).file_uris()
    described = [TableFile(
        name=Path(one).name, size=1, rows=5, data_bytes=1, entries_lost=0, stats="{}"
    ) for one in files]  # fmt: skip
    (kept,) = site.erasures.keep_out(bronze, described)
    assert kept.rows == 3
    assert not Path(files[0]).exists()


def test_a_step_that_was_under_way_does_not_bring_it_back(site: Site) -> None:
    site.lake.push(entry(0), entry(1, "u17"), b'{"id":"x","user":"u17"}')

    def slow(works: Sequence[bytes]) -> list[bytes]:
        done = in_process(works)
        site.erase("user = 'u17'")
        return done

    TypedQuery(site.typed, TableLog(site.bronze), slow).step()
    assert site.places() == {"table": [0], "t": [0]}


def test_a_batch_of_silver_that_was_under_way_does_not_bring_it_back(site: Site) -> None:
    site.lake.push(entry(0), entry(1, "u17"))

    def slow(tasks: Sequence[bytes]) -> list[bytes]:
        done = silver_in_process(tasks)
        site.erase("user = 'u17'")
        return done

    site.pipeline.query(slow).step()
    assert site.places()["silver"] == [0]


def test_rejects_that_are_retried_do_not_bring_it_back(site: Site) -> None:
    site.lake.push(entry(0), b'{"id":"1","user":"u17"}', b'{"id":"2","user":"u1"}')
    site.follow()

    def slow(works: Sequence[bytes]) -> list[bytes]:
        done = in_process(works)
        match = find(site.tables, site.typed, "user = 'u17'")
        site.erasures.note(match.ranges, table="t", predicate="user = 'u17'")
        return done

    TypedQuery(site.typed, TableLog(site.bronze), slow).retry()
    assert (site.places()["t"], site.places()["t_rejects"]) == ([0], [2])


def steps_of(monkeypatch: pytest.MonkeyPatch, allowed: int) -> Callable[[], int]:
    """Let the process be killed before its commit `allowed + 1`; tells how many were made."""
    made = [0]
    real = commit_unless_changed

    def dying(*args: Any) -> bool:
        if made[0] >= allowed:
            raise KeyboardInterrupt
        made[0] += 1
        return real(*args)

    monkeypatch.setattr(erasure, "commit_unless_changed", dying)
    return lambda: made[0]


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(
    "commits",
    [
        pytest.param(commits, marks=() if commits == 5 else pytest.mark.long)
        for commits in range(16)
    ],
)
def test_a_kill_between_any_two_steps_leaves_what_is_finished_later(
    site: Site, monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    made = steps_of(monkeypatch, commits)
    try:
        site.erase("user = 'u17'")
        assert made() <= commits
    except KeyboardInterrupt:
        pass
    monkeypatch.undo()
    noted = Erasures(site.bronze).erased().number
    assert noted == (1 if commits else 0)
    # The job, which was killed, too, starts again, and lands what comes.
    site.lake.push(entry(7))
    said: list[str] = []
    Sweeps(site.tables).step(1.0, said.append)
    site.follow()
    if noted:
        assert bytes_of(site) == []
        assert site.places()["t"] == [0, 2, 6, 7]
        assert site.places()["silver"] == [0, 2, 4, 6, 7]
        tables = list(held(site.tables, site.erasures.erased()))
        assert all(one.is_swept for one in tables)
    else:
        assert site.places()["t"] == [0, 1, 2, 5, 6, 7]
    assert len(site.places()["each/s_rejects"]) == (1 if noted else 2)


def test_the_half_of_a_pair_that_was_left_is_erased_too(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.lake.push(entry(1, "u17"), entry(2), b'{"id":"x","user":"u1"}')
    die_after(monkeypatch, 1)
    with pytest.raises(KeyboardInterrupt):
        site.query().step()
    monkeypatch.undo()
    assert site.erase("user = 'u17'") == 1
    assert site.places()["t"] == [1]


def test_streams_of_one_name_are_told_apart(site: Site) -> None:
    site.lake.push(entry(0, "u17"), entry(1))
    site.lake.remove()
    site.lake.push(
        entry(10), entry(11, "u17"), created_at=CREATED_AT + 1, received_at=TIME + 5 * MINUTE
    )
    site.follow()
    assert site.erase("id = 0") == 1
    assert site.places()["silver"] == [0, 1, 1]
    assert sorted(row["id"] for row in site.lake.rows()) == [1, 10, 11]


def test_rows_of_lost_entries_and_of_other_streams_stay(site: Site) -> None:
    site.lake.push(entry(0), entry(1, "u17"), stream="s/2")
    site.lake.push(entry(0), entry(1, "u17"), stream="x")
    builder = BatchBuilder()
    builder.add_gap("s/2", 0, 1, 3, created_at=CREATED_AT)
    site.lake.bronze.run(2, builder.finish())
    site.follow()
    assert site.erase("user = 'u17'") == 1  # stream x is not the table's
    rows = plain_rows(site.bronze).to_pylist()
    assert sorted((row["stream"], row["index"], row["kind"]) for row in rows if row["index"]) == [
        ("s/2", 1, "gap"), ("x", 1, "bytes"),
    ]  # fmt: skip


def test_entries_that_did_not_fit_are_found_by_what_can_be_read_of_them(tmp_path: Path) -> None:
    site = Site(tmp_path)
    columns: dict[str, Any] = {
        "id": "int", "user": "string", "at": "timestamp?", "ms": "timestamp_ms?", "ok": "bool?",
        "pos?": {"lat": "float"}, "raw": "json?", "bin": "binary?", "dec": "decimal?",
        "tags?": ["string"], "d": "date?",
    }  # fmt: skip
    site.typed = site.lake.config(columns=columns)
    site.tables = Tables(bronze=site.bronze, derived=None, typed=(site.typed,))
    bad = {
        "id": "x", "user": "u17", "at": "2026-01-01T12:00:00Z", "ms": 1_767_268_800_000,
        "ok": True, "pos": {"lat": 1.5}, "raw": {"a": 1}, "bin": "aGk=", "dec": 1.25,
        "tags": ["a"], "d": "2026-01-01",
    }  # fmt: skip
    site.lake.push(json.dumps(bad).encode(), b'{"id":1.5,"user":"u2"}', b"{", b"[1]")
    run(site.query())
    assert len(site.lake.rows("t_rejects")) == 4
    conditions = (
        "user = 'u17'", "at = '2026-01-01 12:00:00+00'", "ms = '2026-01-01 12:00:00+00'", "ok",
        "pos.lat > 1", "raw = '{\"a\":1}'", "bin = 'hi'::blob", "dec = 1.25",
        "list_contains(tags, 'a')", "d = '2026-01-01'",
    )  # fmt: skip
    for condition in conditions:
        match = find(site.tables, site.typed, condition)
        assert (match.entries, match.unread) == (1, 2), condition
    assert find(site.tables, site.typed, "id = 2").entries == 0  # 1.5 is no 2
    assert find(site.tables, site.typed, "id is null and user is null").entries == 2
    assert find(site.tables, site.typed, "_index = 2").entries == 1
    with pytest.raises(ConfigError, match="wind"):
        find(site.tables, site.typed, "wind = 2")
    # What fails for an entry does not name it.
    assert find(site.tables, site.typed, "user::int > 0").entries == 0


def test_an_entry_that_is_not_as_expected_is_found_as_any(site: Site) -> None:
    known = Expectation(name="known", sql="id > 0", action="reject")
    site.typed = site.lake.config(columns=COLUMNS, expect=(known,))
    site.tables = Tables(bronze=site.bronze, derived=None, typed=(site.typed,))
    site.lake.push(entry(-1, "u17"), entry(1))
    run(site.query())
    assert site.erase("user = 'u17'") == 1
    assert site.places()["t_rejects"] == []


def test_places_are_kept_as_ranges_of_one_minute(site: Site) -> None:
    for minute in range(3):
        received_at = TIME + minute * MINUTE
        site.lake.push(*(entry(one, "u17") for one in range(100)), received_at=received_at)
    match = find(site.tables, site.typed, "user = 'u17' and _index % 100 < 90")
    assert (match.entries, match.ranges.num_rows) == (270, 3)
    slots = of_ranges(match.ranges).slots(0).to_pylist()
    assert len({row["minute"] for row in slots}) == 3


@pytest.mark.usefixtures("filled")
def test_old_files_are_kept_for_who_has_yet_to_read_them(site: Site) -> None:
    site.lake.push(entry(7), entry(8, "u17"))  # nobody has taken that in
    site.erase("user = 'u17'")
    erased = site.erasures.erased()
    assert all(one.files and one.until for one in held(site.tables, erased))
    removed, kept = forget_old_files(site.tables, erased)
    assert removed > 0
    assert list(kept) == [site.bronze]
    assert "has yet to read 1 of them" in kept[site.bronze]
    site.follow()
    assert site.places()["t"] == [0, 2, 6, 7]
    assert forget_old_files(site.tables, erased) == (1, {})
    assert [one.files for one in held(site.tables, erased)] == [0] * 6
    raw = b"".join(path.read_bytes() for path in remaining(site))
    assert SECRET not in raw


def remaining(site: Site) -> Iterator[Path]:
    """The Parquet files of all tables, uncompressed where they hold texts."""
    for path in site.lake.directory.rglob("*.parquet"):
        if "_erasures" not in str(path):
            rows = pq.read_table(str(path)).to_pylist()
            plain = path.with_suffix(".txt")
            plain.write_text(str(rows))
            yield plain


@pytest.mark.usefixtures("filled")
def test_an_erasure_waits_for_a_table_that_is_damaged(site: Site) -> None:
    match = find(site.tables, site.typed, "user = 'u17'")
    site.erasures.note(match.ranges, table="t", predicate="user = 'u17'")
    newest = max((site.lake.directory / "t" / "_delta_log").glob("*.json"))
    broken = newest.with_name(f"{int(newest.stem) + 1:020}.json")
    broken.write_bytes(b"{")
    said: list[str] = []
    sweeps = Sweeps(site.tables)
    sweeps.step(0.0, said.append)
    assert "an erasure waits, next attempt in 20 s" in said[-1]
    broken.unlink()
    sweeps.step(1.0, said.append)  # not yet
    assert applied(DeltaTable(site.typed.dir)) == 0
    sweeps.step(21.0, said.append)
    assert bytes_of(site) == []


@pytest.mark.parametrize(
    "layout",
    [
        {"partition_by": ("day(_received_at)",)},
        pytest.param({"partition_by": ("user",)}, marks=pytest.mark.long),
        pytest.param({"key": ("id",)}, marks=pytest.mark.long),
        {"key": ("id",), "partition_by": ("user",)},
    ],
)
def test_tables_that_are_kept_otherwise_are_erased_in_too(
    site: Site, monkeypatch: pytest.MonkeyPatch, layout: dict[str, Any]
) -> None:
    site.typed = site.lake.config(columns=COLUMNS, layout=Layout(**layout))
    site.tables = Tables(bronze=site.bronze, derived=None, typed=(site.typed,))
    site.lake.push(entry(0), entry(1, "u17"), entry(2, "u2"), b'{"id":"x","user":"u17"}')
    site.lake.push(entry(3, "u17"), entry(4), received_at=TIME + 24 * 60 * MINUTE)
    run(site.query())
    assert site.erase("user = 'u17'") == 3
    assert SECRET not in str(table_of(site).to_pylist()).encode()
    ids = table_of(site).column("id").to_pylist()
    assert sorted(ids) == [0, 2, 4]
    site.lake.push(entry(5, "u17"), entry(6))
    query = TypedQuery(site.typed, TableLog(site.bronze), retried(site))
    first = iter([CommitFailedError("another writer was first")])
    merge = vars(Keyed)["_merge"]

    def late(*args: Any) -> None:
        for error in first:
            raise error
        merge(*args)

    monkeypatch.setattr(Keyed, "_merge", late)
    query.step()
    ids = table_of(site).column("id").to_pylist()
    assert sorted(ids) == [0, 2, 4, 6]


def table_of(site: Site) -> pa.Table:
    """The rows of the typed table, also what its files have in their partitions alone."""
    reader: Any = DeltaTable(site.typed.dir)
    return cast("pa.Table", reader.to_pyarrow_table())


def retried(site: Site) -> Engine:
    """An engine during whose work entries are erased."""

    def slow(works: Sequence[bytes]) -> list[bytes]:
        done = in_process(works)
        site.erase("user = 'u17'")
        return done

    return slow


def told(site: Site) -> dict[str, Held]:
    """What each table still holds; whatever was swept and does so says until when."""
    found = {one.table: one for one in held(site.tables, site.erasures.erased())}
    for one in found.values():
        assert (one.until is not None) == (one.is_swept and one.files > 0)
    return found


def test_a_view_of_a_typed_table_tells_whether_it_was_calculated_anew(site: Site) -> None:
    place = str(site.lake.directory / "v")
    sql = "select user, count(*) as n from t group by 1"
    site.typed = site.lake.config(columns=COLUMNS, layout=Layout(key=("id",)))
    site.tables = Tables(
        bronze=site.bronze,
        derived=None,
        typed=(site.typed,),
        views=(ViewConfig(name="v", sql=sql, slot=("user",), dir=place, of="t"),),
    )
    query = ViewQuery(
        View(name="v", sql=sql, slot=("user",), dir=place), TypedSource("t", site.typed.dir)
    )
    site.lake.push(entry(0), entry(1, "u17"))
    run(site.query())
    assert query.step()
    site.lake.push(entry(2, "u17"), entry(3))
    run(site.query())
    assert query.step()
    assert site.erase("user = 'u17'") == 2
    before = told(site)
    assert (before[site.typed.dir].is_swept, before[place].is_swept) == (True, False)
    assert query.step()
    after = told(site)
    assert (after[place].is_swept, after[place].files > 0) == (True, True)
    assert forget_old_files(site.tables, site.erasures.erased())[1] == {}
    assert not any(one.files for one in told(site).values())
    raw = [path.read_bytes() for path in Path(place).rglob("*.parquet")]
    assert raw
    assert SECRET not in b"".join(raw)
    assert plain_rows(place).to_pylist() == [{"user": "u1", "n": 2}]


def test_all_entries_of_a_key_are_erased_and_what_is_remembered_of_it(site: Site) -> None:
    layout = Layout(key=("user",), delete_when="note = 'gone'")
    site.typed = site.lake.config(columns=COLUMNS, layout=layout)
    site.tables = Tables(bronze=site.bronze, derived=None, typed=(site.typed,))
    site.lake.push(entry(1, "u17", note="first"), entry(2, "u1"), entry(3, "u2"))
    run(site.query())
    site.lake.push(entry(4, "u17"), entry(5, "u17", note="gone"), entry(6, "u2", note="gone"))
    run(site.query())
    assert site.lake.places() == [1]
    assert site.erase("user = 'u17'") == 3
    assert site.places()["table"] == [1, 2, 5]
    remembered = (site.lake.directory / "t" / "_deletes").glob("*.parquet")
    rows = [row for path in remembered for row in pq.read_table(str(path)).to_pylist()]
    assert [row["user"] for row in rows] == ["u2"]


@pytest.mark.usefixtures("filled")
def test_gold_and_views_calculate_the_slots_anew(site: Site) -> None:
    gold = site.lake.directory / "gold"
    named = View(
        name="named", sql="select content, count(*) as n from silver group by content",
        slot=("content",), dir=str(site.lake.directory / "named"),
    )  # fmt: skip
    assert site.tables.derived is not None
    derived = msgspec.structs.replace(site.tables.derived, gold_dir=str(gold))
    site.tables = dataclasses.replace(site.tables, derived=derived)
    views = [*gold_views(str(gold)), named]
    source = SilverSource(site.bronze, str(site.pipeline.silver))
    queries = [ViewQuery(one, source) for one in views]

    def calculated() -> tuple[list[int], int]:
        for one in queries:
            while one.step():
                continue
        minutes = plain_rows(str(gold / "minutes")).to_pylist()
        counted = [row["messages"] for row in sorted(minutes, key=lambda row: row["minute"])]
        return counted, len(plain_rows(named.dir).to_pylist())

    site.lake.push(entry(1, "u17"), received_at=TIME + 2 * MINUTE)
    site.follow()
    assert calculated() == ([5, 2, 1], 6)
    match = find(site.tables, site.typed, "user = 'u17'")
    site.erasures.note(match.ranges, table="t", predicate="user = 'u17'")
    assert calculated() == ([5, 2, 1], 6)  # silver still has them
    sweep_all(site.tables, site.erasures)
    pending = told(site)
    assert not pending[str(gold / "minutes")].is_swept
    assert calculated() == ([3, 1], 4)
    assert SECRET not in str(plain_rows(named.dir).to_pylist()).encode()
    assert told(site)[str(gold / "minutes")].is_swept
    # Once is enough.
    versions = [DeltaTable(one.dir).version() for one in (*views[:1], named)]
    site.follow()
    calculated()
    assert [DeltaTable(one.dir).version() for one in (*views[:1], named)] in (
        versions, [one + 1 for one in versions],
    )  # fmt: skip
