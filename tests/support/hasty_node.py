"""The command line of a node that makes and takes snapshots, and drops views, as often as it can.

    python hasty_node.py run -c node.toml

One that has run for weeks has done all of that; a test has minutes.
"""

import sys
from functools import partial

from rillnode.actors.log.shared import shard
from rillnode.node.cli import main

SNAPSHOT_BYTES = 65_536
LATE_FRAMES = 64
IDLE_SECONDS = 8.0

if __name__ == "__main__":
    hasty = partial(
        shard.SharedOptions,
        snapshot_bytes=SNAPSHOT_BYTES,
        snapshot_seconds=1.0,
        late_frames=LATE_FRAMES,
        idle_seconds=IDLE_SECONDS,
    )
    setattr(shard, "SharedOptions", hasty)  # noqa: B010 - a class that is replaced has no type
    sys.exit(main())
