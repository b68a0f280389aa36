"""The query that lands a sink's streams, step by step, without Spark."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from fake_sink import FakeSink
from pipeline_samples import Query
from rillnode.node.spark.landing import FILE_STRUCT, Landing, LandingReader, LandingWriter
from rillnode.node.spark.offsets import Offset
from rillnode.node.spark.source import RangesPartition


class LandingQuery(Query):
    """A sink's query as Spark runs it: tasks write and name files, the driver commits them."""

    def __init__(self, directory: Path, sink: FakeSink) -> None:
        super().__init__(directory)
        self.sink = sink
        self.options = {
            **sink.local_options.to_options(),
            "path": str(self.table),
            "checkpointLocation": str(self.checkpoint),
        }
        self.reader: LandingReader = Landing(self.options).streamReader(FILE_STRUCT)

    def landing_writer(self) -> LandingWriter:
        return Landing(self.options).streamWriter(FILE_STRUCT, overwrite=False)

    def offset(self, index: int) -> dict[str, Any]:
        created: Mapping[str, int] = self.sink.created()
        return Offset({("s", 0): index}, created).to_json()

    def plan(self, batch_id: int, end: dict[str, Any]) -> None:
        text = f"v1\n{{}}\n{json.dumps(end)}\n"
        (self.checkpoint / "offsets" / str(batch_id)).write_text(text)

    def land(self, batch_id: int, start: int, until: int) -> None:
        begin, end = self.offset(start), self.offset(until)
        self.plan(batch_id, end)
        tasks = cast("Sequence[RangesPartition]", self.reader.partitions(begin, end))
        writer = self.landing_writer()
        writer.commit([writer.write(self.reader.read(task)) for task in tasks], batch_id)
