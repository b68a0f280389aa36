"""The `ockam` listener against what released peers sent, and against what they should not send."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from coroutines import handed_by
from nodes import connect_to, node_config
from ockam_peer import OckamPeer
from rillnode.codecs.routing.routes import WireMessage, decode_message, encode_message, local
from rillnode.codecs.routing.stream import (
    CreatePartitionedRequest,
    CreatePartitionedResponse,
    CreateRequest,
    CreateResponse,
    ErrorResponse,
    GetIndexRequest,
    GetPartitionIndexRequest,
    IndexResponse,
    PartitionIndexResponse,
    PullRequest,
    PullResponse,
    PushConfirm,
    PushRequest,
    Request,
    Response,
    SaveIndexRequest,
    SavePartitionIndexRequest,
    Status,
    decode_response,
    encode_request,
    response_tag,
)
from rillnode.node.config import GrantTable
from rillnode.node.runtime import Node

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "conformance/vectors/ockam.json").read_text()
)

Talk = Callable[[Node, OckamPeer], Awaitable[None]]


def with_peer(directory: Path, talk: Talk, *grants: GrantTable) -> None:
    async def run() -> None:
        async with AsyncExitStack() as stack:
            node = await stack.enter_async_context(Node(node_config(directory, *grants)))
            address = node.addresses()["ockam"]
            await talk(node, await stack.enter_async_context(await OckamPeer.connect(address)))

    asyncio.run(run())


node = handed_by(with_peer)
peer = handed_by(with_peer, 1)


async def ask(peer: OckamPeer, onward: str | bytes, request: Request) -> Any:
    return decode_response((await peer.ask(onward, encode_request(request))).payload)


async def create(peer: OckamPeer, name: str | None) -> bytes:
    """Create a stream; return its address."""
    answer = await peer.ask("stream", encode_request(CreateRequest(name)))
    return answer.return_route[0].value


class Replay:
    """Sends what a recorded client sent, and compares what comes back with what came back then.

    Streams have other addresses here, and made-up names are made up again: those are mapped.
    """

    def __init__(self, run: str) -> None:
        self.records = [
            record for record in VECTORS if record["level"] == "aug2021" and record["run"] == run
        ]
        self.addresses: dict[bytes, bytes] = {}
        self.unrecorded: list[Response] = []

    async def play(self, peer: OckamPeer, expected: dict[int, bytes | None]) -> None:
        wanted: defaultdict[bytes, list[tuple[int, Any]]] = defaultdict(list)
        for at, record in enumerate(self.records):
            message = decode_message(bytes.fromhex(record["hex"])[2:])
            if record["direction"] == "client>service":
                await self.send(peer, message, wanted)
            else:
                key = message.onward_route[0].value
                wanted[key].append((at, message))
                await self.settle(peer, wanted, expected)
        await self.settle(peer, wanted, expected)
        assert not any(wanted.values())

    async def send(self, peer: OckamPeer, message: Any, wanted: Any) -> None:
        onward = message.onward_route
        if onward and onward[0].value in self.addresses:
            onward = (local(self.addresses[onward[0].value]),)
        peer.send_frame(encode_message(onward, message.return_route, message.payload))

    async def settle(self, peer: OckamPeer, wanted: Any, expected: dict[int, bytes | None]) -> None:
        """Take one answer for each that is wanted by now; each worker's come in their order."""
        while any(wanted.values()):
            answer = await peer.receive()
            queue = wanted[answer.onward_route[0].value]
            if not queue:
                self.unrecorded.append(decode_response(answer.payload))
                continue
            at, then = queue.pop(0)
            if expected.get(at, b"") is None:
                continue
            assert len(answer.return_route) == len(then.return_route)
            if then.return_route:
                was, now = then.return_route[0].value, answer.return_route[0].value
                if was not in (b"stream", b"stream_index", b"echo_service"):
                    assert self.addresses.setdefault(was, now) == now
                else:
                    assert was == now
            payload = then.payload
            if b"generated_" in payload:
                assert answer.payload[:-8] == payload[:-8]
            else:
                assert answer.payload == expected.get(at, payload)


