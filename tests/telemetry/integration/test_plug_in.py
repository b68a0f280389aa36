"""The plug-in `telemetry` keeps the contract of plug-ins."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from rillnode.node.config import PlugInTable
from rillnode.node.telemetry.config import TelemetryTable
from rillnode.testing.contract import PlugInContract, Used

pytestmark = pytest.mark.long


class TestTelemetry(PlugInContract):
    name = "telemetry"

    def tables(self, directory: Path) -> Sequence[PlugInTable]:
        return (TelemetryTable(enabled=True, endpoint="http://127.0.0.1:1"),)

    async def use(self, used: Used) -> None:
        stream = await used.client.stream("readings")
        index = await stream.push(b"x")
        assert [one.data for one in await stream.pull(index)] == [b"x"]
