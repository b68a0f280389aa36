"""A JetStream stream that does not answer, as one without a leader: all others go on."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import pytest
from nats.aio.client import Client
from nats.errors import Error
from nats.js import JetStreamContext
from nats.js.api import AccountInfo, Placement, StreamConfig, StreamInfo
from nats.js.errors import ServiceUnavailableError

from nats_support import JetStreamDriver, NatsCluster, NatsServer, needs_nats
from rillnode.actors.storage import (
    Append,
    FindStream,
    ListStreams,
    LoadIndex,
    Operation,
    PutRecord,
    PutStream,
    Read,
    RemoveStream,
    SavedIndexKey,
    SaveIndex,
    StreamRecord,
    log_id,
)
from rillnode.actors.storage.jetstream.failures import UnansweredError
from rillnode.actors.storage.jetstream.following import Following
from rillnode.actors.storage.jetstream.server import Server
from rillnode.actors.storage.watch import Watch
from store_support import ANSWER_SECONDS, append, texts, wait_until

pytestmark = needs_nats

NEVER_SECONDS = 600.0
"""What waits for so long makes a test fail."""

BAD, GOOD = log_id(1, 0), log_id(2, 0)

Open = Callable[..., JetStreamDriver]


@pytest.fixture
def opened(nats: NatsServer) -> Iterator[Open]:
    """Opens stores on the same logs, which wait for ever, and do not look again once they shut."""
    with ExitStack() as stack:

        def open_store(*, patience_seconds: float = NEVER_SECONDS) -> JetStreamDriver:
            driver = JetStreamDriver(
                nats, "t",
                patience_seconds=patience_seconds,
                repair_seconds_min=NEVER_SECONDS, repair_seconds_max=NEVER_SECONDS,
            )  # fmt: skip
            stack.callback(driver.store.close)
            return driver

        with ExitStack() as first:
            driver = JetStreamDriver(nats, "t")
            first.callback(driver.store.close)
            for name in ("bad", "good"):
                assert driver.write(PutStream(record=StreamRecord(name=name))).error is None
            for log in (BAD, GOOD):
                assert driver.write(append(b"0", log=log)).error is None
        yield open_store


def stream_of(log: int) -> str:
    return f"t-{log:016x}"


def silence(patch: pytest.MonkeyPatch, name: str) -> list[bool]:
    """Let nobody answer for a stream, as long as the list that is returned is not empty."""
    silent = [True]

    def quiet(method: str) -> None:
        real = getattr(Server, method)

        async def asked(self: Server, *arguments: object, **named: object) -> object:
            if silent and name in arguments:
                await asyncio.sleep(0.01)
                raise UnansweredError("no leader")
            return await real(self, *arguments, **named)

        patch.setattr(Server, method, asked)

    for method in ("publish", "last_sequence", "get", "make_stream", "purge", "drop"):
        quiet(method)
    return silent


def submitted(driver: JetStreamDriver, log: int) -> Append:
    operation = append(b"1", log=log)
    driver.store.submit(operation)
    return operation


def write(driver: JetStreamDriver, *operations: Append | PutRecord | SaveIndex) -> None:
    """Write one after the other, each without error, whatever else is under way."""
    for operation in operations:
        driver.store.submit(operation)
        wait_until(partial(is_complete, driver, operation))
        assert operation.error is None


def is_complete(driver: JetStreamDriver, operation: Operation) -> bool:
    return operation in collected(driver)


def collected(driver: JetStreamDriver) -> list[Operation]:
    while not driver.told.empty():
        driver.collect(len(driver.completed) + 1)
    return [*driver.completed]


def test_writes_to_other_logs_do_not_wait(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = opened()
    told = len(driver.healths)
    silence(monkeypatch, stream_of(BAD))
    waiting = submitted(driver, BAD)
    write(driver, *(append(b"%d" % number, log=GOOD) for number in range(20)))
    write(
        driver,
        PutRecord(key="a", value=b"1"),
        SaveIndex(key=SavedIndexKey("good", 0, "c"), index=1),
    )
    assert len(driver.healths) == told
    assert waiting not in collected(driver)


def test_logs_do_not_wait_for_the_journal(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = opened()
    silence(monkeypatch, "t-journal")
    waiting = PutRecord(key="a", value=b"1")
    driver.store.submit(waiting)
    write(driver, *(append(b"%d" % number, log=GOOD) for number in range(20)))
    assert driver.store.health.writable
    assert waiting not in collected(driver)


def test_what_waits_too_long_is_refused_alone_and_taken_once_there_is_an_answer(
    opened: Open, nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        driver = JetStreamDriver(nats, "t", patience_seconds=0.2, settle_seconds_max=0.5)
        stack.callback(driver.store.close)
        opened(patience_seconds=0.2)
        silent = silence(monkeypatch, stream_of(BAD))
        operations = [submitted(driver, BAD) for _ in range(50)]
        wait_until(lambda: all(one in collected(driver) for one in operations))
        for operation in operations:
            assert operation.error is not None
            assert (operation.error.code, operation.error.retryable) == ("store.unreachable", True)
        write(driver, append(b"1", log=GOOD))
        assert driver.store.health.writable
        silent.clear()
        write(driver, append(b"2", log=BAD))
        assert texts(driver, BAD)[-1] == b"2"


def test_a_stream_is_removed_while_another_does_not_answer(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = opened()
    silence(monkeypatch, stream_of(BAD))
    waiting = submitted(driver, BAD)
    before = submitted(driver, GOOD)
    removal, behind = RemoveStream(name="good"), append(b"2", log=GOOD)
    again = PutStream(record=StreamRecord(name="good"))
    for operation in (removal, behind, again):
        driver.store.submit(operation)
    wait_until(lambda: again in collected(driver))
    assert (before.error, removal.error, again.error) == (None, None, None)
    assert behind.error is not None
    assert behind.error.code == "stream.removed"
    assert again.record.id == 3
    assert waiting not in collected(driver)


def test_a_removal_waits_for_what_was_submitted_before(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = JetStreamDriver(opened().server, "t", patience_seconds=NEVER_SECONDS)
    try:
        silent = silence(monkeypatch, stream_of(BAD))
        before, removal = submitted(driver, BAD), RemoveStream(name="bad")
        driver.store.submit(removal)
        write(driver, append(b"1", log=GOOD))
        assert removal not in collected(driver)
        silent.clear()
        wait_until(lambda: removal in collected(driver))
        assert (before.error, before.first_index, removal.error) == (None, 1, None)
    finally:
        driver.store.close()


def untold(following: Following, log: int, sequence: int) -> None:
    """Nobody hears of it."""


@pytest.mark.usefixtures("impatient")
def test_growth_of_other_logs_is_found(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    # Nobody is told of what is appended.
    monkeypatch.setattr(Following, "tell", untold)
    driver, other = opened(), opened()
    watches = [Watch(log=log, index=1) for log in (BAD, GOOD)]
    for watch in watches:
        driver.store.watch(watch)
    assert texts(driver, GOOD) == [b"0"]
    silence(monkeypatch, stream_of(BAD))
    write(other, append(b"1", log=GOOD))
    wait_until(lambda: watches[1] in collected(driver))
    assert watches[1].next_index == 2


def test_reads_of_other_logs_do_not_wait(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = opened()
    silence(monkeypatch, stream_of(BAD))
    for _ in range(100):
        assert not driver.store.read(Read(log=BAD))
    for _ in range(100):
        assert not driver.store.read(FindStream(name="bad"))
    found = Read(log=GOOD)
    driver.store.read(found)
    wait_until(lambda: found in collected(driver))
    assert (found.error, found.extent.next_index) == (None, 1)


def test_a_stream_is_found_once_its_log_answers(
    nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = JetStreamDriver(nats, "t", patience_seconds=NEVER_SECONDS)
    try:
        driver.write(PutStream(record=StreamRecord(name="bad")))
        silent = silence(monkeypatch, stream_of(BAD))
        lookups: list[FindStream | ListStreams] = [FindStream(name="bad"), ListStreams()]
        for lookup in lookups:
            driver.store.read(lookup)
        driver.read(LoadIndex(key=SavedIndexKey("bad", 0, "c")))
        assert not any(lookup in collected(driver) for lookup in lookups)
        silent.clear()
        wait_until(lambda: all(lookup in collected(driver) for lookup in lookups))
        assert [lookup.error for lookup in lookups] == [None, None]
    finally:
        driver.store.close()


def test_a_stream_that_has_not_told_of_itself_is_asked_again(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As nats-server leaves it, while another node is just making the stream."""
    driver, real, unanswered = opened(), JetStreamContext.stream_info, [True]

    async def stream_info(self: JetStreamContext, name: str) -> StreamInfo:
        if unanswered:
            unanswered.clear()
            await asyncio.sleep(NEVER_SECONDS)
        return await real(self, name)

    monkeypatch.setattr(JetStreamContext, "stream_info", stream_info)
    driver.store.read(found := FindStream(name="good"))
    wait_until(partial(is_complete, driver, found))
    assert not unanswered
    assert found.error is None
    assert found.extents[0].next_index == 1


