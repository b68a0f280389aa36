"""Declares what an engine of a shared log promises: the port `actors/log/shared/port.py`."""

import asyncio
import hashlib
import os
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import ClassVar, Final, Protocol, TypeVar

import pytest

from rillnode.actors.log.shared.port import Blob, Blobs, Frame, LogLost, Opened, SharedLog
from rillnode.codecs.errors import StoreError
from rillnode.node.testing.contract.base import Contract

ANSWER_SECONDS: Final = 60.0
"""What takes longer hangs. Machines that test are busy."""

PAGE_BYTES: Final = 1_048_576

LARGE_BYTES: Final = 20 * 1_048_576
"""Of a blob that does not fit into one message of any engine."""

T = TypeVar("T")


class SharedLogSite(Protocol):
    """The servers of one engine, which run as long as the tests of a class.

    Clients are not open yet when they are given, and take no more than a second or two to notice
    that nobody answers.
    """

    def make(self) -> tuple[SharedLog, Blobs]:
        """A client of logs that are not there yet, and are never those of an earlier call."""
        ...

    def again(self) -> tuple[SharedLog, Blobs]:
        """One more client, as on another machine, of the logs of the last `make`."""
        ...

    def damage(self, name: str) -> None:
        """Change some bytes of a blob of the last `make`, behind the engine's back."""
        ...

    def stalled(self) -> AbstractContextManager[None]:
        """Within it nothing is answered, and connections stay."""
        ...

    def crash(self) -> None:
        """End the servers as a crash would, and start them again on what they have kept.

        It is called beside the loop that clients are on, and returns once servers run.
        """
        ...


class Client:
    """An open client, and what it was told.

    Attributes:
        log: to ask.
        blobs: the same.
        heard: by shard, the largest sequence that it was told of.
        told: by shard, how often it was told.
    """

    def __init__(self, log: SharedLog, blobs: Blobs) -> None:
        self.log = log
        self.blobs = blobs
        self.heard: dict[int, int] = {}
        self.told: Counter[int] = Counter()
        self._news = asyncio.Event()
        self._opened: Opened | None = None

    @property
    def opened(self) -> Opened:
        """What `open` has returned."""
        assert self._opened is not None
        return self._opened

    async def open(self, shards: int) -> Opened:
        """Open it; a server that has just started may not answer at once."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + ANSWER_SECONDS
        while True:
            try:
                self._opened = await self.log.open(shards, self._hear)
                return self._opened
            except LogLost:
                if loop.time() > deadline:
                    raise
            await asyncio.sleep(0.1)

    async def append(self, shard: int, *items: bytes) -> list[int]:
        """Append frames one after the other, without waiting for answers between."""
        return await asyncio.gather(*[self.log.append(shard, data) for data in items])

    async def read(self, shard: int, after: int, count: int) -> list[Frame]:
        """So many frames at least, in as many reads as it takes: some server may be behind."""
        found: list[Frame] = []
        async with asyncio.timeout(ANSWER_SECONDS):
            while len(found) < count:
                page = await self.log.read(
                    shard, found[-1].sequence if found else after, PAGE_BYTES
                )
                found += page
                if not page:
                    await asyncio.sleep(0.01)
        return found

    async def wait_heard(self, shard: int, sequence: int) -> None:
        """Wait until it was told of that sequence, or a later one."""
        await self.wait_told(lambda: self.heard.get(shard, 0) >= sequence)

    async def wait_told(self, enough: Callable[[], bool]) -> None:
        """Wait until what it was told is enough."""
        async with asyncio.timeout(ANSWER_SECONDS):
            while not enough():
                self._news.clear()
                await self._news.wait()

    def _hear(self, shard: int, sequence: int) -> None:
        self.heard[shard] = max(sequence, self.heard.get(shard, 0))
        self.told[shard] += 1
        self._news.set()


@asynccontextmanager
async def opened(pair: tuple[SharedLog, Blobs], shards: int = 2) -> AsyncGenerator[Client]:
    """A client within the block."""
    client = Client(*pair)
    await client.open(shards)
    try:
        yield client
    finally:
        await client.log.close()


async def answered(ask: Callable[[], Awaitable[T]]) -> T:
    """What is answered once anybody answers."""
    async with asyncio.timeout(ANSWER_SECONDS):
        while True:
            with suppress(LogLost):
                return await ask()
            await asyncio.sleep(0.02)


async def until(
    ask: Callable[[], Awaitable[T]], fits: Callable[[T], bool], seconds: float = ANSWER_SECONDS
) -> T:
    """What is answered once it fits: servers that are behind get there."""
    async with asyncio.timeout(seconds):
        while not fits(answer := await ask()):
            await asyncio.sleep(0.02)
        return answer


def data_of(frames: Sequence[Frame]) -> list[bytes]:
    """Without their sequences."""
    return [frame.data for frame in frames]


def write(path: Path, size: int) -> str:
    """A file of so many bytes that are like no others; returns their digest."""
    data = os.urandom(size)
    path.write_bytes(data)
    return hashlib.sha256(data).hexdigest()


def digest(path: Path) -> str:
    """The digest of a file's bytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


