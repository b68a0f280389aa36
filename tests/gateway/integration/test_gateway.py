"""The HTTP door of a running node: pushing, reading, saved indexes, and what is refused."""

import asyncio
import logging
import re
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from certificates import make_certificate
from coroutines import handed_by
from gateway_support import (
    KEYS,
    NOBODY,
    READER,
    WRITER,
    Answer,
    Caller,
    Site,
    gateway_config,
    grant,
    place,
    served,
)
from nodes import node_config
from rillnode.actors.core.streams import searching
from rillnode.codecs.errors import ConfigError
from rillnode.codecs.gateway import events
from rillnode.codecs.limits import ENTRY_BYTES_MAX
from rillnode.node.client.stream import Stream
from rillnode.node.config import QuotaTable
from rillnode.node.config.loading import check_config
from rillnode.node.entry_lines import InputReader
from rillnode.node.gateway import bodies, plugin
from rillnode.node.gateway.config import GatewayListener
from rillnode.node.http import requests
from turn_support import counted_by_loop_turn

site = handed_by(served, of=gateway_config)


LINES = "application/x-ndjson"
CLOUD = {
    "ce-specversion": "1.0", "ce-id": "7", "ce-source": "/sensors", "ce-type": "reading",
}  # fmt: skip


def placed(*places: tuple[int, int]) -> dict[str, Any]:
    return {"indexes": [{"partition": partition, "index": index} for partition, index in places]}


async def test_the_command_to_try_is_a_push(site: Site) -> None:
    (command,) = site.node.to_try("quakes")
    curl, option, data, url = shlex.split(command)
    assert (curl, option) == ("curl", "-d")
    stream = await site.node.stream("quakes")
    async with site.http.post(
        url, data=data, headers={"Authorization": f"Bearer {WRITER}"}
    ) as answer:
        assert answer.status == 200, await answer.text()
    (entry,) = await stream.pull()
    assert entry.data == data.encode() == b'{"mag": 5.1}'


def test_what_is_pushed_is_read(tmp_path: Path) -> None:
    async def first(site: Site) -> None:
        pushed = await site.writer.push("a%2Fb%20c", b"one")
        assert (pushed.status, pushed.body) == (200, placed((0, 0)))
        lines = b'{"n":1}\n\n[2]\r\n"three"'
        pushed = await site.writer.push("a%2Fb%20c", lines, Content_Type=LINES)
        assert pushed.body == placed((0, 1), (0, 2), (0, 3))
        assert await (await site.node.stream("a/b c")).pull(0) != []

    async def again(site: Site) -> None:
        read = await site.reader.get("/streams/a%2Fb%20c")
        assert read.status == 200
        assert read.headers["Content-Type"] == LINES
        assert read.following == "4"
        assert [one.get("json", one.get("text")) for one in read.body] == [
            "one", {"n": 1}, [2], '"three"',
        ]  # fmt: skip
        read = await site.reader.get(
            "/streams/a%2Fb%20c?from=1&limit=2", Accept="application/jsonl"
        )
        assert read.following == "3"
        assert read.body.count(b"\n") == 2
        read = await site.reader.get("/streams/a%2Fb%20c?from=9")
        assert (read.body, read.following) == ([], "9")
        read = await site.reader.get("/streams/a%2Fb%20c?limit=0")
        assert (read.body, read.following) == ([], "0")
        read = await site.reader.get("/streams/a%2Fb%20c?from=end")
        assert (read.body, read.following) == ([], "4")
        cbor = await site.reader.get("/streams/a%2Fb%20c?limit=1", Accept="application/cbor")
        assert cbor.headers["Content-Type"] == "application/cbor"
        assert cbor.body[0] == 0x81
        assert b"Cone" in cbor.body

    served(gateway_config(tmp_path), first, again)


async def test_keys_headers_and_partitions(site: Site) -> None:
    stream = await site.node.stream("s", partitions=4)
    where = {key: stream.partition_of(key) for key in ("a", "b", "c", "5")}
    lines = b'{"d":{"id":"a"}}\n{"d":{"id":"b"}}\n{"d":{"id":5}}\n'
    pushed = await site.writer.call(
        "POST", "/streams/s?key_field=d.id", lines, {"Content-Type": LINES}
    )
    found = [one["partition"] for one in pushed.body["indexes"]]
    assert found == [where["a"], where["b"], where["5"]]
    pushed = await site.writer.push(
        "s?partition=3", b"x", Rillnode_Key="c", Rillnode_Header_Sent_By="me"
    )
    (at,) = pushed.body["indexes"]
    assert at["partition"] == 3
    (entry,) = await stream.pull(at["index"], partition=3)
    assert (entry.data, entry.key, entry.headers) == (b"x", b"c", {"sent-by": b"me"})
    read = await site.reader.get(f"/streams/s?partition=3&from={at['index']}")
    assert (read.body[0]["key"], read.body[0]["headers"]) == ("c", {"sent-by": "me"})
    whole = await site.reader.get("/streams/s")
    assert len(whole.body) == 4
    following = whole.headers["Rillnode-Next"]
    assert following.count(":") == 4
    assert (await site.reader.get(f"/streams/s?from={following}")).body == []
    assert len((await site.reader.get("/streams/s?from=3:0")).body) == 4