async def test_a_recorded_client_gets_the_recorded_answers(peer: OckamPeer) -> None:
    """All requests of the protocol, as a client of 2021 sent them."""
    replay = Replay("basic")
    # The echo service has a replay of its own: tests/ockam/integration, hub services.
    replay.records = [r for r in replay.records if r["name"] != "plain payload"]
    last = len(replay.records) - 1
    # The released service ignored the partition when it saved: here partition 2 has none.
    answer = bytes.fromhex(replay.records[last]["hex"])
    assert answer.endswith(b"\x02\x01\x05")
    payload = decode_message(answer[2:]).payload
    length = 25  # of the body, behind the protocol's name
    shorter = bytes((payload[length] - 1,))
    fixed = payload[:length] + shorter + payload[length + 1 : -2] + b"\x00"
    await replay.play(peer, {last: fixed})


async def test_the_shipped_consumer_and_publisher_work(peer: OckamPeer) -> None:
    """Pipelined pushes with one request id, and a consumer, as recorded from Elixir of 2021."""
    replay = Replay("consumer")
    await replay.play(peer, {})
    # The recording ends before the answers to its one pull and to its last three pushes.
    late = replay.unrecorded
    while len(late) < 4:
        late.append(decode_response((await peer.receive()).payload))
    (pulled,) = (one for one in late if isinstance(one, PullResponse))
    assert [data for _, data in pulled.messages[:3]] == [b"m1", b"m2", b"m3"]
    assert [one.index for one in late if isinstance(one, PushConfirm)] == [15, 16, 17]


async def test_create_push_pull(peer: OckamPeer) -> None:
    answer = await peer.ask("stream_service", encode_request(CreateRequest("s")))
    assert decode_response(answer.payload) == CreateResponse("s")
    stream = answer.return_route[0].value
    for index in range(3):
        confirm = await ask(peer, stream, PushRequest(1, b"m%d" % index))
        assert confirm == PushConfirm(1, Status.OK, index)
    pulled = await ask(peer, stream, PullRequest(9, 1, 10))
    assert pulled == PullResponse(9, [(1, b"m1"), (2, b"m2")])
    assert await ask(peer, stream, PullRequest(9, 3, 10)) == PullResponse(9, [])
    assert await ask(peer, stream, PullRequest(9, 0, 0)) == PullResponse(9, [])


@pytest.mark.parametrize(
    ("streams", "indexes"),
    [
        ("stream", "stream_index"),
        ("stream_service", "stream_index_service"),
        ("stream_kafka", "stream_kafka_index"),
    ],
)
async def test_each_address_of_a_service_leads_to_it_and_answers_as_itself(
    node: Node, peer: OckamPeer, streams: str, indexes: str
) -> None:
    """`stream_kafka` and `stream_kafka_index` are in Ockam's guides, and of `ockam_kafka`."""
    request = encode_request(CreatePartitionedRequest("s", 1))
    answer = await peer.ask(streams, request)
    assert decode_response(answer.payload) == CreatePartitionedResponse("s", 0)
    assert answer.return_route == (local("ST_S_0_s"),)
    refusal = await peer.ask(streams, b"garbage")
    assert refusal.return_route == (local(streams),)
    get = GetIndexRequest("c", "s")
    answer = await peer.ask(indexes, encode_request(get))
    assert decode_response(answer.payload) == IndexResponse("c", "s", None)
    assert answer.return_route == (local(indexes),)
    peer.send(indexes, encode_request(SaveIndexRequest("c", "s", 4)))
    assert await ask(peer, "stream_index", get) == IndexResponse("c", "s", 4)


async def test_create_again_gives_the_same_address_and_keeps_the_entries(peer: OckamPeer) -> None:
    stream = await create(peer, "s")
    await ask(peer, stream, PushRequest(1, b"kept"))
    assert await create(peer, "s") == stream
    assert await ask(peer, stream, PullRequest(1, 0, 9)) == PullResponse(1, [(0, b"kept")])


