"""A Spark job as a child process, for tests that kill it."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from rillnode.node.spark.job_config import JobConfig
from rillnode.node.spark.process import SparkJob, last_words, session_members, start_job

SECONDS_MAX = 600.0


class Job:
    """A job whose end a test waits for."""

    def __init__(self, config: JobConfig, log: Path, python_path: str) -> None:
        self.config = config
        self._log = log
        self._environment = {"PYTHONPATH": python_path}
        self._ended = asyncio.Event()
        self._job: SparkJob | None = None

    def start(self) -> None:
        self._ended.clear()
        self._job = start_job(
            self.config, self._log, self._environment, lambda _: self._ended.set()
        )

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait; as a node does, start a job again for which the machine was too busy."""
        deadline = time.monotonic() + SECONDS_MAX
        while not condition():
            assert time.monotonic() < deadline, self._log.read_text()
            if self._ended.is_set():
                assert last_words(self._log, 0).endswith("[job.busy]"), self._log.read_text()
                self.start()
            await asyncio.sleep(0.05)

    async def stop(self, *, kill: bool) -> None:
        assert self._job is not None
        (self._job.kill if kill else self._job.terminate)()
        await asyncio.wait_for(self._ended.wait(), SECONDS_MAX)
        deadline = time.monotonic() + SECONDS_MAX
        while session_members(self._job.pid):
            assert time.monotonic() < deadline, "processes have outlived the job"
            await asyncio.sleep(0.05)
