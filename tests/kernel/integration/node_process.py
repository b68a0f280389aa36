"""A node in a process of its own, as tests start it: prints its addresses, drains on SIGTERM."""

import asyncio
import json
import signal
import sys
from pathlib import Path

from nodes import node_config
from rillnode.node.runtime import Node


async def main() -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with Node(node_config(Path(sys.argv[1]))) as node:
        print(json.dumps({**node.addresses(), "identity": node.identity}), flush=True)
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main())
