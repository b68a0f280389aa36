"""Tails: server-sent events of a running node, tickets, and when they end."""

import asyncio
import dataclasses
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from msgspec.structs import replace

from coroutines import handed_by
from gateway_support import KEYS, Caller, Site, gateway_config, grant, place, served
from rillnode.node.gateway import plugin, tails
from rillnode.node.gateway.config import GatewayListener
from rillnode.node.gateway.plugin import Gateway
from rillnode.transports.links import HTTP_LIMITS
from rillnode.transports.web_server import listen_web

site = handed_by(served, of=gateway_config)


async def ticket_for(caller: Caller, name: str) -> str:
    made = await caller.call("POST", "/tickets", json={"stream": name})
    assert made.status == 201, made.body
    ticket: str = made.body["ticket"]
    assert re.fullmatch(r"[\w-]+", ticket)
    return ticket


def test_a_tail_goes_on_where_its_reader_was(tmp_path: Path) -> None:
    async def first(site: Site) -> None:
        await site.writer.push_texts("s", ["0", "1"])
        async with site.reader.tail("s?from=start") as tail:
            assert await tail.texts(2) == ["0", "1"]
            await site.writer.push_texts("s", ["2"])
            assert await tail.texts(1) == ["2"]
            assert place(tail.id) == "3"
        await site.writer.push_texts("s", ["3"])

    async def again(site: Site) -> None:
        # The id of the last event is newer than the URL that a browser comes back with.
        async with site.reader.tail("s?from=start", Last_Event_ID="3") as tail:
            assert await tail.texts(1) == ["3"]
        async with site.reader.tail("s?from=2") as tail:
            assert await tail.texts(2) == ["2", "3"]
        async with site.reader.tail("s") as tail:
            await site.writer.push_texts("s", ["4"])
            assert await tail.texts(1) == ["4"], "from the end, unless something else is asked"
            assert site.node.status()["gateway"]["tails"] == 1

    served(gateway_config(tmp_path), first, again)


async def test_a_reader_that_got_nothing_yet_misses_nothing(site: Site) -> None:
    await site.writer.push_texts("s", ["0"])
    async with site.reader.tail("s") as tail:
        head = await asyncio.wait_for(tail.content.readuntil(b"\n\n"), 30.0)
    created_at = (await site.node.client.describe("s")).created_at
    assert head == b"retry: 2000\nid: 1@%d\n\n" % created_at
    await site.writer.push_texts("s", ["1"])
    async with site.reader.tail("s", Last_Event_ID="1") as tail:
        assert await tail.texts(1) == ["1"]


async def test_the_id_is_the_position_in_all_partitions(site: Site) -> None:
    stream = await site.node.stream("s", partitions=2)
    await stream.push(b"a", partition=0)
    async with site.reader.tail("s?from=0:0") as tail:
        assert await tail.texts(1) == ["a"]
        assert place(tail.id) == "0:1,1:0"
        await stream.push(b"b", partition=1)
        assert await tail.texts(1) == ["b"]
        assert place(tail.id) == "0:1,1:1"
    await stream.push_many([b"c", b"d"], partition=1)
    async with site.reader.tail("s", Last_Event_ID="0:1,1:1") as tail:
        assert await tail.texts(2) == ["c", "d"]
    async with site.reader.tail("s?partition=1&from=2") as tail:
        assert await tail.texts(1) == ["d"]
        assert place(tail.id) == "3"


async def test_nobody_goes_on_in_a_later_stream_of_the_name(site: Site) -> None:
    await site.writer.push_texts("s", ["0", "1"])
    async with site.reader.tail("s?from=start") as tail:
        assert await tail.texts(2) == ["0", "1"]
        await site.node.client.remove("s")
        told = await tail.next()
        assert (told.name, told.data["code"]) == ("problem", "stream.removed")
    await site.writer.push_texts("s", ["anew", "1", "2"])
    # A browser comes back by itself, to the URL that it knows.
    path = "/streams/s/tail?from=start"
    refused = await site.reader.get(path, **{"Last-Event-ID": tail.id})
    assert refused.refusal == (410, "stream.removed")
    refused = await site.reader.get(f"/streams/s/tail?from={tail.id}")
    assert refused.refusal == (410, "stream.removed")
    async with site.reader.tail("s?from=start") as tail:
        assert await tail.texts(3) == ["anew", "1", "2"]


