"""The simulation: seeds a second, copies a second, and what a node costs.

    python -m benchmarks.simulation [--quick] [--rounds N] [--python PYTHON] [CASE ...]

All rates are for each second of processor time, the best of some rounds, so that neighbours on a
shared machine disturb them least; every round has a process of its own. With `--python`, a Python
3.12 that has simloop or simloom, the same program also runs on those.
"""

import argparse
import asyncio
import gc
import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks import simulation_flood
from benchmarks.simulation_flood import DELAY_SECONDS, Flood, host_name
from rillnode.node.overlay.simulation.table import SharedOverlay
from rillnode.node.simulated.history import History
from rillnode.node.simulation.interpreter import deterministic_interpreter, one_by_one
from rillnode.node.simulation.latency import ConstantLatency
from rillnode.node.simulation.loop import ProcessLoop, Scheduler
from rillnode.node.simulation.model import propagate
from rillnode.node.simulation.network import Network
from rillnode.node.simulation.run import Run
from rillnode.node.simulation.scenario import (
    DiskTable,
    ModelTable,
    NetworkTable,
    Scenario,
    load_scenario,
)
from rillnode.node.simulation.spreading import Spreading
from rillnode.testing import Network as Application

_CONFIGS: Final = Path(__file__).parent.parent / "configs"
_PAGE_BYTES: Final = 4_096
_PEERS: Final = ("simloop", "simloom")

Found = dict[str, float]
"""What one round has found, by the name and unit of the figure."""


@dataclass(frozen=True, slots=True)
class _Case:
    """One thing to measure: its name for people, and one round of it."""

    group: str
    name: str
    measure: Callable[[], Found]


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES


def _seeds(file: str, seeds: int) -> Found:
    """Whole runs of a scenario: nodes, clients, faults, and all rules checked."""
    scenario = load_scenario(_CONFIGS / file)
    Run(scenario, seeds).run()
    began, virtual = time.process_time(), 0.0
    for seed in one_by_one(range(seeds)):
        result = Run(scenario, seed).run()
        if result.violations:
            raise RuntimeError(f"{file}, seed {seed}: {result.violations[0].text}")
        virtual += result.virtual_seconds
    spent = time.process_time() - began
    return {"seeds/s": seeds / spent, "virtual s/s": virtual / spent}


def _model(nodes: int, messages: int) -> Found:
    """Flooding without any protocol, building the overlay included."""
    began = time.process_time()
    found = propagate(Scenario(model=ModelTable(), nodes=nodes, messages=messages), seed=0)
    return {"copies/s": found.copies / (time.process_time() - began)}


def _nodes(count: int) -> Found:
    """Real nodes, started and idle for a virtual minute."""
    with Application() as first:
        first.add_node("first")
        first.run(asyncio.sleep(1.0))
    gc.collect()
    before, began = _resident_bytes(), time.process_time()
    with Application() as network:
        for number in range(count):
            network.add_node(f"n{number}")
        network.run(asyncio.sleep(60.0))
        size = (_resident_bytes() - before) / count
        return {"s": time.process_time() - began, "kB/node": size / 1e3}


def _sharing(nodes: int, messages: int) -> Scenario:
    return Scenario(
        nodes=nodes,
        messages=messages,
        seconds=1.0,
        disk=DiskTable(sync_ms=0.0),
        tables=(SharedOverlay(),),
    )


def _formed(count: int) -> Found:
    """Real nodes whose overlay of degree 4 has formed: what they cost with their links."""
    Spreading(_sharing(3, 1), 1).run()
    gc.collect()
    before = _resident_bytes()
    spreading = Spreading(_sharing(count, 1), 1)
    spreading.run()
    if spreading.problems:
        raise RuntimeError(spreading.problems[0])
    size = (_resident_bytes() - before) / count
    spent = spreading.cpu_seconds
    return {"s": spent["start"] + spent["form"], "kB/node": size / 1e3}


def _overlay(nodes: int, messages: int, burst: int) -> Found:
    """Real nodes that form an overlay of degree 4 and flood messages over it."""
    spreading = Spreading(_sharing(nodes, messages), 1, burst=burst)
    found = spreading.run()
    if spreading.problems:
        raise RuntimeError(spreading.problems[0])
    spent = spreading.cpu_seconds
    return {
        "copies/s": found.copies / spent["spread"],
        "s to start and form": spent["start"] + spent["form"],
    }


