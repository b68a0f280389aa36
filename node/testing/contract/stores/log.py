"""Tests that logs are appended to, read, trimmed and found again."""

import random

from msgspec.structs import replace

from rillnode.actors.log import (
    EVERY_ENTRY,
    Append,
    ListKeys,
    Locate,
    LogExtent,
    Read,
    Retention,
    Trim,
    key_after,
    log_id,
)
from rillnode.codecs.entries import (
    FLAG_META,
    FLAGS_PUSHED,
    EntryKind,
    NewEntry,
    Run,
    entries_of,
    pack_body,
)
from rillnode.codecs.keyed import encode_headers
from rillnode.node.testing.contract.stores.base import StoreBase
from rillnode.node.testing.contract.stores.driver import LOG, StoreDriver, append, texts


def numbered(first: int, count: int, size: int = 8) -> list[bytes]:
    """The texts of numbers, each as long."""
    return [b"%0*d" % (size, number) for number in range(first, first + count)]


def fill(
    driver: StoreDriver, blocks: int = 10, per_block: int = 4, size: int = 8, log: int = LOG
) -> None:
    """Blocks of equal entries, received 100 ms apart; entry i holds the text of i."""
    driver.write_all(
        [
            append(*numbered(block * per_block, per_block, size), at=1_000 + 100 * block, log=log)
            for block in range(blocks)
        ]
    )


def keyed(*entries: NewEntry) -> Append:
    """An append of entries with what producers give along."""
    run = Run()
    for entry in entries:
        run.add(entry)
    body, flags = run.pack()
    return Append(log=LOG, flags=flags, count=len(entries), body=body, received_at=1_000)


LIMITS = [
    (Read(until=4), 1),
    (Read(until=5), 2),
    (Read(until=0), 0),
    (Read(entries_max=1), 1),
    (Read(entries_max=4), 1),
    (Read(entries_max=5), 2),
    (Read(index=3, entries_max=1), 1),
    (Read(index=3, entries_max=2), 2),
    (Read(bytes_max=1), 1),
    (Read(bytes_max=2 * 72), 2),
    (Read(bytes_max=2 * 72 - 1), 1),
    (Read(bytes_max=10_000), 10),
    (Read(index=39), 1),
]
"""Reads of what `fill` writes, and how many blocks each is answered with."""


TRIMS = [
    (Trim(), 0),
    (Trim(before=4), 4),
    (Trim(before=5), 5),
    (Trim(before=40), 40),
    (Trim(before=2**64 - 1), 40),
    (Trim(before=9, hold=6), 6),
    (Trim(before=9, hold=0), 0),
    (Trim(retention=Retention(entries_max=40)), 0),
    (Trim(retention=Retention(entries_max=39)), 1),
    (Trim(retention=Retention(entries_max=0)), 40),
    (Trim(retention=Retention(bytes_max=320)), 0),
    (Trim(retention=Retention(bytes_max=319)), 1),
    (Trim(retention=Retention(bytes_max=16)), 38),
    (Trim(retention=Retention(bytes_max=15)), 39),
    (Trim(retention=Retention(bytes_max=0)), 40),
    (Trim(retention=Retention(seconds=1.0), now_ms=2_000), 0),
    (Trim(retention=Retention(seconds=1.0), now_ms=2_001), 4),
    (Trim(retention=Retention(seconds=1.0), now_ms=2_350), 16),
    (Trim(retention=Retention(seconds=1.0), now_ms=9_999), 40),
    (Trim(retention=Retention(seconds=1.0, entries_max=30, bytes_max=80), now_ms=2_001), 30),
    (Trim(retention=Retention(seconds=1.0, entries_max=30, bytes_max=300), now_ms=2_001), 10),
    (Trim(retention=Retention(entries_max=0), hold=33), 33),
]
"""Trims of the same, and the first index that each leaves."""


def located(driver: StoreDriver, *times: int, log: int = LOG) -> list[int]:
    """Where entries of these times are found."""
    return [driver.read(Locate(log=log, at_ms=at)).index for at in times]


