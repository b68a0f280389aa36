"""Tests the removal of a stream."""

from rillnode.actors.log import (
    FindStream,
    GetRecords,
    ListIndexes,
    ListKeys,
    ListStreams,
    LoadIndex,
    LogExtent,
    PutRecords,
    PutStream,
    Read,
    RemoveStream,
    SavedIndexKey,
    SaveIndex,
    StreamRecord,
    Trim,
    WriteOperation,
    log_id,
)
from rillnode.actors.log.records import beside_log, beside_stream
from rillnode.node.testing.contract.stores.base import StoreBase
from rillnode.node.testing.contract.stores.driver import StoreDriver, append


def put(driver: StoreDriver, name: str, partitions: int = 2) -> StreamRecord:
    """Make a stream."""
    return driver.write(PutStream(record=StreamRecord(name=name, partitions=partitions))).record


def filled(driver: StoreDriver, name: str) -> StreamRecord:
    """A stream with entries, secondary keys and a saved index in each of its partitions."""
    record = put(driver, name)
    for partition in range(record.partitions):
        operation = append(b"a", b"b" * 1_000, log=log_id(record.id, partition))
        operation.keys = [(b"key", 0)]
        key = SavedIndexKey(name, partition, "c")
        driver.write_all([operation, SaveIndex(key=key, index=5)])
    return record


def assert_gone(driver: StoreDriver, record: StreamRecord) -> None:
    """Nothing of a stream is found."""
    for ask in (FindStream(name=record.name), FindStream(id=record.id)):
        assert driver.read(ask).record is None
    assert record.name not in [one.name for one in driver.read(ListStreams()).records]
    assert driver.read(ListIndexes(stream=record.name)).indexes == []
    for partition in range(record.partitions):
        log = log_id(record.id, partition)
        read = driver.read(Read(log=log))
        assert (read.blocks, read.extent) == ([], LogExtent())
        assert driver.read(ListKeys(log=log)).pairs == []
        assert driver.read(LoadIndex(key=SavedIndexKey(record.name, partition, "c"))).index is None


def assert_whole(driver: StoreDriver, record: StreamRecord) -> None:
    """All of a stream of `filled` is found."""
    found = driver.read(FindStream(name=record.name))
    assert found.record == record
    for partition in range(record.partitions):
        log = log_id(record.id, partition)
        assert [entry.data for entry in driver.entries(log)] == [b"a", b"b" * 1_000]
        assert driver.read(ListKeys(log=log)).pairs == [(b"key", 0)]
        assert driver.read(LoadIndex(key=SavedIndexKey(record.name, partition, "c"))).index == 5


