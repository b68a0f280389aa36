"""The public names of the package."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import rillnode

ROOT: Final = Path(__file__).parents[3]


@pytest.mark.parametrize("name", rillnode.__all__)
def test_public_name_can_be_had(name: str) -> None:
    assert getattr(rillnode, name).__name__ == name


def test_unknown_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = rillnode.nothing  # type: ignore[attr-defined]  # pyright: ignore


def test_importing_the_package_imports_no_node() -> None:
    code = "import sys, rillnode; print(*[m for m in sys.modules if m.startswith('rillnode.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["rillnode.exports"]


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
