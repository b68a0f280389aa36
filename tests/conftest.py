"""Sets how property tests look for examples, leaves out what cannot run here, and ends what ran.

A run tests the same few examples each time, so that what fails has to do with what was changed, and
not with chance; and an example may take its time, for machines are busy. `make test-long` tests
more of them (`--hypothesis-profile=thorough`). To look for new ones: `pytest
--hypothesis-profile=explore`.

A test that needs what this machine does not have is left out and not skipped: the header of the run
names what is missing, and what installs it. So are tests of a plug-in, and of it and others, whose
rooms were deleted from this clone.
"""

import atexit
import gc
import inspect
import logging
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn
from zlib import crc32

import pytest
from _pytest.python import importtestmodule
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, settings
from hypothesis.internal.charmap import intervals_from_codec
from hypothesis.internal.constants_ast import constants_from_module, is_local_module_file
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from coroutines import run_test
from deleted_rooms import can_import, deleted_rooms, left_out
from ockam_worker import RELEASED
from one_run import ONE_RUN
from order_of_files import SPARK, turns_of
from rooms import PLUG_INS, TESTS
from usual_ports import take_usual_ports

settings.register_profile(
    "explore",
    deadline=None,
    derandomize=False,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "thorough", settings.get_profile("explore"), derandomize=True, database=None, max_examples=300
)
settings.register_profile("repeatable", settings.get_profile("thorough"), max_examples=25)
settings.load_profile("repeatable")

