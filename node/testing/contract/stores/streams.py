"""Tests streams, saved indexes and named values."""

import pytest
from msgspec.structs import replace

from rillnode.actors.log import (
    PAGE_LOGS,
    FindStream,
    GetRecord,
    ListIndexes,
    ListStreams,
    LoadIndex,
    LogExtent,
    PutRecord,
    PutStream,
    Retention,
    SavedIndexKey,
    SaveIndex,
    StreamRecord,
    WriteOperation,
    log_id,
)
from rillnode.node.testing.contract.stores.base import StoreBase
from rillnode.node.testing.contract.stores.driver import StoreDriver, append


def put(driver: StoreDriver, name: str, partitions: int = 1) -> StreamRecord:
    """Make a stream."""
    done = driver.write(PutStream(record=StreamRecord(name=name, partitions=partitions)))
    assert done.error is None
    return done.record


class StreamsContract(StoreBase):
    """Streams, saved indexes and named values."""

    def test_streams_get_ids_that_are_never_given_again(self, driver: StoreDriver) -> None:
        ids = [put(driver, "a").id, put(driver, "b").id]
        driver.reopen()
        ids.append(put(driver, "c").id)
        assert len(set(ids)) == 3
        assert min(ids) > 0

    def test_a_stream_is_found_by_name_and_by_id_with_its_extents(
        self, driver: StoreDriver
    ) -> None:
        retention = Retention(seconds=1.5, bytes_max=7)
        record = StreamRecord(
            name="sensors/øst", partitions=3, created_at=5, owner="me", retention=retention
        )
        stored = driver.write(PutStream(record=record)).record
        driver.write(append(b"ab", b"c", log=log_id(stored.id, 1)))
        for _ in range(2):
            for ask in (FindStream(name=record.name), FindStream(id=stored.id)):
                found = driver.read(ask)
                assert found.record == stored
                assert found.extents == [LogExtent(), LogExtent(0, 2, 3), LogExtent()]
            driver.reopen()

    def test_unknown_streams_are_not_found(self, driver: StoreDriver) -> None:
        put(driver, "known")
        for ask in (FindStream(name="unknown"), FindStream(name="know"), FindStream(id=77)):
            assert driver.read(ask).record is None

    def test_a_name_is_created_once(self, driver: StoreDriver) -> None:
        first = PutStream(record=StreamRecord(name="twice"))
        second = PutStream(record=StreamRecord(name="twice", partitions=9))
        driver.write_all([first, second])
        third = driver.write(PutStream(record=StreamRecord(name="twice")))
        for refused in (second, third):
            assert refused.error is not None
            assert (refused.error.code, refused.error.retryable) == ("store.exists", False)
        assert driver.read(FindStream(name="twice")).record == first.record

    def test_a_record_is_replaced_under_its_id_and_name_only(self, driver: StoreDriver) -> None:
        record = put(driver, "one")
        put(driver, "two")
        changed = StreamRecord(name="one", id=record.id, retention=Retention(entries_max=5))
        assert driver.write(PutStream(record=changed)).record == changed
        driver.reopen()
        assert driver.read(FindStream(id=record.id)).record == changed
        for wrong in (
            StreamRecord(name="two", id=record.id),
            StreamRecord(name="new", id=record.id),
            StreamRecord(name="one", id=99),
        ):
            refused = driver.write(PutStream(record=wrong))
            assert refused.error is not None
            assert refused.error.code == "store.unknown"

    def test_streams_are_listed_by_name_in_pages(self, driver: StoreDriver) -> None:
        names = ["b", "a", "a/1", "a/2", "a\0", "z", "é", "\U0001f600", "a/10"]
        driver.write_all([PutStream(record=StreamRecord(name=name)) for name in names])
        driver.reopen()

        def pages(prefix: str, limit: int) -> list[str]:
            found: list[str] = []
            while True:
                after = found[-1] if found else ""
                page = driver.read(ListStreams(after=after, prefix=prefix, limit=limit))
                assert len(page.extents) == len(page.records) <= limit
                found += [record.name for record in page.records]
                if not page.more:
                    return found
                assert len(page.records) == limit

        for limit in (1, 2, 100):
            assert pages("", limit) == sorted(names)
            assert pages("a/", limit) == ["a/1", "a/10", "a/2"]
            assert pages("none", limit) == []
        assert driver.read(ListStreams(after="zz", prefix="a")).records == []
        named = driver.read(ListStreams(prefix="a/", names_only=True))
        assert [record.name for record in named.records] == ["a/1", "a/10", "a/2"]
        assert (named.extents, named.more) == ([[], [], []], False)
        assert [r.name for r in driver.read(ListStreams(after="A", prefix="b")).records] == ["b"]

    def test_a_page_of_streams_ends_with_the_one_by_which_it_has_many_logs(
        self, driver: StoreDriver
    ) -> None:
        sizes = {"a": 1, "b": PAGE_LOGS - 2, "c": 200, "d": PAGE_LOGS, "e": 1}
        records = [StreamRecord(name=name, partitions=size) for name, size in sizes.items()]
        driver.write_all([PutStream(record=record) for record in records])
        pages: list[str] = []
        page = ListStreams(more=True)
        while page.more:
            page = driver.read(ListStreams(after=pages[-1][-1] if pages else ""))
            assert page.logs == sum(map(len, page.extents))
            pages.append("".join(record.name for record in page.records))
        assert pages == ["abc", "d", "e"]

    def test_saved_indexes_outlive_the_store_and_need_no_stream(self, driver: StoreDriver) -> None:
        key = SavedIndexKey("nowhere", 3, "client")
        assert driver.read(LoadIndex(key=key)).index is None
        driver.write_all([SaveIndex(key=key, index=5), SaveIndex(key=key, index=2**63)])
        driver.reopen()
        assert driver.read(LoadIndex(key=key)).index == 2**63
        assert driver.read(LoadIndex(key=SavedIndexKey("nowhere", 3, "clien"))).index is None

    def test_saved_indexes_are_listed_in_key_order(self, driver: StoreDriver) -> None:
        keys = [
            SavedIndexKey(stream, partition, client)
            for stream in ("s", "s\0", "s\0\1", "t", "s2", "")
            for partition in (0, 1, 256)
            for client in ("c", "", "ø", "c\0")
        ]
        driver.write_all([SaveIndex(key=key, index=n) for n, key in enumerate(keys)])
        driver.reopen()
        rows = sorted((key, n) for n, key in enumerate(keys))
        for stream in ("", "s", "s\0", "t", "none"):
            expected = [row for row in rows if stream in ("", row[0].stream)]
            found: list[tuple[SavedIndexKey, int]] = []
            while True:
                after = found[-1][0] if found else None
                page = driver.read(ListIndexes(stream=stream, after=after, limit=7))
                found += page.indexes
                if len(page.indexes) < 7:
                    break
            assert found == expected

    def test_named_values_are_put_replaced_and_removed(self, driver: StoreDriver) -> None:
        driver.write_all(
            [
                PutRecord(key="a", value=b"1"),
                PutRecord(key="b", value=b""),
                PutRecord(key="a", value=b"2"),
                PutRecord(key="c", value=b"3"),
                PutRecord(key="c"),
                PutRecord(key="never"),
            ]
        )
        for _ in range(2):
            values = {key: driver.read(GetRecord(key=key)).value for key in "abc"}
            assert values == {"a": b"2", "b": b"", "c": None}
            driver.reopen()

    @pytest.mark.parametrize("bad", ["\ud800", "a\udfff"])
    def test_names_that_are_no_text_are_refused_alone(self, driver: StoreDriver, bad: str) -> None:
        writes: list[WriteOperation] = [
            PutStream(record=StreamRecord(name=bad)),
            PutStream(record=StreamRecord(name="fine", owner=bad)),
            PutStream(record=StreamRecord(name="fine", attributes={"description": bad})),
            SaveIndex(key=SavedIndexKey(bad, 0, "c")),
            PutRecord(key=bad, value=b"x"),
        ]
        good = PutRecord(key="good", value=b"kept")
        driver.write_all([*writes, good])
        assert [write.error and write.error.code for write in writes] == ["store.name"] * 5
        assert good.error is None
        assert driver.read(GetRecord(key="good")).value == b"kept"

    def test_answers_are_not_shared(self, driver: StoreDriver) -> None:
        put(driver, "s")
        first = driver.read(FindStream(name="s"))
        first.extents.clear()
        assert len(driver.read(replace(first, extents=[])).extents) == 1
