"""The public names of the package."""

import subprocess
import sys

import pytest

import rillnode


@pytest.mark.parametrize("name", rillnode.__all__)
def test_public_name_can_be_had(name: str) -> None:
    assert getattr(rillnode, name).__name__ == name


def test_unknown_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = rillnode.nothing


def test_importing_the_package_imports_no_node() -> None:
    code = "import sys, rillnode; print(*[m for m in sys.modules if m.startswith('rillnode.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == []
