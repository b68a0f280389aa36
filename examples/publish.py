"""Push readings to a stream of a running node, over its encrypted link.

rillnode run -c edge/node.toml --ports-file edge/ports.json
python examples/publish.py edge/ports.json edge/data/admin.key readings
"""

import argparse
import asyncio
import json
import time
from pathlib import Path

import rillnode


async def main(args: argparse.Namespace) -> None:
    """Push `--count` readings, each to the partition of its device."""
    node = json.loads(args.ports_file.read_text())
    async with await rillnode.connect(
        f"noise://{node['noise']}", key_file=args.key, node_identity=node["identity"]
    ) as client:
        stream = await client.stream(args.stream, partitions=4)
        # It waits while 1,000 readings are unconfirmed, and at its end for all.
        async with stream.pusher() as pusher:
            for number in range(args.count):
                device = number % 10
                reading = {"device": device, "value": number / 2, "at": time.time()}
                data = json.dumps(reading).encode()
                await pusher.push(data, partition=device % stream.partitions)
    print(f"{args.count} readings are stored")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Push readings to a stream.")
    parser.add_argument("ports_file", type=Path, help="what `rillnode run --ports-file` wrote")
    parser.add_argument("key", type=Path, help="your key file")
    parser.add_argument("stream", help="name of the stream")
    parser.add_argument("--count", type=int, default=1_000, help="how many (default: 1000)")
    asyncio.run(main(parser.parse_args()))
