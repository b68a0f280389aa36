"""Following all streams of a pattern: those that there are, and those that come and go."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from coroutines import handed_by
from nodes import CLIENT, connect_to, node_config
from rillnode.codecs.errors import RequestError
from rillnode.node.client import (
    BlockingFollowing,
    Client,
    Following,
    connect_blocking,
    following as following_module,
)
from rillnode.node.client.loop_thread import Kept
from rillnode.node.config import GrantTable
from rillnode.node.runtime import Node
from rillnode.node.testing.contract.base import until
from rillnode.node.testing.contract.proxy import Proxy

Talk = Callable[[Node, Client], Awaitable[None]]


def with_node(directory: Path, talk: Talk, *grants: GrantTable) -> None:
    async def run() -> None:
        async with Node(node_config(directory, *grants)) as node, await connect_to(node) as client:
            async with asyncio.timeout(60.0):
                await talk(node, client)

    asyncio.run(run())


node = handed_by(with_node)
client = handed_by(with_node, 1)


async def push(client: Client, name: str, *items: bytes, partition: int = 0) -> None:
    stream = await client.stream(name, partitions=partition + 1)
    await stream.push_many(items, partition=partition)


async def take(following: Following, count: int) -> list[tuple[str, bytes]]:
    """So many entries, in an order that does not depend on which stream was first."""
    async with asyncio.timeout(10.0):
        found = [await anext(following) for _ in range(count)]
    return sorted((stream, bytes(entry.data)) for stream, entry in found)


async def nothing_comes(following: Following) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(following), 0.2)


def indexes(following: Following | BlockingFollowing) -> dict[str, dict[str, int]]:
    """Its position, without which streams that is in."""
    return {
        name: {one: index for one, index in partitions.items() if one != "created_at"}
        for name, partitions in following.position.items()
    }


async def begin(following: Following, *names: str) -> None:
    """Wait until it follows what there is."""
    await until(lambda: set(following.streams) == set(names))


async def test_streams_of_a_pattern_are_followed_and_those_made_later(
    node: Node, client: Client
) -> None:
    await push(client, "sensors.a", b"before")
    await push(client, "other", b"before")
    async with client.follow("sensors.*") as following:
        await begin(following, "sensors.a")
        await push(client, "sensors.a", b"1")
        await push(client, "sensors.new", b"first")
        await push(client, "other", b"1")
        # Also what the node itself makes, and partitions that are more.
        await push(node.client, "sensors.node", b"x")
        await push(client, "sensors.a", b"p1", partition=1)
        assert await take(following, 4) == [
            ("sensors.a", b"1"), ("sensors.a", b"p1"), ("sensors.new", b"first"),
            ("sensors.node", b"x"),
        ]  # fmt: skip
        await nothing_comes(following)
        assert indexes(following) == {
            "sensors.a": {"0": 2, "1": 1}, "sensors.new": {"0": 1}, "sensors.node": {"0": 1},
        }  # fmt: skip


async def test_what_is_pushed_after_one_was_entered_comes(client: Client) -> None:
    stream = await client.stream("s.a")
    await stream.push(b"before")
    async with (
        client.follow("s.*") as following,
        stream.tail() as tail,
        stream.batches(start="end") as batches,
        asyncio.timeout(10.0),
    ):
        await stream.push(b"after")
        assert (await anext(following)).entry.data == b"after"
        assert (await anext(tail)).data == b"after"
        assert [entry.data for entry in await anext(batches)] == [b"after"]


async def test_who_enters_what_cannot_be_followed_is_told(client: Client) -> None:
    stream = await client.stream("gone")
    await client.remove("gone")
    for iteration in (stream.tail(), client.follow("[" * 600)):
        with pytest.raises(RequestError):
            async with iteration:
                pytest.fail("it was entered")
        with pytest.raises(RequestError):
            await anext(iteration)


async def test_what_is_pushed_after_a_blocking_one_was_entered_comes(node: Node) -> None:
    def blocking() -> None:
        url = f"noise://{node.addresses()['noise']}"
        with connect_blocking(url, identity=CLIENT, node_identity=node.identity) as face:
            stream = face.stream("s.a")
            stream.push(b"before")
            with face.follow("s.*") as following, stream.tail() as tail:
                stream.push(b"after")
                assert next(following).entry.data == b"after"
                assert next(tail).data == b"after"

    async with asyncio.timeout(10.0):
        await asyncio.to_thread(blocking)


async def test_it_goes_on_from_a_position_that_was_written_as_json(client: Client) -> None:
    await push(client, "s.a", b"0", b"1")
    await push(client, "s.b", b"0", b"1")
    async with client.follow("s.*", start="start") as following:
        await take(following, 3)
        written = json.dumps(following.position)
    await push(client, "s.a", b"2")
    await push(client, "s.c", b"0")
    async with client.follow("s.*", start=json.loads(written)) as following:
        assert len(await take(following, 3)) == 3
        await nothing_comes(following)
        assert indexes(following) == {"s.a": {"0": 3}, "s.b": {"0": 2}, "s.c": {"0": 1}}


async def test_a_removed_stream_ends_quietly_and_another_of_its_name_begins(client: Client) -> None:
    await push(client, "s.a", b"0")
    await push(client, "s.b", b"0")
    async with client.follow("s.*", start="start") as following:
        assert len(await take(following, 2)) == 2
        await client.remove("s.a")
        await begin(following, "s.b")
        assert indexes(following) == {"s.b": {"0": 1}}
        await push(client, "s.a", b"anew")
        await push(client, "s.b", b"1")
        assert await take(following, 2) == [("s.a", b"anew"), ("s.b", b"1")]


async def test_a_position_names_its_streams_and_means_no_later_ones(client: Client) -> None:
    await push(client, "s.a", b"0", b"1")
    await push(client, "s.b", b"0", b"1")
    async with client.follow("s.*", start="start") as following:
        await take(following, 4)
        position = json.loads(json.dumps(following.position))
    created = {name: (await client.describe(name)).created_at for name in ("s.a", "s.b")}
    assert position == {name: {"0": 2, "created_at": at} for name, at in created.items()}
    await client.remove("s.a")
    await push(client, "s.a", b"anew", b"1", b"2")
    await push(client, "s.b", b"2")
    async with client.follow("s.*", start=position) as following:
        new = [("s.a", b"1"), ("s.a", b"2"), ("s.a", b"anew")]
        assert await take(following, 4) == [*new, ("s.b", b"2")]
        await nothing_comes(following)
    # What does not say which is meant, such as what somebody has written, is of whichever is there.
    async with client.follow("s.*", start={"s.a": {"0": 2}, "s.b": {"0": 2}}) as following:
        assert await take(following, 2) == [("s.a", b"2"), ("s.b", b"2")]
        await nothing_comes(following)


def test_a_revoked_grant_ends_the_part_of_its_stream(tmp_path: Path) -> None:
    one = GrantTable(who=f"noise:{CLIENT.public_hex}", streams="s.a", may=("subscribe",))
    other = GrantTable(who=f"noise:{CLIENT.public_hex}", streams="s.b", may=("subscribe",))

    async def talk(node: Node, client: Client) -> None:
        for name in ("s.a", "s.b", "s.c"):
            await push(node.client, name, b"0")
        async with client.follow("*", start="start") as following:
            assert await take(following, 2) == [("s.a", b"0"), ("s.b", b"0")]
            node.reload(replace(node.config, grants=(other,)))
            await begin(following, "s.b")
            for name in ("s.a", "s.b", "s.c", "s.d"):
                await push(node.client, name, b"1")
            assert await take(following, 1) == [("s.b", b"1")]
            await nothing_comes(following)

    with_node(tmp_path, talk, one, other)


def test_a_stream_goes_on_where_it_was_when_its_grant_comes_back(tmp_path: Path) -> None:
    def to(streams: str) -> GrantTable:
        who = f"noise:{CLIENT.public_hex}"
        return GrantTable(who=who, streams=streams, may=("subscribe",))

    async def talk(node: Node, client: Client) -> None:
        for name in ("s.a", "s.b", "s.c"):
            await push(node.client, name, b"0", b"1")
        async with client.follow("s.*", start="start") as following:
            assert len(await take(following, 4)) == 4
            node.reload(replace(node.config, grants=(to("s.b"),)))
            await begin(following, "s.b")
            position = json.loads(json.dumps(following.position))
            assert {name: of["0"] for name, of in position.items()} == {"s.a": 2, "s.b": 2}
            await push(node.client, "s.a", b"2")
            await push(node.client, "s.b", b"2")
            node.reload(replace(node.config, grants=(to("s.*"),)))
            both = [("s.a", b"2"), ("s.b", b"2")]
            assert await take(following, 4) == [*both, ("s.c", b"0"), ("s.c", b"1")]
            await nothing_comes(following)
        async with client.follow("s.*", start=position) as following:
            assert await take(following, 4) == [*both, ("s.c", b"0"), ("s.c", b"1")]

    with_node(tmp_path, talk, to("s.a"), to("s.b"))


def test_so_many_positions_are_kept_of_what_may_not_be_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def to(streams: str) -> GrantTable:
        who = f"noise:{CLIENT.public_hex}"
        return GrantTable(who=who, streams=streams, may=("subscribe",))

    monkeypatch.setattr(following_module, "AWAY_MAX", 2)
    lost = {f"s.{number}" for number in range(5)}

    async def talk(node: Node, client: Client) -> None:
        for name in (*lost, "s.kept"):
            await push(node.client, name, b"0")
        async with client.follow("s.*", start="start") as following:
            assert len(await take(following, 6)) == 6
            node.reload(replace(node.config, grants=(to("s.kept"),)))
            await until(lambda: following.streams == ("s.kept",))
            position = following.position
            away = position.keys() & lost
            assert (len(away), len(position)) == (2, 3)
            (warning,) = [one for one in caplog.records if one.msg == "position_forgotten"]
            assert (vars(warning)["stream"] in lost - away, vars(warning)["kept"]) == (True, 2)
            node.reload(replace(node.config, grants=(to("s.*"),)))
            # Those that were left out begin with their first entry.
            assert await take(following, 3) == [(name, b"0") for name in sorted(lost - away)]
            await nothing_comes(following)
            everything = following.position
        # What is begun with is kept, however much it is.
        node.reload(replace(node.config, grants=(to("s.kept"),)))
        async with client.follow("s.*", start=everything) as following:
            await begin(following, "s.kept")
            assert following.position == everything

    with_node(tmp_path, talk, to("s.*"))


async def test_what_was_fetched_of_a_removed_stream_moves_no_position_in_a_later_one(
    client: Client,
) -> None:
    await push(client, "s.a", b"0", b"1", b"2")
    async with client.follow("s.*", start="start") as following:
        assert await take(following, 1) == [("s.a", b"0")]
        await client.remove("s.a")
        await push(client, "s.a", b"anew", b"1")
        at = (await client.describe("s.a")).created_at
        await until(lambda: following.position["s.a"]["created_at"] == at)
        assert await take(following, 2) == [("s.a", b"1"), ("s.a", b"anew")]
        assert indexes(following) == {"s.a": {"0": 2}}
        await nothing_comes(following)


async def test_it_goes_on_over_lost_links(node: Node, client: Client) -> None:
    await push(client, "s.a", b"0")
    await push(client, "s.gone", b"0")
    async with Proxy(node.addresses()["noise"]) as proxy:
        other = await connect_to(node, through=proxy.address)
        async with other, other.follow("s.*", start="start") as following:
            assert len(await take(following, 2)) == 2
            await proxy.take_away()
            await push(client, "s.a", b"1")
            await push(client, "s.new", b"0")
            await client.remove("s.gone")
            await proxy.bring_back()
            assert await take(following, 2) == [("s.a", b"1"), ("s.new", b"0")]
            await until(lambda: set(following.streams) == {"s.a", "s.new"})


def test_too_many_streams_are_refused_and_nobody_else_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rillnode.actors.core.streams.watching.FOLLOWED_MAX", 150)

    async def talk(node: Node, client: Client) -> None:
        await client.open_streams([f"s.{number}" for number in range(151)])
        with pytest.raises(RequestError, match="follow a narrower one") as refused:
            async with client.follow("s.*"):
                pytest.fail("it is followed")
        assert refused.value.code == "follow.limit"
        async with client.follow("s.1*") as following:
            await nothing_comes(following)
            await until(lambda: len(following.streams) == 62)
            # Also where the limit is passed later.
            await client.open_streams([f"s.1.{number}" for number in range(100)])
            with pytest.raises(RequestError) as refused:
                await anext(following)
            assert refused.value.code == "follow.limit"
        await until(lambda: all("Watch" not in name or not one["cells"] for name, one in
                                node.status()["actors"].items()))  # fmt: skip

    with_node(tmp_path, talk)


@pytest.mark.parametrize("pattern", ["", "x" * 513])
async def test_a_pattern_has_some_bytes(client: Client, pattern: str) -> None:
    with pytest.raises(RequestError, match="1 to 512 bytes") as refused:
        await anext(client.follow(pattern))
    assert refused.value.code == "follow.invalid"


async def test_a_link_follows_so_many_patterns(node: Node, client: Client) -> None:
    followings = [client.follow(f"{number}*") for number in range(16)]
    for one in followings:
        await nothing_comes(one)
    with pytest.raises(RequestError, match="at most 16 patterns") as refused:
        await anext(client.follow("more"))
    assert refused.value.code == "subscription.limit"
    await followings[0].aclose()
    await nothing_comes(client.follow("more"))
    async with await connect_to(node) as other:
        await nothing_comes(other.follow("more"))


async def test_a_position_that_can_be_none_is_refused(client: Client) -> None:
    now = datetime.now(UTC)
    starts: list[Any] = [
        {"s": {"x": 1}}, {"s": {"0": -1}}, {"s": {"created_at": "now"}}, {"s": 7}, ["s"],
        "begin", 7, now,
    ]  # fmt: skip
    for start in starts:
        with pytest.raises(RequestError) as refused:
            client.follow("*", start=start)
        assert refused.value.code == "follow.invalid"


def interrupted(kept: Kept[object], timeout: float | None = None) -> None:
    kept._loop.do(kept._begin)  # pyright: ignore[reportPrivateUsage]
    raise KeyboardInterrupt


async def test_the_blocking_face_follows_patterns(node: Node, client: Client) -> None:
    await push(client, "s.a", b"0")

    def blocking() -> None:
        url = f"noise://{node.addresses()['noise']}"
        with (
            connect_blocking(url, identity=CLIENT, node_identity=node.identity) as face,
            face.follow("s.*", start="start") as following,
        ):
            stream, entry = next(following)
            assert (stream, entry.data, following.streams) == ("s.a", b"0", ("s.a",))
            assert indexes(following) == {"s.a": {"0": 1}}
            # What comes after Ctrl-C is not handed out, and counts for the position afterwards.
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(Kept, "wait", interrupted)
                with pytest.raises(KeyboardInterrupt):
                    next(following)
            face.stream("s.a").push(b"1")
            while not following._fetched:  # pyright: ignore[reportPrivateUsage]
                time.sleep(0.01)
            assert indexes(following) == {"s.a": {"0": 1}}
            assert next(following).entry.data == b"1"
            assert indexes(following) == {"s.a": {"0": 2}}

    await asyncio.to_thread(blocking)


async def test_a_position_of_another_log_is_told(
    node: Node, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a restore: what comes until the log has grown to it is not for this reader."""
    stream = await client.stream("restored")
    await stream.push_many([b"0", b"1"])
    beyond = {"restored": {"0": 3}}
    async with client.follow("restored", start=beyond) as following, stream.consumer("c", start=3):
        entry = asyncio.ensure_future(anext(following))
        while len(caplog.records) < 1:
            await asyncio.sleep(0.01)
        (told, *_) = caplog.records
        assert (told.msg, vars(told)["index"], vars(told)["end"]) == ("position_beyond_end", 3, 2)
        await stream.push_many([b"2", b"3"])
        assert (await entry).entry.data == b"3"