def test_streams_indexes_and_entries_outlive_the_node(tmp_path: Path) -> None:
    async def before(_: Node, peer: OckamPeer) -> None:
        stream = await create(peer, "s")
        await ask(peer, stream, PushRequest(1, b"kept"))
        peer.send("stream_index", encode_request(SaveIndexRequest("c", "s", 1)))
        assert await ask(peer, "stream_index", GetIndexRequest("c", "s")) == IndexResponse(
            "c", "s", 1
        )

    async def after(_: Node, peer: OckamPeer) -> None:
        # The address is the same, and no create is needed to use it.
        assert await ask(peer, b"ST_S_0_s", PullRequest(1, 0, 9)) == PullResponse(1, [(0, b"kept")])
        assert await ask(peer, "stream_index", GetIndexRequest("c", "s")) == IndexResponse(
            "c", "s", 1
        )

    with_peer(tmp_path, before)
    with_peer(tmp_path, after)


async def test_partitions_answer_one_by_one_and_can_grow(peer: OckamPeer) -> None:
    plain = await create(peer, "s")
    for partitions in (2, 4):
        peer.send("stream", encode_request(CreatePartitionedRequest("s", partitions)))
        answers = [await peer.receive() for _ in range(partitions)]
        assert {decode_response(answer.payload) and answer.payload for answer in answers}
        found = {answer.return_route[0].value for answer in answers}
        assert len(found) == partitions
        assert plain in found  # the plain stream is partition 0
        numbers = [decode_response(answer.payload) for answer in answers]
        assert numbers == [CreatePartitionedResponse("s", p) for p in range(partitions)]


async def test_the_spelling_of_the_specification_is_answered_in_kind(peer: OckamPeer) -> None:
    request = CreateRequest("s", "stream_create:request")
    answer = await peer.ask("stream", encode_request(request))
    assert decode_response(answer.payload) == CreateResponse("s", "stream_create:response")
    stream = answer.return_route[0].value
    push = PushRequest(7, b"x", "stream_push:request")
    confirm = PushConfirm(7, Status.OK, 0, "stream_push:response")
    assert await ask(peer, stream, push) == confirm
    pull = PullRequest(8, 0, 1, "stream_pull:request")
    assert await ask(peer, stream, pull) == PullResponse(8, [(0, b"x")], "stream_pull:response")
    many = CreatePartitionedRequest("t", 1, "stream_create_partitions")
    assert await ask(peer, "stream", many) == CreatePartitionedResponse(
        "t", 0, "stream_create_partitions"
    )


async def test_nothing_is_deduplicated_by_request_id(peer: OckamPeer) -> None:
    stream = await create(peer, "s")
    for index in range(3):
        confirm = await ask(peer, stream, PushRequest(1, b"same"))
        assert confirm == PushConfirm(1, Status.OK, index)


async def test_saved_index_is_monotonic_and_per_partition(peer: OckamPeer) -> None:
    get = GetIndexRequest("c", "s")
    assert await ask(peer, "stream_index", get) == IndexResponse("c", "s", None)
    for index in (300, 2):
        peer.send("stream_index_service", encode_request(SaveIndexRequest("c", "s", index)))
    assert await ask(peer, "stream_index", get) == IndexResponse("c", "s", 300)
    save = SavePartitionIndexRequest("c", "s", 1, 5)
    peer.send("stream_index", encode_request(save))
    for partition, saved in ((0, 300), (1, 5), (2, None)):
        request = GetPartitionIndexRequest("c", "s", partition)
        assert await ask(peer, "stream_index", request) == PartitionIndexResponse(
            "c", "s", partition, saved
        )
    # The specification's shared name.
    shared = GetPartitionIndexRequest("c", "s", 1, "stream_index")
    answer = await peer.ask("stream_index", encode_request(shared))
    assert answer.payload.endswith(b"\x01c\x01s\x01\x01\x05")


async def test_an_answer_never_exceeds_what_the_peer_takes(peer: OckamPeer) -> None:
    stream = await create(peer, "s")
    for _number in range(5):
        await ask(peer, stream, PushRequest(1, bytes(30_000)))
    answer = await ask(peer, stream, PullRequest(1, 0, 2**62))
    assert [index for index, _ in answer.messages] == [0, 1]
    answer = await ask(peer, stream, PullRequest(1, 2, 1_000))
    assert [index for index, _ in answer.messages] == [2, 3]


