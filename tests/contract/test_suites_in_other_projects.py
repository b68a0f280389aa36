"""The suites run in a project that has nothing of this one's tests, and find mistakes there."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import memory_site
from contract.test_suites_find_mistakes_plug_ins import ROOT, add_package

LINK: Final = """
import asyncio
from contextlib import asynccontextmanager

from rillnode.testing.contract import SizedLinkContract
from rillnode.transports.clock import SystemClock
from rillnode.transports.memory import connect_memory


class TestMyLink(SizedLinkContract):
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

ENGINE: Final = """
import asyncio
from contextlib import asynccontextmanager

from rillnode.actors.engine.system import AsyncioSystemBase
from rillnode.testing.contract import EngineContract


class TestMyEngine(EngineContract):
    @asynccontextmanager
    async def running(self):
        engine = AsyncioSystemBase()
        yield engine
        await engine.shutdown()

    async def pass_time(self, seconds):
        await asyncio.sleep(seconds)
"""

LOG: Final = """
from contextlib import nullcontext

from memory_site import MemorySite
from rillnode.actors.log.shared.memory_log import MemoryLog
from rillnode.actors.log.shared.port import Opened
from rillnode.testing.contract import SharedLogContract, StoreOnEngineContract


class MyServers:
    @classmethod
    def servers(cls, directory):
        return nullcontext(MemorySite())


class TestMyLog(MyServers, SharedLogContract):
    pass


class TestMyStore(MyServers, StoreOnEngineContract):
    pass


class Wrong(MemoryLog):
    async def open(self, shards, heard):
        return Opened(b"always the same", (await super().open(shards, heard)).shards)


class TestWrongLog(SharedLogContract):
    @classmethod
    def servers(cls, directory):
        return nullcontext(MemorySite(Wrong))
"""

SOME: Final = (
    "TestMyLink or TestMyEngine or (TestMyLog and trim) or (TestMyStore and crash)"
    " or (TestSyslog and status) or (TestWrongLog and identity)"
)
EACH: Final = "not TestWrongLog or identity"


@pytest.mark.parametrize(
    "chosen", [SOME, pytest.param(EACH, marks=pytest.mark.long)], ids=["some", "each"]
)
def test_files_that_subclass_the_suites_are_enough(tmp_path: Path, chosen: str) -> None:
    for name, text in (("link", LINK), ("engine", ENGINE), ("log", LOG)):
        (tmp_path / f"test_my_{name}.py").write_text(text)
    site = tmp_path / "site"
    site.mkdir()
    add_package(site)
    (site / "syslog_suite.py").rename(tmp_path / "test_syslog.py")
    shutil.copy(memory_site.__file__, tmp_path)
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-k", chosen, "-p", "no:cacheprovider"),
            *("-p", "no:xdist", "--ignore", "site"),
        ],
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(site), ROOT))},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    said = ran.stdout
    assert ran.returncode == 1, said + ran.stderr
    assert "1 failed, " in said, said
    assert "skipped" not in said
    wrong = "TestWrongLog::test_identity_stays_the_same_and_is_no_others"
    assert f"FAILED test_my_log.py::{wrong}" in said
    # What was compared is shown, and of that pytest was told in time.
    assert "assert b'always the same' != b'always the same'" in said
    assert "rewritten; rillnode" not in said
