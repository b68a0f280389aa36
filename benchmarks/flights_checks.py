"""Holds bronze, silver and gold against the file of flights that they were made of.

What the tables should hold is calculated of the file alone, with pyarrow: nothing of the pipeline
has a part in it.
"""

import io
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
import pyarrow.parquet as pq
from deltalake import DeltaTable

_PREFIX: Final = "flights/"
_PLACE: Final = ("stream", "partition", "index")


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must be the same in the file and in the tables."""

    name: str
    expected: str
    found: str
    same: bool


def stream_of(origin: str) -> str:
    """The stream of an airport."""
    return _PREFIX + origin


def compare(flights: pa.Table, tables: Path) -> list[Check]:
    """Hold every table against the file."""
    placed = place(flights)
    return [
        *_events("bronze", "data", placed, tables / "bronze"),
        *_events("silver", "content", placed, tables / "silver"),
        *_counts(flights, tables / "gold" / "minutes"),
    ]


def place(flights: pa.Table) -> pa.Table:
    """The flights as tables should hold them: in the order of streams and indexes, with both."""
    found = flights.sort_by("origin")  # it leaves those of one airport in their order
    origins: list[str] = found.column("origin").to_pylist()
    indexes = [index for _, run in groupby(origins) for index, _ in enumerate(run)]
    found = found.append_column("stream", pa.array([stream_of(origin) for origin in origins]))
    return found.append_column("index", pa.array(indexes))


def _events(name: str, column: str, placed: pa.Table, table: Path) -> Iterator[Check]:
    """Every event once, each at its place, with what was published."""
    columns = [name for name in placed.column_names if name not in _PLACE]
    schema = pa.schema([placed.schema.field(name) for name in columns])
    parts = [_read(file, column, schema) for file in DeltaTable(table).file_uris()]
    found = pa.concat_tables(parts).sort_by([(name, "ascending") for name in _PLACE])
    distinct = found.select(_PLACE).group_by(list(_PLACE)).aggregate([]).num_rows
    yield _number(f"{name}: rows", placed.num_rows, found.num_rows)
    yield _number(f"{name}: distinct places", placed.num_rows, distinct)
    columns += ["stream", "index"]
    wrong = len(columns) * placed.num_rows
    if found.num_rows == placed.num_rows:
        for one in columns:
            expected = placed.column(one).cast(found.column(one).type)
            wrong -= pc.sum(pc.equal(expected, found.column(one))).as_py() or 0
    yield _number(f"{name}: values that are not the published ones", 0, wrong)


def _read(file: str, column: str, schema: pa.Schema) -> pa.Table:
    """A file's rows: where each stands, and what its JSON says."""
    rows = pq.read_table(file, columns=[*_PLACE, column])
    text = b"\n".join(rows.column(column).cast(pa.binary()).to_pylist())
    options = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
    reading = pyarrow.json.ReadOptions(block_size=16_777_216)
    said = pyarrow.json.read_json(io.BytesIO(text), reading, options)
    for name in _PLACE:
        said = said.append_column(name, rows.column(name))
    return said


def _counts(flights: pa.Table, minutes: Path) -> Iterator[Check]:
    """Gold's sums of each stream's minutes."""
    expected: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for flight in flights.to_pylist():
        sums = expected[stream_of(flight["origin"])]
        sums[0] += 1
        sums[1] += len(msgspec.json.encode(flight))
    found: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    malformed = 0
    table: Any = DeltaTable(minutes)
    for row in table.to_pyarrow_table().to_pylist():
        sums = found[row["stream"]]
        sums[0] += row["messages"]
        sums[1] += row["bytes"]
        malformed += row["malformed"]
    yield _number("gold: streams", len(expected), len(found))
    for at, what in enumerate(("messages", "bytes")):
        totals = [sum(sums[at] for sums in side.values()) for side in (expected, found)]
        yield _number(f"gold: {what}", *totals)
    other = sum(found[name] != sums for name, sums in expected.items())
    yield _number("gold: streams with other sums", 0, other)
    yield _number("gold: malformed events", 0, malformed)


def _number(name: str, expected: int, found: int) -> Check:
    return Check(name, f"{expected:,}", f"{found:,}", expected == found)
