import shutil
import subprocess

import pytest

from fake_client import Screen
from rillnode.node.cli import main
from rillnode.node.cli.command import build_parser


def script(shell: str) -> str:
    screen = Screen()
    assert main(["completion", shell], screen.terminal) == 0
    return screen.out


def completed(*words: str) -> list[str]:
    """What bash offers for the last of some words."""
    bash = shutil.which("bash")
    assert bash is not None
    line = " ".join(f"'{word}'" for word in words)
    test = f"COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _rillnode; echo ${{COMPREPLY[*]}}"
    done = subprocess.run(
        [bash, "--norc", "-c", f"{script('bash')}\n{test}"],
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    return done.stdout.split()


def test_bash_completes_nouns_verbs_and_options() -> None:
    assert {"init", "run", "stream", "backup"} <= set(completed("rillnode", ""))
    assert completed("rillnode", "stream", "pu") == ["push", "pull"]
    assert completed("rillnode", "stream", "push", "--key-") == ["--key-field"]
    assert "--create" in completed("rillnode", "stream", "push", "name", "-")
    assert completed("rillnode", "completion", "z") == ["zsh"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_command_is_known_to_every_shell(shell: str) -> None:
    text = script(shell)
    for parser in build_parser().walk():
        for name in parser.commands:
            assert name in text


@pytest.mark.parametrize(
    "shell",
    [pytest.param(shell, marks=pytest.mark.needs(shell)) for shell in ("zsh", "fish")],
)
def test_the_script_is_one_of_its_shell(shell: str) -> None:
    subprocess.run([shell, "-n"], input=script(shell), text=True, check=True, timeout=300)


def test_an_unknown_shell_is_a_usage_error() -> None:
    screen = Screen()
    assert main(["completion", "tcsh"], screen.terminal) == 2
    assert "bash" in screen.err
