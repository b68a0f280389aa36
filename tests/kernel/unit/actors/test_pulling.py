"""Answers to pulls fit one message; what was confirmed can be pulled, and the rest is skipped."""

from typing import Any, Final

import pytest
from hypothesis import given, strategies as st

from core_support import Core, Peer, with_core
from rillnode.actors.core.delivery import Origin
from rillnode.actors.core.streams.pulling import (
    NUMBER_MAX,
    RELAYED_BYTES,
    RUNS_KEPT,
    Collected,
    Oversized,
    Pull,
    can_be_pulled,
    collect,
    encode_pulled,
    entry_bytes_max,
)
from rillnode.actors.core.streams.reading import LOOK_READ_BYTES
from rillnode.actors.log import LogExtent, Read
from rillnode.codecs import native
from rillnode.codecs.entries import Block, EntryKind, encode_block, pack_body
from rillnode.codecs.limits import (
    PULL_LOOK_BYTES_MAX,
    ROUTE_HOPS_MAX,
    U16_FRAME_BYTES_MAX,
    U16_MESSAGE_BYTES_MAX,
    U32_MESSAGE_BYTES_MAX,
)
from rillnode.codecs.links import WireFormat
from rillnode.codecs.routing.routes import Address, Route, WireMessage, local
from rillnode.codecs.routing.stream import (
    CreateRequest,
    PullRequest,
    PullResponse,
    PushConfirm,
    PushRequest,
    Status,
    decode_response,
    encode_request,
)
from rillnode.codecs.routing.wire import wire_codec
from rillnode.codecs.varint import BIG_UINT_MAX

LINKS: Final[dict[WireFormat, int]] = {"bare": U16_FRAME_BYTES_MAX, "cbor": U32_MESSAGE_BYTES_MAX}
CONNECTION: Final = local("TCP_H_0123456789abcdef")
RANDOM: Final = local("0123456789abcdef")
"""A worker's address of 2021."""
SHORT: Final = local(b"ST_S_0_s")
LONGEST: Final = local(b"ST_S_0_" + b"s" * 505)
FAR: Final[Route] = (CONNECTION, *[Address(2**64 - 1, b"a" * 300)] * 62)
TAGS: Final = ("stream_pull", "stream_pull:request")


def origin(wire_format: WireFormat = "bare") -> Origin:
    limit = LINKS[wire_format]
    return Origin("anonymous", limit, native=False, wire_format=wire_format)


def answered(
    pull: Pull, items: list[bytes], first_index: int, own: Address = SHORT
) -> tuple[Collected, int]:
    """What is taken for a pull, and how large the message is that carries it."""
    body = pack_body(items)
    value = encode_block(
        count=len(items), kind=EntryKind.BYTES, received_at=0, position=0, body=body
    )
    operation = Read(
        blocks=[Block(first_index=first_index, value=value)],
        extent=LogExtent(first_index, first_index + len(items), 0),
    )
    found = collect(pull, operation, own.value)
    payload = encode_pulled(pull.request, found.messages)
    back = () if found.unnamed else (own,)
    # The connection takes itself off the onward route before it sends.
    message = WireMessage(pull.return_route[1:], back, payload)
    return found, len(wire_codec(pull.origin.wire_format).encode(message))


def pull_of(
    route: Route,
    tag: str = "stream_pull",
    request_id: int = 1,
    index: int = 0,
    *,
    wire_format: WireFormat = "bare",
) -> Pull:
    request = PullRequest(request_id, index, 10, tag)
    return Pull(origin(wire_format), route, request, 0, index)


