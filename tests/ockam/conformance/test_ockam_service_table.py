"""The stream and index services, case by case, against what released Elixir nodes were seen to do.

Each test is one case of a survey of the nodes of 2021-08, 2022-09 and 2024-10. Where this node
differs on purpose the test says so with `here:`, and docs/protocols/ockam.md why.
"""

import re
from typing import Any

import pytest

from core_support import Core, Peer, decode
from rillnode.actors.log import Read
from rillnode.codecs import native
from rillnode.codecs.errors import StoreError
from rillnode.codecs.limits import PULL_ENTRIES_MAX
from rillnode.codecs.routing.routes import local
from rillnode.codecs.routing.stream import (
    BinaryRequest,
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
    SaveIndexRequest,
    SavePartitionIndexRequest,
    Status,
    encode_response,
)

INVALID = ErrorResponse("Invalid request")


def client(core: Core) -> Peer:
    """A client on an `ockam` link that may do everything."""
    return core.peer(native_too=False)


async def create(peer: Peer, name: str | None = "s") -> bytes:
    """Create a stream; return its address."""
    await peer.ask("stream", CreateRequest(name))
    return peer.answers[0].return_route[0].value


async def payloads(peer: Peer, onward: str | bytes, *sent: bytes) -> list[Any]:
    """Send payloads; return the answers."""
    await peer.core.settle()
    peer.answers.clear()
    peer.send(onward, *sent)
    await peer.core.settle()
    return [decode(answer.payload) for answer in peer.answers]


async def test_create_new_name(core: Core) -> None:
    peer = client(core)
    assert await peer.ask("stream", CreateRequest("s")) == [CreateResponse("s")]
    (init,) = peer.answers
    assert init.return_route != (local("stream"),)  # it comes from the stream itself
    answers = await peer.ask("stream", CreatePartitionedRequest("t", 1))
    assert answers == [CreatePartitionedResponse("t", 0)]
    assert peer.answers[0].return_route != init.return_route


async def test_create_again(core: Core) -> None:
    peer, other = client(core), client(core)
    address = await create(peer)
    await peer.ask(address, PushRequest(1, b"kept"))
    assert await create(other) == address
    assert await other.ask(address, PullRequest(1, 0, 9)) == [PullResponse(1, [(0, b"kept")])]


async def test_create_without_name(core: Core) -> None:
    peer = client(core)
    names = [(await peer.ask("stream", CreateRequest(None)))[0].stream_name for _ in range(2)]
    assert all(re.fullmatch("generated_[0-9a-f]{8}", name) for name in names)
    assert len(set(names)) == 2


async def test_create_empty_name(core: Core) -> None:
    peer = client(core)
    for request in (CreateRequest(""), CreatePartitionedRequest("", 2)):
        assert await peer.ask("stream", request) == [INVALID]
        assert peer.answers[0].return_route == (local("stream"),)


async def test_partitions_n(core: Core) -> None:
    peer = client(core)
    answers = await peer.ask("stream", CreatePartitionedRequest("s", 5))
    assert {answer.partition for answer in answers} == set(range(5))
    assert len(answers) == len({answer.return_route for answer in peer.answers}) == 5


async def test_partitions_0(core: Core) -> None:
    """Here: an error, where released nodes leave the client waiting."""
    peer = client(core)
    assert await peer.ask("stream", CreatePartitionedRequest("s", 0)) == [INVALID]


async def test_plain_stream_and_partition_0_of_the_same_name(core: Core) -> None:
    peer = client(core)
    address = await create(peer)
    await peer.ask(address, PushRequest(1, b"x"))
    await peer.ask("stream", CreatePartitionedRequest("s", 1))
    assert peer.answers[0].return_route == (local(address),)


async def test_bigger_n_later(core: Core) -> None:
    peer = client(core)
    address = await create(peer)
    answers = await peer.ask("stream", CreatePartitionedRequest("s", 2))
    assert answers == [CreatePartitionedResponse("s", partition) for partition in range(2)]
    assert peer.answers[0].return_route == (local(address),)


async def test_create_sent_to_a_streams_own_address(core: Core) -> None:
    """Here: refused, where released nodes lose the stream."""
    peer = client(core)
    address = await create(peer)
    await peer.ask(address, PushRequest(1, b"kept"))
    for request in (CreateRequest("s"), CreatePartitionedRequest("s", 2)):
        assert await peer.ask(address, request) == [INVALID]
    assert await peer.ask(address, PullRequest(1, 0, 9)) == [PullResponse(1, [(0, b"kept")])]


