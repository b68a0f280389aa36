"""Documents as tests: their blocks are read, run in order in a directory, and compared."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from runpy import run_path
from unittest.mock import patch

from fake_client import Screen
from forked import DEVNULL, Forked
from rillnode.node.cli import main
from rillnode.node.testing.contract.ports import free_port

ROOT = Path(__file__).parents[2]
COMMAND_SECONDS = 600
START_SECONDS = 300
BANNER = "...\nrillnode ...: ...\n...\n"
"""What a node prints once it takes work, after lines of its log."""

_FENCE = re.compile(r"^```(\w*) ?(\S*)$")
_JSON_LOG = re.compile(r"^\{.*\}$")
_NEEDS_SHELL = re.compile(r"[|&;<>$*`~#\n]|^rillnode (bench|route serve|stream tail) ")
_QUOTED = re.compile(r"'[^']*'")
_PROGRAM = re.compile(r"python3? \S+\.py\b")
_ECHO = re.compile(r"echo ('[^']*'|\w+) \| (?=rillnode )")
_PLUG_IN = str(ROOT / "examples/plugin/src")
"""The example of a plug-in, which is not installed."""


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block; `title` is the file that it is to be saved as, if any."""

    language: str
    title: str
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a console block and what it must print."""

    text: str
    output: str


def documents() -> list[Path]:
    """Every page of the documentation."""
    patterns = ("*.md", "docs/**/*.md", "benchmarks/*.md", "examples/*.md")
    return sorted(page for pattern in patterns for page in ROOT.glob(pattern))


def blocks(page: Path) -> list[Block]:
    found: list[Block] = []
    language: str | None = None
    title, first, lines = "", 0, list[str]()
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        fence = _FENCE.match(line)
        if language is None and fence:
            (language, title), first, lines = fence.groups(), number, []
        elif language is not None and line == "```":
            found.append(Block(language, title, "\n".join(lines) + "\n", first))
            language = None
        elif language is not None:
            lines.append(line)
    assert language is None, f"{page}:{first}: the block does not end"
    return found


def commands(block: Block) -> list[Command]:
    found: list[Command] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append(Command(line[2:], ""))
        else:
            last = found.pop()
            found.append(Command(last.text, last.output + line + "\n"))
    return found


def matches(expected: str, actual: str) -> bool:
    """Whether a text is as expected, where `...` stands for anything: for lines if it is alone."""
    pattern = ""
    for line in expected.splitlines():
        if line == "...":
            pattern += r"(?:.*\n)*"
        else:
            pattern += ".*".join(map(re.escape, line.split("..."))) + r"\n"
    return (
        re.fullmatch(pattern, actual if actual.endswith("\n") or not actual else actual + "\n")
        is not None
    )


class Runner:
    """Runs the blocks of one document in a directory of their own.

    A `rillnode run` stays in the background until the next one, or the end. The ports that
    documents name are replaced by free ones.
    """

    def __init__(self, directory: Path, seconds_max: float = COMMAND_SECONDS) -> None:
        self.directory = self._directory = directory
        self._seconds_max = seconds_max
        # Pages name the examples as who stands in a clone does.
        for folder in ("configs", "examples"):
            (directory / folder).symlink_to(ROOT / folder)
        self._node: Forked | None = None
        noise, ockam, http = free_port(), free_port(), free_port()
        self._ports = {
            "127.0.0.1:4000": f"127.0.0.1:{ockam}",
            "127.0.0.1:4100": f"127.0.0.1:{noise}",
            "127.0.0.1:8080": f"127.0.0.1:{http}",
            "127.0.0.1:8890": f"127.0.0.1:{free_port()}",
            "127.0.0.1:8891": f"127.0.0.1:{free_port()}",
        }
        self._environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), _PLUG_IN))),
            # In an editable install pytest takes `codecs` of its list of files for a module.
            "PYTEST_ADDOPTS": "-W ignore::pytest.PytestAssertRewriteWarning",
            "RILLNODE__NOISE__LISTEN": f"127.0.0.1:{noise}",
            "RILLNODE__HTTP__LISTEN": f"127.0.0.1:{http}",
            "XDG_CONFIG_HOME": str(directory / ".config"),
            "XDG_RUNTIME_DIR": str(directory / ".runtime"),
        }

    def run(self, page: Path, wanted: Callable[[Block], bool] = lambda _: True) -> None:
        """Run every block that can run.

        Args:
            page: the document.
            wanted: whether a block of shell commands is run.

        Raises:
            AssertionError: a block failed or printed something else; the text names its line.
        """
        pending: Block | None = None
        for block in blocks(page):
            where = f"{page.relative_to(ROOT)}:{block.line}"
            if pending is not None:
                expected = self._local(block.text) if block.language == "text" else None
                self.python(pending, expected, where)
                pending = None
            if block.language == "python":
                pending = block
            elif block.language == "console":
                for command in commands(block):
                    self._command(command, where)
            elif block.language == "sh":
                if wanted(block):
                    self._shell(block, where)
            elif block.title:
                (self._directory / block.title).write_text(block.text, encoding="utf-8")
        if pending is not None:
            self.python(pending, None, str(page))

    def command(self, text: str) -> None:
        """Run one command, whatever it prints."""
        self._command(Command(text, BANNER if text.startswith("rillnode run") else "...\n"), text)

    def close(self) -> None:
        """Stop the node, which must drain and exit with 0."""
        node, self._node = self._node, None
        if node is None:
            return
        node.send_signal(signal.SIGINT)
        try:
            code = node.wait(COMMAND_SECONDS)
        except subprocess.TimeoutExpired:
            node.kill()
            node.wait()
            raise
        assert code == 0, f"the node ended with {code}:\n{self._log.read_text()}"

    def kill(self) -> None:
        """End the node at once, after a failure."""
        if self._node is not None:
            self._node.kill()
            self._node.wait()

    @property
    def _log(self) -> Path:
        return self._directory / "node.log"

    def _local(self, text: str) -> str:
        # All at once: a port that was taken may begin like one that is documented.
        documented = "|".join(re.escape(address) for address in self._ports)
        return re.sub(rf"({documented})\b", lambda found: self._ports[found[0]], text)

    def python(self, block: Block, expected: str | None, where: str) -> None:
        """Run a Python block, which must print what is expected, if anything is."""
        path = self._directory / (block.title or f"block_{block.line}.py")
        path.write_text(self._local(block.text), encoding="utf-8")
        done = self._program([path.name])
        assert done.returncode == 0, f"{where}: exit code {done.returncode}:\n{done.stderr}"
        if expected is not None:
            assert matches(expected, done.stdout), f"{where}: printed\n{done.stdout}{done.stderr}"

    def _command(self, command: Command, where: str) -> None:
        text, output = self._local(command.text), self._local(command.output)
        if text.startswith("rillnode run"):
            self._start(text, output, where)
            return
        done = self._ours(text) if self._is_ours(text) else self._process(["bash", "-c", text])
        printed = done.stdout + done.stderr
        refused = output.startswith("rillnode: ")
        assert (done.returncode != 0) == refused, (
            f"{where}: {text}: exit code {done.returncode}:\n{printed}"
        )
        assert matches(output, printed), f"{where}: {text}: printed\n{printed}"

    def _shell(self, block: Block, where: str) -> None:
        """Run commands in one shell; what they print is not shown, so it is not compared."""
        lines = block.text.replace("\\\n", " ").splitlines()
        starts = [line for line in lines if line.startswith("rillnode run")]
        if starts:
            self.close()  # the node before is stopped first, as the page says
        script = [self._local(line) for line in lines if line not in starts]
        if all(map(self._is_ours, script)):
            ran = [self._ours(line) for line in script]
        else:
            ran = [self._process(["bash", "-euo", "pipefail", "-c", "\n".join(script)])]
        for done in ran:
            printed = done.stdout + done.stderr
            assert done.returncode == 0, f"{where}: exit code {done.returncode}:\n{printed}"
        assert lines[len(lines) - len(starts) :] == starts, f"{where}: a node is started last"
        for line in starts:
            self._start(self._local(line), BANNER, where)

    def _is_ours(self, text: str) -> bool:
        """Whether a command is a verb or a program, and needs no shell."""
        if echo := _ECHO.match(text):
            text = text[echo.end() :]
        is_verb = text.startswith("rillnode ") and self._seconds_max <= COMMAND_SECONDS
        if not (is_verb or _PROGRAM.match(text)):
            return False
        return not _NEEDS_SHELL.search(_QUOTED.sub("", text))

    def _ours(self, text: str) -> subprocess.CompletedProcess[str]:
        """Carry out a command here."""
        if _PROGRAM.match(text):
            return self._program(shlex.split(text)[1:])
        stdin = ""
        if echo := _ECHO.match(text):
            stdin, text = echo[1].strip("'") + "\n", text[echo.end() :]
        screen = Screen(stdin.encode(), environ=self._environment)
        with chdir(self._directory), patch.dict(os.environ, self._environment):
            code = main(shlex.split(text)[1:], screen.terminal)
        return subprocess.CompletedProcess(text, code, screen.out, screen.err)

    def _program(self, argv: list[str]) -> subprocess.CompletedProcess[str]:
        """Run a program here, as an interpreter takes a second; what takes long can be ended."""
        if self._seconds_max > COMMAND_SECONDS:
            return self._process([sys.executable, *argv])
        before, code = set(sys.modules), 0
        with (
            chdir(self._directory),
            patch.dict(os.environ, self._environment),
            patch.object(sys, "argv", argv),
            patch.object(sys, "path", [str(self._directory), _PLUG_IN, *sys.path]),
            redirect_stdout(StringIO()) as printed,
            redirect_stderr(StringIO()) as errors,
        ):
            try:
                run_path(argv[0], run_name="__main__")
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 1
        for name in set(sys.modules) - before:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(self._directory)):
                del sys.modules[name]
        return subprocess.CompletedProcess(argv, code, printed.getvalue(), errors.getvalue())

    def _process(self, arguments: list[str]) -> subprocess.CompletedProcess[str]:
        """Run a command; interrupted, or too late, it ends with all that it has started."""
        with subprocess.Popen(
            arguments,
            cwd=self._directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                printed, errors = process.communicate(timeout=self._seconds_max)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        return subprocess.CompletedProcess(arguments, process.returncode, printed, errors)

    def _start(self, text: str, output: str, where: str) -> None:
        self.close()
        with self._log.open("wb") as log:
            self._node = Forked(
                *("-m", *shlex.split(text)),
                cwd=self._directory,
                env=self._environment,
                stdin=DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._node.poll() is None:
            lines = self._log.read_text().splitlines(keepends=True)
            printed = "".join(line for line in lines if not _JSON_LOG.match(line))
            if printed and matches(output, printed):
                return
            time.sleep(0.05)
        raise AssertionError(f"{where}: {text}: printed\n{self._log.read_text()}")


@contextmanager
def running(directory: Path, seconds_max: float = COMMAND_SECONDS) -> Generator[Runner]:
    """A runner whose node ends with the block, and whose commands end before `seconds_max`."""
    runner = Runner(directory, seconds_max)
    try:
        yield runner
    except BaseException:
        runner.kill()
        raise
    runner.close()
