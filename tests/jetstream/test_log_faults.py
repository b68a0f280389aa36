"""Tests what becomes of logs when a server or its operator fails."""

import asyncio
import logging
from contextlib import closing, suppress
from pathlib import Path

import pytest

from jetstream.support import administer, appended, open_only, options_of, pair_of
from nats_support import MutingProxy, NatsServer, needs_nats, running_nats
from rillnode.actors.jetstream import fetching
from rillnode.actors.jetstream.connection import Connection
from rillnode.actors.jetstream.options import JetStreamOptions
from rillnode.actors.log.shared.port import LogLost, Span
from rillnode.codecs.errors import StoreError
from rillnode.node.testing.contract.shared_logs import data_of, opened, until

pytestmark = needs_nats


async def test_a_log_goes_on_when_its_server_was_killed(
    nats: NatsServer, options: JetStreamOptions, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with opened(pair_of(options)) as client, opened(pair_of(options)) as other:
        before = await client.append(0, *(b"%d" % number for number in range(100)))
        await asyncio.to_thread(nats.kill)
        with pytest.raises(LogLost):
            await client.log.append(0, b"lost")
        for asked in (client.log.read(0, 0, 1), client.log.span(0), client.log.trim(0, 3)):
            with pytest.raises(LogLost):
                await asked
        assert client.log.describe()["reason"]
        await asyncio.to_thread(nats.start)
        sequence = await appended(client, 0, b"after")
        assert sequence > before[-1]
        # News of it come over the new connection of the other one.
        await other.wait_heard(0, sequence)
        found = await other.read(0, 0, 101)
        assert data_of(found)[:100] == [b"%d" % number for number in range(100)]
        assert found[-1] == (sequence, b"after")
        assert client.log.describe()["reason"] == ""
    told = {record.msg for record in caplog.records}
    assert {"store_connection_lost", "store_connected"} <= told


async def test_answers_that_were_kept_back_are_lost_and_frames_stored_at_most_as_often_as_sent(
    nats: NatsServer, options: JetStreamOptions
) -> None:
    with closing(MutingProxy(nats.port)) as proxy:
        async with opened(pair_of(options, servers=(proxy.url,))) as client:
            proxy.mute()
            with pytest.raises(LogLost):
                await client.log.append(0, b"kept back")
            proxy.cut()
            await appended(client, 0, b"after")
            found = await client.read(0, 0, 2)
            assert data_of(found) == [b"kept back", b"after"]


# What an operator does


async def test_a_log_that_was_deleted_is_told_and_not_made_again(options: JetStreamOptions) -> None:
    async with opened(pair_of(options), 3) as client:
        await client.append(1, b"a")
        await administer(options, "STREAM.DELETE.t-log-1")
        # At first a leader may not know yet what it has.
        with pytest.raises(LogLost):
            await client.log.append(1, b"b")
        await asyncio.sleep(1.5 * options.doubt_seconds)
        for asked in (
            client.log.append(1, b"b"),
            client.log.read(1, 0, 1),
            client.log.span(1),
            client.log.trim(1, 2),
        ):
            with pytest.raises(StoreError, match="t-log-1 is missing") as caught:
                await asked
            assert (caught.value.code, caught.value.retryable) == ("store.incomplete", False)
        # The others are as they were.
        await client.append(2, b"c")
    with pytest.raises(StoreError, match="t-log-1: 1 of 3 missing") as caught:
        await open_only(options)
    assert caught.value.code == "store.incomplete"


async def test_logs_whose_first_one_was_deleted_are_not_made_again(
    options: JetStreamOptions,
) -> None:
    async with opened(pair_of(options), 3):
        await administer(options, "STREAM.DELETE.t-log-0")
    with pytest.raises(StoreError, match="t-log-0 is missing") as caught:
        await open_only(options)
    assert caught.value.code == "store.incomplete"


async def test_logs_that_were_made_anew_are_not_those_that_were(options: JetStreamOptions) -> None:
    async with opened(pair_of(options), 1) as old:
        await old.append(0, b"a", b"b")
        await administer(options, "STREAM.DELETE.t-log-0")
        async with opened(pair_of(options), 1) as new:
            assert new.opened.identity != old.opened.identity
            await new.append(0, b"c", b"d", b"e")
            with pytest.raises(LogLost):
                await old.log.append(0, b"f")
            with pytest.raises(LogLost):
                await old.log.span(0)
            # Frames of the new ones are never taken for the old ones'.
            assert not await old.log.read(0, 0, 1_000)
            await asyncio.sleep(1.5 * options.doubt_seconds)
            with pytest.raises(StoreError, match="is that of other logs") as caught:
                await old.log.append(0, b"f")
            assert caught.value.code == "store.incomplete"
            with pytest.raises(StoreError):
                await old.log.trim(0, 3)
            assert data_of(await new.read(0, 0, 3)) == [b"c", b"d", b"e"]


async def test_making_that_was_ended_in_between_is_finished_by_the_next(
    options: JetStreamOptions,
) -> None:
    async with opened(pair_of(options), 4) as client:
        identity = client.opened.identity
    config = (await administer(options, "STREAM.INFO.t-log-0"))["config"]
    del config["metadata"]["rillnode.made"]
    await administer(options, "STREAM.UPDATE.t-log-0", config)
    await administer(options, "STREAM.DELETE.t-log-2")
    await administer(options, "STREAM.DELETE.t-log-3")
    async with opened(pair_of(options), 9) as client:
        assert (client.opened.identity, client.opened.shards) == (identity, 4)
        await client.append(3, b"a")
    config = (await administer(options, "STREAM.INFO.t-log-0"))["config"]
    assert config["metadata"]["rillnode.made"] == "1"


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        {"rillnode.identity": "00" * 16, "rillnode.shards": "2", "rillnode.format": "99"},
        {"rillnode.identity": "00" * 16, "rillnode.shards": "0", "rillnode.format": "1"},
        {"rillnode.identity": "00" * 16, "rillnode.shards": "1000000", "rillnode.format": "1"},
        {"rillnode.identity": "00", "rillnode.shards": "2", "rillnode.format": "1"},
        {"rillnode.identity": "x", "rillnode.shards": "2", "rillnode.format": "1"},
    ],
)
async def test_a_stream_of_something_else_is_not_taken_for_a_log(
    options: JetStreamOptions, metadata: dict[str, str] | None
) -> None:
    config = {"name": "t-log-0", "subjects": ["x"], "metadata": metadata}
    await administer(options, "STREAM.CREATE.t-log-0", config)
    with pytest.raises(StoreError) as caught:
        await open_only(options)
    assert caught.value.code == "store.incomplete"


