"""`rillnode table`: what needs no Java."""

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from fake_client import RECEIVED_AT, FakeClient, Screen
from rillnode.actors.spark.sink_job import SinkStatus
from rillnode.codecs.keys import Identity
from rillnode.node.cli import main
from rillnode.node.client.stream import StreamInfo
from rillnode.node.keys.files import write_key
from rillnode.node.spark.explaining import explain_end
from rillnode.node.spark.typed.layout import Layout
from rillnode.node.spark.views.planning import View
from rillnode.node.spark.views.query import TypedSource, ViewQuery
from typed_samples import COLUMNS, Lake, run

GOOD = b'{"id":1,"at":"2026-01-01T12:00:00Z"}'
BAD = b'{"id":"x","at":"2026-01-01T12:00:00Z"}'
SINK = 'name = "a"\n[[sink.spark]]\nname = "lake"\nstreams = ["*"]\ntable_dir = "table"\n'
TABLE = '[[table]]\nstreams = ["*"]\ndir = "t"\ncolumns = { id = "int", at = "timestamp" }\n'


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A bronze table in an initialised node's directory, which is the working directory.

    Its sink is one of Python; the configurations that tests write have one of Spark.
    """
    (tmp_path / "node.toml").write_text(SINK.replace("sink.spark", "sink.python") + TABLE)
    for at, name in enumerate(("identity", "admin"), start=1):
        write_key(tmp_path / "data" / f"{name}.key", Identity.from_seed(bytes([at]) * 32))
    monkeypatch.chdir(tmp_path)
    return Lake(tmp_path)


def called(*argv: str) -> tuple[int, str, str]:
    screen = Screen()
    code = main(argv, screen.terminal)
    return code, screen.out, screen.err


def test_tables_are_listed_with_what_their_job_tells(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeClient()
    monkeypatch.setattr("rillnode.node.client.connect", fake.connect)
    told: dict[str, Any] = {
        "rows": 3, "rejects": 1, "schema_version": 2, "rows_behind": 4, "files": 2, "bytes": 900,
    }  # fmt: skip
    report = {
        "state": "running",
        "table/t": {"state": "failed", "error": "do this", **told, "committed_at": 1_000},
        "view/v": {"state": "running", "rows": 7, "files": 1, "bytes": 9, "committed_at": 2_000},
    }
    fake.sinks["lake"] = SinkStatus(
        tables=("bronze", "table/t", "table/u", "view/v"), state="running", pid=7, report=report
    ).document()
    code, out, _ = called("table", "ls")
    first, second, view = [json.loads(line) for line in out.splitlines()]
    assert (code, first) == (
        0, {"name": "t", "sink": "lake", "kind": "table", **told, "state": "failed",
            "seconds_behind": None, "last_commit": "1970-01-01T00:00:01Z", "error": "do this"},
    )  # fmt: skip
    assert (view["name"], view["kind"], view["rows"], view["rejects"]) == ("v", "view", 7, None)
    assert (second["name"], second["state"], second["rows"]) == ("u", "starting", None)
    assert fake.sinks["lake"]["state"] == "failed"


def test_a_table_is_shown_with_its_schemas_files_and_rejects(lake: Lake) -> None:
    code, out, _ = called("table", "show", "t")
    assert (code, json.loads(out)["state"]) == (0, "not made yet")
    lake.push(GOOD, BAD)
    run(lake.table(columns={"id": "int", "at": "timestamp"}))
    lake.push(b'{"id":2,"at":"2026-01-01T12:00:00Z","site":"x"}')
    run(lake.table(columns={"id": "int", "at": "timestamp"}))
    shown = json.loads(called("table", "show", "t")[1])
    assert (shown["rows"], shown["rejects"], shown["files"]) == (2, 1, 2)
    assert shown["columns"] == '{ id = "int", at = "timestamp", site = "string?" }'
    assert [one["version"] for one in shown["schemas"]] == [1, 2]
    assert shown["reasons"] == {"Expected int, got str - at $.id": 1}
    assert shown["file_bytes_min"] > 0


def test_a_table_is_shown_with_its_key_its_time_and_what_was_counted(lake: Lake) -> None:
    layout = (
        'key = ["id"]\ntime = "at"\npartition_by = ["day(at)"]\nkeep_days = 10000\n'
        'delete_when = "id < 0"\n'
    )
    (lake.directory / "node.toml").write_text(SINK + TABLE + layout)
    assert called("config", "check", "-c", "node.toml")[0] == 0
    kept = Layout(
        key=("id",), time="at", partition_by=("day(at)",), keep_days=10_000, delete_when="id < 0"
    )
    lake.push(GOOD, GOOD.replace(b"2026", b"2022"), GOOD.replace(b"1,", b"2,"))
    lake.push(GOOD.replace(b"2026", b"2021"), partition=1)
    run(lake.table(columns={"id": "int", "at": "timestamp"}, layout=kept))
    shown = json.loads(called("table", "show", "t")[1])
    wanted = {
        "key": ["id"], "time": "at", "partition_by": ["day(at)"], "keep_days": 10_000.0,
        "delete_when": "id < 0", "rows": 2, "rows_late": 2, "rows_superseded": 1,
        "rows_expired": 0, "partitions": 2, "files": 2,
    }  # fmt: skip
    assert shown.items() >= wanted.items()


def test_a_view_is_shown_with_its_sql_and_its_files(lake: Lake, tmp_path: Path) -> None:
    view = '[[view]]\nof = "t"\ndir = "v"\nslot = ["id"]\n'
    sql = "select id, count(*) as n from t group by 1"
    (tmp_path / "node.toml").write_text(f'{SINK}{TABLE}{view}sql = "{sql}"\n')
    assert json.loads(called("table", "show", "v")[1])["state"] == "not made yet"
    lake.push(GOOD, GOOD)
    run(lake.table(columns={"id": "int", "at": "timestamp"}))
    made = View(name="v", sql=sql, slot=("id",), dir=str(tmp_path / "v"))
    assert ViewQuery(made, TypedSource("t", str(tmp_path / "t"))).step()
    shown = json.loads(called("table", "show", "v")[1])
    assert (shown["sql"], shown["of"], shown["slot"]) == (sql, "t", ["id"])
    assert (shown["rows"], shown["files"], shown["columns"]["n"]) == (1, 1, "int64")
    assert shown["bytes"] > 0
    assert shown["last_commit"].startswith("20")


def test_rejects_are_retried_after_the_schema_was_mended(lake: Lake) -> None:
    lake.push(GOOD, BAD)
    run(lake.table(columns={"id": "int", "at": "timestamp"}))
    assert called("table", "retry", "t")[2] == "t: 0 rejects fit now, 1 do not\n"
    (lake.directory / "node.toml").write_text(SINK + TABLE.replace('"t"', '"v"'))
    run(lake.table("v", columns={"id": "string", "at": "timestamp"}))
    # The job with the mended schema has not been started: the verb makes the change.
    wider = TABLE.replace('"t"', '"v"').replace('id = "int"', 'id = "json"')
    (lake.directory / "node.toml").write_text(SINK + wider)
    code, _, err = called("table", "retry", "v")
    assert (code, err) == (0, "v: 1 rejects fit now, 0 do not\n")
    assert lake.places("v") == [0, 1]


def test_what_is_inferred_can_be_put_into_the_file(lake: Lake) -> None:
    lake.push(GOOD, b'{"id":2,"at":"2026-01-01T12:00:00Z","temp":1.5}', stream="s/1")
    before = (lake.directory / "node.toml").read_text()
    code, out, err = called("table", "infer", "s/*")
    assert 'dir = "data/tables/s"' in out
    assert (code, err) == (0, "made of 2 entries: look it over before you put it into node.toml\n")
    (table,) = tomllib.loads(out)["table"]
    assert (table["columns"], table["streams"]) == (COLUMNS, ["s/*"])
    assert (lake.directory / "node.toml").read_text() == before
    (lake.directory / "node.toml").write_text(SINK + out)
    assert called("config", "check", "-c", "node.toml")[0] == 0
    assert tomllib.loads(called("table", "infer", table["dir"].split("/")[-1])[1])


def test_a_damaged_table_is_told_with_its_file_and_what_helps(lake: Lake) -> None:
    lake.push(GOOD, BAD)
    lake.push(GOOD)
    run(lake.table(columns={"id": "int", "at": "timestamp"}))
    assert called("sink", "verify")[::2] == (0, "3 tables, nothing wrong\n")
    (file, *_) = (lake.directory / "t").glob("*.parquet")
    content = file.read_bytes()
    file.unlink()
    code, _, err = called("sink", "verify", "lake")
    assert (code, err.splitlines()[0]) == (
        1, f"{file}: the file is gone; put it back from a copy, or land the table anew",
    )  # fmt: skip
    file.write_bytes(content[:-10])
    assert "the file cannot be read" in called("sink", "verify")[2]
    file.write_bytes(content)
    log = lake.directory / "table" / "_delta_log" / f"{2:020}.json"
    whole = log.read_text()
    log.write_text('{"commitInfo":{"timest')
    code, _, err = called("sink", "verify")
    assert code == 1
    assert f"the log of {lake.bronze.table} is damaged: {log}, version 2: Unterminated" in err
    with pytest.raises(DeltaError) as failed:
        DeltaTable(lake.bronze.table)
    text, _ = explain_end(failed.value, [str(lake.bronze.table)])
    assert text.startswith(f"the log of {lake.bronze.table} is damaged: {log}, version 2")
    log.write_text(whole)
    assert called("sink", "verify")[0] == 0


@pytest.mark.parametrize(("argv", "why"), [
    (("show", "x"), "no typed table is named 'x'; there is t"),
    (("retry", "x"), "no typed table is named 'x'; there is t"),
    (("infer", "none"), "none of 0 entries of none that sink lake has landed is a JSON object"),
])  # fmt: skip
def test_what_is_not_there_is_told(lake: Lake, argv: tuple[str, ...], why: str) -> None:
    code, _, err = called("table", *argv)
    assert code != 0
    assert why in err


def test_a_table_for_each_stream_needs_to_know_which(lake: Lake) -> None:
    (lake.directory / "node.toml").write_text(SINK + TABLE.replace('"t"', '"lake/{stream}"'))
    assert "name one with --stream" in called("table", "show", "lake")[2]
    shown = json.loads(called("table", "show", "lake", "--stream", "s/1")[1])
    assert Path(shown["dir"]).parent == lake.directory / "lake"


class TrimmingClient(FakeClient):
    """A node whose streams begin where they were trimmed."""

    first = 0

    async def describe(self, name: str) -> StreamInfo:
        info = await super().describe(name)
        (partition,) = info.partitions
        return replace(info, partitions=[replace(partition, first_index=self.first)])

    async def trim(self, name: str, *, partition: int = 0, before: int) -> int:
        self.first = await super().trim(name, partition=partition, before=before)
        return self.first


class Erasable:
    """A table with entries of two users, at a node that answers."""

    def __init__(self, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
        text = TABLE.replace('at = "timestamp"', 'user = "string"')
        text = text.replace('dir = "t"', 'dir = "u"')
        (lake.directory / "node.toml").write_text(NODE + SINK.partition("\n")[2] + text)
        entries = [self.entry(at, "u17" if at in (0, 1, 3) else "u1") for at in range(5)]
        lake.push(*entries, created_at=RECEIVED_AT)
        self.table = lake.config("u", columns={"id": "int", "user": "string"})
        run(lake.table("u", columns={"id": "int", "user": "string"}))
        self.fake = TrimmingClient()
        self.fake.add("s", entries)
        monkeypatch.setattr("rillnode.node.client.connect", self.fake.connect)
        self.lake = lake

    @staticmethod
    def entry(number: int, user: str) -> bytes:
        return json.dumps({"id": number, "user": user}).encode()


NODE = 'name = "a"\n[noise]\nlisten = "127.0.0.1:4100"\n'
WHERE = ("--where", "user = 'u17'")


def test_entries_are_counted_first_and_erased_where_people_say_yes(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Erasable(lake, monkeypatch)
    code, out, err = called("table", "erase", "u", *WHERE)
    told = json.loads(out)
    assert (code, told["entries"], set(told["rows"].values())) == (2, 3, {3, 0})
    assert "3 entries would be gone for ever: repeat with --yes [usage.yes]" in err
    assert len(lake.rows("u")) == 5
    code, out, err = called("table", "erase", "u", *WHERE, "--yes")
    assert (code, json.loads(out)["erasure"]) == (0, 1)
    assert lake.places("u") == [2, 4]
    place = lake.directory / "u"
    assert f"{place}: 3 rows erased" in err
    assert f"{place}: 1 old files hold what was erased, or may, until the table's" in err
    assert "the log of s/0 still has 3 of the entries, until 2023-11-14T22:14Z" in err
    assert site.fake.first == 0


def test_nothing_is_erased_where_the_options_name_another_node(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Erasable(lake, monkeypatch)
    another = ("--node", "noise://127.0.0.1:2", "--node-identity", "ab" * 32)
    code, out, err = called("table", "erase", "u", *WHERE, *another, "--yes")
    assert (code, out) == (2, "")
    assert "noise://127.0.0.1:2 is another node than that of" in err
    assert len(lake.rows("u")) == 5
    assert site.fake.first == 0


def test_what_still_holds_erased_bytes_is_listed_and_removed_now(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Erasable(lake, monkeypatch)
    called("table", "erase", "u", *WHERE, "--yes")
    shown = json.loads(called("table", "erasures", "u")[1])
    (one,) = shown["erasures"]
    assert (one["predicate"], one["entries"]) == (WHERE[1], 3)
    assert {table["state"] for table in shown["tables"]} == {"erased"}
    assert all(table["old_files"] == 1 and table["until"] for table in shown["tables"])
    assert shown["streams"] == [
        {"stream": "s", "partition": 0, "entries": 3, "until": "2023-11-14T22:14:20.123000Z"}
    ]
    run(lake.table("u", columns={"id": "int", "user": "string"}))
    code, _, err = called("table", "erase", "u", "--resume", "--now")
    assert code == 0
    assert "readers of older versions of these tables fail from here on" in err
    assert "2 old files removed" in err
    # Entry 2 was not erased, and is before the third of these.
    assert site.fake.first == 2
    assert "the log of s/0 still has 1 of the entries" in err
    shown = json.loads(called("table", "erasures", "u")[1])
    assert [table["old_files"] for table in shown["tables"]] == [0, 0]


def test_an_erasure_needs_no_node_and_says_what_it_cannot(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    Erasable(lake, monkeypatch)
    monkeypatch.undo()
    monkeypatch.chdir(lake.directory)
    code, _, err = called("table", "erase", "u", *WHERE, "--yes")
    assert code == 0
    assert lake.places("u") == [2, 4]
    assert "its log has the entries of s as long as the streams' retention keeps them" in err


def test_what_cannot_be_erased_is_one_clear_error(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    Erasable(lake, monkeypatch)
    cases: tuple[tuple[tuple[str, ...], str], ...] = (
        ((), "give --where SQL, or --resume to finish what was begun [table.where]"),
        ((*WHERE, "--resume"), "give --where SQL, or --resume"),
        (("--where", "wind > 1"), 'Referenced column "wind" not found in FROM clause'),
        (("--where", "id >"), "syntax error"),
        (("--where", "count(*) > 1"), "WHERE clause cannot contain aggregates"),
    )
    for argv, why in cases:
        code, _, err = called("table", "erase", "u", *argv)
        assert (code, why in err) == (2, True), (argv, err)
        assert len(lake.rows("u")) == 5


def test_nothing_to_erase_writes_nothing(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    Erasable(lake, monkeypatch)
    code, out, _ = called("table", "erase", "u", "--where", "user = 'nobody'", "--yes")
    assert (code, json.loads(out)["entries"]) == (0, 0)
    assert not (lake.directory / "table_erasures").exists()
    assert json.loads(called("table", "erasures", "u")[1])["erasures"] == []
