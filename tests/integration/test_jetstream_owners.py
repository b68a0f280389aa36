"""Who writes a log that several stores share: its owner, whoever takes the appends."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count

import msgspec
import pytest
from nats.aio.client import Client as NatsClient

from nats_support import JetStreamDriver, NatsServer, needs_nats
from rillnode.actors.storage import (
    Append,
    ListKeys,
    PutStream,
    RemoveStream,
    StreamRecord,
    log_id,
)
from rillnode.actors.storage.jetstream import forwarding
from rillnode.actors.storage.jetstream.connection import Connection
from rillnode.actors.storage.jetstream.forwarding import HandedAppend, HandedBatch, Outcome
from rillnode.actors.storage.jetstream.membership import Member, owner_of
from rillnode.actors.storage.jetstream.partition import Partition
from rillnode.actors.storage.jetstream.presence import Announcement
from rillnode.actors.storage.jetstream.stamps import Batch
from rillnode.actors.storage.watch import Sharing, Watch
from rillnode.codecs.entries import EntryKind, pack_body
from store_support import ANSWER_SECONDS, append, texts, wait_until

pytestmark = [needs_nats, pytest.mark.usefixtures("impatient", "nobody_is_lost")]

A, B, C = "a" * 64, "b" * 64, "c" * 64

Open = Callable[[str], JetStreamDriver]


@pytest.fixture
def opened(nats: NatsServer) -> Iterator[Open]:
    """Opens stores of nodes, all on the same logs."""
    with ExitStack() as stack:

        def open_store(identity: str) -> JetStreamDriver:
            driver = JetStreamDriver(nats, "t", identity=identity)
            stack.callback(driver.store.close)
            return driver

        yield open_store


def log_of(owner: str, *identities: str, after: int = 0) -> int:
    """A log that a node owns among others."""
    members = [Member(identity, "", b"") for identity in identities]
    logs = (log_id(number, 0) for number in count(after + 1))
    return next(log for log in logs if owner_of(log, members).identity == owner)


def sharing(driver: JetStreamDriver) -> Sharing:
    found = driver.store.sharing()
    assert found is not None
    return found


def met(*drivers: JetStreamDriver) -> None:
    """Wait until all know of all."""
    wait_until(lambda: all(len(sharing(one).nodes) == len(drivers) for one in drivers))


class Load:
    """Appends to one log one after the other, a few at a time, until it is told to stop."""

    def __init__(self, driver: JetStreamDriver, log: int, who: bytes) -> None:
        self.appends: list[Append] = []
        self._driver = driver
        self._log = log
        self._who = who
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            some = [
                append(b"%s %d" % (self._who, len(self.appends) + number), log=self._log)
                for number in range(5)
            ]
            self._driver.write_all(some)
            self.appends += some

    def grow(self, by: int = 50) -> None:
        """Wait until so many more were appended."""
        wanted = len(self.appends) + by
        wait_until(lambda: len(self.appends) >= wanted)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def check(self, found: list[bytes]) -> None:
        """Each was confirmed without error, is there once, where it was said, and in order."""
        assert [one.error for one in self.appends] == [None] * len(self.appends)
        mine = [b"%s %d" % (self._who, number) for number in range(len(self.appends))]
        assert [found[one.first_index] for one in self.appends] == mine
        assert [text for text in found if text.startswith(self._who)] == mine


def test_appends_go_through_the_owner(opened: Open) -> None:
    a, b = opened(A), opened(B)
    met(a, b)
    log = log_of(B, A, B)
    kept = 0
    for number in range(20):
        operation = append(b"%d" % number, b"x", log=log, at=7)
        operation.keys = [(b"k%02d" % number, 1)]
        assert a.write(operation).error is None
        assert operation.first_index == 2 * number
        # What it has confirmed is seen there at once.
        assert texts(a, log)[-2:] == [b"%d" % number, b"x"]
        kept += len(b"%dx" % number)
        assert operation.kept_bytes == kept
    assert b.write(append(b"own", log=log)).first_index == 40
    wait_until(lambda: texts(a, log) == texts(b, log))
    assert {entry.received_at for entry in b.entries(log)[:40]} == {7}
    pairs = [(b"k%02d" % number, 2 * number + 1) for number in range(20)]
    assert [*b.read(ListKeys(log=log)).pairs] == pairs
    assert (sharing(a).handed, sharing(a).taken) == (20, 0)
    assert (sharing(b).handed, sharing(b).taken) == (0, 20)
    assert sharing(a).owner_of(log).identity == B
    assert [node.identity for node in sharing(b).nodes] == [A, B]


def test_a_watcher_sees_what_was_handed_on(opened: Open) -> None:
    a, b = opened(A), opened(B)
    met(a, b)
    log = log_of(B, A, B)
    seen = 0
    for number in range(10):
        watch = Watch(log=log, index=number)
        a.store.watch(watch)
        a.store.submit(append(b"%d" % number, log=log))
        a.settle(2)
        assert watch.error is None
        assert watch.next_index > seen
        seen = watch.next_index
        assert len(texts(a, log)) == number + 1


def test_all_write_one_log_through_its_owner(opened: Open) -> None:
    drivers = [opened(identity) for identity in (A, B, C)]
    met(*drivers)
    log = log_of(C, A, B, C)
    loads = [
        Load(driver, log, who) for driver, who in zip(drivers, (b"a", b"b", b"c"), strict=True)
    ]
    for load in loads:
        load.grow(200)
    for load in loads:
        load.stop()
    found = texts(drivers[2], log)
    for load in loads:
        load.check(found)
    assert sharing(drivers[0]).handed == len(loads[0].appends)
    assert sharing(drivers[2]).taken == len(loads[0].appends) + len(loads[1].appends)


@pytest.mark.parametrize(("records", "seen"), [([("r", b"1")], None), ([], 1)])
def test_what_follows_from_what_its_node_knows_is_not_handed_on(
    opened: Open, records: list[tuple[str, bytes]], seen: int | None
) -> None:
    a, b = opened(A), opened(B)
    met(a, b)
    log = log_of(B, A, B)
    assert a.write(append(b"0", log=log)).error is None
    operation = append(b"1", log=log)
    operation.records, operation.seen = records, seen
    assert a.write(operation).error is None
    assert a.write(append(b"2", log=log)).error is None
    assert texts(a, log) == [b"0", b"1", b"2"]
    assert sharing(a).handed == 2


def test_an_owner_says_what_cannot_be_appended(opened: Open) -> None:
    a, b = opened(A), opened(B)
    met(a, b)
    while True:
        put = b.write(PutStream(record=StreamRecord(name="s")))
        log = log_id(put.record.id, 0)
        if sharing(a).owner_of(log).identity == B:
            break
        b.write(RemoveStream(name="s"))
    assert a.write(append(b"0", log=log)).error is None
    b.write(RemoveStream(name="s"))
    refused = a.write(append(b"1", log=log))
    assert refused.error is not None
    assert refused.error.code == "stream.removed"


def test_a_node_joins_and_leaves_under_load(opened: Open) -> None:
    a, b = opened(A), opened(B)
    met(a, b)
    log = log_of(C, A, B, C)
    loads = [Load(a, log, b"a"), Load(b, log, b"b")]
    for load in loads:
        load.grow()
    c = opened(C)
    met(a, b, c)
    for load in loads:
        load.grow()
    assert sharing(c).taken > 50
    before = max(sharing(one).hand_overs for one in (a, b))
    c.store.close()
    wait_until(lambda: len(sharing(a).nodes) == len(sharing(b).nodes) == 2)
    for load in loads:
        load.grow()
        load.stop()
    found = texts(a, log)
    for load in loads:
        load.check(found)
    assert max(sharing(one).hand_overs for one in (a, b)) > before


def test_requests_are_taken_once_after_a_pause_of_the_server(nats: NatsServer) -> None:
    with ExitStack() as stack:
        drivers: list[JetStreamDriver] = []
        for identity in (A, B):
            driver = JetStreamDriver(
                nats, "t", identity=identity, answer_seconds_max=2.0, patience_seconds=30.0
            )
            stack.callback(driver.store.close)
            drivers.append(driver)
        a, b = drivers
        met(a, b)
        log = log_of(B, A, B)
        assert a.write(append(b"0", log=log)).error is None
        nats.pause()
        b.store.submit(append(b"1", log=log))
        # It gives up an answer, and asks again on the connection that it has.
        time.sleep(2.5)
        nats.resume()
        b.settle(1)
        met(a, b)
        for number in range(2, 12):
            assert a.write(append(b"%d" % number, log=log)).error is None
        assert texts(b, log) == [b"%d" % number for number in range(12)]
        wait_until(lambda: sharing(a).handed == sharing(b).taken)


@pytest.mark.parametrize("silent", [False, True])
def test_a_lost_answer_does_not_append_twice(
    opened: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, silent: bool
) -> None:
    caplog.set_level("INFO")
    a, b = opened(A), opened(B)
    met(a, b)
    log = log_of(B, A, B)
    assert a.write(append(b"0", log=log)).error is None
    told = Connection.tell

    async def lost(self: Connection, subject: str, data: bytes) -> None:
        if not silent and not (data and subject.startswith("_INBOX")):
            await told(self, subject, data)

    operation = append(b"1", b"2", log=log)
    with monkeypatch.context() as patch:
        # Nothing at all is heard of it, or only that it is there.
        patch.setattr(forwarding, "ANSWER_SECONDS_MAX", 3_600.0 if silent else 0.3)
        patch.setattr(forwarding, "SILENT_SECONDS_MAX", 1.0 if silent else ANSWER_SECONDS)
        patch.setattr(Connection, "tell", lost)
        assert a.write(operation).error is None
    assert (operation.first_index, operation.kept_bytes) == (1, 3)
    told_of = "store_node_gone" if silent else "store_owner_failed"
    assert told_of in [record.message for record in caplog.records]
    # One that answers too late is avoided for a while, and the log is written here.
    assert a.write(append(b"3", log=log)).first_index == 3
    assert b.write(append(b"4", log=log)).first_index == 4
    assert texts(b, log) == [b"0", b"1", b"2", b"3", b"4"]
    if not silent:
        # Its other logs are its own: it may be this one that keeps it.
        assert a.write(append(b"0", log=log_of(B, A, B, after=log >> 32))).error is None
        assert sharing(a).handed == 2


@pytest.mark.parametrize("known", [True, False])
def test_a_late_owner_does_not_append_what_is_there(
    opened: Open, monkeypatch: pytest.MonkeyPatch, *, known: bool
) -> None:
    a, b = opened(A), opened(B)
    met(a, b)
    log = log_of(B, A, B)
    if known:
        assert a.write(append(b"0", log=log)).error is None
    monkeypatch.setattr(forwarding, "ANSWER_SECONDS_MAX", 0.3)
    late: list[tuple[asyncio.AbstractEventLoop, Partition, Batch]] = []
    took = Partition.take

    def keep(self: Partition, batch: Batch) -> None:
        late.append((asyncio.get_running_loop(), self, batch))

    monkeypatch.setattr(Partition, "take", keep)
    assert a.write(append(b"1", log=log)).error is None
    assert a.write(append(b"2", log=log)).error is None
    monkeypatch.setattr(Partition, "take", took)
    ((loop, partition, batch),) = late
    ended = threading.Event()
    batch.done = lambda _: ended.set()
    loop.call_soon_threadsafe(took, partition, batch)
    assert ended.wait(30.0)
    assert batch.sequence
    assert batch.appends[0].error is None
    assert texts(b, log) == [b"0"] * known + [b"1", b"2"]


async def instance_of(client: NatsClient, identity: str) -> bytes:
    """Which run of a node's store is there."""
    subscription = await client.subscribe(  # pyright: ignore[reportUnknownMemberType]
        "t-nodes"
    )
    while True:
        message = await subscription.next_msg(timeout=30.0)
        said = msgspec.msgpack.decode(message.data, type=Announcement)
        if said.member.identity == identity:
            return said.member.instance


