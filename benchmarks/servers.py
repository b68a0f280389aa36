"""Servers under test: rillnode and its peers, each a process of its own on 127.0.0.1."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from benchmarks.certificates import make_certificates
from benchmarks.jobs import Endpoint
from benchmarks.processes import Process, free_port

RILLNODE: Final = "rillnode"

FLOOR: Final = "bare Python, synced, encrypted"
"""No peer: what any program in Python would need, see `floor_server`."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running server: its process, where it keeps data, how to reach it.

    Attributes:
        ports: what a node says of its listeners.
    """

    process: Process
    data: Path
    endpoint: Endpoint
    ports: Mapping[str, str] = field(default_factory=dict[str, str])


Start = Callable[[Path], AbstractContextManager[Server]]
"""Starts a server with an empty directory (or one that it has used before)."""


def make_home(directory: Path, tables: str = "") -> None:
    """Make what a node needs to run in a directory, as `rillnode init` does.

    Args:
        directory: where it will be.
        tables: more of its configuration, as TOML.
    """
    home = directory / "node"
    subprocess.run(
        [sys.executable, "-m", "rillnode", "init", str(home)], check=True, capture_output=True
    )
    with (home / "node.toml").open("a") as file:
        file.write(tables)


@contextmanager
def start_rillnode(
    directory: Path,
    *,
    program: tuple[str, ...] = ("-m", "rillnode"),
    settings: tuple[str, ...] = (),
    options: tuple[str, ...] = (),
) -> Generator[Server]:
    """Run a node as `rillnode init` and `rillnode run` make it, with ports of its own.

    Args:
        directory: where it is or will be.
        program: how Python is told to run the command line.
        settings: more of the configuration, `key=value` each.
        options: more of the command line.
    """
    home, ports_file = directory / "node", directory / "ports.json"
    if not home.exists():
        make_home(directory)
    ports_file.unlink(missing_ok=True)
    arguments = (
        "run", "-c", str(home / "node.toml"), "--ports-file", str(ports_file),
        "--set", "noise.listen=127.0.0.1:0", "--set", "http.enabled=false",
        *(word for setting in settings for word in ("--set", setting)), *options,
    )  # fmt: skip
    with Process([sys.executable, *program, *arguments], directory / "node.log") as process:
        while not ports_file.exists():
            process.check_starting("ports file")
        ports = json.loads(ports_file.read_text())
        endpoint = Endpoint(
            kind="rillnode",
            port=int(ports["noise"].rpartition(":")[2]),
            pid=process.pid,
            key_file=str(home / "data" / "admin.key"),
            node_identity=ports["identity"],
        )
        yield Server(process, home / "data", endpoint, ports)


@contextmanager
def start_redis(directory: Path, *, sync: str, tls: bool) -> Generator[Server]:
    """Run Redis with its append-only file, never rewritten: that favours the peer."""
    port = free_port()
    data = directory / "data"
    data.mkdir(parents=True, exist_ok=True)
    options = {
        "bind": "127.0.0.1", "port": "0" if tls else str(port), "dir": str(data), "save": "",
        "appendonly": "yes", "appendfsync": sync, "auto-aof-rewrite-percentage": "0",
        "maxclients": "10000", "daemonize": "no",
    }  # fmt: skip
    authority = ""
    if tls:
        files = make_certificates(directory)
        authority = str(files.authority)
        options |= {
            "tls-port": str(port), "tls-auth-clients": "no", "tls-ca-cert-file": authority,
            "tls-cert-file": str(files.certificate), "tls-key-file": str(files.key),
        }  # fmt: skip
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    with Process([program_path("redis-server"), *words], directory / "redis.log") as process:
        process.wait_for_port(port)
        endpoint = Endpoint(kind="redis", port=port, pid=process.pid, ca_file=authority)
        yield Server(process, data, endpoint)


@contextmanager
def start_nats(directory: Path, *, sync: str = "", tls: bool = False) -> Generator[Server]:
    """Run NATS with JetStream in files; `sync`: its `sync_interval`, by default two minutes."""
    port = free_port()
    data = directory / "data"
    data.mkdir(parents=True, exist_ok=True)
    interval = f", sync_interval: {sync}" if sync else ""
    authority = secure = ""
    if tls:
        files = make_certificates(directory)
        authority = str(files.authority)
        secure = f'tls {{ cert_file: "{files.certificate}", key_file: "{files.key}" }}'
    config = directory / "nats.conf"
    config.write_text(
        f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{data}" {interval} }}\n{secure}\n'
    )
    with Process(
        [program_path("nats-server"), "-c", str(config)], directory / "nats.log"
    ) as process:
        process.wait_for_port(port)
        endpoint = Endpoint(kind="nats", port=port, pid=process.pid, ca_file=authority)
        yield Server(process, data, endpoint)


@contextmanager
def start_floor(directory: Path) -> Generator[Server]:
    """Run the floor under W1."""
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.floor_server", str(port), str(directory / "data")]
    with Process(command, directory / "floor.log") as process:
        process.wait_for_port(port)
        yield Server(process, directory, Endpoint(kind="floor", port=port, pid=process.pid))


SERVERS: Final[dict[str, Start]] = {
    RILLNODE: start_rillnode,
    FLOOR: start_floor,
    "redis, AOF always": partial(start_redis, sync="always", tls=False),
    "redis, AOF everysec": partial(start_redis, sync="everysec", tls=False),
    "redis, AOF everysec, TLS": partial(start_redis, sync="everysec", tls=True),
    "nats": start_nats,
    "nats, TLS": partial(start_nats, tls=True),
    "nats, sync always": partial(start_nats, sync="always"),
}
"""All servers by the name that tables show."""


def missing(name: str) -> str:
    """Why a server cannot be started here; "" where it can."""
    if name in (RILLNODE, FLOOR):
        return ""
    program = "redis-server" if name.startswith("redis") else "nats-server"
    found = version(program)
    if program == "redis-server" and find_spec("hiredis") is None:
        return "there is no hiredis: run pip install --group bench"
    if not found:
        install = "make setup" if program == "nats-server" else "benchmarks/install-peers.sh"
        return f"there is no {program}: run {install}"
    if name == "nats, sync always" and found < (2, 10):
        return f"nats-server {'.'.join(map(str, found))} cannot: 2.10 can"
    return ""


@cache
def version(program: str) -> tuple[int, ...]:
    """A peer's version; empty where it is not installed."""
    try:
        shown = subprocess.run([program_path(program), "--version"], capture_output=True, text=True)
    except FileNotFoundError:
        return ()
    match = re.search(r"v=?(\d+)\.(\d+)\.(\d+)", shown.stdout)
    return tuple(map(int, match.groups())) if match else ()


def program_path(name: str) -> str:
    """Where a peer's program is, first beside Python; its bare name where it is not installed."""
    places = (str(Path(sys.executable).parent), None, "/usr/sbin:/usr/local/sbin")
    return next(filter(None, (shutil.which(name, path=place) for place in places)), name)