# No test shall find the contexts of whoever runs it, or a node that runs beside it.
_OWN_DIRECTORY: Final = tempfile.mkdtemp(prefix="rillnode-tests-")
os.environ |= dict.fromkeys(("XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"), _OWN_DIRECTORY)
# Workers are started by the first process of a run, and find its directory here.
os.environ.setdefault(ONE_RUN, _OWN_DIRECTORY)
atexit.register(shutil.rmtree, _OWN_DIRECTORY, ignore_errors=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add how long random faults go on, and what they are drawn from."""
    group = parser.getgroup("random faults")
    group.addoption("--fault-seconds", type=float, default=120.0, help="how long they go on")
    group.addoption("--fault-seed", type=int, default=0, help="0: another one in each run")


def _finds(*programs: str) -> bool:
    return all(map(shutil.which, programs))


def _may_mount() -> bool:
    """Whether this process may mount file systems, and make network namespaces."""
    tried = ("unshare", "--mount", "--net", "true")
    if os.geteuid() != 0 or not _finds("unshare", "mount", "ip"):
        return False
    return subprocess.run(tried, capture_output=True, check=False).returncode == 0


DURATION_SECONDS_MIN: Final = 0.005
"""What takes less is not among the slowest that pytest shows."""

_SHELLS: Final = "tests/kernel/integration/shells/install.sh installs it"
_BROWSER: Final = "tests/kernel/integration/browser/install.sh installs it"

NEEDS: Final[dict[str, tuple[Callable[[], bool], str]]] = {
    "cc": (partial(_finds, "cc"), "it is a C compiler"),
    "curl": (partial(_finds, "curl"), _SHELLS),
    "jq": (partial(_finds, "jq"), _SHELLS),
    "groff": (partial(_finds, "groff"), "it is of the package of that name"),
    "fish": (partial(_finds, "fish"), _SHELLS),
    "helm": (
        lambda: Path(sysconfig.get_path("scripts"), "helm").exists(),
        "`make setup` installs it on Linux on x86-64",
    ),
    "node": (
        partial(_finds, "node", "npm"),
        "tests/streamr/integration/streamr_clients/install-node.sh installs it, and npm",
    ),
    "released Ockam nodes": (
        lambda: bool(RELEASED),
        "RILLNODE_OCKAM_ELIXIR names a directory with their compiled modules",
    ),
    "promtool": (partial(_finds, "promtool"), _BROWSER),
    "root": (_may_mount, "file systems are mounted and network namespaces made"),
    "shellcheck": (partial(_finds, "shellcheck"), _SHELLS),
    "systemd-analyze": (partial(_finds, "systemd-analyze"), "it comes with systemd"),
    "zsh": (partial(_finds, "zsh"), _SHELLS),
}
"""What tests may need that `make setup` does not install: is it here, and what brings it."""


@cache
def _is_here(need: str) -> bool:
    if need in PLUG_INS:
        return need not in deleted_rooms()
    return NEEDS[need][0]()


def pytest_report_header() -> list[str]:
    """Say what is left out."""
    missing = [need for need in NEEDS if not _is_here(need)]
    said = [f"left out is what needs {need}: {NEEDS[need][1]}" for need in missing]
    if deleted := deleted_rooms():
        functions = left_out(TESTS.glob("**/test_*.py"), deleted)
        said += [f"left out is what needs {room}: it was deleted" for room in sorted(deleted)]
        said.append(f"left out with what was deleted: {functions} test functions that are here")
    return said


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect what then stays: the collector of garbage need not go through it, now or later."""
    gc.disable()
    try:
        compile_share(session.config)
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def compile_share(config: pytest.Config) -> None:
    """Load a worker's share of the files first, and read a share of the product's constants.

    In a new clone none is compiled, and workers that took the same order would each compile all.
    """
    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    if worker is None or config.args != config.getini("testpaths"):
        return
    number, count = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
    for path in sorted(TESTS.glob("**/test_*.py"))[number::count]:
        with suppress(Exception, pytest.skip.Exception):  # which collecting it tells again
            importtestmodule(path, config)
    # Hypothesis reads what constants are in the product, and which characters there are, and leaves
    # that for others.
    if number == 0:
        intervals_from_codec("utf-8")
    for name, module in [*sys.modules.items()]:
        file = getattr(module, "__file__", None)
        if crc32(name.encode()) % count == number and file and is_local_module_file(file):
            constants_from_module(module)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out what imports a room that was deleted."""
    deleted = deleted_rooms()
    if collection_path.suffix == ".py" and deleted and not can_import(collection_path, deleted):
        return True
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what cannot run here, and set the order of the others."""
    left_out = [
        item
        for item in items
        if not all(_is_here(need) for mark in item.iter_markers("needs") for need in mark.args)
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]
    turns = turns_of(dict.fromkeys(item.path for item in items))
    items.sort(key=lambda item: turns[item.path])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """Share out files among workers; all that uses the one Java machine is as if it were a file."""

    spark = f"{SPARK.relative_to(config.rootpath).as_posix()}/"

    class OneJavaMachine(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return spark if nodeid.startswith(spark) else super()._split_scope(nodeid)

    return OneJavaMachine(config, log) if config.getoption("dist") == "loadfile" else None


class TellingLess:
    """Has a worker tell of a test once, and not when it begins and of each step that passed.

    A message costs both processes some 0.4 ms, and nobody is shown those that are left out.
    """

    @pytest.hookimpl  # before pytest's own, which tells of everything
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        has_passed = all(report.passed for report in reports)
        for report in reports:
            if not has_passed or _is_shown(report):
                item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True


def _is_shown(report: pytest.TestReport) -> bool:
    """Whether anything is made of a report of what has passed: a dot, a duration, an output."""
    printed = any(name.endswith("teardown") for name, _ in report.sections)
    return report.when == "call" or report.duration >= DURATION_SECONDS_MIN or printed


def pytest_configure(config: pytest.Config) -> None:
    """Have SIGTERM do what Ctrl-C does: servers and clients of tests end in their finalizers.

    A shell lets what it starts in the background pass over Ctrl-C, and all that is started by that;
    tests send it to what they start.
    """
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(TellingLess())
    else:
        for taken in take_usual_ports():
            config.add_cleanup(taken.close)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _interrupt)
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine; pytest runs the others."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    run_test(pyfuncitem)
    return True


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Take back what a test, or a command that it ran here, has set up for the process.

    That is what becomes of logs, and which signals are taken. Two fixtures would cost a
    millisecond for each test.
    """
    handlers, levels = logging.root.handlers[:], _levels()
    signals = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return (yield)
    finally:
        logging.root.handlers[:] = handlers
        if (now := _levels()) != levels:
            for name in now.keys() | levels.keys():
                if now.get(name, logging.NOTSET) != levels.get(name, logging.NOTSET):
                    logging.getLogger(name).setLevel(levels.get(name, logging.NOTSET))
        for number, handler in signals.items():
            # A run that was told to end is told no second time.
            if signal.getsignal(number) not in (handler, _pass_over):
                signal.signal(number, handler)


def _levels() -> dict[str, int]:
    """Levels of the root logger, named "", and of those of the product's that have one."""
    made = logging.root.manager.loggerDict
    return {"": logging.root.level} | {
        name: level
        for name in _our_logs(len(made))
        if (level := getattr(made.get(name), "level", logging.NOTSET))
    }


@cache
def _our_logs(_: int) -> list[str]:
    """Names of the product's loggers while there are so many: none is ever removed."""
    return [name for name in logging.root.manager.loggerDict if name.startswith("rillnode")]


def _interrupt(number: int, _: FrameType | None) -> NoReturn:
    # `timeout` sends it to a process and then to its group: a finalizer would be cut short.
    signal.signal(number, _pass_over)
    raise KeyboardInterrupt


def _pass_over(_: int, __: FrameType | None) -> None:
    """A handler, as programs that finalizers start would inherit a signal that is ignored."""