async def test_push(core: Core) -> None:
    peer = client(core)
    address = await create(peer)
    answers = await peer.ask(
        address, PushRequest(1, b"same"), PushRequest(1, b"same"), PushRequest(2**70, b"")
    )
    assert answers == [
        PushConfirm(1, Status.OK, 0),
        PushConfirm(1, Status.OK, 1),
        PushConfirm(2**70, Status.OK, 2),
    ]
    pulled = await peer.ask(address, PullRequest(1, 0, 9))
    assert pulled == [PullResponse(1, [(0, b"same"), (1, b"same"), (2, b"")])]


async def test_storage_failure_on_push(core: Core) -> None:
    peer = client(core)
    address = await create(peer)
    core.store.faults.failing_syncs = 1
    assert await peer.ask(address, PushRequest(7, b"x")) == [PushConfirm(7, Status.ERROR, 0)]


async def test_pull(core: Core) -> None:
    peer = client(core)
    address = await create(peer)
    await peer.ask(address, *(PushRequest(n, b"%d" % n) for n in range(5)))
    expected = {
        (0, 2): [(0, b"0"), (1, b"1")],
        (3, 9): [(3, b"3"), (4, b"4")],
        (0, 0): [],
        (5, 9): [],
        (10**9, 9): [],
        (2**64 - 1, 2**64 - 1): [],
    }
    for (index, limit), messages in expected.items():
        answers = await peer.ask(address, PullRequest(1, index, limit))
        assert answers == [PullResponse(1, messages)]


async def test_pull_huge_limit(core: Core) -> None:
    """Here: bounded by what one message carries and by a number of entries."""
    peer = client(core)
    address = await create(peer)
    for _ in range(3):
        await peer.ask(address, *(PushRequest(1, b"") for _ in range(4_000)))
    (answer,) = await peer.ask(address, PullRequest(1, 0, 2**64 - 1))
    assert [index for index, _ in answer.messages] == list(range(len(answer.messages)))
    assert 1_000 < len(answer.messages) <= PULL_ENTRIES_MAX
    assert len(peer.answers[0].payload) <= 65_000


