"""Knows which plug-ins' rooms are missing in a clone, and which tests cannot run without them."""

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from rooms import PLUG_INS, ROOT, TESTS

ROOTS: Final = (
    TESTS / "support",
    *TESTS.glob("*/support"),
    TESTS,
    ROOT / "examples",
    ROOT / "docs",
    ROOT,
)
"""Where tests import modules of the project from, beside those of `rillnode`."""


ABOUT: Final = {"views.md": "spark", "twins.py": "spark"}
"""Pages and examples about a plug-in that their names do not tell."""


@cache
def deleted_rooms() -> frozenset[str]:
    """The plug-ins that are not in this clone."""
    return frozenset(room for room in PLUG_INS if not any(ROOT.glob(f"*/{room}/*.py")))


def there(*rooms: str) -> list[str]:
    """Those of these that were not deleted."""
    return [room for room in rooms if room not in deleted_rooms()]


def rooms_in(name: str) -> list[str]:
    """The plug-ins that a page or an example is about, by the words of its file's name."""
    words = {*re.split(r"[-_.]", name), ABOUT.get(name, "")}
    return [room for room in PLUG_INS if room in words]


@cache
def can_import(path: Path, deleted: frozenset[str]) -> bool:
    """Whether a module imports nothing of deleted rooms, itself or by what tests share."""
    return all(_is_there(name, deleted) for name in _imported(_tree(path)))


def left_out(files: Iterable[Path], deleted: frozenset[str]) -> int:
    """How many test functions of these files import what was deleted, or say that they need it."""
    return sum(
        1
        for path in files
        for function in _test_functions(_tree(path))
        if not can_import(path, deleted) or _needs(function, deleted)
    )


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def _test_functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for item in ast.walk(tree):
        match item:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if name.startswith("test_"):
                    yield item
            case _:
                pass


def _needs(function: ast.FunctionDef | ast.AsyncFunctionDef, deleted: Collection[str]) -> bool:
    return any(
        isinstance(mark, ast.Call)
        and ast.unparse(mark.func) == "pytest.mark.needs"
        and any(isinstance(one, ast.Constant) and one.value in deleted for one in mark.args)
        for mark in function.decorator_list
    )


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
def _is_there(name: str, deleted: frozenset[str]) -> bool:
    top, *rest = name.split(".")
    if top == "rillnode":
        return deleted.isdisjoint(rest)
    source = _source(name)
    return find_spec(top) is not None if source is None else can_import(source, deleted)


def _source(name: str) -> Path | None:
    """The file of a module of the project that tests import by this name, or of what it has."""
    while name:
        for root in ROOTS:
            if (path := root.joinpath(*name.split(".")).with_suffix(".py")).is_file():
                return path
        name = name.rpartition(".")[0]
    return None
