"""The blocking client of Spark applications, against a real node."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nodes import CLIENT, node_config
from rillnode.codecs.entries import NewEntry, items_of
from rillnode.codecs.errors import ConfigError, HandshakeError, RequestError, TransportError
from rillnode.codecs.keys import Identity
from rillnode.node.client import connect_blocking
from rillnode.node.config import GrantTable
from rillnode.node.keys.files import write_key
from rillnode.node.runtime import Node
from rillnode.node.spark.clients import StreamsClient, streams_client
from rillnode.node.spark.offsets import Offset, Range
from rillnode.node.spark.planning import block_prober, positions_at
from rillnode.node.spark.ranges import ClientOptions


def run_beside(
    directory: Path,
    work: Callable[[ClientOptions], None],
    streams: str,
    consumer: str = "",
    *grants: GrantTable,
) -> None:
    """Run a node, and blocking work in a thread."""
    key_file = directory / "app.key"
    write_key(key_file, CLIENT)

    async def scenario() -> None:
        async with Node(node_config(directory / "data", *grants)) as node:
            options = ClientOptions(
                url=f"noise://{node.addresses()['noise']}",
                node_identity=node.identity,
                key_file=str(key_file),
                streams=streams,
                consumer=consumer,
                client="rillnode.node.spark.clients:streams_client",
            )
            await asyncio.to_thread(work, options)

    asyncio.run(scenario())


def read_all(client: StreamsClient, stream: str, first: int, until: int) -> list[bytes]:
    items: list[bytes] = []
    index = first
    while index < until:
        _, blocks = client.read(Range(stream, 0, index, until), 1)
        for block in blocks:
            items += items_of(block.value)[index - block.first_index :]
            index = block.next_index
    return items[: until - first]


def test_threads_share_a_client(tmp_path: Path) -> None:
    """Each gets the answer to its own question."""

    def work(options: ClientOptions) -> None:
        client = streams_client(options)
        client.open("s", 8)
        for partition in range(8):
            client.push("s", partition, [NewEntry(b"%d" % partition)] * 50, "p", 0)

        def reads(partition: int) -> None:
            for index in range(50):
                _, blocks = client.read(Range("s", partition, index, index + 1), 1)
                assert set(items_of(blocks[0].value)) == {b"%d" % partition}

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(reads, range(8)))
        client.close()
        client.close()
        with pytest.raises(TransportError) as caught:
            client.ends()
        assert caught.value.code == "client.closed"

    run_beside(tmp_path, work, "s")


def test_streams_are_chosen_written_read_and_committed(tmp_path: Path) -> None:
    def work(options: ClientOptions) -> None:
        client = streams_client(options)
        for name in ("a", "b1", "b2", "c"):
            client.open(name, 2)
        client.push("b1", 0, [NewEntry(b"%d" % number) for number in range(10_000)], "p", 0)
        # Of what comes again, only what was not stored is.
        client.push("b1", 0, [NewEntry(b"%d" % number) for number in range(10_000)], "p", 0)
        client.push("b1", 1, [NewEntry(b"x")], "p", 0)
        client.push("b1", 0, [NewEntry(b"last")], "p", 10_000)
        assert client.ends() == {
            ("a", 0): (0, 0),
            ("a", 1): (0, 0),
            ("b1", 0): (0, 10_001),
            ("b1", 1): (0, 1),
            ("b2", 0): (0, 0),
            ("b2", 1): (0, 0),
        }
        expected = [*(b"%d" % number for number in range(9_000, 10_000)), b"last"]
        assert read_all(client, "b1", 9_000, 10_001) == expected
        assert read_all(client, "b1", 4_096, 4_097) == [b"4096"]
        created = client.created()
        client.commit(Offset({("b1", 0): 17}, created))
        # In another stream of the name it says nothing.
        client.commit(Offset({("b1", 0): 18, ("b1", 1): 1}, {"b1": created["b1"] - 1}))
        with connect_blocking(
            options.url, identity=CLIENT, node_identity=options.node_identity
        ) as other:
            assert other.get_index("report", "b1") == 17
            assert other.get_index("report", "b1", partition=1) is None
        with pytest.raises(RequestError, match="partitions 0 to 1"):
            client.push("b1", 2, [NewEntry(b"x")], "p", 0)
        client.close()
        # Every process finds the streams by itself.
        fresh = streams_client(options)
        assert read_all(fresh, "b1", 0, 2) == [b"0", b"1"]
        fresh.close()
        probe = block_prober(options)
        assert positions_at(probe, {("b1", 0): (0, 10_001)}, 0) == {("b1", 0): 0}
        assert positions_at(probe, {("b1", 0): (0, 10_001)}, 2**50) == {("b1", 0): 10_001}

    run_beside(tmp_path, work, "a, b*", "report")


def test_what_is_read_of_a_stream_made_anew_is_not_taken_for_what_was_planned(
    tmp_path: Path,
) -> None:
    def work(options: ClientOptions) -> None:
        client = streams_client(options)
        client.open("s", 1)
        client.push("s", 0, [NewEntry(b"a"), NewEntry(b"b")], "p", 0)
        client.ends()
        part = Range("s", 0, 0, 2, created_at=client.created()["s"])
        assert client.read(part, 1)[1]
        # What stands under the name by then was created later.
        assert client.read(part._replace(created_at=part.created_at - 1), 1) == (2, [])
        # Another node may know of a later one, or of more entries.
        for unheard in (
            part._replace(created_at=part.created_at + 1),
            part._replace(start=2, until=3),
        ):
            with pytest.raises(RequestError, match=r"client\.behind") as caught:
                client.read(unheard, 1)
            assert caught.value.retryable
        client.close()

    run_beside(tmp_path, work, "s")


def test_an_unknown_key_is_refused_and_a_missing_one_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(options: ClientOptions) -> None:
        stranger = ClientOptions(
            url=options.url, node_identity=options.node_identity, key_file="", streams="*"
        )
        monkeypatch.setenv("RILLNODE_KEY", Identity.from_seed(bytes(32)).seed_hex)
        with pytest.raises(HandshakeError):
            streams_client(stranger)
        monkeypatch.setenv("RILLNODE_KEY", CLIENT.seed_hex)
        streams_client(stranger).close()
        monkeypatch.delenv("RILLNODE_KEY")
        with pytest.raises(ConfigError, match=r"spark\.executorEnv\.RILLNODE_KEY"):
            streams_client(stranger)

    known = GrantTable(who=f"noise:{CLIENT.public_hex}", streams="*", may=("pull",))
    run_beside(tmp_path, work, "*", "", known)
