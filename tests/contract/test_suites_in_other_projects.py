"""The suites of links and engines run where there is nothing else of this repository's tests."""

import os
import subprocess
import sys
from pathlib import Path

LINK = """
import asyncio
from contextlib import asynccontextmanager

from rillnode.testing.contract import SizedLinkContract
from rillnode.transports.clock import SystemClock
from rillnode.transports.memory import connect_memory


class TestMine(SizedLinkContract):
    transport, principals = "memory", ("server", "client")

    @asynccontextmanager
    async def joined(self, near, far, limits):
        loop = asyncio.get_running_loop()
        link, _ = connect_memory(
            near, far, dialling_principal="client", accepting_principal="server",
            post=loop.call_soon, clock=SystemClock(loop), limits=limits,
        )
        yield
        link.close("the test is over")
"""

ENGINE = """
import asyncio
from contextlib import asynccontextmanager

from rillnode.actors.engine.system import AsyncioSystemBase
from rillnode.testing.contract import EngineContract


class TestMine(EngineContract):
    @asynccontextmanager
    async def running(self):
        engine = AsyncioSystemBase()
        yield engine
        await engine.shutdown()

    async def pass_time(self, seconds):
        await asyncio.sleep(seconds)
"""


def test_the_suites_run_in_anybody_s_project(tmp_path: Path) -> None:
    for name, text in (("link", LINK), ("engine", ENGINE)):
        (tmp_path / f"test_my_{name}.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "."],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout
