"""A load generator: a process that does one job and tells after each phase what it measured.

    python -m benchmarks.load JOB

JOB is JSON. Each phase ends with a line of JSON on standard output; the next begins with a line
on standard input, so that the benchmark can look at the server in between.
"""

import asyncio
import gc
import sys
from collections.abc import AsyncGenerator, Callable
from importlib import import_module
from typing import Any, Final, cast

import msgspec

from benchmarks.jobs import Job, LinksJob, Result

try:
    from uvloop import new_event_loop
except ImportError:
    from asyncio import new_event_loop


_GC_THRESHOLDS: Final = (20_000, 50, 100)
"""For thousands of connections in one process, all of which a full collection goes through."""


async def _run(job: Job) -> None:
    # Only the client that is needed, so that no other can be missing.
    module = import_module(f"benchmarks.{job.endpoint.kind}_load")
    name: str = msgspec.to_builtins(job)["type"]
    phases = cast(Callable[[Any], AsyncGenerator[Result]], getattr(module, name))
    loop = asyncio.get_running_loop()
    async for result in phases(job):
        print(msgspec.json.encode(result).decode(), flush=True)
        if not await loop.run_in_executor(None, sys.stdin.readline):
            return


def main() -> None:
    """Do the job of the command line."""
    job = msgspec.json.decode(sys.argv[1], type=Job)
    if isinstance(job, LinksJob):
        gc.set_threshold(*_GC_THRESHOLDS)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_run(job))


if __name__ == "__main__":
    main()
