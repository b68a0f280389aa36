"""Starts the jobs of sinks as child processes; satisfies `JobLauncher` and `JobProcess`.

Spark jobs with the same settings share one process, a Spark application.

The process is the leader of a session of its own, so that Ctrl-C in the node's terminal reaches the
node alone and the end of the job is the end of its Java virtual machine and Python workers too.
The node holds the other end of the job's standard input: when the node is gone, however it ended,
the job reads the end of it and stops.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final

import msgspec

from rillnode.actors.core.threads import SYSTEM_THREADS, Threads
from rillnode.actors.ports import JobLauncher, JobProcess
from rillnode.actors.spark.sink_job import no_start
from rillnode.node.config import Config
from rillnode.node.spark.config import application_of, sinks_of
from rillnode.node.spark.configuring import application_config, job_config
from rillnode.node.spark.job_config import (
    AnyJobConfig,
    ApplicationConfig,
    Command,
    Ended,
    ExportConfig,
    JobConfig,
    PythonJobConfig,
    save_job_config,
)
from rillnode.node.spark.jobs import FAILURE_PREFIX

COMMANDS: Final[dict[type, Sequence[str]]] = {
    JobConfig: (sys.executable, "-m", "rillnode.node.spark.job"),
    PythonJobConfig: (sys.executable, "-m", "rillnode.node.spark.landing"),
    ExportConfig: (sys.executable, "-m", "rillnode.node.spark.export"),
}
"""What runs a job, by the type of its configuration."""
LOG_BYTES_MAX: Final = 16_777_216
"""Size above which a job's log is set aside at the next start; one older log is kept."""
WORDS_BYTES_MAX: Final = 16_384
"""How much of the end of a job's log is looked through for its last words."""
WORD_CHARACTERS_MAX: Final = 1_000
SESSION_END_SECONDS: Final = 10.0
SESSION_POLL_SECONDS: Final = 0.02


def launcher(
    config: Config,
    identity: str,
    address: str,
    key_path: Callable[[str], Path],
    threads: Threads,
) -> JobLauncher:
    """What starts the jobs of a node's sinks.

    Args:
        config: the node's configuration.
        identity: the node's Ed25519 identity, hex.
        address: `host:port` of its Noise listener.
        key_path: where the job of a sink finds its key.
        threads: make the one that waits for a job's end.
    """
    tables = {table.name: table for table in sinks_of(config).all}
    directory = config.data_dir / "sinks"
    applications: dict[str, Application] = {}

    def launch(
        sink: str, environment: dict[str, str], on_exit: Callable[[int], None], /
    ) -> JobProcess:
        table, key_file, work_dir = tables[sink], key_path(sink), directory / sink
        job = job_config(config, table, identity, address, key_file, work_dir)
        name = application_of(config, sink)
        log = directory / f"{name}.log"
        try:
            if not isinstance(job, JobConfig):
                return start_job(job, log, environment, on_exit, threads)
            if name not in applications:
                shared = application_config(job, name, directory / name)
                applications[name] = Application(shared, log, threads)
            return applications[name].start(job, environment, on_exit)
        except OSError as error:
            raise no_start(directory, error) from error

    return launch


def start_job(
    config: AnyJobConfig,
    log: Path,
    environment: Mapping[str, str],
    on_exit: Callable[[int], None],
    threads: Threads = SYSTEM_THREADS,
) -> "SparkJob":
    """Start a job; `on_exit(code)` is called once on the running loop's thread.

    The configuration is written to the job's work directory. What the job and Spark print is
    appended to `log`.

    Raises:
        OSError: its files cannot be written, or no process can be made.
    """
    command = [*COMMANDS[type(config)], str(_saved(config, "job.json")), "--watch-stdin"]
    return _start(command, log, environment, on_exit, threads)


def _saved(config: AnyJobConfig | ApplicationConfig, name: str) -> Path:
    """Write a configuration where the job's files are."""
    work_dir = Path(config.work_dir)
    work_dir.mkdir(parents=True, exist_ok=True)
    save_job_config(config, work_dir / name)
    return work_dir / name


def _start(
    command: Sequence[str],
    log: Path,
    environment: Mapping[str, str],
    on_exit: Callable[[int], None],
    threads: Threads,
    pass_fds: Sequence[int] = (),
) -> "SparkJob":
    _rotate(log)
    with log.open("ab") as output:
        log_start = output.tell()
        process = subprocess.Popen(
            command,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **environment},
            pass_fds=pass_fds,
        )
    return SparkJob(process, (log, log_start), asyncio.get_running_loop(), on_exit, threads)


class Application:
    """The Spark application of all sinks with the same Spark settings.

    A process runs it while there are jobs. With the last of them it ends, and the next job has a
    new one. All of it happens on the node's loop.

    Args:
        config: the application's.
        log: where its output is appended.
        threads: make those that wait for its process and for what it tells.
    """

    def __init__(self, config: ApplicationConfig, log: Path, threads: Threads) -> None:
        self._config = config
        self._log = log
        self._threads = threads
        self._host: _Host | None = None

    def start(
        self, config: JobConfig, environment: Mapping[str, str], on_exit: Callable[[int], None]
    ) -> "HostedJob":
        """Start a job, as `start_job` does.

        Raises:
            OSError: its files cannot be written, or no process can be made.
        """
        config_file = _saved(config, "job.json")
        if self._host is None or self._host.is_ending:
            saved = _saved(self._config, "application.json")
            self._host = _Host(saved, self._log, environment, self._threads)
        return self._host.run(config_file, on_exit)


