"""A NATS server of the tests' own, with JetStream in a directory of its own."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from pausing import pause
from rillnode.actors.core.streams import retention
from rillnode.node.config import Config
from rillnode.node.jetstream.config import JetStreamStore
from rillnode.node.testing.contract.ports import free_port


def _nats_server() -> str | None:
    """The first one that can sync every write: early ones have no such setting."""
    named = os.environ.get("NATS_SERVER")
    beside = str(Path(sys.executable).parent)
    found = [named] if named else [shutil.which("nats-server", path=beside)]
    found += [shutil.which("nats-server"), shutil.which("nats-server", path="/usr/sbin")]
    for program in filter(None, found):
        said = subprocess.run((program, "--version"), capture_output=True, text=True, check=False)
        version = re.search(r"v(\d+)\.(\d+)\.", said.stdout)
        if version is not None and tuple(map(int, version.groups())) >= (2, 10):
            return program
    return None


NATS_SERVER = _nats_server()
"""The server that tests start: the one that the environment names, or an installed one."""

NO_NATS = "there is no nats-server 2.10 or later: make setup installs it"

START_SECONDS = 120.0

SHARDS = 4
"""Of nodes' stores in tests: several, and quickly made."""

needs_nats = pytest.mark.skipif(NATS_SERVER is None, reason=NO_NATS)


class NatsServer:
    """One server process; it keeps its port and its data over restarts.

    Args:
        directory: of its configuration, log and data.
        settings: more lines of its configuration.
        host: where it listens.
        command: what starts it, where it is to run elsewhere.
        sync: when it syncs: `always`, or how often.

    Attributes:
        directory: the same; its data are in `data`.
        port: where clients connect.
        url: the same with the protocol.
        monitor: URL of its monitoring.
    """

    def __init__(
        self,
        directory: Path,
        *settings: str,
        host: str = "127.0.0.1",
        command: Sequence[str] = (),
        sync: str = "always",
    ) -> None:
        self.port, monitoring = free_port(), free_port()
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self._config = directory / "nats.conf"
        store = f"store_dir: {json.dumps(str(directory / 'data'))}, sync_interval: {sync}"
        lines = [
            f"listen: {host}:{self.port}",
            f"http: {host}:{monitoring}",
            "max_payload: 8388608",
            f"jetstream {{ {store} }}",
            *settings,
        ]
        self._config.write_text("\n".join(lines) + "\n")
        self._log = directory / "nats.log"
        self._host = host
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"nats://{host}:{self.port}"
        self.monitor = f"http://{host}:{monitoring}"

    def start(self) -> None:
        """Start, and wait until clients are answered."""
        assert NATS_SERVER is not None
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, NATS_SERVER, "-c", str(self._config)], stdout=log, stderr=log
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, "nats-server does not answer"
            time.sleep(0.02)

    def kill(self) -> None:
        """End it as a crash would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it in order."""
        self._end(signal.SIGTERM)

    def pause(self) -> None:
        """Let it answer nothing until `resume`."""
        assert self._process is not None
        pause(self._process.pid)

    def resume(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def set_sync(self, sync: str) -> None:
        """Let it sync otherwise when it is started next."""
        text = self._config.read_text()
        changed = re.sub(r"sync_interval: [^}]*", f"sync_interval: {sync} ", text)
        assert changed != text
        self._config.write_text(changed)

    def reload(self) -> None:
        """Let it read its configuration again."""
        self._signal(signal.SIGHUP)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(START_SECONDS)
            self._process = None

    def _answers(self) -> bool:
        try:
            with socket.create_connection((self._host, self.port), timeout=1.0) as connection:
                return connection.recv(4).startswith(b"INFO")
        except OSError:
            return False


@contextmanager
def running_nats(directory: Path, *settings: str, sync: str = "always") -> Generator[NatsServer]:
    """A server within the block, which may also kill and start it."""
    server = NatsServer(directory, *settings, sync=sync)
    server.start()
    try:
        yield server
    finally:
        server.kill()


class NatsCluster:
    """Three servers on one machine, of which any two are enough.

    Args:
        directory: of all that they keep.
        sync: see `NatsServer`.

    Attributes:
        servers: the three.
    """

    def __init__(self, directory: Path, *, sync: str = "always") -> None:
        ports = [free_port() for _ in range(3)]
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports)
        self.servers = [
            NatsServer(
                directory / f"n{number}",
                f"server_name: n{number}",
                f"server_tags: [n{number}]",
                f"cluster {{ name: rill, listen: 127.0.0.1:{port}, routes: [{routes}] }}",
                sync=sync,
            )
            for number, port in enumerate(ports)
        ]

    def start(self) -> None:
        """Start all; they elect who leads in a while."""
        for server in self.servers:
            server.start()

    def kill(self) -> None:
        """End all as a crash would."""
        for server in self.servers:
            server.kill()


class MutingProxy:
    """Forwards connections to a server, and can keep its answers back."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._muted = False
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"nats://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def mute(self) -> None:
        """From now on what the server says is lost, on the connections there are."""
        self._muted = True

    def cut(self) -> None:
        """Break all connections; new ones are whole."""
        sockets, self._sockets = self._sockets, []
        for one in sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._muted = False

    def close(self) -> None:
        """End it."""
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._forward(near)

    def _forward(self, near: socket.socket) -> None:
        try:
            far = socket.create_connection(("127.0.0.1", self._target))
        except OSError:
            near.close()
            return
        self._sockets += [near, far]
        for ends in ((near, far, False), (far, near, True)):
            threading.Thread(target=self._copy, args=ends, daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket, back: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if not (back and self._muted):
                    sink.sendall(data)
        for one in (source, sink):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def on_jetstream(config: Config, *servers: NatsServer, replicas: int = 1) -> Config:
    """The same configuration of a node, called as its directory, whose streams are in JetStream."""
    store = JetStreamStore(
        servers=tuple(server.url for server in servers),
        monitors=tuple(server.monitor for server in servers),
        replicas=replicas,
        shards=SHARDS,
    )
    return msgspec.structs.replace(config, name=config.data_dir.name, store=store)


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServer]:
    """A server of the test's own."""
    with running_nats(tmp_path / "nats") as server:
        yield server


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes look often for what is to be trimmed."""
    monkeypatch.setattr(retention, "SWEEP_SECONDS", 0.1)
