"""Keys and headers of entries through every face of a running node."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from itertools import repeat
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from coroutines import handed_by
from nodes import CLIENT, connect_to, node_config
from rillnode.actors.log.rocks.tables import Tables, Tuning
from rillnode.actors.log.rocks.verify import verify_store
from rillnode.codecs import native
from rillnode.codecs.entries import (
    FLAG_HEADERS,
    FLAG_KEYS,
    FLAG_META,
    HEADER_BYTES,
    Entry,
    decode_header,
    pack_body,
)
from rillnode.codecs.errors import RequestError
from rillnode.codecs.keyed import partition_of
from rillnode.codecs.limits import BLOCK_BYTES_MAX, HEADERS_MAX, KEY_BYTES_MAX
from rillnode.codecs.routing.stream import (
    PullRequest,
    PullResponse,
    decode_response,
    encode_request,
)
from rillnode.node.client import Client, connect_blocking
from rillnode.node.client.producer import WINDOW_BYTES
from rillnode.node.runtime import Node

Talk = Callable[[Node, Client], Awaitable[None]]
Told = tuple[bytes, bytes | None, dict[str, bytes]]

HEADERS: dict[str, bytes | str] = {"sender": "hall", "raw": b"\xff\0"}
STORED = {"sender": b"hall", "raw": b"\xff\0"}


def with_client(directory: Path, talk: Talk) -> None:
    async def run() -> None:
        async with Node(node_config(directory)) as node, await connect_to(node) as client:
            await talk(node, client)

    asyncio.run(run())


node = handed_by(with_client)
client = handed_by(with_client, 1)


def told(entries: list[Entry]) -> list[Told]:
    return [(entry.data, entry.key, entry.headers) for entry in entries]


async def test_what_is_pushed_with_a_key_and_headers_comes_back_with_them(client: Client) -> None:
    stream = await client.stream("s")
    assert await stream.push(b"both", key="lamp", headers=HEADERS) == 0
    futures = [
        stream.push_nowait(b"plain"),
        stream.push_nowait(b"key", key=b"\xff"),
        stream.push_nowait(b"empty", key=b"", headers={}),
        stream.push_nowait(bytearray(b"headers"), headers=HEADERS),
    ]
    assert await asyncio.gather(*futures) == [1, 2, 3, 4]
    wanted: list[Told] = [
        (b"both", b"lamp", STORED),
        (b"plain", None, {}),
        (b"key", b"\xff", {}),
        (b"empty", b"", {}),
        (b"headers", None, STORED),
    ]
    assert told(await stream.pull()) == wanted
    assert told(await stream.pull(2, 1)) == wanted[2:3]
    async with aclosing(stream.tail(start="start")) as entries:
        assert told([await anext(entries) for _ in wanted]) == wanted


async def test_entries_without_either_are_stored_as_their_lengths_and_data_alone(
    client: Client,
) -> None:
    stream = await client.stream("s")
    await asyncio.gather(stream.push_nowait(b"ab"), stream.push_nowait(b"c"))
    await stream.push_many([b"many"])
    address = (await client.describe("s")).partitions[0].address
    request = native.ReadRequest(1, 0, 10, 10_000)
    response = native.decode_response((await client.ask(address, native.encode(request))).payload)
    assert isinstance(response, native.BlocksResponse)
    first, second = (block.value for block in response.blocks)
    assert first[HEADER_BYTES:] == bytes.fromhex("0200000001000000") + b"abc"
    assert second[HEADER_BYTES:] == bytes.fromhex("04000000") + b"many"
    assert [decode_header(value).flags for value in (first, second)] == [0, 0]


async def test_the_key_chooses_the_partition_unless_one_is_given(client: Client) -> None:
    stream = await client.stream("s", partitions=5)
    keys = [b"device-%d" % number for number in range(40)]
    for key in keys:
        await stream.push(key, key=key)
    found = {partition: told(await stream.pull(partition=partition)) for partition in range(5)}
    for partition, entries in found.items():
        assert [key for _, key, _ in entries] == [
            key for key in keys if partition_of(key, 5) == partition
        ]
    assert len([one for one in found.values() if one]) > 1
    assert stream.partition_of("device-7") == partition_of(b"device-7", 5)
    other = (stream.partition_of("device-7") + 1) % 5
    index = await stream.push(b"elsewhere", key="device-7", partition=other)
    (entry,) = await stream.pull(index, 1, partition=other)
    assert (entry.data, entry.key) == (b"elsewhere", b"device-7")


async def test_many_are_pushed_to_the_partitions_of_their_keys(client: Client) -> None:
    stream = await client.stream("s", partitions=3)
    items = [b"%d" % number for number in range(9_000)]
    keys = [b"k%d" % (number % 50) for number in range(9_000)]
    end = await stream.push_many(items, keys=keys, headers=repeat({"n": b"1"}))
    last = partition_of(keys[-1], 3)
    for partition in range(3):
        entries = await stream.pull(0, 9_999, partition=partition)
        assert told(entries) == [
            (item, key, {"n": b"1"})
            for item, key in zip(items, keys, strict=True)
            if partition_of(key, 3) == partition
        ]
        if partition == last:
            assert end == len(entries)
    assert await stream.push_many([b"a", b"b"], keys=["x", None], partition=1) > 2
    assert await stream.push_many([], keys=[]) == 0


def test_an_endless_push_reads_no_further_than_its_window(tmp_path: Path) -> None:
    async def talk(_: Node, client: Client) -> None:
        stream = await client.stream("s", partitions=64)
        item, read = bytes(BLOCK_BYTES_MAX // 2), 0

        def items() -> Any:
            nonlocal read
            while True:
                read += 1
                yield item

        keys = (b"%d" % number for number in range(1_000_000))
        pushing = asyncio.ensure_future(stream.push_many(items(), keys=keys))
        await asyncio.sleep(0)
        assert read * len(item) <= 2 * WINDOW_BYTES + len(item)
        pushing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pushing

    with_client(tmp_path, talk)


@pytest.mark.parametrize(
    ("beside", "code", "sentence"),
    [
        ({"key": bytes(1_048_576)}, "entries.key", "a key has at most 1024 bytes, not 1048576"),
        ({"key": "\ud800"}, "entries.key", "a key is a text that has no UTF-8 form"),
        (
            {"headers": {str(number): b"" for number in range(200)}},
            "entries.headers",
            "an entry has at most 64 headers",
        ),
        (
            {"headers": {"a": bytes(20_000)}},
            "entries.headers",
            "an entry's headers have at most 16384 bytes together, not 20006",
        ),
        (
            {"headers": {b"\xff": b""}},
            "entries.header_name",
            "a header's name is a text of 1 to 256 characters",
        ),
    ],
)
async def test_bad_keys_and_headers_are_refused_by_the_client(
    client: Client, beside: dict[str, Any], code: str, sentence: str
) -> None:
    stream = await client.stream("s")
    with pytest.raises(RequestError) as caught:
        await stream.push(b"x", **beside)
    assert (caught.value.code, caught.value.text) == (code, sentence)
    keys, headers = [beside.get("key")], [beside.get("headers")]
    with pytest.raises(RequestError) as caught:
        await stream.push_many([b"x"], keys=keys, headers=headers)
    assert caught.value.code == code
    assert await stream.push(b"good") == 0


async def test_what_is_no_key_at_all_is_a_type_error_and_too_few_are_a_value_error(
    client: Client,
) -> None:
    stream = await client.stream("s")
    wrong: Any = 7
    with pytest.raises(TypeError, match="a key is bytes or text"):
        await stream.push(b"x", key=wrong)
    with pytest.raises(TypeError, match="a mapping of names"):
        await stream.push(b"x", headers=wrong)
    with pytest.raises(ValueError, match="fewer keys or headers than items"):
        await stream.push_many([b"x", b"y"], keys=["a"])
    assert await stream.push(b"good") == 0


MANY = msgspec.msgpack.encode({str(number): b"" for number in range(200)})


BAD_COLUMNS = (
    (pack_body([b"x"], None, [bytes(1_048_576)]), FLAG_KEYS, "entries.key"),
    (pack_body([b"x"], None, [bytes(KEY_BYTES_MAX + 1)]), FLAG_KEYS, "entries.key"),
    (pack_body([b"x"], None, None, [MANY]), FLAG_HEADERS, "entries.headers"),
    (pack_body([b"x"], None, None, [b"\x81\xa2\xc3\x28\xc4\x00"]), FLAG_HEADERS,
     "entries.header_name"),
    (pack_body([b"x"], [b"note"]), FLAG_META, "entries.flags"),
    (pack_body([b"x"]), 8, "entries.flags"),
    (pack_body([b"x"]), FLAG_KEYS, "codec.truncated"),
)  # fmt: skip


async def test_bad_columns_are_refused_by_the_node(client: Client) -> None:
    stream = await client.stream("s")
    address = (await client.describe("s")).partitions[0].address
    for body, flags, code in BAD_COLUMNS:
        with pytest.raises(RequestError) as alone:
            await client.ask(address, native.encode(native.AppendRequest(1, 1, body, flags=flags)))
        items = [native.AppendItem(address.encode(), 1, body, flags=flags)]
        answer = await client.ask("appender", native.encode(native.AppendManyRequest(2, items)))
        together = native.decode_response(answer.payload)
        assert isinstance(together, native.PositionsResponse)
        assert [alone.value.code, *(one.code for one in together.failures)] == [code, code]
    assert await stream.push(b"good") == 0


async def test_a_blocking_client_has_the_same_verbs(tmp_path: Path) -> None:
    def talk(node: Node) -> None:
        url = f"noise://{node.addresses()['noise']}"
        with connect_blocking(url, identity=CLIENT, node_identity=node.identity) as client:
            stream = client.stream("s", partitions=4)
            home = stream.partition_of("lamp")
            assert stream.push(b"on", key="lamp", headers=HEADERS) == 0
            assert stream.push_many([b"off"], keys=["lamp"], headers=[HEADERS]) == 2
            assert told(stream.pull(partition=home)) == [
                (b"on", b"lamp", STORED),
                (b"off", b"lamp", STORED),
            ]

    async with Node(node_config(tmp_path)) as node:
        await asyncio.to_thread(talk, node)


async def test_an_ockam_consumer_pulls_exactly_the_data(client: Client) -> None:
    stream = await client.stream("s")
    await stream.push(b"data", key="lamp", headers=HEADERS)
    address = (await client.describe("s")).partitions[0].address
    answer = await client.ask(address, encode_request(PullRequest(1, 0, 10)))
    pulled = decode_response(answer.payload)
    assert isinstance(pulled, PullResponse)
    assert pulled.messages == [(0, b"data")]


async def test_the_page_shows_keys_and_headers_where_there_are_any(
    node: Node, client: Client
) -> None:
    stream = await client.stream("s")
    await stream.push(b"plain")
    await stream.push(b"keyed", key="lamp", headers=HEADERS)
    await stream.push(b"bytes", key=b"\xff")
    base = f"http://{node.addresses()['http']}"
    async with (
        aiohttp.ClientSession(base) as session,
        session.get("/v1/streams/s/entries?index=0") as answer,
    ):
        plain, keyed, raw = (await answer.json())["entries"]
    assert not {"key", "key_base64", "headers", "headers_base64"} & plain.keys()
    assert (keyed["key"], keyed["headers"]) == ("lamp", {"sender": "hall"})
    assert keyed["headers_base64"] == {"raw": "/wA="}
    assert raw["key_base64"] == "/w=="


def test_keys_are_there_after_a_start_and_count_as_data(tmp_path: Path) -> None:
    async def push(_: Node, client: Client) -> None:
        stream = await client.stream("s")
        await stream.push(b"data", key="lamp", headers={"a": b"b"})
        await stream.push_many([b"x"] * 10, keys=repeat("key"))
        info = await client.describe("s")
        assert info.partitions[0].data_bytes == 4 + 4 + len(b"\x81\xa1a\xc4\x01b") + 10 * 4

    async def again(_: Node, client: Client) -> None:
        stream = await client.stream("s")
        entries = await stream.pull()
        assert told(entries[:1]) == [(b"data", b"lamp", {"a": b"b"})]
        assert [entry.key for entry in entries[1:]] == [b"key"] * 10

    with_client(tmp_path, push)
    with_client(tmp_path, again)
    tables = Tables(tmp_path / "store", Tuning(), read_only=True)
    try:
        verdict = verify_store(tables)
    finally:
        tables.close()
    assert (verdict.entries, verdict.data_bytes, verdict.problems) == (11, 54, [])


async def test_as_many_headers_as_there_may_be(client: Client) -> None:
    stream = await client.stream("s")
    headers = {f"header-{number}": b"v" * 200 for number in range(HEADERS_MAX)}
    key = bytes(KEY_BYTES_MAX)
    futures = [stream.push_nowait(b"", key=key, headers=headers) for _ in range(500)]
    assert await asyncio.gather(*futures) == list(range(500))
    entries = await stream.pull(0, 500)
    assert {entry.key for entry in entries} == {key}
    assert all(entry.headers == headers for entry in entries)


async def test_a_named_producer_pushes_many_with_keys_and_leaves_out_what_is_stored(
    tmp_path: Path,
) -> None:
    async with Node(node_config(tmp_path)) as node, await connect_to(node) as client:
        stream = await client.stream("s")
        producer = await stream.producer("m7")
        await producer.push_all([b"0", b"1"], 0, keys=["a", None], headers=[{"h": "x"}, None])
        again = await stream.producer("m7")
        await again.push_all([b"0", b"1", b"2"], 0, keys=["a", None, "c"])
        found = [(entry.data, entry.key, entry.headers) for entry in await stream.pull()]
        assert found == [(b"0", b"a", {"h": b"x"}), (b"1", None, {}), (b"2", b"c", {})]
        assert again.last_sequence == 2
