"""Blobs are objects of JetStream's object store, as its other clients write and read them."""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats as nats_py
import pytest

from jetstream.support import administer, pair_of
from nats_support import NatsServer, needs_nats
from rillnode.actors.jetstream import blobs as blobs_module
from rillnode.actors.jetstream.options import JetStreamOptions
from rillnode.actors.log.shared.port import Blob, LogLost
from rillnode.codecs.errors import StoreError
from rillnode.node.testing.contract.shared_logs import Client, opened, until

pytestmark = needs_nats


def bucket_of(client: Client) -> str:
    return f"t-{client.opened.identity.hex()[:16]}"


@asynccontextmanager
async def other_client(nats: NatsServer) -> AsyncGenerator[Any]:
    """JetStream as another client of NATS sees it."""
    # The package's types are partial.
    package: Any = nats_py
    client = await package.connect(nats.url)
    try:
        yield client.jetstream()
    finally:
        await client.close()


async def chunks_of(options: JetStreamOptions, client: Client) -> int:
    """How many messages the bucket has, beside one for each blob."""
    state = (await administer(options, f"STREAM.INFO.OBJ_{bucket_of(client)}"))["state"]
    return int(state["messages"]) - len(await client.blobs.list(""))


@pytest.mark.parametrize("size", [0, 5, 1_000_000])
async def test_another_client_reads_what_was_put(
    nats: NatsServer, options: JetStreamOptions, tmp_path: Path, size: int
) -> None:
    data = os.urandom(size)
    (tmp_path / "source").write_bytes(data)
    async with opened(pair_of(options)) as client, other_client(nats) as js:
        await client.blobs.put("snapshot/ä 1", tmp_path / "source")
        store = await js.object_store(bucket_of(client))
        found = await store.get("snapshot/ä 1")
        assert found.data == data
        assert (found.info.size, found.info.chunks) == (size, -(-size // 131_072))
        assert [info.name for info in await store.list()] == ["snapshot/ä 1"]


async def test_what_another_client_has_put_is_read(
    nats: NatsServer, options: JetStreamOptions, tmp_path: Path
) -> None:
    (tmp_path / "source").write_bytes(b"ours")
    data = os.urandom(700_000)
    async with opened(pair_of(options)) as client, other_client(nats) as js:
        await client.blobs.put("ours", tmp_path / "source")
        store = await js.object_store(bucket_of(client))
        await store.put("theirs", data)
        await store.put("gone", b"x")
        await store.delete("gone")
        assert await client.blobs.list("") == [Blob("ours", 4), Blob("theirs", 700_000)]
        await client.blobs.get("theirs", tmp_path / "theirs")
        assert (tmp_path / "theirs").read_bytes() == data
        with pytest.raises(StoreError) as caught:
            await client.blobs.get("gone", tmp_path / "gone")
        assert caught.value.code == "store.unknown"
        await client.blobs.delete("theirs")
        assert "theirs" not in [info.name for info in await store.list()]


async def test_nothing_is_left_of_what_was_replaced_or_deleted(
    options: JetStreamOptions, tmp_path: Path
) -> None:
    (tmp_path / "source").write_bytes(os.urandom(300_000))
    async with opened(pair_of(options)) as client:
        for _ in range(3):
            await client.blobs.put("a", tmp_path / "source")
            assert await chunks_of(options, client) == 3
        await client.blobs.put("b", tmp_path / "source")
        await client.blobs.delete("a")
        assert await chunks_of(options, client) == 3
        await client.blobs.delete("b")
        assert await chunks_of(options, client) == 0
        assert not await client.blobs.list("")


async def test_a_put_that_was_lost_leaves_the_blob_as_it_was_and_is_swept_later(
    nats: NatsServer, options: JetStreamOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "small").write_bytes(b"before")
    (tmp_path / "large").write_bytes(os.urandom(50_000_000))
    async with opened(pair_of(options)) as client:
        await client.blobs.put("a", tmp_path / "small")
        putting = asyncio.create_task(client.blobs.put("a", tmp_path / "large"))
        await until(lambda: chunks_of(options, client), lambda count: count > 5)
        await asyncio.to_thread(nats.kill)
        with pytest.raises(LogLost):
            await putting
        await asyncio.to_thread(nats.start)

        async def size() -> int:
            try:
                (found,) = await client.blobs.list("")
            except LogLost:
                return 0
            return found.size

        assert await until(size, bool) == 6
        await client.blobs.get("a", tmp_path / "found")
        assert (tmp_path / "found").read_bytes() == b"before"
        assert await chunks_of(options, client) > 5
        # They may be those of a put that still goes on.
        await client.blobs.put("b", tmp_path / "small")
        assert await chunks_of(options, client) > 5
        monkeypatch.setattr(blobs_module, "_ORPHAN_SECONDS", -1)
        await client.blobs.put("b", tmp_path / "small")
        assert await chunks_of(options, client) == 2


async def test_a_bucket_that_is_full_refuses_and_keeps_nothing_of_it(
    options: JetStreamOptions, tmp_path: Path
) -> None:
    (tmp_path / "small").write_bytes(b"small")
    (tmp_path / "large").write_bytes(os.urandom(3_000_000))
    async with opened(pair_of(options)) as client:
        await client.blobs.put("a", tmp_path / "small")
        name = f"OBJ_{bucket_of(client)}"
        config = (await administer(options, f"STREAM.INFO.{name}"))["config"]
        limited = config | {"max_bytes": 1_000_000}
        await administer(options, f"STREAM.UPDATE.{name}", limited)
        with pytest.raises(StoreError) as caught:
            await client.blobs.put("b", tmp_path / "large")
        assert caught.value.code == "store.full"
        assert await client.blobs.list("") == [Blob("a", 5)]
        assert await chunks_of(options, client) == 1


async def test_a_blob_whose_chunks_are_gone_is_corrupt(
    options: JetStreamOptions, tmp_path: Path
) -> None:
    (tmp_path / "source").write_bytes(os.urandom(300_000))
    async with opened(pair_of(options)) as client:
        await client.blobs.put("a", tmp_path / "source")
        name = f"OBJ_{bucket_of(client)}"
        await administer(options, f"STREAM.MSG.DELETE.{name}", {"seq": 3})
        with pytest.raises(StoreError) as caught:
            await client.blobs.get("a", tmp_path / "target")
        assert caught.value.code == "store.corrupt"
        assert not (tmp_path / "target").exists()


async def test_a_blob_that_is_replaced_while_it_is_read_is_whole_or_lost(
    options: JetStreamOptions, tmp_path: Path
) -> None:
    (tmp_path / "source").write_bytes(os.urandom(20_000_000))
    (tmp_path / "other").write_bytes(b"other")
    async with opened(pair_of(options)) as client:
        await client.blobs.put("a", tmp_path / "source")
        getting = asyncio.create_task(client.blobs.get("a", tmp_path / "target"))
        await asyncio.sleep(0.02)
        await client.blobs.put("a", tmp_path / "other")
        try:
            await getting
        except LogLost:
            assert not (tmp_path / "target").exists()
        else:
            assert (tmp_path / "target").read_bytes() == (tmp_path / "source").read_bytes()


async def test_blobs_are_not_those_of_other_logs(options: JetStreamOptions, tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"x")
    async with opened(pair_of(options), 1) as client:
        await client.blobs.put("a", tmp_path / "source")
        await administer(options, "STREAM.DELETE.t-log-0")
    async with opened(pair_of(options), 1) as client:
        assert not await client.blobs.list("")


async def test_a_source_that_is_missing_is_told_and_nothing_stored(
    options: JetStreamOptions, tmp_path: Path
) -> None:
    async with opened(pair_of(options)) as client:
        with pytest.raises(FileNotFoundError):
            await client.blobs.put("a", tmp_path / "none")
        assert not await client.blobs.list("")
