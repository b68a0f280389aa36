"""The shared log on a PostgreSQL server that fails, or that somebody has set up wrong."""

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

import pytest

from postgres.server import (
    PASSWORD,
    PostgresServer,
    client_of,
    needs_postgres,
    options_of,
    running_postgres,
)
from rillnode.actors.log.shared.port import LogLost
from rillnode.actors.postgres.servers import PostgresOptions
from rillnode.codecs.errors import StoreError
from rillnode.node.testing.contract.shared_logs import (
    ANSWER_SECONDS,
    Client,
    data_of,
    opened,
    until,
)

pytestmark = [pytest.mark.long, needs_postgres]


END_CONNECTIONS: Final = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'rillnode'"
)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        yield server


@pytest.fixture
def options(server: PostgresServer, request: pytest.FixtureRequest) -> PostgresOptions:
    """Of a log that only this test has."""
    return options_of(server, f"log_{abs(hash(request.node.name))}")


async def ask(server: PostgresServer, query: str) -> list[Any]:
    return await asyncio.to_thread(server.query, query)


async def refusal(options: PostgresOptions) -> StoreError:
    """What a client that opens is answered."""
    with pytest.raises(StoreError) as caught:
        async with opened(client_of(options)):
            pass
    assert not caught.value.retryable
    return caught.value


class Writer:
    """Appends numbered frames, some at a time, until it is stopped; what is lost is not repeated.

    Attributes:
        stored: confirmed frames by sequence, in the order of the appends.
        lost: frames of which that is not known.
    """

    def __init__(self, client: Client, name: str) -> None:
        self.stored: dict[int, bytes] = {}
        self.lost: set[bytes] = set()
        self._client = client
        self._name = name

    async def run(self, stop: asyncio.Event) -> None:
        number = 0
        while not stop.is_set():
            frames = [f"{self._name} {number + more}".encode() for more in range(8)]
            number += len(frames)
            said = await asyncio.gather(
                *[self._client.log.append(0, data) for data in frames], return_exceptions=True
            )
            for data, answer in zip(frames, said, strict=True):
                if isinstance(answer, int):
                    self.stored[answer] = data
                else:
                    assert isinstance(answer, LogLost)
                    self.lost.add(data)
            if isinstance(said[-1], LogLost):
                await asyncio.sleep(0.05)


@asynccontextmanager
async def writing(options: PostgresOptions) -> AsyncGenerator[list[Writer]]:
    """Four clients that append to one shard within the block; then all is compared."""
    clients = [Client(*client_of(options)) for _ in range(4)]
    await asyncio.gather(*[client.open(2) for client in clients])
    writers = [Writer(client, str(name)) for name, client in enumerate(clients)]
    stop = asyncio.Event()
    tasks = [asyncio.create_task(writer.run(stop)) for writer in writers]
    try:
        yield writers
        stop.set()
        async with asyncio.timeout(ANSWER_SECONDS):
            await asyncio.gather(*tasks)
        end = await until(lambda: end_of(clients[0]), lambda end: end > 0)
        frames = await clients[1].read(0, 0, end)
        # Dense, and each at most once.
        assert [frame.sequence for frame in frames] == list(range(1, len(frames) + 1))
        assert len(set(data_of(frames))) == len(frames)
        found = dict(frames)
        confirmed = {data for writer in writers for data in writer.stored.values()}
        lost = {data for writer in writers for data in writer.lost}
        assert confirmed <= set(data_of(frames)) <= confirmed | lost
        for writer in writers:
            assert writer.stored
            assert list(writer.stored) == sorted(writer.stored)
            assert all(found[sequence] == data for sequence, data in writer.stored.items())
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*[client.log.close() for client in clients])


async def end_of(client: Client) -> int:
    """The end of the shard, or 0 where nobody answers."""
    with suppress(LogLost):
        return (await client.log.span(0)).last
    return 0


def said_down(client: Client) -> Callable[[], Awaitable[str]]:
    """Asks why a client's log is down, if it is."""

    async def ask() -> str:
        return str(client.log.describe()["reason"])

    return ask


