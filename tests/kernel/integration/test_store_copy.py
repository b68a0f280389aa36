"""A store moved from RocksDB to JetStream and back: nothing is lost, whenever it is cut off."""

import asyncio
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from command_line import RunningNode, begun, call, printed
from forked import DEVNULL
from nats_support import SHARDS, NatsServer, needs_nats, running_nats
from rillnode.actors.core.threads import SYSTEM_THREADS
from rillnode.actors.log import (
    EVERY_ENTRY,
    Append,
    Complete,
    FindStream,
    GetRecord,
    GetRecords,
    ListKeys,
    ListRecords,
    ListStreams,
    LoadIndex,
    PutRecord,
    PutStream,
    RemoveStream,
    SavedIndexKey,
    SaveIndex,
    StreamRecord,
    Trim,
    log_id,
)
from rillnode.actors.log.copying import OnBytes, copy_store
from rillnode.actors.log.records import beside_log
from rillnode.actors.log.rocks.copy import RocksCopy
from rillnode.actors.log.shared.copying import OpenStore, SharedSource, SharedTarget
from rillnode.actors.log.shared.store import SharedLogStore
from rillnode.codecs.entries import NewEntry, Run
from rillnode.codecs.errors import StoreError
from rillnode.codecs.keyed import encode_headers
from rillnode.node.jetstream.config import JetStreamStore
from rillnode.node.stores import shared_store
from rillnode.node.testing.contract.stores.driver import StoreDriver, append
from shared_support import JetStreamDriver
from store_support import CutError, RocksDriver, cut_after

pytestmark = needs_nats

KEY = SavedIndexKey("s", 0, "c")
PARTITIONS = 4

OVERLAY = "ab" * 32
TOPIC = f"nextgraph/{OVERLAY}/{'cd' * 32}"
HELD = f"nextgraph/held/{OVERLAY}"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    with running_nats(tmp_path / "nats") as server:
        yield server


@pytest.fixture
def jetstream(server: NatsServer, tmp_path: Path) -> Iterator[JetStreamDriver]:
    """Closed; its logs are made."""
    driver = JetStreamDriver(server, "t", tmp_path / "views", shards=SHARDS)
    driver.store.close()
    yield driver
    driver.end()


@pytest.fixture
def rocks(tmp_path: Path) -> Iterator[RocksDriver]:
    driver = RocksDriver(tmp_path / "rocks")
    fill(driver)
    driver.store.close()
    yield driver
    driver.store.close()


def keyed(data: bytes, key: bytes, headers: dict[str, bytes], *, log: int) -> Append:
    run = Run()
    run.add(NewEntry(data, key, encode_headers(headers)))
    body, flags = run.pack()
    return Append(log=log, flags=flags, count=1, body=body, received_at=20)


def logs_of(driver: StoreDriver) -> list[int]:
    """The logs of the stream; in stores of several shards ids are given otherwise."""
    record = driver.read(FindStream(name="s")).record
    assert record is not None
    return [log_id(record.id, partition) for partition in range(PARTITIONS)]


