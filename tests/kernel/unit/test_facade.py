"""The public names of the package."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import rillnode
from each_row import each_row

ROOT: Final = Path(__file__).parents[3]


@each_row(rillnode.__all__)
def test_public_name_can_be_had(name: str) -> None:
    assert getattr(rillnode, name).__name__ == name


def test_unknown_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = rillnode.nothing  # type: ignore[attr-defined]  # pyright: ignore


def test_importing_the_package_imports_no_node() -> None:
    code = "import sys, rillnode; print(*[m for m in sys.modules if m.startswith('rillnode.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["rillnode.exports"]


# What is left of a plug-in's folder that git has deleted.
LESS: Final = """
import rillnode
was = {*dir(rillnode)}
print(*sorted(name for name in was if not hasattr(rillnode, name)))
from rillnode import *
print(Node.__name__, connect.__name__, "Hub" in globals(), "table" in globals())
for name in ("Hub", "table"):
    try:
        getattr(rillnode, name)
    except ModuleNotFoundError as error:
        print(error.name, error)
"""


@pytest.mark.needs("ockam", "spark")
@pytest.mark.parametrize(
    ("gone", "said"),
    [
        ((), "Node connect True True"),
        (("ockam",), "Node connect False True"),
        (("spark",), "Node connect True False"),
        (("ockam", "spark"), "Node connect False False"),
    ],
)
def test_names_of_plug_ins_that_are_not_there_are_absent(
    gone: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    package = tmp_path / "rillnode"
    (package / "node").mkdir(parents=True)
    for path in (ROOT / "src" / "rillnode").glob("*.py"):
        (package / path.name).symlink_to(path)
    for layer in ("codecs", "transports", "actors"):
        (package / layer).symlink_to(ROOT / layer)
    for path in (ROOT / "node").iterdir():
        if path.name in gone:
            (package / "node" / path.name / "__pycache__").mkdir(parents=True)
        else:
            (package / "node" / path.name).symlink_to(path)
    lines = subprocess.run(
        [sys.executable, "-c", LESS],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert lines[:2] == ["", said]
    for line, room in zip(lines[2:], gone, strict=True):
        assert line.startswith(f"rillnode.node.{room} rillnode.")
        assert f"the plug-in '{room}'" in line
        assert "pip install" in line
        assert f"[{room}]" in line


# In a process of their own each, so that no other has imported before what one stands on.
ALONE = """
import os, sys
from importlib import import_module
import aiohttp, coincurve, msgspec, nacl, rocksdict  # once for all
for name in sys.argv[1:]:
    if not os.fork():
        try:
            import_module(name)
        except BaseException as error:
            print(name, repr(error), flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.mark.long
def test_each_module_can_be_imported_first() -> None:
    modules = [
        ".".join(("rillnode", *path.relative_to(ROOT).with_suffix("").parts))
        for layer in ("codecs", "transports", "actors", "node")
        for path in sorted((ROOT / layer).rglob("*.py"))
        if path.name not in ("__init__.py", "_init.py")
    ]
    assert len(modules) > 500
    done = subprocess.run(
        [sys.executable, "-c", ALONE, *modules], capture_output=True, text=True, check=True
    )
    assert done.stdout + done.stderr == ""