async def test_storage_failure_on_pull(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here: an error, where released nodes say that there is nothing."""
    peer = client(core)
    address = await create(peer)
    await peer.ask(address, PushRequest(1, b"x"))
    read = core.store.read

    def failing(operation: Any) -> bool:
        if not isinstance(operation, Read):
            return read(operation)
        operation.error = StoreError("store.read", "the disk is broken")
        return True

    monkeypatch.setattr(core.store, "read", failing)
    answers = await peer.ask(address, PullRequest(1, 0, 9))
    assert answers == [ErrorResponse("the disk is broken")]


BAD = [
    b"garbage",
    b"",
    b"\x04nope\x00",
    b"\x0bstream_push\x00",
    b"\x0bstream_pull\x04\x01\x00\x01\x00",
]


@pytest.mark.parametrize("payload", BAD)
async def test_bad_or_unknown_payload_at_service_or_stream(core: Core, payload: bytes) -> None:
    peer = client(core)
    address = await create(peer)
    for worker in (b"stream", b"stream_service", address):
        if worker == b"stream_service":
            core.router.register(worker, core.streams)
        assert await payloads(peer, worker, payload) == [INVALID]


@pytest.mark.parametrize("payload", BAD)
async def test_bad_or_unknown_payload_at_the_index_service(core: Core, payload: bytes) -> None:
    peer = client(core)
    assert await payloads(peer, "stream_index", payload) == []
    assert await peer.ask("stream_index", BinaryRequest(b"x"), CreateRequest("s")) == []
    answers = await peer.ask("stream_index", GetIndexRequest("c", "s"))
    assert answers == [IndexResponse("c", "s", None)]


SPECIFIED = [
    (GetIndexRequest("c", "s", "stream_index:request"), "stream_index:response"),
    (GetPartitionIndexRequest("c", "s", 1, "stream_index:request"), "stream_index:response"),
    (
        GetPartitionIndexRequest("c", "s", 1, "stream_index_partitioned:request"),
        "stream_index_partitioned:response",
    ),
    (GetPartitionIndexRequest("c", "s", 1, "stream_index"), "stream_index"),
]


@pytest.mark.parametrize(("get", "tag"), SPECIFIED)
async def test_an_index_never_saved_in_the_specification_s_spelling(
    core: Core, get: GetIndexRequest | GetPartitionIndexRequest, tag: str
) -> None:
    """The specification: "a new record MUST be created with an index 0"."""
    peer = client(core)
    partition = get.partition if isinstance(get, GetPartitionIndexRequest) else None
    released: GetIndexRequest | GetPartitionIndexRequest

    def answer(index: int | None, tag: str) -> IndexResponse | PartitionIndexResponse:
        if partition is None:
            return IndexResponse("c", "s", index, tag)
        return PartitionIndexResponse("c", "s", partition, index, tag)

    if partition is None:
        released, plain = GetIndexRequest("c", "s"), "stream_index"
    else:
        plain = "stream_index_partitioned"
        released = GetPartitionIndexRequest("c", "s", partition)
    # Released clients are told of none, and asking makes none.
    for _ in range(2):
        assert await peer.ask("stream_index", released) == [answer(None, plain)]
    assert await peer.ask("stream_index", get) == [answer(0, tag)]
    assert await peer.ask("stream_index", released) == [answer(0, plain)]
    save: SaveIndexRequest | SavePartitionIndexRequest = SaveIndexRequest("c", "s", 7)
    if partition is not None:
        save = SavePartitionIndexRequest("c", "s", partition, 7)
    await peer.ask("stream_index", save)
    assert await peer.ask("stream_index", get) == [answer(7, tag)]
    listed = await core.peer().ask("stream_index", native.ListIndexesRequest(1, "s", "", 0, ""))
    assert [(one.client_id, one.index) for one in listed[0].indexes] == [("c", 7)]


async def test_a_record_that_cannot_be_made_is_an_error(core: Core) -> None:
    core.store.faults.failing_syncs = 1
    get = GetIndexRequest("c", "s", "stream_index:request")
    (answer,) = await client(core).ask("stream_index", get)
    assert isinstance(answer, ErrorResponse)
    assert answer.tag == "error:response"


async def test_save_lower_index(core: Core) -> None:
    peer = client(core)
    get = GetIndexRequest("c", "s")
    for saved, kept in ((5, 5), (3, 5), (5, 5), (1_000, 1_000), (0, 1_000)):
        answers = await peer.ask("stream_index", SaveIndexRequest("c", "s", saved), get)
        assert answers == [IndexResponse("c", "s", kept)]


async def test_save_partitioned(core: Core) -> None:
    """Here: one index for each partition, where the released in-memory storage had one for all."""
    peer = client(core)
    await peer.ask("stream_index", SavePartitionIndexRequest("c", "s", 1, 9))
    for partition, index in ((0, None), (1, 9), (2, None)):
        answers = await peer.ask("stream_index", GetPartitionIndexRequest("c", "s", partition))
        assert answers == [PartitionIndexResponse("c", "s", partition, index)]


async def test_index_key(core: Core) -> None:
    peer = client(core)
    pairs = [("c", "s"), ("s", "c"), ("c", "c"), ("", "cs"), ("cs", ""), ("c\0", "s")]
    for index, (client_id, name) in enumerate(pairs):
        await peer.ask("stream_index", SaveIndexRequest(client_id, name, index))
    for index, (client_id, name) in enumerate(pairs):
        answers = await peer.ask("stream_index", GetIndexRequest(client_id, name))
        assert answers == [IndexResponse(client_id, name, index)]


async def test_cleanup(core: Core) -> None:
    """Nothing is cleaned up by itself; here, actors that sleep meanwhile lose nothing."""
    peer = client(core)
    address = await create(peer)
    await peer.ask(address, PushRequest(1, b"kept"))
    await peer.ask("stream_index", SaveIndexRequest("c", "s", 1))
    for _ in range(5):
        core.clock.advance(100_000.0)
        await core.settle()
    assert await peer.ask(address, PullRequest(1, 0, 9)) == [PullResponse(1, [(0, b"kept")])]
    answers = await peer.ask("stream_index", GetIndexRequest("c", "s"))
    assert answers == [IndexResponse("c", "s", 1)]


async def test_restart(core: Core) -> None:
    """Here: everything that was confirmed is there, where released nodes lose everything."""
    peer = client(core)
    address = await create(peer)
    await peer.ask(address, PushRequest(1, b"kept"))
    await peer.ask("stream_index", SaveIndexRequest("c", "s", 1), GetIndexRequest("c", "s"))
    core.store.crash()
    core.store.open()
    assert await create(peer) == address
    assert await peer.ask(address, PullRequest(1, 0, 9)) == [PullResponse(1, [(0, b"kept")])]


async def test_an_error_is_not_answered_with_an_error(core: Core) -> None:
    """Two nodes that answered each other's errors would never end."""
    peer = client(core)
    address = await create(peer)
    for tag in ("error", "error:response"):
        error = encode_response(ErrorResponse("Invalid request", tag))
        for worker in (b"stream", b"stream_index", address):
            assert await payloads(peer, worker, error) == []
