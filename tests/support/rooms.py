"""Finds what plug-ins' tests bring to tests that are about all of them.

A plug-in's tests lie in a folder of its name, and what they share in `support/` there. A module
`<what>_<plug-in>` in it takes part in what is named so: a clone without that folder goes without.
"""

import ast
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Final

TESTS: Final = Path(__file__).parent.parent
ROOT: Final = TESTS.parent
ROOTS: Final = (
    TESTS / "support",
    *TESTS.glob("*/support"),
    TESTS,
    ROOT / "examples",
    ROOT / "docs",
    ROOT,
)
"""Where tests import modules of the project from, beside those of `rillnode`."""


def modules(what: str) -> list[ModuleType]:
    """The modules `<what>_<plug-in>` that are there, in the order of the plug-ins' names."""
    found = sorted(TESTS.glob(f"*/support/{what}_*.py"))
    return [
        import_module(path.stem)
        for path in found
        if path.stem == f"{what}_{path.parent.parent.name}"
    ]


@cache
def plug_ins() -> frozenset[str]:
    """The plug-ins that pyproject.toml names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return frozenset(project["entry-points"]["rillnode.plugins"])


@cache
def deleted_rooms() -> frozenset[str]:
    """Those of them that are not in this clone."""
    return frozenset(room for room in plug_ins() if not (ROOT / "node" / room).is_dir())


def there(*rooms: str) -> list[str]:
    """Those of these that were not deleted."""
    return [room for room in rooms if room not in deleted_rooms()]


@cache
def can_import(path: Path) -> bool:
    """Whether a module imports nothing of deleted rooms, itself or by what tests share."""
    return all(map(_is_there, _imported(ast.parse(path.read_text("utf-8")))))


def _imported(tree: ast.Module) -> Iterator[str]:
    for item in ast.walk(tree):
        if isinstance(item, ast.Import):
            yield from (alias.name for alias in item.names)
        elif isinstance(item, ast.ImportFrom):
            yield from (f"{item.module}.{alias.name}" for alias in item.names)
        elif isinstance(item, ast.Call) and ast.unparse(item.func) == "import_module":
            values = (one.value for one in item.args if isinstance(one, ast.Constant))
            yield from (value for value in values if isinstance(value, str))


@cache
def _is_there(name: str) -> bool:
    top, *rest = name.split(".")
    if top == "rillnode":
        return deleted_rooms().isdisjoint(rest)
    source = _source(name)
    return find_spec(top) is not None if source is None else can_import(source)


def _source(name: str) -> Path | None:
    """The file of a module of the project that tests import by this name, or of what it has."""
    while name:
        for root in ROOTS:
            if (path := root.joinpath(*name.split(".")).with_suffix(".py")).is_file():
                return path
        name = name.rpartition(".")[0]
    return None
