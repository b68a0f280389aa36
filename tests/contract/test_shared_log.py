"""Tests the contract of engines: `actors/log/shared/port.py`."""

import asyncio
import hashlib
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from contract import jetstream_site
from postgres.server import needs_postgres, start_postgres
from rillnode.actors.log.shared.port import Blob, LogLost
from rillnode.codecs.errors import StoreError
from rillnode.node.testing.contract.shared_logs import (
    ANSWER_SECONDS,
    Client,
    Site,
    Start,
    data_of,
    opened,
    until,
)

ENGINES: Final[dict[str, Start]] = {"jetstream": jetstream_site.start, "postgres": start_postgres}
"""Engines by name."""

MARKS: Final = {"postgres": (pytest.mark.long, needs_postgres)}
"""What the tests of some are marked with."""

HEARD_SECONDS: Final = 2.0
LARGE_BYTES: Final = 20 * 1_048_576


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=MARKS.get(name, ())) for name in sorted(ENGINES)],
)
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    start = ENGINES[request.param]
    with start(tmp_path_factory.mktemp(request.param)) as site:
        yield site


# Making


async def test_logs_are_empty_when_they_are_made(site: Site) -> None:
    async with opened(site.make(), 3) as client:
        assert client.opened.shards == 3
        for shard in range(3):
            span = await client.log.span(shard)
            assert (span.first, span.last) == (1, 0)
            assert not await client.log.read(shard, 0, 1_000)
        assert not await client.blobs.list("")


async def test_identity_stays_the_same_and_is_no_others(site: Site) -> None:
    async with opened(site.make()) as client:
        first = client.opened.identity
    async with opened(site.again()) as client:
        assert client.opened.identity == first
    async with opened(site.make()) as client:
        assert client.opened.identity != first
    assert len(first) >= 16


@pytest.mark.parametrize("wanted", [1, 9])
async def test_shards_stay_as_they_were_made(site: Site, wanted: int) -> None:
    async with opened(site.make(), 4) as client:
        (sequence,) = await client.append(3, b"a")
    async with opened(site.again(), wanted) as client:
        assert client.opened.shards == 4
        assert data_of(await client.read(3, sequence - 1, 1)) == [b"a"]


async def test_clients_that_make_at_once_have_the_same_logs(site: Site) -> None:
    clients = [Client(*site.make()), *(Client(*site.again()) for _ in range(3))]
    try:
        made = await asyncio.gather(
            *[client.open(shards) for shards, client in enumerate(clients, 2)]
        )
        assert len(set(made)) == 1
        shard = made[0].shards - 1
        for client in clients:
            await client.append(shard, b"x")
        assert len(await clients[0].read(shard, 0, 4)) == 4
    finally:
        await asyncio.gather(*[client.log.close() for client in clients])


# Appending and reading


async def test_frames_stand_in_the_order_in_which_they_were_appended(site: Site) -> None:
    frames = [b"%d" % number for number in range(100)]
    async with opened(site.make()) as client, opened(site.again()) as other:
        sequences = await client.append(1, *frames)
        assert sequences[0] >= 1
        assert sequences == sorted(set(sequences))
        for reader in (client, other):
            found = await reader.read(1, 0, 100)
            assert data_of(found) == frames
            assert [frame.sequence for frame in found] == sequences


async def test_shards_have_sequences_of_their_own(site: Site) -> None:
    async with opened(site.make(), 3) as client:
        await asyncio.gather(*[client.append(shard, b"%d" % shard) for shard in range(3)])
        for shard in range(3):
            assert data_of(await client.read(shard, 0, 1)) == [b"%d" % shard]
            span = await client.log.span(shard)
            assert span.last >= span.first


async def test_two_clients_append_to_one_shard_and_read_the_same(site: Site) -> None:
    async with opened(site.make()) as client, opened(site.again()) as other:
        mine, theirs = [[b"%d %d" % (name, number) for number in range(50)] for name in range(2)]
        await asyncio.gather(client.append(0, *mine), other.append(0, *theirs))
        found = await client.read(0, 0, 100)
        assert found == await other.read(0, 0, 100)
        assert [data for data in data_of(found) if data in set(mine)] == mine
        assert [data for data in data_of(found) if data in set(theirs)] == theirs


