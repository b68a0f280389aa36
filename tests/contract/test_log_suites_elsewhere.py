"""Tests that the suites of the log run in a project that has nothing of this one's tests."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import memory_site

MINE: Final = """
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


def test_a_file_that_subclasses_the_suites_is_enough(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(MINE)
    shutil.copy(memory_site.__file__, tmp_path)
    # Some tests of each, and what finds the mistake.
    chosen = "(TestMyLog and trim) or (TestMyStore and crash) or (TestWrongLog and identity)"
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    said = ran.stdout
    assert ran.returncode == 1, said + ran.stderr
    assert "1 failed, " in said, said
    assert "skipped" not in said
    assert (
        "FAILED test_mine.py::TestWrongLog::test_identity_stays_the_same_and_is_no_others" in said
    )
    # What was compared is shown, and of that pytest was told in time.
    assert "assert b'always the same' != b'always the same'" in said
    assert "rewritten; rillnode" not in said
