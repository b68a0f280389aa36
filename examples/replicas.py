"""A service with three replicas that are replaced one by one while it is asked, and no call fails.

    python examples/replicas.py DIRECTORY

Each replica is a process that has dialled the node, so that it may be anywhere. They share the
address `price` as a group: each call goes to the one that has the fewest open.
"""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import rillnode
from rillnode.node.config import Config, GrantTable, HttpListener, NoiseListener
from rillnode.node.keys.files import write_key

REPLICAS, CALLERS = 3, 8


async def replica(url: str, node_identity: str, key: str, version: str) -> None:
    """Serve until SIGTERM; then take no more calls, and answer those that there are."""

    async def price(message: rillnode.Message) -> bytes:
        await asyncio.sleep(0.01)  # looks it up
        return b"%s %d" % (version.encode(), 3 * len(message.payload))

    async with await rillnode.connect(url, key_file=key, node_identity=node_identity) as client:
        service = await client.serve("price", price, group=True)
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        print("ready", flush=True)
        await stop.wait()
        await service.stop()


async def start(reach: Sequence[str], version: str) -> Process:
    """Start a replica, and wait until calls go to it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "--replica", *reach, version, stdout=PIPE
    )
    assert process.stdout is not None
    if await process.stdout.readline() != b"ready\n":
        raise SystemExit("a replica did not start")
    return process


async def main(directory: Path) -> None:
    """Run the node, callers, and a release of version 2."""
    worker, key = rillnode.Identity.generate(), directory / "replica.key"
    directory.mkdir(parents=True, exist_ok=True)
    key.unlink(missing_ok=True)
    write_key(key, worker)
    config = Config(
        name="prices",
        data_dir=directory / "data",
        noise=NoiseListener(listen="127.0.0.1:0"),
        http=HttpListener(enabled=False),
        grants=(GrantTable(who=f"noise:{worker.public_hex}", addresses="price", may=("serve",)),),
    )
    answers: Counter[str] = Counter()
    replicas: list[Process] = []
    async with rillnode.Node(config) as node:
        reach = (f"noise://{node.addresses()['noise']}", node.identity, str(key))
        released = asyncio.Event()

        async def call() -> None:
            """Ask until the release is over; a call that fails ends the program."""
            while not released.is_set():
                answer = await node.client.ask("price", b"a kettle")
                answers[answer.payload.decode()] += 1

        try:
            for _ in range(REPLICAS):
                replicas.append(await start(reach, "v1"))
            async with asyncio.TaskGroup() as callers:
                for _ in range(CALLERS):
                    callers.create_task(call())
                for old in replicas[:REPLICAS]:
                    replicas.append(await start(reach, "v2"))
                    old.terminate()
                    print("replaced one, which ended with", await old.wait(), flush=True)
                released.set()
        finally:
            for process in replicas:
                if process.returncode is None:
                    process.terminate()
                await process.wait()
    for answer, count in sorted(answers.items()):
        print(f"{count} calls were answered {answer!r}")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    if sys.argv[1] == "--replica":
        asyncio.run(replica(*sys.argv[2:]))
    else:
        asyncio.run(main(Path(sys.argv[1])))
