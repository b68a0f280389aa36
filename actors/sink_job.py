"""A sink's job: a child process that is started, started again with backoff, and given keys."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from rillnode.actors.access import Access
from rillnode.actors.ports import JobLauncher, JobProcess

logger = logging.getLogger("rillnode.actors.sink_job")

BACKOFF_SECONDS: Final = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


@dataclass(slots=True)
class SinkStatus:
    """What is known of a sink; read by the node's status."""

    state: str = "starting"
    pid: int | None = None
    starts: int = 0
    last_exit: int | None = None
    rows_behind: int = 0
    bytes_behind: int = 0
    report: dict[str, Any] = field(default_factory=dict[str, Any])


class SinkJob:
    """The process and the keys of one sink's job.

    Args:
        launch: starts the process.
        issue_key: makes a new key, puts it where the job reads it, returns its principal.
        access: where keys are lent the sink's principal.
        on_exit: told of the process's end, with its code.
    """

    def __init__(
        self,
        sink: str,
        *,
        launch: JobLauncher,
        issue_key: Callable[[str], str],
        access: Access,
        status: SinkStatus,
        on_exit: Callable[[int], None],
    ) -> None:
        self.principal = f"sink/{sink}"
        self._sink = sink
        self._launch = launch
        self._issue_key = issue_key
        self._access = access
        self._status = status
        self._on_exit = on_exit
        self._process: JobProcess | None = None
        self._keys: list[str] = []
        self._failures = 0
        self._stopping = False

    def start(self) -> None:
        """Start the process unless it runs or was stopped."""
        if self._stopping or self._process is not None:
            return
        self._process = self._launch(self._sink, {}, self._on_exit)
        self._status.starts += 1
        self._status.state = "running"
        self._status.pid = self._process.pid
        logger.info("sink_started", extra={"sink": self._sink, "pid": self._process.pid})

    def ended(self, code: int) -> float | None:
        """Note the process's end; return the pause before the next start, None for never."""
        self._process = None
        self._status.pid = None
        self._status.last_exit = code
        if self._stopping:
            self.stop()
            return None
        delay = BACKOFF_SECONDS[min(self._failures, len(BACKOFF_SECONDS) - 1)]
        self._failures += 1
        self._status.state = "waiting to start again"
        logger.warning(
            "sink_job_ended",
            extra={"sink": self._sink, "code": code, "start_again_seconds": delay},
        )
        return delay

    def healthy(self) -> None:
        """The job has made progress: its next failure is a first one again."""
        self._failures = 0
        self._status.last_exit = None

    def renew_key(self) -> bool:
        """Lend a new key to the job and take back the one before the last; False when stopped."""
        if self._stopping:
            return False
        key = self._issue_key(self._sink)
        self._access.lend(key, self.principal)
        if key not in self._keys:
            self._keys.append(key)
        if len(self._keys) > 2:
            self._access.withdraw(self._keys.pop(0))
        return True

    def finish(self) -> None:
        """Let the process end after its batch, and never start it again.

        Its keys stay good until it has ended: to save what it committed it may have to connect.
        """
        self._stopping = True
        if self._process is None:
            self.stop()
        else:
            self._status.state = "stopping"
            self._process.terminate()

    def stop(self) -> None:
        """End the process for good and take back its keys."""
        self._stopping = True
        self._status.state = "stopped"
        if self._process is not None:
            self._process.terminate()
        while self._keys:
            self._access.withdraw(self._keys.pop())
