"""Network namespaces that tests make themselves: hosts at one switch, whose links can be cut."""

import os
import shutil
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager

import pytest

PREFIX = "10.77.0"


class Switch:
    """A switch and its hosts, each a namespace; nothing leads out of it."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self._run = f"rill{os.getpid()}"
        self._hosts = {name: number for number, name in enumerate(hosts, 1)}

    def build(self) -> None:
        """Make it."""
        switch = self._namespace("switch")
        _ip("netns", "add", switch)
        _ip("-n", switch, "link", "add", "name", "bridge", "type", "bridge")
        _ip("-n", switch, "link", "set", "dev", "bridge", "up")
        for name in self._hosts:
            host = self._namespace(name)
            _ip("netns", "add", host)
            _ip("-n", host, "link", "set", "dev", "lo", "up")
            end = ("peer", "name", "wire", "netns", host)
            _ip("-n", switch, "link", "add", "name", name, "type", "veth", *end)
            _ip("-n", switch, "link", "set", "dev", name, "master", "bridge")
            _ip("-n", host, "addr", "add", f"{self.address(name)}/24", "dev", "wire")
            _ip("-n", host, "link", "set", "dev", "wire", "up")
            self.heal(name)

    def remove(self) -> None:
        """Take it apart; what was not made is passed over."""
        for name in (*self._hosts, "switch"):
            subprocess.run(["ip", "netns", "del", self._namespace(name)], capture_output=True)

    def address(self, name: str) -> str:
        """A host's address."""
        return f"{PREFIX}.{self._hosts[name]}"

    def within(self, name: str) -> list[str]:
        """What a command is given to, so that it runs on a host."""
        return ["ip", "netns", "exec", self._namespace(name)]

    def cut(self, name: str) -> None:
        """Take a host's link down at the switch: the host itself is told of nothing."""
        _ip("-n", self._namespace("switch"), "link", "set", "dev", name, "down")

    def heal(self, name: str) -> None:
        """Take a host's link up."""
        _ip("-n", self._namespace("switch"), "link", "set", "dev", name, "up")

    def _namespace(self, name: str) -> str:
        return f"{self._run}-{name}"


@contextmanager
def switch(*hosts: str) -> Generator[Switch]:
    """A switch with hosts; the test is skipped where that is not permitted."""
    if shutil.which("ip") is None:
        pytest.skip("network namespaces need iproute2")
    probe = f"rill{os.getpid()}-probe"
    permitted = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True)
    if permitted.returncode:
        pytest.skip(f"network namespaces cannot be made here: {permitted.stderr.strip()}")
    subprocess.run(["ip", "netns", "del", probe], check=True)
    made = Switch(hosts)
    try:
        made.build()
        yield made
    finally:
        made.remove()


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)