async def test_cloudevents_in_each_mode(site: Site) -> None:
    structured = (
        b'{"specversion":"1.0","id":"7","source":"/sensors","type":"reading",'
        b'"datacontenttype":"application/json","data":{"celsius":20}}'
    )
    answers = [
        await site.writer.push("s", structured, Content_Type="application/cloudevents+json"),
        await site.writer.call(
            "POST", "/streams/s", b'{"celsius":20}',
            {**CLOUD, "Content-Type": "application/json"},
        ),
        await site.writer.push(
            "s", b"[%s,%s]" % (structured, structured),
            Content_Type="application/cloudevents-batch+json; charset=utf-8",
        ),
    ]  # fmt: skip
    assert [answer.body for answer in answers] == [
        placed((0, 0)), placed((0, 1)), placed((0, 2), (0, 3)),
    ]  # fmt: skip
    for entry in (await site.reader.get("/streams/s")).body:
        assert entry["json"] == {"celsius": 20}
        assert entry["headers"] == {**CLOUD, "content-type": "application/json"}


async def test_an_event_without_data_may_say_its_type(site: Site) -> None:
    json = {"Content-Type": "application/json"}
    structured = msgspec.json.encode(
        {
            **{name[3:]: value for name, value in CLOUD.items()},
            "datacontenttype": json["Content-Type"],
        }
    )
    await site.writer.push("s", structured, Content_Type="application/cloudevents+json")
    answer = await site.writer.call("POST", "/streams/s", b"", {**CLOUD, **json})
    assert answer.body == placed((0, 1))
    one, other = (await site.reader.get("/streams/s")).body
    assert (one["text"], one["headers"]) == (other["text"], other["headers"])
    assert (await site.writer.push("s", b"", Content_Type=json["Content-Type"])).status == 400


async def test_lines_are_pushed_as_they_come(site: Site) -> None:
    arrived = asyncio.Event()

    async def lines() -> object:
        yield b'{"n":0}\n{"n"'
        await arrived.wait()
        yield b":1}\n"

    async def push() -> Answer:
        async with site.http.post(
            f"{site.base}/streams/s", data=lines(),
            headers=site.writer.headers({"Content-Type": LINES}),
        ) as answer:  # fmt: skip
            return Answer(answer.status, await answer.json(), answer.headers.copy())

    stream = await site.node.stream("s")
    pushing = asyncio.create_task(push())
    async for entry in stream.tail(start=0):
        assert entry.data == b'{"n":0}'
        break
    arrived.set()
    assert (await pushing).body == placed((0, 0), (0, 1))


async def test_what_is_sent_again_under_its_key_is_stored_once(site: Site) -> None:
    stream = await site.node.stream("s")
    own = {"Idempotency_Key": "order-7"}
    first = await site.writer.push("s", b"1", **own)
    assert first.body == placed((0, 0))
    await stream.push(b"another one's")
    again = await site.writer.push("s", b"1", **own)
    assert (again.status, again.body) == (200, first.body)
    for data, more in (
        (b"2", {}), (b"1", {"Rillnode_Key": "k"}), (b"1", {"Rillnode_Header_a": "b"}),
    ):  # fmt: skip
        other = await site.writer.push("s", data, **own, **more)
        assert other.refusal == (422, "once.other")
    assert [one.data for one in await stream.pull()] == [b"1", b"another one's"]
    for key in ("", "k" * 256, "\u00fc"):
        refused = await site.writer.push("s", b"1", Idempotency_Key=key)
        assert refused.refusal == (400, "once.key")
    refused = await site.writer.push(
        "none", b"1\n" * 5_000, Content_Type=LINES, Idempotency_Key="many"
    )
    assert refused.refusal == (413, "once.size")
    assert (await site.caller(NOBODY).push("s", b"1", **own)).refusal == (404, "stream.unknown")


async def test_lines_under_a_key_are_stored_once_in_each_partition(site: Site) -> None:
    stream = await site.node.stream("s", partitions=3)
    entries = [b'{"d":"%d"}' % number for number in range(50)]
    own = {"Content_Type": LINES, "Idempotency_Key": "lines"}
    first = await site.writer.push("s?key_field=d", b"\n".join(entries), **own)
    again = await site.writer.push("s?key_field=d", b"\n".join(entries), **own)
    assert (again.status, again.body) == (200, first.body)
    less = await site.writer.push("s?key_field=d", b"\n".join(entries[:-1]), **own)
    assert less.refusal == (422, "once.other")
    for entry, at in zip(entries, first.body["indexes"], strict=True):
        (found,) = await stream.pull(at["index"], 1, partition=at["partition"])
        assert found.data == entry
    counts = [len(await stream.pull(0, 100, partition=number)) for number in range(3)]
    assert sum(counts) == 50
    assert min(counts) > 0


