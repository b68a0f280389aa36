"""Tests what operations of a store say of themselves."""

from rillnode.actors.log import Append, PutRecord, PutRecords, written_bytes


def test_entries_and_values_written_together_count_as_bytes_and_single_values_do_not() -> None:
    records = [("a", b"v" * 1_000), ("b", None)]
    assert written_bytes(PutRecords(records=records)) == 1_000
    assert written_bytes(Append(body=b"b" * 10, records=records)) == 1_010
    assert written_bytes(PutRecord(key="a", value=b"v")) == 0
