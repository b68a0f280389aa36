"""The command line: verbs carried out here, and nodes and verbs in processes of their own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fake_client import Screen
from forked import Forked, finished
from rillnode.node.cli import main

LIMIT_SECONDS = 300.0


def rillnode(*argv: str | Path) -> list[str]:
    """How a process of its own is started that carries out a verb."""
    return [sys.executable, "-m", "rillnode", *map(str, argv)]


def begun(*argv: str | Path, **options: Any) -> Forked:
    """A process of its own that carries out a verb."""
    return Forked("-m", "rillnode", *argv, **options)


def call(*argv: str | Path, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    """Carry out a verb in this process; `run` gets one of its own, whose signals it takes."""
    environ = {key: value for key, value in os.environ.items() if "RILLNODE" not in key}
    if argv[0] == "run":
        return finished("-m", "rillnode", *argv, env=environ, timeout=LIMIT_SECONDS)
    screen = Screen(stdin, environ=environ)
    code = main([*map(str, argv)], screen.terminal)
    return subprocess.CompletedProcess(argv, code, screen.out_bytes, screen.err.encode())


def lines(answer: "subprocess.CompletedProcess[bytes]") -> list[dict[str, Any]]:
    """The rows that a verb has printed, which must have ended well."""
    assert answer.returncode == 0, answer.stderr.decode()
    return [json.loads(line) for line in answer.stdout.splitlines()]


def printed(*argv: str | Path, code: int = 0) -> str:
    """What a verb prints that ends with this code: its messages, if that is a failure's."""
    done = call(*argv)
    assert done.returncode == code, done.stderr.decode()
    return done.stdout.decode() if code == 0 else done.stderr.decode()


def wait_for(condition: Callable[[], bool], process: "Forked | subprocess.Popen[bytes]") -> None:
    """Wait for something that a process does before it ends."""
    end = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert process.poll() is None, "the process ended early"
        assert time.monotonic() < end, "this took too long"
        time.sleep(0.02)


class RunningNode:
    """A node in a process of its own, and how its clients reach it.

    Attributes:
        home: the directory of its configuration; the first node there makes its keys.
        ports: where it listens, and its identity.
        options: those with which a verb reaches it.
    """

    def __init__(self, config: Path, *options: str | Path, http: bool = False) -> None:
        self.home = config.parent
        if not config.exists():
            printed("init", self.home)
        ports = config.with_suffix(".ports")
        ports.unlink(missing_ok=True)  # of one that was killed
        self.log = config.with_suffix(".log")
        argv = (
            "run", "-c", config, "--ports-file", ports, "--set", "noise.listen=127.0.0.1:0",
            "--set", "http.listen=127.0.0.1:0" if http else "http.enabled=false", *options,
        )  # fmt: skip
        with self.log.open("wb") as log:
            self.process = begun(*argv, stdout=log, stderr=log)
        try:
            wait_for(ports.exists, self.process)
        except AssertionError as error:
            raise AssertionError(self.log.read_text()) from error
        self.ports: dict[str, str] = json.loads(ports.read_text())
        self.options = ["-c", str(config), "--node", f"noise://{self.ports['noise']}"]

    def stop(self) -> None:
        """End it in order."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(LIMIT_SECONDS) == 0, self.log.read_text()

    def kill(self) -> None:
        """End it at once, if it has not ended."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
