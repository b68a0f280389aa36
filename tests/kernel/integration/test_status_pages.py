"""The http listener of a running node: what people, browsers and Prometheus get of it."""

import asyncio
import json
import re
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from coroutines import handed_by
from nodes import CLIENT, connect_to, node_config
from rillnode.codecs.errors import ConfigError, TransportError
from rillnode.node.config import Config, HttpListener, MetricsTable
from rillnode.node.config.listener_tables import ApiKeyTable
from rillnode.node.entry_lines import line_formatter
from rillnode.node.http import requests
from rillnode.node.http.events import READERS_MAX
from rillnode.node.http.listener import PATHS
from rillnode.node.metrics import every_metric
from rillnode.node.runtime import Node
from rillnode.node.streamr.config import StreamrListener
from rillnode.node.testing.contract.ports import free_port

SECONDS = 60.0
TOKEN = "0123456789abcdef" * 4


@asynccontextmanager
async def node_and_pages(config: Config) -> AsyncGenerator[tuple[Node, aiohttp.ClientSession]]:
    async with Node(config) as node:
        base = f"http://{node.addresses()['http']}"
        async with aiohttp.ClientSession(base) as session:
            yield node, session


def run(
    config: Config, body: Callable[[Node, aiohttp.ClientSession], Coroutine[Any, Any, None]]
) -> None:
    async def main() -> None:
        async with node_and_pages(config) as (node, session):
            await asyncio.wait_for(body(node, session), SECONDS)

    asyncio.run(main())


node = handed_by(run, of=node_config)
session = handed_by(run, 1, of=node_config)


async def document(session: aiohttp.ClientSession, path: str, **headers: str) -> Any:
    async with session.get(path, headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.json()


async def refusal(session: aiohttp.ClientSession, path: str, **headers: str) -> tuple[int, str]:
    async with session.get(path, headers=headers) as answer:
        return answer.status, (await answer.json())["code"]


async def ask(node: Node, line: str, rest: bytes) -> tuple[int, str]:
    """Send what no library would, and read which refusal comes."""
    host, _, port = node.addresses()["http"].rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"{line} HTTP/1.1\r\nHost: {host}\r\n".encode() + rest)
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"Content-Length: (\d+)", head)
    assert length is not None
    document = json.loads(await reader.readexactly(int(length[1])))
    writer.close()
    return int(head.split()[1]), document["code"]


async def events(answer: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, Any]]:
    rest = b""
    while True:
        rest += await answer.content.readany()
        *whole, rest = rest.split(b"\n\n")
        for one in whole:
            found = re.fullmatch(rb"event: (.*)\ndata: (.*)", one)
            assert found is not None
            yield found[1].decode(), json.loads(found[2])


async def metrics(session: aiohttp.ClientSession) -> dict[tuple[str, tuple[str, ...]], float]:
    async with session.get("/metrics") as answer:
        assert answer.status == 200
        assert answer.content_type == "text/plain"
        text = await answer.text()
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_every_document_tells_what_happened(
    node: Node, session: aiohttp.ClientSession
) -> None:
    async with await connect_to(node) as client:
        stream = await client.stream("sensors/a", partitions=2)
        await stream.push_many([b'{"a": 1}', b'{"a": 2}', b"\xff"])
        await stream.push(b"text", partition=1)
        await client.set_index("dashboard", "sensors/a", 1)
        await client.send("nobody", b"lost", return_address=b"here")
        while not node.status()["undelivered"]:
            await asyncio.sleep(0.01)
        [row] = (await document(session, "/v1/streams"))["streams"]
        assert (row["name"], row["partitions"], row["entries"]) == ("sensors/a", 2, 4)
        assert (row["consumers"], row["worst_lag"]) == (1, 2)
        one = await document(session, "/v1/streams/sensors%2Fa")
        assert [extent["next_index"] for extent in one["extents"]] == [3, 1]
        assert one["positions"][0]["client_id"] == "dashboard"
        shown = await document(session, "/v1/streams/sensors%2Fa/entries?index=1&limit=5")
        assert [e["format"] for e in shown["entries"]] == ["json", "binary"]
        last = await document(session, "/v1/streams/sensors%2Fa/entries?partition=1")
        assert [e["text"] for e in last["entries"]] == ["text"]

        links = await document(session, "/v1/links")
        [link] = links["links"]
        assert (links["count"], link["state"], link["protocol"]) == (1, "open", "noise")
        assert link["peer"] == f"noise:{CLIENT.public_hex}"
        assert link["direction"] == "in"
        assert link["bytes_in"] > 100
        assert link["messages_out"] > 0

        overview = await document(session, "/v1/overview")
        assert overview["totals"]["entries"] == 4
        assert overview["totals"]["links"] == 1
        assert overview["undelivered"] == {"unknown_address": 1}
        actors = (await document(session, "/v1/actors"))["actors"]
        stream_actor = next(one for one in actors if one["class"] == "StreamActor")
        assert stream_actor["handled"] > 0
        assert stream_actor["handled_per_second"] >= 0.0

        own = (await client.about(link["route"])).owner
        assert own == link["peer"]
        assert row["route"] == one["extents"][0]["route"] == "ST_S_0_sensors/a"
        assert (await client.about(one["extents"][1]["route"])).name == "sensors/a/1"


