"""The dashboard and the alert rules ask for metrics that there are, and the reference tells all."""

import asyncio
import json
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
from prometheus_client import generate_latest
from prometheus_client.registry import Collector

from link_support import ManualClock
from rillnode.actors.core.router import Router
from rillnode.actors.engine.system import AsyncioSystemBase
from rillnode.actors.log import NO_ENTRIES, StreamRecord
from rillnode.actors.log.memory import MemoryLogStore
from rillnode.actors.spark.sink_job import DERIVED_TABLES, SinkStatus
from rillnode.node import metrics
from rillnode.node.config import Config, Location
from rillnode.node.http.streams import Listed
from rillnode.node.metrics import NodeMetrics, every_metric
from rillnode.node.observation import Observation
from rillnode.node.runtime import Node
from rillnode.node.spark.config import SinkTables, SparkSink
from rillnode.node.spark.sinks import Sinks, table_names
from rillnode.node.testing.contract.engines.parts import Probe

ROOT: Final = Path(__file__).parents[4]
DASHBOARD: Final = ROOT / "configs" / "grafana-dashboard.json"
RULES: Final = ROOT / "configs" / "prometheus-rules.yml"
PROCESS: Final = {
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "process_open_fds",
    "process_max_fds",
}

KNOWN: Final = {one.name: set(one.labels) for one in every_metric()} | {
    f"{one.name}_{part}": {*one.labels, "le"}
    for one in every_metric()
    if one.kind == "histogram"
    for part in ("bucket", "count", "sum")
}


def expressions() -> list[str]:
    panels: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    found = [target["expr"] for panel in panels for target in panel["targets"]]
    # An expression stands in one line, or folded in those below that are indented more.
    rules = re.findall(r"expr: (?:>-\n)?(.*?)\n +(?:for|labels):", RULES.read_text(), re.DOTALL)
    assert len(rules) == RULES.read_text().count("- alert:")
    return found + rules


@pytest.mark.parametrize("expression", expressions())
def test_every_metric_and_label_exists(expression: str) -> None:
    names = set(re.findall(r"\b(?:rillnode|process)_[a-z_]+", expression))
    assert names or expression.startswith("up{")
    assert names <= KNOWN.keys() | PROCESS
    labels = {"instance", "job"}.union(*(KNOWN.get(name, set()) for name in names))
    for group in re.findall(r"by \(([a-z, ]+)\)", expression):
        assert set(group.split(", ")) <= labels
    for matchers in re.findall(r"\{([^}]*)\}", expression):
        assert set(re.findall(r"([a-z]+)=", matchers)) <= labels


def test_legends_and_annotations_name_labels_that_exist() -> None:
    labels = set[str]().union(*KNOWN.values()) | {"instance", "job"}
    panels: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    for panel in panels:
        for target in panel["targets"]:
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= labels
    assert set(re.findall(r"\$labels\.(\w+)", RULES.read_text())) <= labels


def a_sink(name: str = "lake") -> SparkSink:
    return SparkSink(
        name=name,
        streams=("*",),
        table_dir=Location("t"),
        silver_dir=Location("s"),
        gold_dir=Location("g"),
    )


def statuses_of(observed: Observation) -> dict[str, SinkStatus]:
    sinks = observed.plug_in(Sinks)
    assert sinks is not None
    return sinks._statuses  # pyright: ignore[reportPrivateUsage]