async def test_a_log_that_was_purged_goes_on(options: JetStreamOptions) -> None:
    async with opened(pair_of(options)) as client:
        sequences = await client.append(0, b"a", b"b", b"c")
        await administer(options, "STREAM.PURGE.t-log-0")
        assert await client.log.span(0) == Span(sequences[-1] + 1, sequences[-1])
        assert not await client.log.read(0, 0, 1_000)
        (sequence,) = await client.append(0, b"d")
        assert await client.read(0, 0, 1) == [(sequence, b"d")]


@pytest.mark.parametrize("batches", [True, False])
async def test_frames_around_one_that_was_deleted_are_read(
    options: JetStreamOptions, monkeypatch: pytest.MonkeyPatch, *, batches: bool
) -> None:
    if not batches:
        # As of servers before 2.11.
        monkeypatch.setattr(fetching, "_BATCHES", (99, 0, 0))

    async with opened(pair_of(options)) as client:
        frames = [b"%d" % number * 100 for number in range(200)]
        sequences = await client.append(0, *frames)
        assert data_of(await client.read(0, 0, 200)) == frames
        for gone in (0, 50, 51, 150):
            request = {"seq": sequences[gone]}
            await administer(options, "STREAM.MSG.DELETE.t-log-0", request)
            frames[gone] = b""
        await client.log.trim(0, sequences[10])
        found = await client.read(0, 0, 187)
        assert data_of(found) == [data for data in frames[10:] if data]
        assert [frame.sequence for frame in found] == [
            sequence for sequence, data in zip(sequences[10:], frames[10:], strict=True) if data
        ]
        some = await client.log.read(0, sequences[20], 1_000)
        assert 1 <= len(some) <= 10
        assert len(await client.log.read(0, sequences[20], 1)) == 1


async def test_a_log_that_is_full_takes_frames_again_once_it_is_not(
    options: JetStreamOptions,
) -> None:
    async with opened(pair_of(options)) as client:
        config = (await administer(options, "STREAM.INFO.t-log-0"))["config"]
        await administer(options, "STREAM.UPDATE.t-log-0", config | {"max_bytes": 10_000})
        sequences: list[int] = []

        async def fill() -> None:
            while True:
                sequences.append(await client.log.append(0, b"x" * 1_000))

        with pytest.raises(StoreError, match="no room") as caught:
            await fill()
        assert (caught.value.code, caught.value.retryable) == ("store.full", True)
        await client.append(1, b"another log")
        # Nothing old was dropped.
        assert await client.log.span(0) == Span(1, sequences[-1])
        await client.log.trim(0, sequences[-1])
        (sequence,) = await client.append(0, b"y")
        assert sequence == sequences[-1] + 1