async def test_an_entry_that_fits_no_answer_is_passed_over(node: Node, peer: OckamPeer) -> None:
    async with await connect_to(node) as client:
        stream = await client.stream("s")
        for data in (b"small", bytes(70_000), bytes(90_000), b"later", bytes(70_000)):
            await stream.push(data)
    answer = await ask(peer, b"ST_S_0_s", PullRequest(1, 0, 9))
    assert answer == PullResponse(1, [(0, b"small")])
    answer = await ask(peer, b"ST_S_0_s", PullRequest(2, 1, 9))
    assert answer == PullResponse(2, [(3, b"later")])
    assert node.status()["undelivered"] == {"entry_skipped": 2}
    assert await ask(peer, b"ST_S_0_s", PullRequest(3, 4, 9)) == PullResponse(3, [])


RELEASED = {
    # How long a worker's address is, what the client's own messages have at most, and how large
    # an entry its own hub confirms and gives back.
    "2021": (16, 65_535, 65_472),
    "2022": (21, 65_000, 64_927),
}


NAMES = [
    *(("", "a" * length) for length in (1, 9, 14, 17, 100)),
    (":request", "a"),
    *(pytest.param(":request", "a" * length, marks=pytest.mark.long) for length in (9, 14, 17)),
    (":request", "a" * 100),
]


@pytest.mark.parametrize(("spelling", "name"), NAMES)
@pytest.mark.parametrize("year", RELEASED)
async def test_what_is_confirmed_can_be_pulled_by_the_same_kind_of_client(
    peer: OckamPeer, year: str, name: str, spelling: str
) -> None:
    """Every size near the end of what the client can send, pulled with the ids that it has."""
    address_bytes, own_cap, hub_max = RELEASED[year]
    worker = local("c" * address_bytes)

    async def ask_once(request: Request) -> WireMessage:
        frame = encode_message((local(stream),), (worker,), encode_request(request))
        assert len(frame) <= own_cap
        peer.send_frame(frame)
        return await peer.receive()

    stream = await create(peer, name)
    push = PushRequest(1, b"", f"stream_push{spelling}")
    frame = encode_message((local(stream),), (worker,), encode_request(push))
    # The payload's length, the body's and the entry's have three bytes then, and not one.
    largest = own_cap - len(frame) - 6
    sizes = [largest - 30, largest - 9, largest - 2, largest - 1, largest]
    confirmed: list[tuple[int, int]] = []
    for size in sizes:
        request = PushRequest(1, bytes(size), f"stream_push{spelling}")
        confirm = decode_response((await ask_once(request)).payload)
        assert isinstance(confirm, PushConfirm)
        if confirm.status is Status.OK:
            confirmed.append((confirm.index, size))
    # Only the specification's spelling, which no released client writes, lacks a byte.
    refused = bool(spelling) and (year, name) == ("2021", "a")
    assert [size for _, size in confirmed] == sizes[: len(sizes) - refused]
    for index, size in confirmed:
        for request_id in (1, 127, 128, 1_000):
            pull = PullRequest(request_id, index, 10, f"stream_pull{spelling}")
            answer = await ask_once(pull)
            assert decode_response(answer.payload) == PullResponse(
                request_id, [(index, bytes(size))], response_tag(pull.tag)
            )
            assert answer.onward_route == (worker,)
            assert answer.return_route in ((local(stream),), ())
    # What the hub took for a stream whose address has as many bytes as there.
    if not spelling and len(stream) <= address_bytes:
        assert confirmed[-1][1] >= hub_max
    end = await ask_once(PullRequest(1, len(confirmed), 10))
    assert decode_response(end.payload) == PullResponse(1, [])


async def test_bad_requests_to_the_service_are_answered_with_an_error(peer: OckamPeer) -> None:
    for payload in (
        b"garbage",
        b"",
        b"\x04nope\x00",
        encode_request(CreateRequest("")),
        encode_request(CreateRequest("n" * 600)),
        encode_request(CreatePartitionedRequest("zero", 0)),
        encode_request(CreatePartitionedRequest("many", 10**9)),
        b"\x0dstream_create\x03\x01\x01\xff",  # a name that is no UTF-8
        b"\x0dstream_create\x04\x01\x01s\x00",  # a byte too many
        encode_request(PushRequest(1, b"not here")),
    ):
        answer = await peer.ask("stream", payload)
        assert decode_response(answer.payload) == ErrorResponse("Invalid request"), payload
        assert answer.return_route == (local("stream"),)
        await create(peer, "after")