class _Host:
    """A process of an application, from its start to its end."""

    def __init__(
        self, config_file: Path, log: Path, environment: Mapping[str, str], threads: Threads
    ) -> None:
        self.is_ending = False
        self._jobs: dict[int, HostedJob] = {}
        self._numbers = count(1)
        self._loop = asyncio.get_running_loop()
        reading, writing = os.pipe()
        command = (*COMMANDS[JobConfig], str(config_file), "--report-to", str(writing))
        try:
            self.process = _start(command, log, environment, self._ended, threads, [writing])
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        threads.start(lambda: self._listen(reading), "rillnode-application")

    def run(self, config_file: Path, on_exit: Callable[[int], None]) -> "HostedJob":
        """Have a job run."""
        number = next(self._numbers)
        job = self._jobs[number] = HostedJob(self, number, on_exit)
        self.tell(Command(start=number, config=str(config_file)))
        return job

    def tell(self, command: Command) -> None:
        """Tell the process something; one that has ended tells of itself."""
        self.process.tell(msgspec.json.encode(command) + b"\n")

    def _listen(self, reading: int) -> None:
        with os.fdopen(reading, "rb") as lines, suppress(RuntimeError):  # the loop is closed
            for line in lines:
                ended = msgspec.json.decode(line, type=Ended)
                self._loop.call_soon_threadsafe(self._job_ended, ended)

    def _job_ended(self, ended: Ended) -> None:
        job = self._jobs.get(ended.ended)
        if job is None:
            return
        job.outcome = ended
        if all(one.outcome is not None for one in self._jobs.values()):
            # Who is told of the last job's end is told when nothing of the process is left.
            self.is_ending = True
            self.process.let_end()
        else:
            del self._jobs[ended.ended]
            job.end(ended.code, ended.words)

    def _ended(self, code: int) -> None:
        """The process has ended: so have all jobs that it still had."""
        self.is_ending = True
        jobs, self._jobs = self._jobs, {}
        for job in jobs.values():
            if job.outcome is not None:
                job.end(job.outcome.code, job.outcome.words)
            else:
                job.end(code, self.process.last_words)


class HostedJob:
    """A job that an application runs; satisfies `JobProcess`.

    Attributes:
        last_words: why it ended, in one line; set before `on_exit` is called.
        outcome: how it has ended, as soon as the application has told.
    """

    def __init__(self, host: _Host, number: int, on_exit: Callable[[int], None]) -> None:
        self._host = host
        self._number = number
        self._on_exit = on_exit
        self.last_words = ""
        self.outcome: Ended | None = None

    @property
    def pid(self) -> int:
        """Process id of the application."""
        return self._host.process.pid

    def terminate(self) -> None:
        """Let the running batch finish and end the job."""
        self._host.tell(Command(stop=self._number))

    def kill(self) -> None:
        """End the application at once, with all of its jobs."""
        self._host.process.kill()

    def end(self, code: int, words: str) -> None:
        """Tell who has started it that it has ended."""
        self.last_words = words
        self._on_exit(code)


class SparkJob:
    """A running job.

    Args:
        log: where its output is appended, and how long that was before.

    Attributes:
        last_words: why it ended, in one line; set before `on_exit` is called.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        log: tuple[Path, int],
        loop: asyncio.AbstractEventLoop,
        on_exit: Callable[[int], None],
        threads: Threads,
    ) -> None:
        self._process = process
        self._log = log
        self._loop = loop
        self._on_exit = on_exit
        self.last_words = ""
        threads.start(self._wait, "rillnode-job")

    @property
    def pid(self) -> int:
        """Process id; the job's session and process group have the same."""
        return self._process.pid

    def terminate(self) -> None:
        """Let the running batch finish and end the job."""
        self._process.terminate()

    def tell(self, line: bytes) -> None:
        """Write a line to its standard input; one that has ended reads nothing any more."""
        if self._process.stdin is not None:
            with suppress(BrokenPipeError, ValueError):
                self._process.stdin.write(line)

    def let_end(self) -> None:
        """End its standard input: it ends with it."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    def kill(self) -> None:
        """End the job, its Java virtual machine and its Python workers at once."""
        for pid in session_members(self.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _wait(self) -> None:
        code = 1
        self.last_words = "nobody knows any more how the job is: see the node's log"
        try:
            code = self._process.wait()
            if self._process.stdin is not None:
                self._process.stdin.close()
            self._end_session(at_once=code != 0)
            self.last_words = reason(code, last_words(*self._log)) if code else ""
        finally:  # whatever has ended this thread, the sink does not wait for ever
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


def reason(code: int, words: str) -> str:
    """Why a job has ended, of its exit code and its last words; one that was killed has no say."""
    if code >= 0:
        return words
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    text = f"the job was killed by {name}"
    if code == -signal.SIGKILL:
        text += ", as a system short of memory does: compare driver_memory with what it has"
    return f"{text} [job.killed]"


def last_words(log: Path, start: int) -> str:
    """The last thing that a job has said, from byte `start` of its log on: its error, if any."""
    try:
        with log.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(start, end - WORDS_BYTES_MAX))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    said = [line.strip() for line in lines if line.strip()]
    errors = [line for line in said if line.startswith(FAILURE_PREFIX)]
    text = errors[-1].removeprefix(FAILURE_PREFIX) if errors else said[-1] if said else ""
    return text[:WORD_CHARACTERS_MAX]


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
