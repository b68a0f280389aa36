"""Groups and queues whose members, workers, producers and nodes are killed, and links are cut."""

import asyncio
import json
from pathlib import Path

import pytest

from forked import DEVNULL, PIPE, Forked
from killed_work import end, kill_members, kill_workers


class OwnStore:
    """A node that has a store of its own."""

    def __init__(self, directory: Path) -> None:
        self.url = self.identity = ""
        self._directory = directory
        self._process: Forked | None = None

    def start(self) -> None:
        """Start it, and wait until it listens."""
        program = Path(__file__).with_name("node_process.py")
        self._process = Forked(program, self._directory, stdout=PIPE, stderr=DEVNULL)
        assert self._process.stdout is not None
        told = json.loads(self._process.stdout.readline())
        self.url, self.identity = f"noise://{told['noise']}", told["identity"]

    def kill(self) -> None:
        """End it as a crash would; harmless when repeated."""
        if self._process is not None:
            end(self._process)


@pytest.mark.parametrize(
    ("kills", "seed"),
    [(4, 1), *(pytest.param(100, seed, marks=pytest.mark.long) for seed in range(2, 7))],
)
def test_a_group_skips_nothing_and_no_position_goes_back(
    tmp_path: Path, kills: int, seed: int
) -> None:
    asyncio.run(kill_members(tmp_path, [OwnStore(tmp_path / "node")], kills, seed))


@pytest.mark.parametrize(
    "by_key",
    [pytest.param(False, id="any order", marks=pytest.mark.long), pytest.param(True, id="by key")],
)
@pytest.mark.parametrize(
    ("kills", "seed"),
    [(4, 1), *(pytest.param(100, seed, marks=pytest.mark.long) for seed in range(2, 5))],
)
def test_a_queue_has_each_entry_done_once_or_dead(
    tmp_path: Path, kills: int, seed: int, by_key: bool
) -> None:
    asyncio.run(kill_workers(tmp_path, [OwnStore(tmp_path / "node")], kills, seed, by_key=by_key))
