"""`rillnode sink` and `rillnode pipeline report`: what needs no Java."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from fake_client import FakeClient, Screen
from pipeline_samples import Query, rows
from rillnode.actors.spark.sink_job import DERIVED_TABLES, SinkStatus
from rillnode.codecs.keys import Identity
from rillnode.node.cli import main
from rillnode.node.keys.files import write_key
from rillnode.node.spark.maintenance import live_files
from rillnode.node.spark.tables import MINUTES
from rillnode.node.spark.upsert import upsert

SINK = '[[sink.spark]]\nname = "{name}"\nstreams = ["*"]\ntable_dir = "{name}/table"\n'


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    fake = FakeClient()
    monkeypatch.setattr("rillnode.node.client.connect", fake.connect)
    fake.sinks["bronze"] = status().document()
    return fake


def status(**changes: Any) -> SinkStatus:
    """How a sink is whose job runs."""
    status = SinkStatus(
        tables=("bronze", *DERIVED_TABLES),
        state="running",
        pid=7,
        starts=2,
        rows_behind=12,
        bytes_behind=3_000,
        report={"rows": 5},
    )
    return replace(status, **changes)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An initialised node's directory, which is the working directory."""
    configure(tmp_path, SINK.format(name="bronze"))
    for at, name in enumerate(("identity", "admin"), start=1):
        write_key(tmp_path / "data" / f"{name}.key", Identity.from_seed(bytes([at]) * 32))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def configure(home: Path, *sinks: str) -> None:
    (home / "node.toml").write_text('name = "a"\n' + "".join(sinks))


def run(*argv: str) -> tuple[int, str, str]:
    screen = Screen()
    code = main(argv, screen.terminal)
    return code, screen.out, screen.err


def test_sinks_are_listed_and_shown(client: FakeClient) -> None:
    code, out, _ = run("sink", "ls")
    assert (code, json.loads(out)) == (
        0,
        {
            "name": "bronze", "kind": "spark", "state": "running", "pid": 7, "starts": 2,
            "failures": 0, "rows_behind": 12, "bytes_behind": 3_000, "error": "",
        },
    )  # fmt: skip
    code, out, _ = run("sink", "show", "bronze")
    assert (code, json.loads(out)["report"]) == (0, {"rows": 5})
    assert run("sink", "show", "silver")[0] == 1


def test_a_parked_sink_tells_why_and_how_to_go_on(client: FakeClient) -> None:
    parked = status(state="parked", last_exit=2, last_error="no Java")
    client.sinks["bronze"] = parked.document()
    (sink,) = [json.loads(line) for line in run("sink", "ls")[1].splitlines()]
    assert (sink["state"], sink["error"]) == ("parked", "no Java")
    code, out, err = run("sink", "show", "bronze")
    assert (code, json.loads(out)["last_error"]) == (0, "no Java")
    assert "rillnode sink resume bronze" in err


def test_a_sink_that_does_not_keep_a_table_tells_which_and_what_helps(client: FakeClient) -> None:
    silver = {"state": "failed", "failures": 3, "error": "rows were rewritten: do this"}
    report = {"state": "waiting", "silver": silver, "gold/minutes": {"state": "running"}}
    client.sinks["bronze"] = status(report=report).document()
    (sink,) = [json.loads(line) for line in run("sink", "ls")[1].splitlines()]
    assert (sink["state"], sink["error"]) == (
        "failed",
        "silver failed: rows were rewritten: do this",
    )
    code, out, err = run("sink", "show", "bronze")
    assert (code, json.loads(out)["tables"]["silver"]["state"]) == (0, "failed")
    assert err.startswith("bronze does not keep silver; its other tables go on.")


def test_a_sink_is_paused_and_resumed(client: FakeClient) -> None:
    code, _, err = run("sink", "pause", "bronze")
    assert (code, err) == (0, "bronze: its job ends after the running batch\n")
    assert client.sinks["bronze"]["state"] == "paused"
    assert run("sink", "resume", "bronze")[0] == 0
    assert client.sinks["bronze"]["state"] == "running"
    assert run("sink", "pause", "silver")[0] == 1


def test_small_files_are_merged_on_request(home: Path) -> None:
    query = Query(home / "bronze")
    for batch in range(3):
        query.run(batch, rows(batch, 1))
    code, out, err = run("sink", "compact")
    assert (code, out) == (0, "")
    assert "merged 3 files of the table into 1" in err
    assert len(live_files(DeltaTable(query.table))) == 1
    assert query.indexes() == [0, 1, 2]
    assert run("sink", "compact") == (0, "", "")


@pytest.mark.parametrize(
    ("sinks", "argv", "error"),
    [
        ([], ["sink", "compact"], "has neither a [[sink.spark]] nor a [[sink.python]]"),
        (["x", "y"], ["sink", "compact"], "name one of the sinks: x, y"),
        (["x", "y"], ["sink", "compact", "z"], "no sink is named 'z'; there is: x, y"),
        (["x"], ["pipeline", "report"], "sink x has no silver_dir"),
        (["python"], ["pipeline", "report"], "sink python is a [[sink.python]]: silver and gold"),
        (["x"], ["pipeline", "run", "--once"], "sink x has no silver_dir"),
        (["x"], ["pipeline", "replay"], "sink x has no silver_dir"),
    ],
)
def test_what_is_not_configured_is_refused(
    home: Path, sinks: list[str], argv: list[str], error: str
) -> None:
    kinds = {"python": SINK.replace("sink.spark", "sink.python")}
    configure(home, *(kinds.get(name, SINK).format(name=name) for name in sinks))
    code, out, err = run(*argv)
    assert (code, out) == (2, "")
    assert error in err


def test_a_report_without_gold_is_refused(home: Path) -> None:
    configure(home, SINK.format(name="x") + 'silver_dir = "silver"\n')
    code, _, err = run("pipeline", "report")
    assert code == 2
    assert "has no gold_dir" in err


def test_a_report_is_printed_and_written(home: Path) -> None:
    configure(home, SINK.format(name="x") + 'silver_dir = "silver"\ngold_dir = "gold"\n')
    minute = datetime.now(UTC).replace(second=0, microsecond=0)
    counts = {column.name: 0 for column in MINUTES.schema if column.type == pa.int64()}
    row = {**counts, "stream": "sensors", "minute": minute, "messages": 7}
    batch = pa.RecordBatch.from_pylist([row], schema=MINUTES.schema)
    upsert(str(home / "gold" / "minutes"), MINUTES.slot, pa.Table.from_batches([batch]))
    code, out, err = run("pipeline", "report", "--html", "report.html")
    assert (code, err) == (0, "written: report.html\n")
    document = json.loads(out)
    assert document["totals"]["messages"] == 7
    assert [stream["stream"] for stream in document["streams"]] == ["sensors"]
    page = (home / "report.html").read_text(encoding="utf-8")
    assert "sensors" in page
    assert page.count("<svg") == 3
