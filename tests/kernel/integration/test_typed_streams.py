"""Streams of one class: what does not fit is not stored, for every kind of client."""

import asyncio
import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
import pytest
from msgspec import Meta

from nodes import CLIENT, node_config
from rillnode import ConfigError, Node, StreamError, connect, connect_blocking

NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)


class Reading(msgspec.Struct):
    id: int
    at: datetime.datetime
    temp: Annotated[float, Meta(ge=-80, le=80)] | None = None

    def __post_init__(self) -> None:
        if self.id == 13:
            raise ValueError("13 is no id")


class Other(msgspec.Struct):
    id: int
    at: datetime.datetime


def unlucky() -> Reading:
    reading = Reading(id=1, at=NOON)
    reading.id = 13
    return reading


UNFIT: list[tuple[Callable[[], Any], str]] = [
    (lambda: Reading(id=cast("int", "x"), at=NOON), r"Expected int, got str - at \$\.id"),
    (lambda: Reading(id=1, at=cast("Any", None)), r"Expected datetime, got null - at \$\.at"),
    (lambda: Reading(id=1, at=NOON, temp=81), r"Expected float <= 80\.0 - at \$\.temp"),
    (unlucky, "13 is no id"),
    (lambda: Other(id=1, at=NOON), "expected Reading, got Other"),
    (lambda: {"id": 1, "at": NOON}, "expected Reading, got dict"),
    (lambda: b"{}", "Expected object, got str"),
    (lambda: object(), "object is unsupported"),
]  # fmt: skip


async def test_what_fits_is_stored_and_what_does_not_is_not(tmp_path: Path) -> None:
    async with Node(node_config(tmp_path)) as node:
        readings = await node.stream("s", schema=Reading)
        assert await readings.push(Reading(id=1, at=NOON)) == 0
        for make, why in UNFIT:
            with pytest.raises(StreamError, match=why) as failed:
                await readings.push(make())
            assert failed.value.code == "stream.schema"
            with pytest.raises(StreamError, match=why):
                await readings.push_many([Reading(id=2, at=NOON), make()])
        assert await readings.push_many([Reading(id=2, at=NOON, temp=1.5)]) == 2
        assert await readings.pull() == [
            (0, Reading(id=1, at=NOON)), (1, Reading(id=2, at=NOON, temp=1.5)),
        ]  # fmt: skip
        (first, _) = await readings.stream.pull()
        assert bytes(first.data) == b'{"id":1,"at":"2026-01-01T12:00:00Z","temp":null}'
        await readings.stream.push(b'{"id":"x"}')
        await readings.push(Reading(id=4, at=NOON), key="k", headers={"h": "v"})
        assert [one.key for one in await readings.stream.pull(3)] == [b"k"]
        with pytest.raises(StreamError, match=r"Expected int, got str - at \$\.id"):
            await readings.pull(2, 1)


async def test_clients_over_a_link_check_the_same(tmp_path: Path) -> None:
    async with Node(node_config(tmp_path)) as node:
        address = f"noise://{node.addresses()['noise']}"
        async with await connect(address, identity=CLIENT, node_identity=node.identity) as client:
            readings = await client.stream("s", schema=Reading)
            assert (readings.name, readings.partitions) == ("s", 1)
            assert await readings.push(Reading(id=1, at=NOON)) == 0

        def blocking() -> None:
            with connect_blocking(address, identity=CLIENT, node_identity=node.identity) as client:
                readings = client.stream("s", schema=Reading)
                assert readings.push(Reading(id=2, at=NOON)) == 1
                assert readings.push_many([Reading(id=3, at=NOON)]) == 3
                with pytest.raises(StreamError, match="Expected int"):
                    readings.push(Reading(id=cast("int", "x"), at=NOON))
                assert [one.id for _, one in readings.pull()] == [1, 2, 3]

        await asyncio.to_thread(blocking)


async def test_what_is_no_class_of_entries_is_refused(tmp_path: Path) -> None:
    async with Node(node_config(tmp_path)) as node:
        with pytest.raises(ConfigError, match="is no schema of entries"):
            await node.stream("s", schema=asyncio.Future)
