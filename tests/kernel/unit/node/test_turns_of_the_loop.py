"""Tests that a node's work outside of actors goes in slices too."""

import argparse
import asyncio
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from link_support import ManualClock
from rillnode.actors.streamr import metadata
from rillnode.node.cli import run
from rillnode.node.config import Config, GrantTable
from rillnode.node.http import documents
from rillnode.node.http.documents import SLICE_TABLES, masked
from rillnode.node.streamr.rest.streams import SLICE_STREAMS
from rillnode.transports.groups import SLICE_CLOSED, SLICE_LINKS, LinkGroup
from rillnode.transports.links import LinkLimits
from rillnode.transports.meters import LinkMeter
from streamr_rest_support import Server, served, streamr_config
from turn_support import counted_by_loop_turn

SECONDS = 60.0


def told(state: str, *_: object) -> str:
    """Counted where tests want to know how often a state is asked for."""
    return state


class Meter(LinkMeter):
    """Says whenever it is asked."""

    @property
    def state(self) -> str:
        return told(super().state)


class Link:
    """A link that is gone as soon as it is closed."""

    def __init__(self, group: LinkGroup, number: int) -> None:
        self.group = group
        self.host = f"10.0.{number >> 8}.{number & 255}"
        self.remote = f"{self.host}:1"
        self.meter: LinkMeter = Meter("noise", 0.0, dialled=False)
        assert group.admit(self) is None

    def check(self, now: float) -> None:
        """There are no deadlines."""

    def close(self, reason: str) -> None:
        self.group.release(self)


def group_of(count: int) -> LinkGroup:
    group = LinkGroup(transport="noise", clock=ManualClock(), limits=LinkLimits())
    for number in range(count):
        Link(group, number)
    return group


async def test_the_states_of_many_links_are_looked_at_in_slices() -> None:
    group = group_of(2 * SLICE_LINKS + 1)
    async with counted_by_loop_turn(sys.modules[__name__], "told") as asked:
        states = await group.states()
    assert states == {"handshake": 2 * SLICE_LINKS + 1}
    assert asked.turns == [SLICE_LINKS, SLICE_LINKS, 1]


async def test_many_links_are_closed_in_slices() -> None:
    group = group_of(2 * SLICE_CLOSED + 1)
    async with counted_by_loop_turn(Link, "close") as closed:
        await group.close("the node is stopping")
    assert not len(group)
    assert closed.turns == [SLICE_CLOSED, SLICE_CLOSED, 1]


async def test_thousands_of_grants_are_shown_in_slices(tmp_path: Path) -> None:
    grants = [
        GrantTable(who=f"noise:{number:064}", streams="s3://user:secret@host/*", may=("pull",))
        for number in range(2 * SLICE_TABLES + 1)
    ]
    config = Config(name="a", data_dir=tmp_path, grants=tuple(grants))
    async with counted_by_loop_turn(documents, "_masked") as looked_at:
        document = await masked(config)
    assert [one["who"] for one in document["grant"]] == [one.who for one in grants]
    assert {one["streams"] for one in document["grant"]} == {"s3://***@host/*"}
    # Of each grant itself, its texts, of which one is not there, its verbs, the one among them.
    assert looked_at.most < 100 + 6 * SLICE_TABLES


def test_a_list_of_streams_over_rest_is_made_in_slices(tmp_path: Path) -> None:
    count = 2 * SLICE_STREAMS + 1
    grant = GrantTable(who="anonymous", streams="*", may=("admin",))

    async def test(server: Server) -> None:
        for number in range(count):
            await server.node.stream(f"s{number:04}")
        async with counted_by_loop_turn(metadata, "describe") as described:
            answer = await server.anybody().get("/streams?public=true")
        assert [one["id"] for one in answer.body] == [f"s{number:04}" for number in range(count)]
        assert described.turns == [SLICE_STREAMS, SLICE_STREAMS, 1]

    served(streamr_config(tmp_path, grant), test)


def test_the_loop_goes_on_while_a_configuration_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turned, configs = threading.Event(), list[Config]()

    def slowly(*_: object) -> Config:
        assert turned.wait(SECONDS), "the loop has waited"
        return Config(name="b", data_dir=tmp_path)

    class Node:
        """Notes what it is to take over."""

        def take_over(self, config: Config) -> None:
            configs.append(config)

    async def test() -> None:
        asked, node, terminal = asyncio.Event(), Node(), argparse.Namespace(err=sys.stderr)
        args: Any = argparse.Namespace(verbose=False)
        reloading = asyncio.create_task(run.reload_when(asked, node, args, terminal))  # type: ignore[arg-type]
        asked.set()
        await asyncio.sleep(0.01)
        assert not configs
        turned.set()
        while not configs:
            await asyncio.sleep(0.001)
        asked.set()  # and once more
        while len(configs) < 2:
            await asyncio.sleep(0.001)
        reloading.cancel()

    monkeypatch.setattr(run, "_configuration", slowly)
    monkeypatch.setattr("rillnode.node.logs.configure_logs", told)
    asyncio.run(asyncio.wait_for(test(), SECONDS))
    assert [config.name for config in configs] == ["b", "b"]
