"""Compares what a stream holds with what has landed in a table."""

from pathlib import Path

import pyarrow.parquet as pq
from deltalake import DeltaTable

from rillnode.node.client import Client


async def log_entries(client: Client) -> dict[tuple[int, int], bytes]:
    """All entries of the stream `s`, by partition and index."""
    stream = await client.stream("s")
    found: dict[tuple[int, int], bytes] = {}
    for info in (await client.describe("s")).partitions:
        index = 0
        while index < info.next_index:
            entries = await stream.pull(index, 5_000, partition=info.partition)
            found.update({(info.partition, entry.index): entry.data for entry in entries})
            index = entries[-1].index + 1
    return found


def table_entries(table: Path) -> list[tuple[tuple[int, int], bytes]]:
    """All rows of a table of plain entries: partition and index, and the data."""
    found: list[tuple[tuple[int, int], bytes]] = []
    for name in DeltaTable(table).file_uris():
        columns = pq.read_table(name, columns=["partition", "index", "data", "kind"])
        for row in columns.to_pylist():
            assert row["kind"] == "bytes"
            found.append(((row["partition"], row["index"]), row["data"]))
    return found