def test_a_store_opens_while_a_log_with_records_does_not_answer(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_records = append(b"1", log=BAD)
    with_records.records = [("a", b"1")]
    write(opened(), with_records)
    silence(monkeypatch, stream_of(BAD))
    write(opened(), append(b"1", log=GOOD))


@pytest.mark.usefixtures("impatient")
def test_a_store_is_not_writable_while_no_server_answers_for_jetstream(
    nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where most of the servers are lost: connections stand, and nothing has a leader."""
    driver = JetStreamDriver(nats, "t", patience_seconds=0.3)
    try:
        driver.write(append(b"0", log=GOOD))
        silent = silence(monkeypatch, stream_of(GOOD))
        real = JetStreamContext.account_info

        async def account_info(self: JetStreamContext) -> AccountInfo:
            if silent:
                raise ServiceUnavailableError
            return await real(self)

        monkeypatch.setattr(JetStreamContext, "account_info", account_info)
        waiting = submitted(driver, GOOD)
        driver.wait_health(writable=False)
        refused = submitted(driver, GOOD)
        assert refused.error is not None
        assert (refused.error.code, refused.error.retryable) == ("store.unreachable", True)
        silent.clear()
        driver.wait_health(writable=True)
        wait_until(partial(is_complete, driver, waiting))
        write(driver, append(b"2", log=GOOD))
    finally:
        driver.store.close()


# A cluster -------------------------------------------------------------------------------------


@pytest.mark.long
def test_logs_go_on_while_the_server_of_another_is_gone(tmp_path: Path) -> None:
    """Each stream has one replica, so that one server's end leaves its logs without leader."""
    cluster = NatsCluster(tmp_path)
    with ExitStack() as stack:
        stack.callback(cluster.kill)
        cluster.start()
        logs = [log_id(number, 0) for number in range(1, 7)]
        bad, good = logs[:2], logs[2:]
        places = {stream_of(log): "n2" for log in bad}
        places |= {stream_of(log): f"n{number % 2}" for number, log in enumerate(good)}
        asyncio.run(place(cluster.servers[0].url, {"t-journal": "n1"} | places))
        driver = JetStreamDriver(
            cluster.servers[0],
            "t",
            cluster=cluster.servers,
            patience_seconds=NEVER_SECONDS,
            answer_seconds_max=1,
        )
        stack.callback(driver.store.close)
        for log in logs:
            assert driver.write(append(b"0", log=log)).error is None
        told = len(driver.healths)
        cluster.servers[2].kill()
        waiting = [submitted(driver, log) for log in bad]
        for round_ in range(100):
            write(driver, *(append(b"%d" % round_, log=log) for log in good))
        assert not any(one in collected(driver) for one in waiting)
        assert len(driver.healths) == told
        cluster.servers[2].start()
        wait_until(lambda: all(one in collected(driver) for one in waiting))
        assert [one.error for one in waiting] == [None] * len(waiting)
        for log in bad:
            assert texts(driver, log) == [b"0", b"1"]


async def place(url: str, places: dict[str, str]) -> None:
    """Make streams, each on one server, once the servers have elected who does that."""
    client = Client()
    await client.connect(url)
    for name, tag in places.items():
        config = StreamConfig(
            name=name, subjects=[name], allow_direct=True, placement=Placement(tags=[tag])
        )
        async with asyncio.timeout(ANSWER_SECONDS):
            while True:
                with suppress(Error):
                    await JetStreamContext(client).add_stream(config)  # pyright: ignore[reportUnknownMemberType]
                    break
                await asyncio.sleep(0.2)
    await client.close()
