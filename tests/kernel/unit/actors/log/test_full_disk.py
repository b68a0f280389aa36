"""A disk that really is full: by a limit on the size of files, and by a small file system."""

import json
import queue
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from forked import finished
from rillnode.actors.log import Append, StoreHealth
from rillnode.node.testing.contract.stores.driver import ANSWER_SECONDS, append
from store_support import SMALL, RocksDriver

FILE_BYTES_MAX = 400_000

CHILD = """
import json, resource, sys
from pathlib import Path
from store_support import SMALL
sys.path.insert(0, str(Path(sys.argv[1])))
from test_full_disk import FILE_BYTES_MAX, WaitingDriver, fill_up, check

hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
driver = WaitingDriver(Path(sys.argv[2]))
resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES_MAX, hard))
operations = fill_up(driver)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
print(json.dumps(check(driver, operations)))
"""


class WaitingDriver(RocksDriver):
    """A store that can be waited for until it takes writes again."""

    def __init__(self, path: Path) -> None:
        self._healths: queue.SimpleQueue[StoreHealth] = queue.SimpleQueue()
        super().__init__(path, SMALL)

    def hear(self, health: StoreHealth) -> None:
        super().hear(health)
        self._healths.put(health)

    def wait_writable(self) -> None:
        while not self.store.health.writable:
            self._healths.get(timeout=ANSWER_SECONDS)


def fill_up(driver: RocksDriver) -> list[Append]:
    """Append until the disk is full, and some more in vain."""
    operations: list[Append] = []
    while len(operations) < 10_000:
        group = [append(b"%d" % n, b"." * 20_000) for n in range(4)]
        driver.write_all(group)
        operations += group
        if any(operation.error for operation in group):
            break
    refused = driver.write(append(b"in vain"))
    return [*operations, refused]


def check(driver: WaitingDriver, operations: list[Append]) -> dict[str, object]:
    """Append once more when there is room, and compare what is there with what was confirmed."""
    driver.wait_writable()
    after = driver.write(append(b"after"))
    driver.reopen()
    entries = driver.entries()
    driver.store.close()
    confirmed = [operation for operation in operations if operation.error is None]
    return {
        "codes": sorted({operation.error.code for operation in operations if operation.error}),
        "confirmed": len(confirmed),
        "dense": [entry.index for entry in entries] == list(range(len(entries))),
        "lost": sum(
            entries[operation.first_index].data != bytes(operation.body)[8 : 8 + 1]
            for operation in confirmed
        ),
        "last": after.first_index == len(entries) - 1,
        "reason": driver.healths[1].reason,
    }


def assert_survived(report: dict[str, object]) -> None:
    assert report["codes"] == ["store.full"]
    assert isinstance(report["confirmed"], int)
    assert report["confirmed"] > 10
    assert (report["dense"], report["lost"], report["last"]) == (True, 0, True)
    assert "is full: free space on it" in str(report["reason"])


def test_files_that_may_not_grow(tmp_path: Path) -> None:
    here = Path(__file__).parent
    done = finished("-c", CHILD, here, tmp_path / "store", timeout=300.0)
    assert done.returncode == 0, done.stderr
    assert_survived(json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 MiB; needs root."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(place)]
    subprocess.run(mount, check=True, capture_output=True)
    yield place
    # Lazily: after a failed test the store may still be open.
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.needs("root")
def test_a_small_file_system(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"." * 58_000_000)
    driver = WaitingDriver(small_disk / "store")
    operations = fill_up(driver)
    assert not driver.store.health.writable
    assert len(driver.entries()) >= sum(operation.error is None for operation in operations)
    ballast.unlink()
    assert_survived(check(driver, operations))
