"""Layers import only what the table allows; node alone wires them all together."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ALLOWED = {
    "codecs": {"codecs"},
    "transports": {"codecs", "transports"},
    "actors": {"actors", "codecs"},
    "node": {"actors", "codecs", "node", "transports"},
}
MODULES = sorted(path for layer in ALLOWED for path in (ROOT / layer).rglob("*.py"))
LINES_MAX = 400


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


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_module_keeps_to_its_layer_and_size(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    layer = path.relative_to(ROOT).parts[0]
    assert imported_layers(source) <= ALLOWED[layer]
    assert source.count("\n") <= LINES_MAX, "a module this long has two reasons to exist"


def test_the_rule_finds_what_it_forbids() -> None:
    assert imported_layers("from rillnode.transports.tcp import dial") == {"transports"}
    assert imported_layers("import rillnode.node.runtime") == {"node"}
    assert imported_layers("from rillnode import actors") == {"actors"}
