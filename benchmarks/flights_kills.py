"""Ends one part of a running pipeline as a crash would: by its process id, with SIGKILL."""

import asyncio
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

from rillnode.node.spark.process import session_members

VICTIMS: Final = ("driver", "Java", "Python worker", "node")
_WAIT_SECONDS_MAX: Final = 600.0
_POLL_SECONDS: Final = 0.05


class Victim(Protocol):
    """A pipeline that can be struck."""

    def start(self) -> None:
        """Start the node."""
        ...

    def kill(self) -> None:
        """End the node as a crash would."""
        ...

    async def sink(self) -> dict[str, Any]:
        """The sink as the node shows it; empty while there is no node."""
        ...


async def strike(pipeline: Victim, victim: str) -> None:
    """Kill a part of the pipeline, as soon as it runs; a node is started again.

    Raises:
        TimeoutError: there is nothing to kill, or a dead node's job goes on.
    """
    deadline = time.monotonic() + _WAIT_SECONDS_MAX
    while not (prey := await _find(pipeline, victim)):
        await _pause(deadline, victim)
    if victim != "node":
        for pid in prey:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return
    pipeline.kill()
    # A job whose node is gone reads the end of its standard input, and stops by itself.
    while any(session_members(pid) for pid in prey):
        await _pause(deadline, "end of the dead node's job")
    pipeline.start()


async def _find(pipeline: Victim, victim: str) -> list[int]:
    """Whom to kill now; for the node the leader of its job's session."""
    job: int | None = (await pipeline.sink()).get("pid")
    if job is None:
        return []
    if victim in ("driver", "node"):
        return [job]
    name = "java" if victim == "Java" else "python"
    return [pid for pid in session_members(job) if pid != job and _name(pid).startswith(name)]


async def _pause(deadline: float, what: str) -> None:
    if time.monotonic() > deadline:
        raise TimeoutError(f"no {what} in time")
    await asyncio.sleep(_POLL_SECONDS)


def _name(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""