async def test_what_has_a_route_is_listed_page_by_page(
    node: Node, session: aiohttp.ClientSession
) -> None:
    await node.stream("s", partitions=300)
    await node.spawn(lambda message, ctx: b"", address="greeter")
    seen: list[str] = []
    after: str | None = ""
    while after is not None:
        page = await document(session, f"/v1/actors?kind=stream&after={after}")
        assert len(page["routes"]) <= page["listed_max"] == 250
        seen += [one["route"] for one in page["routes"]]
        after = page["next_after"]
    assert seen == [f"ST_S_{number}_s" for number in range(300)]
    (one,) = (await document(session, "/v1/actors?pattern=greet*"))["routes"]
    assert (one["kind"], one["state"], one["mailbox"]) == ("actor", "idle", 0)
    assert (await document(session, "/v1/actors?kind=stone"))["routes"] == []
    for query, code in (
        ("after=zz", "http.after"),
        ("after=" + "00" * 3_000, "http.after"),
        ("after=09", "request.invalid"),
        ("pattern=" + "*" * 600, "request.invalid"),
    ):
        assert await refusal(session, f"/v1/actors?{query}") == (400, code)


async def test_a_subscriber_is_seen_while_it_follows(
    node: Node, session: aiohttp.ClientSession
) -> None:
    async def subscribers() -> int:
        async with asyncio.timeout(SECONDS):
            return int((await document(session, "/v1/streams/s"))["subscribers"])

    stream = await node.stream("s")
    await stream.push(b"x")
    following = stream.tail(start=0)
    await anext(following)
    assert await subscribers() == 1
    await following.aclose()
    while await subscribers():
        await asyncio.sleep(0.01)


async def test_all_listed_paths_answer(node: Node, session: aiohttp.ClientSession) -> None:
    await node.stream("s")
    for one in PATHS:
        path = one.path.replace("{name}", "s").partition("?")[0]
        if path in ("/v1/route", "/v1/session", "/v1/console"):
            continue
        async with session.get(path) as answer:
            assert answer.status == 200, path
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.headers["Cache-Control"] == "no-store"
    async with session.get("/") as answer:
        text = await answer.text()
    listed = {one.path for one in PATHS}
    for path in set(re.findall(r'href="(/[^"?]*)', text)):
        assert path in listed


