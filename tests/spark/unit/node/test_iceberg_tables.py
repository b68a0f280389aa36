"""Typed tables in Iceberg's format, through kills, changes of schemas, and other writers."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import StringType

from iceberg_lake import IcebergLake, by_duckdb
from rest_catalog import RestCatalogServer
from rillnode.codecs.errors import ConfigError, StoreError, TransportError
from rillnode.node.spark import parts
from rillnode.node.spark.erasing import (
    Lake as Tables,
    counts,
    find,
    forget_old_files,
    held,
    sweep_all,
)
from rillnode.node.spark.erasure import Erasures, of_ranges
from rillnode.node.spark.job_config import CatalogConfig
from rillnode.node.spark.schema_upgrade import field_ids
from rillnode.node.spark.typed import iceberg_store, iceberg_table
from rillnode.node.spark.typed.describing import describe
from rillnode.node.spark.typed.iceberg_table import OpenIcebergTable, arrow_of, plain, read_rows
from rillnode.node.spark.typed.layout import Expectation
from rillnode.node.spark.typed.schemas import SchemaSource
from rillnode.node.spark.typed.tables import TypedTables, table_of
from rillnode.node.spark.typed.work import in_process
from typed_samples import COLUMNS, CREATED_AT, run

GOOD = b'{"id":1,"at":"2026-01-01T12:00:00Z"}'
BAD = b'{"id":"x","at":"2026-01-01T12:00:00Z"}'
NEW = b'{"id":1,"at":"2026-01-01T12:00:00Z","site":"x","pos":{"lat":1.5}}'
ALL: dict[str, Any] = {
    "id": "int", "ok": "bool?", "at": "timestamp?", "ms": "timestamp_ms?", "day": "date?",
    "temp": "float?", "price": "decimal?", "name": "string?", "raw": "binary?", "any": "json?",
    "tags?": ["string"], "counts?": {"*": "int"}, "pos?": {"lat": "float", "n?": ["int"]},
    "deep?": [{"x": "int", "y?": {"*": "float"}}],
}  # fmt: skip


@pytest.fixture
def lake(tmp_path: Path) -> IcebergLake:
    return IcebergLake(tmp_path)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[RestCatalogServer]:
    server = RestCatalogServer(tmp_path)
    with server.serving():
        yield server


def rejected(lake: IcebergLake) -> list[int]:
    return [row["_index"] for row in lake.rows("t_rejects")]


def raw_rows(lake: IcebergLake) -> list[dict[str, Any]]:
    """Rows as they are in the files."""
    table = lake.load()
    files = [one.file.file_path for one in table.scan().plan_files()]
    batches = read_rows(files, arrow_of(table.schema()))
    rows = [row for batch in batches for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: row["_index"])


def test_every_kind_of_column_comes_back_as_it_was(lake: IcebergLake) -> None:
    full = {
        "id": 2**60, "ok": True, "at": "2026-01-01T13:00:00.123456+01:00", "ms": 1_767_268_800_123,
        "day": "2026-01-02", "temp": 2.5, "price": "12345678901234567890.5", "name": "ü",
        "raw": "AAH/", "any": {"z": [1, None]}, "tags": ["a", "b"], "counts": {"k": 3},
        "pos": {"lat": 1.5, "n": [1, 2]}, "deep": [{"x": 1, "y": {"q": 0.5}}, {"x": 2}],
    }  # fmt: skip
    lake.push(json.dumps(full).encode(), b'{"id":1}')
    run(lake.table(columns=ALL))
    wanted = {
        "id": 2**60, "ok": True, "at": datetime(2026, 1, 1, 12, 0, 0, 123456, UTC),
        "ms": datetime(2026, 1, 1, 12, 0, 0, 123000, UTC), "day": date(2026, 1, 2), "temp": 2.5,
        "price": Decimal("12345678901234567890.5"), "name": "ü", "raw": b"\x00\x01\xff",
        "any": '{"z": [1, null]}', "tags": ["a", "b"], "counts": [("k", 3)],
        "pos": {"lat": 1.5, "n": [1, 2]},
        "deep": [{"x": 1, "y": [("q", 0.5)]}, {"x": 2, "y": None}],
        "_created_at": datetime.fromtimestamp(CREATED_AT / 1_000, UTC),
    }  # fmt: skip
    for rows in (lake.rows(), raw_rows(lake)):
        assert {name: rows[0][name] for name in wanted} == wanted
        assert {rows[1][name] for name in ALL.keys() & rows[1].keys() - {"id"}} == {None}
    assert str(lake.load().schema().find_field("any").doc) == "json"
    names = "id, ok, day, temp, price, name, raw, tags, counts, pos, deep"
    [row, _] = sorted(by_duckdb(lake.load(), names), reverse=True)
    assert row == (
        2**60, True, date(2026, 1, 2), 2.5, Decimal("12345678901234567890.5"), "ü", b"\x00\x01\xff",
        ["a", "b"], {"k": 3}, {"lat": 1.5, "n": [1, 2]},
        [{"x": 1, "y": {"q": 0.5}}, {"x": 2, "y": None}],
    )  # fmt: skip
    assert [row["_index"] for row in lake.rows()] == [0, 1]


def test_files_have_the_numbers_of_all_columns(lake: IcebergLake) -> None:
    lake.push(GOOD, b'{"id":1,"at":"2026-01-01T12:00:00Z","pos":{"lat":1.5},"tags":["a"]}')
    run(lake.table())
    table = lake.load()
    [task] = table.scan().plan_files()
    with pq.ParquetFile(plain(task.file.file_path)) as parquet:
        numbers = field_ids(parquet.schema_arrow)
    names = {"_stream", "id", "pos", "pos.lat", "tags", "tags.element"}
    assert names <= numbers.keys()
    schema = table.schema()
    numbers["_stream_partition"] = numbers.pop("_partition")
    assert numbers == {name: str(schema.find_field(name).field_id) for name in numbers}
    assert task.file.record_count == 2
    assert task.file.lower_bounds  # which lets readers skip files


@pytest.mark.parametrize("which", ["table", "rejects"])
def test_a_commit_that_meets_another_writers_looks_again(
    lake: IcebergLake, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    lake.push(GOOD, BAD)
    run(lake.table())
    real, name = OpenIcebergTable.transaction, "t" if which == "table" else "t_rejects"
    met: list[str] = []

    def late(table: OpenIcebergTable) -> Any:
        if table.table.name()[-1] == name and not met:
            met.append(name)
            lake.append(name)
        return real(table)

    monkeypatch.setattr(OpenIcebergTable, "transaction", late)
    lake.push(GOOD, BAD)
    run(lake.table())
    assert met == [name]
    # What the other writer has added is there once more, and what came in is there once.
    doubled = {"table": ([0, 0, 2], [1, 3]), "rejects": ([0, 2], [1, 1, 3])}
    assert (lake.places(), rejected(lake)) == doubled[which]


def test_two_processes_that_commit_the_same_step_at_once_land_it_once(
    lake: IcebergLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.push(GOOD)
    run(lake.table())
    lake.push(GOOD, GOOD)
    real, met = OpenIcebergTable.transaction, [0]

    def late(table: OpenIcebergTable) -> Any:
        met[0] += 1
        if met[0] == 1:
            run(lake.table())
        return real(table)

    monkeypatch.setattr(OpenIcebergTable, "transaction", late)
    run(lake.table())
    assert lake.places() == [0, 1, 2]


def test_a_table_that_is_written_all_the_time_says_so_and_goes_on_later(
    lake: IcebergLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.push(GOOD)
    run(lake.table())
    lake.push(GOOD)
    real = OpenIcebergTable.transaction

    def late(table: OpenIcebergTable) -> Any:
        lake.append(rows=0)
        return real(table)

    monkeypatch.setattr(OpenIcebergTable, "transaction", late)
    with pytest.raises(StoreError, match="is written by others all the time") as busy:
        run(lake.table())
    assert busy.value.code == "table.busy"
    monkeypatch.undo()
    run(lake.table())
    assert lake.places() == [0, 1]


def test_new_fields_become_columns_and_old_snapshots_are_as_they_were(lake: IcebergLake) -> None:
    lake.push(GOOD)
    run(lake.table())
    first = lake.load().current_snapshot()
    lake.push(NEW, b'{"id":1,"at":"2026-01-01T12:00:00Z","pos":{"lat":1,"lon":2}}')
    query = lake.table()
    run(query)
    assert [(row["site"], row["pos"]) for row in lake.rows()] == [
        (None, None), ("x", {"lat": 1.5, "lon": None}), (None, {"lat": 1.0, "lon": 2}),
    ]  # fmt: skip
    assert first is not None
    old = lake.load().scan(snapshot_id=first.snapshot_id).to_arrow()
    assert (old.num_rows, "site" in old.column_names) == (1, False)
    shown = describe(query.config)
    assert [one["why"] for one in shown["schemas"]] == ["declared", "entries had site, pos"]
    assert (shown["rows"], shown["files"], shown["table_version"]) == (3, 2, 2)


def test_whole_numbers_become_others_and_the_files_are_written_anew(lake: IcebergLake) -> None:
    columns = {**COLUMNS, "pos?": {"n": "int", "deep?": [{"x": "int"}]}}
    lake.push(b'{"id":1,"at":"2026-01-01T12:00:00Z","pos":{"n":2,"deep":[{"x":1}]}}', GOOD, BAD)
    run(lake.table(columns=columns))
    before = lake.load().current_snapshot()
    wider = b'{"id":1.5,"at":"2026-01-01T12:00:00Z","pos":{"n":2.5,"deep":[{"x":1.5}]}}'
    lake.push(wider)
    run(lake.table(columns=columns))
    assert rejected(lake) == [2, 3]
    query = lake.table(columns=columns, evolve="widen")
    assert query.retry() == (1, 1)
    assert [(row["id"], row["pos"]) for row in raw_rows(lake)] == [
        (1.0, {"n": 2.0, "deep": [{"x": 1.0}]}), (1.0, None),
        (1.5, {"n": 2.5, "deep": [{"x": 1.5}]}),
    ]  # fmt: skip
    assert before is not None
    old = lake.load().scan(snapshot_id=before.snapshot_id).to_arrow()
    assert sorted(old.column("id").to_pylist()) == [1, 1]
    lake.push(wider)
    run(query)
    assert (lake.places(), rejected(lake)) == ([0, 1, 3, 4], [2])


def test_a_change_that_cannot_be_made_says_what_to_do(lake: IcebergLake) -> None:
    lake.push(GOOD)
    run(lake.table())
    with pytest.raises(ConfigError, match='set evolve = "widen"'):
        lake.table(columns={**COLUMNS, "id": "float"}).step()
    with pytest.raises(ConfigError, match="is int in the table and string in its schema"):
        lake.table(columns={**COLUMNS, "id": "string"}).step()
    with pytest.raises(ConfigError, match=r"column 'a\.b' is there twice") as failed:
        lake.table(columns={**COLUMNS, "a": {"b": "int"}, "a.b": "int"}).step()
    assert failed.value.code == "table.column"
    lake.push(b'{"id":1,"at":"2026-01-01T12:00:00Z","x":1,"a.b":2,"a":{"b":1}}', NEW)
    run(lake.table())
    assert (lake.places(), rejected(lake)) == ([0, 2], [1])


def test_what_is_expected_of_rows_is_counted_once(lake: IcebergLake) -> None:
    sane = Expectation(name="sane", sql="temp < 80")
    for temp in (20, 900):
        lake.push(f'{{"id":1,"at":"2026-01-01T12:00:00Z","temp":{temp}}}'.encode(), BAD)
    query = lake.table(expect=(sane,), batch_rows_max=2)
    run(query)
    assert query.figures()["unexpected"] == {"sane": 1}
    assert describe(query.config)["unexpected_minutes"]["sane"].popitem()[1] == 1


def test_what_is_erased_is_gone_and_does_not_come_back(lake: IcebergLake) -> None:
    bronze = str(lake.bronze.table)
    secret = b'{"id":7,"at":"2026-01-01T12:00:00Z","temp":36.6}'
    lake.push(GOOD, secret, BAD, secret, BAD)
    query = lake.table()
    run(query)
    lake.push(secret, GOOD, BAD)
    tables = Tables(bronze=bronze, derived=None, typed=(lake.config(),))
    match = find(tables, lake.config(), "temp = 36.6")
    Erasures(bronze).note(match.ranges, table="t", predicate="temp = 36.6")

    def late(works: Sequence[bytes]) -> list[bytes]:
        outcomes = in_process(works)
        sweep_all(tables, Erasures(bronze))
        return outcomes

    run(lake.table(engine=late))
    assert match.entries == 3
    assert (lake.places(), rejected(lake)) == ([0, 6], [2, 4, 7])
    assert {row["temp"] for row in raw_rows(lake)} == {None}
    lake.push(GOOD)
    run(query)
    assert (lake.places(), query.figures()["rows"]) == ([0, 6, 8], 3)


def test_other_readers_know_all_names_of_a_table(lake: IcebergLake) -> None:
    lake.push(GOOD, BAD)
    run(lake.table(evolve="freeze"))
    # Iceberg's metadata columns: Spark refuses tables that have one of these themselves.
    reserved = {"_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id"}
    reserved |= {"_last_updated_sequence_number", "_change_type", "_change_ordinal"}
    for name in ("t", "t_rejects"):
        assert not reserved & {*lake.load(name).schema().column_names}
        assert [row["_stream_partition"] for row in lake.read(name)] == [0]


def test_rejects_that_another_writer_has_rewritten_are_landed_again(lake: IcebergLake) -> None:
    lake.push(GOOD, b'{"id":"7","at":"2026-01-01T12:00:00Z"}')
    run(lake.table())
    table: Any = lake.load("t_rejects")
    table.overwrite(table.scan().to_arrow())
    query = lake.table("t", columns={**COLUMNS, "id": "int", "other": "int?"})
    assert query.retry() == (0, 1)
    [row] = lake.read("t_rejects")
    assert (row["_stream_partition"], row["_index"], row["schema_version"]) == (0, 1, 2)


def test_the_position_outlives_other_writers_snapshots_and_expiry(lake: IcebergLake) -> None:
    lake.push(GOOD, BAD)
    run(lake.table())
    for name in ("t", "t_rejects"):
        table: Any = lake.load(name)
        table.overwrite(table.scan().to_arrow())
        ids = [one.snapshot_id for one in table.snapshots()][:-1]
        table.maintenance.expire_snapshots().by_ids(ids).commit()
    lake.push(GOOD, BAD)
    run(lake.table())
    assert (lake.places(), rejected(lake)) == ([0, 2], [1, 3])


def test_what_a_rollback_takes_away_is_landed_again(lake: IcebergLake) -> None:
    lake.push(GOOD)
    run(lake.table())
    first = lake.load().current_snapshot()
    assert first is not None
    lake.push(GOOD, GOOD)
    run(lake.table())
    table = lake.load()
    with table.manage_snapshots() as manage:
        manage.rollback_to_snapshot(first.snapshot_id)
    assert lake.places() == [0]
    run(lake.table())
    assert lake.places() == [0, 1, 2]


def test_so_is_what_a_rollback_to_before_the_first_row_takes_away(lake: IcebergLake) -> None:
    query = lake.table(streams=("other",))
    lake.push(GOOD)
    lake.push(GOOD, stream="other")
    run(query)
    table = lake.load()
    table.delete()
    [first, emptied] = table.snapshots()
    table.maintenance.expire_snapshots().by_id(first.snapshot_id).commit()
    lake.push(GOOD, stream="other")
    run(query)
    assert lake.places() == [1]  # what another writer has deleted does not come again
    with lake.load().manage_snapshots() as manage:
        manage.rollback_to_snapshot(emptied.snapshot_id)
    run(lake.table(streams=("other",)))
    assert lake.places() == [0, 1]


def test_columns_that_another_writer_changes_are_told_of_and_made_again(lake: IcebergLake) -> None:
    lake.push(b'{"id":1,"at":"2026-01-01T12:00:00Z","temp":1.5}')

    def meddling(works: Sequence[bytes]) -> list[bytes]:
        outcomes = in_process(works)
        if "temp" in lake.load().schema().column_names:
            with lake.load().update_schema() as update:
                update.delete_column("temp")
        return outcomes

    run(lake.table())
    lake.push(b'{"id":2,"at":"2026-01-01T12:00:00Z","temp":2.5}')
    meddled = lake.table(engine=meddling)
    with pytest.raises(ConfigError, match="another writer has changed columns of") as failed:
        meddled.step()
    assert failed.value.code == "table.schema"
    run(lake.table())
    assert [row["temp"] for row in lake.rows()] == [None, 2.5]
    with lake.load().update_schema() as update:
        update.add_column("site", StringType())
    lake.push(b'{"id":3,"at":"2026-01-01T12:00:00Z","site":7}', NEW)
    run(lake.table())
    assert ([row["site"] for row in lake.rows()], rejected(lake)) == ([None, None, "x"], [2])


def test_a_table_of_another_kind_is_left_alone(lake: IcebergLake) -> None:
    lake.push(GOOD)
    run(lake.table("u"))
    catalog = iceberg_table.open_catalog(lake.catalog)
    schema = pa.schema([pa.field("a", pa.int64())])
    for name in ("t", "v_rejects"):
        catalog.create_table(f"lake.{name}", schema, f"file://{lake.directory}/{name}")
    lake.push(BAD)
    for name in ("t", "v"):
        with pytest.raises(ConfigError, match="is a table of another kind") as failed:
            run(lake.table(name))
        assert failed.value.code == "table.schema"
    assert lake.load("v_rejects").schema().column_names == ["a"]


def test_bronze_that_was_made_anew_is_not_taken_in_twice(lake: IcebergLake, tmp_path: Path) -> None:
    lake.push(GOOD)
    run(lake.table())
    other = IcebergLake(tmp_path / "other")
    other.catalog = lake.catalog
    other.push(GOOD)
    with pytest.raises(ConfigError, match=r"bronze was made anew.*rillnode\.lake\.t has"):
        other.table().step()


def test_each_stream_has_a_table_under_a_name_that_catalogs_take(lake: IcebergLake) -> None:
    config = lake.config("by", streams=("a*",), source=SchemaSource(columns=COLUMNS))
    config = type(config)(
        name="by", streams=("a*",), source=SchemaSource(columns=COLUMNS), catalog=lake.catalog,
        dir=str(lake.directory / "by" / "{stream}"), table="lake.by_{stream}",
    )  # fmt: skip
    tables = TypedTables([config], str(lake.bronze.table), in_process)
    lake.push(GOOD, stream="a")
    lake.push(GOOD, GOOD, stream="a/1.B")
    tables.run_once()
    assert [len(lake.read(f"by_{table_of(name)}")) for name in ("a", "a/1.B")] == [1, 2]
    assert table_of("a") == "a"
    assert len({table_of(one) for one in ("a/b", "a.b", "A/b", "ä", "a_b")}) == 5


def test_small_files_are_merged_and_what_no_snapshot_has_is_removed(
    lake: IcebergLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = {name: ALL[name] for name in ("id", "at", "tags?", "counts?", "deep?")}
    query = lake.table(columns=columns, compact_commits=4)
    query.maintain()
    said: list[str] = []
    for at in range(8):
        lake.push(json.dumps({"id": at, "deep": [] if at % 2 else None}).encode())
        run(query)
        if done := query.maintain():
            said.append(done)
    assert said[0] == "rillnode.lake.t: merged 5 files of the table into 1"
    assert len(list(lake.load().scan().plan_files())) == 4
    assert [row["deep"] for row in raw_rows(lake)] == [None, []] * 4
    monkeypatch.setattr(iceberg_store, "SNAPSHOTS_MAX", 2)
    while query.maintain():
        continue
    for _ in range(4):
        lake.push(GOOD)
        run(query)
    while done := query.maintain():
        said.append(done)
    assert said[-1].endswith("snapshots have expired, 0 files that none has are removed")
    assert len(lake.load().snapshots()) == 2
    monkeypatch.setattr(iceberg_store, "KEEP_HOURS", 0)
    data = lake.directory / "t" / "data"
    (data / "part-of-a-killed-task.parquet").write_bytes(b"")
    for _ in range(4):
        lake.push(GOOD)
        run(query)
    while done := query.maintain():
        said.append(done)
    kept = {one.file.file_path for one in lake.load().scan().plan_files()}
    assert {f"file://{one}" for one in data.iterdir()} == kept
    lake.push(GOOD)
    run(query)
    assert lake.places() == list(range(17))


def test_a_rest_catalog_has_tables_like_any_other(
    lake: IcebergLake, service: RestCatalogServer
) -> None:
    config = lake.config(catalog=service.config())
    lake.push(GOOD, BAD)
    query = lake.table(catalog=service.config())
    run(query)
    lake.push(NEW)
    run(query)
    assert {"rows": 2, "rejects": 1, "schema_version": 2}.items() <= query.figures().items()
    table = service.sql.load_table("lake.t")
    assert table.location() == f"file://{config.dir}"
    assert sorted(table.scan().to_arrow().column("_index").to_pylist()) == [0, 2]


def test_a_commit_whose_answer_is_lost_is_neither_lost_nor_made_twice(
    lake: IcebergLake, service: RestCatalogServer
) -> None:
    query = lake.table(catalog=service.config())
    lake.push(GOOD, BAD)
    run(query)
    for lost in (1, 2):
        lake.push(GOOD, BAD)
        service.lost = lost
        for _ in range(lost):
            with pytest.raises(TransportError, match="is away: Unknown: the answer is lost"):
                run(query)
        run(query)
    rows = [service.sql.load_table(f"lake.{name}").scan().to_arrow() for name in ("t", "t_rejects")]
    assert [sorted(one.column("_index").to_pylist()) for one in rows] == [[0, 2, 4], [1, 3, 5]]


def test_a_table_waits_for_a_catalog_that_is_away_and_goes_on_by_itself(
    lake: IcebergLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "BACKOFF_SECONDS", (0.0,))
    service = RestCatalogServer(tmp_path)
    with service.serving():
        pass  # so that its port is known
    configs = [lake.config(catalog=service.config())]
    tables = TypedTables(configs, str(lake.bronze.table), in_process, trigger_seconds=0.01)
    lake.push(GOOD)
    tables.start()
    try:
        told = wait_for(tables, lambda told: "error" in told)
        assert told["state"] == "waiting"
        assert "the catalog of rillnode.lake.t is away" in str(told["error"])
        with service.serving():
            wait_for(tables, lambda told: told.get("rows") == 1)
            service.broken = 503
            lake.push(GOOD)
            told = wait_for(tables, lambda told: "error" in told)
            assert (told["state"], "out of order" in str(told["error"])) == ("waiting", True)
            service.broken = 0
            told = wait_for(tables, lambda told: told["state"] == "running")
            assert told["rows"] == 2
    finally:
        tables.finish(time.monotonic() + 10)


def wait_for(tables: TypedTables, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    deadline = time.monotonic() + 60
    while not is_so(told := tables.report()["table/t"]):
        assert time.monotonic() < deadline, told
        time.sleep(0.02)
    return told


def test_a_catalog_that_does_not_answer_is_not_waited_for_for_ever(
    lake: IcebergLake, service: RestCatalogServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg_table, "ANSWER_SECONDS_MAX", 0.1)
    service.slow_seconds = 1.0
    lake.push(GOOD)
    with pytest.raises(TransportError, match=r"is away: .*[Tt]imed out") as failed:
        lake.table(catalog=service.config()).step()
    assert failed.value.code == "table.catalog"


def test_credentials_come_from_the_environment_and_wrong_ones_are_told_of(
    lake: IcebergLake, service: RestCatalogServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.token = "right"
    lake.push(GOOD)
    monkeypatch.setenv("PYICEBERG_CATALOG__ONE__TOKEN", "wrong")
    monkeypatch.setenv("PYICEBERG_CATALOG__TWO__TOKEN", "right")
    with pytest.raises(ConfigError, match=r"refuses the credentials: .*no such token") as failed:
        lake.table(catalog=service.config("one")).step()
    assert failed.value.code == "table.catalog"
    assert "PYICEBERG_CATALOG__NAME__TOKEN" in str(failed.value)
    run(lake.table(catalog=service.config("two")))
    assert len(service.sql.load_table("lake.t").snapshots()) == 1


@pytest.mark.parametrize(("uri", "why"), [
    ("", "catalog rillnode has no uri, neither in node.toml nor in the environment"),
    ("postgresql+nodriver://127.0.0.1/x", "the catalog of rillnode.lake.t: "),
    ("no url at all", "the catalog of rillnode.lake.t: "),
])  # fmt: skip
def test_a_catalog_that_cannot_be_says_why(lake: IcebergLake, uri: str, why: str) -> None:
    lake.push(GOOD)
    with pytest.raises(ConfigError, match=why) as failed:
        lake.table(catalog=CatalogConfig(name="rillnode", type="sql", uri=uri)).step()
    assert failed.value.code == "table.catalog"


def test_damaged_metadata_names_the_table_and_the_remedy(lake: IcebergLake) -> None:
    lake.push(GOOD)
    query = lake.table()
    run(query)
    lake.push(GOOD)
    file = Path(plain(lake.load().metadata_location))
    good = file.read_bytes()
    for content in (b"", b"{", b"{}", b"\xff", None):
        if content is None:
            file.unlink()
        else:
            file.write_bytes(content)
        with pytest.raises(StoreError, match=r"rillnode\.lake\.t is damaged: ") as failed:
            query.step()
        assert failed.value.code == "table.damaged"
        assert "Put the file back from a copy" in str(failed.value)
    file.write_bytes(good)
    run(query)
    assert lake.places() == [0, 1]


def test_a_catalog_file_that_is_none_says_so(lake: IcebergLake) -> None:
    (lake.directory / "catalog.db").write_bytes(b"no database, " * 100)
    lake.push(GOOD)
    with pytest.raises(StoreError, match="file is not a database") as failed:
        lake.table().step()
    assert failed.value.code == "table.damaged"


@pytest.mark.long
def test_what_was_erased_is_gone_from_an_iceberg_table_and_stays_gone(lake: IcebergLake) -> None:
    lake.push(GOOD, b'{"id":17,"at":"2026-01-01T12:00:00Z"}', BAD)
    lake.push(b'{"id":17,"at":"2026-01-01T12:00:00Z"}', GOOD)
    query = lake.table()
    run(query)
    config, bronze = lake.config(), str(lake.bronze.table)
    tables = Tables(bronze=bronze, derived=None, typed=(config,))
    erasures = Erasures(bronze)

    def erase(predicate: str) -> int:
        match = find(tables, config, predicate)
        erasures.note(match.ranges, table="t", predicate=predicate)
        sweep_all(tables, erasures)
        return match.entries

    secret = find(tables, config, "id = 17")
    assert counts(tables, of_ranges(secret.ranges)) == {
        bronze: 2, "rillnode.lake.t": 2, "rillnode.lake.t_rejects": 0
    }  # fmt: skip
    assert erase("id = 17") == 2
    (one, *_) = (one for one in held(tables, erasures.erased()) if one.table == "rillnode.lake.t")
    assert (one.is_swept, one.files) == (True, 1)
    assert one.bytes > 0
    assert one.until is not None
    assert sorted(row["_index"] for row in lake.read("t")) == [0, 4]
    assert sorted(by_duckdb(lake.load(), "_index")) == [(0,), (4,)]
    assert erase("_index = 2") == 1  # one of the rejects
    assert lake.read("t_rejects") == []
    before = lake.load().current_snapshot()
    sweep_all(tables, erasures)
    assert lake.load().current_snapshot() == before

    def slow(works: Sequence[bytes]) -> list[bytes]:
        done = in_process(works)
        erase("id = 17")
        return done

    lake.push(GOOD, b'{"id":17,"at":"2026-01-01T12:00:00Z"}')
    run(lake.table(engine=slow))
    assert sorted(row["_index"] for row in lake.read("t")) == [0, 4, 5]
    removed, kept = forget_old_files(tables, erasures.erased())
    assert (removed > 0, kept) == (True, {})
    assert not any(one.files or one.until for one in held(tables, erasures.erased()))
    assert sorted(row["_index"] for row in lake.read("t")) == [0, 4, 5]
    files = {one.file.file_path.rpartition("/")[2] for one in lake.load().scan().plan_files()}
    assert {one.name for one in (lake.directory / "t" / "data").glob("*.parquet")} == files
    lake.push(GOOD)
    run(lake.table())
    assert sorted(row["_index"] for row in lake.read("t")) == [0, 4, 5, 7]
