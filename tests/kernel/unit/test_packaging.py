"""Packaging: the same bytes from the same commit, and no more to install than is promised."""

import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any, Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]
CORE_MB_MAX: Final = 60
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

pytestmark = pytest.mark.check


def build(tree: Path, out: Path, **environ: str) -> dict[str, str]:
    """Build wheel and source archive; their hashes by name."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(out)]
    epoch = {"SOURCE_DATE_EPOCH": "1700000000"}
    done = subprocess.run(command, cwd=tree, env=os.environ | epoch | environ, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in out.iterdir()}


@pytest.mark.skipif(not (ROOT / "README.md").exists(), reason="not part of a source distribution")
def test_builds_of_one_commit_are_the_same_bytes(tmp_path: Path) -> None:
    """Wherever, whenever and with whatever umask they are made."""
    without_bytecode = shutil.ignore_patterns("__pycache__")
    folders = ("node", "actors", "codecs", "transports", "tests", "configs", "src")
    built: list[dict[str, str]] = []
    for number, environ in enumerate(({"TZ": "UTC"}, {"TZ": "Asia/Tokyo", "LC_ALL": "C"})):
        tree = tmp_path / str(number)
        for folder in folders:
            shutil.copytree(ROOT / folder, tree / folder, symlinks=True, ignore=without_bytecode)
        for file in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / file, tree)
        if number:
            for path in tree.rglob("*"):
                if not path.is_symlink():
                    path.chmod(path.stat().st_mode & 0o700)
                    os.utime(path, (1_000_000_000, 1_000_000_000))
        built.append(build(tree, tmp_path / f"dist{number}", **environ))
    assert len(built[0]) == 2
    assert built[0] == built[1]


def needed(texts: list[str]) -> dict[str, Distribution]:
    """What requirements bring, by name, with what that needs in turn."""
    found: dict[str, Distribution] = {}
    todo = [Requirement(text) for text in texts]
    while todo:
        one = todo.pop()
        name = canonicalize_name(one.name)
        if name not in found:
            found[name] = distribution(name)
            todo += [
                need
                for need in map(Requirement, found[name].requires or ())
                if need.marker is None or need.marker.evaluate({"extra": ""})
            ]
    return found


def test_the_core_takes_less_than_is_promised() -> None:
    """Files of the core and of what it needs, without bytecode, which Python adds where it may."""
    files = [
        Path(str(package.locate_file(file)))
        for package in needed(PROJECT["dependencies"]).values()
        for file in package.files or ()
    ]
    for folder in ("node", "actors", "codecs", "transports", "src"):
        files += (ROOT / folder).rglob("*")
    whole = {one.resolve() for one in files if one.is_file() and one.suffix != ".pyc"}
    size = sum(one.stat().st_size for one in whole)
    assert 30e6 < size < CORE_MB_MAX * 1e6


def test_the_core_needs_nothing_of_a_plug_in() -> None:
    core = needed(PROJECT["dependencies"])
    for extra, texts in PROJECT["optional-dependencies"].items():
        for one in map(Requirement, texts):
            assert canonicalize_name(one.name) not in core, extra