class OnServers(Contract):
    """A suite of what stands on an engine: a subclass says by `servers` how those are started."""

    seconds_max: ClassVar[float] = 5 * ANSWER_SECONDS

    @classmethod
    def servers(cls, directory: Path) -> AbstractContextManager[SharedLogSite]:
        """The engine's servers, which run within the block: for all tests of a class together.

        Args:
            directory: empty; they may keep their data there.
        """
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def site(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedLogSite]:
        """What `servers` gives."""
        with cls.servers(tmp_path_factory.mktemp("servers")) as site:
            yield site


class SharedLogContract(OnServers):
    """The promises of every engine of a shared log: a SharedLog and Blobs, of the same logs."""

    # Making

    async def test_logs_are_empty_when_they_are_made(self, site: SharedLogSite) -> None:
        async with opened(site.make(), 3) as client:
            assert client.opened.shards == 3
            for shard in range(3):
                span = await client.log.span(shard)
                assert (span.first, span.last) == (1, 0)
                assert not await client.log.read(shard, 0, 1_000)
            assert not await client.blobs.list("")

    async def test_identity_stays_the_same_and_is_no_others(self, site: SharedLogSite) -> None:
        async with opened(site.make()) as client:
            first = client.opened.identity
        async with opened(site.again()) as client:
            assert client.opened.identity == first
        async with opened(site.make()) as client:
            assert client.opened.identity != first
        assert len(first) >= 16

    @pytest.mark.parametrize("wanted", [1, 9])
    async def test_shards_stay_as_they_were_made(self, site: SharedLogSite, wanted: int) -> None:
        async with opened(site.make(), 4) as client:
            (sequence,) = await client.append(3, b"a")
        async with opened(site.again(), wanted) as client:
            assert client.opened.shards == 4
            assert data_of(await client.read(3, sequence - 1, 1)) == [b"a"]

    async def test_clients_that_make_at_once_have_the_same_logs(self, site: SharedLogSite) -> None:
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

    async def test_frames_stand_in_the_order_in_which_they_were_appended(
        self, site: SharedLogSite
    ) -> None:
        frames = [b"%d" % number for number in range(100)]
        async with opened(site.make()) as client, opened(site.again()) as other:
            sequences = await client.append(1, *frames)
            assert sequences[0] >= 1
            assert sequences == sorted(set(sequences))
            for reader in (client, other):
                found = await reader.read(1, 0, 100)
                assert data_of(found) == frames
                assert [frame.sequence for frame in found] == sequences

    async def test_shards_have_sequences_of_their_own(self, site: SharedLogSite) -> None:
        async with opened(site.make(), 3) as client:
            await asyncio.gather(*[client.append(shard, b"%d" % shard) for shard in range(3)])
            for shard in range(3):
                assert data_of(await client.read(shard, 0, 1)) == [b"%d" % shard]
                span = await client.log.span(shard)
                assert span.last >= span.first

    async def test_two_clients_append_to_one_shard_and_read_the_same(
        self, site: SharedLogSite
    ) -> None:
        async with opened(site.make()) as client, opened(site.again()) as other:
            mine, theirs = [
                [b"%d %d" % (name, number) for number in range(50)] for name in range(2)
            ]
            await asyncio.gather(client.append(0, *mine), other.append(0, *theirs))
            found = await client.read(0, 0, 100)
            assert found == await other.read(0, 0, 100)
            assert [data for data in data_of(found) if data in set(mine)] == mine
            assert [data for data in data_of(found) if data in set(theirs)] == theirs

    async def test_frames_are_any_bytes(self, site: SharedLogSite) -> None:
        frames = [b"", b"\0", b"\r\n", bytes(range(256)), b"PING\r\n", os.urandom(100_000)]
        async with opened(site.make()) as client:
            await client.append(0, *frames)
            assert data_of(await client.read(0, 0, len(frames))) == frames

    async def test_a_read_begins_after_a_sequence_and_ends_at_its_limit(
        self, site: SharedLogSite
    ) -> None:
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

    async def test_the_largest_frame_is_taken_and_a_larger_one_refused(
        self, site: SharedLogSite
    ) -> None:
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

    async def test_what_was_trimmed_is_left_out_by_all(self, site: SharedLogSite) -> None:
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
                found = await until(
                    partial(reader.log.read, 0, 0, 1_000), lambda page: len(page) == 5
                )
                assert [frame.sequence for frame in found] == sequences[15:]
                assert data_of(await reader.read(1, 0, 1)) == [b"other shard"]

    async def test_a_log_goes_on_after_all_was_trimmed(self, site: SharedLogSite) -> None:
        async with opened(site.make()) as client:
            sequences = await client.append(0, b"a", b"b")
            await client.log.trim(0, sequences[-1] + 1)
            span = await until(lambda: client.log.span(0), lambda span: span.first > sequences[-1])
            assert (span.first, span.last) == (sequences[-1] + 1, sequences[-1])
            assert not await client.log.read(0, 0, 1_000)
            (sequence,) = await client.append(0, b"c")
            assert sequence > sequences[-1]
            assert data_of(await client.read(0, sequences[-1], 1)) == [b"c"]

    async def test_nothing_is_trimmed_before_the_first_frame(self, site: SharedLogSite) -> None:
        async with opened(site.make()) as client:
            await client.log.trim(0, 0)
            await client.log.trim(0, 1)
            (sequence,) = await client.append(0, b"a")
            await client.log.trim(0, 0)
            await client.log.trim(0, 1)
            await client.log.trim(0, sequence)
            assert data_of(await client.read(0, 0, 1)) == [b"a"]

    # News

    async def test_others_hear_of_what_was_appended(self, site: SharedLogSite) -> None:
        async with opened(site.make(), 3) as client, opened(site.again()) as other:
            for shard in (2, 0):
                (sequence,) = await client.append(shard, b"x")
                await other.wait_heard(shard, sequence)
                assert other.heard[shard] == sequence
            (sequence,) = await other.append(0, b"y")
            await client.wait_heard(0, sequence)

    async def test_who_comes_later_hears_where_the_logs_end(self, site: SharedLogSite) -> None:
        async with opened(site.make(), 3) as client:
            sequences = await client.append(2, b"x", b"y")
            async with opened(site.again()) as other:
                await other.wait_heard(2, sequences[-1])

    async def test_the_ends_of_all_shards_are_told_again_and_again(
        self, site: SharedLogSite
    ) -> None:
        async with opened(site.make(), 3) as client:
            (sequence,) = await client.append(1, b"x")
            client.heard.clear()
            client.told.clear()
            await client.wait_told(lambda: all(client.told[shard] >= 2 for shard in range(3)))
            assert {shard: client.heard[shard] for shard in range(3)} == {0: 0, 1: sequence, 2: 0}

    # Losing

    async def test_what_is_not_answered_is_lost_and_what_follows_is_not(
        self, site: SharedLogSite
    ) -> None:
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
            await answered(lambda: client.log.append(0, b"after"))
            found = await until(
                lambda: client.log.read(0, 0, 1_000), lambda page: b"after" in data_of(page)
            )
            # The lost one may be stored at any time; and one of those behind it was not lost.
            data = data_of(found)
            assert data[0] == b"before"
            assert set(data[1:]) <= {b"lost", b"after"}

    async def test_a_blob_that_is_not_answered_is_lost_and_leaves_no_file(
        self, site: SharedLogSite, tmp_path: Path
    ) -> None:
        wanted = write(tmp_path / "source", 1_000)
        async with opened(site.make()) as client:
            await client.blobs.put("a", tmp_path / "source")
            with site.stalled():
                asked = (
                    client.blobs.put("b", tmp_path / "source"),
                    client.blobs.get("a", tmp_path / "target"),
                    client.blobs.list(""),
                    client.blobs.delete("c"),
                )
                said = await asyncio.wait_for(
                    asyncio.gather(*asked, return_exceptions=True), ANSWER_SECONDS
                )
                assert [type(one) for one in said] == [LogLost] * 4
                assert list(tmp_path.iterdir()) == [tmp_path / "source"]
            await answered(lambda: client.blobs.get("a", tmp_path / "target"))
            assert digest(tmp_path / "target") == wanted

    async def test_what_was_confirmed_outlives_a_crash_of_the_servers(
        self, site: SharedLogSite, tmp_path: Path
    ) -> None:
        wanted = write(tmp_path / "source", 200_000)
        frames = [b"%d" % number for number in range(20)]
        async with opened(site.make()) as client:
            sequences = await client.append(1, *frames)
            await client.log.trim(1, sequences[2])
            await client.blobs.put("a", tmp_path / "source")
            await asyncio.to_thread(site.crash)
            async with opened(site.again()) as other:
                assert other.opened == client.opened
                found = await other.read(1, 0, len(frames) - 2)
                assert found == list(map(Frame, sequences[2:], frames[2:]))
                await other.blobs.get("a", tmp_path / "target")
                assert digest(tmp_path / "target") == wanted
            # Who was connected goes on.
            sequence = await answered(lambda: client.log.append(1, b"after"))
            assert sequence > sequences[-1]
            assert (await client.read(1, sequence - 1, 1))[0] == (sequence, b"after")

    async def test_close_ends_what_is_under_way(self, site: SharedLogSite) -> None:
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

    async def test_who_is_closed_answers_nothing(self, site: SharedLogSite, tmp_path: Path) -> None:
        async with opened(site.make()) as client:
            await client.append(0, b"a")
            await client.log.close()
            await client.log.close()
            (tmp_path / "blob").write_bytes(b"x")
            asks: list[Callable[[], Awaitable[object]]] = [
                lambda: client.log.append(0, b"b"),
                lambda: client.log.read(0, 0, 1_000),
                lambda: client.log.span(0),
                lambda: client.log.trim(0, 1),
                lambda: client.blobs.put("b", tmp_path / "blob"),
                lambda: client.blobs.get("b", tmp_path / "none"),
                lambda: client.blobs.list(""),
                lambda: client.blobs.delete("b"),
            ]
            for ask in asks:
                with pytest.raises(LogLost):
                    async with asyncio.timeout(ANSWER_SECONDS):
                        await ask()

    async def test_the_state_is_told_for_people(self, site: SharedLogSite) -> None:
        log, blobs = site.make()
        assert not log.describe()["connected"]
        async with opened((log, blobs)):
            said = log.describe()
            assert (bool(said["connected"]), said["unsynced"]) == (True, "")
        assert not log.describe()["connected"]

    # Blobs

    @pytest.mark.parametrize("size", [0, 1, 131_072, 131_073, LARGE_BYTES])
    async def test_a_blob_is_what_was_put(
        self, site: SharedLogSite, tmp_path: Path, size: int
    ) -> None:
        source = tmp_path / "source"
        wanted = write(source, size)
        async with opened(site.make()) as client, opened(site.again()) as other:
            await client.blobs.put("snapshot/1", source)
            for number, reader in enumerate((client, other)):
                await reader.blobs.get("snapshot/1", tmp_path / str(number))
                assert digest(tmp_path / str(number)) == wanted
                assert await reader.blobs.list("") == [Blob("snapshot/1", size)]

    async def test_blobs_are_listed_by_name(self, site: SharedLogSite, tmp_path: Path) -> None:
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

    async def test_a_blob_is_replaced(self, site: SharedLogSite, tmp_path: Path) -> None:
        source = tmp_path / "source"
        async with opened(site.make()) as client:
            for number, size in enumerate((300_000, 10, 200_000)):
                wanted = write(source, size)
                await client.blobs.put("a", source)
                await client.blobs.get("a", tmp_path / str(number))
                assert digest(tmp_path / str(number)) == wanted
                assert await client.blobs.list("") == [Blob("a", size)]

    async def test_a_blob_is_deleted(self, site: SharedLogSite, tmp_path: Path) -> None:
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

    async def test_a_missing_blob_leaves_no_file(self, site: SharedLogSite, tmp_path: Path) -> None:
        async with opened(site.make()) as client:
            with pytest.raises(StoreError) as caught:
                await client.blobs.get("none", tmp_path / "none")
            assert caught.value.code == "store.unknown"
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize("size", [1_000, 300_000])
    async def test_a_damaged_blob_is_refused_and_leaves_no_file(
        self, site: SharedLogSite, tmp_path: Path, size: int
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

    async def test_a_blob_is_not_written_over_a_file(
        self, site: SharedLogSite, tmp_path: Path
    ) -> None:
        wanted = write(tmp_path / "source", 10)
        async with opened(site.make()) as client:
            await client.blobs.put("a", tmp_path / "source")
            with pytest.raises(FileExistsError):
                await client.blobs.get("a", tmp_path / "source")
            assert digest(tmp_path / "source") == wanted

    async def test_frames_are_appended_while_a_blob_is_put(
        self, site: SharedLogSite, tmp_path: Path
    ) -> None:
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
