"""No confirmed write is lost when the power goes, or the process is killed, and no view differs.

A recorded run (see tests/powercut) is cut at random points; each cut leaves what a disk may hold
then, in one of many ways, and the real store is opened on it. One run's cuts are repeated with
its seed.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from powercut.disk import MODES, Disk, Record, read_trace
from powercut.load import LOGS, TUNING
from powercut.view_load import ViewDriver, frames
from rillnode.actors.log import FindStream, LoadIndex, Read, SavedIndexKey
from rillnode.codecs.entries import HEADER_BYTES
from rillnode.codecs.errors import StoreError
from rillnode.node.testing.contract.stores.driver import append
from store_support import RocksDriver

HERE = Path(__file__).parents[2]


@dataclass
class Expected:
    """The marks of a trace: what must be there, and what may."""

    appends: dict[int, dict[int, tuple[int, int]]] = field(
        default_factory=lambda: {log: {} for log in LOGS}
    )
    trimmed: dict[int, int] = field(default_factory=lambda: dict.fromkeys(LOGS, 0))
    may_be_trimmed: dict[int, int] = field(default_factory=lambda: dict.fromkeys(LOGS, 0))
    saved: int = 0
    may_be_saved: int = 0
    streams: dict[str, int] = field(default_factory=dict[str, int])
    confirms: int = 0

    def note(self, mark: bytes) -> None:
        """Take one mark."""
        match json.loads(mark):
            case ["append", log, first_index, count, check]:
                self.appends[log][first_index] = (count, check)
            case ["save", index]:
                self.saved = index
            case ["trim", log, first_index]:
                self.trimmed[log] = max(first_index, self.trimmed[log])
            case ["stream", name, stream_id]:
                self.streams[name] = stream_id
            case ["submit", "save", index]:
                self.may_be_saved = index
            case ["submit", "trim", log, before]:
                self.may_be_trimmed[log] = max(before, self.may_be_trimmed[log])
            case ["submit", *_]:
                pass
            case other:
                raise AssertionError(other)

    def check(self, directory: Path) -> int:
        """Open the store and compare; returns the number of confirmed appends found."""
        driver = RocksDriver(directory, TUNING)
        try:
            found = sum(self._check_log(driver, log) for log in LOGS)
            index = driver.read(LoadIndex(key=SavedIndexKey("s", 0, "c"))).index or 0
            assert self.saved <= index <= self.may_be_saved
            for name, stream_id in self.streams.items():
                for ask in (FindStream(name=name), FindStream(id=stream_id)):
                    record = driver.read(ask).record
                    assert record is not None
                    assert (record.name, record.id) == (name, stream_id)
        finally:
            driver.store.close()
        return found

    def _check_log(self, driver: RocksDriver, log: int) -> int:
        blocks: dict[int, tuple[int, int]] = {}
        extent = driver.read(Read(log=log)).extent
        assert self.trimmed[log] <= extent.first_index <= self.may_be_trimmed[log]
        index = extent.first_index
        while index < extent.next_index:
            for block in driver.read(Read(log=log, index=index, bytes_max=2**30)).blocks:
                assert block.first_index <= index
                check = zlib.crc32(memoryview(block.value)[HEADER_BYTES:])
                blocks[block.first_index] = (block.count, check)
                index = block.next_index
        assert index == extent.next_index
        kept = 0
        for first_index, (count, check) in self.appends[log].items():
            if first_index + count > extent.first_index:
                assert blocks[first_index] == (count, check)
                kept += 1
        assert driver.write(append(b"goes on", log=log)).first_index == extent.next_index
        return kept


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("recorder") / "recorder.so"
    source = HERE / "powercut" / "recorder.c"
    subprocess.run(
        ["cc", "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl", "-lpthread"], check=True
    )
    return library


@pytest.fixture
def fast_directory(tmp_path: Path) -> Iterator[Path]:
    """In memory where there is such a place: a cut's image lives for a moment only."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        yield tmp_path
        return
    directory = memory / f"rillnode-power-cut-{os.getpid()}"
    directory.mkdir()
    yield directory
    shutil.rmtree(directory)


