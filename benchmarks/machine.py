"""The machine that figures come from, and how much they can be trusted."""

import datetime
import os
import platform
import statistics
import subprocess
import tempfile
import time
from importlib.metadata import version as package_version
from pathlib import Path
from typing import Any, Final

import rillnode
from benchmarks.interpreter import SLOW, slowness
from benchmarks.servers import version

_ROOT: Final = Path(__file__).parent.parent
_SYNCS: Final = 200
_PACKAGES: Final = ("cryptography", "hiredis", "rocksdict", "thespian", "uvloop")
_FAST_SYNC_SECONDS: Final = 30e-6
"""No medium that survives a power cut takes less for a sync; a cache that calls itself one does."""


def describe(directory: Path) -> dict[str, Any]:
    """Machine, versions, commit and date, for the head of a result file."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "rillnode": rillnode.__version__,
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "load_average": os.getloadavg()[0],
        "system": platform.platform(),
        "python": platform.python_version(),
        "python_compiler": platform.python_compiler(),
        "python_slowness": round(slowness(), 2),
        "file_system": _file_system(directory),
        "sync_us": round(sync_seconds(directory) * 1e6, 1),
        "versions": {
            **{name: _installed(name) for name in _PACKAGES},
            **{
                name: ".".join(map(str, version(name))) or "missing"
                for name in ("redis-server", "nats-server")
            },
        },
    }


def warnings(machine: dict[str, Any]) -> list[str]:
    """What makes the figures of this machine doubtful."""
    found: list[str] = []
    if machine["file_system"] in ("tmpfs", "ramfs"):
        found.append(
            f"the directory is on {machine['file_system']}, which loses everything: choose a disk "
            "with --dir"
        )
    elif machine["sync_us"] < _FAST_SYNC_SECONDS * 1e6:
        found.append(
            f"a sync takes {machine['sync_us']} us here: faster than any medium, so that durable "
            "figures are those of a cache"
        )
    if machine["python_slowness"] >= SLOW:
        found.append(
            f"this Python takes {machine['python_slowness']:.2f} times as long as an optimised "
            "build for a small loop: see python -m benchmarks.interpreter"
        )
    if machine["load_average"] > 0.5 * machine["cores"]:
        found.append(
            f"the machine is busy (load {machine['load_average']:.1f} on {machine['cores']} "
            "cores): trust the ratios only"
        )
    return found


def sync_seconds(directory: Path) -> float:
    """The median time of appending 4 KiB to a file and syncing it."""
    block = os.urandom(4_096)
    taken: list[float] = []
    with tempfile.NamedTemporaryFile(dir=directory) as file:
        for _ in range(_SYNCS):
            started = time.perf_counter()
            os.write(file.fileno(), block)
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def _commit() -> str:
    """The commit of the code, marked where files differ from it; "" outside a repository."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True)
    return done.stdout.strip()


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def _file_system(directory: Path) -> str:
    """The kind of file system that holds a directory: that of its longest mount point."""
    found: dict[int, str] = {}
    for line in Path("/proc/self/mounts").read_text().splitlines():
        mount, kind = line.split()[1:3]
        if directory.resolve().is_relative_to(mount):
            found[len(mount)] = kind
    return found[max(found)]


def _installed(name: str) -> str:
    try:
        return package_version(name)
    except ModuleNotFoundError:
        return "missing"
