"""Several stores, and several nodes, on the same streams in NATS JetStream."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, aclosing
from pathlib import Path

import pytest
from nats.aio.client import Client as NatsClient
from nats.js import JetStreamContext

from nats_support import JetStreamDriver, NatsCluster, NatsServer, needs_nats, on_jetstream
from nodes import connect_to, node_config
from rillnode.actors.storage import (
    Append,
    FindStream,
    GetRecord,
    GetRecords,
    ListRecords,
    LoadIndex,
    PutRecord,
    PutRecords,
    PutStream,
    RemoveStream,
    SavedIndexKey,
    SaveIndex,
    StreamRecord,
    Trim,
    log_id,
)
from rillnode.actors.storage.jetstream.frames import LogFrame, encode
from rillnode.actors.storage.jetstream.server import Server
from rillnode.actors.storage.watch import Watch
from rillnode.codecs.entries import EntryKind, encode_block, pack_body
from rillnode.codecs.errors import RillnodeError
from rillnode.node.client import Client
from rillnode.node.runtime import Node
from store_support import ANSWER_SECONDS, LOG, append, eventually, texts, wait_until

pytestmark = [needs_nats, pytest.mark.usefixtures("impatient")]

KEY = SavedIndexKey("s", 0, "c")


@pytest.fixture
def drivers(nats: NatsServer) -> Iterator[tuple[JetStreamDriver, JetStreamDriver]]:
    """Two stores on the same streams."""
    with ExitStack() as stack:
        opened: list[JetStreamDriver] = []
        for _ in range(2):
            driver = JetStreamDriver(nats, "t")
            stack.callback(driver.store.close)
            opened.append(driver)
        yield opened[0], opened[1]


def watched(driver: JetStreamDriver, index: int) -> int:
    """Wait until a log has grown past an index."""
    operation = Watch(log=LOG, index=index)
    driver.store.watch(operation)
    driver.settle(1)
    assert operation.error is None
    return operation.next_index


def append_untold(nats: NatsServer, index: int, item: bytes) -> None:
    """Append an entry of one byte behind others of that size, and tell no store of it."""
    block = encode_block(
        count=1, kind=EntryKind.BYTES, received_at=0, position=index, body=pack_body([item])
    )

    async def publish() -> None:
        client = NatsClient()
        await client.connect(nats.url)
        data = encode(LogFrame(b"another", index, [block]))
        await JetStreamContext(client).publish(f"t-{LOG:016x}", data)
        await client.close()

    asyncio.run(publish())


# Stores --------------------------------------------------------------------------------------


def test_a_reader_sees_what_another_store_appends(
    drivers: tuple[JetStreamDriver, JetStreamDriver],
) -> None:
    one, other = drivers
    expected: list[bytes] = []
    for number in range(5):
        expected.append(b"%d" % number)
        one.write(append(expected[-1]))
        wait_until(lambda: texts(other) == expected)


def test_who_watches_is_told_of_each_growth(
    drivers: tuple[JetStreamDriver, JetStreamDriver],
) -> None:
    one, other = drivers
    pending = Watch(log=LOG, index=0)
    other.store.watch(pending)
    one.write(append(b"0", b"1"))
    other.settle(1)
    assert pending.next_index == 2
    assert watched(other, 1) == 2
    for number in range(2, 30):
        pending = Watch(log=LOG, index=number)
        other.store.watch(pending)
        one.write(append(b"%d" % number))
        other.settle(1)
        assert pending.next_index == number + 1
        assert texts(other)[-1] == b"%d" % number
    # Its own appends count, too.
    pending = Watch(log=LOG, index=30)
    other.store.watch(pending)
    other.store.submit(append(b"30"))
    other.settle(2)
    assert pending.next_index == 31


def test_growth_that_nobody_told_of_is_found(
    drivers: tuple[JetStreamDriver, JetStreamDriver], nats: NatsServer
) -> None:
    one, _ = drivers
    one.write(append(b"0"))
    pending = Watch(log=LOG, index=1)
    one.store.watch(pending)
    append_untold(nats, 1, b"1")
    one.settle(1)
    assert pending.next_index == 2
    assert texts(one) == [b"0", b"1"]


def test_growth_that_nobody_told_of_is_found_by_who_reads_now_and_then(
    drivers: tuple[JetStreamDriver, JetStreamDriver], nats: NatsServer
) -> None:
    one, other = drivers
    one.write(append(b"0"))
    expected = [b"0"]
    # One knows the log because it has written it, the other one because it has read it.
    assert texts(one) == texts(other) == expected
    for number in range(1, 4):
        expected.append(b"%d" % number)
        append_untold(nats, number, expected[-1])
        wait_until(lambda: texts(one) == expected)
        wait_until(lambda: texts(other) == expected)
    one.write(append(b"4"))
    wait_until(lambda: texts(other) == [*expected, b"4"])


def test_an_append_under_way_when_another_store_removes_the_stream_ends_at_once(
    drivers: tuple[JetStreamDriver, JetStreamDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = drivers
    log = log_id(one.write(PutStream(record=StreamRecord(name="a"))).record.id, 0)
    one.write(append(b"0", log=log))
    # What it does not know of, it does not remove.
    wait_until(lambda: other.read(FindStream(name="a")).record is not None)
    real = Server.publish

    async def publish(self: Server, name: str, data: bytes, *, after: int) -> int:
        if name == f"t-{log:016x}":
            monkeypatch.setattr(Server, "publish", real)
            await asyncio.to_thread(other.write, RemoveStream(name="a"))
            while await self.last_sequence(name) is not None:
                await asyncio.sleep(0.01)
        return await real(self, name, data, after=after)

    monkeypatch.setattr(Server, "publish", publish)
    error = one.write(append(b"1", log=log)).error
    assert error is not None
    assert error.code == "stream.removed"


def test_a_log_that_was_forgotten_for_others_is_read_anew(
    drivers: tuple[JetStreamDriver, JetStreamDriver],
) -> None:
    one, other = drivers
    other.write(append(b"0"))
    for log in range(1_000, 1_200):  # more than it keeps
        assert texts(other, log) == []
    one.write(append(b"1"))
    assert texts(one) == [b"0", b"1"]
    wait_until(lambda: texts(other) == [b"0", b"1"])


def test_watches_end_with_the_stream_and_with_the_store(
    drivers: tuple[JetStreamDriver, JetStreamDriver],
) -> None:
    one, other = drivers
    record = one.write(PutStream(record=StreamRecord(name="a"))).record
    log = log_id(record.id, 0)
    one.write(append(b"0", log=log))
    wait_until(lambda: texts(other, log) == [b"0"])
    removed, closed = Watch(log=log, index=1), Watch(log=log_id(9, 0))
    other.store.watch(removed)
    other.store.watch(closed)
    one.write(RemoveStream(name="a"))
    other.settle(1)
    assert removed.error is not None
    assert removed.error.code == "stream.removed"
    other.store.close()
    other.settle(1)
    assert closed.error is not None
    assert closed.error.code == "store.closed"


def test_what_is_no_entry_is_seen_by_the_other_store(
    drivers: tuple[JetStreamDriver, JetStreamDriver],
) -> None:
    one, other = drivers
    record = one.write(PutStream(record=StreamRecord(name="a"))).record
    log = log_id(record.id, 0)
    one.write_all([SaveIndex(key=KEY, index=5), PutRecord(key="k", value=b"1")])
    wait_until(lambda: other.read(GetRecords(keys=["k"])).values == [b"1"])
    assert other.read(FindStream(name="a")).record == record
    assert other.read(LoadIndex(key=KEY)).index == 5
    for number in range(10):
        one.write(append(b"%d" % number, log=log))
    wait_until(lambda: len(texts(other, log)) == 10)
    one.write(Trim(log=log, before=4))
    wait_until(lambda: texts(other, log) == [b"%d" % number for number in range(4, 10)])
    assert other.write(append(b"10", log=log)).first_index == 10
    one.write(RemoveStream(name="a"))
    wait_until(lambda: other.read(FindStream(name="a")).record is None)
    refused = other.write(append(b"never", log=log))
    assert refused.error is not None
    assert refused.error.code == "stream.removed"


def test_a_position_never_goes_back(drivers: tuple[JetStreamDriver, JetStreamDriver]) -> None:
    one, other = drivers
    one.write(SaveIndex(key=KEY, index=5))
    wait_until(lambda: other.read(LoadIndex(key=KEY)).index == 5)
    behind = other.write(SaveIndex(key=KEY, index=4))
    assert behind.error is not None
    assert behind.error.code == "store.fenced"
    assert other.write(SaveIndex(key=KEY, index=6)).error is None


@pytest.mark.parametrize("theirs", [b"2", b"2" * 1_000, None])
def test_what_follows_from_a_value_that_is_another_by_now_is_not_written(
    drivers: tuple[JetStreamDriver, JetStreamDriver], theirs: bytes | None
) -> None:
    one, other = drivers
    one.write(PutRecord(key="a", value=b"1"))
    wait_until(lambda: other.read(GetRecord(key="a")).value == b"1")
    version = other.read(GetRecord(key="a")).version
    assert version == one.read(GetRecord(key="a")).version
    assert other.read(ListRecords(prefix="a")).versions == [version]
    # At once, before the other has heard of it.
    one.store.submit(PutRecord(key="a", value=theirs))
    behind = PutRecords(records=[("a", b"3"), ("b", b"3")], seen=[("a", version)])
    one.settle(1)
    other.store.submit(behind)
    other.settle(1)
    assert behind.error is not None
    assert behind.error.code == "store.fenced"
    now = other.read(GetRecords(keys=["a", "b"]))
    assert now.values == [theirs, None]
    again = other.read(GetRecord(key="a"))
    assert (again.version == 0) == (theirs is None)
    other.write(PutRecords(records=[("a", b"3")], seen=[("a", again.version)]))
    # Of two in one group, the second follows from what was before the first.
    version = other.read(GetRecord(key="a")).version
    group = [PutRecords(records=[("a", b"%d" % n)], seen=[("a", version)]) for n in (4, 5)]
    for operation in group:
        other.store.submit(operation)
    other.settle(2)
    assert [operation.error is None for operation in group] == [True, False]


def test_an_append_that_follows_from_less_than_others_have_appended_is_refused(
    drivers: tuple[JetStreamDriver, JetStreamDriver],
) -> None:
    one, other = drivers
    other.write(append(b"0"))
    one.write(append(b"1"))
    wait_until(lambda: texts(other) == [b"0", b"1"])
    # The store knows of it; whoever appends does not.
    behind = append(b"2")
    behind.seen = 1
    other.store.submit(behind)
    other.settle(1)
    assert behind.error is not None
    assert behind.error.code == "store.fenced"
    assert texts(other) == [b"0", b"1"]
    for number in (2, 3):
        # What this store has appended itself since, is known.
        follows = append(b"%d" % number)
        follows.seen = 2
        assert other.write(follows).first_index == number


def test_two_under_load_lose_nothing_and_keep_their_order(
    drivers: tuple[JetStreamDriver, JetStreamDriver],
) -> None:
    appends: list[list[Append]] = [[], []]
    for number in range(300):
        for at, driver in enumerate(drivers):
            appends[at].append(append(b"%d %d" % (at, number)))
            driver.store.submit(appends[at][-1])
    for driver in drivers:
        driver.settle(300)
    wait_until(lambda: all(len(texts(driver)) == 600 for driver in drivers))
    found = texts(drivers[0])
    assert texts(drivers[1]) == found
    for at in range(2):
        assert [one.error for one in appends[at]] == [None] * 300
        indexes = [one.first_index for one in appends[at]]
        assert indexes == sorted(indexes)
        assert [found[index] for index in indexes] == [b"%d %d" % (at, n) for n in range(300)]


def test_writes_wait_for_a_server_that_comes_back(nats: NatsServer) -> None:
    driver = JetStreamDriver(nats, "t", patience_seconds=ANSWER_SECONDS)
    driver.write(append(b"0"))
    nats.kill()
    operations = [append(b"%d" % number) for number in range(1, 50)]
    for operation in operations:
        driver.store.submit(operation)
    driver.store.submit(PutRecord(key="a", value=b"1"))
    assert driver.store.health.writable
    nats.start()
    driver.collect(51)
    assert [operation.error for operation in operations] == [None] * 49
    assert driver.read(GetRecords(keys=["a"])).values == [b"1"]
    assert texts(driver) == [b"%d" % number for number in range(50)]
    assert [health.writable for health in driver.healths] == [True]
    driver.store.close()


# Nodes ---------------------------------------------------------------------------------------


async def consumed(client: Client, count: int) -> list[bytes]:
    """Process so many entries, and save the position behind them."""
    stream = await client.stream("s")
    found: list[bytes] = []
    # Closed here: else the position is saved some time after this returns.
    async with (
        asyncio.timeout(ANSWER_SECONDS),
        aclosing(stream.consume(client_id="c1")) as entries,
    ):
        async for entry in entries:
            found.append(entry.data)
            if len(found) == count:
                break
    return found


def test_any_node_serves_any_stream(nats: NatsServer, tmp_path: Path) -> None:
    async def run() -> None:
        async with (
            Node(on_jetstream(node_config(tmp_path / "a"), nats)) as a,
            Node(on_jetstream(node_config(tmp_path / "b"), nats)) as b,
            await connect_to(a) as near,
            await connect_to(b) as far,
        ):
            stream, same = await near.stream("s"), await far.stream("s")
            following = asyncio.create_task(consumed(far, 40))
            for number in range(20):
                assert await stream.push(b"%d" % (2 * number)) == 2 * number
                assert await same.push(b"%d" % (2 * number + 1)) == 2 * number + 1
            assert await following == [b"%d" % number for number in range(40)]
            await far.close()

            async def known() -> bool:
                return (await near.get_index("c1", "s") or 0) >= 39

            # The consumer goes on at the other node, where it was before.
            await eventually(known)
            await stream.push_many([b"%d" % number for number in range(40, 60)])
            rest = await consumed(near, 20)
            assert rest[0] in (b"39", b"40")

    asyncio.run(run())


async def pushed(client: Client, who: int, stop: asyncio.Event, confirmed: dict[int, bytes]) -> int:
    """Push until told to stop; what is refused is pushed again. Returns how often it was."""
    stream = await client.stream("s")
    refused = number = 0
    while not stop.is_set():
        data = b"%d %d" % (who, number)
        try:
            index = await stream.push(data)
        except RillnodeError as error:
            if not error.retryable:
                raise
            refused += 1
            await asyncio.sleep(0.05)
            continue
        assert index not in confirmed
        confirmed[index] = data
        number += 1
    return refused


@pytest.mark.long
def test_servers_and_nodes_that_are_killed_lose_nothing_confirmed(tmp_path: Path) -> None:
    """Each server in turn, and one of two nodes, while both take pushes."""
    cluster = NatsCluster(tmp_path / "nats")
    cluster.start()
    confirmed: dict[int, bytes] = {}

    async def kill_in_turn() -> None:
        for server in cluster.servers:
            before = len(confirmed)
            await asyncio.to_thread(server.kill)
            async with asyncio.timeout(120.0):
                while len(confirmed) < before + 100:
                    await asyncio.sleep(0.05)
            await asyncio.to_thread(server.start)
            # It must have what it has missed before the next one goes.
            await asyncio.sleep(10.0)

    async def run() -> None:
        configs = [
            on_jetstream(node_config(tmp_path / name), *cluster.servers, replicas=3)
            for name in "ab"
        ]
        async with Node(configs[0]) as a, await connect_to(a) as near:
            stop, stop_far = asyncio.Event(), asyncio.Event()
            pushing = asyncio.create_task(pushed(near, 0, stop, confirmed))
            b = Node(configs[1])
            await b.start()
            far = await connect_to(b)
            others = asyncio.create_task(pushed(far, 1, stop_far, confirmed))
            await kill_in_turn()
            stop_far.set()
            refused = await others
            await far.close()
            await b.stop()
            before = len(confirmed)
            async with asyncio.timeout(60.0):
                while len(confirmed) < before + 100:
                    await asyncio.sleep(0.05)
            stop.set()
            refused += await pushing
            stream = await near.stream("s")
            found: dict[int, bytes] = {}
            while entries := await stream.pull(len(found), 1_000):
                found |= {entry.index: entry.data for entry in entries}
            assert list(found) == list(range(len(found)))
            assert {index: found[index] for index in confirmed} == confirmed
            assert len(confirmed) > 400
            # What was refused may be there all the same, and then twice: at most so often.
            assert len(found) - len(set(found.values())) <= refused

    try:
        asyncio.run(run())
    finally:
        cluster.kill()