@pytest.mark.parametrize(
    ("rest", "status", "code"),
    [
        (b"", 408, "http.slow"),
        (b"186a0\r\n" + b"\n" * 100_000, 413, "http.too_large"),
        (b"2\r\n{\n\r\n", 400, "input.format"),
        (b"no chunk\r\n", 400, "http.broken"),
    ],
)
def test_what_was_stored_of_a_body_that_breaks_off_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rest: bytes, status: int, code: str
) -> None:
    monkeypatch.setattr(requests, "CHUNK_SECONDS", 0.3 if code == "http.slow" else 60.0)

    async def test(site: Site) -> None:
        stream = await site.node.stream("s")
        reader, writer = await asyncio.open_connection(*site.base[len("http://") :].split(":"))
        head = {"Host": "x", "Content-Type": LINES, "Transfer-Encoding": "chunked"}
        writer.write(b"POST /streams/s HTTP/1.1\r\n")
        for name, value in site.writer.headers(head).items():
            writer.write(f"{name}: {value}\r\n".encode())
        writer.write(b"\r\n4\r\n1\n2\n\r\n")
        while len(await stream.pull()) < 2:
            await asyncio.sleep(0.01)
        writer.write(rest)
        told = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"Content-Length: ([0-9]+)", told)
        assert length is not None
        body = msgspec.json.decode(await reader.readexactly(int(length[1])))
        assert (body["status"], body["code"]) == (status, code)
        assert body["indexes"] == placed((0, 0), (0, 1))["indexes"]
        if code == "http.broken":
            assert await reader.read() == b"", "where a request would begin cannot be told"
        writer.close()

    served(gateway_config(tmp_path, body_bytes_max=50_000), test)


@pytest.mark.parametrize(
    "name",
    ["Rillnode-Key", "Rillnode-Header-A", "Idempotency-Key", "Authorization", "Last-Event-ID"],
)
async def test_a_header_that_comes_twice_is_no_guess(site: Site, name: str) -> None:
    await site.writer.push_texts("s", ["0"])
    named = [(name, "0"), (name, "1")]
    if name != "Authorization":
        named += site.writer.headers().items()
    tail = name == "Last-Event-ID"
    method, path = ("GET", "/streams/s/tail") if tail else ("POST", "/streams/s")
    async with site.http.request(method, site.base + path, headers=named, data=b"") as answer:
        body = await answer.json(content_type=None)
    assert (body["status"], body["code"]) == (400, "http.repeated")


async def test_a_batch_with_a_wrong_event_is_not_stored(site: Site) -> None:
    await site.node.stream("s")
    event = {"specversion": "1.0", "id": "7", "source": "/sensors", "type": "reading"}
    for wrong, refusal in (
        ({"partitionkey": "k" * 1_025}, (400, "entries.key")),
        ({"x": "y" * 20_000}, (400, "entries.headers")),
        ({"data": "z" * ENTRY_BYTES_MAX}, (413, "entries.size")),
        ({"specversion": "0.3"}, (400, "gateway.event")),
    ):
        batch = msgspec.json.encode([event, event, {**event, **wrong}, event])
        named = {"Content_Type": "application/cloudevents-batch+json"}
        for once in ({}, {"Idempotency_Key": "k"}):
            answer = await site.writer.push("s", batch, **named, **once)
            assert answer.refusal == refusal
            assert "indexes" not in answer.body
    assert (await site.reader.get("/streams/s")).body == []


async def test_other_work_is_done_while_many_entries_are_read(site: Site) -> None:
    await site.node.stream("s")
    lines = {"Content_Type": LINES}
    async with counted_by_loop_turn(InputReader, "feed") as fed:
        assert (await site.writer.push("s", b"\n" * 1_000_000, **lines)).body == placed()
    assert fed.total >= 1_000_000 // bodies.TURN_BYTES
    assert fed.most == 1
    async with counted_by_loop_turn(Stream, "push_nowait") as pushed:
        assert (await site.writer.push("s", b"1\n" * 5_000, **lines)).status == 200
    assert (pushed.total, pushed.most <= plugin.BLOCK_ENTRIES) == (5_000, True)
    async with counted_by_loop_turn(plugin, "line") as told:
        assert len((await site.reader.get("/streams/s?limit=5000")).body) == 5_000
    assert (told.total, told.most) == (5_000, bodies.TURN_ENTRIES)
    cbor = {"Accept": "application/cbor"}
    async with counted_by_loop_turn(plugin, "encode_entry") as told:
        assert len((await site.reader.get("/streams/s?limit=5000", **cbor)).body) > 5_000
    assert (told.total, told.most) == (5_000, bodies.TURN_ENTRIES)
    large = [b'["%s"]' % (b"x" * 500_000)] * 4
    await (await site.node.stream("large")).push_many(large)
    async with counted_by_loop_turn(plugin, "line") as told:
        assert len((await site.reader.get("/streams/large")).body) == 4
    assert (told.total, told.most) == (4, 1)
    event = msgspec.json.encode({"specversion": "1.0", "id": "7", "source": "/", "type": "t"})
    batch = b"[" + b",".join([event] * 500) + b"]"
    async with counted_by_loop_turn(events, "read_structured") as decoded:
        named = {"Content_Type": "application/cloudevents-batch+json"}
        assert (await site.writer.push("s", batch, **named)).status == 200
    assert (decoded.total, decoded.most) == (500, bodies.TURN_ENTRIES)


