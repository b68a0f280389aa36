"""The flights: their slice, and the notebook over tables that the example has made."""

import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import nbformat
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from nbclient import NotebookClient

from doc_support import ROOT
from flights_slice import AFTER, FIRST, SCHEMA, cut

EXAMPLES = ROOT / "examples"
SLICE = EXAMPLES / "data" / "flights-slice.parquet"
NOTEBOOK = EXAMPLES / "flights.ipynb"
FLIGHTS = 6_000
RUN_SECONDS_MAX = 900


def cells(kind: str) -> list[dict[str, Any]]:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == kind]


def test_the_slice_is_a_week_in_order_of_departure() -> None:
    flights = pq.read_table(str(SLICE))
    assert flights.schema.equals(SCHEMA)
    assert SLICE.stat().st_size <= 2_000_000
    dates = flights.column("date").to_pylist()
    assert dates == sorted(dates)
    assert {date.date() for date in dates} == {
        datetime(2001, 2, day).date() for day in range(12, 19)
    }


def test_a_slice_of_the_slice_is_the_slice() -> None:
    flights = pq.read_table(str(SLICE))
    assert cut(flights).num_rows == flights.num_rows > 100_000


def test_a_slice_has_its_first_day_and_not_the_day_after_its_last() -> None:
    dates = [datetime(2001, 2, 11, 23, 59), FIRST, datetime(2001, 2, 18, 23, 59), AFTER]
    rows = [
        {"date": date, "delay": 1, "distance": 2, "origin": "ATL", "destination": "SAV"}
        for date in dates
    ]
    table = pa.Table.from_batches([pa.RecordBatch.from_pylist(rows, schema=SCHEMA)])
    assert [row["date"] for row in cut(table).to_pylist()] == dates[1:3]


def test_the_notebook_shows_its_plots_and_no_errors() -> None:
    assert NOTEBOOK.stat().st_size < 300_000
    outputs = [output for cell in cells("code") for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} <= {
        "stream", "display_data", "execute_result",
    }  # fmt: skip
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 3
    assert not any(output.get("name") == "stderr" for output in outputs)


@pytest.mark.long
@pytest.mark.spark
def test_the_notebook_answers_from_tables_that_the_example_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, out = tmp_path / "flights.parquet", tmp_path / "out"
    pq.write_table(pq.read_table(str(SLICE)).slice(0, FLIGHTS), str(data))
    done = subprocess.run(
        [sys.executable, EXAMPLES / "flights.py", "--data", data, "--out", out],
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == f"{FLIGHTS:,} flights are in {out / 'tables'}"

    monkeypatch.setenv("FLIGHTS_OUT", str(out))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = NotebookClient(
        notebook, timeout=RUN_SECONDS_MAX, resources={"metadata": {"path": str(EXAMPLES)}}
    )
    client.execute()
    results = [
        cast("str", output["data"]["text/plain"])
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if output["output_type"] == "execute_result"
    ]
    titles, values = results[-1].splitlines()
    counted = dict(zip(titles.split(), values.split()[1:], strict=True))
    assert counted["events"] == str(FLIGHTS)
    assert [counted[name] for name in ("missing", "repeated", "malformed")] == ["0", "0", "0"]
