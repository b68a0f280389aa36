"""Completion as people meet it: keys typed into real shells, on a terminal."""

import os
import pty
import select
import shutil
import signal
import time
from pathlib import Path

import pytest

from fake_client import Screen
from rillnode.node.cli import main

SECONDS = 120.0
PROMPT = b"now> "

# Each shell with no file of its user's but one: its name, what it says, where the script lies. In
# place of rillnode stands a function that shows what it was called with.
SHELLS = {
    "bash": (
        ["--rcfile", ".bashrc", "-i"],
        ".bashrc",
        "source rillnode.bash; rillnode() { echo \"called: $*.\"; }; PS1='now> '",
        "rillnode.bash",
    ),
    "zsh": (
        ["-i"],
        ".zshrc",
        "fpath=($PWD $fpath); autoload -Uz compinit; compinit -u -D; PS1='now> '\n"
        'rillnode() { echo "called: $*."; }',
        "_rillnode",
    ),
    "fish": (
        ["--no-config", "--init-command", "source .fish"],
        ".fish",
        'source rillnode.fish; function rillnode; echo "called: $argv."; end\n'
        "function fish_prompt; echo -n 'now> '; end; function fish_greeting; end",
        "rillnode.fish",
    ),
}
TYPED = [
    ("rillnode stre\t pus\t --crea\t", "called: stream push --create."),
    ("rillnode comp\t zs\t", "called: completion zsh."),
    ("rillnode key ne\t k\t", "called: key new kept.key."),  # files, where they are meant
]


class Terminal:
    """A shell on a pseudo-terminal."""

    def __init__(self, program: str, arguments: list[str], directory: Path) -> None:
        self._seen = b""
        environment = {"PATH": os.environ["PATH"], "HOME": str(directory), "TERM": "dumb"}
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            os.chdir(directory)
            os.execve(program, [program, *arguments], environment)

    def type(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def wait_for(self, text: bytes) -> None:
        """Read until a text is there, and forget what came before its end."""
        deadline = time.monotonic() + SECONDS
        while text not in self._seen:
            ready, _, _ = select.select([self._terminal], [], [], deadline - time.monotonic())
            assert ready, self._seen.decode(errors="replace")
            self._seen += os.read(self._terminal, 65_536)
        self._seen = self._seen.partition(text)[2]

    def close(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._terminal)


@pytest.mark.parametrize(
    "shell",
    [pytest.param(one, marks=() if one == "bash" else pytest.mark.needs(one)) for one in SHELLS],
)
def test_a_tab_completes_what_was_begun(tmp_path: Path, shell: str) -> None:
    program = shutil.which(shell)
    assert program is not None
    arguments, setup, lines, file = SHELLS[shell]
    screen = Screen()
    assert main(["completion", shell], screen.terminal) == 0
    (tmp_path / file).write_text(screen.out)
    (tmp_path / setup).write_text(f"{lines}\n")
    (tmp_path / "kept.key").touch()
    terminal = Terminal(program, arguments, tmp_path)
    try:
        for keys, called in TYPED:
            terminal.wait_for(PROMPT)
            terminal.type(f"{keys}\n")
            terminal.wait_for(called.encode())
    finally:
        terminal.close()
