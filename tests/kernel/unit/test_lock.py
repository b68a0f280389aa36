"""The lock file: every dependency of the project, at a version that it allows, with hashes."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]
LOCK = ROOT / "requirements.lock"
_PIN = re.compile(
    r"^([a-z0-9-]+)==(\S+)(?: ; [^\\]*)? \\\n((?:    --hash=sha256:[0-9a-f]{64}.*\n)+)", re.M
)

pytestmark = [
    pytest.mark.check,
    pytest.mark.skipif(not LOCK.exists(), reason="not part of a source distribution"),
]


def asked_for() -> Iterator[Requirement]:
    """What pyproject.toml asks for, extras and groups included."""
    document: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = document["project"]
    lists: list[list[Any]] = [project["dependencies"]]
    lists += project["optional-dependencies"].values()
    lists += document["dependency-groups"].values()
    for texts in lists:
        for text in texts:
            if isinstance(text, str):
                requirement = Requirement(text)
                if requirement.name != project["name"]:
                    yield requirement


def locked() -> dict[str, str]:
    """The version of each locked package."""
    return {canonicalize_name(name): version for name, version, _ in _PIN.findall(LOCK.read_text())}


def test_every_dependency_is_locked_at_a_version_that_is_allowed() -> None:
    versions = locked()
    for requirement in asked_for():
        version = versions[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), requirement


def test_every_locked_package_has_hashes_and_none_has_an_address() -> None:
    text = LOCK.read_text()
    assert len(locked()) == len(re.findall(r"^\S+==", text, re.M)) > 50
    assert not re.search(r"://|@|--index|--find-links|--trusted|/", text.replace(".ci/lock", ""))