class LogContract(StoreBase):
    """Appending, reading, trimming, secondary keys, and closing."""

    def test_indexes_are_dense_in_the_order_of_submission(self, driver: StoreDriver) -> None:
        operations = [append(*numbered(0, count)) for count in (1, 3, 2, 1)]
        driver.write_all(operations)
        assert [operation.first_index for operation in operations] == [0, 1, 4, 6]
        assert [operation for operation in driver.completed if isinstance(operation, Append)] == (
            operations
        )

    def test_logs_do_not_mix(self, driver: StoreDriver) -> None:
        logs = [log_id(1, 0), log_id(1, 1), log_id(2, 0), log_id(2**32 - 1, 1023)]
        driver.write_all([append(b"%d %d" % (log, n), log=log) for n in range(5) for log in logs])
        for log in logs:
            assert texts(driver, log) == [b"%d %d" % (log, n) for n in range(5)]

    def test_an_entry_comes_back_as_it_was_given(self, driver: StoreDriver) -> None:
        items, metas = [b"", b"\0" * 70_000, b"x"], [b"one", b"", b"three"]
        operation = Append(
            log=LOG,
            kind=EntryKind(128),
            flags=FLAG_META,
            received_at=1_790_000_000_123,
            count=3,
            body=memoryview(pack_body(items, metas)),
        )
        driver.write(operation)
        driver.reopen()
        entries = driver.entries()
        assert [entry.data for entry in entries] == items
        assert [entry.meta for entry in entries] == metas
        assert {(entry.received_at, entry.kind) for entry in entries} == {
            (1_790_000_000_123, EntryKind(128))
        }

    def test_keys_and_headers_come_back_and_count_as_data_does(self, driver: StoreDriver) -> None:
        headers = encode_headers({"trace": b"\x01", "sort": b"b"})
        given = [NewEntry(b"one", b"k1"), NewEntry(b"", b"", headers), NewEntry(b"three")]
        operation = driver.write(keyed(*given))
        driver.write(append(b"plain"))
        assert operation.flags == FLAGS_PUSHED
        assert operation.kept_bytes == sum(entry.size for entry in given) == 8 + 2 + len(headers)
        driver.reopen()
        entries = driver.entries()
        assert [NewEntry(one.data, one.key, one.encoded_headers) for one in entries[:3]] == given
        assert [entry.headers for entry in entries] == [
            {},
            {"trace": b"\x01", "sort": b"b"},
            {},
            {},
        ]
        assert (entries[3].data, entries[3].key) == (b"plain", None)
        assert driver.read(Read(log=LOG)).extent == LogExtent(0, 4, operation.kept_bytes + 5)

    def test_a_limit_of_bytes_cuts_within_a_block_of_keys(self, driver: StoreDriver) -> None:
        driver.write(keyed(*[NewEntry(b"%d" % number, bytes(9)) for number in range(10)]))
        trim = driver.write(Trim(log=LOG, retention=Retention(bytes_max=35), now_ms=2_000))
        assert trim.extent == LogExtent(7, 10, 30)
        assert [entry.key for entry in driver.entries()] == [bytes(9)] * 3

    def test_everything_is_there_after_reopening_and_indexes_go_on(
        self, driver: StoreDriver
    ) -> None:
        fill(driver)
        driver.reopen()
        assert texts(driver) == numbered(0, 40)
        assert driver.write(append(b"next")).first_index == 40
        assert texts(driver) == [*numbered(0, 40), b"next"]

    def test_a_read_from_any_index_begins_in_the_block_that_holds_it(
        self, driver: StoreDriver
    ) -> None:
        fill(driver, blocks=3)
        for _ in driver.twice():
            reads = [driver.read(Read(log=LOG, index=index)) for index in range(13)]
            assert [[block.first_index for block in read.blocks] for read in reads] == [
                [first for first in (0, 4, 8) if first + 4 > index] for index in range(13)
            ]
            assert {read.extent for read in reads} == {LogExtent(0, 12, 96)}

    def test_a_read_past_the_end_is_empty(self, driver: StoreDriver) -> None:
        fill(driver, blocks=1)
        for index in (4, 5, 2**63, 2**64 - 1):
            read = driver.read(Read(log=LOG, index=index))
            assert (read.blocks, read.extent.next_index) == ([], 4)
        read = driver.read(Read(log=log_id(7, 7)))
        assert (read.blocks, read.extent) == ([], LogExtent())

    def test_limits_of_a_read(self, driver: StoreDriver) -> None:
        fill(driver)
        for _ in driver.twice():
            reads = [driver.read(replace(limits, log=LOG, blocks=[])) for limits, _ in LIMITS]
            assert [len(read.blocks) for read in reads] == [blocks for _, blocks in LIMITS]

    def test_one_large_block_exceeds_the_bytes_asked(self, driver: StoreDriver) -> None:
        driver.write_all([append(b"." * 100_000), append(b"small")])
        for _ in driver.twice():
            read = driver.read(Read(log=LOG, bytes_max=10))
            assert [block.first_index for block in read.blocks] == [0]

    # Trims

    def test_a_trim_cuts_where_the_tightest_limit_says(self, driver: StoreDriver) -> None:
        for number, (trim, first_index) in enumerate(TRIMS, 1):
            fill(driver, log=log_id(number, 0))
            done = driver.write(replace(trim, log=log_id(number, 0)))
            expected = LogExtent(first_index, 40, 8 * (40 - first_index))
            found = (done.error, done.extent, done.trimmed)
            assert found == (None, expected, first_index), trim
        for _ in driver.twice():
            for number, (trim, first_index) in enumerate(TRIMS, 1):
                extent = driver.read(Read(log=log_id(number, 0))).extent
                assert extent == LogExtent(first_index, 40, 8 * (40 - first_index)), trim
                rest = numbered(first_index, 40 - first_index)
                assert texts(driver, log_id(number, 0)) == rest, trim

    def test_a_trim_sees_the_appends_submitted_before_it(self, driver: StoreDriver) -> None:
        operations: list[Append | Trim] = []
        for round_ in range(5):
            operations.append(append(*numbered(4 * round_, 4)))
            operations.append(Trim(log=LOG, retention=Retention(entries_max=3)))
        driver.write_all(operations)
        trims = [operation for operation in operations if isinstance(operation, Trim)]
        assert [trim.extent.first_index for trim in trims] == [1, 5, 9, 13, 17]
        assert texts(driver) == numbered(17, 3)

    def test_a_log_trimmed_whole_goes_on_at_its_next_index(self, driver: StoreDriver) -> None:
        fill(driver)
        driver.write(Trim(log=LOG, before=40))
        driver.reopen()
        assert driver.read(Read(log=LOG)).extent == LogExtent(40, 40, 0)
        driver.reopen()
        assert driver.write(append(b"later")).first_index == 40
        driver.reopen()
        assert driver.read(Read(log=LOG)).extent == LogExtent(40, 41, 5)
        assert texts(driver) == [b"later"]

    def test_trims_never_go_back(self, driver: StoreDriver) -> None:
        fill(driver)
        driver.write(Trim(log=LOG, before=20))
        done = driver.write(Trim(log=LOG, before=10, hold=3))
        assert (done.extent.first_index, done.trimmed) == (20, 0)

    def test_entries_without_bytes_count_for_retention_by_number_only(
        self, driver: StoreDriver
    ) -> None:
        driver.write_all([append(b"", b"", b"abc", b"", b""), append(b"", b"d", b"")])
        done = driver.write(Trim(log=LOG, retention=Retention(bytes_max=1)))
        assert done.extent == LogExtent(3, 8, 1)
        done = driver.write(Trim(log=LOG, retention=Retention(bytes_max=0)))
        assert done.extent == LogExtent(7, 8, 0)

    def test_a_trim_by_age_may_tell_the_age_of_what_is_left(self, driver: StoreDriver) -> None:
        driver.write_all([append(b"a", b"b", at=1_000), append(b"c", at=2_000)])
        for now_ms, left in ((2_500, 1_000), (11_500, 2_000), (99_999, None)):
            done = driver.write(Trim(log=LOG, retention=Retention(seconds=10.0), now_ms=now_ms))
            assert done.oldest_ms in (left, None)
        driver.write(append(b"d", at=3_000))
        assert driver.write(Trim(log=LOG, retention=Retention(entries_max=1))).oldest_ms is None

    def test_a_trim_of_an_unknown_log_finds_nothing(self, driver: StoreDriver) -> None:
        done = driver.write(Trim(log=log_id(9, 9), before=5, retention=Retention(seconds=0.0)))
        assert (done.error, done.extent, done.trimmed) == (None, LogExtent(), 0)
        assert driver.write(append(b"first", log=log_id(9, 9))).first_index == 0

    def test_a_neighbour_of_a_trimmed_log_keeps_everything(self, driver: StoreDriver) -> None:
        logs = [log_id(1, 0), log_id(1, 1), log_id(1, 2)]
        driver.write_all([append(b"%d" % log, log=log) for log in logs for _ in range(3)])
        driver.write(Trim(log=logs[1], before=3))
        driver.reopen()
        assert [len(driver.entries(log)) for log in logs] == [3, 0, 3]

    # Secondary keys

    def test_secondary_keys_are_listed_by_range_within_their_log(self, driver: StoreDriver) -> None:
        for log in (LOG, LOG + 1):
            operation = append(b"entry", log=log)
            operation.keys = [(b"k%d" % number, 0) for number in range(5)]
            driver.write(operation)

        def listed(asked: ListKeys) -> list[bytes]:
            return [key for key, _ in driver.read(replace(asked, log=LOG, pairs=[])).pairs]

        driver.reopen()
        assert driver.read(ListKeys(log=LOG)).pairs == [(b"k%d" % number, 0) for number in range(5)]
        assert listed(ListKeys(start=b"")) == [b"k0", b"k1", b"k2", b"k3", b"k4"]
        assert listed(ListKeys(start=b"k2")) == [b"k2", b"k3", b"k4"]
        assert listed(ListKeys(start=b"k11", end=b"k3")) == [b"k2"]
        assert listed(ListKeys(limit=2)) == [b"k0", b"k1"]
        assert listed(ListKeys(limit=2, reverse=True)) == [b"k4", b"k3"]
        assert listed(ListKeys(start=b"k1", end=b"k4", reverse=True)) == [b"k3", b"k2", b"k1"]
        assert listed(ListKeys(start=b"l")) == listed(ListKeys(end=b"a", reverse=True)) == []
        assert len(driver.read(ListKeys(log=LOG + 1)).pairs) == 5

    def test_a_secondary_key_leads_to_its_entry_however_often_it_is_given(
        self, driver: StoreDriver
    ) -> None:
        for _ in range(3):
            operation = append(b"a", b"b")
            operation.keys = [(b"same", 0), (b"odd", 1), (b"same", 1)]
            driver.write(operation)
        assert driver.read(ListKeys(log=LOG)).pairs == [
            *[(b"odd", index) for index in (1, 3, 5)],
            *[(b"same", index) for index in range(6)],
        ]

    def test_a_listing_goes_on_behind_its_last_pair(self, driver: StoreDriver) -> None:
        operation = append(*numbered(0, 10, 10))
        operation.keys = [(b"key", offset) for offset in range(10)]
        driver.write(operation)
        pairs: list[tuple[bytes, int]] = []
        start = b"k"
        while page := driver.read(ListKeys(log=LOG, start=start, limit=3)).pairs:
            pairs += page
            start = key_after(*page[-1])
        assert pairs == [(b"key", index) for index in range(10)]

    def test_a_key_that_leads_to_every_entry_is_listed_as_one_for_each(
        self, driver: StoreDriver
    ) -> None:
        """Beside a log whose entries have the same keys one by one, wherever a listing begins."""
        rng = random.Random(7)
        every = [b"e" + bytes((number,)) for number in range(3)]
        bounds = {b"\1", b"f", b"\xff"}
        last = 0
        for _ in range(12):
            count = rng.randint(1, 4)
            # As long as a key and an index together, so that it stands in the middle of a run.
            odd = [(rng.choice(every) + bytes(7) + bytes((rng.randrange(40),)), 0)]
            odd = odd if rng.random() < 0.6 else []
            shared = rng.sample(every, rng.randint(1, 3))
            runs, singly = append(*[b"x"] * count), append(*[b"x"] * count, log=LOG + 1)
            runs.keys = [*odd, *((key, EVERY_ENTRY) for key in shared)]
            singly.keys = [*odd, *((key, offset) for key in shared for offset in range(count))]
            driver.write_all([runs, singly])
            bounds |= {key for key, _ in singly.keys}
            last = runs.first_index
        for before in (0, last - 2):
            driver.write_all([Trim(log=log, before=before) for log in (LOG, LOG + 1)])
            driver.reopen()
            pairs = driver.read(ListKeys(log=LOG + 1)).pairs
            assert len(pairs) > (20 if before == 0 else 2)
            places = sorted(bounds | {key_after(*pair) for pair in pairs})
            for _ in range(150):
                asked = ListKeys(
                    start=rng.choice(places),
                    end=rng.choice([None, *places]),
                    limit=rng.choice((1, 2, 5, 99)),
                    reverse=rng.random() < 0.5,
                )
                listed, wanted = (
                    driver.read(replace(asked, log=log, pairs=[])).pairs for log in (LOG, LOG + 1)
                )
                assert listed == wanted, asked

    def test_secondary_keys_go_with_the_blocks_that_are_trimmed(self, driver: StoreDriver) -> None:
        for number in range(4):
            operation = append(b"a", b"b")
            # The later a block, the lower its keys: their order is not that of the log.
            operation.keys = [(b"%d" % (9 - number), offset) for offset in range(2)]
            driver.write(operation)
        driver.write(Trim(log=LOG, before=5))
        assert driver.read(ListKeys(log=LOG)).pairs == [(b"6", 6), (b"6", 7), (b"7", 4), (b"7", 5)]
        driver.reopen()
        driver.write(Trim(log=LOG, before=8))
        assert driver.read(ListKeys(log=LOG)).pairs == []
        assert driver.read(ListKeys(log=LOG, reverse=True)).pairs == []

    # Life

    def test_a_closed_store_refuses_at_once_and_opens_again(self, driver: StoreDriver) -> None:
        driver.write(append(b"kept"))
        driver.store.close()
        assert not driver.store.health.writable
        refused = driver.write(append(b"lost"))
        assert refused.error is not None
        assert refused.error.code == "store.closed"
        driver.store.open()
        assert driver.store.health.writable
        assert texts(driver) == [b"kept"]

    def test_closing_completes_all_that_was_submitted(self, driver: StoreDriver) -> None:
        operations = [append(*numbered(0, 100, 100)) for _ in range(50)]
        for operation in operations:
            driver.store.submit(operation)
        driver.store.close()
        driver.settle(50 if not driver.completed else 0)
        assert [operation.first_index for operation in operations] == [100 * n for n in range(50)]
        assert driver.store.pending_bytes == 0

    def test_pending_bytes_are_those_of_submitted_appends(self, driver: StoreDriver) -> None:
        assert driver.store.pending_bytes == 0
        operation = append(b"x" * 1_000)
        driver.store.submit(operation)
        # The writer's thread may have been quicker.
        assert driver.store.pending_bytes in (0, len(operation.body))
        driver.settle(1)
        assert driver.store.pending_bytes == 0

    def test_blocks_are_what_codecs_read(self, driver: StoreDriver) -> None:
        driver.write(append(b"a", b"bb", at=5))
        (block,) = driver.read(Read(log=LOG)).blocks
        assert [(entry.index, entry.data, entry.received_at) for entry in entries_of(block)] == [
            (0, b"a", 5),
            (1, b"bb", 5),
        ]

    def test_arrivals_ascend_though_a_clock_is_set_back(self, driver: StoreDriver) -> None:
        def stamped(at: int, *, timed: int | None = 1) -> Append:
            keys = [(b"kept", 0), (b"by time" + at.to_bytes(8, "big"), 0)]
            return replace(append(b"x", at=at), keys=keys, timed=timed)

        driver.write_all([stamped(7), stamped(3)])
        driver.reopen()
        driver.write_all([stamped(5), stamped(9), stamped(4, timed=None)])
        assert [entry.received_at for entry in driver.entries()] == [7, 7, 7, 9, 4]
        pairs = driver.read(ListKeys(log=LOG, start=b"by time", end=b"by timf", limit=9)).pairs
        # What is copied stays as it is.
        assert [(key[7:], index) for key, index in pairs] == [
            (at.to_bytes(8, "big"), index) for at, index in ((4, 4), (7, 0), (7, 1), (7, 2), (9, 3))
        ]
        driver.write(Trim(log=LOG, before=5))
        assert driver.write(stamped(2)).received_at == 2

    def test_a_time_is_found_in_a_log(self, driver: StoreDriver) -> None:
        fill(driver)  # ten blocks of four entries, received at 1,000 to 1,900
        for _ in range(2):
            assert located(driver, -5, 0, 999, 1_000) == [0, 0, 0, 0]
            assert located(driver, 1_001, 1_100, 1_101, 1_899, 1_900) == [4, 4, 8, 36, 36]
            assert located(driver, 1_901, 2**63) == [40, 40]
            driver.reopen()
        driver.write(Trim(log=LOG, before=6))  # within a block
        assert located(driver, 0, 1_100, 1_101, 5_000) == [6, 6, 8, 40]
        driver.write(Trim(log=LOG, before=40))
        assert located(driver, 0, 1_900, 5_000) == [40, 40, 40]
        assert located(driver, 0, 5_000, log=LOG + 1) == [0, 0]

    def test_a_time_is_found_where_a_clock_went_back(self, driver: StoreDriver) -> None:
        times = [5, 9, 3, 9, 7, 12, 1, 20]
        driver.write_all([append(b"x", at=at) for at in times])
        kept = [entry.received_at for entry in driver.entries()]
        for at in range(25):
            later = [index for index in range(9) if all(one >= at for one in kept[index:])]
            assert located(driver, at) == [later[0]]