def test_sinks_are_told_of_as_their_jobs_report(tmp_path: Path) -> None:
    reports: dict[str, dict[str, Any]] = {
        "busy": {"batch": 7, "state": "running", "rows": 40, "seconds": 0.5},
        "idle": {"batch": 8, "state": "waiting"},
        "new": {},
        "odd": {"batch": "many", "state": "running", "rows": None, "silver": 5},
    }
    behind = {"state": "running", "versions_behind": 2, "rows_behind": 30, "seconds_behind": 4}
    reports["busy"] |= {"silver": behind, "gold/chains": {"rows_behind": "?"}, "own": behind}
    node = Node(Config(name="a", data_dir=tmp_path, tables=[SinkTables(spark=(a_sink(),))]))
    observed = node.observed
    statuses = statuses_of(observed)
    for name, report in reports.items():
        statuses[name] = SinkStatus(rows_behind=3, report=report)

    async def text() -> str:
        system = AsyncioSystemBase()
        store = MemoryLogStore(complete=lambda _: None, on_health=lambda _: None)
        observed.begin(system, Router(system), store)
        return (await NodeMetrics(observed).text(None)).decode()

    lines = asyncio.run(text()).splitlines()
    expected: dict[str, dict[str, float]] = {
        "rillnode_spark_batches_total": {"busy": 8, "idle": 8},
        "rillnode_spark_batch_rows": {"busy": 40},
        "rillnode_spark_batch_seconds": {"busy": 0.5},
        "rillnode_spark_rows_behind": dict.fromkeys(reports, 3),
    }
    for metric, values in expected.items():
        told = [line for line in lines if line.startswith(metric + "{")]
        assert told == [f'{metric}{{sink="{name}"}} {float(n)}' for name, n in values.items()]
    of_tables = [line for line in lines if line.startswith("rillnode_spark_table_")]
    assert of_tables == [
        'rillnode_spark_table_rows_behind{sink="busy",table="silver"} 30.0',
        'rillnode_spark_table_seconds_behind{sink="busy",table="silver"} 4.0',
        'rillnode_spark_table_state{sink="busy",state="running",table="silver"} 0.0',
        'rillnode_spark_table_state{sink="busy",state="failed",table="silver"} 0.0',
        'rillnode_spark_table_state{sink="busy",state="waiting",table="silver"} 0.0',
        'rillnode_spark_table_state{sink="busy",state="starting",table="silver"} 1.0',
    ]
    assert 'rillnode_spark_state{sink="new",state="starting"} 1.0' in lines


def test_a_table_that_is_not_kept_is_seen_wherever_a_sink_is(tmp_path: Path) -> None:
    """In the state of the sink, in readiness, and in metrics that do not go away."""
    sink = a_sink()
    node = Node(Config(name="a", data_dir=tmp_path, tables=[SinkTables(spark=(sink,))]))
    observed = node.observed
    tables = table_names(sink)
    assert tables == ("bronze", *DERIVED_TABLES)
    status = SinkStatus(tables=tables, state="running", pid=7)
    statuses_of(observed)["lake"] = status
    behind = {"rows_behind": 30, "seconds_behind": 400}
    parts: dict[str, dict[str, Any]] = {name: {"state": "running"} for name in DERIVED_TABLES}

    async def look() -> tuple[Any, list[str], dict[tuple[str, str], float]]:
        system = AsyncioSystemBase()
        store = MemoryLogStore(complete=lambda _: None, on_health=lambda _: None)
        observed.begin(system, Router(system), store)
        told = re.findall(
            r'^rillnode_spark_table_state\{sink="lake",state="(.*)",table="(.*)"\} (.*)$',
            (await NodeMetrics(observed).text(None)).decode(),
            re.MULTILINE,
        )
        unready = [
            one.reason for one in observed.checks() if one.name == "sink lake" and not one.ok
        ]
        series = {(table, state): float(value) for state, table, value in told}
        return observed.status()["sinks"]["lake"], unready, series

    def now() -> tuple[Any, list[str], dict[tuple[str, str], float]]:
        return asyncio.run(look())

    shown, unready, series = now()
    assert (shown["state"], unready) == ("running", [])
    assert {table for (table, state), one in series.items() if (state, one) == ("starting", 1)} == {
        *DERIVED_TABLES
    }
    status.report = {"batch": 1, "state": "waiting", **parts}
    shown, unready, series = now()
    assert (shown["state"], unready) == ("running", [])
    assert all(value == (state == "running") for (_, state), value in series.items())
    gone = {"state": "waiting", "error": "the disk is full"}
    status.report = {**status.report, "gold/lag": gone}
    shown, unready, series = now()
    assert (shown["state"], shown["error"]) == ("waiting", "gold/lag waiting: the disk is full")
    status.report = {**status.report, "silver": {"state": "failed", "error": "do this", **behind}}
    shown, unready, series = now()
    assert shown["state"] == "failed"
    assert shown["error"] == "silver failed: do this; gold/lag waiting: the disk is full"
    assert shown["tables"]["bronze"] == {"state": "running", "error": ""}
    assert len(unready) == 1
    assert unready[0].startswith(shown["error"])
    assert series["silver", "failed"] == series["gold/lag", "waiting"] == 1
    assert series["silver", "running"] == series["bronze", "failed"] == 0
    # While the job does not run, nobody keeps any of its tables.
    status.state, status.pid, status.last_exit, status.last_error = "parked", None, 1, "no Java"
    shown, unready, series = now()
    assert (shown["state"], shown["error"]) == ("parked", "no Java")
    assert {table for (table, state), one in series.items() if (state, one) == ("parked", 1)} == {
        *tables
    }
    assert unready[0].startswith("parked: no Java (code 1)")


