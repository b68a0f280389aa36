"""A package of a third party adds a protocol to nodes, without a change of rillnode."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[3]
EXAMPLE: Final = ROOT / "examples" / "plugin"
CONFIG: Final = 'name = "a"\n[syslog]\nlisten = "127.0.0.1:0"\n'


def run(*command: object, fails: int = 0) -> str:
    """Run a command in an environment of its own variables; return what it prints."""
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == fails, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that has what this one has, and nothing else yet."""
    directory = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", directory)
    python = directory / "bin" / "python"
    purelib = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    lines = [*(path for path in sys.path if path.endswith("site-packages")), str(ROOT / "src")]
    (Path(purelib) / "this.pth").write_text("".join(f"{line}\n" for line in lines))
    return python


@pytest.mark.long
def test_the_example_is_installed_run_and_gone_again(python: Path, tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text(CONFIG)
    check = (python, "-m", "rillnode", "config", "check", "-c", file)
    assert "node.toml:2: syslog: unknown key" in run(*check, fails=2)
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", EXAMPLE)
    assert "valid" in run(*check)
    shown = run(python, "-m", "rillnode", "config", "show", "-c", file)
    assert "syslog.stream" in shown
    assert run(*check[:6], file, "--set", "syslog.stream=x").count("valid") == 1
    refused = run(*check[:6], file, "--set", "syslog.streem=x", fails=2)
    assert "did you mean stream?" in refused
    tests = (python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull)
    told = run(*tests, "--rootdir", tmp_path, EXAMPLE / "tests")
    assert " passed" in told
    assert "Send a message over TCP" in run(python, "-m", "rillnode", "syslog", "send", "--help")
    run(python, "-m", "pip", "uninstall", "--quiet", "--yes", "rillnode-syslog")
    assert "syslog: unknown key" in run(*check, fails=2)
