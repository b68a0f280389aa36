"""Nodes in processes of their own that share a stream over an overlay."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rillnode import Client, connect
from rillnode.codecs.keys import Identity
from rillnode.node.keys.files import write_key

CLIENT = Identity.from_seed(bytes(range(32)))
PATIENCE_SECONDS = 120.0

COMMON = """
name = "{name}"
data_dir = "{name}"
[noise]
listen = "{listen}"
idle_ping_seconds = 1.0
idle_close_seconds = 4.0
[http]
enabled = false
[[grant]]
who = "noise:*"
streams = "*"
may = ["create", "push", "pull", "subscribe", "admin"]
[[stream]]
name = "readings"
"""
TRACKER = (
    COMMON
    + """
[tracker]
enabled = true
[overlay]
storage = true
"""
)
MEMBER = (
    COMMON
    + """
[overlay]
trackers = ["tracker"]
[[peer]]
name = "tracker"
noise = "{tracker}"
identity = "{identity}"
"""
)


class Process:
    """One node in a process of its own.

    Args:
        directory: where its files are.
        name: its name; its key follows from it.
        text: its configuration.
        within: the command that its own is given to, such as one that enters a namespace.
    """

    def __init__(
        self, directory: Path, name: str, text: str, *, within: Sequence[str] = ()
    ) -> None:
        self.name = name
        self._within = within
        self._config = directory / f"{name}.toml"
        self._config.write_text(text)
        self._ports = directory / f"{name}.ports"
        self.identity = Identity.from_seed(name.encode().ljust(32, b"."))
        write_key(directory / name / "identity.key", self.identity)
        self.start()

    def start(self) -> None:
        """Start it, and wait until it listens."""
        self._ports.unlink(missing_ok=True)
        command = [*self._within, sys.executable, "-m", "rillnode", "run", "-c", str(self._config)]
        command += ["--ports-file", str(self._ports)]
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_until(self._ports.exists)
        self.address: str = json.loads(self._ports.read_text())["noise"]

    def kill(self) -> None:
        """Kill it, as nothing that it could prepare for."""
        self._process.kill()
        self._process.wait(PATIENCE_SECONDS)

    def stop(self) -> None:
        """Let it drain and end."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(PATIENCE_SECONDS)

    async def connect(self) -> Client:
        """A client of this node."""
        return await connect(
            f"noise://{self.address}", identity=CLIENT, node_identity=self.identity.public_hex
        )


def wait_until(true: Callable[[], bool]) -> None:
    """Look until something is true."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.05)
