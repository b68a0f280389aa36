"""Three real processes, each on a host of its own: one is killed, one is cut off, all publish."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from netns_support import Machine, network
from overlay_processes import MEMBER, PATIENCE_SECONDS, TRACKER, Process

NOTICED_SECONDS = 15.0
"""The configuration lets a silent link be closed after 4 s; starting a program here takes some."""

PORT = 4_100
PROGRAM = Path(__file__).with_name("overlay_client.py")


class Host:
    """One host: its node, and the program that publishes there."""

    def __init__(self, machine: Machine, directory: Path, name: str, text: str) -> None:
        self.machine = machine
        self.address = _address(machine)
        self.node = Process(directory, name, text, within=machine.command)
        self._publisher = self._start("publish")

    @property
    def identity(self) -> str:
        return self.node.identity.public_hex

    def look(self) -> dict[str, list[str]]:
        """What the node has, and to whom it is linked."""
        return self._result(self._start("look"))

    def published(self) -> dict[str, list[str]]:
        """End publishing; what was confirmed, and what may or may not be there."""
        return self._result(self._publisher)

    def stop(self) -> None:
        if self._publisher.poll() is None:
            self._publisher.kill()
            self._publisher.wait(PATIENCE_SECONDS)
        self.node.stop()

    def _start(self, what: str) -> "subprocess.Popen[str]":
        command = [*self.machine.command, sys.executable, str(PROGRAM), what]
        command += [self.node.name, self.address, self.identity]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def _result(self, program: "subprocess.Popen[str]") -> dict[str, Any]:
        said, _ = program.communicate("stop\n", PATIENCE_SECONDS)
        found: dict[str, Any] = json.loads(said)
        return found


@contextmanager
def three(directory: Path) -> Generator[tuple[Host, Host, Host]]:
    """A tracker that stores, and two members, on hosts of their own."""
    made: list[Host] = []
    with network() as space:
        try:
            machine = space.machine()
            text = TRACKER.format(name="tracker", listen=_address(machine))
            tracker = Host(machine, directory, "tracker", text)
            made.append(tracker)
            for name in "ab":
                machine = space.machine()
                text = MEMBER.format(
                    name=name,
                    listen=_address(machine),
                    tracker=tracker.address,
                    identity=tracker.identity,
                )
                made.append(Host(machine, directory, name, text))
            yield made[0], made[1], made[2]
        finally:
            for host in reversed(made):
                host.stop()


def _address(machine: Machine) -> str:
    return f"{machine.host}:{PORT}"


def within(seconds: float, true: Callable[[], bool], what: str) -> None:
    """Look until something is true."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"


@pytest.mark.long
def test_one_is_killed_and_one_is_cut_off_while_all_publish(tmp_path: Path) -> None:
    with three(tmp_path) as (tracker, a, b):
        everybody = (tracker, a, b)

        def linked() -> bool:
            return all(len(host.look()["neighbours"]) == 2 for host in everybody)

        within(PATIENCE_SECONDS, linked, "all are linked")
        a.node.kill()
        time.sleep(2.0)
        a.node.start()
        within(PATIENCE_SECONDS, linked, "all are linked again")

        b.machine.isolate()
        within(NOTICED_SECONDS, lambda: not b.look()["neighbours"], "b knows that it is alone")

        def noticed() -> bool:
            return all(b.identity not in host.look()["neighbours"] for host in (tracker, a))

        within(NOTICED_SECONDS, noticed, "the others know that b is gone")
        alone = b.look()["entries"]
        a.node.kill()
        time.sleep(1.0)
        assert len(b.look()["entries"]) > len(alone)  # clients of the one cut off go on
        a.node.start()
        b.machine.join()
        within(PATIENCE_SECONDS, linked, "all are linked after the cut")

        published = [host.published() for host in everybody]
        confirmed = Counter(entry for one in published for entry in one["confirmed"])
        unsure = Counter(entry for one in published for entry in one["unsure"])
        assert all(len(one["confirmed"]) > 100 for one in published)

        def agree() -> bool:
            found = [Counter(host.look()["entries"]) for host in everybody]
            assert all(max(one.values()) == 1 for one in found), "an entry is there twice"
            return found[0] == found[1] == found[2]

        within(PATIENCE_SECONDS, agree, "all have the same")
        has = Counter(a.look()["entries"])
        assert has >= confirmed
        assert has - confirmed <= unsure
