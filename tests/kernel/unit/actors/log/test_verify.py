from collections.abc import Callable
from pathlib import Path

import pytest

from rillnode.actors.log import (
    EVERY_ENTRY,
    Append,
    PutStream,
    RemoveStream,
    SavedIndexKey,
    SaveIndex,
    Trim,
)
from rillnode.actors.log.records import StreamRecord
from rillnode.actors.log.rocks.format import check_format
from rillnode.actors.log.rocks.layout import (
    BLOCK_KEY,
    LOG_KEY,
    NUMBER,
    RUN_PREFIX,
    block_keys_key,
    stream_key,
)
from rillnode.actors.log.rocks.tables import Changes, Tables
from rillnode.actors.log.rocks.verify import PROBLEMS_MAX, Verdict, verify_store
from rillnode.codecs.entries import pack_body
from rillnode.codecs.errors import StoreError
from rillnode.node.testing.contract.stores.driver import LOG, append
from store_support import SMALL, RocksDriver

Harm = Callable[[Tables], Changes]


def verdict_of(path: Path) -> Verdict:
    tables = Tables(path, SMALL, read_only=True)
    try:
        check_format(tables, path)
        return verify_store(tables)
    finally:
        tables.close()


def keyed(*items: bytes) -> Append:
    operation = append(*items)
    each = [(b"k" + item, offset) for offset, item in enumerate(items)]
    operation.keys = [*each, (b"all", EVERY_ENTRY)]
    return operation


@pytest.fixture
def filled(rocks: RocksDriver) -> RocksDriver:
    """A store of ten blocks of three entries with keys in each, trimmed in the third block."""
    rocks.write(PutStream(record=StreamRecord(name="s")))
    rocks.write_all([keyed(b"%d" % n, b"%d." % n, b"%d.." % n) for n in range(10)])
    rocks.write(Trim(log=LOG, before=7))
    rocks.write(SaveIndex(key=SavedIndexKey("s", 0, "c"), index=3))
    rocks.store.close()
    return rocks


def harmed(filled: RocksDriver, harm: Harm) -> Verdict:
    tables = Tables(filled.path, SMALL)
    tables.write(harm(tables))
    tables.sync()
    tables.close()
    return verdict_of(filled.path)


def test_a_good_store_has_no_problems(filled: RocksDriver) -> None:
    verdict = verdict_of(filled.path)
    assert verdict.problems == []
    assert (verdict.streams, verdict.logs, verdict.saved_indexes) == (1, 1, 1)
    assert (verdict.blocks, verdict.entries, verdict.keys) == (8, 24, 32)
    # Of the block that holds entry 7, entry 6 is trimmed and its key stays until the block goes.
    assert verdict.stale_keys == 1


def test_nothing_is_changed_by_looking(filled: RocksDriver) -> None:
    def contents() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in filled.path.iterdir()}

    before = contents()
    verdict_of(filled.path)
    assert contents() == before


def test_an_empty_and_a_wholly_trimmed_log_and_a_removed_stream_are_good(
    rocks: RocksDriver,
) -> None:
    rocks.write_all([PutStream(record=StreamRecord(name=name)) for name in ("a", "b", "c")])
    rocks.write_all([append(b"x", b"y", log=number << 32) for number in (1, 2)])
    rocks.write(Trim(log=1 << 32, before=2))
    rocks.write(RemoveStream(name="b"))
    rocks.store.close()
    verdict = verdict_of(rocks.path)
    assert verdict.problems == []
    assert (verdict.streams, verdict.entries) == (2, 0)


def test_a_log_goes_on_after_all_of_it_was_trimmed(filled: RocksDriver) -> None:
    filled.reopen()
    filled.write(Trim(log=LOG, before=30))
    filled.write(keyed(b"next"))
    filled.store.close()
    verdict = verdict_of(filled.path)
    assert verdict.problems == []
    assert (verdict.entries, verdict.keys) == (1, 2)


def block(first_index: int) -> bytes:
    return BLOCK_KEY.pack(LOG, first_index)


def without(key: bytes, family: str) -> Harm:
    return lambda tables: Changes(puts=[(key, None, getattr(tables, family))])


def with_row(key: bytes, value: bytes, family: str) -> Harm:
    return lambda tables: Changes(puts=[(key, value, getattr(tables, family))])


