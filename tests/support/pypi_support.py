"""A released package of PyPI in an environment of its own, for another Python than the tests'."""

import fcntl
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

INSTALL_SECONDS: Final = 300


def pypi_python(version: str, package: str) -> Path:
    """An interpreter that has a package; skips the test where there is none.

    Args:
        version: of Python, such as "3.10".
        package: with its version, such as "name==1.0".
    """
    base = find_python(version)
    if base is None:
        pytest.skip(f"{package} needs Python {version}, which is neither on the path nor in pyenv")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "rillnode" / f"{package.replace('==', '-')}-python{version}"
    try:
        _install(base, package, folder)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"pip cannot install {package}: {error.stderr.strip()[-500:]}")
    except (OSError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"pip cannot install {package}: {error}")
    return folder / "bin" / "python"


def find_python(version: str) -> Path | None:
    """A Python of this version that runs; what pyenv puts on the path may not."""
    found = shutil.which(f"python{version}")
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    kept = sorted(root.glob(f"versions/{version}.*/bin/python{version}"))
    for python in ([Path(found)] if found else []) + kept:
        if not subprocess.run((python, "-c", ""), capture_output=True, check=False).returncode:
            return python
    return None


def _install(base: Path, package: str, folder: Path) -> None:
    """Have pip put the package into an environment; whole, or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of several test runs, one installs
        whole = folder / "whole"
        if whole.exists():
            return
        pip = folder / "bin" / "pip"
        for command in (
            (base, "-m", "venv", "--clear", folder),
            (pip, "install", "--only-binary", ":all:", package),
        ):
            subprocess.run(
                command, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS
            )
        whole.touch()
