"""What fails with a link and nobody waits for is told of in one line."""

import asyncio
import gc
import logging
from pathlib import Path
from typing import Any

import pytest

from far_end import FarEnd
from nodes import connect_to, node_config
from rillnode.codecs.errors import TransportError
from rillnode.node.client.once import Once
from rillnode.node.client.producer import Producer
from rillnode.node.client.session import Session
from rillnode.node.runtime import Node


def complaints() -> list[dict[str, Any]]:
    """What the loop is told of from now on."""
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    return told


def lines(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.msg == "outcomes_unknown"]


async def turns() -> None:
    for _ in range(4):
        await asyncio.sleep(0)
    gc.collect()


@pytest.mark.parametrize("loses", [False, True])
async def test_pushes_that_are_open_at_the_end_make_one_line(
    session: Session, far: FarEnd, caplog: pytest.LogCaptureFixture, loses: bool
) -> None:
    told = complaints()
    producers = [Producer(session, b"ST_S_0_s%d" % number) for number in range(20)]
    futures = [producer.push(b"x") for producer in producers for _ in range(100)]
    once = Once(session, "noise:aa", "key")
    once.add(b"x", None, None, 0)
    futures += [future for _, future in once.push("once")]
    # Some of one partition have no room yet.
    for _ in range(30):
        futures.append(producers[0].push(bytes(900_000)))
    kept = futures[7]
    waiting = asyncio.gather(*futures[10:20], return_exceptions=True)

    async def push() -> None:
        await producers[1].push(b"y")

    pushing = asyncio.create_task(push())
    await asyncio.sleep(0)
    count = len(futures) - 10
    del futures
    if loses:
        lost = TransportError("link.closed", "the link to the node closed: it is gone")
        session._fail(lost)  # pyright: ignore[reportPrivateUsage]
    else:
        await session.close(timeout_seconds=0.0)
    await turns()
    (line,) = lines(caplog)
    found = vars(line)
    assert (found["count"], found["streams_count"]) == (count, 21)
    assert found["streams"] == sorted(["once", *(f"s{n}" for n in range(20))])[:8]
    # Whoever waits, then or later, has the error.
    for error in await waiting:
        assert isinstance(error, TransportError)
    with pytest.raises(TransportError):
        await pushing
    with pytest.raises(TransportError):
        await kept
    del kept, waiting, pushing
    await turns()
    assert told == []


async def test_jobs_whose_answers_are_under_way_make_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told = complaints()
    async with Node(node_config(tmp_path)) as node:
        client = await connect_to(node)
        stream = await client.stream("jobs")
        await stream.push_many([b"x"] * 50)
        queue = stream.work("q", in_flight=50)
        jobs = [await queue.next(timeout=10.0) for _ in range(50)]
    for job in jobs:
        job.done_nowait()
    await asyncio.sleep(0)
    await client.close(timeout_seconds=0.0)
    await turns()
    (line,) = lines(caplog)
    assert (vars(line)["count"], vars(line)["streams"]) == (50, ["jobs"])
    assert told == []
