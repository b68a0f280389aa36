"""Consume a stream of a running node: each run goes on where the last one stopped.

    python examples/consume.py edge/ports.json edge/data/admin.key readings --idle-seconds 5

Kill it at any time: what it had not saved comes again, nothing is left out.
"""

import argparse
import asyncio
import json
from pathlib import Path

import rillnode


async def main(args: argparse.Namespace) -> None:
    """Print the sum of each device's values, until nothing has come for a while."""
    node = json.loads(args.ports_file.read_text())
    totals: dict[int, float] = {}
    count = 0
    async with await rillnode.connect(
        f"noise://{node['noise']}", key_file=args.key, node_identity=node["identity"]
    ) as client:
        stream = await client.stream(args.stream)
        # Positions are saved every second, and at the end of the block.
        async with stream.consumer(args.client_id) as consumer:
            while entries := await consumer.batch(1_000, timeout=args.idle_seconds):
                for entry in entries:
                    reading = json.loads(entry.data)
                    totals[reading["device"]] = totals.get(reading["device"], 0) + reading["value"]
                count += len(entries)
    for device, total in sorted(totals.items()):
        print(f"device {device}: {total}")
    print(f"{count} readings consumed")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Consume readings of a stream.")
    parser.add_argument("ports_file", type=Path, help="what `rillnode run --ports-file` wrote")
    parser.add_argument("key", type=Path, help="your key file")
    parser.add_argument("stream", help="name of the stream")
    parser.add_argument("--client-id", default="example", help="whose position is saved")
    parser.add_argument("--idle-seconds", type=float, default=2.0, help="when to stop (default: 2)")
    asyncio.run(main(parser.parse_args()))
