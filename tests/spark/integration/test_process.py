import asyncio
import signal
import sys
import time
from pathlib import Path

import pytest

from rillnode.actors.core.threads import SYSTEM_THREADS, SystemThreads
from rillnode.node.config import Config, Location
from rillnode.node.spark import process
from rillnode.node.spark.config import SparkSink
from rillnode.node.spark.configuring import application_config, job_config
from rillnode.node.spark.job_config import JobConfig, read_config
from rillnode.node.spark.process import (
    Application,
    SparkJob,
    session_members,
    start_job,
)
from rillnode.node.testing.contract.stores.driver import wait_until


def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Have `script` run in the place of the job's module."""
    path = tmp_path / "stand_in.py"
    path.write_text(script)
    monkeypatch.setitem(process.COMMANDS, JobConfig, (sys.executable, str(path)))


def sample_config(tmp_path: Path) -> JobConfig:
    table = SparkSink(name="bronze", streams=("s*",), table_dir=Location(tmp_path / "table"))
    paths = (tmp_path / "key", tmp_path / "work")
    job = job_config(Config(name="a"), table, "ab" * 32, "0.0.0.0:4100", *paths)
    assert isinstance(job, JobConfig)
    return job


HOST = """
import json, os, sys
tell = int(sys.argv[sys.argv.index("--report-to") + 1])
for line in sys.stdin:
    print(line.strip(), flush=True)
    command = json.loads(line)
    if "{dies}":
        os.kill(os.getpid(), 9)
    if "stop" in command:
        ended = {{"ended": command["stop"], "code": 3, "words": "no room"}}
        os.write(tell, json.dumps(ended).encode() + b"\\n")
"""


class Exit:
    """Waits for `on_exit`, and counts its calls."""

    def __init__(self) -> None:
        self.codes: list[int] = []
        self.event = asyncio.Event()

    def __call__(self, code: int) -> None:
        self.codes.append(code)
        self.event.set()

    async def wait(self) -> list[int]:
        await asyncio.wait_for(self.event.wait(), 120)
        return self.codes


def start(tmp_path: Path, on_exit: Exit, **environment: str) -> SparkJob:
    return start_job(sample_config(tmp_path), tmp_path / "bronze.log", environment, on_exit)


async def wait_for_text(path: Path, text: str) -> None:
    deadline = time.monotonic() + 120
    while text not in path.read_text():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def test_a_job_is_told_how_to_reach_the_node_on_this_machine(tmp_path: Path) -> None:
    config = sample_config(tmp_path)
    assert config.url == "noise://127.0.0.1:4100"
    assert config.checkpoint_dir == str(tmp_path / "table" / "_checkpoints" / "bronze")
    assert not config.fail_on_data_loss


def test_a_job_runs_with_its_configuration_log_and_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(
        tmp_path,
        monkeypatch,
        "import os, sys; print(sys.argv[1:], os.environ['EXTRA'], os.getsid(0) == os.getpid());"
        "sys.exit(7)",
    )

    async def scenario() -> None:
        on_exit = Exit()
        start(tmp_path, on_exit, EXTRA="value")
        assert await on_exit.wait() == [7]

    asyncio.run(scenario())
    config_file = tmp_path / "work" / "job.json"
    assert read_config(config_file, JobConfig) == sample_config(tmp_path)
    expected = f"{[str(config_file), '--watch-stdin']} value True\n"
    assert (tmp_path / "bronze.log").read_text() == expected


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
            "the job was killed by SIGTERM [job.killed]",
        ),
        (
            "print('trace'); print('job failed: no Java [job.java]'); print('bye')",
            "no Java [job.java]",
        ),
        ("print('Traceback'); print('  KeyError: 5'); print()", "KeyError: 5"),
        ("print('x' * 5_000)", "x" * 1_000),
        ("pass", ""),
    ],
)
def test_a_job_tells_why_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, words: str
) -> None:
    stand_in(tmp_path, monkeypatch, f"{script}; import sys; sys.exit(1)")
    (tmp_path / "bronze.log").write_text("job failed: of an earlier run\n")

    async def scenario() -> None:
        on_exit = Exit()
        job = start(tmp_path, on_exit)
        assert await on_exit.wait() in ([1], [-signal.SIGTERM])
        assert job.last_words == words

    asyncio.run(scenario())