def test_strangers_requests_do_no_harm(opened: Open, nats: NatsServer) -> None:
    a, b = opened(A), opened(B)
    met(a, b)
    log = log_of(B, A, B)

    def batch(number: int, text: bytes, *, since: int = 0) -> bytes:
        one = HandedAppend(EntryKind.BYTES, 0, 0, 1, pack_body([text]), [])
        return msgspec.msgpack.encode(HandedBatch(log, b"stranger", number, since, [one]))

    async def run() -> None:
        client = NatsClient()
        await client.connect(nats.url)
        subject = f"t-node-{(await instance_of(client, B)).hex()}"

        async def ask(data: bytes) -> Outcome:
            answer = await client.request(subject, data, timeout=30.0)
            return msgspec.msgpack.decode(answer.data, type=Outcome)

        assert (await client.request(subject, b"", timeout=30.0)).data == b""
        for garbage in (b"?", b"\xff" * 1_000, batch(1, b"x")[:-1]):
            assert (await ask(garbage)).code == "store.failed"
        await client.publish("t-nodes", b"garbage")
        await client.publish(subject, batch(1, b"1"))
        assert (await ask(batch(2, b"2"))).placed == [(1, 2)]
        # The same again, and what comes after its successor.
        assert (await ask(batch(2, b"2"))).placed == [(1, 2)]
        assert (await ask(batch(1, b"1"))).placed == [(0, 1)]
        assert (await ask(batch(4, b"4"))).placed == [(2, 3)]
        assert (await ask(batch(3, b"3"))).code == "store.fenced"
        # One that claims to be newer than the log itself.
        assert (await ask(batch(5, b"5", since=1_000))).placed == [(3, 4)]
        await client.close()

    asyncio.run(run())
    assert texts(b, log) == [b"1", b"2", b"4", b"5"]
    assert a.write(append(b"6", log=log)).first_index == 4
