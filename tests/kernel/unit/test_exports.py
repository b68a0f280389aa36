"""Packages whose names are imported on first use."""

import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("package", ["rillnode", "rillnode.node.config"])
def test_every_name_is_there_and_no_other(package: str) -> None:
    module = import_module(package)
    assert len(module.__all__) > 20
    for name in module.__all__:
        assert getattr(module, name) is not None, name
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
        _ = module.nothing


@pytest.mark.parametrize("archive", ["sdist", "wheel"])
def test_archives_have_every_module_of_the_facade(archive: str) -> None:
    """They are named one by one: beside them lie links, which would come twice."""
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    listed = project["tool"]["hatch"]["build"]["targets"][archive]["only-include"]
    modules = {f"src/rillnode/{path.name}" for path in (ROOT / "src" / "rillnode").glob("*.py")}
    assert modules <= {*listed}