async def test_what_was_stored_before_an_error_is_told(site: Site) -> None:
    async def lines() -> object:
        yield b"1\n2\n"
        await asyncio.sleep(0.2)
        yield b"no JSON\n3\n"

    async with site.http.post(
        f"{site.base}/streams/s", data=lines(),
        headers=site.writer.headers({"Content-Type": LINES}),
    ) as answer:  # fmt: skip
        assert answer.status == 400
        body = await answer.json(content_type=None)
    assert body["code"] == "input.format"
    assert "line 3" in body["text"]
    assert body["indexes"] == placed((0, 0), (0, 1))["indexes"]
    # What comes together is stored together, or not at all.
    refused = await site.writer.push("s", b"4\nno JSON\n", Content_Type=LINES)
    assert refused.refusal == (400, "input.format")
    assert "indexes" not in refused.body
    assert (await site.reader.get("/streams/s?from=end")).following == "2"


@pytest.mark.parametrize("once", [{}, {"Idempotency-Key": "k"}])
def test_a_body_that_its_key_does_not_outlive_is_stored_no_further(
    tmp_path: Path, once: dict[str, str]
) -> None:
    config = gateway_config(tmp_path)
    gateway = config.table(GatewayListener)
    assert gateway is not None

    async def test(site: Site) -> None:
        stream = await site.node.stream("s")

        async def lines() -> AsyncIterator[bytes]:
            yield b"1\n"
            while not once and not await stream.pull():
                await asyncio.sleep(0.01)
            site.node.reload(config.having(msgspec.structs.replace(gateway, apikeys=KEYS[1:])))
            yield b"2\n"

        named = site.writer.headers({"Content-Type": LINES, **once})
        async with site.http.post(f"{site.base}/streams/s", data=lines(), headers=named) as answer:
            body = await answer.json(content_type=None)
        assert (body["status"], body["code"]) == (401, "gateway.key")
        stored = [] if once else [b"1"]
        assert [one.data for one in await stream.pull()] == stored
        assert len(body.get("indexes", ())) == len(stored)

    served(config, test)


def test_indexes_are_saved_and_never_go_back(tmp_path: Path) -> None:
    path = "/streams/s/indexes/my%2Fclient"

    async def save(site: Site, position: str | int, query: str = "") -> str:
        answer = await site.reader.call("PUT", path + query, json={"position": position})
        assert answer.status == 200, answer.body
        return place(answer.body["position"])

    async def first(site: Site) -> None:
        await site.node.stream("s", partitions=2)
        assert (await site.reader.get(path)).body == {"position": ""}
        assert await save(site, "0:17,1:4") == "0:17,1:4"
        assert await save(site, "1:3") == "1:4"
        assert await save(site, 18, "?partition=0") == "18"

    async def again(site: Site) -> None:
        saved = (await site.reader.get(path)).body["position"]
        assert place(saved) == "0:18,1:4"
        assert place((await site.reader.get(f"{path}?partition=1")).body["position"]) == "4"
        assert await site.node.client.get_index("my/client", "s", partition=0) == 18
        assert await save(site, saved) == "0:18,1:4"

    async def anew(site: Site) -> None:
        saved = (await site.reader.get(path)).body["position"]
        await site.node.client.remove("s")
        await site.node.stream("s", partitions=2)
        for answer in (
            await site.reader.call("PUT", path, json={"position": saved}),
            await site.reader.get(f"/streams/s?from={saved}"),
        ):
            assert answer.refusal == (410, "stream.removed")
        assert (await site.reader.get(path)).body == {"position": ""}

    served(gateway_config(tmp_path), first, again, anew)


Ask = Callable[[Caller], Awaitable[Answer]]


def call(method: str, path: str, data: bytes | None = None, **headers: str) -> Ask:
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    return lambda caller: caller.call(method, path, data, named)