async def test_entries_are_found_by_time_and_by_condition(
    node: Node, session: aiohttp.ClientSession
) -> None:
    stream = await node.stream("s")
    await stream.push_many([b'{"n": %d}' % number for number in range(25_000)])
    entries = "/v1/streams/s/entries"
    first = await document(session, f"{entries}?since=1h&limit=2")
    assert [entry["index"] for entry in first["entries"]] == [0, 1]
    assert (await document(session, f"{entries}?since=2099-01-01T00:00Z"))["entries"] == []
    found = await document(session, f"{entries}?where=n%20%3E%3D%209998&limit=3")
    assert [entry["index"] for entry in found["entries"]] == [24_997, 24_998, 24_999]
    found = await document(session, f"{entries}?where=n%20%3E%3D%209998&index=0&limit=3")
    assert [entry["index"] for entry in found["entries"]] == [9_998, 9_999]
    assert found["reached"] == 10_000  # enough for one request
    rest = await document(session, f"{entries}?where=n%20%3E%3D%209998&index=10000&limit=1")
    assert ([entry["index"] for entry in rest["entries"]], rest["reached"]) == ([10_000], 10_001)
    none = await document(session, f"{entries}?where=n%20%3D%201&since=0s&index=24999")
    assert (none["entries"], none["reached"]) == ([], 25_000)


ERRORS = (
    ("/v1/streams/none", 404, "stream.unknown"),
    ("/v1/streams/none/entries", 404, "stream.unknown"),
    ("/v1/streams/none/tail", 404, "stream.unknown"),
    ("/v1/streams/s/entries?partition=7", 404, "stream.partition"),
    ("/v1/streams/s/entries?partition=-1", 400, "http.number"),
    ("/v1/streams/s/entries?index=99999999999999999999", 400, "http.number"),
    ("/v1/streams/s/entries?limit=x", 400, "http.number"),
    ("/v1/streams/s/entries?where=mag+%3E", 400, "where.syntax"),
    ("/v1/streams/s/tail?where=mag+%3E", 400, "where.syntax"),
    ("/v1/streams/s/lines?since=5x", 400, "client.time"),
    ("/v1/streams/s/lines?partition=7", 404, "stream.partition"),
    ("/v1/streams/none/lines", 404, "stream.unknown"),
    ("/v1/streams/s/entries?before=x", 400, "http.number"),
    ("/v1/streams/s/entries?text=" + "x" * 1_025, 400, "http.text"),
    ("/v1/streams/none/history", 404, "stream.unknown"),
    ("/v1/streams?sort=size", 400, "http.sort"),
    ("/v1/streams?descending=1", 400, "http.descending"),
    ("/v1/streams?offset=-1", 400, "http.number"),
    ("/v1/streams?search=" + "x" * 257, 400, "http.search"),
    ("/v1/events?show=nothing", 400, "http.show"),
    ("/v1/events?show=streams&sort=size", 400, "http.sort"),
    ("/v1/streams/s/entries?since=soon", 400, "client.time"),
    ("/v1/streams/s/entries?since=2026-01-01", 400, "client.time"),
    ("/v1/streams/s/entries?where=a%20%3E", 400, "where.syntax"),
    ("/v1/streams/s/entries?where=%28" + "%28" * 20 + "a", 400, "where.depth"),
    ("/v1/streams/s/entries?since=1h&partition=7", 404, "stream.partition"),
    ("/v1/streams/none/entries?where=a", 404, "stream.unknown"),
    ("/v1/nonsense", 404, "http.path"),
    ("/v1/route", 405, "http.method"),
)
"""What is asked for, and the status and the code of the answer."""


async def test_what_is_not_there_is_an_error(node: Node, session: aiohttp.ClientSession) -> None:
    await node.stream("s")
    for path, status, code in ERRORS:
        assert await refusal(session, path) == (status, code), path


async def test_looking_makes_no_stream_and_writes_nothing(
    node: Node, session: aiohttp.ClientSession
) -> None:
    for path in ("/v1/streams/none", "/v1/streams/none/entries"):
        await refusal(session, path)
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        async with session.request(method, "/v1/streams/none") as answer:
            assert answer.status == 405
    assert (await document(session, "/v1/streams"))["streams"] == []


