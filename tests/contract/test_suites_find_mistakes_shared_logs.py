"""Tests the suite of shared logs: it finds mistakes of engines, which differ in nothing else."""

import asyncio
import inspect
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from memory_site import MemorySite
from planting import in_the_long_part
from rillnode.actors.log.shared.memory_log import MemoryLog
from rillnode.actors.log.shared.port import Blob, Frame, Heard, Opened
from rillnode.codecs.errors import StoreError
from rillnode.testing.contract import SharedLogContract


class WithoutIdentity(MemoryLog):
    async def open(self, shards: int, heard: Heard) -> Opened:
        return replace(await super().open(shards, heard), identity=b"always the same")


class ShardsAsWanted(MemoryLog):
    async def open(self, shards: int, heard: Heard) -> Opened:
        return replace(await super().open(shards, heard), shards=shards)


class FirstComesLast(MemoryLog):
    """Frames overtake the one that is sent first."""

    async def append(self, shard: int, data: bytes) -> int:
        if data == b"0":
            for _ in range(5):
                await asyncio.sleep(0)
        return await super().append(shard, data)


class TellsOneTooMany(MemoryLog):
    def hear(self, shard: int, sequence: int) -> None:
        super().hear(shard, sequence + 1)


class TakesAllFrames(MemoryLog):
    async def append(self, shard: int, data: bytes) -> int:
        return await super().append(shard, data[: self.frame_bytes_max])


class ConfirmsWhatIsLost(MemoryLog):
    async def append(self, shard: int, data: bytes) -> int:
        if self.faults.is_cut:
            return 2
        return await super().append(shard, data)


class ReadsFromTheSequence(MemoryLog):
    async def read(self, shard: int, after: int, bytes_max: int) -> Sequence[Frame]:
        return await super().read(shard, after - 1, bytes_max)


class ReadsEverything(MemoryLog):
    async def read(self, shard: int, after: int, bytes_max: int) -> Sequence[Frame]:
        return await super().read(shard, after, 2**40)


class TrimsTheFrameItself(MemoryLog):
    async def trim(self, shard: int, before: int) -> None:
        await super().trim(shard, before + 1)


class CountsAnew(MemoryLog):
    """Sequences begin again where a log is empty."""

    async def trim(self, shard: int, before: int) -> None:
        await super().trim(shard, before)
        log = self._servers.shards[shard]
        if not log.frames:
            log.trimmed = 0


class NeverCloses(MemoryLog):
    async def close(self) -> None:
        pass


class ListsAsTheyCame(MemoryLog):
    async def list(self, prefix: str) -> Sequence[Blob]:
        found = await super().list(prefix)
        return sorted(found, key=lambda blob: list(self._servers.blobs).index(blob.name))


class GetsWhatIsDamaged(MemoryLog):
    async def get(self, name: str, path: Path) -> None:
        self._servers.damaged.clear()
        await super().get(name, path)


class LeavesAFile(MemoryLog):
    async def get(self, name: str, path: Path) -> None:
        try:
            await super().get(name, path)
        except StoreError:
            path.touch()
            raise


class WritesOverFiles(MemoryLog):
    async def get(self, name: str, path: Path) -> None:
        path.unlink(missing_ok=True)
        await super().get(name, path)


class KeepsTheFirst(MemoryLog):
    async def put(self, name: str, path: Path) -> None:
        if name not in self._servers.blobs:
            await super().put(name, path)


class LosesTheLastFrame(MemorySite):
    """Its servers confirm before they have synced."""

    def crash(self) -> None:
        self.servers.shards[1].frames.pop()


Mistake = type[MemoryLog] | type[MemorySite]

MISTAKES: list[tuple[Mistake, str]] = [
    (ConfirmsWhatIsLost, "what_is_not_answered_is_lost_and_what_follows_is_not"),
]

FURTHER: list[tuple[Mistake, str]] = [
    (WithoutIdentity, "identity_stays_the_same_and_is_no_others"),
    (ShardsAsWanted, "shards_stay_as_they_were_made"),
    (FirstComesLast, "frames_stand_in_the_order_in_which_they_were_appended"),
    (TellsOneTooMany, "others_hear_of_what_was_appended"),
    (TakesAllFrames, "the_largest_frame_is_taken_and_a_larger_one_refused"),
    (ReadsFromTheSequence, "a_read_begins_after_a_sequence_and_ends_at_its_limit"),
    (ReadsEverything, "a_read_begins_after_a_sequence_and_ends_at_its_limit"),
    (NeverCloses, "who_is_closed_answers_nothing"),
    (ListsAsTheyCame, "blobs_are_listed_by_name"),
    (GetsWhatIsDamaged, "a_damaged_blob_is_refused_and_leaves_no_file"),
    (LeavesAFile, "a_missing_blob_leaves_no_file"),
    (WritesOverFiles, "a_blob_is_not_written_over_a_file"),
    (KeepsTheFirst, "a_blob_is_replaced"),
]


WAITED_FOR = [
    (TrimsTheFrameItself, "what_was_trimmed_is_left_out_by_all"),
    (CountsAnew, "a_log_goes_on_after_all_was_trimmed"),
    (LosesTheLastFrame, "what_was_confirmed_outlives_a_crash_of_the_servers"),
]
"""Some server might be behind, so that a suite waits for what then never comes."""


class Suite(SharedLogContract):
    pass


class ImpatientSuite(SharedLogContract):
    seconds_max = 1.0


def run(suite: SharedLogContract, mistake: Mistake, test: str, directory: Path) -> None:
    site = mistake() if issubclass(mistake, MemorySite) else MemorySite(mistake)
    case = getattr(suite, f"test_{test}")
    values = {"site": site, "tmp_path": directory, "wanted": 9, "size": 1_000}
    case(**{name: values[name] for name in inspect.signature(case).parameters})


@pytest.mark.parametrize(("mistake", "test"), [*MISTAKES, *in_the_long_part(FURTHER)])
def test_a_mistake_is_found(mistake: Mistake, test: str, tmp_path: Path) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        run(Suite(), mistake, test, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(("mistake", "test"), WAITED_FOR)
def test_what_is_missing_is_waited_for_in_vain(mistake: Mistake, test: str, tmp_path: Path) -> None:
    with pytest.raises(TimeoutError):
        run(ImpatientSuite(), mistake, test, tmp_path)
