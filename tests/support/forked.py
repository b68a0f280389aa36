"""Starts Python programs as processes of their own that need not import the project first.

An interpreter that imports a node takes a second of processor time, which most tests spend for
nothing: they kill, pause, signal and start again. So the first program that a test process starts
brings up a parent that imports what they have in common, and that forks one process for each.
"""

import atexit
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock
from types import ModuleType
from typing import IO, Any, Final, Self

PIPE: Final = subprocess.PIPE
DEVNULL: Final = subprocess.DEVNULL

IN_COMMON: Final = (
    "nodes", "rillnode.node.cli.command", "rillnode.node.cli.run", "rillnode.node.cli.stream",
    "rillnode.node.cli.read", "rillnode.node.cli.push", "rillnode.node.runtime", "uvloop",
)  # fmt: skip

Stream = int | IO[Any] | None
"""As `subprocess.Popen` takes them."""


class Forked:
    """A running program, with the calls of `subprocess.Popen`.

    Args:
        arguments: what follows the interpreter's name: `-m` and a module, `-c` and code, or a file.
        stdin, stdout, stderr: `PIPE`, `DEVNULL`, an open file, or None for the test's own.
        env: its environment; what tests import from is among what it can import.
        text: whether its pipes are of text.

    Attributes:
        pid: of the process.
        returncode: how it ended, once that was asked for.
    """

    def __init__(
        self,
        *arguments: str | Path,
        stdin: Stream = None,
        stdout: Stream = None,
        stderr: Stream = None,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        text: bool = False,
    ) -> None:
        self.returncode: int | None = None
        self._waiting = Lock()  # a thread may wait for what another one kills
        mode = "" if text else "b"
        with ExitStack() as theirs:

            def stream(number: int, given: Stream) -> tuple[IO[Any] | None, int]:
                """The test's end of a pipe, and the descriptor that the program is given."""
                if given == PIPE:
                    read, write = os.pipe()
                    own, their = (read, write) if number else (write, read)
                    theirs.callback(os.close, their)
                    return open(own, ("r" if number else "w") + mode), their
                if given == DEVNULL:
                    given = theirs.enter_context(open(os.devnull, "r+b"))
                return None, number if given is None else fileno(given)

            self.stdin, first = stream(0, stdin)
            self.stdout, second = stream(1, stdout)
            self.stderr, third = stream(2, stderr)
            self._keeper, far = socket.socketpair()
            theirs.enter_context(far)
            asked = [*map(str, arguments)], str(cwd or Path.cwd()), {**(env or os.environ)}
            socket.send_fds(_parent(), [b"+"], [far.fileno(), first, second, third])
            self._keeper.sendall(json.dumps(asked).encode() + b"\n")
        self.pid = self._told()

    def _told(self) -> int:
        """The next number of who keeps it: its process id, then how it has ended."""
        data = self._keeper.recv(8, socket.MSG_WAITALL)
        assert len(data) == 8, "who forks programs, or keeps this one, has ended"
        return int.from_bytes(data, signed=True)

    def poll(self) -> int | None:
        """How it has ended, if it has."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; return how it has ended: a code, or less than 0 for a signal.

        Raises:
            TimeoutExpired: it still runs.
        """
        late = subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        if not self._waiting.acquire(timeout=-1 if timeout is None else timeout):
            raise late
        try:
            if self.returncode is None:
                self._keeper.settimeout(timeout)
                self.returncode = self._told()
                self._keeper.close()
        except (TimeoutError, BlockingIOError):
            raise late from None
        finally:
            self._waiting.release()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Signal it, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended, which its keeper is about to tell
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a crash would."""
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in (self.stdin, self.stdout, self.stderr):
            if pipe is not None:
                pipe.close()
        self.wait()


def finished(
    *arguments: str | Path,
    stdin: bytes = b"",
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> "subprocess.CompletedProcess[bytes]":
    """Run a program to its end; return how it ended, and what it wrote."""
    with TemporaryFile() as given, TemporaryFile() as out, TemporaryFile() as err:
        given.write(stdin)
        given.seek(0)
        program = Forked(*arguments, stdin=given, stdout=out, stderr=err, cwd=cwd, env=env)
        try:
            code = program.wait(timeout)
        finally:
            program.kill()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(arguments, code, out.read(), err.read())


def fileno(stream: int | IO[Any]) -> int:
    """The descriptor of an open file."""
    return stream if isinstance(stream, int) else stream.fileno()


@cache
def _parent() -> socket.socket:
    """The parent of this process's programs, which ends with it."""
    near, far = socket.socketpair()
    process = subprocess.Popen(
        [sys.executable, __file__, str(far.fileno()), *sys.path],
        stdin=subprocess.DEVNULL,
        pass_fds=[far.fileno()],
        start_new_session=True,
    )
    far.close()

    def end() -> None:
        near.close()
        process.wait()

    atexit.register(end)
    return near


def _be_parent(control: socket.socket) -> None:
    """Fork what is asked for; returns only in the process of a program, which it has set up."""
    for name in IN_COMMON:
        import_module(name)
    gc.collect()
    gc.freeze()
    while True:
        asked, descriptors, _, _ = socket.recv_fds(control, 1, 4)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not asked:
            os._exit(0)
        if not os.fork():
            control.close()
            return _be_keeper(*descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _be_keeper(descriptor: int, *streams: int) -> None:
    """Fork a program, and tell of its end; returns only in its process."""
    told = socket.socket(fileno=descriptor)
    arguments, directory, environment = json.loads(told.makefile().readline())
    if pid := os.fork():
        for stream in streams:
            os.close(stream)
        told.sendall(pid.to_bytes(8))
        _, status = os.waitpid(pid, 0)
        with suppress(OSError):
            told.sendall(os.waitstatus_to_exitcode(status).to_bytes(8, signed=True))
        os._exit(0)
    told.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    sys.argv = arguments


def _run_program() -> None:
    """Do what the interpreter does with its arguments."""
    match sys.argv[0]:
        case "-c":
            code = sys.argv.pop(1)
            main = sys.modules["__main__"] = ModuleType("__main__")
            exec(compile(code, "<string>", "exec"), main.__dict__)
        case "-m":
            del sys.argv[0]
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        case file:
            sys.path.insert(0, str(Path(file).parent))
            runpy.run_path(file, run_name="__main__")


if __name__ == "__main__":
    sys.path[:] = sys.argv[2:]
    _be_parent(socket.socket(fileno=int(sys.argv[1])))
    _run_program()