async def test_what_retention_has_removed_is_told(site: Site) -> None:
    await site.writer.push_texts("s", ["0", "1", "2"])
    await site.node.client.trim("s", before=2)
    async with site.reader.tail("s?from=0") as tail:
        gap = await tail.next()
        assert (gap.name, gap.data) == ("gap", {"partition": 0, "from": 0, "to": 2})
        assert await tail.texts(1) == ["2"]


def test_tails_end_with_what_they_depend_on(tmp_path: Path) -> None:
    async def removed(site: Site) -> None:
        await site.writer.push_texts("s", ["0"])
        async with site.reader.tail("s?from=0") as tail:
            await tail.texts(1)
            await site.node.client.remove("s")
            told = await tail.next()
            assert (told.name, told.data["code"]) == ("problem", "stream.removed")

    async def grown(site: Site) -> None:
        await site.writer.push_texts("s", ["0"])
        async with site.reader.tail("s?from=0") as tail:
            await tail.texts(1)
            stream = await site.node.stream("s", partitions=2)
            await stream.push(b"1", partition=1)
            assert (await tail.next()).data["code"] == "node.draining"
        async with site.reader.tail("s", Last_Event_ID=tail.id) as tail:
            assert await tail.texts(1) == ["1"], "all of a partition that has come since"

    async def stopped(site: Site) -> None:
        async with site.reader.tail("s?from=0:0") as tail:
            await tail.texts(2)
            stopping = asyncio.create_task(site.node.stop())
            assert (await tail.next()).data["code"] == "node.draining"
            await stopping

    served(gateway_config(tmp_path), removed, grown, stopped)


@pytest.mark.parametrize("lost", ["grant", "key", "other"])
def test_tails_end_with_their_right(tmp_path: Path, lost: str) -> None:
    config = gateway_config(tmp_path)
    gateway = config.table(GatewayListener)
    assert gateway is not None

    async def test(site: Site) -> None:
        await site.writer.push_texts("s", ["0"])
        ticket = await ticket_for(site.reader, "s")
        async with (
            site.reader.tail("s?from=0") as one,
            site.caller(None).tail(f"s?from=0&ticket={ticket}") as other,
            site.writer.tail("s?from=0") as kept,
        ):
            for tail in (one, other, kept):
                await tail.texts(1)
            if lost == "grant":
                site.node.reload(replace(config, grants=config.grants[:1]))
                code, status = "stream.unknown", 404
            else:
                left = [one for one in KEYS if one.name != "reader"]
                if lost == "other":  # the key has another holder now
                    left.append(replace(KEYS[1], name="somebody"))
                site.node.reload(config.having(replace(gateway, apikeys=tuple(left))))
                code, status = "gateway.key", 401
            for tail in (one, other):
                assert (await tail.next()).data["code"] == code
            await site.writer.push_texts("s", ["1"])
            assert await kept.texts(1) == ["1"]
        answer = await site.caller(None).get(f"/streams/s/tail?ticket={ticket}")
        assert answer.refusal == (status, code)

    served(config, test)