def test_turns_of_actors_are_a_histogram(tmp_path: Path) -> None:
    clock = ManualClock()
    node = Node(Config(name="a", data_dir=tmp_path))

    def slow(*_: Any) -> None:
        clock.now += 0.06

    async def text() -> str:
        system = AsyncioSystemBase(clock=clock)
        store = MemoryLogStore(complete=lambda _: None, on_health=lambda _: None)
        node.observed.begin(system, Router(system), store)
        cell = system.spawn(Probe)
        await system.drain()
        system.post(cell, slow)
        await system.drain()
        return (await NodeMetrics(node.observed).text(None)).decode()

    told = dict(line.rsplit(" ", 1) for line in asyncio.run(text()).splitlines())

    def value(part: str, labels: str = "") -> str:
        return told[
            f'rillnode_actor_handle_seconds_{part}{{actor="{Probe.__module__}.Probe"{labels}}}'
        ]

    below = [value("bucket", f',le="{bound}"') for bound in (0.0001, 0.05, 0.1, 1.0, "+Inf")]
    assert below == ["1.0", "1.0", "2.0", "2.0", "2.0"]
    assert value("count") == "2.0"
    assert float(value("sum")) == pytest.approx(0.06)


def test_the_text_of_many_series_is_written_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    observed = Node(Config(name="a", data_dir=tmp_path)).observed
    count = 2 * metrics.SLICE_SAMPLES + 1
    streams = [
        (StreamRecord(name=f"s{number}", id=number), [NO_ENTRIES]) for number in range(count)
    ]
    listed = Listed(0.0, streams, False, [], {})
    written: list[int] = []

    def generated(family: Collector) -> bytes:
        written.append(sum(len(metric.samples) for metric in family.collect()))
        return generate_latest(family)

    monkeypatch.setattr(metrics, "generate_latest", generated)

    async def text() -> list[str]:
        system = AsyncioSystemBase()
        store = MemoryLogStore(complete=lambda _: None, on_health=lambda _: None)
        observed.begin(system, Router(system), store)
        found = (await NodeMetrics(observed).text(listed)).decode()
        return [line for line in found.splitlines() if "stream" in line]

    sliced = asyncio.run(text())
    assert max(written) == metrics.SLICE_SAMPLES
    monkeypatch.setattr(metrics, "SLICE_SAMPLES", 10 * count)
    assert asyncio.run(text()) == sliced
    assert f'rillnode_stream_bytes{{stream="s{count - 1}"}} 0.0' in sliced


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    ids: set[int] = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
        ids.add(panel["id"])
    assert len(ids) == len(json.loads(DASHBOARD.read_text())["panels"])


@pytest.mark.needs("promtool")
def test_promtool_takes_the_rules() -> None:
    done = subprocess.run(["promtool", "check", "rules", RULES], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