async def test_frames_are_any_bytes(site: Site) -> None:
    frames = [b"", b"\0", b"\r\n", bytes(range(256)), b"PING\r\n", os.urandom(100_000)]
    async with opened(site.make()) as client:
        await client.append(0, *frames)
        assert data_of(await client.read(0, 0, len(frames))) == frames


async def test_a_read_begins_after_a_sequence_and_ends_at_its_limit(site: Site) -> None:
    async with opened(site.make()) as client:
        frames = [bytes([number]) * 1_000 for number in range(50)]
        sequences = await client.append(0, *frames)
        read = client.log.read
        some = await until(lambda: read(0, sequences[9], 10_000), bool)
        # What a frame takes beside its bytes may count, too.
        assert 1 <= len(some) <= 10
        assert data_of(some) == frames[10 : 10 + len(some)]
        # One that is larger than the limit is read nevertheless.
        one = await until(lambda: read(0, sequences[-2], 1), bool)
        assert data_of(one) == [frames[-1]]
        assert not await read(0, sequences[-1], 1_000)
        assert not await read(0, sequences[-1] + 1_000_000, 1_000)


async def test_the_largest_frame_is_taken_and_a_larger_one_refused(site: Site) -> None:
    async with opened(site.make()) as client:
        size = client.log.frame_bytes_max
        assert size >= 1_000_000
        data = os.urandom(size)
        with pytest.raises(StoreError) as caught:
            await client.log.append(0, data + b"x")
        assert caught.value.code == "store.too_large"
        (sequence,) = await client.append(0, data)
        assert await client.read(0, 0, 1) == [(sequence, data)]


# Trimming


async def test_what_was_trimmed_is_left_out_by_all(site: Site) -> None:
    async with opened(site.make()) as client, opened(site.again()) as other:
        sequences = await client.append(0, *(b"%d" % number for number in range(20)))
        await client.append(1, b"other shard")
        # By who has appended, by another, once more, and of what was trimmed before.
        await client.log.trim(0, sequences[4])
        await other.log.trim(0, sequences[15])
        await other.log.trim(0, sequences[15])
        await client.log.trim(0, sequences[2])
        for reader in (client, other):
            span = await until(
                partial(reader.log.span, 0), lambda span: span.first == sequences[15]
            )
            assert span.last == sequences[-1]
            found = await until(partial(reader.log.read, 0, 0, 1_000), lambda page: len(page) == 5)
            assert [frame.sequence for frame in found] == sequences[15:]
            assert data_of(await reader.read(1, 0, 1)) == [b"other shard"]


async def test_a_log_goes_on_after_all_was_trimmed(site: Site) -> None:
    async with opened(site.make()) as client:
        sequences = await client.append(0, b"a", b"b")
        await client.log.trim(0, sequences[-1] + 1)
        span = await until(lambda: client.log.span(0), lambda span: span.first > sequences[-1])
        assert (span.first, span.last) == (sequences[-1] + 1, sequences[-1])
        assert not await client.log.read(0, 0, 1_000)
        (sequence,) = await client.append(0, b"c")
        assert sequence > sequences[-1]
        assert data_of(await client.read(0, sequences[-1], 1)) == [b"c"]


async def test_nothing_is_trimmed_before_the_first_frame(site: Site) -> None:
    async with opened(site.make()) as client:
        await client.log.trim(0, 0)
        await client.log.trim(0, 1)
        (sequence,) = await client.append(0, b"a")
        await client.log.trim(0, 0)
        await client.log.trim(0, 1)
        await client.log.trim(0, sequence)
        assert data_of(await client.read(0, 0, 1)) == [b"a"]


# News


