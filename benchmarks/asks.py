"""Questions and answers: an actor and a served address beside NATS, Ray and pykka.

Each round starts every system anew. Who asks, who answers and the node or server between are
processes of their own, except in process, where all are one.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from benchmarks.asks_load import Ask, Count, Part, Run
from benchmarks.figures import Sink
from benchmarks.processes import Process
from benchmarks.servers import RILLNODE, missing, start_nats
from benchmarks.workloads import Settings, in_turn

CASE: Final = "asks"

_WINDOWS: Final = (1, 64)
_IDLE: Final = {RILLNODE: 100_000, "pykka": 1_000}
"""Each of pykka's actors is a thread, so that there are fewer; each of Ray's is a process."""
_SECONDS_MAX: Final = 600.0

Around = Callable[[Path], AbstractContextManager[Mapping[str, str]]]
"""Runs what is asked, and tells whoever asks how to reach it."""


def asks(settings: Settings, sink: Sink) -> None:
    """Rates and latencies at each window, then what idle actors take."""
    systems = {name: run for name, run in SYSTEMS.items() if _wanted(name, settings, sink)}
    names = list(systems)
    seconds = 0.5 if settings.quick else 5.0
    for turn in range(settings.rounds):
        for name in in_turn(names, turn):
            if sink.has_failed(name):
                continue
            where, system, around = systems[name]
            directory = settings.directory / f"asks-{turn}-{names.index(name)}"
            directory.mkdir()
            with sink.trying(name), around(directory) as reach:
                for window in _WINDOWS:
                    ask = Ask(system=system, window=window, seconds=seconds, reach=dict(reach))
                    sink.add(CASE, f"{where}, window {window}", name.split(",")[0], _measured(ask))
        for name, number in _IDLE.items():
            if any(one.startswith(name) for one in names) and not sink.has_failed(name):
                count = Count(system=name, actors=number // 20 if settings.quick else number)
                with sink.trying(name):
                    sink.add(CASE, "idle actors", name, _measured(count))


def _wanted(name: str, settings: Settings, sink: Sink) -> bool:
    if settings.systems and not any(part in name for part in settings.systems):
        return False
    module = {"ray": "ray", "pykka": "pykka", "nats": "nats"}.get(name.split(",")[0])
    if module is not None and find_spec(module) is None:
        reason = f"there is no {module}: run pip install --group bench"
    else:
        reason = missing("nats, TLS") if module == "nats" else ""
    if reason:
        sink.note(f"{name} was left out: {reason}")
    return not reason


def _measured(run: Run) -> dict[str, float]:
    done = subprocess.run(
        [*_COMMAND, _encoded(run)], capture_output=True, text=True, timeout=_SECONDS_MAX
    )
    if done.returncode:
        raise RuntimeError(f"{run} has failed:\n{done.stderr[-2_000:]}")
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


@contextmanager
def _rillnode(directory: Path, *, served: bool) -> Generator[Mapping[str, str]]:
    """A node with an actor; `served`: and a client that has an address there."""
    with ExitStack() as stack:
        reach = stack.enter_context(_part(Part(kind="node", reach={"directory": str(directory)})))
        if served:
            served_by = Part(kind="rillnode", reach=dict(reach))
            stack.enter_context(_part(served_by, directory))
        yield {**reach, "address": "served" if served else "actor"}


@contextmanager
def _nats(directory: Path) -> Generator[Mapping[str, str]]:
    """A server, and a subscriber that answers."""
    with start_nats(directory, tls=True) as server:
        reach = {"port": str(server.endpoint.port), "ca_file": server.endpoint.ca_file}
        with _part(Part(kind="nats", reach=reach), directory):
            yield reach


@contextmanager
def _nothing(directory: Path) -> Generator[Mapping[str, str]]:
    """Who asks makes all that there is."""
    yield {"directory": str(directory)}


@contextmanager
def _part(part: Part, directory: Path | None = None) -> Generator[Mapping[str, str]]:
    """Run a process until it says how to reach it, and then as long as it is needed."""
    home = directory or Path(part.reach["directory"])
    ready = home / f"{part.kind}.ready"
    part.reach["ready"] = str(ready)
    with Process([*_COMMAND, _encoded(part)], home / f"{part.kind}.log") as process:
        while not ready.exists():
            process.check_starting("file that says it is ready")
        yield json.loads(ready.read_text())


def _encoded(run: Run) -> str:
    return run.encoded().decode()


_COMMAND: Final = (sys.executable, "-m", "benchmarks.asks_load")

SYSTEMS: Final[dict[str, tuple[str, str, Around]]] = {
    "rillnode": ("between processes", "rillnode", partial(_rillnode, served=False)),
    "rillnode served": ("between processes", "rillnode", partial(_rillnode, served=True)),
    "nats, TLS": ("between processes", "nats", _nats),
    "ray": ("between processes", "ray", _nothing),
    "rillnode, in process": ("in process", "in process", _nothing),
    "pykka": ("in process", "pykka", _nothing),
}
"""By name: where all of it runs, who asks, and what runs beside."""