async def grown(writers: list[Writer], count: int = 50) -> None:
    """Wait until each has that much more confirmed."""
    wanted = [len(writer.stored) + count for writer in writers]
    async with asyncio.timeout(ANSWER_SECONDS):
        while any(len(one.stored) < count for one, count in zip(writers, wanted, strict=True)):
            await asyncio.sleep(0.01)


async def test_no_reader_sees_a_sequence_before_those_below_it(options: PostgresOptions) -> None:
    async with writing(options) as writers, opened(client_of(options)) as reader:
        seen = 0
        async with asyncio.timeout(ANSWER_SECONDS):
            while any(len(writer.stored) < 500 for writer in writers):
                for frame in await reader.log.read(0, seen, 100_000):
                    seen += 1
                    assert frame.sequence == seen


async def test_a_server_is_killed_and_started_again(
    server: PostgresServer, options: PostgresOptions
) -> None:
    async with writing(options) as writers:
        for _ in range(4):
            await grown(writers)
            await asyncio.to_thread(server.kill)
            await asyncio.sleep(0.3)
            await asyncio.to_thread(server.start)
        await grown(writers)
        assert any(writer.lost for writer in writers)


async def test_a_server_sleeps_for_longer_than_its_clients_wait(
    server: PostgresServer, options: PostgresOptions
) -> None:
    async with writing(options) as writers:
        for _ in range(3):
            await grown(writers)
            with server.paused():
                await asyncio.sleep(2.5)
        await grown(writers)
        assert all(writer.lost for writer in writers)


async def test_connections_are_ended_by_an_administrator(
    server: PostgresServer, options: PostgresOptions
) -> None:
    async with writing(options) as writers:
        for _ in range(5):
            await grown(writers)
            assert await ask(server, END_CONNECTIONS)
        await grown(writers)


async def test_a_wait_for_a_standby_that_is_cancelled_confirms_nothing(
    server: PostgresServer, options: PostgresOptions
) -> None:
    cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    async with opened(client_of(replace(options, answer_seconds_max=30.0))) as client:
        await ask(server, "ALTER SYSTEM SET synchronous_standby_names = 'absent'")
        await ask(server, "SELECT pg_reload_conf()")
        try:
            # It takes a while to be in force.
            while True:
                append = asyncio.create_task(client.log.append(0, b"x"))
                done, _ = await asyncio.wait([append], timeout=0.5)
                if not done:
                    break
            await until(lambda: ask(server, cancel), bool)
            with pytest.raises(LogLost):
                await append
        finally:
            await ask(server, "ALTER SYSTEM RESET synchronous_standby_names")
            await ask(server, "SELECT pg_reload_conf()")
        await until(lambda: client.append(0, b"y"), bool)


async def test_a_table_that_was_dropped_is_missed(
    server: PostgresServer, options: PostgresOptions
) -> None:
    async with opened(client_of(options)) as client:
        await client.append(0, b"x")
        await ask(server, f"DROP TABLE {options.schema}.frames")
        for asked in (client.log.append(0, b"y"), client.log.read(0, 0, 1_000)):
            with pytest.raises(StoreError) as caught:
                await asked
            assert caught.value.code == "store.incomplete"
    assert (await refusal(options)).code == "store.incomplete"


@pytest.mark.parametrize(("again", "reason"), [(False, "does not exist"), (True, "another one")])
async def test_a_log_that_was_dropped_is_not_made_again(
    server: PostgresServer, options: PostgresOptions, again: bool, reason: str
) -> None:
    async with opened(client_of(options)) as client:
        await ask(server, f"DROP SCHEMA {options.schema} CASCADE")
        if again:
            async with opened(client_of(options)):
                pass
        # Until then frames may go to another log that somebody has put there.
        await ask(server, END_CONNECTIONS)
        await until(said_down(client), lambda down: reason in down)
        for asked in (client.log.append(0, b"x"), client.log.read(0, 0, 1_000)):
            with pytest.raises(StoreError) as caught:
                await asked
            assert caught.value.code == "store.incomplete"