async def test_others_hear_of_what_was_appended(site: Site) -> None:
    async with opened(site.make(), 3) as client, opened(site.again()) as other:
        for shard in (2, 0):
            (sequence,) = await client.append(shard, b"x")
            await other.wait_heard(shard, sequence, HEARD_SECONDS)
            assert other.heard[shard] == sequence
        (sequence,) = await other.append(0, b"y")
        await client.wait_heard(0, sequence, HEARD_SECONDS)


async def test_who_comes_later_hears_where_the_logs_end(site: Site) -> None:
    async with opened(site.make(), 3) as client:
        sequences = await client.append(2, b"x", b"y")
        async with opened(site.again()) as other:
            await other.wait_heard(2, sequences[-1], 2 * HEARD_SECONDS)


# Losing


async def test_what_is_not_answered_is_lost_and_what_follows_is_not(site: Site) -> None:
    async with opened(site.make()) as client:
        await client.append(0, b"before")
        with site.stalled():
            asked = (
                client.log.append(0, b"lost"),
                client.log.read(0, 0, 1_000),
                client.log.span(0),
                client.log.trim(0, 1),
            )
            # Reads may be answered by what is at hand.
            said = await asyncio.wait_for(
                asyncio.gather(*asked, return_exceptions=True), ANSWER_SECONDS
            )
            assert isinstance(said[0], LogLost)
            assert all(isinstance(one, LogLost) for one in said if isinstance(one, Exception))

        async def appended() -> bool:
            try:
                await client.log.append(0, b"after")
            except LogLost:
                return False
            return True

        await until(appended, bool)
        found = await until(
            lambda: client.log.read(0, 0, 1_000), lambda page: b"after" in data_of(page)
        )
        # The lost one may be stored at any time; and one of those behind it was not lost.
        data = data_of(found)
        assert data[0] == b"before"
        assert set(data[1:]) <= {b"lost", b"after"}


async def test_close_ends_what_is_under_way(site: Site) -> None:
    async with opened(site.make()) as client:
        await client.append(0, b"a")
        with site.stalled():
            asked = [asyncio.create_task(client.log.append(0, b"b")) for _ in range(10)]
            await asyncio.sleep(0)
            await asyncio.wait_for(client.log.close(), ANSWER_SECONDS)
            said = await asyncio.wait_for(
                asyncio.gather(*asked, return_exceptions=True), ANSWER_SECONDS
            )
            assert all(isinstance(one, LogLost) for one in said)


async def test_who_is_closed_answers_nothing(site: Site, tmp_path: Path) -> None:
    async with opened(site.make()) as client:
        await client.append(0, b"a")
        await client.log.close()
        await client.log.close()
        (tmp_path / "blob").write_bytes(b"x")
        for asked in (
            client.log.append(0, b"b"),
            client.log.read(0, 0, 1_000),
            client.log.span(0),
            client.log.trim(0, 1),
            client.blobs.put("b", tmp_path / "blob"),
            client.blobs.get("b", tmp_path / "none"),
            client.blobs.list(""),
            client.blobs.delete("b"),
        ):
            with pytest.raises(LogLost):
                await asyncio.wait_for(asked, ANSWER_SECONDS)


async def test_the_state_is_told_for_people(site: Site) -> None:
    pair = site.make()
    assert pair[0].describe() is not None
    async with opened(pair) as client:
        assert client.log.describe()


# Blobs


def write(path: Path, size: int) -> str:
    """A file of so many bytes that are like no others; returns their digest."""
    data = os.urandom(size)
    path.write_bytes(data)
    return hashlib.sha256(data).hexdigest()


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("size", [0, 1, 131_072, 131_073, LARGE_BYTES])
async def test_a_blob_is_what_was_put(site: Site, tmp_path: Path, size: int) -> None:
    source = tmp_path / "source"
    wanted = write(source, size)
    async with opened(site.make()) as client, opened(site.again()) as other:
        await client.blobs.put("snapshot/1", source)
        for number, reader in enumerate((client, other)):
            await reader.blobs.get("snapshot/1", tmp_path / str(number))
            assert digest(tmp_path / str(number)) == wanted
            assert await reader.blobs.list("") == [Blob("snapshot/1", size)]


