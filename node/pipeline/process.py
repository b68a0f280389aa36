"""Starts the Spark job of a sink as a child process; satisfies `JobLauncher` and `JobProcess`.

The job is the leader of a session of its own, so that Ctrl-C in the node's terminal reaches the
node alone and the end of the job is the end of its Java virtual machine and Python workers too.
The node holds the other end of the job's standard input: when the node is gone, however it ended,
the job reads the end of it and stops.
"""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from rillnode.actors.ports import JobLauncher
from rillnode.node.config import Config, SparkSink
from rillnode.node.pipeline.job_config import JobConfig, save_job_config
from rillnode.node.sinks import Sinks

COMMAND: Final = (sys.executable, "-m", "rillnode.node.pipeline.job")
LOG_BYTES_MAX: Final = 16_777_216
"""Size above which a job's log is set aside at the next start; one older log is kept."""
SESSION_END_SECONDS: Final = 10.0
SESSION_POLL_SECONDS: Final = 0.02


def launcher(config: Config, identity: str, address: str, sinks: Sinks) -> JobLauncher:
    """What starts the jobs of a node's sinks.

    Args:
        config: the node's configuration.
        identity: the node's Ed25519 identity, hex.
        address: `host:port` of its Noise listener.
        sinks: where the key file of each sink's job is known.
    """
    tables = {table.name: table for table in config.sink.spark}
    directory = config.data_dir / "sinks"

    def launch(
        sink: str, environment: dict[str, str], on_exit: Callable[[int], None], /
    ) -> SparkJob:
        job = job_config(tables[sink], identity, address, sinks.key_path(sink), directory / sink)
        return start_job(job, directory / f"{sink}.log", environment, on_exit)

    return launch


def job_config(
    table: SparkSink, identity: str, address: str, key_file: Path, work_dir: Path
) -> JobConfig:
    """A sink's job's configuration, from the node's."""
    host, _, port = address.rpartition(":")
    # A listener on all addresses is reached on this machine's own.
    host = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host)
    return JobConfig(
        sink=table.name,
        url=f"noise://{host}:{port}",
        node_identity=identity,
        key_file=str(key_file.absolute()),
        table_dir=str(table.table_dir.absolute()),
        checkpoint_dir=str(table.checkpoint_path.absolute()),
        work_dir=str(work_dir.absolute()),
        master=table.master,
        driver_memory=table.driver_memory,
        trigger_seconds=table.trigger_seconds,
        batch_rows_max=table.batch_rows_max,
    )


def start_job(
    config: JobConfig,
    log: Path,
    environment: Mapping[str, str],
    on_exit: Callable[[int], None],
) -> "SparkJob":
    """Start a job; `on_exit(code)` is called once on the running loop's thread.

    The configuration is written to the job's work directory. What the job and Spark print is
    appended to `log`.
    """
    work_dir = Path(config.work_dir)
    work_dir.mkdir(parents=True, exist_ok=True)
    config_file = work_dir / "job.json"
    save_job_config(config, config_file)
    _rotate(log)
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*COMMAND, str(config_file), "--watch-stdin"],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **environment},
        )
    return SparkJob(process, asyncio.get_running_loop(), on_exit)


class SparkJob:
    """A running job."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        loop: asyncio.AbstractEventLoop,
        on_exit: Callable[[int], None],
    ) -> None:
        self._process = process
        self._loop = loop
        self._on_exit = on_exit
        threading.Thread(target=self._wait, name="rillnode-job", daemon=True).start()

    @property
    def pid(self) -> int:
        """Process id; the job's session and process group have the same."""
        return self._process.pid

    def terminate(self) -> None:
        """Let the running batch finish and end the job."""
        self._process.terminate()

    def kill(self) -> None:
        """End the job, its Java virtual machine and its Python workers at once."""
        for pid in session_members(self.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _wait(self) -> None:
        code = self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._end_session(at_once=code != 0)
        with suppress(RuntimeError):  # the loop is closed: nobody is left to be told
            self._loop.call_soon_threadsafe(self._on_exit, code)

    def _end_session(self, *, at_once: bool) -> None:
        """Return when nothing of the job is left: a Java virtual machine outlives its Python.

        Who is told of the job's end may delete its directories or start it again. After a good
        end the virtual machine is given time to delete its temporary files.
        """
        patience = time.monotonic() + (0 if at_once else SESSION_END_SECONDS)
        deadline = patience + SESSION_END_SECONDS
        while session_members(self.pid) and (now := time.monotonic()) < deadline:
            if now >= patience:
                self.kill()
            time.sleep(SESSION_POLL_SECONDS)


def session_members(session: int) -> list[int]:
    """Living processes of a session. PySpark's daemons leave their group, but not their session.

    Without /proc (macOS) only the leader's group is known: its id as a negative process id, for
    as long as a process is in it.
    """
    if not Path("/proc/self/stat").exists():
        try:
            os.killpg(session, 0)
        except ProcessLookupError:
            return []
        return [-session]
    members: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                # The name in parentheses may hold anything; the fields follow the last one.
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == session and fields[0] != "Z":
                    members.append(int(entry.name))
    return members


def _rotate(log: Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
        log.replace(log.with_suffix(".log.1"))