@pytest.mark.parametrize("wire_format", LINKS)
@pytest.mark.parametrize("own", [SHORT, LONGEST], ids=["short name", "long name"])
@pytest.mark.parametrize("route", [FAR[:1], FAR], ids=["one hop", "63 hops"])
@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize(
    ("request_id", "index"), [(0, 0), (NUMBER_MAX, NUMBER_MAX), (BIG_UINT_MAX, 2**64 - 2)]
)
def test_the_largest_entry_is_carried_and_one_byte_more_is_not(
    wire_format: WireFormat, own: Address, route: Route, tag: str, request_id: int, index: int
) -> None:
    limit = LINKS[wire_format]
    pull = pull_of(route, tag, request_id, index, wire_format=wire_format)
    largest = pull.entry_bytes_max(index + 1)

    found, size = answered(pull, [bytes(largest), b"next"], index, own)

    assert found.messages == [(index, bytes(largest))]
    assert size <= limit
    assert found.unnamed
    over, size = answered(pull, [bytes(largest + 1), b"next"], index, own)
    assert over.messages == [(index + 1, b"next")]
    assert (over.too_large, over.too_large_bytes) == (1, largest + 1)
    assert (over.first_index, over.next_index) == (index, index + 1)
    if index == NUMBER_MAX - 1 and request_id == NUMBER_MAX:
        assert size == limit


HOPS = st.lists(st.builds(Address, st.integers(0, 2**64 - 1), st.binary(max_size=400)), max_size=63)


@given(
    hops=HOPS,
    tag=st.sampled_from(TAGS),
    wire_format=st.sampled_from(sorted(LINKS)),
    request_id=st.integers(0, BIG_UINT_MAX),
    short=st.integers(0, 40),
)
def test_what_fits_is_computed_exactly(
    hops: list[Address], tag: str, wire_format: WireFormat, request_id: int, short: int
) -> None:
    """With the numbers that are reckoned with, one byte more makes a message too large."""
    asker = origin(wire_format)
    asker.message_bytes_max -= short
    route = (CONNECTION, *hops)
    numbers = max(request_id, NUMBER_MAX), NUMBER_MAX
    largest = entry_bytes_max(asker, route, tag, *numbers)

    def size(data: int) -> int:
        payload = encode_pulled(PullRequest(numbers[0], 0, 1, tag), [(NUMBER_MAX, bytes(data))])
        return len(wire_codec(wire_format).encode(WireMessage(route[1:], (), payload)))

    assert size(largest) <= asker.message_bytes_max < size(largest + 1)


def test_the_stream_s_address_is_left_out_only_where_it_must() -> None:
    pull = pull_of((CONNECTION, RANDOM))
    largest = pull.entry_bytes_max()
    named = [
        n for n in range(largest - 60, largest + 1) if not answered(pull, [bytes(n)], 0)[0].unnamed
    ]
    assert named == list(range(largest - 60, named[-1] + 1))
    _, size = answered(pull, [bytes(named[-1])], 0)
    assert size == U16_FRAME_BYTES_MAX


def test_an_answer_of_several_entries_passes_nodes_of_2022_too() -> None:
    pull = pull_of((CONNECTION, RANDOM))
    for last in range(4_000, 6_000, 7):
        found, size = answered(pull, [bytes(30_000), bytes(30_000), bytes(last)], 0)
        assert len(found.messages) in (2, 3)
        assert size <= U16_MESSAGE_BYTES_MAX
    assert RELAYED_BYTES == U16_FRAME_BYTES_MAX - U16_MESSAGE_BYTES_MAX


def test_what_nodes_of_2022_have_passed_on_passes_them_on_its_way_back() -> None:
    """A push of 65,000 bytes through another node: its entry comes back in no more."""
    route = (CONNECTION, local("TCP_C_0123456789abcdef"), RANDOM)
    push = wire_codec("bare")
    empty = len(push.encode(WireMessage((SHORT,), route[1:], encode_request(PushRequest(1, b"")))))
    size = U16_MESSAGE_BYTES_MAX - empty - 6  # three lengths have three bytes then
    for request_id in (1, 1_000):
        found, sent = answered(pull_of(route, request_id=request_id), [bytes(size)], 0)
        assert [len(data) for _, data in found.messages] == [size]
        assert sent <= U16_MESSAGE_BYTES_MAX