def test_a_ticket_reads_one_stream(tmp_path: Path) -> None:
    async def first(site: Site) -> None:
        await site.writer.push_texts("s", ["0"])
        await site.writer.push_texts("t", ["0"])
        ticket = await ticket_for(site.reader, "s")
        anybody = site.caller(None)
        assert (await anybody.get(f"/streams/s?ticket={ticket}")).status == 200
        async with anybody.tail(f"s?from=0&ticket={ticket}") as tail:
            assert await tail.texts(1) == ["0"]
        for path in ("t", "t/tail"):
            answer = await anybody.get(f"/streams/{path}?ticket={ticket}")
            assert answer.refusal == (401, "gateway.ticket")
        answer = await anybody.call("POST", f"/streams/s?ticket={ticket}", b"x")
        assert answer.refusal == (404, "stream.unknown")
        writer = await ticket_for(site.writer, "s")
        answer = await anybody.call("POST", f"/streams/s?ticket={writer}", b"x")
        assert answer.refusal == (404, "stream.unknown"), "it pulls, and nothing else"
        saved = f"/streams/s/indexes/c?ticket={ticket}"
        for method, json in (("GET", None), ("PUT", {"position": "1"})):
            answer = await anybody.call(method, saved, json=json)
            assert answer.refusal == (404, "stream.unknown"), "nor moves positions"
        for wrong in ("", "x", "A" * 200, ticket[:-1] + "!", ticket[:-2], "%E2%82%AC", "%00"):
            answer = await anybody.get(f"/streams/s/tail?ticket={wrong}")
            assert answer.refusal == (401, "gateway.ticket"), wrong
        (tmp_path / "ticket").write_text(ticket)

    async def again(site: Site) -> None:
        ticket = (tmp_path / "ticket").read_text()
        answer = await site.caller(None).get(f"/streams/s?ticket={ticket}")
        assert answer.status == 200, "it outlives a restart"

    served(gateway_config(tmp_path), first, again)


def test_a_ticket_is_renewed_through_its_stream(tmp_path: Path) -> None:
    async def test(site: Site) -> None:
        await site.writer.push_texts("s", ["0"])
        anybody = site.caller(None)
        unused, used = await ticket_for(site.reader, "s"), await ticket_for(site.reader, "s")
        async with anybody.tail(f"s?ticket={used}") as tail:
            renewals = [await tail.next() for _ in range(3)]
            assert {one.name for one in renewals} == {"ticket"}
            answer = await anybody.get(f"/streams/s?ticket={unused}")
            assert answer.refusal == (401, "gateway.ticket"), "its time is over"
            assert (await anybody.get(f"/streams/s?ticket={used}")).status == 200
        # A browser comes back with the URL that it knows, a page with the newest ticket.
        for ticket in (used, renewals[-1].data["ticket"]):
            async with anybody.tail(f"s?from=0&ticket={ticket}") as tail:
                assert await tail.texts(1) == ["0"]

    served(gateway_config(tmp_path, ticket_seconds=1.0), test)


def test_idle_tails_beat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tails, "BEAT_SECONDS", 0.1)

    async def test(site: Site) -> None:
        await site.node.stream("s")
        async with site.reader.tail("s") as tail:
            await tail.content.readuntil(b"\n\n")
            for _ in range(2):
                assert await asyncio.wait_for(tail.content.readline(), 30.0) == b":\n"
        async with asyncio.timeout(30.0):
            while site.node.status()["gateway"]["tails"]:
                await asyncio.sleep(0.05)

    served(gateway_config(tmp_path), test)