WRONG: dict[str, tuple[Ask, int, str]] = {
    "no path": (call("GET", "/"), 404, "http.path"),
    "too much path": (call("GET", "/streams/s/tail/more"), 404, "http.path"),
    "a slash that is none": (call("GET", "/streams/a/b"), 404, "http.path"),
    "no name": (call("GET", "/streams/"), 404, "http.path"),
    "a method": (call("DELETE", "/streams/s"), 405, "http.method"),
    "another method": (call("POST", "/streams/s/tail", b""), 405, "http.method"),
    "a strange method": (call("PATCH", "/streams/s"), 405, "http.method"),
    "no method at all": (call("BREW", "/streams/s"), 400, "http.request"),
    "an escape": (call("GET", "/streams/%zz"), 400, "http.name"),
    "a name that is no text": (call("GET", "/streams/%FF"), 400, "http.name"),
    "a client that is no text": (call("GET", "/streams/s/indexes/%FF"), 400, "http.name"),
    "a long name": (call("POST", "/streams/" + "x" * 513, b"1"), 400, "stream.invalid"),
    "a long client": (call("GET", "/streams/s/indexes/" + "x" * 513), 400, "index.invalid"),
    "no stream": (call("GET", "/streams/none"), 404, "stream.unknown"),
    "no stream to follow": (call("GET", "/streams/none/tail"), 404, "stream.unknown"),
    "a position": (call("GET", "/streams/s?from=x"), 400, "gateway.position"),
    "no position": (call("GET", "/streams/s?from="), 400, "gateway.position"),
    "a partition of a position": (call("GET", "/streams/s?from=5:1"), 400, "gateway.position"),
    "an event's id": (
        call("GET", "/streams/s/tail", Last_Event_ID="x"), 400, "gateway.position",
    ),
    "a limit": (call("GET", "/streams/s?limit=-1"), 400, "http.number"),
    "a high limit": (call("GET", "/streams/s?limit=10001"), 400, "http.number"),
    "a partition": (call("GET", "/streams/s?partition=x"), 400, "http.number"),
    "no partition": (call("GET", "/streams/s?partition=1"), 404, "stream.partition"),
    "no partition to push to": (
        call("POST", "/streams/s?partition=1", b"x"), 404, "stream.partition",
    ),
    "Accept": (call("GET", "/streams/s", Accept="text/html, image/*"), 406, "http.accept"),
    "Accept nothing": (call("GET", "/streams/s", Accept="*/*;q=0"), 406, "http.accept"),
    "Accept of a tail": (
        call("GET", "/streams/s/tail", Accept="application/json"), 406, "http.accept",
    ),
    "JSON": (
        call("POST", "/streams/s", b"{", Content_Type="application/json"), 400, "http.body",
    ),
    "a line": (call("POST", "/streams/s", b"{\n", Content_Type=LINES), 400, "input.format"),
    "a line without its key": (
        call("POST", "/streams/s?key_field=a", b"{}\n", Content_Type=LINES), 400, "input.key",
    ),
    "an event": (
        call("POST", "/streams/s", b"{}", Content_Type="application/cloudevents+json"),
        400, "gateway.event",
    ),
    "a binary event": (call("POST", "/streams/s", b"{}", ce_id="1"), 400, "gateway.event"),
    "events of another format": (
        call("POST", "/streams/s", b"", Content_Type="application/cloudevents+avro"),
        415, "http.type",
    ),
    "a form": (
        call("POST", "/streams/s", b"", Content_Type="multipart/form-data; boundary=x"),
        415, "http.type",
    ),
    "a compressed body": (
        call("POST", "/streams/s", b"x", Content_Encoding="gzip"), 415, "http.type",
    ),
    "a body compressed twice": (
        call("POST", "/streams/s", b"x", Content_Encoding="gzip, br"), 415, "http.type",
    ),
    "a body that is deflated": (
        call("POST", "/streams/s", b"x", Content_Encoding="deflate"), 415, "http.type",
    ),
    "a time": (call("GET", "/streams/s?since=yesterday"), 400, "client.time"),
    "a time to end at": (call("GET", "/streams/s?until=1"), 400, "client.time"),
    "a condition": (call("GET", "/streams/s?where="), 400, "where.syntax"),
    "a condition of a tail": (call("GET", "/streams/s/tail?where=(("), 400, "where.syntax"),
    "a deep condition": (call("GET", "/streams/s?where=" + "(" * 100), 400, "where.depth"),
    "a long condition": (call("GET", "/streams/s?where=" + "a" * 5_000), 400, "where.length"),
    "another charset": (
        call("POST", "/streams/s", b"x", Content_Type="text/plain; charset=utf-16"),
        415, "http.type",
    ),
    "a large key": (
        call("POST", "/streams/s", b"x", Rillnode_Key="k" * 1_025), 400, "entries.key",
    ),
    "many headers": (
        call(
            "POST", "/streams/s", b"x",
            **{f"Rillnode_Header_{number}": "x" for number in range(65)},
        ),
        400, "entries.headers",
    ),
    "indexes that are no JSON": (
        call("PUT", "/streams/s/indexes/c", b"17", Content_Type="application/json"),
        400, "http.body",
    ),
    "indexes of another type": (call("PUT", "/streams/s/indexes/c", b"17"), 415, "http.type"),
    "indexes without a position": (
        call("PUT", "/streams/s/indexes/c", b"{}", Content_Type="application/json"),
        400, "gateway.position",
    ),
    "a ticket for nothing": (
        call("POST", "/tickets", b"{}", Content_Type="application/json"), 404, "stream.unknown",
    ),
    "a ticket that is none": (
        call("POST", "/tickets", b"[]", Content_Type="application/json"), 400, "http.body",
    ),
}  # fmt: skip