@pytest.mark.parametrize("tag", ["stream_push", "stream_push:request"])
@pytest.mark.parametrize("way", [(), (RANDOM,), (RANDOM, local("me"), local("x" * 2_000))])
def test_a_push_is_taken_where_pulls_over_its_way_can_carry_it(tag: str, way: Route) -> None:
    route, asker = (CONNECTION, *way), origin()
    largest = entry_bytes_max(asker, route, "stream_pull" + tag.removeprefix("stream_push"))
    assert can_be_pulled(asker, route, PushRequest(1, bytes(largest), tag))
    assert not can_be_pulled(asker, route, PushRequest(1, bytes(largest + 1), tag))


def test_clients_of_2021_get_what_released_hubs_take() -> None:
    """As large as docs/protocols/ockam.md says; their own hub gave them 65,472 bytes at most."""
    for way in ((RANDOM,), (local("c" * 21),), (local("me"), local("far"))):
        addresses = sum(2 + len(one.value) for one in way)
        expected = 65_535 - 35 - addresses
        assert entry_bytes_max(origin(), (CONNECTION, *way), "stream_pull") == expected
    assert entry_bytes_max(origin(), (CONNECTION, RANDOM), "stream_pull") >= 65_472


def test_runs_are_remembered_for_those_whom_they_concern() -> None:
    runs = Oversized()
    runs.note(3, 7, 100)
    runs.note(7, 9, 100)
    runs.note(9, 12, 50)
    assert runs.behind(2, 50) == 2
    assert runs.behind(3, 50) == runs.behind(8, 50) == 12
    assert runs.behind(3, 100) == 9
    assert runs.behind(3, 101) == 3
    assert runs.behind(12, 50) == 12
    for n in range(RUNS_KEPT):
        runs.note(1_000 + 10 * n, 1_005 + 10 * n, 100)
    assert runs.behind(3, 50) == 3
    assert runs.behind(1_000, 100) == 1_005


LARGE: Final = 70_000


async def create(peer: Peer, name: str = "s") -> bytes:
    await peer.ask("stream", CreateRequest(name))
    return peer.answers[0].return_route[0].value


async def bring(core: Core, address: bytes, *sizes: int) -> None:
    """Append entries over rillnode's own link, each in a block of its own."""
    peer = core.peer()
    for size in sizes:
        body = pack_body([bytes(size)])
        (answer,) = await peer.ask(address, native.AppendRequest(1, 1, body))
        assert isinstance(answer, native.PositionResponse)


async def indexes(peer: Peer, address: bytes, index: int, limit: int = 10) -> list[int]:
    (answer,) = await peer.ask(address, PullRequest(1, index, limit))
    assert isinstance(answer, PullResponse)
    return [one for one, _ in answer.messages]


def test_what_another_protocol_brought_is_passed_over_and_counted() -> None:
    async def test(core: Core) -> None:
        peer = core.peer(native_too=False)
        address = await create(peer)
        await bring(core, address, LARGE, LARGE, 1, LARGE, 2, LARGE)
        skipped = core.router.undelivered
        assert await indexes(peer, address, 0) == [2]
        assert skipped["entry_skipped"] == 2
        assert await indexes(peer, address, 3) == [4]
        assert await indexes(peer, address, 1) == [2]
        assert skipped["entry_skipped"] == 3
        # Nothing follows the last one: the consumer asks again, and gets what comes later.
        assert await indexes(peer, address, 5) == []
        assert await indexes(peer, address, 5) == []
        assert skipped["entry_skipped"] == 4
        await bring(core, address, 3)
        assert await indexes(peer, address, 5) == [6]
        assert skipped["entry_skipped"] == 4
        # Who can carry them gets them all.
        assert await indexes(core.peer(), address, 0) == [0, 1, 2, 3, 4, 5, 6]

    with_core(test)


