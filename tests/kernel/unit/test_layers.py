"""Layers import only what the table allows; node alone wires them all together."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ALLOWED = {
    "codecs": {"codecs"},
    "transports": {"codecs", "transports"},
    "actors": {"actors", "codecs"},
    "node": {"actors", "codecs", "node", "transports"},
}
MODULES = sorted(path for layer in ALLOWED for path in (ROOT / layer).rglob("*.py"))


def imported_layers(source: str) -> set[str]:
    """The layers that a module's imports reach; relative ones are refused."""
    names: set[str] = set()
    for item in ast.walk(ast.parse(source)):
        if isinstance(item, ast.ImportFrom):
            assert item.level == 0, "imports are absolute"
            if item.module == "rillnode":
                names.update(alias.name for alias in item.names)
            elif (item.module or "").startswith("rillnode."):
                names.add((item.module or "").split(".")[1])
        elif isinstance(item, ast.Import):
            names.update(a.name.split(".")[1] for a in item.names if a.name.startswith("rillnode."))
    return names & ALLOWED.keys()


def test_modules_keep_to_their_layers() -> None:
    strays = {
        str(path.relative_to(ROOT)): reached
        for path in MODULES
        if (reached := imported_layers(path.read_text(encoding="utf-8")))
        - ALLOWED[path.relative_to(ROOT).parts[0]]
    }
    assert MODULES
    assert not strays


def test_the_rule_finds_what_it_forbids() -> None:
    assert imported_layers("from rillnode.transports.tcp import dial") == {"transports"}
    assert imported_layers("import rillnode.node.runtime") == {"node"}
    assert imported_layers("from rillnode import actors") == {"actors"}


ENGINE = "rillnode.actors.engine."


def imports_within(package: str, modules: dict[str, str]) -> dict[str, set[str]]:
    """Which modules of a package each of its modules imports, if only for types."""
    return {
        name: {
            (item.module or "").removeprefix(package)
            for item in ast.walk(ast.parse(source))
            if isinstance(item, ast.ImportFrom) and (item.module or "").startswith(package)
        }
        for name, source in modules.items()
    }


def test_the_engine_has_no_circle_of_imports() -> None:
    modules = {
        path.stem: path.read_text(encoding="utf-8")
        for path in (ROOT / "actors" / "engine").glob("*.py")
    }
    TopologicalSorter(imports_within(ENGINE, modules)).prepare()


def test_a_circle_is_found_be_it_of_types_alone() -> None:
    only_types = f"if TYPE_CHECKING:\n    from {ENGINE}b import B"
    circle = {"a": only_types, "b": f"from {ENGINE}a import A"}
    with pytest.raises(CycleError):
        TopologicalSorter(imports_within(ENGINE, circle)).prepare()