async def test_a_slow_reader_costs_its_own_connection(site: Site) -> None:
    """What waits for one that takes nothing is bounded, and others are served meanwhile."""
    total = 24_000_000
    stream = await site.node.stream("s")
    await stream.push_many([b"x" * 100_000] * (total // 100_000))
    host, port = site.base.removeprefix("http://").split(":")
    key = "\r\n".join(f"{name}: {value}" for name, value in site.reader.headers().items())
    reader, writer = await asyncio.open_connection(host, int(port), limit=1_024)
    head = f"GET /streams/s/tail?from=0 HTTP/1.1\r\nHost: x\r\n{key}\r\n\r\n"
    writer.write(head.encode())
    await reader.readline()
    async with site.reader.tail("s?from=0") as tail:
        for index in range(total // 100_000):
            assert (await tail.next()).data["index"] == index
    slow = _open(site)[0]
    held = sum(size for _, _, size in slow.follower._ready)
    assert held <= tails.CREDIT_BYTES + 262_144 + 100_000
    assert slow._asked.position[0] < total // 100_000 // 2
    writer.transport.abort()


async def test_a_large_entry_is_not_copied_for_a_slow_reader(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is written in parts, each once the reader has taken the one before."""
    sizes: list[int] = []
    write = web.StreamResponse.write

    async def counted(self: web.StreamResponse, data: bytes) -> None:
        sizes.append(len(data))
        await write(self, data)

    monkeypatch.setattr(web.StreamResponse, "write", counted)
    large = "x" * 1_500_000
    site.http._read_bufsize = 2 * len(large)  # pyright: ignore[reportPrivateUsage]
    await site.writer.push_texts("s", [large, "1"])
    async with site.reader.tail("s?from=0") as tail:
        assert await tail.texts(2) == [large, "1"]
        assert place(tail.id) == "2"
    assert max(sizes) == tails.WRITE_BYTES


def _open(site: Site) -> list[Any]:
    plug_ins: list[Any] = list(site.node._plug_ins)  # pyright: ignore[reportPrivateUsage]
    gateway: Any = next(one for one in plug_ins if isinstance(one, Gateway))
    return list(gateway._tails.values())


def test_tails_are_counted(tmp_path: Path) -> None:
    async def test(site: Site) -> None:
        await site.writer.push_texts("s", ["0"])
        async with site.reader.tail("s?from=0") as tail:
            await tail.texts(1)
            refused = await site.reader.get("/streams/s/tail")
            assert refused.refusal == (429, "gateway.busy")
            assert refused.headers["Retry-After"] == "1"
            assert (await site.reader.get("/streams/s")).status == 200

    served(gateway_config(tmp_path, tails_max=1), test)


def test_a_reader_that_takes_next_to_nothing_does_not_keep_others_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = dataclasses.replace(HTTP_LIMITS, drain_seconds=0.5, sweep_seconds=0.05)
    monkeypatch.setattr(plugin, "listen_web", partial(listen_web, limits=limits))

    async def test(site: Site) -> None:
        stream = await site.node.stream("s")
        await stream.push_many([b"x" * 100_000] * 240)
        host, port = site.base.removeprefix("http://").split(":")
        key = "\r\n".join(f"{name}: {value}" for name, value in site.reader.headers().items())
        reader, writer = await asyncio.open_connection(host, int(port), limit=1_024)
        writer.write(f"GET /streams/s/tail?from=0 HTTP/1.1\r\nHost: x\r\n{key}\r\n\r\n".encode())
        await reader.readline()
        async with asyncio.timeout(30.0):
            while _open(site):
                await reader.read(1)
                await asyncio.sleep(0.01)
        async with site.reader.tail("s?from=0") as tail:
            assert (await tail.next()).data["index"] == 0
        writer.transport.abort()

    served(gateway_config(tmp_path, tails_max=1), test)


async def test_many_readers_get_everything_once(site: Site) -> None:
    stream = await site.node.stream("s", partitions=3)

    async def read() -> list[tuple[int, int]]:
        """Read all, losing the connection after each few events."""
        seen: list[tuple[int, int]] = []
        position = "0:0,1:0,2:0"
        while len(seen) < 300:
            async with site.reader.tail("s", Last_Event_ID=position) as tail:
                for _ in range(min(37, 300 - len(seen))):
                    entry = (await tail.next()).data
                    seen.append((entry["partition"], entry["index"]))
                    position = tail.id
        return seen

    readers = [asyncio.create_task(read()) for _ in range(5)]
    for number in range(300):
        await stream.push(b"%d" % number, partition=number % 3)
    every = [(partition, index) for partition in range(3) for index in range(100)]
    for seen in await asyncio.gather(*readers):
        assert sorted(seen) == every


def test_following_needs_the_right_to_pull_alone(tmp_path: Path) -> None:
    async def test(site: Site) -> None:
        await site.node.stream("s")
        assert (await site.writer.get("/streams/s/tail")).refusal == (403, "gateway.right")
        answer = await site.writer.call("POST", "/tickets", json={"stream": "s"})
        assert answer.refusal == (403, "gateway.right")
        answer = await site.reader.call("POST", "/tickets", json={"stream": "none"})
        assert answer.refusal == (404, "stream.unknown")
        async with site.reader.tail("s"):
            pass

    grants = (grant("writer", "push", "subscribe"), grant("reader", "pull"))
    served(gateway_config(tmp_path, *grants), test)
