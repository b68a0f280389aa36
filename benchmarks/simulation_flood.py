"""One program for several simulators: nodes that flood messages over asyncio's streams.

    python3.12 benchmarks/simulation_flood.py simloop|simloom NODES MESSAGES

It needs nothing but that simulator, so that it runs where rillnode is not installed, and prints
one JSON object. `benchmarks/simulation.py` runs the same nodes on rillnode's simulated network.

Each node has four neighbours. A message is a number, a length and a payload; who has not seen it
sends it to all but the neighbour that it came from. Hosts are 10 ms apart.
"""

import asyncio
import json
import struct
import sys
import time
from collections.abc import Callable, Coroutine
from importlib import import_module
from math import isqrt
from typing import Any, Final

DELAY_SECONDS: Final = 0.01
PORT: Final = 4_000
_HEAD: Final = struct.Struct(">II")
_PAYLOAD: Final = bytes(100)

Spawn = Callable[[str, Coroutine[Any, Any, None]], object]
"""Runs a coroutine on a host."""


def host_name(number: int) -> str:
    """A node's host."""
    return f"n{number}"


class Flood:
    """All nodes and what they have seen."""

    def __init__(self, nodes: int, messages: int) -> None:
        self.copies = 0
        self._nodes = nodes
        self._messages = messages
        self._writers: list[list[asyncio.StreamWriter]] = [[] for _ in range(nodes)]
        self._seen: list[set[int]] = [set() for _ in range(nodes)]
        self._servers: list[asyncio.Server] = []
        self._readers: list[asyncio.Task[None]] = []

    async def run(self, spawn: Spawn) -> dict[str, float]:
        """Connect all nodes, publish, and wait until everybody has everything.

        Returns the copies that arrived, and the processor time that took.
        """
        for number in range(self._nodes):
            spawn(host_name(number), self._serve(number))
        await asyncio.sleep(1.0)
        for number in range(self._nodes):
            spawn(host_name(number), self._dial(number))
        await asyncio.sleep(5.0)
        began = time.process_time()
        for message in range(self._messages):
            number = message * 7_919 % self._nodes
            spawn(host_name(number), self._publish(number, message))
            await asyncio.sleep(0.001)
        while any(len(seen) < self._messages for seen in self._seen):
            await asyncio.sleep(0.01)
        await asyncio.sleep(1.0)  # the last copies bring nothing new
        return {"copies": self.copies, "cpu_seconds": time.process_time() - began}

    async def _serve(self, number: int) -> None:
        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._writers[number].append(writer)
            await self._read(number, reader, writer)

        server = await asyncio.start_server(accepted, host_name(number), PORT)
        self._servers.append(server)

    async def _dial(self, number: int) -> None:
        for step in (1, isqrt(self._nodes)):
            name = host_name((number + step) % self._nodes)
            reader, writer = await asyncio.open_connection(name, PORT)
            self._writers[number].append(writer)
            self._readers.append(asyncio.create_task(self._read(number, reader, writer)))

    async def _read(
        self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while True:
            head = await reader.readexactly(_HEAD.size)
            message, size = _HEAD.unpack(head)
            payload = await reader.readexactly(size)
            self.copies += 1
            self._forward(number, message, head + payload, writer)

    async def _publish(self, number: int, message: int) -> None:
        frame = _HEAD.pack(message, len(_PAYLOAD)) + _PAYLOAD
        self._forward(number, message, frame, None)

    def _forward(
        self, number: int, message: int, frame: bytes, source: asyncio.StreamWriter | None
    ) -> None:
        if message in self._seen[number]:
            return
        self._seen[number].add(message)
        for writer in self._writers[number]:
            if writer is not source:
                writer.write(frame)


def _on_simloop(flood: Flood) -> dict[str, float]:
    loop = import_module("simloop").SimLoop(seed=1)
    loop.net.set_defaults(latency=(DELAY_SECONDS, DELAY_SECONDS))
    found: dict[str, float] = loop.run_until_complete(
        flood.run(lambda name, coroutine: loop.net.host(name).create_task(coroutine))
    )
    return found


def _on_simloom(flood: Flood) -> dict[str, float]:
    found: dict[str, float] = {}

    async def main(world: Any) -> None:
        world.net.set_latency(DELAY_SECONDS, DELAY_SECONDS)
        found.update(
            await flood.run(lambda name, coroutine: world.host(name).spawn(lambda: coroutine))
        )

    # Its end cancels what still reads.
    import_module("simloom").run(main, seed=1, on_unhandled="record")
    return found


if __name__ == "__main__":
    simulator = {"simloop": _on_simloop, "simloom": _on_simloom}[sys.argv[1]]
    print(json.dumps(simulator(Flood(int(sys.argv[2]), int(sys.argv[3])))))
