"""The parts of the store on JetStream that need no server."""

import asyncio
from http.client import BadStatusLine
from urllib.error import URLError

import msgspec
import pytest

from rillnode.actors.storage import (
    PutRecord,
    PutRecords,
    PutStream,
    RemoveStream,
    SavedIndexKey,
    SaveIndex,
    StreamRecord,
    log_id,
)
from rillnode.actors.storage.jetstream import checks
from rillnode.actors.storage.jetstream.catalog import Catalog
from rillnode.actors.storage.jetstream.checks import check_syncs, decode_varz, sync_fault
from rillnode.actors.storage.jetstream.frames import (
    JournalFrame,
    LogFrame,
    LogStart,
    decode,
    dropped_key,
    encode,
    log_start_key,
)
from rillnode.actors.storage.jetstream.options import JetStreamOptions
from rillnode.actors.storage.jetstream.plan import (
    Plan,
    check_not_removed,
    is_removed,
    size_of_operation,
)
from rillnode.actors.storage.layout import saved_index_key, stream_key
from rillnode.codecs.errors import StoreError

# Frames ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "frame",
    [
        LogFrame(b"t", 2**63, [b"block"], [b"key"], [(b"ra", None), (b"rb", b"")]),
        JournalFrame(b"t", [(b"a", b"b")], [(b"c", b"d"), (b"e", None)]),
        LogStart(5, 6, 4, 3, 2),
    ],
)
def test_a_frame_comes_back_as_it_was(frame: LogFrame | JournalFrame | LogStart) -> None:
    assert decode(type(frame), encode(frame), "here") == frame


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"something else",
        encode(LogStart()),
        msgspec.msgpack.encode([b"t", 0, []]),
        msgspec.msgpack.encode([b"t", "0", [b"block"]]),
        encode(LogFrame(b"t", 0, [b"block"]))[:-1],
        encode(LogFrame(b"t", 0, [b"block"])) + b"\0",
        # A list that claims more than there is.
        b"\x93\xc4\x01t\x00\xdd\xff\xff\xff\xff",
    ],
)
def test_what_is_no_frame_is_told_with_its_place(data: bytes) -> None:
    with pytest.raises(StoreError, match="the stream x") as caught:
        decode(LogFrame, data, "the stream x")
    assert caught.value.code == "store.corrupt"


# Catalog ---------------------------------------------------------------------------------------


def test_a_catalog_holds_the_last_values_and_counts_them() -> None:
    catalog = Catalog(value_bytes_max=4)
    catalog.apply(1, JournalFrame(b"", [], [(b"sa", b"long enough"), (b"ra", b"12345")]))
    catalog.apply(2, JournalFrame(b"", [], [(b"rb", b"1"), (b"ra", b"123456"), (b"rc", b"2")]))
    before = catalog.live_bytes
    catalog.apply(4, JournalFrame(b"", [], [(b"rc", None), (b"none", None)]))
    assert before - catalog.live_bytes == len(b"rc") + 8 + 1
    assert (catalog.value(b"sa"), catalog.value(b"rb"), catalog.row(b"rc")) == (
        b"long enough",
        b"1",
        None,
    )
    large = catalog.row(b"ra")
    assert large is not None
    assert (large.sequence, large.size, large.value) == (2, 6, None)
    assert catalog.sequence == 4


def test_ranges_go_before_the_changes_of_their_frame() -> None:
    catalog = Catalog(value_bytes_max=4)
    catalog.apply(1, JournalFrame(b"", [], [(b"x%d" % n, b"") for n in range(5)]))
    catalog.apply(2, JournalFrame(b"", [(b"x1", b"x4")], [(b"x2", b"new")]))
    assert list(catalog.keys(b"x", b"y")) == [b"x0", b"x2", b"x4"]
    assert list(catalog.keys(b"x1", b"y", 1)) == [b"x2"]
    assert list(catalog.keys(b"x0", b"x0")) == []


# Plan ------------------------------------------------------------------------------------------


def commit(catalog: Catalog, plan: Plan) -> None:
    frame = plan.frame(b"t")
    assert frame is not None
    catalog.apply(catalog.sequence + 1, decode(JournalFrame, encode(frame), "here"))


def test_later_operations_of_a_plan_see_earlier_ones() -> None:
    plan = Plan(Catalog(64))
    records = [plan.run(PutStream(record=StreamRecord(name=name))) for name in "ab"]
    assert [record and record.id for record in records] == [1, 2]
    with pytest.raises(StoreError) as caught:
        plan.run(PutStream(record=StreamRecord(name="a")))
    assert caught.value.code == "store.exists"


def test_a_plan_of_nothing_but_refusals_is_no_frame() -> None:
    plan = Plan(Catalog(64))
    with pytest.raises(StoreError):
        plan.run(PutRecords(records=[("a", b"1"), ("\ud800", b"2")]))
    assert plan.frame(b"t") is None