def test_what_is_wrong_has_a_status_a_code_and_a_sentence(tmp_path: Path) -> None:
    async def test(site: Site) -> None:
        await site.writer.push_texts("s", ["0"])
        for what, (ask, status, code) in WRONG.items():
            answer = await ask(site.writer)
            assert answer.refusal == (status, code), (what, answer.body)
            if status == 405:
                assert "OPTIONS" in answer.headers["Allow"]
        read = await site.reader.get("/streams/s")
        assert [one["text"] for one in read.body] == ["0"], "nothing of that was stored"
        status = site.node.status()["gateway"]
        assert status["counters"]["stream.unknown"] >= 3

    grants = (grant("writer", "push", "pull"), grant("reader", "pull"))
    config = gateway_config(tmp_path, *grants)

    async def make(site: Site) -> None:
        await site.node.stream("s")

    served(config, make, test)


async def test_who_may_do_nothing_cannot_tell_what_there_is(site: Site) -> None:
    def named(name: str) -> list[Ask]:
        return [
            call("GET", f"/streams/{name}"),
            call("GET", f"/streams/{name}/tail"),
            call("POST", f"/streams/{name}", b"x"),
            call("GET", f"/streams/{name}/indexes/c"),
            call(
                "POST", "/tickets", msgspec.json.encode({"stream": name}),
                Content_Type="application/json",
            ),
        ]  # fmt: skip

    await site.writer.push_texts("there", ["x"])
    for key in (NOBODY, None):
        caller = site.caller(key)
        for there, none in zip(named("there"), named("none"), strict=True):
            one, other = await there(caller), await none(caller)
            assert one.refusal == other.refusal == (404, "stream.unknown")
            texts = [str(found.body).replace("there", "none") for found in (one, other)]
            assert texts[0] == texts[1]
    refused = await site.reader.push("there")
    assert refused.refusal == (403, "gateway.right")
    assert "apikey:reader may not push" in refused.body["text"]
    for wrong in ("Bearer x", "Basic x", "Bearer", "", WRITER):
        answer = await site.http.get(f"{site.base}/streams/there", headers={"Authorization": wrong})
        assert answer.status == 401
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        assert (await answer.json(content_type=None))["code"] == "gateway.key"


def test_anybody_may_do_what_anybody_is_granted(tmp_path: Path) -> None:
    anybody = grant("x", "pull", streams="open")

    async def test(site: Site) -> None:
        await site.node.stream("open")
        assert (await site.caller(None).get("/streams/open")).status == 200
        assert (await site.caller(None).get("/streams/s")).status == 404
        assert (await site.caller(None).get("/openapi.json")).status == 200

    config = gateway_config(tmp_path, msgspec.structs.replace(anybody, who="anonymous"))
    served(config, test)