async def test_streams_are_searched_sorted_and_paged(
    node: Node, session: aiohttp.ClientSession
) -> None:
    for number in range(130):
        await node.stream(f"devices/{number:03}")
    await (await node.stream("Orders")).push_many([b"12345"] * 7)
    await (await node.stream("devices/007")).push_many([b"1"] * 9)
    async with await connect_to(node) as client:
        await client.set_index("billing", "Orders", 2)
        await client.set_index("audit", "Orders", 4)
        await client.set_index("watch", "devices/007", 8)

    async def names(query: str) -> list[str]:
        found = await document(session, f"/v1/streams?{query}")
        return [one["name"] for one in found["streams"]]

    first = await document(session, "/v1/streams")
    assert (len(first["streams"]), first["total"], first["more"]) == (100, 131, False)
    assert await names("offset=100&limit=2") == ["devices/099", "devices/100"]
    assert await names("offset=500") == []
    assert await names("descending=true&limit=1") == ["devices/129"]
    found = await document(session, "/v1/streams?search=ORD")
    assert (found["total"], found["streams"][0]["name"]) == (1, "Orders")
    row = found["streams"][0]
    assert (row["worst_lag"], row["worst_consumer"], row["lag_growing"]) == (5, "billing", False)
    assert (await names("sort=entries&descending=true"))[:2] == ["devices/007", "Orders"]
    assert (await names("sort=bytes&descending=true"))[:2] == ["Orders", "devices/007"]
    assert (await names("sort=lag&descending=true"))[:2] == ["Orders", "devices/007"]
    assert (await names("sort=lag&search=device"))[-1] != "devices/007"  # on the second page
    assert await names("sort=lag&offset=129") == ["devices/007", "Orders"]
    aged = (await document(session, "/v1/streams?sort=age&descending=true"))["streams"]
    ages = [one["created_at"] for one in aged]
    assert ages == sorted(ages)
    found = await document(session, "/v1/consumers")
    behind = [(one["client_id"], one["stream"], one["lag"]) for one in found["positions"]]
    assert behind == [
        ("billing", "Orders", 5), ("audit", "Orders", 3), ("watch", "devices/007", 1),
    ]  # fmt: skip
    assert (found["total"], found["groups"]) == (3, [])
    await (await node.stream("devices/099")).push_many([b"1"] * 100)
    async with asyncio.timeout(SECONDS):
        while (await names("sort=rate&descending=true"))[0] != "devices/099":
            await asyncio.sleep(0.1)


async def test_an_open_page_is_sent_what_it_shows(
    node: Node, session: aiohttp.ClientSession
) -> None:
    for name in ("a", "b", "c"):
        await node.stream(name)
    path = "/v1/events?show=streams&sort=name&descending=true&limit=1&stream=b"
    async with session.get(path) as answer, asyncio.timeout(SECONDS):
        found = events(answer)
        names: dict[str, Any] = {}
        for _ in range(2):
            name, event = await anext(found)
            names[name] = event
    assert [one["name"] for one in names["streams"]["streams"]] == ["c"]
    assert names["stream"]["name"] == "b"
    async with session.get("/v1/events?show=overview&stream=none") as answer:
        found = events(answer)
        assert (await anext(found))[0] == "overview"
        name, event = await anext(found)
    assert (name, event["document"]) == ("refused", "stream")


async def test_a_consumer_is_told_with_how_long_it_is_behind(
    node: Node, session: aiohttp.ClientSession
) -> None:
    stream = await node.stream("s", partitions=2)
    await stream.push(b"first")
    [entry] = await stream.pull()
    await stream.push(b"second")
    async with await connect_to(node) as client:
        await client.set_index("slow", "s", 0)
        await client.set_index("quick", "s", 2)
    shown = {
        one["client_id"]: one for one in (await document(session, "/v1/streams/s"))["positions"]
    }
    assert shown["slow"]["lag_since"] == entry.received_at
    assert shown["quick"]["lag_since"] is None
    assert not shown["slow"]["growing"]


