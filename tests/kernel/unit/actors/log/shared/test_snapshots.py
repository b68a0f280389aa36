"""Snapshots: made, taken, dropped, and what is wrong with them."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from coroutines import handed_by
from rillnode.actors.log.shared import snapshots as module
from rillnode.actors.log.shared.memory_log import MemoryLog, MemoryServers
from rillnode.actors.log.shared.port import Blob, LogLost
from rillnode.actors.log.shared.snapshots import File, Snapshot, Snapshots
from rillnode.codecs.errors import StoreError

SHARD = 1


class Sent(MemoryLog):
    """Blobs that say what was fetched, and can be made to fail."""

    def __init__(self, servers: MemoryServers) -> None:
        super().__init__(servers)
        self.got: list[str] = []
        self.get_left = 2**32
        self.before_put: Callable[[str], Coroutine[Any, Any, None]] | None = None

    async def put(self, name: str, path: Path) -> None:
        if self.before_put is not None:
            await self.before_put(name)
        await super().put(name, path)

    async def get(self, name: str, path: Path) -> None:
        if not self.get_left:
            raise LogLost("cut off")
        self.get_left -= 1
        self.got.append(name)
        await super().get(name, path)


class Place:
    """One node's snapshots and its view."""

    def __init__(self, servers: MemoryServers, directory: Path, name: str = "a") -> None:
        self.servers = servers
        self.blobs = Sent(servers)
        self.directory = directory / name
        self.view = self.directory / "0001"
        self.copy = self.directory / "copy"
        self.snapshots = Snapshots(self.blobs, b"i", self.directory, random.Random(name).randbytes)

    async def put(self, sequence: int, **files: bytes) -> int:
        for path in self.copy.iterdir() if self.copy.exists() else ():
            path.unlink()
        self.copy.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (self.copy / name.replace("_", ".")).write_bytes(data)
        return await self.snapshots.put(SHARD, sequence, self.view, self.copy)

    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.view.iterdir()}


Two = tuple[Place, Place]


def with_two(test: Callable[[Two], Coroutine[Any, Any, None]], directory: Path) -> None:
    """Run a test with the snapshots of two nodes on the same servers."""

    async def run() -> None:
        servers = MemoryServers(b"x" * 16)
        two = Place(servers, directory), Place(servers, directory, "b")
        for place in two:
            await place.blobs.open(1, lambda shard, sequence: None)
        await test(two)

    asyncio.run(run())


two = handed_by(with_two)


async def test_a_snapshot_is_made_and_taken(two: Two) -> None:
    one, other = two
    servers = one.servers
    assert await one.put(7, a_sst=b"table", CURRENT=b"current") == 12
    assert list(await other.snapshots.sequences(SHARD)) == [7]
    assert list(await other.snapshots.sequences(2)) == []
    other.view.mkdir(parents=True)
    (other.view / "old").write_bytes(b"")
    await other.snapshots.restore(SHARD, 7, other.view)
    assert other.files() == {"a.sst": b"table", "CURRENT": b"current"}
    assert not [name for name in servers.blobs if name.endswith(".making")]


