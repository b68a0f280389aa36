"""Machines that are network namespaces on one bridge: tests cut and slow the links between them."""

import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

_NETEM = ("netem", "delay", "60ms", "30ms", "loss", "2%")
_TBF = ("tbf", "rate", "512kbit", "burst", "16kb", "latency", "500ms")


class Machine:
    """One namespace with one link to the bridge.

    Attributes:
        host: its address.
        command: what runs a program in it.
    """

    def __init__(self, network: "Network", number: int) -> None:
        self._space = f"{network.name}m{number}"
        self._outer, self._inner = f"{network.name}o{number}", f"{network.name}i{number}"
        self.host = f"{network.prefix}.{number}"
        self.command = ("ip", "netns", "exec", self._space)
        self._bridge = network.name

    def make(self) -> None:
        """The namespace, and its link."""
        _ip("netns", "add", self._space)
        _ip("link", "add", self._outer, "type", "veth", "peer", "name", self._inner)
        _ip("link", "set", self._outer, "master", self._bridge, "up")
        _ip("link", "set", self._inner, "netns", self._space)
        self._inside("address", "add", f"{self.host}/24", "dev", self._inner)
        for device in ("lo", self._inner):
            self._inside("link", "set", device, "up")

    def isolate(self) -> None:
        """Lose all that comes and goes, without a word to anybody."""
        _ip("link", "set", self._outer, "down")

    def join(self) -> None:
        """The end of `isolate`."""
        _ip("link", "set", self._outer, "up")

    def lose(self, other: "Machine") -> None:
        """Lose all between this machine and another one, in both directions."""
        self._inside("route", "add", "blackhole", f"{other.host}/32")
        other._inside("route", "add", "blackhole", f"{self.host}/32")

    def find(self, other: "Machine") -> None:
        """The end of `lose`."""
        self._inside("route", "del", "blackhole", f"{other.host}/32")
        other._inside("route", "del", "blackhole", f"{self.host}/32")

    def slow(self) -> None:
        """Delay and lose packets; where the kernel cannot, let only few through."""
        for discipline in (_NETEM, _TBF):
            if _tc("add", self._outer, *discipline) == 0:
                return
        pytest.skip("the kernel has neither netem nor tbf, with which links are made slow")

    def fast(self) -> None:
        """The end of `slow`."""
        _tc("del", self._outer)

    def remove(self) -> None:
        """The link goes, and the namespace, as far as they were made."""
        # The namespace would take the link along, but later: a next one of this name may be first.
        for words in (("link", "del", self._outer), ("netns", "del", self._space)):
            with suppress(subprocess.CalledProcessError):
                _ip(*words)

    def _inside(self, *words: str) -> None:
        _ip("-n", self._space, *words)


class Network:
    """A bridge of its own, which has this process on it, too.

    Attributes:
        name: the bridge's; the names of all else begin with it.
        prefix: of all addresses.
    """

    def __init__(self) -> None:
        number = os.getpid() % 65_536
        self.name = f"rn{number:x}"
        self.prefix = f"10.{128 + number // 512}.{number % 256}"
        self._machines: list[Machine] = []
        _ip("link", "add", self.name, "type", "bridge")
        _ip("address", "add", f"{self.prefix}.254/24", "dev", self.name)
        _ip("link", "set", self.name, "up")

    def machine(self) -> Machine:
        """One more machine."""
        machine = Machine(self, len(self._machines) + 1)
        self._machines.append(machine)
        machine.make()
        return machine

    def remove(self) -> None:
        """Everything goes."""
        for machine in self._machines:
            machine.remove()
        _ip("link", "del", self.name)


@contextmanager
def network() -> Generator[Network]:
    """A network within the block; skips where this process may not make one."""
    try:
        made = Network()
    except (OSError, subprocess.CalledProcessError) as error:
        reason = error.stderr if isinstance(error, subprocess.CalledProcessError) else error
        pytest.skip(f"network namespaces cannot be made here: {reason}")
    try:
        yield made
    finally:
        made.remove()


@contextmanager
def small_disk(directory: Path, mebibytes: int) -> Generator[Path]:
    """A file system of its own in memory; skips where this process may not mount one."""
    directory.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "none", str(directory)]
    try:
        subprocess.run(mount, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system can be mounted here: {error}")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def _tc(verb: str, device: str, *discipline: str) -> int:
    command = ["tc", "qdisc", verb, "dev", device, "root", *discipline]
    return subprocess.run(command, capture_output=True, check=False).returncode
