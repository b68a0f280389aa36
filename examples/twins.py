"""A digital twin of each device: fed by a stream, asked by address, and landing in a Spark table.

    python examples/twins.py DIRECTORY

Each entry of the stream `readings` goes to the twin of its device, an actor that its first message
makes and that ends when it is idle. Each state of a twin is pushed to the stream `twins`, which a
Spark job lands in a table, and from which twins go on when the program is run again.
"""

import asyncio
import json
import sys
from pathlib import Path

import msgspec
from deltalake import DeltaTable

import rillnode
from rillnode.node.config import Config, HttpListener, Location, NoiseListener
from rillnode.node.spark.config import SinkTables, SparkSink

DEVICES, READINGS, LAND_SECONDS = 5, 200, 300


class State(msgspec.Struct):
    """The known state of a device, and the reading that told it."""

    device: str
    index: int = -1
    readings: int = 0
    celsius_max: float = -273.15


class Twin(rillnode.Actor):
    """Takes the readings of one device; the answer is its state, once that is durable."""

    idle_seconds = 60.0

    def __init__(self, state: State, states: rillnode.Stream) -> None:
        self.state, self.states = state, states

    async def receive(self, message: rillnode.Message, ctx: rillnode.Context) -> bytes:
        """Take a reading, or only tell: a message without one asks for the state."""
        state, reading = self.state, json.loads(message.payload or "{}")
        if reading.get("index", -1) > state.index:  # else it has come before, and is in the state
            state.index, celsius = reading["index"], reading["celsius"]
            state.readings, state.celsius_max = state.readings + 1, max(state.celsius_max, celsius)
            await self.states.push(msgspec.json.encode(state))
        return msgspec.json.encode(state)


async def feed(node: rillnode.Node, readings: rillnode.Stream, last: int) -> None:
    """Hand each reading to its twin; what was handed on and not saved comes again."""
    async with readings.consumer("twins") as entries:
        async for entry in entries:
            reading = json.loads(entry.data) | {"index": entry.index}
            await node.client.ask(f"twin/{reading['device']}", json.dumps(reading).encode())
            if entry.index == last:
                entries.stop()


def landed(table: Path) -> int:
    """How many states the table has."""
    return DeltaTable(str(table)).count() if DeltaTable.is_deltatable(str(table)) else 0


async def main(directory: Path) -> None:
    """Feed the twins, ask them, and wait until all that they have been is in the table."""
    table = directory / "tables"
    sink = SparkSink(name="twins", streams=("twins",), table_dir=Location(table))
    config = Config(
        name="plant",
        data_dir=directory / "data",
        noise=NoiseListener(listen="127.0.0.1:0"),
        http=HttpListener(enabled=False),
        tables=[SinkTables(spark=(sink,))],
    )
    async with rillnode.Node(config) as node:
        readings, states = await node.stream("readings"), await node.stream("twins")
        known: dict[str, State] = {}
        while entries := await states.pull(sum(state.readings for state in known.values()), 1_000):
            found = [msgspec.json.decode(entry.data, type=State) for entry in entries]
            known |= {state.device: state for state in found}

        def twin(device: str) -> Twin:
            return Twin(known.setdefault(device, State(device)), states)

        node.on_demand("twin/", twin)
        events = ({"device": f"kettle-{n % DEVICES}", "celsius": n / 10} for n in range(READINGS))
        pushed = [readings.push_nowait(json.dumps(event).encode()) for event in events]
        await feed(node, readings, (await asyncio.gather(*pushed))[-1])
        for number in range(DEVICES):
            print((await node.client.ask(f"twin/kettle-{number}", b"")).payload.decode())
        every = sum(state.readings for state in known.values())
        async with asyncio.timeout(LAND_SECONDS):
            while await asyncio.to_thread(landed, table) < every:
                await asyncio.sleep(0.5)
        print(f"{every} states are in {table}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    asyncio.run(main(Path(sys.argv[1])))