async def test_a_view_takes_its_place_when_all_of_it_is_on_the_disk(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frames that it has are not read again, so that what a power cut took would be missing."""
    one, other = two
    await one.put(7, a_sst=b"table", CURRENT=b"current")
    synced: list[tuple[str, bool]] = []

    def sync(path: Path) -> None:
        synced.append((path.name, other.view.exists()))

    monkeypatch.setattr(module, "sync", sync)
    await other.snapshots.restore(SHARD, 7, other.view)
    assert set(synced[:-2]) == {("a.sst", False), ("CURRENT", False)}
    assert synced[-2:] == [("0001.new", False), (other.directory.name, True)]


async def test_tables_that_are_there_are_not_sent_again(two: Two) -> None:
    one, other = two
    await one.put(7, a_sst=b"table", CURRENT=b"current")
    assert await one.put(9, a_sst=b"table", b_sst=b"more", CURRENT=b"current") == 4 + 7
    # Of another view the same name is another file.
    assert await other.put(8, a_sst=b"TABLE", CURRENT=b"") == 5
    await one.snapshots.restore(SHARD, 8, one.view)
    assert one.files()["a.sst"] == b"TABLE"
    # A view that was put in the place of another one has a new name.
    assert await one.put(10, a_sst=b"table", CURRENT=b"") == 5


async def test_a_fetch_that_was_cut_off_goes_on(two: Two) -> None:
    one, other = two
    await one.put(7, a_sst=b"1", b_sst=b"2", c_sst=b"3")
    other.blobs.get_left = 3  # the manifest, and two files
    with pytest.raises(LogLost):
        await other.snapshots.restore(SHARD, 7, other.view)
    assert not other.view.exists()
    (other.directory / "0001.new" / "a.sst").write_bytes(b"damaged")
    (other.directory / "0001.new" / "other").write_bytes(b"of another snapshot")
    other.blobs.get_left, other.blobs.got = 9, []
    await other.snapshots.restore(SHARD, 7, other.view)
    assert [name[-5:] for name in other.blobs.got[1:]] == ["a.sst", "c.sst"]
    assert other.files() == {"a.sst": b"1", "b.sst": b"2", "c.sst": b"3"}


async def test_what_is_not_what_was_stored_is_not_taken(two: Two) -> None:
    one, other = two
    foreign = Snapshots(other.blobs, b"j", other.directory, random.Random("b").randbytes)
    servers = one.servers
    await one.put(7, a_sst=b"table")
    for blob, damage, expected in (
        (".sst", b"tablE", "store.corrupt"),
        (".sst", None, "store.unknown"),
        (".snapshot", b"\xc1", "store.corrupt"),
        (".snapshot", None, "store.unknown"),
    ):
        kept = dict(servers.blobs)
        (name,) = (name for name in servers.blobs if name.endswith(blob))
        if damage is None:
            del servers.blobs[name]
        else:
            servers.blobs[name] = damage
        one.view.mkdir(exist_ok=True)
        (one.view / "kept").write_bytes(b"")
        with pytest.raises(StoreError) as caught:
            await one.snapshots.restore(SHARD, 7, one.view)
        assert caught.value.code == expected
        assert (one.view / "kept").exists()
        servers.blobs.clear()
        servers.blobs.update(kept)
    with pytest.raises(StoreError) as caught:
        await foreign.restore(SHARD, 7, other.view)
    assert caught.value.code == "store.foreign"
    servers.blobs["0002/" + "0" * 15 + "7.snapshot"] = servers.blobs[
        "0001/" + "0" * 15 + "7.snapshot"
    ]
    with pytest.raises(StoreError) as caught:
        await one.snapshots.restore(2, 7, one.view)
    assert caught.value.code == "store.foreign"


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "/etc/x", "a/b", "a\0b", "x/"])
async def test_no_file_leaves_the_directory(two: Two, name: str) -> None:
    one, _ = two
    servers = one.servers
    await one.put(7, a_sst=b"table")
    hostile = File(name, "0001/blob", 1, b"")
    made = Snapshot(identity=b"i", shard=SHARD, sequence=7, files=(hostile,))
    servers.blobs["0001/" + "0" * 15 + "7.snapshot"] = msgspec.msgpack.encode(made)
    with pytest.raises(StoreError) as caught:
        await one.snapshots.restore(SHARD, 7, one.view)
    assert caught.value.code == "store.corrupt"


async def test_a_snapshot_of_a_later_version_is_told(two: Two) -> None:
    one, _ = two
    servers = one.servers
    made = Snapshot(format=2, identity=b"i", shard=SHARD, sequence=7, files=())
    servers.blobs["0001/" + "0" * 15 + "7.snapshot"] = msgspec.msgpack.encode(made)
    with pytest.raises(StoreError) as caught:
        await one.snapshots.restore(SHARD, 7, one.view)
    assert caught.value.code == "store.newer"


async def test_the_two_newest_are_kept_with_their_files(two: Two) -> None:
    one, other = two
    servers = one.servers
    await one.put(7, a_sst=b"1", b_sst=b"2", CURRENT=b"7")
    assert await one.snapshots.prune(SHARD) is None
    await other.put(8, a_sst=b"3", CURRENT=b"8")
    assert await one.snapshots.prune(SHARD) == 7
    servers.blobs["0001/junk"] = b""
    servers.blobs["0001/zz.snapshot"] = b"not of ours"
    servers.blobs["0002/junk"] = b""
    await one.put(9, b_sst=b"2", c_sst=b"4", CURRENT=b"9")
    assert await other.snapshots.prune(SHARD) == 8
    assert list(await one.snapshots.sequences(SHARD)) == [9, 8]
    left = sorted(name.partition("/")[2] for name in servers.blobs)
    assert sum(name.endswith("a.sst") for name in left) == 1
    assert "junk" in left  # of another shard
    for sequence in (8, 9):
        await one.snapshots.restore(SHARD, sequence, one.view)


@pytest.mark.parametrize("at", range(5))
async def test_what_is_being_made_is_kept(two: Two, at: int) -> None:
    """Another node drops old snapshots before each blob that one puts."""

    one, other = two
    await one.put(7, a_sst=b"1", CURRENT=b"7")
    await other.put(8, a_sst=b"3", CURRENT=b"8")
    await other.put(9, a_sst=b"3", CURRENT=b"9")
    left = at

    async def drop(_: str) -> None:
        nonlocal left
        if not left:
            await other.snapshots.prune(SHARD)
        left -= 1

    one.blobs.before_put = drop
    await one.put(10, a_sst=b"1", b_sst=b"2", CURRENT=b"10")
    await other.snapshots.restore(SHARD, 10, other.view)
    assert other.files() == {"a.sst": b"1", "b.sst": b"2", "CURRENT": b"10"}


@pytest.mark.parametrize("at", range(4))
async def test_what_was_begun_while_others_are_dropped_is_kept(
    two: Two, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    one, other = two
    await other.put(8, a_sst=b"3")
    await other.put(9, a_sst=b"3")
    listed, calls = other.blobs.list, 0

    async def list_slowly(prefix: str) -> Sequence[Blob]:
        nonlocal calls
        found = await listed(prefix)
        if calls == at:
            await one.put(10, a_sst=b"1")
        calls += 1
        return found

    monkeypatch.setattr(other.blobs, "list", list_slowly)
    await other.snapshots.prune(SHARD)
    assert calls == 4
    await one.snapshots.restore(SHARD, 10, one.view)


async def test_files_of_a_snapshot_that_was_never_finished_are_dropped_in_the_end(two: Two) -> None:
    one, _ = two
    servers = one.servers

    async def cut(name: str) -> None:
        if name.endswith(module._SUFFIX):  # pyright: ignore[reportPrivateUsage]
            raise LogLost("cut off")

    one.blobs.before_put = cut
    with pytest.raises(LogLost):
        await one.put(7, lost_sst=b"1")
    one.blobs.before_put = None
    for sequence in (8, 9):
        await one.put(sequence, a_sst=b"2")
    await one.snapshots.prune(SHARD)
    assert not [n for n in servers.blobs if "lost" in n or n.endswith(".making")]