def record(
    recorder: Path, directory: Path, operations: int, *more: int, load: str = "load.py"
) -> tuple[list[Record], Path]:
    """Run a load; returns its trace and its store's directory."""
    store, trace = directory / "store", directory / "trace"
    store.mkdir()
    subprocess.run(
        [
            sys.executable,
            str(HERE / "powercut" / load),
            str(store),
            *map(str, (operations, *more)),
        ],
        env={
            **os.environ,
            "LD_PRELOAD": str(recorder),
            "RECORDER_DIRECTORY": str(store),
            "RECORDER_TRACE": str(trace),
            "PYTHONPATH": f"{HERE}:{HERE / 'support'}",
        },
        check=True,
        timeout=300,
    )
    return list(read_trace(trace)), store


def at_random(trace: list[Record], cuts: int, chance: random.Random) -> set[int]:
    """Numbers of records of every kind to cut after."""
    marks = [number for number, one in enumerate(trace) if one.kind == "m"]
    calls = [number for number, one in enumerate(trace) if one.kind != "m"]
    return {*chance.sample(marks, cuts // 4), *chance.sample(calls, cuts - cuts // 4)}


def at_names(trace: list[Record]) -> set[int]:
    """Numbers of the records that change names in the directory, and of those right after."""
    changes = [number for number, one in enumerate(trace) if one.kind in "orlu"]
    return {after for number in changes for after in range(number, min(number + 4, len(trace)))}


def at_manifests(trace: list[Record]) -> set[int]:
    """Numbers of the writes to the list of tables and logs that a database is opened by."""
    names: dict[int, bytes] = {}
    found: set[int] = set()
    for number, one in enumerate(trace):
        if one.kind == "o":
            names[one.file] = one.data
        elif one.kind == "w" and b"/MANIFEST-" in names[one.file]:
            found.add(number)
    return found


def cut_and_check(
    trace: list[Record],
    store: Path,
    directory: Path,
    at_records: set[int],
    chance: random.Random,
    *,
    repeats: int = 1,
) -> list[int]:
    """Cut a trace after some records; returns how many confirmed appends each cut had kept."""
    disk, expected = Disk(str(store)), Expected()
    pool, image = directory / "pool", directory / "image"
    pool.mkdir()
    found: list[int] = []
    for number, one in enumerate(trace):
        if one.kind == "m":
            expected.note(one.data)
        else:
            disk.apply(one)
        for _ in range(repeats if number in at_records else 0):
            names, data = chance.choice(MODES), chance.choice(MODES)
            disk.image(image, pool, names, data, chance)
            try:
                found.append(expected.check(image))
            except BaseException as error:
                error.add_note(f"cut after record {number}, names {names}, data {data}")
                raise
            shutil.rmtree(image)
    return found


@pytest.mark.needs("cc")
def test_the_model_of_the_disk_agrees_with_the_disk(recorder: Path, fast_directory: Path) -> None:
    trace, store = record(recorder, fast_directory, 2_000, 1)
    disk = Disk(str(store))
    for one in trace:
        if one.kind != "m":
            disk.apply(one)
    # The C library writes the two itself, unseen, and nothing depends on them.
    real = {path.name: path.read_bytes() for path in store.iterdir()}
    ignored = {name for name in real if name.startswith(("LOG", "LOCK"))}
    assert {name: real[name] for name in real.keys() - ignored} == {
        name: content for name, content in disk.contents().items() if name not in ignored
    }
    kinds = {one.kind for one in trace}
    assert {"o", "w", "s", "S", "r", "u", "m"} <= kinds


@pytest.mark.needs("cc")
@pytest.mark.parametrize(
    ("cuts", "failing_syncs"),
    [
        (20, 1),
        pytest.param(1_000, 0, marks=pytest.mark.long),
        pytest.param(300, 1, marks=pytest.mark.long),
    ],
)
def test_no_confirmed_write_is_lost_in_a_power_cut(
    recorder: Path, fast_directory: Path, cuts: int, failing_syncs: int
) -> None:
    operations = 2_000 if cuts < 100 else 20_000
    trace, store = record(recorder, fast_directory, operations, cuts, failing_syncs)
    if failing_syncs:
        assert any(one.kind == "F" for one in trace)
    chance = random.Random(cuts)
    at_records = at_random(trace, cuts, chance)
    found = cut_and_check(trace, store, fast_directory, at_records, chance)
    assert len(found) == cuts
    # Each cut is checked against what was confirmed by then and not trimmed.
    assert max(found) > 400


@pytest.mark.needs("cc")
@pytest.mark.long
@pytest.mark.parametrize("failing_syncs", [0, 1])
def test_names_may_reach_the_disk_in_any_order(
    recorder: Path, fast_directory: Path, failing_syncs: int
) -> None:
    trace, store = record(recorder, fast_directory, 300, 1, failing_syncs)
    at_records = at_names(trace)
    found = cut_and_check(
        trace, store, fast_directory, at_records, random.Random(failing_syncs), repeats=10
    )
    assert len(found) == 10 * len(at_records) > 500


@pytest.mark.needs("cc")
@pytest.mark.long
def test_writes_to_the_manifest_may_be_torn(recorder: Path, fast_directory: Path) -> None:
    trace, store = record(recorder, fast_directory, 1_500, 1)
    at_records = at_manifests(trace)
    found = cut_and_check(trace, store, fast_directory, at_records, random.Random(1), repeats=40)
    assert len(found) == 40 * len(at_records) > 500


def test_a_sector_has_all_that_was_written_to_it_before(tmp_path: Path) -> None:
    disk = Disk("/store")
    disk.apply(Record("o", 1, os.O_CREAT, b"/store/file"))
    for number in (1, 2, 3):
        disk.apply(Record("w", 1, 300 * (number - 1), bytes([number]) * 300))
    firsts: set[bytes] = set()
    for seed in range(100):
        image = tmp_path / str(seed)
        disk.image(image, tmp_path, "all", "some", random.Random(seed))
        firsts.add((image / "file").read_bytes()[:512].rstrip(b"\0"))
    assert firsts == {b"", b"\1" * 300, b"\1" * 300 + b"\2" * 212}


@pytest.mark.needs("cc")
@pytest.mark.parametrize("cuts", [20, pytest.param(600, marks=pytest.mark.long)])
def test_a_view_goes_on_after_a_power_cut_as_if_there_had_been_none(
    recorder: Path, fast_directory: Path, cuts: int
) -> None:
    """It syncs nothing: what it has lost is carried out again, from wherever it is."""
    count = 300 if cuts < 100 else 2_000
    log = frames(count, cuts)
    trace, store = record(recorder, fast_directory, count, cuts, load="view_load.py")
    whole = ViewDriver(store)
    wanted, end = whole.contents(), whole.progress
    whole.close()
    assert end.sequence == count
    chance = random.Random(cuts)
    disk = Disk(str(store))
    pool, image = fast_directory / "pool", fast_directory / "image"
    pool.mkdir()
    at_records = at_random(trace, cuts, chance)
    begun: set[int] = set()
    unreadable = 0
    for number, one in enumerate(trace):
        if one.kind != "m":
            disk.apply(one)
        if number in at_records:
            names, data = chance.choice(MODES), chance.choice(MODES)
            disk.image(image, pool, names, data, chance)
            try:
                driver = ViewDriver(image)
            except StoreError as error:
                if error.code != "store.unreadable":
                    raise
                unreadable += 1  # files that do not fit together: it is made anew
                shutil.rmtree(image)
                driver = ViewDriver(image)
            begun.add(driver.progress.sequence)
            driver.apply(log)
            # Also what each operation has come to, of which the digest is made.
            assert (driver.contents(), driver.progress) == (wanted, end), (number, names, data)
            driver.close()
            shutil.rmtree(image)
    assert len(begun) > 1  # it was cut in different states
    assert unreadable <= cuts // 20


KILLED = """
import os, sys, random
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from powercut import load

class Told(load.Load):
    def _mark(self, *values):
        line = load.json.dumps(values) + "\\n"
        os.write(1, line.encode())

Told(Path(sys.argv[2]), 10**9, int(sys.argv[3]), 0).run()
"""


@pytest.mark.long
def test_no_confirmed_write_is_lost_when_the_process_is_killed(tmp_path: Path) -> None:
    chance = random.Random(20)
    for round_ in range(20):
        directory = tmp_path / f"store-{round_}"
        with subprocess.Popen(
            [sys.executable, "-c", KILLED, str(HERE), str(directory), str(round_)],
            stdout=subprocess.PIPE,
        ) as child:
            assert child.stdout is not None
            expected, lines = Expected(), 0
            until = chance.randint(10, 20_000)
            for line in child.stdout:
                expected.note(line)
                lines += 1
                if lines == until:
                    child.send_signal(signal.SIGKILL)
        assert lines >= until
        expected.check(directory)
        shutil.rmtree(directory)