async def test_entries_are_looked_through_either_way(
    node: Node, session: aiohttp.ClientSession
) -> None:
    stream = await node.stream("s")
    for begin in range(0, 3_000, 100):
        items = [json.dumps({"mag": n % 10, "n": n}).encode() for n in range(begin, begin + 100)]
        await stream.push_many(items, keys=[f"k{n % 3}" for n in range(100)])
    path = "/v1/streams/s/entries"

    async def shown(query: str) -> tuple[list[int], Any]:
        found = await document(session, f"{path}?{query}")
        return [one["index"] for one in found["entries"]], found

    indexes, found = await shown("limit=3")
    assert (indexes, found["before"], found["reached"]) == ([2_997, 2_998, 2_999], 2_997, 3_000)
    assert (found["first_index"], found["next_index"]) == (0, 3_000)
    assert (await shown("limit=3&before=2997"))[0] == [2_994, 2_995, 2_996]
    assert (await shown("limit=3&before=2"))[0] == [0, 1]
    assert (await shown("before=0"))[0] == []
    assert (await shown("limit=2&index=2999"))[0] == [2_999]
    indexes, found = await shown("limit=2&index=0&where=mag+%3E+8")
    assert (indexes, found["reached"], found["looked"]) == ([9, 19], 20, 20)
    indexes, found = await shown("limit=2&where=mag+%3D+3")
    assert (indexes, found["before"]) == ([2_983, 2_993], 2_983)
    assert (await shown("text=%22N%22%3A+1234"))[0] == [1_234]
    assert (await shown("key=k2&limit=1"))[0] == [2_998]
    indexes, found = await shown("text=nowhere")
    assert (indexes, found["looked"], found["before"]) == ([], 3_000, 0)
    assert (await shown("since=1h&limit=1"))[0] == [0]
    assert (await shown("since=0s&limit=1"))[1]["entries"] == []
    [entry] = await stream.pull(1_500, 1)
    came = datetime.fromtimestamp(entry.received_at / 1_000, UTC).isoformat()
    indexes, _ = await shown(f"since={quote(came)}&limit=1")
    assert indexes[0] <= 1_500

    async with session.get("/v1/streams/s/lines?index=2000&where=mag+%3D+0") as answer:
        lines = [json.loads(line) for line in (await answer.text()).splitlines()]
    assert answer.content_type == "application/x-ndjson"
    assert len(lines) == 100
    assert lines[0]["json"] == {"mag": 0, "n": 2_000}
    assert (lines[0]["index"], lines[0]["key"], lines[0]["kind"]) == (2_000, "k0", "bytes")
    # As the command line and the HTTP door have them.
    (entry,) = await stream.pull(lines[0]["index"], 1)
    assert lines[0] == json.loads(line_formatter("json")(entry))


async def test_large_entries_are_looked_through_backwards(
    node: Node, session: aiohttp.ClientSession
) -> None:
    stream = await node.stream("s")
    for n in range(12):
        await stream.push(b"%d" % n + b" " * 400_000)
    found = await document(session, "/v1/streams/s/entries?limit=5")
    assert [one["index"] for one in found["entries"]] == [7, 8, 9, 10, 11]
    assert found["entries"][0]["cut"]
    async with session.get("/v1/streams/s/lines") as answer:
        sizes = [len(json.loads(line)["text"]) for line in (await answer.text()).splitlines()]
    assert len(sizes) == 12
    assert min(sizes) > 400_000


async def test_the_last_hour_is_read_out_of_block_headers(
    node: Node, session: aiohttp.ClientSession
) -> None:
    stream = await node.stream("s", partitions=3)
    empty = await document(session, "/v1/streams/s/history")
    assert sum(empty["entries"]) == sum(empty["bytes"]) == 0
    await stream.push_many([b"1234567"] * 50)
    await stream.push(b"12", key="k", partition=2)
    hour = await document(session, "/v1/streams/s/history")
    assert len(hour["entries"]) == len(hour["bytes"]) == 60
    assert hour["period_seconds"] == 60
    assert (sum(hour["entries"]), sum(hour["bytes"])) == (51, 353)
    assert (hour["partitions"], hour["partitions_counted"]) == (3, 3)
    await node.stream("wide", partitions=300)
    wide = await document(session, "/v1/streams/wide/history")
    assert (len(wide["entries"]), wide["partitions_counted"]) == (11, 20)