def test_bodies_are_bounded_in_bytes_entries_and_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "CHUNK_SECONDS", 0.3)
    monkeypatch.setattr(bodies, "PUSH_ENTRIES_MAX", 10)
    monkeypatch.setattr(plugin, "HELD_BYTES", 1_000_000)

    async def raw(site: Site, head: str, body: bytes = b"") -> bytes:
        host, port = site.base.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        key = f"Host: x\r\nAuthorization: Bearer {WRITER}\r\n"
        writer.write(f"POST /streams/s HTTP/1.1\r\n{key}{head}\r\n\r\n".encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        answer += await reader.readuntil(b"}") if b"json" in answer else b""
        writer.close()  # the node would read on for a while
        return answer

    async def test(site: Site) -> None:
        body_max = 4_000_000
        for large in (b"x" * (body_max + 1), b'{"n":1}\n' * (body_max // 8 + 1)):
            answer = await site.writer.push("s", large)
            assert answer.refusal == (413, "http.too_large")
            assert answer.headers["Connection"] == "close"
        answer = await site.writer.push("s", b"x" * (ENTRY_BYTES_MAX + 1))
        assert answer.refusal == (413, "entries.size")
        answer = await site.writer.push("s", b"1\n" * 11, Content_Type=LINES)
        assert answer.refusal == (413, "entries.many")
        assert b" 411 " in await raw(site, "Connection: close")
        assert b'"http.length"' in await raw(site, "Connection: close")
        assert b"http.slow" in await raw(site, "Content-Length: 5", b"abc")
        assert b" 408 " in await raw(site, "Transfer-Encoding: chunked", b"3\r\nabc\r\n")
        assert b" 413 " in await raw(site, "Content-Length: 99999999999")
        for hostile in (
            "Content-Length: -1", "Content-Length: 1\r\nContent-Length: 2", "Bad Header",
            "Transfer-Encoding: chunked\r\nContent-Length: 3",
        ):  # fmt: skip
            assert b" 400 " in (await raw(site, hostile, b"abc"))[:20], hostile
        many = "\r\n".join(f"Rillnode-Header-{number}: x" for number in range(200))
        for head in (many, "Rillnode-Key: " + "k" * 1_048_576):
            told = await raw(site, head, b"abc")
            assert b" 431 " in told[:20]
            assert b'"http.headers"' in told
        assert b" 400 " in (await raw(site, "Transfer-Encoding: chunked", b"zz\r\n"))[:20]
        answer = await site.writer.push("s", b"")
        assert (answer.status, answer.body) == (200, placed((0, 0))), "nothing else was stored"

    served(gateway_config(tmp_path, body_bytes_max=4_000_000), test)


def test_quotas_count_for_each_key(tmp_path: Path) -> None:
    async def test(site: Site) -> None:
        data = b"x" * 900
        for key in ("0", "1"):  # the second is more than what is left, and is taken on credit
            assert (await site.writer.push("s", data, Idempotency_Key=key)).status == 200
        refused = await site.writer.push("s", data, Idempotency_Key="2")
        assert refused.refusal == (429, "quota.rate")
        assert int(refused.headers["Retry-After"]) >= 1
        for index in (0, 1):  # what is stored already is over no quota
            again = await site.writer.push("s", data, Idempotency_Key=f"{index}")
            assert (again.status, again.body) == (200, placed((0, index)))
        assert (await site.caller(READER).push("s", b"x" * 900)).status == 200
        assert (await site.writer.push("s2", b"x")).refusal == (403, "quota.streams")

    grants = [grant(name, "create", "push") for name in ("writer", "reader")]
    quota = QuotaTable(who="apikey:writer", push_bytes_per_second=1_000, streams_max=1)
    config = msgspec.structs.replace(gateway_config(tmp_path, *grants), quotas=(quota,))
    served(config, test)


def test_pages_of_listed_origins_may_ask(tmp_path: Path) -> None:
    origin = "https://app.example.org"

    async def test(site: Site) -> None:
        asked = await site.caller(None).call(
            "OPTIONS", "/streams/s", headers={
                "Origin": origin, "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "authorization,ce-id",
            },
        )  # fmt: skip
        assert asked.status == 204
        assert asked.headers["Access-Control-Allow-Origin"] == origin
        assert asked.headers["Access-Control-Allow-Headers"] == "authorization,ce-id"
        assert "POST" in asked.headers["Access-Control-Allow-Methods"]
        pushed = await site.writer.push("s", Origin=origin)
        assert pushed.status == 200
        read = await site.reader.get("/streams/s", Origin=origin)
        assert read.headers["Access-Control-Allow-Origin"] == origin
        assert "Rillnode-Next" in read.headers["Access-Control-Expose-Headers"]
        refused = await site.writer.push("s", Origin="https://evil.example.org")
        assert refused.refusal == (403, "http.origin")
        assert "Access-Control-Allow-Origin" not in refused.headers
        wrong = await site.reader.get("/streams/none", Origin=origin)
        assert wrong.headers["Access-Control-Allow-Origin"] == origin, "pages see errors, too"
        assert len((await site.reader.get("/streams/s")).body) == 1

    served(gateway_config(tmp_path, origins=(origin,)), test)


async def test_head_tells_what_get_would(site: Site) -> None:
    await site.writer.push_texts("s", ["0", "1"])
    for path, media in (
        ("/streams/s", LINES), ("/streams/s/tail", "text/event-stream"),
        ("/openapi.json", "application/json"),
    ):  # fmt: skip
        head = await site.reader.call("HEAD", path)
        assert (head.status, len(head.body)) == (200, 0)
        assert head.headers["Content-Type"].startswith(media)


def test_tls_is_spoken_and_needed_beyond_loopback(tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path)

    async def test(site: Site) -> None:
        async with site.http.get(f"{site.base}/openapi.json", ssl=False) as answer:
            assert answer.status == 200

    served(gateway_config(tmp_path / "node", tls_cert=cert, tls_key=key), test, scheme="https")
    plain = GatewayListener(listen="0.0.0.0:0", apikeys=KEYS)
    with pytest.raises(ConfigError, match="allow_plain"):
        check_config(node_config(tmp_path).having(plain))
    twice = GatewayListener(apikeys=(*KEYS, *KEYS))
    with pytest.raises(ConfigError, match="apikey"):
        check_config(node_config(tmp_path).having(twice))


def test_keys_and_tickets_are_never_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    async def test(site: Site) -> None:
        await site.writer.push_texts("s", ["0"])
        made = await site.reader.call("POST", "/tickets", json={"stream": "s"})
        ticket = made.body["ticket"]
        for path in (f"s?ticket={ticket}", f"s?ticket={ticket}x", f"t?ticket={ticket}"):
            answer = await site.caller(None).get(f"/streams/{path}")
            assert ticket not in str(answer.body)
        host, port = site.base.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"GET /streams/s?ticket={ticket} HTTP/9\r\nBad {WRITER}\r\n\r\n".encode())
        told = await reader.read()
        assert b" 400 " in told
        assert ticket.encode() not in told
        writer.close()
        for secret in (ticket, WRITER, READER):
            assert secret not in caplog.text
            assert secret not in str(site.node.status())

    served(gateway_config(tmp_path), test)


class Noting(Caller):
    """Notes what it asks."""

    asked: tuple[str, str] = ("", "")

    async def call(self, method: str, path: str, *rest: Any, **more: Any) -> Answer:
        self.asked = method.lower(), path.partition("?")[0]
        return await super().call(method, path, *rest, **more)


async def test_answers_are_those_that_the_document_has(site: Site) -> None:
    """Every wrong request is answered with a status that its operation names, with its code."""
    await site.node.stream("s")
    caller = Noting(site.http, site.base, WRITER)
    paths = (await caller.get("/openapi.json")).body["paths"]
    for what, (ask, status, code) in WRONG.items():
        if code not in ("http.path", "http.method", "http.request"):
            await ask(caller)
            method, path = caller.asked
            (template,) = (
                one for one in paths if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", one), path)
            )
            responses = paths[template][method]["responses"]
            assert f"`{code}`" in responses[str(status)]["description"], what


async def test_a_condition_that_few_meet_is_looked_for_in_several_requests(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin, "LOOKS_MAX", 3)
    monkeypatch.setattr(searching, "SEARCH_ENTRIES", 4)
    lines = b"".join(b'{"n":%d}\n' % number for number in range(25))
    await site.writer.push("s", lines, Content_Type=LINES)
    cases: dict[str, list[tuple[list[int], str]]] = {
        "where=n%3D24": [([], "12"), ([], "24"), ([24], "25"), ([], "25")],
        "where=n%3E1&limit=3": [([2, 3, 4], "5"), ([5, 6, 7], "8")],
        "where=n%3C2&limit=5": [([0, 1], "12")],
    }
    for query, answers in cases.items():
        following = "start"
        for found, after in answers:
            answer = await site.reader.get(f"/streams/s?{query}&from={following}")
            following = answer.headers["Rillnode-Next"]
            numbers = [one["json"]["n"] for one in answer.body]
            assert (numbers, answer.following) == (found, after)


async def test_reading_from_a_time_and_by_a_condition(site: Site) -> None:
    lines = b"".join(b'{"n":%d}\n' % number for number in range(5))
    await site.writer.push("s", lines, Content_Type=LINES)
    await asyncio.sleep(0.01)
    (between,) = {datetime.now(UTC).isoformat()}
    await asyncio.sleep(0.01)
    await site.writer.push("s", b'{"n":5}\n{"n":6}\n', Content_Type=LINES)

    async def read(query: str) -> tuple[list[int], str]:
        answer = await site.reader.get(f"/streams/s?{query}")
        assert answer.status == 200, answer.body
        return [one["json"]["n"] for one in answer.body], answer.following

    encoded = between.replace("+", "%2B")
    assert await read(f"since={encoded}") == ([5, 6], "7")
    assert await read(f"since={between}") == ([5, 6], "7"), "a + that is not encoded"
    assert await read(f"until={encoded}") == ([0, 1, 2, 3, 4], "5")
    assert await read(f"since=1h&until={encoded}&limit=2") == ([0, 1], "2")
    assert await read(f"from=3&until={encoded}") == ([3, 4], "5")
    await site.node.client.trim("s", before=2)
    assert await read(f"until={encoded}") == ([2, 3, 4], "5")
    assert await read("since=0s") == ([], "7")
    assert await read("where=n%3E4%20or%20n=2") == ([2, 5, 6], "7")
    assert await read("where=n%3E3&limit=1&from=2") == ([4], "5")
    async with site.reader.tail(f"s?since={encoded}&where=n%3D6") as tail:
        event = await tail.next()
        assert (event.name, event.data["index"], place(event.id)) == ("", 6, "7")
    for query, code in (
        ("since=yesterday", "client.time"), ("until=2024-01-01T00:00:00", "client.time"),
        ("where=n%20%3E", "where.syntax"), ("where=" + "n" * 2_000, "where.length"),
    ):  # fmt: skip
        answer = await site.reader.get(f"/streams/s?{query}")
        assert answer.refusal == (400, code)
