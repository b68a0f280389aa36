"""Typed tables kept up with bronze: once whatever is killed, and as their schemas change."""

import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from rillnode.codecs.errors import ConfigError, StoreError
from rillnode.node.entries import Readers
from rillnode.node.spark import parts
from rillnode.node.spark.maintenance import compact
from rillnode.node.spark.parquet import STATISTICS_COLUMNS
from rillnode.node.spark.typed import query as query_module
from rillnode.node.spark.typed.delta_store import DeltaStore
from rillnode.node.spark.typed.describing import describe, infer_table, write_table
from rillnode.node.spark.typed.schemas import SchemaSource
from rillnode.node.spark.typed.tables import TypedTables, directory_of
from rillnode.node.spark.typed.work import in_process
from table_readers import plain_rows, rows_of, wrong_answers
from typed_samples import COLUMNS, CREATED_AT, Lake, die_after, run

GOOD = b'{"id":1,"at":"2026-01-01T12:00:00Z"}'
BAD = b'{"id":"x","at":"2026-01-01T12:00:00Z"}'
NEW = b'{"id":1,"at":"2026-01-01T12:00:00Z","site":"x","pos":{"lat":1.5}}'


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


class KilledError(BaseException):
    """Ends a step as the end of its process would."""


def kill(*_: object) -> None:
    raise KilledError


def rejected(lake: Lake, name: str = "t") -> list[tuple[int, str, int]]:
    rows = lake.rows(f"{name}_rejects")
    return [(row["_index"], row["reason"], row["schema_version"]) for row in rows]


def test_each_entry_is_in_the_table_or_in_its_rejects(lake: Lake) -> None:
    query = lake.table()
    assert not query.step()  # there is no bronze yet
    lake.push(GOOD, BAD, b"{", GOOD)
    run(query)
    lake.push(GOOD)
    run(query)
    assert lake.places() == [0, 3, 4]
    assert rejected(lake) == [
        (1, "Expected int, got str - at $.id", 1), (2, "Input data was truncated", 1),
    ]  # fmt: skip
    figures = query.figures()
    told: dict[str, object] = {
        "rows": 3, "rejects": 2, "rows_late": 0, "rows_superseded": 0, "rows_expired": 0,
        "schema_version": 1, "unexpected": {}, "files": 2,
    }  # fmt: skip
    assert told.items() <= figures.items()


def test_a_table_takes_only_its_streams(lake: Lake) -> None:
    lake.push(GOOD, stream="a/1")
    lake.push(GOOD, GOOD, stream="a/2")
    lake.push(GOOD, stream="b")
    for name, streams in {"t": ("a/*",), "u": ("b",), "v": ("a/1", "b")}.items():
        run(lake.table(name, streams=streams))
    assert [len(lake.rows(name)) for name in ("t", "u", "v")] == [3, 1, 2]


def test_a_stream_that_was_made_anew_has_other_places(lake: Lake) -> None:
    lake.push(GOOD)
    lake.remove()
    lake.push(GOOD, created_at=CREATED_AT + 1)
    run(lake.table())
    places = {(row["_stream"], row["_index"], row["_created_at"]) for row in lake.rows()}
    assert len(places) == 2


def test_every_reader_finds_the_rows_of_a_typed_table_by_every_column(lake: Lake) -> None:
    lake.push(b'{"id":1,"at":"2026-01-01T12:00:00Z","site":"x","ok":true}', GOOD)
    run(lake.table())
    lake.push(b'{"id":3,"at":"2026-01-03T12:00:00Z","temp":2.5}')
    run(lake.table())
    list(compact(str(lake.directory / "t")))
    assert wrong_answers(str(lake.directory / "t")) == []