def fill(driver: StoreDriver) -> None:
    """A store with all that there is: trimmed logs, an emptied one, keys, large values."""
    driver.write(PutStream(record=StreamRecord(name="gone")))
    driver.write(RemoveStream(name="gone"))
    driver.write(PutStream(record=StreamRecord(name="s", partitions=PARTITIONS, owner="o")))
    for number in range(9):
        driver.write(PutStream(record=StreamRecord(name=f"stream {number}")))
    driver.write(PutStream(record=StreamRecord(name=TOPIC)))
    logs = logs_of(driver)
    for number in range(20):
        operation = append(b"%d" % number, b"%d." % number, log=logs[0], at=number)
        operation.records = [(f"{beside_log(logs[0])}chain {number % 3}", b"%d" % number)]
        operation.keys = [(b"k%d" % number, 0), (b"k", 1), (b"all", EVERY_ENTRY)]
        operation.producer, operation.sequence = b"p%d" % (number // 10), number * 2
        driver.write(operation)
    driver.write(keyed(b"keyed", b"k", {"sender": b"\xff"}, log=logs[0]))
    driver.write_all([append(b"%d" % number * 100_000, log=logs[1]) for number in range(20)])
    driver.write_all([append(b"%d" % number, log=logs[2]) for number in range(20)])
    driver.write(Trim(log=logs[0], before=13))
    driver.write(Trim(log=logs[2], before=20))
    driver.write(SaveIndex(key=KEY, index=7))
    driver.write(PutRecord(key="large", value=b"." * 900_000))
    driver.write(PutRecord(key="small", value=b"1"))
    driver.write(PutRecord(key=HELD, value=b"2"))


def contents(driver: StoreDriver) -> list[object]:
    """All that a user of the store can see."""
    listed = driver.read(ListStreams())
    found: list[object] = [msgspec.structs.replace(one, id=0) for one in listed.records]
    found.append(listed.extents)
    for log in logs_of(driver):
        found.append(driver.entries(log))
        found.append(driver.read(ListKeys(log=log)).pairs)
    found.append(driver.read(GetRecords(keys=["large", "small", "none"])).values)
    found.append(driver.read(GetRecord(key=HELD)).value)
    found.append(driver.read(LoadIndex(key=KEY)).index)
    beside = driver.read(ListRecords(prefix=beside_log(logs_of(driver)[0]))).records
    found += [(name.rpartition("/")[2], value) for name, value in beside]
    return found


def numbered(driver: StoreDriver, producer: bytes, sequence: int) -> Append:
    """What a producer of `fill` sends to the first log."""
    operation = append(b"a", b"b", log=logs_of(driver)[0])
    operation.producer, operation.sequence = producer, sequence
    return driver.write(operation)


def seen(driver: StoreDriver) -> list[object]:
    driver.store.open()
    found = contents(driver)
    driver.store.close()
    return found


def maker(jetstream: JetStreamDriver, views: Path) -> OpenStore:
    server = jetstream.server
    table = JetStreamStore(
        servers=(server.url,),
        prefix="t",
        replicas=1,
        shards=SHARDS,
        sync="interval",
    )

    def make(complete: Complete) -> SharedLogStore:
        return shared_store(
            table, views, entropy=os.urandom, now_ms=lambda: 0, threads=SYSTEM_THREADS,
            complete=complete, on_health=lambda health: None, copying=True,
        )  # fmt: skip

    return make


def copied(
    rocks: Path,
    jetstream: JetStreamDriver,
    *,
    back: bool = False,
    final: bool = True,
    on_bytes: OnBytes = lambda size: None,
) -> None:
    async def there() -> None:
        source = RocksCopy.source(rocks)
        try:
            target = await SharedTarget.open(maker(jetstream, jetstream.directory))
            try:
                await copy_store(source, target, final=final, on_bytes=on_bytes)
            finally:
                await target.close()
        finally:
            source.close()

    async def back_again() -> None:
        views = rocks.with_suffix(".views")
        target = RocksCopy.target(rocks)
        try:
            source = await SharedSource.open(maker(jetstream, views), views)
            try:
                await copy_store(source, target, final=final, on_bytes=on_bytes)
            finally:
                await source.close()
        finally:
            target.close()

    asyncio.run(back_again() if back else there())


def test_a_store_is_the_same_there_and_back_again(
    rocks: RocksDriver, jetstream: JetStreamDriver, tmp_path: Path
) -> None:
    copied(rocks.path, jetstream)
    expected = seen(rocks)
    assert seen(jetstream) == expected
    copied(tmp_path / "back", jetstream, back=True)
    back = RocksDriver(tmp_path / "back")
    assert contents(back) == expected
    doubles = [numbered(back, b"p0", 8), numbered(back, b"p1", 38), numbered(back, b"p1", 20)]
    assert [(one.is_double, one.first_index) for one in doubles] == [(True, n) for n in (8, 38, 20)]
    ends = [back.write(append(b"next", log=log)).first_index for log in logs_of(back)]
    assert ends == [41, 20, 20, 0]
    listed = back.read(ListStreams()).records
    created = back.write(PutStream(record=StreamRecord(name="later"))).record
    assert created.id > max(one.id for one in listed)
    back.store.close()


def test_the_copy_goes_on_where_the_source_has_ended(
    rocks: RocksDriver, jetstream: JetStreamDriver
) -> None:
    copied(rocks.path, jetstream)
    jetstream.store.open()
    logs = logs_of(jetstream)
    assert numbered(jetstream, b"p1", 38).is_double
    assert [jetstream.write(append(b"n", log=log)).first_index for log in logs] == [41, 20, 20, 0]
    assert jetstream.write(Trim(log=logs[0], before=41)).extent.first_index == 41
    assert jetstream.write(PutStream(record=StreamRecord(name="later"))).error is None
    jetstream.reopen()
    assert [entry.index for entry in jetstream.entries(logs[0])] == [41]
    assert [entry.index for entry in jetstream.entries(logs[2])] == [20]


@pytest.mark.parametrize("back", [False, True])
def test_an_interrupted_copy_is_gone_on_with(
    rocks: RocksDriver, jetstream: JetStreamDriver, tmp_path: Path, back: bool
) -> None:
    path = rocks.path
    if back:
        copied(path, jetstream)
        path = tmp_path / "back"
    expected = seen(rocks)
    steps = 0
    while True:
        steps = 2 * steps + 7
        try:
            copied(path, jetstream, back=back, on_bytes=cut_after(steps))
            break
        except CutError:
            with pytest.raises(StoreError, match="not finished"):
                jetstream.store.open() if not back else RocksDriver(path)
    assert steps > 20
    found: StoreDriver = jetstream
    if back:
        found = RocksDriver(path)
        found.store.close()
    assert seen(found) == expected


def test_a_later_run_takes_over_what_has_changed(
    rocks: RocksDriver, jetstream: JetStreamDriver
) -> None:
    copied(rocks.path, jetstream, final=False)
    rocks.store.open()
    logs = logs_of(rocks)
    first = rocks.read(FindStream(name="stream 2")).record
    assert first is not None
    rocks.write(append(b"new", log=logs[0]))
    rocks.write(append(b"never copied", log=logs[1]))
    rocks.write(append(b"kept", log=logs[1]))
    rocks.write(Trim(log=logs[1], before=21))
    rocks.write(append(b"never copied either", log=logs[3]))
    rocks.write(Trim(log=logs[3], before=1))
    rocks.write(PutRecord(key="large", value=b"," * 900_000))
    rocks.write(PutRecord(key="small", value=None))
    rocks.write(PutRecord(key=f"{beside_log(logs[0])}chain 1", value=None))
    rocks.write(RemoveStream(name="stream 1"))
    # Another stream of the same name.
    rocks.write(append(b"of the first", log=log_id(first.id, 0)))
    rocks.write(RemoveStream(name="stream 2"))
    rocks.write(PutStream(record=StreamRecord(name="stream 2", owner="other")))
    rocks.write(PutStream(record=StreamRecord(name="stream 99")))
    rocks.store.close()
    copied(rocks.path, jetstream)
    assert seen(jetstream) == seen(rocks)


def test_a_server_that_is_killed_meanwhile_is_waited_for(
    rocks: RocksDriver, jetstream: JetStreamDriver, server: NatsServer
) -> None:
    steps = 0

    def on_bytes(size: int) -> None:
        nonlocal steps
        steps += 1
        if steps % 9 == 0:
            server.kill()
            server.start()

    copied(rocks.path, jetstream, on_bytes=on_bytes)
    assert steps > 20
    assert seen(jetstream) == seen(rocks)


# The command -------------------------------------------------------------------------------


def configured(home: Path, server: NatsServer) -> Path:
    """The configuration of a node's second life, beside that of its first one."""
    table = (
        f'[store]\nengine = "jetstream"\nservers = ["{server.url}"]\n'
        f'monitors = ["{server.monitor}"]\nreplicas = 1\nshards = {SHARDS}\n'
    )
    file = home / "three.toml"
    file.write_text((home / "node.toml").read_text() + table)
    return file


def pushed(node: RunningNode, numbers: range) -> None:
    text = b"".join(b"%d\n" % number for number in numbers)
    assert call("stream", "push", "numbers", *node.options, "-q", stdin=text).returncode == 0


def test_a_node_starts_only_on_servers_that_sync_and_a_copy_runs_on_any(tmp_path: Path) -> None:
    server = NatsServer(tmp_path / "nats", sync='"2m"')
    server.start()
    running: RunningNode | None = None
    try:
        home = tmp_path / "edge"
        printed("init", home)
        three = configured(home, server)
        free = ("--set", "noise.listen=127.0.0.1:0", "--set", "http.enabled=false")
        refused = printed("run", "-c", three, *free, code=1)
        assert "[store.unsynced]" in refused
        assert "syncs every 120 seconds" in refused
        assert 'sync = "interval"' in refused
        RocksDriver(home / "data" / "store").store.close()
        printed("store", "copy", "--from", "rocksdb", "--to", "jetstream", "-c", three, "--final")
        back = (*("--from", "jetstream", "--to", "rocksdb"), "--data-dir", tmp_path / "back")
        printed("store", "copy", *back, "-c", three, "--final")
        looked = call("doctor", "-c", three)
        found = [json.loads(line) for line in looked.stdout.splitlines()]
        (sync,) = [one for one in found if one["check"] == "store sync"]
        assert (looked.returncode, sync["check"], sync["state"]) == (1, "store sync", "fail")
        three.write_text(three.read_text().replace("[store]\n", '[store]\nsync = "interval"\n'))
        running = RunningNode(three)
        running.stop()
        assert "confirmed may be lost" in three.with_suffix(".log").read_text()
    finally:
        if running is not None:
            running.kill()
        server.kill()


@pytest.mark.long
def test_a_node_moves_with_a_short_stop(server: NatsServer, tmp_path: Path) -> None:
    home = tmp_path / "edge"
    printed("init", home)
    config, three = home / "node.toml", configured(home, server)
    copy: list[str | Path] = ["store", "copy", "--from", "rocksdb", "--to", "jetstream"]
    copy += ["-c", three]
    running = RunningNode(config)
    try:
        printed("stream", "create", "numbers", *running.options)
        pushed(running, range(1_000))
        first = json.loads(printed(*copy, "--node", running.options[-1]))
        assert (first["stream"], first["next_index"]) == ("numbers", 1_000)
        pushed(running, range(1_000, 1_500))
        assert "stop it" in printed(*copy, "--node", running.options[-1], "--final", code=1)
        running.stop()
    finally:
        running.kill()
    refused = printed("run", "-c", three, "--set", "http.enabled=false", code=1)
    assert "not finished" in refused
    # The last run is killed somewhere, and repeated unless it was through.
    cut = begun(*copy, "--final", stderr=DEVNULL)
    time.sleep(0.8)
    cut.kill()
    cut.wait()
    last = call(*copy, "--final")
    assert not last.returncode or b"holds something already" in last.stderr
    running = RunningNode(three)
    try:
        found = printed("stream", "pull", "numbers", "--count", "10000", *running.options, "--json")
        assert [json.loads(line)["text"] for line in found.splitlines()] == [
            str(number) for number in range(1_500)
        ]
        pushed(running, range(1_500, 1_510))
        running.stop()
    finally:
        running.kill()