# News


async def test_news_of_strangers_do_no_harm(options: JetStreamOptions) -> None:
    async with opened(pair_of(options)) as client, opened(pair_of(options)) as other:
        stranger = Connection(options)
        await stranger.open()
        subject = f"t.news.{client.opened.identity.hex()}".encode()
        for data in (b"", b"x", b"\xff" * 10, b"\0" * 1_000_000, b"\0\1" + b"\xff" * 8):
            stranger.publish(subject, data)
        await client.wait_heard(1, 2**64 - 1)
        await stranger.close()
        # It is not passed on.
        async with opened(pair_of(options)) as late:
            (sequence,) = await other.append(0, b"a")
            await late.wait_heard(0, sequence)
            await asyncio.sleep(1.5)
            assert late.heard.get(1, 0) == 0


async def test_frames_of_which_no_news_came_are_found(options: JetStreamOptions) -> None:
    async with opened(pair_of(options), 4) as client:
        silent = Connection(options)
        await silent.open()
        subject = f"t.log.{client.opened.identity.hex()}.3".encode()
        sequence = await silent.append(subject, b"a")
        await silent.close()
        await client.wait_heard(3, sequence)


# Opening


async def test_servers_that_do_not_sync_are_refused(tmp_path: Path) -> None:
    with running_nats(tmp_path / "nats", sync='"2m"') as server:
        options = options_of(server)
        with pytest.raises(StoreError, match="syncs every 120 seconds") as caught:
            await open_only(options)
        assert caught.value.code == "store.unsynced"
        async with opened(pair_of(options, sync="interval")) as client:
            assert "120 seconds" in client.log.describe()["unsynced"]


async def test_a_server_that_is_started_anew_without_syncing_is_refused_until_it_does(
    nats: NatsServer, options: JetStreamOptions, caplog: pytest.LogCaptureFixture
) -> None:
    looks = {"proof_seconds": 0.05, "look_seconds": 0.05}
    async with (
        opened(pair_of(options, **looks)) as client,
        opened(pair_of(options, **looks, sync="interval")) as other,
    ):
        await client.append(0, b"before")
        await asyncio.to_thread(nats.kill)
        nats.set_sync('"2m"')
        await asyncio.to_thread(nats.start)

        async def refused() -> StoreError | None:
            try:
                with suppress(LogLost):
                    await client.log.append(0, b"may be there")
            except StoreError as error:
                return error
            return None

        async def told() -> str:
            return str(other.log.describe()["unsynced"])

        found = await until(refused, bool)
        assert found is not None
        assert (found.code, found.retryable) == ("store.unsynced", True)
        assert "120 seconds" in client.log.describe()["unsynced"]
        # Who may lose what is confirmed goes on, and says so; what is there is read by all.
        last = await appended(other, 0, b"other")
        await until(told, lambda text: "120 seconds" in text)
        assert (await client.read(0, last - 1, 1))[0] == (last, b"other")
        await asyncio.to_thread(nats.kill)
        # Nobody says that it does not sync.
        nats.set_sync("always")
        await asyncio.to_thread(nats.start)

        async def taken() -> int:
            with suppress(LogLost, StoreError):
                return await client.log.append(0, b"after")
            return 0

        await until(taken, bool)
        assert client.log.describe()["unsynced"] == ""

    logged = [record.msg for record in caplog.records]
    assert logged.count("store_refused") == 1
    assert "store_unsynced" in logged


async def test_who_is_no_server_is_told_with_its_address(nats: NatsServer) -> None:
    options = options_of(nats)
    for servers, reason in (
        (("nats://127.0.0.1:1",), "127.0.0.1:1: "),
        ((nats.monitor.replace("http", "nats"),), "does not"),
    ):
        with pytest.raises(LogLost, match=reason):
            await open_only(options, servers=servers)
    with pytest.raises(StoreError, match="no URL of a NATS server") as caught:
        await open_only(options, servers=("http://u:secret@127.0.0.1",))
    assert caught.value.code == "store.denied"
    assert "secret" not in str(caught.value)
    # The next one that answers is taken.
    async with opened(pair_of(options, servers=("nats://127.0.0.1:1", nats.url))) as client:
        await client.append(0, b"a")
