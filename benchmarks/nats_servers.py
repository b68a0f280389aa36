"""NATS servers as a node's store asks for them: one, or three of which any two are enough."""

import json
import re
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final
from urllib.request import urlopen

from benchmarks.processes import Process, cpu_seconds, free_port
from benchmarks.servers import program_path

_PROFILE_SECONDS_MAX: Final = 30.0


class NatsServers:
    """Running servers.

    Attributes:
        ports: where clients connect.
        monitors: where a node asks whether they sync.
        directories: where each keeps its data.
    """

    def __init__(
        self,
        starts: Sequence[Callable[[], Process]],
        ports: Sequence[int],
        monitors: Sequence[str],
        profilers: Sequence[int],
        directories: Sequence[Path],
        stack: ExitStack,
    ) -> None:
        self.directories = directories
        self._stack = stack
        self._starts = starts
        self._processes = [stack.enter_context(start()) for start in starts]
        self.ports = ports
        self.monitors = monitors
        self._profilers = profilers

    @property
    def urls(self) -> list[str]:
        """Where clients connect."""
        return [f"nats://127.0.0.1:{port}" for port in self.ports]

    @property
    def pid(self) -> int:
        """The process of the first one."""
        return self._processes[0].pid

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes of all."""
        return tuple(process.pid for process in self._processes)

    def wait(self) -> None:
        """Wait until all listen."""
        for process, port in zip(self._processes, self.ports, strict=True):
            process.wait_for_port(port)

    def kill(self, number: int) -> None:
        """End one as a crash would."""
        self._processes[number].kill()

    def start(self, number: int) -> None:
        """Start one again, on what it has stored, and wait until it listens."""
        process = self._processes[number] = self._stack.enter_context(self._starts[number]())
        process.wait_for_port(self.ports[number])

    def client_messages(self, name: str) -> tuple[int, int]:
        """Messages that clients of a name have sent, and been sent, on open connections."""
        sent = received = 0
        for monitor in self.monitors:
            with urlopen(f"{monitor}/connz", timeout=_PROFILE_SECONDS_MAX) as answer:
                for one in json.load(answer)["connections"]:
                    if one.get("name", "") == name:
                        sent, received = sent + one["in_msgs"], received + one["out_msgs"]
        return sent, received

    def requests(self) -> int:
        """Questions to JetStream's interface that they have answered, whoever has asked."""
        found = 0
        for monitor in self.monitors:
            with urlopen(f"{monitor}/jsz", timeout=_PROFILE_SECONDS_MAX) as answer:
                found += json.load(answer)["api"]["total"]
        return found

    def cpu_seconds(self) -> float:
        """Processor time that all have used so far."""
        return sum(cpu_seconds(process.pid) for process in self._processes)

    def rss_bytes(self) -> int:
        """Resident memory of all now."""
        return sum(process.rss_bytes() for process in self._processes)

    def live_bytes(self) -> int:
        """What all have in use now; collects their garbage, which is most of what they hold."""
        return sum(map(_live_bytes, self._profilers))


@contextmanager
def start_nats_servers(directory: Path, count: int) -> Generator[NatsServers]:
    """Run so many servers that sync every write to files, in a cluster where they are several."""
    ports = [free_port() for _ in range(count)]
    routes = [free_port() for _ in range(count)]
    profilers = [free_port() for _ in range(count)]
    monitors = [f"127.0.0.1:{free_port()}" for _ in range(count)]
    others = json.dumps([f"nats://127.0.0.1:{port}" for port in routes])
    with ExitStack() as stack:
        starts: list[Callable[[], Process]] = []
        homes = [directory / f"nats-{number}" for number in range(count)]
        for number, (home, port, route) in enumerate(zip(homes, ports, routes, strict=True)):
            home.mkdir(parents=True)
            store = f"store_dir: {json.dumps(str(home / 'data'))}, sync_interval: always"
            lines = [
                f"server_name: n{number}",
                f'listen: "127.0.0.1:{port}"',
                f'http: "{monitors[number]}"',
                "max_payload: 8388608",
                f"prof_port: {profilers[number]}",
                f"jetstream {{ {store} }}",
            ]
            if count > 1:
                cluster = f'name: bench, listen: "127.0.0.1:{route}", routes: {others}'
                lines.append(f"cluster {{ {cluster} }}")
            config = home / "nats.conf"
            config.write_text("\n".join(lines) + "\n")
            command = [program_path("nats-server"), "-c", str(config)]
            starts.append(partial(Process, command, home / "nats.log"))
        shown = [f"http://{monitor}" for monitor in monitors]
        servers = NatsServers(starts, ports, shown, profilers, homes, stack)
        servers.wait()
        yield servers


def _live_bytes(profiler: int) -> int:
    url = f"http://127.0.0.1:{profiler}/debug/pprof/heap?debug=1&gc=1"
    with urlopen(url, timeout=_PROFILE_SECONDS_MAX) as answer:
        found = re.search(rb"# HeapAlloc = (\d+)", answer.read())
    assert found is not None
    return int(found[1])
