"""`rillnode` with a stream service that is given up when it is asked for a stream called "fatal".

    python failing_node.py [--hang] run ...

With `--hang` the store then never closes.
"""

import sys
import time
from typing import Any
from unittest.mock import patch

from rillnode.actors.delivery import Delivery
from rillnode.actors.engine.system import Cell
from rillnode.actors.storage.rocks import RocksLogStore
from rillnode.actors.streams.service import StreamService
from rillnode.node.cli import main, run

handle = StreamService.handle


def given_up(self: StreamService, message: object, sender: Cell | None) -> None:
    if isinstance(message, Delivery) and any(b"fatal" in one.payload for one in message.messages):
        system: Any = self.system
        system.on_fatal(self.address, RuntimeError("planted"))
    else:
        handle(self, message, sender)


def hang(_: RocksLogStore) -> None:
    time.sleep(3_600.0)


if __name__ == "__main__":
    patch.object(StreamService, "handle", given_up).start()
    if "--hang" in sys.argv:
        sys.argv.remove("--hang")
        patch.object(RocksLogStore, "close", hang).start()
        patch.object(run, "FAILED_SECONDS_MAX", 1.0).start()
    sys.exit(main())