async def test_some_rows_of_shards_are_missed(
    server: PostgresServer, options: PostgresOptions
) -> None:
    async with opened(client_of(options)) as client:
        await ask(server, f"DELETE FROM {options.schema}.shards WHERE shard = 1")
        for asked in (client.log.append(1, b"x"), client.log.span(1), client.log.trim(1, 1)):
            with pytest.raises(StoreError) as caught:
                await asked
            assert caught.value.code == "store.incomplete"
    assert (await refusal(options)).code == "store.incomplete"


async def test_a_password_is_read_from_a_file(
    server: PostgresServer, options: PostgresOptions, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    options = replace(options, urls=(server.url,), password_file=file)
    assert (await refusal(options)).code == "store.denied"
    file.write_text("another\n")
    assert (await refusal(options)).code == "store.denied"
    file.write_text(PASSWORD + "\n")
    async with opened(client_of(options)) as client:
        assert PASSWORD not in str(client.log.describe())
        await client.append(0, b"x")


async def test_a_user_needs_rights(server: PostgresServer, options: PostgresOptions) -> None:
    await ask(server, f"CREATE ROLE guest LOGIN PASSWORD '{PASSWORD}'")
    url = options.urls[0].replace("//rillnode:", "//guest:")
    guest = replace(options, urls=(url,))
    assert (await refusal(guest)).code == "store.denied"
    async with opened(client_of(options)):
        pass
    assert (await refusal(guest)).code == "store.denied"
    await ask(server, f"GRANT USAGE ON SCHEMA {options.schema} TO guest")
    tables = f"ALL TABLES IN SCHEMA {options.schema}"
    await ask(server, f"GRANT SELECT, INSERT, UPDATE, DELETE ON {tables} TO guest")
    async with opened(client_of(guest)) as client:
        await client.append(0, b"x")


async def test_the_server_that_takes_writes_is_found(options: PostgresOptions) -> None:
    nobody = "postgresql://rillnode@127.0.0.1:1/postgres"
    async with opened(client_of(replace(options, urls=(nobody, *options.urls)))) as client:
        await client.append(0, b"x")


@pytest.mark.parametrize("setting", ["off", "local", "remote_write"])
async def test_a_server_that_does_not_sync_is_refused(
    options: PostgresOptions, setting: str
) -> None:
    weak = replace(options, urls=(f"{options.urls[0]}&synchronous_commit={setting}",))
    assert (await refusal(weak)).code == "store.unsynced"
    async with opened(client_of(replace(weak, sync="interval"))):
        pass
    async with opened(client_of(options)) as client:
        await client.append(0, b"x")


@pytest.mark.parametrize("sync", ["always", "interval"])
async def test_a_server_without_fsync_is_refused(
    server: PostgresServer,
    options: PostgresOptions,
    sync: Literal["always", "interval"],
    caplog: pytest.LogCaptureFixture,
) -> None:
    await ask(server, "ALTER SYSTEM SET fsync = off")
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)
    try:
        if sync == "always":
            assert (await refusal(options)).code == "store.unsynced"
            return
        async with opened(client_of(replace(options, sync=sync))) as client:
            await client.append(0, b"x")
        assert "store_unsynced" in [record.msg for record in caplog.records]
    finally:
        await ask(server, "ALTER SYSTEM RESET fsync")
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)


async def test_a_blob_is_put_whole_or_not_at_all(
    server: PostgresServer, options: PostgresOptions, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.write_bytes(os.urandom(64 * 1_048_576))
    async with opened(client_of(options)) as client:
        putting = asyncio.create_task(client.blobs.put("a", source))
        await asyncio.sleep(0.3)
        assert not putting.done()
        await asyncio.to_thread(server.kill)
        with pytest.raises(LogLost):
            await putting
        await asyncio.to_thread(server.start)
    async with opened(client_of(options)) as client:
        assert not await client.blobs.list("")
        assert await ask(server, f"SELECT count(*) FROM {options.schema}.blobs") == [(0,)]
