"""Tests named values that are written together, and listed."""

import pytest

from rillnode.actors.log import (
    Append,
    GetRecord,
    GetRecords,
    HasRecords,
    ListRecords,
    PutRecord,
    PutRecords,
)
from rillnode.codecs.entries import pack_body
from rillnode.node.testing.contract.stores.base import StoreBase
from rillnode.node.testing.contract.stores.driver import LOG, StoreDriver, append


def records(driver: StoreDriver, prefix: str = "", after: str = "", limit: int = 100) -> list[str]:
    """What a listing gives, as texts."""
    listed = driver.read(ListRecords(prefix=prefix, after=after, limit=limit)).records
    return [f"{key}={value.decode()}" for key, value in listed]


class RecordsContract(StoreBase):
    """Named values, written together."""

    def test_records_are_put_and_removed_together_and_in_order(self, driver: StoreDriver) -> None:
        driver.write(PutRecord(key="gone", value=b"0"))
        driver.write(PutRecords(records=[("a", b"1"), ("gone", None), ("a", b"2"), ("b", b"")]))
        for _ in range(2):
            found = driver.read(GetRecords(keys=["b", "a", "gone", "never"]))
            assert found.values == [b"", b"2", None, None]
            seen = driver.read(HasRecords(keys=["b", "a", "gone", "never"]))
            assert seen.found == [True, True, False, False]
            driver.reopen()

    def test_what_follows_from_what_was_read_last_is_written(self, driver: StoreDriver) -> None:
        long = b"x" * 1_000
        for value in (b"1", long, None, b"2"):
            for name in ("a", "b"):
                version = driver.read(GetRecord(key=name)).version
                driver.write(PutRecords(records=[(name, value)], seen=[(name, version)]))
        listed = driver.read(ListRecords(prefix=""))
        names = [name for name, _ in listed.records]
        seen = list(zip(names, listed.versions or [0, 0], strict=True))
        driver.write(PutRecords(records=[("a", None), ("c", b"3")], seen=[*seen, ("c", 0)]))
        assert records(driver) == ["b=2", "c=3"]

    def test_records_are_listed_by_prefix_in_byte_order_page_by_page(
        self, driver: StoreDriver
    ) -> None:
        names = ["p/a", "p/ab", "p/b", "p/ø", "p", "q/a", "o/z"]
        driver.write(PutRecords(records=[(name, b"1") for name in names]))
        assert records(driver, "p/") == ["p/a=1", "p/ab=1", "p/b=1", "p/ø=1"]
        assert records(driver, "p/", limit=2) == ["p/a=1", "p/ab=1"]
        assert records(driver, "p/", after="p/ab") == ["p/b=1", "p/ø=1"]
        assert records(driver, "p/", after="p/ø") == []
        assert len(records(driver)) == len(names)

    def test_an_append_s_records_are_there_when_its_entries_are(self, driver: StoreDriver) -> None:
        body = pack_body([b"entry"])
        done = driver.write(
            Append(log=LOG, count=1, body=body, records=[("head", b"0"), ("x", None)])
        )
        assert (done.error, done.first_index) == (None, 0)
        assert records(driver) == ["head=0"]
        assert [entry.data for entry in driver.entries()] == [b"entry"]

    @pytest.mark.parametrize("operation", [PutRecords, Append])
    def test_a_name_that_is_no_text_leaves_nothing(
        self, driver: StoreDriver, operation: type[PutRecords | Append]
    ) -> None:
        wrong = [("fine", b"1"), ("\ud800", b"2")]
        write = (
            PutRecords(records=wrong)
            if operation is PutRecords
            else Append(log=LOG, count=1, body=pack_body([b"entry"]), records=wrong)
        )
        driver.write(write)
        assert write.error is not None
        assert write.error.code == "store.name"
        driver.write(append(b"next"))
        assert records(driver) == []
        assert [entry.data for entry in driver.entries()] == [b"next"]

    def test_values_count_as_bytes_under_way(self, driver: StoreDriver) -> None:
        driver.store.submit(PutRecords(records=[("a", b"v" * 1_000), ("b", None)]))
        # The writer's thread may have been quicker.
        assert driver.store.pending_bytes in (0, 1_000)
        driver.settle(1)
        assert driver.store.pending_bytes == 0