async def test_blobs_are_listed_by_name(site: Site, tmp_path: Path) -> None:
    names = ["a/1", "a/10", "a/2", "ab", "b/ä*>. x"]
    write(tmp_path / "source", 10)
    async with opened(site.make()) as client:
        for name in reversed(names):
            await client.blobs.put(name, tmp_path / "source")
        for prefix in ("", "a", "a/", "a/1", "b/ä*", "c"):
            wanted = [Blob(name, 10) for name in names if name.startswith(prefix)]
            assert list(await client.blobs.list(prefix)) == wanted
    async with opened(site.make()) as client:
        assert not await client.blobs.list("")


async def test_a_blob_is_replaced(site: Site, tmp_path: Path) -> None:
    source = tmp_path / "source"
    async with opened(site.make()) as client:
        for number, size in enumerate((300_000, 10, 200_000)):
            wanted = write(source, size)
            await client.blobs.put("a", source)
            await client.blobs.get("a", tmp_path / str(number))
            assert digest(tmp_path / str(number)) == wanted
            assert await client.blobs.list("") == [Blob("a", size)]


async def test_a_blob_is_deleted(site: Site, tmp_path: Path) -> None:
    wanted = write(tmp_path / "source", 200_000)
    async with opened(site.make()) as client:
        await client.blobs.delete("a")
        await client.blobs.put("a", tmp_path / "source")
        await client.blobs.put("b", tmp_path / "source")
        await client.blobs.delete("a")
        await client.blobs.delete("a")
        assert await client.blobs.list("") == [Blob("b", 200_000)]
        with pytest.raises(StoreError) as caught:
            await client.blobs.get("a", tmp_path / "none")
        assert caught.value.code == "store.unknown"
        assert not (tmp_path / "none").exists()
        await client.blobs.put("a", tmp_path / "source")
        await client.blobs.get("a", tmp_path / "a")
        assert digest(tmp_path / "a") == wanted


async def test_a_missing_blob_leaves_no_file(site: Site, tmp_path: Path) -> None:
    async with opened(site.make()) as client:
        with pytest.raises(StoreError) as caught:
            await client.blobs.get("none", tmp_path / "none")
        assert caught.value.code == "store.unknown"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("size", [1_000, 300_000])
async def test_a_damaged_blob_is_refused_and_leaves_no_file(
    site: Site, tmp_path: Path, size: int
) -> None:
    source = tmp_path / "source"
    write(source, size)
    async with opened(site.make()) as client:
        await client.blobs.put("a", source)
        await asyncio.to_thread(site.damage, "a")
        with pytest.raises(StoreError) as caught:
            await client.blobs.get("a", tmp_path / "target")
        assert (caught.value.code, caught.value.retryable) == ("store.corrupt", False)
        assert list(tmp_path.iterdir()) == [source]
        # It can be put again.
        await client.blobs.put("a", source)
        await client.blobs.get("a", tmp_path / "target")


async def test_a_blob_is_not_written_over_a_file(site: Site, tmp_path: Path) -> None:
    wanted = write(tmp_path / "source", 10)
    async with opened(site.make()) as client:
        await client.blobs.put("a", tmp_path / "source")
        with pytest.raises(FileExistsError):
            await client.blobs.get("a", tmp_path / "source")
        assert digest(tmp_path / "source") == wanted


async def test_frames_are_appended_while_a_blob_is_put(site: Site, tmp_path: Path) -> None:
    write(tmp_path / "source", LARGE_BYTES)
    async with opened(site.make()) as client:
        putting = asyncio.create_task(client.blobs.put("a", tmp_path / "source"))
        count = 0
        while not putting.done():
            await client.append(0, b"x")
            count += 1
        await putting
        assert count > 1
        assert len(await client.read(0, 0, count)) == count