def _flood(nodes: int, messages: int) -> Found:
    """The flooding program on rillnode's simulated network, its trace hash included."""
    scheduler = Scheduler()
    latency = ConstantLatency(DELAY_SECONDS * 1_000)
    network = Network(scheduler, 1, latency, NetworkTable())
    network.on_delivered.append(History(lambda: scheduler.now).delivered)
    for number in range(nodes):
        network.add_host(host_name(number), number).boot()
    flood = Flood(nodes, messages)
    with deterministic_interpreter():
        running = ProcessLoop(scheduler, "director").create_task(
            flood.run(lambda name, part: network.hosts[name].loop.create_task(part))
        )
        scheduler.run_until(running)
    return _rate(running.result())


def _flood_elsewhere(python: str, simulator: str, nodes: int, messages: int) -> Found:
    """The same program on another simulator."""
    command = [python, simulation_flood.__file__, simulator, str(nodes), str(messages)]
    done = subprocess.run(command, capture_output=True, check=True)
    return _rate(json.loads(done.stdout))


def _rate(counted: dict[str, float]) -> Found:
    return {"copies/s": counted["copies"] / counted["cpu_seconds"]}


def _cases(quick: bool, python: str | None) -> Iterator[_Case]:
    for path in sorted(_CONFIGS.glob("sim-*.toml")):
        scenario = load_scenario(path)
        if scenario.model is None and scenario.sharing is None:
            yield _Case("seeds", path.stem, partial(_seeds, path.name, 2 if quick else 20))
    for nodes, messages in ((2_048, 100), (8_192, 20), (100_000, 10)):
        if not quick or nodes < 10_000:
            case = partial(_model, nodes, messages)
            yield _Case("model", f"{nodes:,} nodes, {messages} messages", case)
    for count in (100,) if quick else (100, 1_000):
        yield _Case("nodes", f"{count:,} nodes started", partial(_nodes, count))
        yield _Case("nodes", f"{count:,} nodes, overlay formed", partial(_formed, count))
    for nodes, messages in ((64, 500), (256, 200), (1_000, 50)):
        for burst in (1, 10, 50):
            if not quick or nodes < 100:
                name = f"{nodes:,} nodes, {burst} at once"
                yield _Case("overlay", name, partial(_overlay, nodes, messages, burst))
    simulators = [] if python is None else [one for one in _PEERS if _has(python, one)]
    for nodes, messages in ((32, 500), (256, 100), (1_000, 25)):
        if quick and nodes > 100:
            continue
        yield _Case("streams", f"{nodes:,} nodes, rillnode", partial(_flood, nodes, messages))
        for one in simulators:
            assert python is not None
            case = partial(_flood_elsewhere, python, one, nodes, messages)
            yield _Case("streams", f"{nodes:,} nodes, {one}", case)


def _has(python: str, module: str) -> bool:
    found = subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False)
    return found.returncode == 0


def _measured(measure: Callable[[], Found]) -> Found:
    """One round; nodes in trouble are part of it and say nothing."""
    logging.disable(logging.CRITICAL)
    return measure()


def _best(rounds: list[Found]) -> Found:
    """The best of each figure: the most of a rate, the least of a cost."""
    return {
        name: (max if name.endswith("/s") else min)(found[name] for found in rounds)
        for name in rounds[0]
    }


def main() -> None:
    """Measure what is asked for; a table on a terminal, JSON lines in a pipe."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulation")
    groups = ("seeds", "model", "nodes", "overlay", "streams")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(groups)}")
    parser.add_argument("--quick", action="store_true", help="small and short: does it work?")
    parser.add_argument("--rounds", type=int, metavar="N", help="default: 3, with --quick 1")
    parser.add_argument("--python", help="an interpreter that has simloop or simloom")
    arguments = parser.parse_args()
    for name in arguments.cases:
        if name not in groups:
            parser.error(f"no case {name!r}: there are {' '.join(groups)}")
    rounds = arguments.rounds or (1 if arguments.quick else 3)
    table = Table("case", "", "best of a second of processor time", title="Simulation")
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as processes:
        for case in _cases(arguments.quick, arguments.python):
            if arguments.cases and case.group not in arguments.cases:
                continue
            found = list(processes.map(_measured, [case.measure] * rounds))
            best = _best(found)
            table.add_row(case.group, case.name, ", ".join(map(_text, best, best.values())))
            if not sys.stdout.isatty():
                line = {"case": case.group, "name": case.name, "best": best, "rounds": found}
                print(json.dumps(line), flush=True)
    if sys.stdout.isatty():
        Console().print(table)


def _text(name: str, value: float) -> str:
    return f"{value:,.0f} {name}" if value >= 100 else f"{value:.2f} {name}"


if __name__ == "__main__":
    main()
