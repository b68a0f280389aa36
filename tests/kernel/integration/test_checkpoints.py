"""Tests for whom a node copies its store, and which stores can."""

import fcntl
import os
from pathlib import Path

import pytest

from nodes import CLIENT, connect_to, node_config, store_with
from rillnode.actors.log.rocks.tables import Tables, Tuning
from rillnode.actors.log.rocks.verify import verify_store
from rillnode.codecs.errors import RequestError
from rillnode.node.config import GrantTable
from rillnode.node.runtime import Node

SECONDS = 120.0


async def test_copies_stand_in_the_data_directory_under_names_of_the_nodes_own(
    tmp_path: Path,
) -> None:
    async with Node(node_config(tmp_path)) as node, await connect_to(node) as client:
        stream = await client.stream("s")
        copies: list[Path] = []
        for number in range(2):
            await stream.push(b"%d" % number)
            copies.append(Path(await client.checkpoint()))
        assert {copy.parent for copy in copies} == {node.config.checkpoints_dir}
        for number, copy in enumerate(copies, 1):
            tables = Tables(copy, Tuning(), read_only=True)
            verdict = verify_store(tables)
            tables.close()
            assert (verdict.entries, verdict.problems) == (number, [])
        assert await stream.push(b"goes on") == 2


async def test_copies_that_nobody_took_away_go_with_the_next_start(tmp_path: Path) -> None:
    async with Node(node_config(tmp_path)) as node:
        abandoned = Path(await node.client.checkpoint())
        used = Path(await node.client.checkpoint())
    descriptor = os.open(used, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    try:
        async with Node(node_config(tmp_path)):
            assert (abandoned.exists(), used.exists()) == (False, True)
    finally:
        os.close(descriptor)


async def test_only_who_administers_gets_one(tmp_path: Path) -> None:
    who = f"noise:{CLIENT.public_hex}"
    grant = GrantTable(who=who, streams="*", may=("create", "push", "pull", "subscribe"))
    async with Node(node_config(tmp_path, grant)) as node, await connect_to(node) as client:
        with pytest.raises(RequestError) as caught:
            await client.checkpoint()
        assert caught.value.code == "address.unknown"
        assert not node.config.checkpoints_dir.exists()


async def test_a_store_that_cannot_be_copied_is_said_to_be_one(tmp_path: Path) -> None:
    async with Node(node_config(tmp_path), make_store=store_with()) as node:
        with pytest.raises(RequestError) as caught:
            await node.client.checkpoint()
        assert caught.value.code == "backup.unsupported"
