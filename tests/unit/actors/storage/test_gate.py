"""The gate of the store on JetStream: what becomes of writes while the connection is away."""

import asyncio

import pytest

from rillnode.actors.storage import StoreHealth
from rillnode.actors.storage.jetstream.failures import UnansweredError, unreachable_error
from rillnode.actors.storage.jetstream.gate import Gate
from rillnode.actors.storage.jetstream.options import JetStreamOptions
from rillnode.codecs.errors import CodecError, StoreError

OPTIONS = JetStreamOptions(
    servers=(), patience_seconds=60.0, repair_seconds_min=0.001, repair_seconds_max=0.002
)


async def nothing() -> None:
    """The connection is not at fault."""


@pytest.mark.parametrize(
    "failure",
    [
        UnansweredError("away"),
        StoreError("store.refused", "no"),
        CodecError("codec.truncated", "the input ends early"),
        RuntimeError("a fault of the client"),
    ],
)
def test_whatever_a_repair_ends_with_it_is_tried_again(failure: Exception) -> None:
    async def run() -> None:
        told: list[StoreHealth] = []
        gate = Gate(OPTIONS, check=nothing, on_health=told.append, on_shut=lambda error: None)
        gate.open()
        failures = [failure]

        async def remedy() -> None:
            if failures:
                raise failures.pop()

        gate.shut(unreachable_error("the connection was lost"), remedy, patient=True)
        assert not gate.is_open
        async with asyncio.timeout(10):
            await gate.passed()
        assert gate.refusal is None
        assert told[-1].writable

    asyncio.run(run())
