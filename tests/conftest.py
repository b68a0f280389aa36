"""Sets how property tests look for examples, and ends what a run has started.

A run tests the same examples each time, so that what fails has to do with what was changed, and
not with chance; and an example may take its time, for machines are busy. To look for new ones:
`pytest --hypothesis-profile=explore`.
"""

import logging
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "explore",
    deadline=None,
    derandomize=False,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "repeatable", settings.get_profile("explore"), derandomize=True, database=None
)
settings.load_profile("repeatable")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add how long random faults go on, and what they are drawn from."""
    group = parser.getgroup("random faults")
    group.addoption("--fault-seconds", type=float, default=120.0, help="how long they go on")
    group.addoption("--fault-seed", type=int, default=0, help="0: another one in each run")


def pytest_configure() -> None:
    """Have SIGTERM do what Ctrl-C does: servers and clients of tests end in their finalizers.

    A shell lets what it starts in the background pass over Ctrl-C, and all that is started by that;
    tests send it to what they start.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _interrupt)
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """Take back what a test, or a command that it ran here, has set up for the process's logs."""
    handlers, levels = logging.root.handlers[:], _levels()
    yield
    logging.root.handlers[:] = handlers
    for name, level in _levels().items():
        if level != levels.get(name, logging.NOTSET):
            logging.getLogger(name).setLevel(levels.get(name, logging.NOTSET))


@pytest.fixture(autouse=True)
def signals_as_they_were() -> Iterator[None]:
    """Take back which signals a command that a test ran here has taken for itself."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in handlers.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)


def _levels() -> dict[str, int]:
    """Levels of the root logger, named "", and of the product's."""
    names = [name for name in logging.root.manager.loggerDict if name.startswith("rillnode")]
    return {"": logging.root.level} | {name: logging.getLogger(name).level for name in names}


def _interrupt(_: int, __: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
