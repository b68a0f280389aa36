"""The benchmarks' own promises: a peer that fails is left out, what has fallen is named."""

import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import asks, fanout, interpreter, workloads
from benchmarks.check import FALLEN, GONE, NEW, Compared, compare
from benchmarks.figures import Figures
from benchmarks.growth import PANELS, Point, draw
from benchmarks.instructions import Callgrind
from benchmarks.jobs import Endpoint
from benchmarks.servers import RILLNODE, SERVERS

RESULT = {
    "deliveries_per_second": 1.0,
    "client_cpu_us": 1.0,
    "asks_per_second": 1.0,
    "idle_bytes": 1.0,
}


class Load:
    """A load generator that says the same of each phase."""

    def __init__(self, job: object) -> None: ...

    def __enter__(self) -> "Load":
        return self

    def __exit__(self, *_: object) -> None: ...

    def phase(self) -> dict[str, float]:
        return dict(RESULT)


@contextmanager
def failing(directory: Path) -> Generator[Any]:
    raise RuntimeError("many lines\nit cannot start")
    yield


@contextmanager
def working(directory: Path) -> Generator[Any]:
    endpoint = Endpoint(kind="rillnode", port=1, pid=1)
    yield SimpleNamespace(
        endpoint=endpoint, data=directory, process=SimpleNamespace(rss_bytes=lambda: 0)
    )


def nothing(_: object) -> None: ...


def no_text(_: object) -> str:
    return ""


def is_found(_: object) -> bool:
    return True


def the_result(_: object) -> dict[str, float]:
    return dict(RESULT)


@contextmanager
def asked_here(directory: Path) -> Generator[dict[str, str]]:
    yield {}


@pytest.fixture
def settings(tmp_path: Path) -> workloads.Settings:
    return workloads.Settings(directory=tmp_path, quick=True, rounds=2, kills=0)