class RemovalContract(StoreBase):
    """Removing a stream."""

    def test_nothing_is_left_of_a_removed_stream_and_all_of_its_neighbours(
        self, driver: StoreDriver
    ) -> None:
        names = ["s", "r", "t", "s\0", "s\0\1", "s/1", "S"]
        records = {name: filled(driver, name) for name in names}
        done = driver.write(RemoveStream(name="s"))
        assert (done.error, done.record) == (None, records["s"])
        for _ in range(2):
            assert_gone(driver, records["s"])
            for name in names[1:]:
                assert_whole(driver, records[name])
            driver.reopen()

    def test_a_later_stream_of_the_name_is_another_one_from_index_0(
        self, driver: StoreDriver
    ) -> None:
        first = filled(driver, "s")
        driver.write(RemoveStream(name="s"))
        driver.reopen()
        second = put(driver, "s", 1)
        assert second.id > first.id
        operation = driver.write(append(b"new", log=log_id(second.id, 0)))
        assert operation.first_index == 0
        assert driver.read(LoadIndex(key=SavedIndexKey("s", 0, "c"))).index is None

    def test_a_position_is_saved_for_the_stream_that_is_meant_or_not_at_all(
        self,
        driver: StoreDriver,
    ) -> None:
        key = SavedIndexKey("s", 0, "c")

        def save(index: int, created_at: int) -> SaveIndex:
            return SaveIndex(key=key, index=index, created_at=created_at)

        def code(operation: WriteOperation) -> str | None:
            return None if operation.error is None else operation.error.code

        def make(created_at: int) -> PutStream:
            return PutStream(record=StreamRecord(name="s", created_at=created_at))

        none = driver.write(save(1, 3))
        # Of one group, and of several.
        writes: list[WriteOperation] = [
            make(3), save(4, 3), RemoveStream(name="s"), save(5, 3), make(7), save(6, 3), save(2, 7)
        ]  # fmt: skip
        driver.write_all(writes)
        refused = [none, writes[3], writes[5]]
        assert [code(one) for one in refused] == ["stream.removed"] * 3
        assert [one for one in writes if one.error is not None] == refused[1:]
        driver.reopen()
        assert driver.read(LoadIndex(key=key)).index == 2
        assert code(driver.write(save(8, 3))) == "stream.removed"
        driver.write_all([save(9, 7), save(10, 0)])
        assert driver.read(LoadIndex(key=key)).index == 10

    def test_what_is_not_there_cannot_be_removed(self, driver: StoreDriver) -> None:
        put(driver, "s")
        refused = [driver.write(RemoveStream(name=name)) for name in ("", "t", "S", "s\0")]
        refused += [driver.write(RemoveStream(name="s")), driver.write(RemoveStream(name="s"))]
        codes = [one.error and one.error.code for one in refused]
        assert codes == ["store.unknown"] * 4 + [None, "store.unknown"]

    def test_what_follows_a_removal_is_refused_whether_in_its_group_or_later(
        self,
        driver: StoreDriver,
    ) -> None:
        record = filled(driver, "s")
        log = log_id(record.id, 1)
        before, after, trim = append(b"before", log=log), append(b"after", log=log), Trim(log=log)
        writes: list[WriteOperation] = [before, RemoveStream(name="s"), after, trim]
        driver.write_all(writes)
        assert before.error is None
        for _ in range(2):
            refused = [
                after,
                trim,
                driver.write(append(b"late", log=log)),
                driver.write(Trim(log=log)),
            ]
            for operation in refused:
                assert operation.error is not None
                assert (operation.error.code, operation.error.retryable) == (
                    "stream.removed",
                    False,
                )
            assert_gone(driver, record)
            driver.reopen()

    def test_one_group_may_create_remove_and_create_again(self, driver: StoreDriver) -> None:
        first, second = (PutStream(record=StreamRecord(name="s")) for _ in range(2))
        key = SavedIndexKey("s", 0, "c")
        driver.write_all(
            [
                first,
                append(b"gone", log=log_id(1, 0)),
                SaveIndex(key=key, index=9),
                RemoveStream(name="s"),
                second,
                append(b"kept", log=log_id(2, 0)),
                SaveIndex(key=key, index=1),
            ]
        )
        assert [operation.error for operation in driver.completed] == [None] * 7
        for _ in range(2):
            assert driver.read(FindStream(name="s")).record == second.record
            assert [entry.data for entry in driver.entries(log_id(2, 0))] == [b"kept"]
            assert driver.entries(log_id(1, 0)) == []
            assert driver.read(LoadIndex(key=key)).index == 1
            driver.reopen()

    def test_appends_tell_what_the_log_keeps(self, driver: StoreDriver) -> None:
        log = log_id(7, 0)
        kept = [
            driver.write(append(*items, log=log)).kept_bytes for items in ([b"abc"], [b"", b"d"])
        ]
        driver.write(Trim(log=log, before=1))
        kept.append(driver.write(append(b"ef", log=log)).kept_bytes)
        assert kept == [3, 4, 3]

    def test_what_is_kept_beside_the_logs_of_a_stream_goes_with_it(
        self, driver: StoreDriver
    ) -> None:
        gone, other = filled(driver, "s"), filled(driver, "t")
        logs = [log_id(one.id, partition) for one in (gone, other) for partition in range(2)]
        names = [f"{beside_log(log)}{name}" for log in logs for name in ("", "chain", "~")]
        groups = [f"{beside_stream(one.id)}worker" for one in (gone, other)]
        driver.write(PutRecords(records=[(name, b"x") for name in (*names, *groups, "else")]))
        driver.write(RemoveStream(name="s"))
        for _ in range(2):
            found = driver.read(GetRecords(keys=[*names, "else"]))
            assert found.values == [None] * 6 + [b"x"] * 7
            assert driver.read(GetRecords(keys=groups)).values == [None, b"x"]
            driver.reopen()
