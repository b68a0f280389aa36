"""A plug-in's rooms can be deleted from a clone: all that does not need it works as before."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from deleted_rooms import left_out
from one_run import ONE_RUN
from rooms import ROOT

LAYERS: Final = ("codecs", "actors", "node", "tests")

PYTEST: Final = ("-m", "pytest", "-p", "no:cacheprovider")

DELETED: Final = (("nextgraph",), ("overlay",), ("overlay", "streamr"), ("gateway",))
"""What is deleted together, as the overlay stands on Streamr."""


def clone_without(rooms: tuple[str, ...], directory: Path) -> Path:
    """The files of this clone that git knows, without those rooms."""
    known = subprocess.run(
        ("git", "ls-files", "-z"), cwd=ROOT, capture_output=True, check=True
    ).stdout.decode()
    gone = {(layer, room) for layer in LAYERS for room in rooms}
    for name in filter(None, known.split("\0")):
        source, made = ROOT / name, directory / name
        if Path(name).parts[:2] not in gone and source.exists():
            made.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, made, follow_symlinks=False)
    return directory


TESTS: Final = {
    "test_plug_in.py": (
        "from rillnode.node.gone import plugin\n"
        "def test_one(): pass\n"
        "class TestIt:\n"
        "    async def test_two(self): pass\n"
    ),
    "test_kernel.py": (
        "@pytest.mark.needs('gone')\n"
        "def test_three(): pass\n"
        "@pytest.mark.needs('here')\n"
        "def test_four(): pass\n"
        "def helper(): pass\n"
    ),
}


@pytest.mark.parametrize(("deleted", "number"), [((), 0), (("gone",), 3), (("here", "gone"), 4)])
def test_what_is_left_out_is_counted(deleted: tuple[str, ...], number: int, tmp_path: Path) -> None:
    for name, text in TESTS.items():
        (tmp_path / name).write_text(text)
    assert left_out(tmp_path.iterdir(), frozenset(deleted)) == number


@pytest.mark.long
@pytest.mark.parametrize("rooms", DELETED, ids="+".join)
def test_the_rest_is_tested_as_before(rooms: tuple[str, ...], tmp_path: Path) -> None:
    """Its tests are found, and those of the command line and of failing actors pass."""
    clone = clone_without(rooms, tmp_path / "clone")
    environment = os.environ | {"PYTHONPATH": str(clone / "src")}
    for name in ("PYTEST_XDIST_WORKER", ONE_RUN):  # it is another run, of other tests
        environment.pop(name, None)
    for arguments in (
        ("docs/generate.py",),
        (*PYTEST, "--collect-only"),
        (*PYTEST, "tests/kernel/unit/node/test_cli.py", "tests/simulation/fail_once/test_links.py"),
    ):
        done = subprocess.run(
            (sys.executable, *arguments),
            cwd=clone,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-4_000:]
    page = (clone / "docs" / "reference" / "python.md").read_text("utf-8")
    assert not [room for room in rooms if f"rillnode.node.{room}" in page]
    said = done.stdout
    assert "passed" in said
    assert "left out with what was deleted: " in said
