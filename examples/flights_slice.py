"""Cuts a week out of a file of flights: `examples/data/flights-slice.parquet` was made by it.

    python examples/flights_slice.py flights-3m.parquet examples/data/flights-slice.parquet

The same input gives the same rows in the same order: those that departed on or after the first day
and before the day after the last one, as the input has them.
"""

import argparse
from datetime import datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

FIRST: Final = datetime(2001, 2, 12)
"""A Monday; times of departure are local to the airport and have no zone."""
AFTER: Final = datetime(2001, 2, 19)

SCHEMA: Final = pa.schema(
    [
        ("date", pa.timestamp("ms")),
        ("delay", pa.int16()),
        ("distance", pa.int16()),
        ("origin", pa.string()),
        ("destination", pa.string()),
    ]
)
"""When the flight left, how many minutes late it was (less than 0: early), miles, airports."""


def cut(flights: pa.Table) -> pa.Table:
    """The flights of the week."""
    date = flights.column("date")
    first, after = (pa.scalar(moment, pa.timestamp("us")) for moment in (FIRST, AFTER))
    wanted = pc.and_(pc.greater_equal(date, first), pc.less(date, after))
    return flights.filter(wanted).select(SCHEMA.names).cast(SCHEMA)


def main() -> None:
    """Read the whole file and write the slice."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", type=Path, help="Parquet file with the columns of the slice")
    parser.add_argument("slice", type=Path, help="where the slice goes")
    args = parser.parse_args()
    rows = cut(pq.read_table(str(args.file)))
    pq.write_table(rows, str(args.slice), compression="zstd", compression_level=19)
    print(f"{rows.num_rows:,} flights, {args.slice.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