async def test_a_live_tail_is_filtered(node: Node, session: aiohttp.ClientSession) -> None:
    stream = await node.stream("s")
    async with session.get("/v1/streams/s/tail?where=n+%3E%3D+7") as answer:
        shown = events(answer)
        await anext(shown)
        await stream.push_many([b'{"n": %d}' % n for n in range(10)])
        seen: list[int] = []
        async with asyncio.timeout(SECONDS):
            while len(seen) < 3:
                seen += [one["index"] for one in (await anext(shown))[1]["entries"]]
    assert seen == [7, 8, 9]


async def test_a_live_tail_shows_what_comes(node: Node, session: aiohttp.ClientSession) -> None:
    stream = await node.stream("s")
    await stream.push(b"before")
    async with session.get("/v1/streams/s/tail") as answer:
        assert answer.content_type == "text/event-stream"
        shown = events(answer)
        await anext(shown)
        await stream.push_many([f"{n}".encode() for n in range(250)])
        seen: list[int] = []
        skipped = 0
        async with asyncio.timeout(SECONDS):
            while not seen or seen[-1] < 250:
                name, event = await anext(shown)
                assert name == "entries"
                seen += [one["index"] for one in event["entries"]]
                skipped += event["skipped"]
        assert seen == sorted(set(seen))
        assert len(seen) + skipped == 250


async def test_events_are_the_documents(node: Node, session: aiohttp.ClientSession) -> None:
    await node.stream("s")
    found: dict[str, Any] = {}
    async with session.get("/v1/events") as answer, asyncio.timeout(SECONDS):
        async for name, event in events(answer):
            found[name] = event
            if len(found) == 7:
                break
    assert found["streams"]["streams"][0]["name"] == "s"
    assert found["overview"]["state"] == "ready"
    for name, event in found.items():
        assert (await document(session, f"/v1/{name}")).keys() == event.keys()


async def test_readers_are_bounded_and_end_with_the_node(tmp_path: Path) -> None:
    async with node_and_pages(node_config(tmp_path)) as (_, session):
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(session._base_url, connector=connector) as readers:  # pyright: ignore[reportPrivateUsage]
            open_ones = [await readers.get("/v1/events") for _ in range(READERS_MAX)]
            assert await refusal(readers, "/v1/events") == (503, "http.readers")
            open_ones[0].close()
            async with asyncio.timeout(SECONDS):
                while True:
                    async with readers.get("/v1/events") as answer:
                        if answer.status == 200:
                            break
                    await asyncio.sleep(0.1)


async def test_a_route_is_tried_hop_by_hop(node: Node, session: aiohttp.ClientSession) -> None:
    async def probe(route: object, **headers: str) -> tuple[int, Any]:
        async with session.post("/v1/route", json={"route": route}, headers=headers) as answer:
            return answer.status, await answer.json()

    status, found = await probe("echo")
    assert status == 200
    assert [(hop["address"], hop["state"]) for hop in found["hops"]] == [("echo", "answers")]
    assert found["hops"][0]["milliseconds"] > 0
    _, found = await probe("peer/nobody;echo")
    [hop] = found["hops"]
    assert hop["state"] == "failed"
    assert hop["reason"]
    _, found = await probe("stream")
    assert [hop["state"] for hop in found["hops"]] == ["worker"]
    assert (await probe(""))[0] == 400
    assert (await probe(";".join(["echo"] * 9)))[1]["code"] == "route.hops"
    assert (await probe(7))[0] == 400
    assert (await probe("echo", Host="evil.example"))[0] == 403
    async with session.post("/v1/route", data='{"route": "echo"}') as answer:
        assert answer.status == 415


@pytest.mark.parametrize(
    ("headers", "body", "status", "code"),
    [
        ("Content-Length: 20", b'{"route"', 408, "http.slow"),
        ("Content-Length: 50000", b" " * 5_000, 413, "http.too_large"),
        ("Content-Length: 3\r\nContent-Encoding: gzip", b"abc", 415, "http.type"),
        ("Content-Length: 2", b"[]", 400, "http.body"),
    ],
)
def test_a_body_that_never_ends_or_is_none_is_answered(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    headers: str,
    body: bytes,
    status: int,
    code: str,
) -> None:
    monkeypatch.setattr(requests, "CHUNK_SECONDS", 0.1 if status == 408 else SECONDS)

    async def try_it(node: Node, session: aiohttp.ClientSession) -> None:
        rest = f"Content-Type: application/json\r\n{headers}\r\n\r\n".encode() + body
        assert await ask(node, "POST /v1/route", rest) == (status, code)
        async with session.post("/v1/route", json={"route": "echo"}) as answer:
            assert answer.status == 200, "who is slow keeps nobody else from trying a route"

    run(node_config(tmp_path), try_it)


