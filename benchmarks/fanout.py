"""W3: fan-out of one publisher's messages to WebSocket subscribers, and publishing alone."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec
from coincurve import PrivateKey, PublicKey

from benchmarks.figures import Sink
from benchmarks.generator import run
from benchmarks.jobs import Endpoint, FanoutJob, Result
from benchmarks.processes import Process, free_port
from benchmarks.servers import RILLNODE, start_rillnode
from benchmarks.workloads import Settings, available, empty, in_turn

_KIB: Final = 1_024
_WINDOW: Final = 16
_PACED_DELIVERIES: Final = 20_000
_BUSY: Final = 0.9
"""Part of a core above which the load generator does not keep up."""

_SIGNED_PER_SECOND: Final = 20_000
"""How many signed messages are made beforehand; far more than one core can verify."""

Start = Callable[[Path], AbstractContextManager[Endpoint]]


@contextmanager
def start_streamr(directory: Path) -> Generator[Endpoint]:
    """Run a node that lets everybody in, as a WebSocket server.

    Args:
        directory: where it is or will be.
    """
    settings, options = ("streamr.listen=127.0.0.1:0",), ("--dev",)
    with start_rillnode(directory, settings=settings, options=options) as server:
        port = int(server.ports["streamr"].rpartition(":")[2])
        yield msgspec.structs.replace(server.endpoint, kind="fanout", port=port)


@contextmanager
def _bare(directory: Path, *, command: Sequence[str]) -> Generator[Endpoint]:
    port = free_port()
    with Process([*command, str(port)], directory / "server.log") as process:
        process.wait_for_port(port)
        yield Endpoint(kind="fanout", port=port, pid=process.pid)


_NETWORK: Final = "streamr-network"
_PACKAGES: Final = {"bare ws on Node": "ws", _NETWORK: "streamr-network"}
_PEERS: Final = Path(__file__).parent.parent / "build" / "peers"


def node_command(peers: Path) -> tuple[str, ...]:
    """Runs Node with what `install-peers.sh` has installed, and what its user has."""
    paths = [str(peers / name / "node_modules") for name in _PACKAGES.values()]
    return ("env", f"NODE_PATH={':'.join([*paths, os.environ.get('NODE_PATH', '')])}", "node")


_NODE: Final = node_command(_PEERS)

_PYTHON: Final = (sys.executable, "-m", "benchmarks.fanout_servers")
SERVERS: Final[dict[str, Start]] = {
    RILLNODE: start_streamr,
    "bare picows": partial(_bare, command=(*_PYTHON, "picows")),
    "bare aiohttp": partial(_bare, command=(*_PYTHON, "aiohttp")),
    "bare ws on Node": partial(_bare, command=(*_NODE, "benchmarks/fanout_ws.js")),
    _NETWORK: partial(_bare, command=(*_NODE, "benchmarks/fanout_network.js")),
}


def fan_out(settings: Settings, sink: Sink) -> None:
    """W3: each round starts every server anew, as W1 does."""
    seconds = 1.0 if settings.quick else 3.0
    names = available(SERVERS, settings, sink, _missing)
    for turn in range(settings.rounds):
        for name in in_turn(names, turn):
            for subscribers in (100,) if settings.quick else (100, 1_000):
                for workload, rate in (
                    ("closed loop", 0.0),
                    ("20,000/s", _PACED_DELIVERIES / subscribers),
                ):
                    if sink.has_failed(name):
                        continue
                    with sink.trying(name), empty(name, settings, SERVERS) as endpoint:
                        job = FanoutJob(
                            endpoint=endpoint,
                            subscribers=subscribers,
                            message_bytes=_KIB,
                            window=_WINDOW,
                            rate=rate,
                            seconds=seconds,
                            neighbours=name == _NETWORK,
                        )
                        _add(sink, f"{subscribers:,} subscribers, {workload}", name, run(job))
    for signed in (False, True):
        if RILLNODE in names:
            _publish(settings, sink, seconds, signed=signed)


def _publish(settings: Settings, sink: Sink, seconds: float, *, signed: bool) -> None:
    """Messages that one publisher has stored and broadcast to one subscriber."""
    for _ in range(settings.rounds):
        with empty(RILLNODE, settings, SERVERS) as endpoint:
            job = FanoutJob(
                endpoint=endpoint,
                subscribers=1,
                message_bytes=_KIB,
                window=256,
                rate=0.0,
                seconds=seconds,
                signed=int(_SIGNED_PER_SECOND * seconds * 1.5) if signed else 0,
            )
            workload = "published, signatures verified" if signed else "published, unsigned"
            _add(sink, workload, RILLNODE, run(job))
        if signed:
            sink.add("w3", workload, "bare coincurve", _recover(seconds))


def _recover(seconds: float) -> Result:
    """The floor under verifying: signers recovered from digests, one after the other."""
    key, digest = PrivateKey(), os.urandom(32)
    signature = key.sign_recoverable(digest, hasher=None)
    count, begun, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - begun < seconds:
        for _ in range(100):
            PublicKey.from_signature_and_message(signature, digest, hasher=None)
        count += 100
    took, cpu = time.perf_counter() - begun, time.process_time() - cpu
    return {"deliveries_per_second": count / took, "server_cpu_us": cpu / count * 1e6}


def _add(sink: Sink, workload: str, name: str, result: Result) -> None:
    sink.add("w3", workload, name, result)
    if result["deliveries_per_second"] * result["client_cpu_us"] > _BUSY * 1e6:
        limit = "the load generator was the limit, so the server could do more: see server cpu us"
        sink.note(f"w3: {workload}, {name}: {limit}")


def _missing(name: str) -> str:
    """Why a server cannot be started here; "" where it can."""
    if name == "bare picows" and find_spec("picows") is None:
        return "there is no picows: run pip install --group bench"
    package = _PACKAGES.get(name)
    if package is not None:
        if shutil.which("node") is None:
            return "there is no node: run benchmarks/install-peers.sh"
        asked = subprocess.run([*_NODE, "-e", f"require('{package}')"], capture_output=True)
        if asked.returncode:
            return f"node finds no {package}: run benchmarks/install-peers.sh"
    return ""
