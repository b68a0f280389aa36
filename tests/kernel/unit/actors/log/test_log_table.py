"""States of logs that are packed, forgotten and read again: what is stored is the same."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest

from rillnode.actors.log import (
    Append,
    OpenProducer,
    PutStream,
    RemoveStream,
    StreamRecord,
    Trim,
    log_id,
)
from rillnode.actors.log.producers import Numbers
from rillnode.actors.log.rocks.logs import LogTable
from rillnode.actors.log.rocks.tables import Tables, Tuning
from rillnode.codecs.entries import pack_body
from rillnode.codecs.limits import ONCE_EPOCH
from store_support import SMALL, RocksDriver

LOGS = [log_id(stream, 0) for stream in range(1, 30)]
ROOMS = {
    "nothing is packed": Tuning(),
    "everything is packed": Tuning(logs_max=2),
    "little is packed": Tuning(logs_max=2, packed_bytes_max=3_000),
    "nothing stays": Tuning(logs_max=1, packed_bytes_max=0),
}


def drawn(random: Random, logs: Sequence[int]) -> Append | OpenProducer | Trim:
    """An operation on any log, of few producers, with numbers that often were there before."""
    log, chance = random.choice(logs), random.random()
    if chance < 0.05:
        return Trim(log=log, before=random.randrange(5))
    if chance < 0.1:
        return OpenProducer(log=log, producer=b"named", received_at=random.randrange(9))
    count = random.choice((1, 1, 3))
    append = Append(log=log, count=count, body=pack_body([b"."] * count))
    append.received_at = random.randrange(100)
    if chance < 0.8:
        append.producer = random.choice((b"p", b"p", b"q"))
        append.sequence = random.randrange(12)
        append.epoch = random.choice((0, 0, 0, ONCE_EPOCH + append.sequence))
    return append


def results(directory: Path, tuning: Tuning, seed: int) -> list[object]:
    """What becomes of operations that a seed has drawn, on streams that are made meanwhile."""
    random, driver = Random(seed), RocksDriver(directory, tuning)
    told: list[object] = []
    made = 0
    for _ in range(40):
        for _ in range(random.choice((0, 1, 2)) if made else 1):
            if made < len(LOGS):
                made = driver.write(PutStream(record=StreamRecord(name=f"{made}"))).record.id
        logs = LOGS[:made]
        group = [drawn(random, logs) for _ in range(random.choice((1, 5, 40)))]
        driver.write_all(group)
        for one in group:
            code = one.error.code if one.error else ""
            match one:
                case Append():
                    told.append((code, one.first_index, one.next_index, one.is_double))
                case OpenProducer():
                    told.append((code, one.epoch, one.next_sequence, one.last_index))
                case Trim():
                    told.append((code, one.trimmed, one.extent))
    driver.store.close()
    return told


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 20))]
)
def test_what_is_packed_and_forgotten_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr("rillnode.actors.log.rocks.logs._UNPACKED_MAX", (1, 4, 64)[seed % 3])
    found = {name: results(tmp_path / name, tuning, seed) for name, tuning in ROOMS.items()}
    expected = found["nothing is packed"]
    assert len(set(map(str, expected))) > 40, "what was drawn has few outcomes"
    for name, told in found.items():
        assert told == expected, name


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[Tables]:
    opened = Tables(tmp_path, SMALL)
    yield opened
    opened.close()


def use(table: LogTable, log: int) -> None:
    """Use a log in a group of its own."""
    state = table.find(log) or table.load(log)
    state.next_index = log
    table.age()


def test_logs_are_kept_as_they_are_used_and_packed_within_their_bounds(tables: Tables) -> None:
    table = LogTable(tables, 10, 100_000)
    for log in range(1, 201):
        use(table, log)
    assert len(table) == 200
    young, old = table._young, table._old  # pyright: ignore[reportPrivateUsage]
    assert len(young) + len(old) <= 21
    for log in range(1, 201):
        state = table.find(log)
        assert state is not None
        assert state.next_index == log
        table.age()
    for log in range(1_000, 10_000):
        use(table, log)
    assert 250 < len(table) < 1_000
    assert table.find(1) is None


def test_a_forgotten_log_is_nowhere(tables: Tables) -> None:
    table = LogTable(tables, 2, 100_000)
    for log in range(1, 20):
        use(table, log)
    for log in range(1, 20):
        table.forget(log)
        assert table.find(log) is None
    assert len(table) == 0


def test_what_is_unpacked_counts_as_much_as_it_takes(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory for runs is bounded, also of logs that were packed with many."""
    monkeypatch.setattr("rillnode.actors.log.rocks.logs._UNPACKED_MAX", 1)
    table = LogTable(tables, 10, 1_000_000)
    for log in (1, 2):
        state = table.load(log)
        state.numbers = Numbers()
        for number in range(200 if log == 2 else 1):
            append = Append(log=log, producer=b"%d" % number, received_at=1)
            assert state.numbers.stored(append, number) is None
            state.numbers.add(append, number, lambda name, value: None)
    table.age()
    for log in range(3, 95):
        state = table.load(log)
        state.numbers = Numbers()
        state.numbers.open(OpenProducer(log=log, producer=b"n"), 0, lambda name, value: None)
        table.age()
    for log, runs in ((1, 1), (2, 200)):
        table.noted = 0
        found = table.find(log)
        assert found is not None
        assert found.numbers is not None
        again = Append(log=log, producer=b"other", received_at=1)
        assert found.numbers.stored(again, found.next_index) is None  # looks at all of them
        table.age()
        assert table.noted == runs


def test_a_removed_stream_stays_so_however_many_were_removed_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rillnode.actors.log.rocks.commit._GONE_MAX", 3)
    driver = RocksDriver(tmp_path, Tuning())
    ids: list[int] = []
    for number in range(10):
        ids.append(driver.write(PutStream(record=StreamRecord(name=f"{number}"))).record.id)
        driver.write(RemoveStream(name=f"{number}"))
        for stream in ids:
            one = driver.write(Append(log=log_id(stream, 0), count=1, body=pack_body([b"."])))
            assert one.error is not None
            assert one.error.code == "stream.removed"
    kept = driver.write(PutStream(record=StreamRecord(name="kept"))).record.id
    one = driver.write(Append(log=log_id(kept, 0), count=1, body=pack_body([b"."])))
    assert (one.error, one.first_index) == (None, 0)
    driver.store.close()
