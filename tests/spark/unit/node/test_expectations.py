"""What is expected of the rows of a typed table: counted or rejected, once whatever is killed."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from rillnode.codecs.errors import ConfigError
from rillnode.node.config import load_config
from rillnode.node.spark.sinks import samples
from rillnode.node.spark.table_config import TypedTable
from rillnode.node.spark.typed.describing import describe
from rillnode.node.spark.typed.layout import Expectation, read_expectation
from rillnode.node.spark.typed.tables import TypedTables
from rillnode.node.spark.typed.work import in_process
from typed_samples import Lake, die_after, run

COLUMNS = {"id": "int", "at": "timestamp", "temp": "float?", "pos?": {"lat": "float"}}
SANE = Expectation(name="sane", sql="temp between -80 and 80")
KNOWN = Expectation(name="known", sql="id > 0", action="reject")
NODE = """
name = "n"
[[sink.spark]]
name = "lake"
streams = ["*"]
table_dir = "bronze"
[[table]]
streams = ["*"]
dir = "t"
columns = { id = "int", at = "timestamp", temp = "float?", "pos?" = { lat = "float" } }
"""
MINUTE = 60_000


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def entry(number: int, temp: float | None = None) -> bytes:
    return json.dumps({"id": number, "at": "2026-01-01T12:00:00Z", "temp": temp}).encode()


def expecting(lake: Lake, *expect: Expectation, **keys: Any) -> Any:
    return lake.table(columns=COLUMNS, expect=expect, **keys)


def test_rows_that_are_not_as_expected_are_counted_or_rejected(lake: Lake) -> None:
    lake.push(entry(1, 20.0), entry(2, 900.0), entry(0), entry(-1, 900.0), entry(5))
    query = expecting(lake, SANE, KNOWN)
    run(query)
    assert [row["id"] for row in lake.rows()] == [1, 2, 5]  # a null meets what is expected
    rejects = lake.rows("t_rejects")
    assert [(row["_index"], row["data"]) for row in rejects] == [
        (2, entry(0)), (3, entry(-1, 900.0)),
    ]  # fmt: skip
    assert {row["reason"] for row in rejects} == {"expectation known is not met: id > 0"}
    # Of a row that is rejected only that is counted: the others are those of the tables.
    assert query.figures()["unexpected"] == {"sane": 1, "known": 2}


def test_they_are_counted_per_minute(lake: Lake) -> None:
    time = 1_700_000_000_000 // MINUTE * MINUTE
    for minute, temps in enumerate(((900.0, 900.0), (1.0,), (-900.0,))):
        entries = [entry(1, one) for one in temps]
        lake.push(*entries, received_at=time + minute * MINUTE + 30_000)
    query = expecting(lake, SANE)
    run(query)
    lake.push(entry(1, 900.0), received_at=time + 10_000)
    run(query)
    shown = describe(lake.config(columns=COLUMNS, expect=(SANE,)))
    assert shown["unexpected"] == {"sane": 4}
    assert shown["unexpected_minutes"] == {
        "sane": {"2023-11-14T22:13Z": 3, "2023-11-14T22:15Z": 1},
    }


@pytest.mark.parametrize("commits", range(4))
def test_a_kill_counts_nothing_twice(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    lake.push(entry(1, 900.0), entry(0))
    lake.push(entry(1, 900.0), entry(0), entry(2))
    die_after(monkeypatch, commits)
    with pytest.raises(KeyboardInterrupt):
        run(expecting(lake, SANE, KNOWN, batch_rows_max=2))
    monkeypatch.undo()
    query = expecting(lake, SANE, KNOWN, batch_rows_max=2)
    lake.push(entry(3))
    run(query)
    assert query.figures()["unexpected"] == {"sane": 2, "known": 2}
    shown = describe(lake.config(columns=COLUMNS, expect=(SANE, KNOWN)))["unexpected_minutes"]
    assert {name: sum(one.values()) for name, one in shown.items()} == {"sane": 2, "known": 2}


def test_rejects_are_landed_once_the_expectation_is_mended(lake: Lake) -> None:
    lake.push(entry(0, 900.0), entry(-7), entry(1))
    run(expecting(lake, SANE, KNOWN))
    mended = Expectation(name="known", sql="id > -5", action="reject")
    query = expecting(lake, SANE, mended)
    assert query.retry() == (1, 1)
    assert lake.places() == [0, 2]
    assert query.figures()["unexpected"] == {"sane": 1, "known": 2}
    assert query.retry() == (0, 1)
    assert query.figures()["unexpected"] == {"sane": 1, "known": 2}


def test_a_predicate_that_fails_is_not_met_and_stops_nothing(lake: Lake) -> None:
    unmet = {
        "10 / id > 1 or id // id = 1": 0,
        "10 % id = 0": 1,  # for a number of 0 it is null, and null is met
        "(id || 'x')::int > 0": 2,
        "case when id = 1 then true else 'x'::bool end": 1,
        "null": 0,
        "pos.lat > 1": 0,
        "at > '2025-01-01' and date_part('year', at) = 2026": 0,
        "ID = 1 -- in any case": 1,
        "_stream = 's' and _index >= 0": 0,
    }
    lake.push(entry(1, 2.0), entry(3, 2.0))
    expected = (Expectation(name=f"e{at}", sql=sql) for at, sql in enumerate(unmet))
    query = expecting(lake, *expected)
    run(query)
    assert len(lake.rows()) == 2
    found = query.figures()["unexpected"]
    assert dict(zip(unmet, found.values(), strict=True)) == unmet


PROBLEMS: list[tuple[str, str]] = [
    ('{ sane = "temp >" }', "table[0].expect.sane: expectation 'sane': Parser Error: syntax error"),
    ('{ sane = "wind > 1" }', 'Referenced column "wind" not found'),
    ('{ sane = "wind > 1" }', "the columns are _stream, _partition, _index"),
    ('{ sane = "wind > 1" }', "Mend its SQL, a condition on the table's columns"),
    ('{ sane = "temp" }', "it is a DOUBLE, and a condition is true or false"),
    ('{ sane = "avg(temp) > 1" }', "WHERE clause cannot contain aggregates"),
    ('{ sane = "row_number() over () > 1" }', "WHERE clause cannot contain window functions"),
    ('{ sane = "random() > 0.5" }', "volatile"),
    ('{ sane = "temp > 1) or (1 = 1" }', "syntax error"),
    ('{ sane = "true; drop table rows" }', "expression list"),
    ("{ sane = \"exists(select 1 from read_text('/etc/hostname'))\" }", "Permission Error"),
    ('{ sane = "" }', "table[0].expect.sane"),
    ('{ sane = "temp > ?" }', "not provided"),
    ('{ sane = 3 }', "expected SQL, or a table with sql and action, not 3"),
    ('{ sane = { action = "reject" } }', "missing required field sql"),
    ('{ sane = { sql = "temp > 1", action = "drop" } }', "Invalid enum value 'drop'"),
    ('{ sane = { sql = "temp > 1", on = "x" } }', "unknown field on"),
    ('{ "a b" = "temp > 1" }', "a name begins with a letter"),
    ("{ " + ", ".join(f'e{at} = "temp > 1"' for at in range(101)) + " }", "101 are more than"),
    ('{ sane = "' + "temp > 1 or " * 1_000 + 'temp > 1" }', "and 10000 is the most"),
]  # fmt: skip


@pytest.mark.parametrize(("expect", "why"), PROBLEMS)
def test_what_cannot_be_expected_is_one_clear_error(expect: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text(f"{NODE}expect = {expect}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "node.toml")
    assert why in str(caught.value)
    assert "node.toml" in str(caught.value)


def test_expectations_are_those_of_the_file(tmp_path: Path) -> None:
    text = '{ sane = "temp between -80 and 80", known = { sql = "id > 0", action = "reject" } }'
    (tmp_path / "node.toml").write_text(f"{NODE}expect = {text}\n")
    table = load_config(tmp_path / "node.toml").each(TypedTable)[0]
    assert table.expectations == (SANE, KNOWN)
    assert read_expectation("sane", {"sql": SANE.sql, "action": "warn"}) == SANE


def test_an_expectation_of_a_class_that_cannot_be_is_told_by_the_job(lake: Lake) -> None:
    lake.push(entry(1))
    query = expecting(lake, Expectation(name="e", sql="wind > 1"))
    with pytest.raises(ConfigError, match=r"expectation 'e': Binder Error: .*wind"):
        query.step()
    # It waits: once that is mended nothing is lost.
    run(expecting(lake, SANE))
    assert lake.places() == [0]


def test_the_job_and_the_metrics_tell_of_them(lake: Lake) -> None:
    lake.push(entry(1, 900.0), entry(0))
    config = lake.config(columns=COLUMNS, expect=(SANE, KNOWN))
    tables = TypedTables([config], str(lake.bronze.table), in_process)
    tables.start()
    deadline = time.monotonic() + 60
    while not (report := tables.report())["table/t"]["rows"]:
        assert time.monotonic() < deadline, report
        time.sleep(0.05)
    tables.finish(deadline)
    assert report["table/t"]["unexpected"] == {"sane": 1, "known": 1}
    status: dict[str, Any] = {
        "state": "running", "rows_behind": 0, "starts": 1, "failures": 0,
        "tables": {"table/t": {"state": "running"}, "table/u": {"state": "running"}},
        "report": {**report, "table/u": {"unexpected": ["what a job likes"]}},
    }  # fmt: skip
    told = samples({"lake": status})["rillnode_spark_table_unexpected_rows"]
    assert list(told) == [(("sane", "lake", "table/t"), 1), (("known", "lake", "table/t"), 1)]
    assert DeltaTable(str(lake.directory / "t")).count() == 1