async def test_bad_requests_to_a_stream_are_answered_and_harm_nothing(peer: OckamPeer) -> None:
    stream = await create(peer, "s")
    await ask(peer, stream, PushRequest(1, b"kept"))
    for payload in (
        b"garbage",
        encode_request(CreateRequest("s")),  # released streams lost everything by it
        encode_request(GetIndexRequest("c", "s")),
    ):
        answer = await peer.ask(stream, payload)
        assert decode_response(answer.payload) == ErrorResponse("Invalid request"), payload
        assert await ask(peer, stream, PullRequest(1, 0, 9)) == PullResponse(1, [(0, b"kept")])


async def test_bad_requests_to_the_index_service_harm_nothing(peer: OckamPeer) -> None:
    peer.send("stream_index", encode_request(SaveIndexRequest("c", "s", 5)))
    for payload in (b"garbage", b"\x0cstream_index\x05\x02\x01c\x01s"):
        peer.send("stream_index", payload)
    # Released services died of a name that is no UTF-8, with all they knew.
    answer = await peer.ask("stream_index", b"\x0cstream_index\x05\x00\x01\xff\x01s")
    assert decode_response(answer.payload) == ErrorResponse("Invalid request")
    get = GetIndexRequest("c", "s")
    assert await ask(peer, "stream_index", get) == IndexResponse("c", "s", 5)


async def test_unknown_addresses_are_silent_and_pings_are_answered(peer: OckamPeer) -> None:
    for address in ("no_such_worker", b"ST_S_0_unknown", b"ST_S_7_", b"ST_S_x_y"):
        peer.send(address, encode_request(PullRequest(1, 0, 1)))
    peer.send((), b"\x00")
    answer = await peer.receive()
    assert answer == ((local("me"),), (), b"\x01")
    peer.send_frame(b"")  # heartbeats of 2021
    peer.send((), b"anything else")
    assert await peer.silent()


def test_a_peer_that_may_not_sees_what_does_not_exist(tmp_path: Path) -> None:
    async def talk(node: Node, peer: OckamPeer) -> None:
        await (await node.stream("secret")).push(b"x")
        await create(peer, "open-1")
        for request in (PullRequest(1, 0, 9), PushRequest(1, b"y")):
            peer.send(b"ST_S_0_secret", encode_request(request))
            peer.send(b"ST_S_0_missing", encode_request(request))
        assert await peer.silent()
        error = ErrorResponse("Invalid request")
        assert await ask(peer, "stream", CreateRequest("secret")) == error
        assert await ask(peer, "stream", CreateRequest("missing")) == error
        # Streams that may be pushed to but not pulled from.
        assert isinstance(await ask(peer, b"ST_S_0_open-1", PushRequest(1, b"z")), PushConfirm)
        peer.send(b"ST_S_0_open-1", encode_request(PullRequest(1, 0, 9)))
        assert await peer.silent()

    grant = GrantTable(who="anonymous", streams="open-*", may=("create", "push"))
    with_peer(tmp_path, talk, grant)


async def test_garbage_closes_its_own_connection_only(node: Node, peer: OckamPeer) -> None:
    stream = await create(peer, "s")
    for frame in (b"\xff" * 40, b"\x01\x01\x00", b"\x01\xff\xff\xff\xff\xff\xff\xff\xff\x7f"):
        async with await OckamPeer.connect(node.addresses()["ockam"]) as other:
            other.send_frame(frame)
            assert await other.reader.read() == b""
    confirm = await ask(peer, stream, PushRequest(1, b"still here"))
    assert confirm == PushConfirm(1, Status.OK, 0)


async def test_many_requests_in_one_read_are_answered_in_order(peer: OckamPeer) -> None:
    stream = await create(peer, "s")
    for number in range(1_000):
        peer.send(stream, encode_request(PushRequest(number, b"%d" % number)))
    for number in range(1_000):
        confirm = decode_response((await peer.receive()).payload)
        assert confirm == PushConfirm(number, Status.OK, number)