KEY_OF_9 = LOG_KEY.pack(LOG) + b"k3" + (9).to_bytes(8, "big")
ALL_OF_9 = LOG_KEY.pack(LOG) + RUN_PREFIX + b"all" + (9).to_bytes(8, "big")
FOREIGN_BLOCK = b"\x01\0\0\0\0\0\0\0" + bytes(16) + pack_body([b"?"])


@pytest.mark.parametrize(
    ("harm", "where", "text"),
    [
        (without(block(12), "blocks"), "entry 15", "follows entry 11: the log has a hole"),
        (without(block(6), "blocks"), "entry 9", "should hold entry 7"),
        (with_row(block(12), b"short", "blocks"), "entry 12", "its block is damaged"),
        (with_row(block(12), FOREIGN_BLOCK, "blocks"), "entry 12", "data bytes stand before it"),
        (with_row(b"odd", b"", "blocks"), "block 6f6464", "key is none of a block"),
        (with_row(LOG_KEY.pack(LOG), b"??", "blocks"), "partition 0", "cannot be read"),
        (with_row(BLOCK_KEY.pack(LOG + 1, 0), FOREIGN_BLOCK, "blocks"), "partition 1", "not have"),
        (with_row(BLOCK_KEY.pack(9 << 32, 0), FOREIGN_BLOCK, "blocks"), "id 9", "no stream"),
        (without(KEY_OF_9, "keys"), "keys of entry 9", "1 of 4 are missing"),
        (without(ALL_OF_9, "keys"), "keys of entry 9", "1 of 4 are missing"),
        (with_row(ALL_OF_9, NUMBER.pack(22), "keys"), "key", "leads to entry 30"),
        (with_row(KEY_OF_9[:-1] + b"\xff", b"", "keys"), "key", "leads to entry 255"),
        (with_row(KEY_OF_9[:-1] + b"\x0a", b"", "keys"), "partition 0", "1 secondary keys stand"),
        (without(block_keys_key(LOG, 9), "keys"), "partition 0", "4 secondary keys stand in no"),
        (with_row(block_keys_key(LOG, 9), b"\xc1", "keys"), "entry 9", "list cannot be read"),
        (with_row(b"tiny", b"", "keys"), "key 74696e79", "none of a secondary key"),
        (without(stream_key("s"), "records"), "stream 's'", "its id leads to no stream"),
        (with_row(stream_key("s"), b"\xc1", "records"), "record", "cannot be read"),
        (with_row(stream_key("t"), b"\x81\xa4name\xa1s", "records"), "stream 't'", "says 's'"),
        (with_row(b"mnext_stream", bytes(4), "records"), "stream id 1", "a second time"),
        (with_row(b"xs\0\0\0\0\0\0c", b"", "records"), "record", "cannot be read"),
        (with_row(b"?", b"", "records"), "record", "of no kind"),
    ],
)  # fmt: skip
def test_harm_is_found(filled: RocksDriver, harm: Harm, where: str, text: str) -> None:
    verdict = harmed(filled, harm)
    assert [
        problem for problem in verdict.problems if where in problem.where and text in problem.text
    ], verdict.problems


def test_what_the_disk_changed_is_found(filled: RocksDriver) -> None:
    (table,) = sorted(filled.path.glob("*.sst"))[:1]
    content = bytearray(table.read_bytes())
    content[len(content) // 4] ^= 1
    table.write_bytes(content)
    try:
        verdict = verdict_of(filled.path)
    except StoreError:
        return  # so much that it does not open
    assert verdict.problem_count


def test_problems_beyond_the_bound_are_counted(filled: RocksDriver) -> None:
    def harm(tables: Tables) -> Changes:
        rows = [b"?%d" % number for number in range(PROBLEMS_MAX + 20)]
        return Changes(puts=[(row, b"", tables.records) for row in rows])

    verdict = harmed(filled, harm)
    assert len(verdict.problems) == PROBLEMS_MAX
    assert verdict.problem_count == PROBLEMS_MAX + 20


def test_a_store_of_another_format_is_not_judged(filled: RocksDriver) -> None:
    with pytest.raises(StoreError, match="has format 99") as caught:
        harmed(filled, with_row(b"mformat", (99).to_bytes(4, "big"), "records"))
    assert caught.value.code == "store.format"
