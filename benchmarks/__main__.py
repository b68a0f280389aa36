"""Run benchmarks: rillnode beside the servers that one would pick instead.

    python -m benchmarks [CASE ...]

Without a case, the workloads w1 w2 w3 w4 w5 w6 are run.
"""

import argparse
import json
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.markup import escape

from benchmarks import asks, jetstream, jetstream_streams, machine, workloads
from benchmarks.fanout import fan_out
from benchmarks.figures import Figures, show, show_summary
from benchmarks.profile import profile, show_profile

_ROOT: Final = Path(__file__).parent.parent

_WORKLOADS: Final = {
    "w1": ("push, durable confirm", workloads.push_confirm),
    "w2": ("replay of stored 1 KiB messages", workloads.replay),
    "w3": ("fan-out to WebSocket subscribers, 1 KiB", fan_out),
    "w4": ("many streams", workloads.many_streams),
    "w5": ("idle connections", workloads.idle_links),
    "w6": ("kill -9 under full load", workloads.crash),
}

_APART: Final = {
    "numbered": ("w1 with numbers, by which doubles are known, and without", workloads.numbered),
    "work": ("work queues, each message answered by itself, 1 KiB", workloads.work),
    asks.CASE: ("asks and answers beside NATS, Ray and pykka; idle actors", asks.asks),
    jetstream.CASE: ("a node on NATS JetStream beside nats-py", jetstream.jetstream),
    jetstream_streams.CASE_STREAMS: (
        "one message to each of many streams (--streams), likewise",
        jetstream_streams.jetstream_streams,
    ),
    jetstream_streams.CASE_IDLE: (
        "what streams cost that are followed and idle, likewise",
        jetstream_streams.jetstream_idle,
    ),
    jetstream_streams.CASE_BACK: (
        "the first confirm after a majority is back, likewise",
        jetstream_streams.jetstream_back,
    ),
    jetstream.CASE_NODES: ("several nodes on NATS JetStream", jetstream.jetstream_nodes),
}
"""Cases that run only where they are asked for."""

_PARTS: Final = {
    "actors": "the actor system alone",
    "against": "this checkout and another by turns: has anything become slower?",
    "check": "is anything slower than the stored baseline? (make bench-check)",
    "floods": "latency of good clients while a listener is flooded with useless connections",
    "growth": "one node with ever more streams, links and entries, with plots",
    "instructions": "of a node for a push or a job, by valgrind, whatever else the machine does",
    "interpreter": "how fast this Python is for its machine",
    "jetstream_growth": "a shared log on 1 to 8 nodes and 3 and 5 servers, shown by counting",
    "links": "sealing, encrypted echo, idle links",
    "nextgraph": "events, syncs and blocks through the NextGraph broker",
    "simulation": "seeds and copies a second, beside other simulators",
    "spark": "node to Delta table, beside Spark's own file source",
    "spark_typed": "typed tables with Spark and without it, beside plain PySpark and delta-rs",
    "store": "the store alone",
    "store_copy": "a large store moved to JetStream and back",
    "streamr_resend": "resends from a stream of a million messages to a Streamr client",
    "turns": "longest turns of actors with 100,000 streams, 5,000 links, 1,000 subscriptions",
}
"""Benchmarks with a command line of their own: `python -m benchmarks.<name>`."""


def _arguments() -> argparse.Namespace:
    cases = {name: title for name, (title, _) in _WORKLOADS.items()}
    cases |= {name: title for name, (title, _) in _APART.items()}
    cases["profile"] = "where the node's time goes under w1, 1 KiB"
    cases |= {name: text for name, text in _PARTS.items() if _part(name).exists()}
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Run benchmarks: rillnode beside the servers that one would pick instead.",
        epilog="cases:\n" + "".join(f"  {name:<17} {text}\n" for name, text in cases.items()),
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help="default: all workloads")
    parser.add_argument("--quick", action="store_true", help="small and short: does it work?")
    parser.add_argument("--rounds", type=int, metavar="N", help="default: 3, with --quick 1")
    parser.add_argument("--kills", type=int, metavar="N", help="w6; default: 5, with --quick 2")
    parser.add_argument(
        "--systems", nargs="+", default=[], metavar="PART", help="only those with it in their name"
    )
    parser.add_argument(
        "--streams", type=int, nargs="+", metavar="N", help="of jetstream_streams; default: 1000"
    )
    parser.add_argument("--window", type=int, default=1_024, metavar="N", help="of the profile")
    parser.add_argument(
        "--dir", type=Path, metavar="DIR", help="on the disk to be measured; default: build/"
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="default: build/benchmarks-<date>.json"
    )
    arguments = parser.parse_args()
    for case in arguments.cases:
        if case not in cases:
            parser.error(f"no case {case!r}: there are {' '.join(cases)}")
    return arguments


def main() -> None:
    """Run what the command line asks for."""
    arguments = _arguments()
    console = Console()
    errors = Console(stderr=True, highlight=False)
    # Unwound, so that no server is left behind.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    # Thousands of connections: servers and generators inherit it.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    build = _ROOT / "build"
    build.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="benchmarks-", dir=arguments.dir or build) as name:
        directory = Path(name)
        about = machine.describe(directory)
        errors.print(escape(_headline(about)))
        for warning in machine.warnings(about):
            errors.print(f"[yellow]warning[/]: {escape(warning)}")
        figures = Figures()
        profiles: list[dict[str, Any]] = []
        for case in arguments.cases or _WORKLOADS:
            if case in _PARTS:
                subprocess.run([sys.executable, "-m", f"benchmarks.{case}"], cwd=_ROOT, check=True)
            elif case == "profile":
                profiles.append(profile(directory, window=arguments.window))
                show_profile(profiles[-1], console)
            else:
                title, run = {**_WORKLOADS, **_APART}[case]
                run(_settings(arguments, directory), figures)
                show(figures, case, f"{case}: {title}", console)
        show_summary(figures, console)
        for note in figures.notes:
            errors.print(f"[yellow]note[/]: {escape(note)}")
    output = arguments.output or build / f"benchmarks-{about['date'].replace(':', '')}.json"
    document = {
        "machine": about,
        "notes": figures.notes,
        "figures": list(figures.documents()),
        "profiles": profiles,
    }
    output.write_text(json.dumps(document, indent=1) + "\n")
    errors.print(escape(f"written: {output}"))
    if any(figures.total(metric) for metric in ("lost", "wrong", "holes")):
        sys.exit("confirmed messages were lost or spoiled: see w6")


def _settings(arguments: argparse.Namespace, directory: Path) -> workloads.Settings:
    quick = arguments.quick
    return workloads.Settings(
        directory=directory,
        quick=quick,
        rounds=arguments.rounds or (1 if quick else 3),
        kills=arguments.kills or (2 if quick else 5),
        systems=arguments.systems,
        streams=arguments.streams or ((200,) if quick else (1_000,)),
    )


def _headline(about: dict[str, Any]) -> str:
    return (
        f"rillnode {about['rillnode']} ({about['commit']}) on {about['cores']} cores of "
        f"{about['cpu']}, Python {about['python']} ({about['python_slowness']:.2f} times as long "
        f"as an optimised build for a small loop), {about['file_system']}: "
        f"4 KiB append and fdatasync {about['sync_us'] / 1e3:.3f} ms"
    )


def _part(name: str) -> Path:
    return _ROOT / "benchmarks" / f"{name}.py"


if __name__ == "__main__":
    main()
