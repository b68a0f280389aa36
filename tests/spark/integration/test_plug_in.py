"""The plug-in `spark` keeps the contract of plug-ins, with a sink whose job runs."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from rillnode.actors.spark.spark_sink import SparkSinkActor
from rillnode.node.config import PlugInTable
from rillnode.node.spark.config import FilesSink, SinkTables
from rillnode.testing.contract import PlugInContract, Used

pytestmark = pytest.mark.long


class TestSpark(PlugInContract):
    name = "spark"
    actors = (SparkSinkActor,)
    wrong = (("[[sink.files]]\nname = 'a'", "config.missing"),)

    def tables(self, directory: Path) -> Sequence[PlugInTable]:
        files = directory / "files"
        sink = FilesSink(name="out", streams=("read*",), directory=files, trigger_seconds=0.05)
        return (SinkTables(files=(sink,)),)

    async def use(self, used: Used) -> None:
        stream = await used.client.stream("readings")
        index = await stream.push(b"x")
        while (await used.client.get_index("sink/out", "readings") or 0) <= index:
            await asyncio.sleep(0.05)
