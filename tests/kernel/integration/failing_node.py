"""`rillnode` with a stream service that fails at its requests from SIGUSR1 on.

    python failing_node.py [--hang] run ...

With `--hang` the store then never closes.
"""

import signal
import sys
import time
from contextlib import ExitStack
from unittest.mock import patch

from rillnode.actors.core.delivery import Delivery
from rillnode.actors.core.streams.service import StreamService
from rillnode.actors.log.rocks.store import RocksLogStore
from rillnode.node.cli import main, run
from rillnode.testing import fail

FAILURES = StreamService.restarts_max + 1
"""One more than it is restarted after."""


def hang(_: RocksLogStore) -> None:
    time.sleep(3_600.0)


def run_failing() -> int:
    """Run the command line; returns its exit code."""
    with ExitStack() as planted:

        def plant(*_: object) -> None:
            error = RuntimeError("planted")
            planted.enter_context(fail(StreamService, Delivery, times=FAILURES, error=error))

        signal.signal(signal.SIGUSR1, plant)
        return main()


if __name__ == "__main__":
    if "--hang" in sys.argv:
        sys.argv.remove("--hang")
        patch.object(RocksLogStore, "close", hang).start()
        patch.object(run, "FAILED_SECONDS_MAX", 1.0).start()
    sys.exit(run_failing())
