"""The store on NATS JetStream when servers fail, and when several nodes have it open."""

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import StreamInfo
from nats.js.errors import NotFoundError

from certificates import make_certificate
from nats_support import JetStreamDriver, MutingProxy, NatsServer, needs_nats
from rillnode.actors.storage import (
    Append,
    Capability,
    FindStream,
    GetRecords,
    HasRecords,
    ListKeys,
    LoadIndex,
    PutRecord,
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
from rillnode.actors.storage.jetstream import checks
from rillnode.actors.storage.jetstream.frames import (
    JournalFrame,
    LogFrame,
    applied_key,
    decode,
    encode,
)
from rillnode.actors.storage.jetstream.options import JetStreamOptions
from rillnode.actors.storage.jetstream.store import JetStreamLogStore
from rillnode.actors.storage.layout import INDEX, record_key
from rillnode.codecs.entries import EntryKind, encode_block, entries_of, pack_body
from rillnode.codecs.errors import StoreError
from store_support import LOG, append, texts, wait_until

A = TypeVar("A")

pytestmark = needs_nats

KEY = SavedIndexKey("s", 0, "c")
LOG_STREAM = f"t-{LOG:016x}"


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    """What is open and is closed at the end."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def driver(nats: NatsServer, opened: ExitStack) -> JetStreamDriver:
    return open_driver(nats, opened)


def open_driver(nats: NatsServer, opened: ExitStack, url: str | None = None) -> JetStreamDriver:
    driver = JetStreamDriver(nats, "t", url=url)
    opened.callback(lambda: driver.store.close())
    return driver


def ask(nats: NatsServer, request: Callable[[JetStreamContext], Awaitable[A]]) -> A:
    """Ask JetStream something, past the store."""

    async def connected() -> A:
        client = Client()
        await client.connect(nats.url)
        try:
            return await request(JetStreamContext(client))
        finally:
            await client.close()

    return asyncio.run(connected())


def stream_info(nats: NatsServer, name: str) -> StreamInfo:
    return ask(nats, lambda js: js.stream_info(name))


def stored(nats: NatsServer, name: str, sequence: int) -> bytes:
    return ask(nats, lambda js: js.get_msg(name, sequence)).data or b""


def ignore(_: object) -> None:
    pass


def code_of(error: StoreError | None) -> str | None:
    return None if error is None else error.code


# Several nodes ---------------------------------------------------------------------------------


def with_records(*items: bytes, **records: bytes) -> Append:
    operation = append(*items)
    operation.records = list(records.items())
    return operation


def test_of_two_that_append_the_later_goes_behind_the_other(
    nats: NatsServer, opened: ExitStack
) -> None:
    one, other = open_driver(nats, opened), open_driver(nats, opened)
    for number in range(6):
        driver = (one, other, other)[number % 3]
        assert driver.write(append(b"%d" % number)).first_index == number
    assert one.store.health.writable
    assert texts(other) == texts(one) == [b"%d" % number for number in range(6)]


def test_an_append_with_records_is_fenced_by_what_is_not_known_yet(
    nats: NatsServer, opened: ExitStack
) -> None:
    driver = open_driver(nats, opened)
    driver.write(append(b"0"))
    # As another store does, but for the news of it.
    last = stream_info(nats, LOG_STREAM).state.last_seq
    frame = decode(LogFrame, stored(nats, LOG_STREAM, last), "")
    again = LogFrame(b"another", 1, frame.blocks)
    ask(nats, lambda js: js.publish(LOG_STREAM, encode(again)))
    fenced = driver.write(with_records(b"1", a=b"1"))
    assert fenced.error is not None
    assert (fenced.error.code, fenced.error.retryable) == ("store.fenced", True)
    assert driver.store.health.writable
    assert driver.read(GetRecords(keys=["a"])).values == [None]
    assert driver.write(with_records(b"1", a=b"1")).first_index == 2
    assert texts(driver) == [b"0", b"0", b"1"]
    assert driver.read(GetRecords(keys=["a"])).values == [b"1"]


def test_two_that_append_at_the_same_time_give_every_index_once(
    nats: NatsServer, opened: ExitStack
) -> None:
    drivers = [open_driver(nats, opened) for _ in range(2)]
    confirmed = {drivers[0].write(append(b"first")).first_index: b"first"}
    for round_ in range(20):
        operations = [append(b"%d %d" % (number, round_)) for number in range(2)]
        for driver, operation in zip(drivers, operations, strict=True):
            driver.store.submit(operation)
        for number, (driver, operation) in enumerate(zip(drivers, operations, strict=True)):
            driver.settle(1)
            if operation.error is None:
                assert operation.first_index not in confirmed
                confirmed[operation.first_index] = b"%d %d" % (number, round_)
    drivers[0].reopen()
    assert dict(enumerate(texts(drivers[0]))) == confirmed
    assert len(confirmed) >= 21


def test_two_that_create_streams_see_each_others(nats: NatsServer, opened: ExitStack) -> None:
    one, other = open_driver(nats, opened), open_driver(nats, opened)
    first = one.write(PutStream(record=StreamRecord(name="a"))).record
    assert code_of(other.write(PutStream(record=StreamRecord(name="a"))).error) == "store.exists"
    second = other.write(PutStream(record=StreamRecord(name="b"))).record
    assert (first.id, second.id) == (1, 2)
    assert other.read(FindStream(name="a")).record == first


def test_a_position_that_another_has_saved_meanwhile_is_not_overwritten(
    nats: NatsServer, opened: ExitStack
) -> None:
    one, other = open_driver(nats, opened), open_driver(nats, opened)
    one.write(SaveIndex(key=KEY, index=5))
    other.write(SaveIndex(key=replace_client(KEY, "d"), index=1))
    assert other.write(SaveIndex(key=KEY, index=9)).error is None
    assert code_of(one.write(SaveIndex(key=KEY, index=6)).error) == "store.fenced"
    assert one.read(LoadIndex(key=KEY)).index == 9
    assert one.write(SaveIndex(key=KEY, index=10)).error is None
    assert one.write(SaveIndex(key=replace_client(KEY, "e"), index=2)).error is None


def replace_client(key: SavedIndexKey, client_id: str) -> SavedIndexKey:
    return SavedIndexKey(key.stream, key.partition, client_id)


# Failures --------------------------------------------------------------------------------------


def test_a_killed_server_loses_nothing_confirmed(nats: NatsServer, driver: JetStreamDriver) -> None:
    submitted: list[Append] = []
    for round_ in range(3):
        before = len(driver.completed)
        for number in range(300):
            submitted.append(append(b"%d %d" % (round_, number)))
            driver.store.submit(submitted[-1])
        driver.collect(before + 50)
        nats.kill()
        driver.wait_health(writable=False)
        refused = append(b"refused")
        driver.store.submit(refused)
        assert code_of(refused.error) == "store.unreachable"
        nats.start()
        driver.wait_health(writable=True)
        driver.collect(before + 301)
    confirmed = [operation for operation in submitted if operation.error is None]
    assert all(operation.error is None or operation.error.retryable for operation in submitted)
    assert len(confirmed) >= 150
    while code_of(driver.write(append(b"last")).error) == "store.fenced":
        pass
    driver.reopen()
    found = texts(driver)
    for operation in confirmed:
        assert pack_body([found[operation.first_index]]) == operation.body
    assert len(set(found)) == len(found)


def test_what_is_stored_and_not_acknowledged_is_confirmed_once_that_is_known(
    nats: NatsServer, opened: ExitStack
) -> None:
    proxy = MutingProxy(nats.port)
    opened.callback(proxy.close)
    driver = open_driver(nats, opened, proxy.url)
    driver.write_all([append(b"before"), PutRecord(key="a", value=b"1")])
    last = stream_info(nats, LOG_STREAM).state.last_seq
    changes = stream_info(nats, "t-journal").state.last_seq
    proxy.mute()
    operations: list[WriteOperation] = [append(b"unanswered"), PutRecord(key="a", value=b"2")]
    for operation in operations:
        driver.store.submit(operation)
    wait_until(lambda: stream_info(nats, LOG_STREAM).state.last_seq == last + 1)
    wait_until(lambda: stream_info(nats, "t-journal").state.last_seq == changes + 1)
    proxy.cut()
    driver.settle(2)
    assert [operation.error for operation in operations] == [None, None]
    driver.wait_health(writable=True)
    driver.write(append(b"after"))
    driver.reopen()
    assert texts(driver) == [b"before", b"unanswered", b"after"]
    assert driver.read(GetRecords(keys=["a"])).values == [b"2"]


def test_a_server_that_hangs_is_waited_for(nats: NatsServer, opened: ExitStack) -> None:
    driver = JetStreamDriver(nats, "t", answer_seconds_max=2.0)
    opened.callback(lambda: driver.store.close())
    driver.write(append(b"before"))
    nats.pause()
    operations: list[Append] = []
    # It may answer a little longer.
    while driver.store.health.writable:
        operations.append(append(b"%d" % len(operations)))
        driver.store.submit(operations[-1])
        time.sleep(0.01)
    nats.resume()
    driver.wait_health(writable=True)
    driver.collect(1 + len(operations))
    while code_of(driver.write(append(b"after")).error) == "store.fenced":
        pass
    driver.reopen()
    found = texts(driver)
    assert (found[0], found[-1]) == (b"before", b"after")
    for operation in operations:
        if operation.error is None:
            assert pack_body([found[operation.first_index]]) == operation.body
    assert len(set(found)) == len(found)


def test_a_write_is_not_looked_for_without_end(nats: NatsServer, opened: ExitStack) -> None:
    proxy = MutingProxy(nats.port)
    opened.callback(proxy.close)
    driver = JetStreamDriver(nats, "t", url=proxy.url, settle_seconds_max=0.2)
    opened.callback(lambda: driver.store.close())
    driver.write(append(b"before"))
    proxy.mute()
    operation = append(b"stored, for all that")
    driver.store.submit(operation)
    wait_until(lambda: stream_info(nats, LOG_STREAM).state.last_seq == 2)
    nats.kill()
    driver.settle(1)
    assert code_of(operation.error) == "store.unreachable"
    assert not driver.store.health.writable
    proxy.cut()
    nats.start()
    driver.wait_health(writable=True)
    assert driver.write(append(b"after")).first_index == 2
    assert texts(driver) == [b"before", b"stored, for all that", b"after"]


def test_closing_while_no_server_answers_ends(nats: NatsServer, opened: ExitStack) -> None:
    proxy = MutingProxy(nats.port)
    opened.callback(proxy.close)
    driver = open_driver(nats, opened, proxy.url)
    driver.write(append(b"before"))
    proxy.mute()
    operation = append(b"unanswered")
    driver.store.submit(operation)
    driver.store.submit(RemoveStream(name="x"))
    nats.kill()
    driver.wait_health(writable=False)
    driver.store.close()
    driver.settle(2)
    assert code_of(operation.error) in ("store.closed", "store.unreachable")


def test_lost_data_is_told_and_no_index_is_given_again(
    nats: NatsServer, driver: JetStreamDriver, tmp_path: Path
) -> None:
    driver.write_all([append(b"lost"), PutRecord(key="a", value=b"1")])
    nats.kill()
    driver.wait_health(writable=False)
    shutil.rmtree(tmp_path / "nats" / "data")
    nats.start()
    wait_until(lambda: "has lost what it had confirmed" in driver.store.health.reason)
    operation = append(b"refused")
    driver.store.submit(operation)
    assert code_of(operation.error) == "store.lost"
    driver.settle(1)


def test_a_log_that_was_lost_is_not_begun_anew(nats: NatsServer, driver: JetStreamDriver) -> None:
    driver.write(append(b"lost"))
    ask(nats, lambda js: js.delete_stream(LOG_STREAM))
    for _ in range(2):
        assert code_of(driver.write(append(b"refused")).error) == "store.lost"
        driver.wait_health(writable=True)
    assert driver.write(append(b"another log", log=log_id(1, 1))).error is None


@pytest.mark.parametrize("kind", [Read, ListKeys])
@pytest.mark.parametrize("lost", ["all", "a message"])
def test_reads_of_what_was_lost_are_answered(
    nats: NatsServer, opened: ExitStack, kind: type[Read | ListKeys], lost: str
) -> None:
    # Of a stream that is no more, single messages are asked for in vain.
    driver = JetStreamDriver(nats, "t", answer_seconds_max=2.0)
    opened.callback(lambda: driver.store.close())
    for number in range(4):
        driver.write(append(b"%d" % number))
    # Where the log begins and ends stays known.
    driver.reopen()
    driver.read(Read(log=LOG, index=4))
    if lost == "all":
        ask(nats, lambda js: js.delete_stream(LOG_STREAM))
    else:
        ask(nats, lambda js: js.delete_msg(LOG_STREAM, 2))
    operation = kind(log=LOG)
    assert not driver.store.read(operation)
    driver.settle(1)
    assert code_of(operation.error) in ("store.corrupt", "store.unreachable")


# Opening ---------------------------------------------------------------------------------------


def test_opening_without_a_server_says_which(nats: NatsServer) -> None:
    nats.stop()
    store = JetStreamLogStore(
        JetStreamOptions(servers=(nats.url,)), complete=ignore, on_health=ignore
    )
    with pytest.raises(StoreError, match=str(nats.port)) as caught:
        store.open()
    assert caught.value.code == "store.unreachable"
    store.close()


def test_more_replicas_than_servers_are_refused(nats: NatsServer) -> None:
    options = JetStreamOptions(servers=(nats.url,), monitors=(nats.monitor,), replicas=3)
    store = JetStreamLogStore(options, complete=ignore, on_health=ignore)
    with pytest.raises(StoreError, match="replicas > 1 not supported") as caught:
        store.open()
    assert caught.value.code == "store.refused"


def test_servers_and_nodes_show_each_other_certificates(tmp_path: Path, opened: ExitStack) -> None:
    certificate, key = make_certificate(tmp_path)
    files = f'cert_file: "{certificate}", key_file: "{key}", ca_file: "{certificate}"'
    nats = NatsServer(tmp_path / "nats", f"tls {{ {files}, verify: true }}")
    nats.start()
    opened.callback(nats.kill)
    options = JetStreamOptions(
        servers=(nats.url.replace("nats:", "tls:"),), monitors=(nats.monitor,), replicas=1
    )
    trusting = replace(options, tls_ca=certificate)
    shown = replace(trusting, tls_cert=certificate, tls_key=key)
    for refused in (options, trusting):
        with pytest.raises(StoreError) as caught:
            JetStreamLogStore(refused, complete=ignore, on_health=ignore).open()
        assert caught.value.code == "store.unreachable"
    store = JetStreamLogStore(shown, complete=ignore, on_health=ignore)
    opened.callback(store.close)
    store.open()
    assert store.health.writable


def test_a_stream_of_something_else_is_not_taken_for_the_journal(
    nats: NatsServer, driver: JetStreamDriver
) -> None:
    ask(nats, lambda js: js.publish("t-journal", b"something else"))
    with pytest.raises(StoreError) as caught:
        driver.reopen()
    assert caught.value.code == "store.corrupt"


@pytest.mark.parametrize(
    ("syncs", "shown", "refusal"),
    [
        ("always", True, None),
        ('"2m"', True, "syncs every 120 seconds"),
        ("always", False, "no monitoring address is configured"),
    ],
)
def test_a_store_opens_where_the_servers_are_known_to_sync(
    tmp_path: Path, opened: ExitStack, syncs: str, shown: bool, refusal: str | None
) -> None:
    nats = NatsServer(tmp_path / "nats", sync=syncs)
    nats.start()
    opened.callback(nats.kill)
    monitors = (nats.monitor,) if shown else ()
    options = JetStreamOptions(servers=(nats.url,), monitors=monitors, replicas=1)
    store = JetStreamLogStore(options, complete=ignore, on_health=ignore)
    opened.callback(store.close)
    if refusal is None:
        store.open()
        assert store.capabilities == {Capability.SHARED, Capability.POWER_CUT}
        return
    with pytest.raises(StoreError, match=refusal) as caught:
        store.open()
    assert caught.value.code == "store.unsynced"
    for way in ("sync_interval: always", "[store] monitors", 'sync = "interval"', "may be lost"):
        assert way in caught.value.text
    weaker = JetStreamLogStore(replace(options, sync="interval"), complete=ignore, on_health=ignore)
    opened.callback(weaker.close)
    weaker.open()
    assert weaker.capabilities == {Capability.SHARED}


@pytest.mark.parametrize("early", [False, True])
def test_servers_that_are_too_old_are_told_of(
    nats: NatsServer,
    opened: ExitStack,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    *,
    early: bool,
) -> None:
    # What the tests' own server says is more than this one, and less than that.
    monkeypatch.setattr(checks, "VERSION_MIN", (99, 0, 0) if early else (0, 0, 1))
    open_driver(nats, opened)
    told = [record for record in caplog.records if record.message == "store_servers_old"]
    assert [vars(record)["remedy"][:22] for record in told] == ["run nats-server 99.0.0"] * early


# What stands in JetStream ----------------------------------------------------------------------


def test_records_of_an_append_are_there_though_a_crash_kept_them_from_the_journal(
    nats: NatsServer, driver: JetStreamDriver
) -> None:
    with_records = append(b"first")
    with_records.records = [("a", b"1"), ("b", b"1")]
    driver.write(with_records)
    driver.store.close()
    last = stream_info(nats, LOG_STREAM).state.last_seq
    frame = decode(LogFrame, stored(nats, LOG_STREAM, last), "")
    again = LogFrame(
        b"another", 1, frame.blocks, records=[(record_key("a"), b"2"), (record_key("b"), None)]
    )
    ask(nats, lambda js: js.publish(LOG_STREAM, encode(again)))
    driver.store.open()
    assert driver.read(GetRecords(keys=["a", "b"])).values == [b"2", None]
    driver.write(PutRecords(records=[("a", b"3")]))
    driver.reopen()
    assert driver.read(GetRecords(keys=["a", "b"])).values == [b"3", None]


def test_records_that_another_node_has_announced_unheard_are_there_though_it_crashed(
    nats: NatsServer, driver: JetStreamDriver
) -> None:
    driver.write(append(b"0"))
    announced = JournalFrame(b"another", [], [(applied_key(LOG), INDEX.pack(1))])
    ask(nats, lambda js: js.publish("t-journal", encode(announced)))
    block = encode_block(
        count=1, kind=EntryKind.BYTES, received_at=1, position=1, body=pack_body([b"1"])
    )
    theirs = LogFrame(b"another", 1, [block], records=[(record_key("a"), b"1")])
    ask(nats, lambda js: js.publish(LOG_STREAM, encode(theirs)))
    # The log is known with what has come, and of the journal nothing was heard.
    assert driver.write(append(b"2")).first_index == 2
    assert driver.write(with_records(b"3", b=b"1")).error is None
    assert driver.read(GetRecords(keys=["a", "b"])).values == [b"1", b"1"]


def test_a_hole_in_what_a_crash_kept_from_the_journal_is_told(
    nats: NatsServer, driver: JetStreamDriver
) -> None:
    for number in range(3):
        driver.write(with_records(b"%d" % number, a=b"%d" % number))
    driver.store.close()
    behind = JournalFrame(b"another", [], [(applied_key(LOG), INDEX.pack(0))])
    ask(nats, lambda js: js.publish("t-journal", encode(behind)))
    ask(nats, lambda js: js.delete_msg(LOG_STREAM, 2))
    with pytest.raises(StoreError, match="is missing") as caught:
        driver.store.open()
    assert caught.value.code == "store.corrupt"


def test_a_damaged_end_of_a_log_is_told(nats: NatsServer, driver: JetStreamDriver) -> None:
    driver.write(append(b"0"))
    driver.store.close()
    damaged = LogFrame(b"another", 1, [b"short"])
    ask(nats, lambda js: js.publish(LOG_STREAM, encode(damaged)))
    driver.store.open()
    for operation in (append(b"1"), Trim(log=LOG, before=1)):
        assert code_of(driver.write(operation).error) == "store.corrupt"


def test_the_journal_does_not_grow_with_what_is_replaced(
    nats: NatsServer, driver: JetStreamDriver
) -> None:
    large = b"." * 100
    kept = [(f"kept {number}", large) for number in range(10)]
    driver.write_all([PutRecords(records=kept), SaveIndex(key=KEY, index=1)])
    for round_ in range(60):
        driver.write_all(
            [
                PutRecord(key="replaced", value=large + b"%d" % round_),
                PutRecord(key=f"removed {round_}", value=large),
                PutRecord(key=f"removed {round_}", value=None),
                SaveIndex(key=KEY, index=round_),
            ]
        )
    state = stream_info(nats, "t-journal").state
    assert state.first_seq > 20
    assert state.bytes < 20_000
    for _ in range(2):
        assert driver.read(GetRecords(keys=[key for key, _ in kept])).values == [large] * 10
        assert driver.read(GetRecords(keys=["replaced"])).values == [large + b"59"]
        assert driver.read(HasRecords(keys=["removed 5"])).found == [False]
        assert driver.read(LoadIndex(key=KEY)).index == 59
        driver.reopen()


def test_a_trim_frees_the_servers_storage_but_for_the_last_message(
    nats: NatsServer, driver: JetStreamDriver
) -> None:
    for number in range(10):
        driver.write(append(b"%d" % number))
    driver.write(Trim(log=LOG, before=7))
    assert stream_info(nats, LOG_STREAM).state.first_seq == 8
    driver.write(Trim(log=LOG, before=10))
    state = stream_info(nats, LOG_STREAM).state
    assert (state.first_seq, state.last_seq, state.messages) == (10, 10, 1)


def test_a_removed_stream_leaves_nothing_behind(nats: NatsServer, driver: JetStreamDriver) -> None:
    record = driver.write(PutStream(record=StreamRecord(name="a", partitions=2))).record
    logs = [log_id(record.id, partition) for partition in range(2)]
    driver.write(append(b"x", log=logs[0]))
    driver.write(RemoveStream(name="a"))
    driver.store.close()
    with pytest.raises(NotFoundError):
        stream_info(nats, f"t-{logs[0]:016x}")
    driver.store.open()
    assert driver.read(Read(log=logs[0])).extent.next_index == 0


def test_what_is_larger_than_a_message_is_refused_and_harms_nothing(
    driver: JetStreamDriver,
) -> None:
    operations = [append(b"a"), append(b"." * 9_000_000), append(b"b")]
    driver.write_all(operations)
    assert [code_of(one.error) for one in operations] == [None, "store.too_large", None]
    assert code_of(driver.write(PutRecord(key="a", value=b"." * 9_000_000)).error) == (
        "store.too_large"
    )
    assert texts(driver) == [b"a", b"b"]


def test_any_entry_of_a_log_of_unequal_messages_is_found(driver: JetStreamDriver) -> None:
    sizes = [1, 1, 40, 1, 3, 200, 1, 1, 1, 7, 90, 1]
    for size in sizes:
        driver.write(append(*[b"%d" % size] * size))
    expected = [b"%d" % size for size in sizes for _ in range(size)]
    driver.reopen()
    for index in [*range(0, len(expected), 11), len(expected) - 1]:
        read = driver.read(Read(log=LOG, index=index, entries_max=1))
        found = entries_of(read.blocks[0], first=index)[0]
        assert (found.index, found.data) == (index, expected[index])
