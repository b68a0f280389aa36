"""A node with a sink in a process of its own, as the kill tests start it.

    python sink_node.py DIRECTORY [python]

Prints its Noise address and identity as JSON; data and table lie in DIRECTORY.
"""

import asyncio
import json
import signal
import sys
from pathlib import Path

from nodes import node_config
from rillnode.node.config import Location
from rillnode.node.runtime import Node
from rillnode.node.spark.config import PythonSink, SinkTables, SparkSink


async def main(directory: Path, kind: str = "spark") -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    sink = {"spark": SparkSink, "python": PythonSink}[kind](
        name="bronze",
        streams=("s*",),
        table_dir=Location(directory / "table"),
        trigger_seconds=0.1,
        batch_rows_max=20_000,
    )
    sinks = (
        SinkTables(python=(sink,)) if isinstance(sink, PythonSink) else SinkTables(spark=(sink,))
    )
    config = node_config(directory / "data").having(sinks)
    async with Node(config) as node:
        print(json.dumps({**node.addresses(), "identity": node.identity}), flush=True)
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:]))