def test_the_token_is_asked_for_where_there_is_data(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    table = HttpListener(listen="127.0.0.1:0", token_file=file)

    async def body(node: Node, session: aiohttp.ClientSession) -> None:
        await (await node.stream("s")).push(b"x")
        guarded = [one.path.replace("{name}", "s") for one in PATHS if one.is_data]
        assert len(guarded) == 5
        for path in guarded:
            method = "POST" if path == "/v1/route" else "GET"
            async with session.request(method, path) as answer:
                assert answer.status == 401, path
                assert answer.headers["WWW-Authenticate"] == "Bearer"
        no_text = await ask(node, "GET /v1/config", b"Authorization: Bearer \xff\xfe\r\n\r\n")
        assert no_text == (401, "http.token")
        shown = await document(session, "/v1/streams/s/entries", Authorization=f"Bearer {TOKEN}")
        assert len(shown["entries"]) == 1
        assert (await document(session, "/v1/overview"))["entries"] == "token"

    run(replace(node_config(tmp_path / "data"), http=table), body)


def test_no_page_tells_a_secret(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    key_hash = "5eed" * 16
    config = replace(
        node_config(tmp_path / "data"), http=HttpListener(listen="127.0.0.1:0", token_file=token)
    ).having(
        StreamrListener(
            listen="127.0.0.1:0", apikeys=(ApiKeyTable(name="dashboard", hash=key_hash),)
        )
    )

    async def body(node: Node, session: aiohttp.ClientSession) -> None:
        await (await node.stream("s")).push(b"x")
        secrets = [file.read_text().strip() for file in (tmp_path / "data").glob("*.key")]
        secrets += [TOKEN, key_hash]
        assert len(secrets) >= 4
        for one in PATHS:
            path = one.path.replace("{name}", "s")
            if path.endswith(("/tail", "/events", "/route", "/session", "/console")):
                continue
            async with session.get(path, headers={"Authorization": f"Bearer {TOKEN}"}) as answer:
                assert answer.status == 200
                text = await answer.text()
            for secret in secrets:
                assert secret not in text, path
        shown = await document(session, "/v1/config", Authorization=f"Bearer {TOKEN}")
        assert shown["streamr"]["apikey"][0] == {"name": "dashboard", "hash": "***"}

    run(config, body)


async def test_metrics_count_what_happened(node: Node, session: aiohttp.ClientSession) -> None:
    async with await connect_to(node) as client:
        stream = await client.stream("s", partitions=2)
        await stream.push_many([b"a", b"b", b"c"])
        await client.set_index("c1", "s", 1)
        while (await metrics(session))[("rillnode_links", ("open", "noise"))] != 1:
            await asyncio.sleep(0.01)
        found = await metrics(session)
    assert found[("rillnode_entries_appended_total", ())] == 3
    assert found[("rillnode_stream_last_index", ("0", "s"))] == 2
    assert found[("rillnode_stream_last_index", ("1", "s"))] == -1
    assert found[("rillnode_subscription_lag_messages", ("c1", "s"))] == 2
    assert found[("rillnode_messages_total", ("in", "noise"))] > 0
    assert found[("rillnode_handshakes_total", ("ok", "noise"))] == 1
    assert found[("rillnode_handshake_seconds_count", ("noise",))] == 1
    assert found[("rillnode_ready", ("store",))] == 1
    names = {name for name, _ in found}
    # Sinks and decode errors have no sample before there is one.
    assert "rillnode_actor_mailbox_messages" in names
    host, _, port = node.addresses()["noise"].rpartition(":")
    with socket.create_connection((host, int(port))) as bad:
        bad.sendall(b"\x00\x04nono" * 20)
        while (await metrics(session))[("rillnode_handshakes_total", ("failed", "noise"))] < 1:
            await asyncio.sleep(0.01)
    failed = (await document(session, "/v1/links"))["failed"]
    assert failed[0]["protocol"] == "noise"


async def test_what_links_carried_is_not_forgotten_with_them(
    node: Node, session: aiohttp.ClientSession
) -> None:
    async with await connect_to(node) as client:
        await (await client.stream("s")).push(b"x")
    key = ("rillnode_message_bytes_total", ("in", "noise"))
    before = (await metrics(session))[key]
    while (await metrics(session))[("rillnode_links", ("open", "noise"))]:
        await asyncio.sleep(0.01)
    assert (await metrics(session))[key] >= before > 0


def test_metrics_of_streams_are_capped(tmp_path: Path) -> None:
    async def body(node: Node, session: aiohttp.ClientSession) -> None:
        for number in range(5):
            await node.stream(f"s{number}")
            await node.client.set_index("c", f"s{number}", 0)
        found = await metrics(session)
        assert sum(name == "rillnode_stream_bytes" for name, _ in found) == 3
        lags = [labels for name, labels in found if name == "rillnode_subscription_lag_messages"]
        assert len(lags) == 3
        assert (await document(session, "/v1/streams"))["total"] == 5  # pages show them all

    run(replace(node_config(tmp_path), metrics=MetricsTable(streams_max=3)), body)


def test_metrics_are_described_once() -> None:
    names = [one.name for one in every_metric()]
    assert len(names) == len(set(names))
    for one in every_metric():
        assert one.name.endswith("_total") == (one.kind == "counter"), one.name
        assert list(one.labels) == sorted(one.labels), one.name
        assert one.text.endswith("."), one.name


@pytest.mark.needs("promtool")
async def test_promtool_finds_no_fault_with_the_metrics(
    node: Node, session: aiohttp.ClientSession
) -> None:
    async with await connect_to(node) as client:
        await (await client.stream("s")).push(b"x")
        async with session.get("/metrics") as answer:
            text = await answer.read()
    checking = await asyncio.create_subprocess_exec(
        "promtool", "check", "metrics",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await checking.communicate(text)
    assert (checking.returncode, said) == (0, b"")


async def test_two_nodes_of_one_process_count_for_themselves(tmp_path: Path) -> None:
    async with (
        node_and_pages(node_config(tmp_path / "a")) as (a, of_a),
        node_and_pages(node_config(tmp_path / "b")) as (_, of_b),
    ):
        await (await a.stream("s")).push(b"x")
        key = ("rillnode_entries_appended_total", ())
        assert (await metrics(of_a))[key] == 1
        assert (await metrics(of_b))[key] == 0


def test_a_port_that_is_taken_is_an_error_with_a_way_out(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        table = HttpListener(listen=f"127.0.0.1:{taken.getsockname()[1]}")
        config = replace(node_config(tmp_path), http=table)
        with pytest.raises(TransportError, match="choose another port") as caught:
            asyncio.run(Node(config).start())
        assert caught.value.code == "listen.in_use"


def test_a_certificate_that_is_none_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "c.pem"
    file.write_text("nothing")
    table = HttpListener(listen="127.0.0.1:0", tls_cert=file, tls_key=file)
    with pytest.raises(ConfigError, match=r"http\.tls_cert"):
        asyncio.run(Node(replace(node_config(tmp_path / "data"), http=table)).start())


async def test_a_peer_that_cannot_be_reached_is_told(
    node: Node, session: aiohttp.ClientSession
) -> None:
    port = free_port()
    await node.client.send(f"1#127.0.0.1:{port};echo", b"x", return_address=b"back")
    async with asyncio.timeout(SECONDS):
        while True:
            peers = (await document(session, "/v1/peers"))["peers"]
            if peers and peers[0]["last_error"]:
                break
            await asyncio.sleep(0.01)
    assert str(port) in peers[0]["address"]
