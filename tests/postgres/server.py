"""A PostgreSQL server of the tests' own, with its data in a directory of its own."""

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import asyncpg
import pytest

from pausing import pause
from rillnode.actors.postgres.blobs import PostgresBlobs
from rillnode.actors.postgres.log import PostgresLog
from rillnode.actors.postgres.servers import PostgresOptions, Servers
from rillnode.node.testing.contract.ports import free_port

START_SECONDS: Final = 60.0
PASSWORD: Final = "of-the-tests"

_PROGRAMS: Final = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
"""Of each version that Debian's packages have installed."""

_AS_OTHER: Final = () if os.getuid() else ("setpriv", "--reuid=nobody", "--regid=nogroup",
                                           "--clear-groups")  # fmt: skip
"""PostgreSQL refuses to run as root."""

needs_postgres = pytest.mark.skipif(
    not _PROGRAMS, reason="no PostgreSQL: tests/postgres/install.sh installs it"
)


class PostgresServer:
    """One server; it keeps its port and its data over restarts.

    Attributes:
        url: where to connect as the owner of everything, without the password.
    """

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self.url = f"postgresql://rillnode@127.0.0.1:{self.port}/postgres?sslmode=disable"
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        if _AS_OTHER:
            shutil.chown(directory, "nobody", "nogroup")
        password = directory / "password"
        password.write_text(PASSWORD)
        self._run("initdb", "--pgdata", str(directory / "data"), "--username=rillnode",
                  "--auth=scram-sha-256", f"--pwfile={password}", "--encoding=UTF8",
                  "--no-locale")  # fmt: skip

    def start(self) -> None:
        """Start, and wait until clients are answered."""
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*_AS_OTHER, _PROGRAMS[-1] / "postgres", "-D", self._directory / "data",
                 "-p", str(self.port), "-c", "listen_addresses=127.0.0.1",
                 "-c", "unix_socket_directories="],
                stdout=log, stderr=log, cwd="/",
            )  # fmt: skip
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                self.query("SELECT 1")
                return
            except (OSError, asyncpg.PostgresError):
                assert self._process.poll() is None, (self._directory / "log").read_text()
                assert time.monotonic() < deadline, "PostgreSQL does not answer"
            time.sleep(0.05)

    def kill(self) -> None:
        """End all of its processes as a crash would."""
        if self._process is not None:
            pause(self._process.pid)  # it makes no others from here on
            processes = [self._process.pid, *self._children()]
            for process in processes:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            self._process.wait(START_SECONDS)
            self._process = None
            # The next server refuses to start beside one that is left.
            deadline = time.monotonic() + START_SECONDS
            while any(map(_is_alive, processes)):
                assert time.monotonic() < deadline, "PostgreSQL does not end"
                time.sleep(0.01)

    @contextmanager
    def paused(self) -> Generator[None]:
        """Within the block it answers nothing, and keeps its connections."""
        assert self._process is not None
        # The one that makes others comes first.
        pause(self._process.pid)
        stopped = [self._process.pid, *self._children()]
        for process in stopped[1:]:
            pause(process)
        try:
            yield
        finally:
            for process in stopped:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGCONT)

    def query(self, query: str, *arguments: object) -> list[Any]:
        """The rows of a query of its administrator's."""

        async def run() -> list[Any]:
            connection = await asyncpg.connect(self.url, password=PASSWORD, timeout=5.0)
            try:
                return [tuple(row) for row in await connection.fetch(query, *arguments)]
            finally:
                await connection.close()

        return asyncio.run(run())

    def _run(self, program: str, *arguments: str) -> None:
        command = [*_AS_OTHER, str(_PROGRAMS[-1] / program), *arguments]
        subprocess.run(command, check=True, capture_output=True, cwd="/")

    def _children(self) -> list[int]:
        assert self._process is not None
        found: list[int] = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                # The name before may hold anything, spaces and brackets too.
                if int(stat.read_text().rpartition(")")[2].split()[1]) == self._process.pid:
                    found.append(int(stat.parent.name))
        return found


def _is_alive(process: int) -> bool:
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@contextmanager
def running_postgres() -> Generator[PostgresServer]:
    """A server within the block, which may also kill and start it."""
    # Not in a directory of pytest's: those are closed to other users.
    with tempfile.TemporaryDirectory(prefix="rillnode-postgres-") as directory:
        server = PostgresServer(Path(directory))
        server.start()
        try:
            yield server
        finally:
            server.kill()


def options_of(server: PostgresServer, schema: str) -> PostgresOptions:
    """Those of a client that soon notices that nobody answers."""
    url = server.url.replace("@", f":{PASSWORD}@")
    return PostgresOptions(urls=(url,), schema=schema, answer_seconds_max=1.0)


def client_of(options: PostgresOptions) -> tuple[PostgresLog, PostgresBlobs]:
    """A client that is not open yet."""
    servers = Servers(options)
    return PostgresLog(servers), PostgresBlobs(servers)


class PostgresSite:
    """A PostgreSQL server, as the tests of all engines ask for one."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self._made = 0

    @property
    def schema(self) -> str:
        return f"log_{self._made}"

    def make(self) -> tuple[PostgresLog, PostgresBlobs]:
        self._made += 1
        return self.again()

    def again(self) -> tuple[PostgresLog, PostgresBlobs]:
        return client_of(options_of(self.server, self.schema))

    def damage(self, name: str) -> None:
        self.server.query(
            f"UPDATE {self.schema}.blobs SET data = set_byte(data, 7, get_byte(data, 7) # 255)"
            " WHERE name = $1",
            name,
        )

    @contextmanager
    def stalled(self) -> Generator[None]:
        with self.server.paused():
            yield

    def crash(self) -> None:
        self.server.kill()
        self.server.start()


@contextmanager
def start_postgres(_: Path) -> Generator[PostgresSite]:
    """Start the engine for the tests of all engines."""
    with running_postgres() as server:
        yield PostgresSite(server)