def test_the_half_of_a_pair_that_was_left_is_what_was_decided_then(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.push(GOOD, BAD)
    die_after(monkeypatch, 1)
    with pytest.raises(KeyboardInterrupt):
        lake.table().step()
    assert (lake.places(), len(rejected(lake))) == ([], 1)
    monkeypatch.undo()
    # Under this schema the first does not fit and the second does.
    other = {"id": "int", "at": "timestamp", "needed": "int"}
    lake.push(b'{"id":1,"at":"2026-01-01T12:00:00Z","needed":1}')
    run(lake.table(columns=other))
    assert (lake.places(), [index for index, _, _ in rejected(lake)]) == ([0, 2], [1])


def test_other_peoples_entries_do_not_make_versions_of_a_table(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_module, "EMPTY_VERSIONS_MAX", 10)
    lake.push(GOOD, stream="mine")
    query = lake.table(streams=("mine",))
    run(query)
    before = DeltaTable(lake.directory / "t").version()
    for _ in range(9):
        lake.push(GOOD, stream="other")
        run(query)
    assert DeltaTable(lake.directory / "t").version() == before
    lake.push(GOOD, stream="other")
    run(query)
    assert DeltaTable(lake.directory / "t").version() == before + 1
    lake.push(GOOD, stream="mine")
    run(lake.table(streams=("mine",)))
    assert len(lake.rows()) == 2


def test_new_fields_become_columns_and_readers_of_old_versions_go_on(lake: Lake) -> None:
    query = lake.table()
    lake.push(GOOD)
    run(query)
    old = DeltaTable(lake.directory / "t")
    other = b'{"id":1,"at":"2026-01-01T12:00:00Z","site":1,"pos":{"lat":1}}'
    lake.push(NEW, GOOD, other)
    run(query)
    lake.push(b'{"id":1,"at":"2026-01-01T12:00:00Z","pos":{"lat":1,"lon":2}}')
    run(query)
    assert [(row["site"], row["pos"]) for row in lake.rows()] == [
        (None, None), ("x", {"lat": 1.5, "lon": None}), (None, None),
        (None, {"lat": 1.0, "lon": 2}),
    ]  # fmt: skip
    # A text is no whole number, and a column keeps its type.
    assert rejected(lake) == [(3, "Expected str | null, got int - at $.site", 2)]
    assert rows_of(old).num_rows == 1
    shown = describe(lake.config())
    assert [one["version"] for one in shown["schemas"]] == [1, 2, 3]
    assert shown["schemas"][1]["why"] == "entries had site, pos"
    assert shown["reasons"] == {"Expected str | null, got int - at $.site": 1}


def test_a_start_anew_knows_the_columns_that_entries_have_brought(lake: Lake) -> None:
    lake.push(NEW)
    run(lake.table())
    lake.push(NEW)
    query = lake.table()
    run(query)
    assert [row["site"] for row in lake.rows()] == ["x", "x"]
    assert query.figures()["schema_version"] == 2


@pytest.mark.parametrize("entry", [
    {"ID": 2}, {"_own": 1}, {"a b": 1}, {"pos": {"lat": 1, "x,y": 2}},
    {"pos": {"LAT": 1.0, "lat": 1}}, {f"f{at}": at for at in range(5_000)},
])  # fmt: skip
def test_fields_that_cannot_be_columns_are_rejects_and_stop_nothing(
    lake: Lake, entry: dict[str, Any]
) -> None:
    base = json.loads(GOOD)
    lake.push(NEW, json.dumps({**base, **entry}).encode(), GOOD)
    run(lake.table())
    assert lake.places() in ([0, 2], [0, 1, 2])
    told = lake.places() + [index for index, _, _ in rejected(lake)]
    assert sorted(told) == [0, 1, 2]


def test_whole_numbers_become_others_only_where_they_may(lake: Lake) -> None:
    wider = b'{"id":1.5,"at":"2026-01-01T12:00:00Z","pos":{"n":2.5}}'
    lake.push(b'{"id":1,"at":"2026-01-01T12:00:00Z","pos":{"n":2}}', wider)
    run(lake.table())
    assert rejected(lake) == [(1, "Expected int, got float - at $.id", 2)]
    query = lake.table(evolve="widen")
    lake.push(wider)
    old = DeltaTable(lake.directory / "t")
    run(query)
    assert [(row["id"], row["pos"]["n"]) for row in lake.rows()] == [(1.0, 2.0), (1.5, 2.5)]
    assert rows_of(old).column("id").to_pylist() == [1]
    run(lake.table(evolve="widen"))
    assert lake.table(evolve="widen").retry() == (1, 0)
    assert (lake.places(), rejected(lake)) == ([0, 1, 2], [])


def test_new_fields_go_into_rest_where_the_schema_is_frozen(lake: Lake) -> None:
    lake.push(NEW, GOOD)
    run(lake.table(evolve="freeze"))
    assert [row["_rest"] for row in lake.rows()] == ['{"site":"x","pos":{"lat":1.5}}', None]
    lake.push(NEW)
    run(lake.table(evolve="add"))
    assert [(row["_rest"] is None, row["site"]) for row in lake.rows()] == [
        (False, None), (True, None), (True, "x"),
    ]  # fmt: skip


@pytest.mark.parametrize("evolve", ["add", "widen"])
@pytest.mark.parametrize("name", ['\\"', "\\\\", "\\n", "a b"])
def test_a_name_that_no_column_can_have_stops_no_table(lake: Lake, name: str, evolve: str) -> None:
    lake.push(f'{{"id":1,"{name}":1}}'.encode(), f'{{"id":2,"in":{{"{name}":1}}}}'.encode())
    lake.push(b'{"id":3}')
    run(lake.table(columns={"id": "int"}, evolve=evolve))
    assert [row["id"] for row in lake.rows()] == [3]
    assert len(lake.rows("t_rejects")) == 2


def test_a_table_waits_for_people_where_it_is_told_to(lake: Lake) -> None:
    lake.push(GOOD)
    lake.push(NEW)
    query = lake.table(evolve="pause", batch_rows_max=1)
    query.step()
    for _ in range(2):
        with pytest.raises(StoreError, match=r"the entry s/0/1 has fields .*: pos, site\. Declare"):
            query.step()
    assert lake.places() == [0]
    run(
        lake.table(evolve="pause", columns={**COLUMNS, "site": "string?", "pos?": {"lat": "float"}})
    )
    assert lake.places() == [0, 1]
    lake.push(BAD)
    with pytest.raises(StoreError, match=r"the entry s/0/2: Expected int, got str - at \$\.id"):
        run(lake.table(reject="pause"))
    files = {*(lake.directory / "t").glob("*.parquet")}
    assert len(files) == len(DeltaTable(lake.directory / "t").file_uris())


@pytest.mark.parametrize(("columns", "why"), [
    ({**COLUMNS, "id": "string"}, "is int in the table and string in its schema, and a column"),
    ({**COLUMNS, "id": "float"}, 'set evolve = "widen"'),
    ({**COLUMNS, "Id": "int"}, "is the same name as"),
    ({"ID": "int"}, "which readers do not tell apart"),
])  # fmt: skip
def test_a_change_that_cannot_be_made_says_what_to_do(
    lake: Lake, columns: dict[str, Any], why: str
) -> None:
    lake.push(GOOD)
    run(lake.table())
    lake.push(GOOD)
    with pytest.raises(ConfigError, match=why):
        lake.table(columns=columns).step()
    run(lake.table())
    assert lake.places() == [0, 1]


def test_a_table_of_another_kind_is_left_alone(lake: Lake) -> None:
    lake.push(GOOD)
    with pytest.raises(ConfigError, match="a table of another kind"):
        lake.table("table").step()


def test_a_bronze_table_that_was_made_anew_is_not_taken_in_twice(lake: Lake) -> None:
    lake.push(GOOD, BAD)
    run(lake.table())
    shutil.rmtree(lake.bronze.table)
    lake.push(GOOD)
    with pytest.raises(ConfigError, match=r"bronze was made anew.*t_rejects, which are then made"):
        lake.table().step()
    for name in ("t", "t_rejects"):
        shutil.rmtree(lake.directory / name)
    run(lake.table())
    assert lake.places() == [2]


def test_tables_are_kept_up_in_a_thread_and_one_that_fails_holds_up_no_other(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "BACKOFF_SECONDS", (0.0,))
    configs = [
        lake.config("fine"),
        lake.config("wrong", source=SchemaSource(schema="no_such_module:Reading")),
        lake.config("waits", reject="pause"),
    ]
    tables = TypedTables(configs, str(lake.bronze.table), in_process, trigger_seconds=0.01)
    tables.start()
    for _ in range(3):
        lake.push(GOOD, BAD)
    deadline = time.monotonic() + 60

    def told(name: str) -> dict[str, Any]:
        return tables.report()[f"table/{name}"]

    while told("fine").get("rejects") != 3 or "error" not in told("waits"):
        assert time.monotonic() < deadline, tables.report()
        time.sleep(0.05)
    tables.finish(time.monotonic() + 10)
    fine = told("fine")
    assert (fine["state"], fine["rows"], fine["schema_version"]) == ("running", 3, 1)
    assert told("wrong")["state"] == told("waits")["state"] == "failed"
    assert "no module named 'no_such_module'" in str(told("wrong")["error"])
    assert "table waits waits: the entry s/0/1: Expected int" in str(told("waits")["error"])


def test_rejects_that_two_processes_land_again_at_once_are_landed_once(lake: Lake) -> None:
    wanted = {"id": "json", "at": "timestamp?"}
    lake.push(GOOD, BAD, b"{")
    run(lake.table(columns={"id": "string", "at": "timestamp?"}))
    others: list[tuple[int, int]] = []

    def slow(works: Sequence[bytes]) -> list[bytes]:
        outcomes = in_process(works)
        if not others:
            others.append(lake.table(columns=wanted).retry())
        return outcomes

    assert lake.table(columns=wanted, engine=slow).retry() == (0, 1)
    assert others == [(1, 1)]
    assert (lake.places(), [row[0] for row in rejected(lake)]) == ([0, 1], [2])


def test_a_column_that_another_writer_has_removed_of_rejects_comes_again(lake: Lake) -> None:
    query = lake.table()
    lake.push(BAD)
    run(query)
    kept = plain_rows(str(lake.directory / "t_rejects")).drop_columns(["reason"])
    lake.write(kept, anew=True, name="t_rejects")
    lake.push(BAD)
    run(query)
    reasons = [row["reason"] for row in lake.rows("t_rejects")]
    assert reasons == [None, "Expected int, got str - at $.id"]


def test_a_new_process_mends_what_rejects_say_of_their_statistics(lake: Lake) -> None:
    lake.push(BAD)
    run(lake.table())
    told = {STATISTICS_COLUMNS: "_stream,reason"}
    DeltaTable(lake.directory / "t_rejects").alter.set_table_properties(told)
    lake.push(BAD)
    run(lake.table())
    said = DeltaTable(lake.directory / "t_rejects").metadata().configuration
    assert said[STATISTICS_COLUMNS] == "_stream"


def test_there_is_nothing_to_retry_without_rejects(lake: Lake) -> None:
    lake.push(GOOD)
    assert lake.table().retry() == (0, 0)


def test_a_table_for_each_stream_is_made_as_streams_come(lake: Lake) -> None:
    config = lake.config("by", streams=("a*",)).__class__(
        name="by", streams=("a*",), dir=str(lake.directory / "by" / "{stream}"),
        source=SchemaSource(columns=COLUMNS),
    )  # fmt: skip
    tables = TypedTables([config], str(lake.bronze.table), in_process)
    lake.push(GOOD, stream="a")
    tables.run_once()
    lake.push(GOOD, BAD, stream="a/1")
    lake.push(GOOD, stream="b")
    tables.run_once()
    assert [len(lake.rows(f"by/{directory_of(name)}")) for name in ("a", "a/1", "b")] == [1, 1, 0]
    assert tables.report().keys() == {"table/by"}


@pytest.mark.parametrize("stream", ["a/b", "a.b", "..", ".", "_x", "ü", "a" * 300, "A/B", "a b"])
def test_directories_of_streams_are_single_and_their_own(stream: str) -> None:
    name = directory_of(stream)
    assert "/" not in name
    assert not name.startswith((".", "_"))
    assert len(name) < 255 or stream == name
    others = ["a/b", "a.b", "..", ".", "_x", "ü", "a" * 300, "A/B", "a b"]
    assert [directory_of(one) for one in others].count(name) == 1


def test_what_is_inferred_of_bronze_is_a_table_that_loads(lake: Lake) -> None:
    import tomllib

    lake.push(NEW, GOOD, b"no json", stream="sensors/1")
    lake.push(b'{"other":1}', stream="x")
    columns, looked_at = infer_table(str(lake.bronze.table), ["sensors/*"], 100, Readers())
    assert looked_at == 3
    table = tomllib.loads(write_table(["sensors/*"], "lake/sensors", columns))["table"][0]
    assert table == {
        "streams": ["sensors/*"], "dir": "lake/sensors",
        "columns": {"id": "int", "at": "timestamp", "site": "string?", "pos?": {"lat": "float"}},
    }  # fmt: skip
    run(lake.table(columns=table["columns"], streams=("sensors/*",)))
    assert lake.places() == [0, 1]
    assert infer_table(str(lake.bronze.table), ["none"], 100, Readers()) == ((), 0)


@pytest.mark.parametrize("more", [GOOD, BAD])
def test_columns_that_another_writer_has_removed_are_made_anew(lake: Lake, more: bytes) -> None:
    query = lake.table()
    lake.push(GOOD)
    run(query)
    kept = plain_rows(str(lake.directory / "t")).select(["_stream", "_index", "id"])
    lake.write(kept, anew=True)
    lake.push(GOOD, more)
    said = "another writer has changed or removed columns of .*: _partition, .*, at"
    with pytest.raises(ConfigError, match=said) as failed:
        query.step()
    assert failed.value.code == "table.schema"
    run(query)
    lake.push(GOOD)
    run(query)
    rows = lake.rows()
    assert [row["_index"] for row in rows] == ([0, 1, 3] if more == BAD else [0, 1, 2, 3])
    assert [row["at"] is None for row in rows] == [True, *[False] * (len(rows) - 1)]
    assert len(rejected(lake)) == (more == BAD)


def test_a_column_that_another_writer_has_made_another_leaves_the_table_waiting(
    lake: Lake,
) -> None:
    query = lake.table()
    lake.push(GOOD)
    run(query)
    before = plain_rows(str(lake.directory / "t"))
    fields = [pa.field(one.name, pa.string()) if one.name == "id" else one for one in before.schema]
    texts = before.cast(pa.schema(fields))
    lake.write(texts, anew=True)
    lake.push(GOOD)
    for said in (
        "another writer has changed or removed columns of .*: id",
        "string in the table",
        "string in",
    ):
        with pytest.raises(ConfigError, match=said) as failed:
            query.step()
        assert failed.value.code == "table.schema"
    assert DeltaTable(lake.directory / "t").count() == 1
    lake.write(before, anew=True)
    run(query)
    assert lake.places() == [0, 1]


MANY: Final[list[dict[str, Any]]] = [
    {f"f{at}": at for at in range(5_000)},
    {f"f{at}": {f"g{by}": by for by in range(99)} for at in range(11)},
    {"pos": {f"f{at}": {f"g{by}": by for by in range(99)} for at in range(11)}},
]


@pytest.mark.parametrize(
    ("evolve", "many"),
    [
        *(("add", many) for many in MANY),
        ("widen", MANY[2]),
        *(pytest.param("widen", many, marks=pytest.mark.long) for many in MANY[:2]),
    ],
)
def test_an_entry_with_too_many_fields_does_not_fill_the_table(
    lake: Lake, evolve: str, many: dict[str, Any]
) -> None:
    columns = {**COLUMNS, "pos?": {"lat": "float?"}}
    entry = json.loads(GOOD)
    some = {f"s{at}": at for at in range(500)}
    lake.push(*(json.dumps({**entry, **more}).encode() for more in (many, some, {"site": "x"})))
    run(lake.table(columns=columns, evolve=evolve))
    assert lake.places() == [1, 2]
    ((index, reason, _),) = rejected(lake)
    assert (index, "more than the 1,000 that it may have" in reason) == (0, True)
    assert {"s0", "s499", "site"} <= set(lake.rows()[0])
    assert len(DeltaTable(lake.directory / "t").schema().fields) == 5 + 4 + 501


@pytest.mark.parametrize(
    ("items", "is_running"),
    [
        ((GOOD, BAD), True),
        ((GOOD, BAD), False),
        ((BAD,), True),
        ((GOOD,), False),
        pytest.param((BAD,), False, marks=pytest.mark.long),
        pytest.param((GOOD,), True, marks=pytest.mark.long),
    ],
)
def test_a_table_that_is_removed_is_made_anew_and_never_half(
    lake: Lake, items: tuple[bytes, ...], is_running: bool
) -> None:
    query = lake.table()
    for _ in range(2):
        lake.push(*items)
        run(query)
    run(query)
    shutil.rmtree(lake.directory / "t")
    if not is_running:
        query = lake.table()
    lake.push(GOOD, BAD)
    if BAD in items:
        for _ in range(2):
            with pytest.raises(StoreError, match=r"was removed, and .* remove both") as failed:
                query.step()
            assert failed.value.code == "table.pair"
        shutil.rmtree(lake.directory / "t_rejects")
    run(query)
    landed = [*lake.places(), *(index for index, _, _ in rejected(lake))]
    assert sorted(landed) == list(range(2 * len(items) + 2))
    assert [one.version for one in DeltaStore(str(lake.directory / "t")).history()] == [1]


def test_rejects_that_are_removed_begin_anew(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    query = lake.table()
    for _ in range(2):
        lake.push(GOOD, BAD)
        run(query)
    shutil.rmtree(lake.directory / "t_rejects")
    lake.push(GOOD, BAD)
    with monkeypatch.context() as patched:
        patched.setattr(query_module, "_finish", kill)
        with pytest.raises(KilledError):
            query.step()
    run(lake.table())
    assert lake.places() == [0, 2, 4]
    assert [index for index, _, _ in rejected(lake)] == [5]