def test_terminate_lets_the_job_end_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(
        tmp_path,
        monkeypatch,
        "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(0));"
        "print('ready', flush=True); time.sleep(60)",
    )

    async def scenario() -> None:
        on_exit = Exit()
        job = start(tmp_path, on_exit)
        await wait_for_text(tmp_path / "bronze.log", "ready")
        job.terminate()
        assert await on_exit.wait() == [0]
        job.terminate()
        job.kill()

    asyncio.run(scenario())


def test_kill_ends_children_that_left_the_group_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(
        tmp_path,
        monkeypatch,
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setpgid(0, 0)\n"
        "    print('ready', flush=True)\n"
        "time.sleep(60)",
    )

    async def scenario() -> None:
        on_exit = Exit()
        job = start(tmp_path, on_exit)
        await wait_for_text(tmp_path / "bronze.log", "ready")
        assert len(session_members(job.pid)) == 2
        job.kill()
        assert await on_exit.wait() == [-9]
        deadline = time.monotonic() + 120
        while session_members(job.pid):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)

    asyncio.run(scenario())


def test_a_job_notices_that_its_node_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of its standard input, which the system closes however the node ends."""
    stand_in(tmp_path, monkeypatch, "import sys; sys.stdin.read(); print('gone', flush=True)")

    async def scenario() -> None:
        on_exit = Exit()
        job = start(tmp_path, on_exit)
        # What the node's death closes.
        stdin = job._process.stdin  # pyright: ignore[reportPrivateUsage]
        assert stdin is not None
        stdin.close()
        assert await on_exit.wait() == [0]

    asyncio.run(scenario())
    assert (tmp_path / "bronze.log").read_text() == "gone\n"


def test_a_large_log_is_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, "print('new')")
    monkeypatch.setattr(process, "LOG_BYTES_MAX", 3)
    (tmp_path / "bronze.log").write_text("old run")

    async def scenario() -> None:
        on_exit = Exit()
        start(tmp_path, on_exit)
        await on_exit.wait()

    asyncio.run(scenario())
    assert (tmp_path / "bronze.log").read_text() == "new\n"
    assert (tmp_path / "bronze.log.1").read_text() == "old run"


def test_the_end_of_the_thread_that_waits_for_a_job_is_told_and_the_sink_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(_: int) -> list[int]:
        raise PermissionError("/proc")

    stand_in(tmp_path, monkeypatch, "print('done')")
    monkeypatch.setattr(process, "session_members", unreadable)
    ended: list[str] = []
    threads = SystemThreads(lambda name, _: ended.append(name))

    async def scenario() -> None:
        on_exit = Exit()
        log = tmp_path / "bronze.log"
        job = start_job(sample_config(tmp_path), log, {}, on_exit, threads)
        assert await on_exit.wait() == [0]
        assert "nobody knows" in job.last_words

    asyncio.run(scenario())
    wait_until(lambda: ended == ["rillnode-job"])


def application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, dies: str = "") -> Application:
    path = tmp_path / "host.py"
    path.write_text(HOST.format(dies=dies))
    monkeypatch.setitem(process.COMMANDS, JobConfig, (sys.executable, str(path)))
    config = application_config(sample_config(tmp_path), "bronze", tmp_path / "app")
    return Application(config, tmp_path / "app.log", SYSTEM_THREADS)


def test_jobs_share_a_process_that_ends_with_the_last_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        shared, exits = application(tmp_path, monkeypatch), [Exit() for _ in range(3)]
        config = sample_config(tmp_path)
        first, second = (shared.start(config, {}, one) for one in exits[:2])
        assert first.pid == second.pid
        first.terminate()
        assert await exits[0].wait() == [3]
        assert first.last_words == "no room"
        assert session_members(second.pid)
        second.terminate()
        await wait_for_text(tmp_path / "app.log", '"stop":2')
        assert await exits[1].wait() == [3]
        assert not session_members(second.pid)
        third = shared.start(config, {}, exits[2])
        assert third.pid != second.pid
        third.kill()
        assert await exits[2].wait() == [-signal.SIGKILL]
        assert "killed by SIGKILL" in third.last_words

    asyncio.run(scenario())


def test_the_end_of_an_application_is_that_of_all_its_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        shared, exits = application(tmp_path, monkeypatch, dies="yes"), [Exit(), Exit()]
        jobs = [shared.start(sample_config(tmp_path), {}, one) for one in exits]
        for one, job in zip(exits, jobs, strict=True):
            assert await one.wait() == [-signal.SIGKILL]
            assert "killed by SIGKILL" in job.last_words

    asyncio.run(scenario())