def test_a_removal_takes_what_belongs_to_the_stream_and_leaves_a_note() -> None:
    catalog = Catalog(64)
    plan = Plan(catalog)
    for name in ("a", "ab"):
        plan.run(PutStream(record=StreamRecord(name=name, partitions=3)))
        plan.run(SaveIndex(key=SavedIndexKey(name, 0, "c"), index=1))
    for stream_id in (1, 2):
        plan.put(log_start_key(log_id(stream_id, 2)), encode(LogStart()))
    commit(catalog, plan)
    removal = Plan(catalog)
    removal.run(RemoveStream(name="a"))
    commit(catalog, removal)
    gone = [stream_key("a"), saved_index_key(SavedIndexKey("a", 0, "c"))]
    assert [catalog.row(key) for key in [*gone, log_start_key(log_id(1, 2))]] == [None] * 3
    kept = [stream_key("ab"), saved_index_key(SavedIndexKey("ab", 0, "c"))]
    assert None not in [catalog.row(key) for key in [*kept, log_start_key(log_id(2, 2))]]
    assert catalog.value(dropped_key(1)) == (3).to_bytes(4, "big")
    assert [is_removed(catalog, log_id(stream_id, 0)) for stream_id in (0, 1, 2, 3)] == [
        False,
        True,
        False,
        False,
    ]
    with pytest.raises(StoreError) as caught:
        check_not_removed(catalog, log_id(1, 0))
    assert caught.value.code == "stream.removed"


@pytest.mark.parametrize(
    "operation",
    [
        PutStream(record=StreamRecord(name="n" * 300, attributes={"a": "ü" * 1_000})),
        SaveIndex(key=SavedIndexKey("ü" * 200, 7, "c" * 200), index=2**64 - 1),
        PutRecord(key="ü" * 100, value=b"." * 5_000),
        PutRecords(records=[("k" * 50, b"." * 100)] * 10),
    ],
)
def test_no_operation_takes_more_room_than_it_counts_for(
    operation: PutStream | SaveIndex | PutRecord | PutRecords,
) -> None:
    plan = Plan(Catalog(64))
    plan.run(operation)
    frame = plan.frame(b"t" * 16)
    assert frame is not None
    assert len(encode(frame)) <= size_of_operation(operation)


# Checks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (b'{"jetstream": {"config": {"sync_always": true, "sync_interval": 120000000000}}}', None),
        (b'{"jetstream": {"config": {"sync_interval": 120000000000}}}', "every 120 seconds"),
        (b'{"version": "2.9.10", "jetstream": {"config": {}}}', "every 120 seconds"),
        (b'{"jetstream": {}}', "no JetStream"),
        (b"{}", "no JetStream"),
    ],
)
def test_what_monitoring_says_of_the_sync_interval(answer: bytes, fault: str | None) -> None:
    found = sync_fault("http://a:8222", decode_varz(answer))
    assert found is None if fault is None else found is not None and fault in found


@pytest.mark.parametrize("answer", [b"", b"[]", b'{"jetstream": {"config": {"sync_always": 1}}}'])
def test_what_is_no_answer_of_monitoring_is_an_error(answer: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_varz(answer)


@pytest.mark.parametrize(
    ("monitors", "size", "replicas", "synced", "refused"),
    [
        ("a", 1, 1, True, False),
        ("abc", 3, 3, True, False),
        ("ab?", 3, 3, False, False),
        ("ab~", 3, 3, False, False),
        ("a??", 3, 3, False, True),
        ("???", 3, 3, False, True),
        ("a?", 2, 2, False, True),
        ("abc!", 3, 3, False, True),
        ("ab?!", 3, 3, False, True),
        ("", 0, 3, False, True),
        # Those that nobody asks do not count, nor does the same one twice.
        ("ab", 3, 3, False, False),
        ("a", 3, 3, False, True),
        ("aaa", 3, 3, False, True),
        ("abc", 5, 5, False, False),
        ("abc", 6, 5, False, True),
        # Two of an entry's three replicas confirm it: both might be servers that are not known.
        ("abc", 5, 3, False, True),
        ("abcd", 5, 3, False, False),
        ("ab?", 3, 1, False, True),
        ("abc", 3, 1, True, False),
    ],
)
def test_a_majority_of_the_cluster_must_be_known_to_sync(
    monkeypatch: pytest.MonkeyPatch,
    monitors: str,
    size: int,
    replicas: int,
    synced: bool,
    refused: bool,
) -> None:
    def fetch(url: str) -> bytes:
        if url == "?":
            raise URLError("away")
        if url == "~":  # the port of clients
            raise BadStatusLine("INFO {...}")
        always = b"false" if url == "!" else b"true"
        return b'{"server_id": "%s", "jetstream": {"config": {"sync_always": %s}, "meta": %s}}' % (
            url.encode(), always, b'{"cluster_size": %d}' % size,
        )  # fmt: skip

    monkeypatch.setattr(checks, "_fetch", fetch)
    always, interval = (
        JetStreamOptions(servers=(), monitors=tuple(monitors), sync=sync, replicas=replicas)
        for sync in ("always", "interval")
    )
    assert asyncio.run(check_syncs(interval)) is synced
    if refused:
        with pytest.raises(StoreError) as caught:
            asyncio.run(check_syncs(always))
        assert caught.value.code == "store.unsynced"
    else:
        assert asyncio.run(check_syncs(always)) is synced
