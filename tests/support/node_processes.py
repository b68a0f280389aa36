"""Nodes as `rillnode run` starts them, each in a process of its own, that tests kill."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from forked import DEVNULL, Forked
from nats_support import SHARDS, NatsServer
from nodes import CLIENT
from pausing import pause
from rillnode.codecs.keys import Identity
from rillnode.node.keys.files import write_key

START_SECONDS = 300.0


class NodeProcess:
    """A node on a store in JetStream; it keeps its configuration and keys over restarts.

    Attributes:
        url: where its Noise listener is.
        identity: its identity, hex; its directory's name decides it.
        key_file: a key that may do everything at it.
        data: its `data_dir`.
    """

    def __init__(
        self,
        directory: Path,
        servers: Sequence[NatsServer],
        *,
        listen: str = "127.0.0.1:0",
        replicas: int = 1,
        sync: str = "always",
        command: Sequence[str] = (),
        program: Sequence[str] = ("-m", "rillnode"),
        more: str = "",
    ) -> None:
        directory.mkdir(parents=True)
        self.data = directory / "data"
        self.key_file = directory / "client.key"
        write_key(self.key_file, CLIENT)
        identity = Identity.from_seed(directory.name.encode().ljust(32, b"."))
        write_key(directory / "node.key", identity)
        self._config = directory / "node.toml"
        self._ports = directory / "ports.json"
        self.log = directory / "node.log"
        self._command = command
        self._program = program
        self._process: Forked | subprocess.Popen[bytes] | None = None
        self.url = ""
        self.identity = identity.public_hex
        self._config.write_text(
            f'name = "{directory.name}"\n'
            f'data_dir = "{self.data}"\n'
            f'[identity]\nkey_file = "{directory / "node.key"}"\n'
            f'[noise]\nlisten = "{listen}"\n'
            "[http]\nenabled = false\n"
            '[store]\nengine = "jetstream"\n'
            f"servers = {json.dumps([server.url for server in servers])}\n"
            f"monitors = {json.dumps([server.monitor for server in servers])}\n"
            f'replicas = {replicas}\nshards = {SHARDS}\nsync = "{sync}"\nallow_plain = true\n'
            f'[[grant]]\nwho = "noise:{CLIENT.public_hex}"\nstreams = "*"\n'
            'may = ["create", "push", "pull", "subscribe", "admin"]\n' + more
        )

    @property
    def running(self) -> bool:
        """Whether its process is there."""
        return self._process is not None and self._process.poll() is None

    @property
    def listens(self) -> bool:
        """Whether it has said where."""
        return self._ports.exists()

    def start(self, *, wait: bool = True) -> None:
        """Start it, and wait until it listens."""
        self._ports.unlink(missing_ok=True)
        argv: list[str | Path] = [*self._program, "run", "-c", self._config]
        argv += ["--ports-file", self._ports]
        with self.log.open("ab") as log:
            if self._command:
                whole = (*self._command, sys.executable, *argv)
                self._process = subprocess.Popen(whole, stdin=DEVNULL, stdout=log, stderr=log)
            else:
                self._process = Forked(*argv, stdin=DEVNULL, stdout=log, stderr=log)
        if wait:
            self.wait()

    def wait(self) -> None:
        """Wait until it listens."""
        deadline = time.monotonic() + START_SECONDS
        while not self.listens:
            assert self.running, self.log.read_text()[-3_000:]
            assert time.monotonic() < deadline, self.log.read_text()[-3_000:]
            time.sleep(0.05)
        ports: dict[str, Any] = json.loads(self._ports.read_text())
        self.url = f"noise://{ports['noise']}"

    def kill(self) -> None:
        """End it as a crash would; harmless when repeated."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it in order."""
        self._end(signal.SIGTERM)

    def pause(self) -> None:
        """Let it do nothing until `resume`."""
        assert self._process is not None
        pause(self._process.pid)

    def resume(self) -> None:
        """Let it go on."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            if self._process.poll() is None:
                self._process.send_signal(number)
            self._process.wait(60.0)
            self._process = None