@pytest.fixture
def without_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rillnode works, and no peer does."""
    servers = {name: working if name == RILLNODE else failing for name in SERVERS}
    monkeypatch.setattr(workloads, "SERVERS", servers)
    monkeypatch.setattr(workloads, "LoadGenerator", Load)
    monkeypatch.setattr("time.sleep", nothing)
    sockets = {name: working if name == RILLNODE else failing for name in fanout.SERVERS}
    monkeypatch.setattr(fanout, "SERVERS", sockets)
    monkeypatch.setattr(fanout, "_missing", no_text)
    monkeypatch.setattr(fanout, "_recover", the_result)
    for module in (workloads, fanout):
        monkeypatch.setattr(module, "run", the_result)
    for module in (workloads, asks):
        monkeypatch.setattr(module, "missing", no_text)
    asking = {
        name: (where, system, asked_here if name.startswith(RILLNODE) else failing)
        for name, (where, system, _) in asks.SYSTEMS.items()
    }
    monkeypatch.setattr(asks, "SYSTEMS", asking)
    monkeypatch.setattr(asks, "find_spec", is_found)
    monkeypatch.setattr(asks, "_measured", measured)


def measured(run: Any) -> dict[str, float]:
    if not run.system.startswith((RILLNODE, "in process")):
        raise RuntimeError("it is gone")
    return dict(RESULT)


@pytest.mark.usefixtures("without_peers")
@pytest.mark.parametrize(
    "case",
    [
        workloads.push_confirm, workloads.replay, fanout.fan_out, workloads.many_streams,
        workloads.idle_links, workloads.work, asks.asks,
    ],
)  # fmt: skip
def test_no_peer_that_fails_ends_a_case(
    case: Callable[[workloads.Settings, Figures], None], settings: workloads.Settings
) -> None:
    figures = Figures()
    case(settings, figures)
    of_rillnode = [one for one in figures.documents() if one["system"].startswith(RILLNODE)]
    assert of_rillnode
    assert {one["system"] for one in figures.documents()} <= {
        *(one["system"] for one in of_rillnode), "bare coincurve",
    }  # fmt: skip
    assert len(figures.notes) >= 2
    assert len(set(figures.notes)) == len(figures.notes)
    assert all(note.startswith("without ") for note in figures.notes)


def test_what_fails_of_rillnode_itself_ends_the_run() -> None:
    for name in (RILLNODE, "rillnode served", "rillnode-embedded"):
        with pytest.raises(RuntimeError), Figures().trying(name):
            raise RuntimeError


def test_the_summary_holds_each_row_against_its_best_peer() -> None:
    figures = Figures()
    for system, rate, latency in (
        (RILLNODE, 100.0, 2.0), ("slow", 50.0, 3.0), ("fast", 200.0, 1.0), ("rillnode served", 1, 9)
    ):  # fmt: skip
        figures.add("w1", "1 KiB", system, {"per_second": rate, "p99_ms": latency})
    assert [(row["metric"], row["best_peer"], row["ratio"]) for row in figures.summary()] == [
        ("per_second", "fast", 0.5), ("p99_ms", "fast", 0.5),
    ]  # fmt: skip
    assert not any(row["won"] for row in figures.summary())


def test_what_has_fallen_or_is_gone_is_named() -> None:
    baseline = {
        "a / per_second": 100.0, "b / p99_ms": 1.0, "c / per_second": 1.0, "e / cpu_us": 9.0
    }  # fmt: skip
    now = {"a / per_second": 89.0, "b / p99_ms": 1.05, "d / per_second": 1.0, "e / cpu_us": 0.0}
    assert compare(now, baseline) == [
        Compared("a / per_second", 0.89, FALLEN),
        Compared("b / p99_ms", 1 / 1.05, ""),
        Compared("c / per_second", None, GONE),
        Compared("d / per_second", None, NEW),
        Compared("e / cpu_us", 1.0, ""),
    ]


@pytest.mark.needs("node")
def test_node_finds_the_newer_of_two_packages_of_one_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = tmp_path / "users"
    for folder, name, text in (
        (tmp_path / "ws" / "node_modules", "ws", "new"),
        (tmp_path / "streamr-network" / "node_modules", "ws", "old"),
        (tmp_path / "streamr-network" / "node_modules", "streamr-network", "network"),
        (users, "ws", "the user's"),
        (users, "other", "other"),
    ):
        (folder / name).mkdir(parents=True)
        (folder / name / "index.js").write_text(f"module.exports = '{text}'\n")
    monkeypatch.setenv("NODE_PATH", str(users))
    script = "console.log([require('ws'), require('streamr-network'), require('other')].join())"
    done = subprocess.run(
        [*fanout.node_command(tmp_path), "-e", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "new,network,other"


def test_an_interpreter_is_told_and_a_slow_one_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0.0 < interpreter.slowness() < 100.0
    for slow, is_named in ((1.0, False), (interpreter.SLOW, True)):
        monkeypatch.setattr(interpreter, "slowness", lambda slow=slow: slow)
        interpreter.main()
        told = capsys.readouterr()
        assert f"{slow:.2f} times" in told.out
        assert ("slow" in told.err) is is_named


@pytest.mark.long  # it imports matplotlib
def test_growth_is_drawn_with_a_panel_for_each_value_of_each_part(tmp_path: Path) -> None:
    point = Point(
        part="streams", size=1, cpu_us=1.0, p50_ms=1.0, p99_ms=1.0, memory_bytes=1, disk_bytes=1,
        start_seconds=1.0, start_cpu_seconds=1.0,
    )  # fmt: skip
    points = [point, replace(point, size=10), replace(point, part="links")]
    draw(points, tmp_path / "growth.svg")
    text = (tmp_path / "growth.svg").read_text()
    for title in PANELS:
        assert text.count(f">{title}<") == 2
    assert text.count(">links<") == text.count(">streams<") == len(PANELS)
    draw(points, tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_text() == text


def test_what_was_executed_is_the_total_of_a_dump(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[tuple[str, ...]] = []

    def control(command: tuple[str, ...], **_: object) -> None:
        said.append(command[1:])
        if "-d" in command:
            dump = "events: Ir\nsummary: 0\n\nfn=(1) main\n1 1234\n\ntotals: 1234\n"
            (tmp_path / "callgrind.out.1").write_text(dump)

    monkeypatch.setattr(subprocess, "run", control)
    callgrind = Callgrind(7, tmp_path / "callgrind.out")

    callgrind.begin()

    assert callgrind.end() == 1_234
    assert said == [("-i", "on", "7"), ("-i", "off", "7"), ("-d", "7")]