@pytest.mark.parametrize("limit", [1, 3])
def test_a_limit_counts_what_comes(limit: int) -> None:
    async def test(core: Core) -> None:
        peer = core.peer(native_too=False)
        address = await create(peer)
        await bring(core, address, *[LARGE] * 40, *range(5))
        assert (await indexes(peer, address, 0, limit))[0] == 40
        assert await indexes(peer, address, 40, limit) == list(range(40, 40 + limit))

    with_core(test)


def test_one_pull_looks_past_so_much_and_the_next_goes_on_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bounded work for each pull; who takes less need not look where who takes more has."""

    async def test(core: Core) -> None:
        read, looked = core.store.read, 0

        def counting(operation: Any) -> bool:
            nonlocal looked
            complete = read(operation)
            if isinstance(operation, Read):
                looked += sum(len(block.value) for block in operation.blocks)
            return complete

        monkeypatch.setattr(core.store, "read", counting)
        near, far = core.peer(native_too=False), core.peer(native_too=False)
        far.origin.message_bytes_max -= 5_000
        address = await create(near)
        size = 1_000_000
        per_pull = PULL_LOOK_BYTES_MAX // size + 1
        end = 2 * per_pull + 1
        await bring(core, address, *[size] * end, 5)
        for peer, found in ((near, []), (far, []), (near, []), (far, [end]), (near, [end])):
            looked = 0
            assert await indexes(peer, address, 0) == found
            assert looked <= PULL_LOOK_BYTES_MAX + 2 * LOOK_READ_BYTES

    with_core(test)


def test_a_route_that_is_too_long_for_any_answer_harms_nothing() -> None:
    """A worker on the way, such as a watcher, adds itself to as many hops as a message may have."""

    async def test(core: Core) -> None:
        peer = core.peer(native_too=False)
        address = await create(peer)
        await bring(core, address, LARGE)
        way = (local("watcher"), CONNECTION, *[RANDOM] * ROUTE_HOPS_MAX)
        requests = PushRequest(1, b"x"), PullRequest(1, 0, 9)
        messages = [WireMessage((local(address),), way, encode_request(one)) for one in requests]
        core.router.route(peer.origin, messages)
        await core.settle()
        assert core.router.undelivered["entry_too_large"] == 1
        assert await indexes(peer, address, 0) == []
        assert await indexes(core.peer(), address, 0) == [0]

    with_core(test)


def test_a_removed_stream_s_large_entries_are_forgotten() -> None:
    async def test(core: Core) -> None:
        peer = core.peer(native_too=False)
        address = await create(peer)
        await bring(core, address, LARGE, LARGE)
        assert await indexes(peer, address, 0) == []
        await core.peer().ask("stream", native.RemoveRequest(1, "s"))
        await create(peer)
        await bring(core, address, 1)
        assert await indexes(peer, address, 0) == [0]

    with_core(test)


def test_a_push_that_no_answer_could_carry_is_refused_and_nothing_is_stored() -> None:
    async def test(core: Core) -> None:
        peer = core.peer(native_too=False)
        address = await create(peer)
        peer.send("stream", encode_request(CreateRequest("s")))
        await core.settle()
        route = (local("any"), local("me"))
        largest = entry_bytes_max(peer.origin, route, "stream_pull")
        answers = await peer.ask(
            address, PushRequest(7, bytes(largest + 1)), PushRequest(8, bytes(largest))
        )
        assert sorted(answers, key=lambda one: one.request_id) == [
            PushConfirm(7, Status.ERROR, 0),
            PushConfirm(8, Status.OK, 0),
        ]
        assert core.router.undelivered["entry_too_large"] == 1
        (pulled,) = await peer.ask(address, PullRequest(1_000, 0, 10))
        assert pulled == PullResponse(1_000, [(0, bytes(largest))])
        assert peer.answers[0].return_route == ()
        assert isinstance(decode_response(peer.answers[0].payload), PullResponse)

    with_core(test)
