"""What a sink costs that has caught up: processor time of its job, and of the node, per second.

    python -m benchmarks.idle_sink --kind python --streams 500 --seconds 60

A node has so many streams, each with some entries, and a sink for all of them with a typed table;
with `--tables`, a typed table for each. When all has landed, nothing is pushed any more. `--kind
none` has no sink: what a node itself takes.
"""

import argparse
import asyncio
import json
import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from rillnode.actors.core.access import VERBS
from rillnode.node.config import Config, GrantTable, HttpListener, Location, NoiseListener
from rillnode.node.runtime import Node
from rillnode.node.spark.config import PythonSink, SinkTables, SparkSink
from rillnode.node.spark.process import session_members
from rillnode.node.spark.table_config import TypedTable

_ENTRIES: Final = 20
_LANDED_SECONDS: Final = 600.0
_SETTLED_SECONDS: Final = 15.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser(description="Measure what a sink costs that has caught up.")
    parser.add_argument("--kind", choices=("python", "spark", "none"), default="python")
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--trigger", type=float, default=5.0, help="trigger_seconds (5)")
    parser.add_argument("--tables", action="store_true", help="a typed table for each stream")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        print(json.dumps(asyncio.run(measure(Path(directory), **vars(options)))))


def _config(directory: Path, kind: str, trigger: float, *, tables: bool) -> Config:
    config = Config(
        name="idle",
        data_dir=directory / "data",
        noise=NoiseListener(listen="127.0.0.1:0"),
        http=HttpListener(enabled=False),
        grants=(GrantTable(who="anonymous", streams="*", may=VERBS),),
    )
    place = Location(directory / "table")
    common: dict[str, Any] = {"name": "all", "streams": ("*",), "table_dir": place}
    common["trigger_seconds"] = trigger
    match kind:
        case "none":
            return config
        case "spark":
            sinks = SinkTables(spark=(SparkSink(**common),))
        case _:
            sinks = SinkTables(python=(PythonSink(**common),))
    typed = directory / "typed" / "{stream}" if tables else directory / "typed"
    table = TypedTable(name="typed", streams=("*",), dir=Location(typed), columns={"id": "int"})
    return config.having(sinks).having(table)


async def measure(
    directory: Path,
    *,
    kind: str,
    streams: int,
    seconds: float,
    trigger: float = 5.0,
    tables: bool = False,
) -> dict[str, Any]:
    """What a sink of some kind costs, once all has landed: see the module's arguments."""
    async with Node(_config(directory, kind, trigger, tables=tables)) as node:
        names = [f"s{number}" for number in range(streams)]
        for stream in await node.client.open_streams(names):
            await stream.push_many([b'{"id": %d}' % at for at in range(_ENTRIES)])
        total = _ENTRIES * streams
        deadline = time.monotonic() + _LANDED_SECONDS
        while kind != "none" and await _landed(node) < total:
            if time.monotonic() > deadline:
                raise RuntimeError(f"not landed: {await node.client.status()}")
            await asyncio.sleep(1)
        await asyncio.sleep(_SETTLED_SECONDS)
        pid = None
        if kind != "none":
            pid = (await node.client.status())["sinks"]["all"]["pid"]
        node_cpu, job_cpu, seen = -time.process_time(), 0.0, _taken(pid)
        started = time.monotonic()
        # Each second, because Spark's Python workers come and go.
        while (passed := time.monotonic() - started) < seconds:
            await asyncio.sleep(1)
            before, seen = seen, _taken(pid)
            job_cpu += sum(taken - before.get(one, 0.0) for one, taken in seen.items())
        node_cpu += time.process_time()
        state = None
        if pid is not None:
            state = (await node.client.status())["sinks"]["all"]["state"]
        return {
            "kind": kind,
            "streams": streams,
            "trigger": trigger,
            "tables": tables,
            "state": state,
            "node_percent": round(100 * node_cpu / passed, 2),
            "job_percent": round(100 * job_cpu / passed, 2),
            "job_mib": round(_resident(pid) / 2**20),
            "load": round(os.getloadavg()[0], 1),
        }


async def _landed(node: Node) -> int:
    """Rows of the typed tables, as the sink's job reports them."""
    report = (await node.client.status())["sinks"]["all"]["report"]
    return int(report.get("table/typed", {}).get("rows", 0))


def _taken(pid: int | None) -> dict[int, float]:
    """Processor seconds of each process of a job."""
    found: dict[int, float] = {}
    for member in () if pid is None else session_members(pid):
        with suppress(OSError):
            fields = Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()
            found[member] = (int(fields[11]) + int(fields[12])) / _TICKS
    return found


def _resident(pid: int | None) -> int:
    pages = 0
    for member in () if pid is None else session_members(pid):
        with suppress(OSError):
            pages += int(Path(f"/proc/{member}/statm").read_text().split()[1])
    return pages * _PAGE


if __name__ == "__main__":
    main()
