"""The stream core's actors among themselves: order, refusals, retention, failures of the store."""

from functools import partial

import pytest
from hypothesis import given, strategies as st

from core_support import Core, Peer, decode, encode, with_core
from rillnode.actors.core.access import Grant, Verb
from rillnode.actors.core.streams.context import parse_stream_address, stream_address
from rillnode.actors.core.streams.retention import SWEEP_SECONDS
from rillnode.actors.core.streams.revising import EnsureStream
from rillnode.actors.core.streams.stream import MISSING_SECONDS
from rillnode.actors.log import FindStream, Locate, Read, ReadOperation, Retention
from rillnode.codecs import native
from rillnode.codecs.entries import entries_of, pack_body
from rillnode.codecs.errors import StoreError
from rillnode.codecs.routing.stream import (
    CreatePartitionedRequest,
    CreatePartitionedResponse,
    CreateRequest,
    ErrorResponse,
    GetIndexRequest,
    IndexResponse,
    PullRequest,
    PullResponse,
    PushConfirm,
    PushRequest,
    SaveIndexRequest,
    Status,
)


async def open_stream(peer: Peer, name: str, partitions: int = 1) -> bytes:
    answers = await peer.ask("stream", native.OpenRequest(1, name, partitions))
    return bytes(answers[0].stream.partitions[0].address)


@given(st.text(min_size=1, max_size=80), st.integers(0, 2**31))
def test_address_tells_name_and_partition_again(name: str, partition: int) -> None:
    address = stream_address(name, partition)
    assert parse_stream_address(address) == (name, partition)
    assert address.isascii()


@pytest.mark.parametrize(
    "address",
    [b"ST_S_", b"ST_S_0", b"ST_S__x", b"ST_S_01_x", b"ST_S_0_%zz", b"ST_S_0_%ff", b"ST_S_0_a b"],
)
def test_what_no_stream_was_given_is_no_stream_address(address: bytes) -> None:
    assert parse_stream_address(address) is None


def test_first_messages_to_a_stream_keep_their_order_while_it_is_found() -> None:
    async def test(core: Core) -> None:
        peer = core.peer()
        address = await open_stream(peer, "s")
        core.system.post(core.streams, None)
        for start in range(0, 40, 10):
            requests = [PushRequest(n, b"%d" % n) for n in range(start, start + 10)]
            peer.send(address, *map(encode, requests))
        answers = await peer.ask(address, PushRequest(99, b"last"))
        assert answers[-1] == PushConfirm(99, Status.OK, 40)

    with_core(test)


def test_creates_of_one_name_at_one_time_make_one_stream() -> None:
    async def test(core: Core) -> None:
        peer = core.peer()
        answers = await peer.ask(
            "stream",
            CreateRequest("s"),
            CreatePartitionedRequest("s", 3),
            CreateRequest("s"),
            CreatePartitionedRequest("s", 2),
        )
        numbers = [a.partition for a in answers if isinstance(a, CreatePartitionedResponse)]
        assert numbers == [0, 1, 2, 0, 1]
        assert len(answers) == 7
        described = await peer.ask("stream", native.DescribeRequest(1, "s"))
        assert len(described[0].stream.partitions) == 3

    with_core(test)


def test_failed_append_is_confirmed_with_an_error_and_later_ones_succeed() -> None:
    async def test(core: Core) -> None:
        peer = core.peer()
        address = await open_stream(peer, "s")
        core.store.faults.failing_syncs = 1
        assert await peer.ask(address, PushRequest(1, b"lost")) == [PushConfirm(1, Status.ERROR, 0)]
        core.clock.advance(1)
        assert await peer.ask(address, PushRequest(2, b"kept")) == [PushConfirm(2, Status.OK, 0)]
        assert await peer.ask(address, PullRequest(3, 0, 9)) == [PullResponse(3, [(0, b"kept")])]

    with_core(test)


def test_failed_append_of_a_native_client_is_a_retryable_failure() -> None:
    async def test(core: Core) -> None:
        peer = core.peer()
        address = await open_stream(peer, "s")
        core.store.faults.failing_syncs = 1
        answers = await peer.ask(address, native.AppendRequest(1, 1, pack_body([b"x"])))
        assert (answers[0].code, answers[0].retryable) == ("store.failed", True)

    with_core(test)


def test_body_that_does_not_add_up_is_refused_and_nothing_stored() -> None:
    async def test(core: Core) -> None:
        peer = core.peer()
        address = await open_stream(peer, "s")
        for count, body in ((2, pack_body([b"x"])), (1, b"\xff\xff\xff\xff"), (0, b"")):
            answers = await peer.ask(address, native.AppendRequest(1, count, body))
            assert isinstance(answers[0], native.Failure)
        answers = await peer.ask("stream", native.DescribeRequest(2, "s"))
        assert answers[0].stream.partitions[0].next_index == 0

    with_core(test)


def test_an_address_without_a_stream_is_unknown_until_there_is_one() -> None:
    async def test(core: Core) -> None:
        peer = core.peer()
        address = stream_address("later", 0)
        read = native.ReadRequest(1, 0, 10, 1_000)
        assert (await peer.ask(address, read))[0].code == "stream.unknown"
        assert core.router.lookup(address) is not None
        await open_stream(peer, "later")
        assert isinstance((await peer.ask(address, read))[0], native.BlocksResponse)

    with_core(test)


def test_actors_without_a_stream_go_again() -> None:
    async def test(core: Core) -> None:
        peer = core.peer()
        for number in range(50):
            peer.send(stream_address(f"none-{number}", 0), encode(PullRequest(1, 0, 1)))
        await core.settle()
        core.clock.advance(MISSING_SECONDS + 0.1)
        await core.settle()
        for number in range(50):
            assert core.router.lookup(stream_address(f"none-{number}", 0)) is None
        assert peer.origin.reserved_bytes == 0

    with_core(test)


def test_strangers_make_no_actors() -> None:
    async def test(core: Core) -> None:
        stranger = core.peer("noise:aa")
        stranger.send(stream_address("s", 0), encode(PullRequest(1, 0, 1)))
        await core.settle()
        assert core.router.lookup(stream_address("s", 0)) is None
        assert core.router.undelivered["refused"] == 1

    with_core(test)


def test_verbs_are_checked_one_by_one() -> None:
    async def test(core: Core) -> None:
        address = await open_stream(core.peer(), "s")
        core.access.add(Grant(who="noise:aa", streams="s", may=frozenset({"push"})))
        pusher = core.peer("noise:aa")
        answers = await pusher.ask(
            address,
            native.ReadRequest(1, 0, 1, 1),
            native.AppendRequest(2, 1, pack_body([b"x"])),
            native.SubscribeRequest(3, 0, 1_000),
        )
        by_id = {answer.request_id: answer for answer in answers}
        assert isinstance(by_id[2], native.PositionResponse)
        assert by_id[1].code == by_id[3].code == "stream.unknown"

    with_core(test)


def test_an_ockam_origin_cannot_speak_native_protocols() -> None:
    async def test(core: Core) -> None:
        address = await open_stream(core.peer(), "s")
        plain = core.peer(native_too=False)
        assert await plain.ask(address, native.ReadRequest(1, 0, 1, 1)) == [
            ErrorResponse("Invalid request")
        ]

    with_core(test)


def test_idle_streams_are_given_up_and_come_back() -> None:
    async def test(core: Core) -> None:
        peer = core.peer()
        address = await open_stream(peer, "s")
        await peer.ask(address, PushRequest(1, b"a"))
        cell = core.router.lookup(address)
        assert cell is not None
        assert cell.instance is not None
        for _ in range(3):
            core.clock.advance(61)
            await core.settle()
        assert cell.instance is None
        assert await peer.ask(address, PushRequest(2, b"b")) == [PushConfirm(2, Status.OK, 1)]
        assert core.router.lookup(address) is cell

    with_core(test)


def test_configured_stream_is_made_and_brought_up_to_its_configuration() -> None:
    async def test(core: Core) -> None:
        peer = core.peer()
        await open_stream(peer, "s")
        ensure = EnsureStream("s", 4, Retention(entries_max=10))
        core.system.post(core.streams, ensure)
        await core.settle()
        answers = await peer.ask("stream", native.DescribeRequest(1, "s"))
        info = answers[0].stream
        assert (len(info.partitions), info.retain_entries_max) == (4, 10)

    with_core(test)


def test_retention_by_age_and_count_leaves_the_newest() -> None:
    async def test(core: Core) -> None:
        core.system.post(core.streams, EnsureStream("s", 1, Retention(seconds=100)))
        await core.settle()
        peer = core.peer()
        address = await open_stream(peer, "s")
        for _ in range(3):
            await peer.ask(address, PushRequest(1, b"x"))
            core.clock.advance(60)
        core.clock.advance(SWEEP_SECONDS)
        await core.settle()
        core.clock.advance(SWEEP_SECONDS)
        answers = await peer.ask(address, PullRequest(1, 0, 9))
        assert answers == [PullResponse(1, [(2, b"x")])]

    with_core(test)


def test_retention_costs_no_timer_while_no_stream_has_limits() -> None:
    async def test(core: Core) -> None:
        await core.settle()
        idle = core.clock.timers
        for limits, timers in ((Retention(), 0), (Retention(entries_max=1), 1), (Retention(), 0)):
            core.system.post(core.streams, EnsureStream("s", 1, limits))
            await core.settle()
            core.clock.advance(SWEEP_SECONDS)
            await core.settle()
            assert core.clock.timers == idle + timers

    with_core(test)


def test_retention_waits_for_what_a_sink_holds() -> None:
    async def test(core: Core) -> None:
        core.system.post(core.streams, EnsureStream("s", 1, Retention(entries_max=1)))
        await core.settle()
        hold = core.holds.add("bronze")
        peer = core.peer()
        address = await open_stream(peer, "s")
        for _ in range(5):
            await peer.ask(address, PushRequest(1, b"x"))
        for committed, first in ((0, 0), (3, 3), (5, 4)):
            hold.known, hold.committed[1 << 32] = True, committed
            core.clock.advance(SWEEP_SECONDS + 0.1)
            await core.settle()
            answers = await peer.ask("stream", native.DescribeRequest(1, "s"))
            assert answers[0].stream.partitions[0].first_index == first

    with_core(test)


def test_positions_are_answered_in_order_and_durable() -> None:
    async def test(core: Core) -> None:
        peer = core.peer()
        answers = await peer.ask(
            "stream_index",
            GetIndexRequest("c", "s"),
            SaveIndexRequest("c", "s", 5),
            SaveIndexRequest("c", "s", 3),
            GetIndexRequest("c", "s"),
            native.SaveIndexRequest(7, "c", "s", 0, 4),
        )
        # The first get was asked before any save, and answered when all is durable: 5 by then,
        # or none at once; the rest must be 5.
        assert answers[-1] == native.SavedIndexResponse(7, 5)
        assert IndexResponse("c", "s", 5) in answers
        assert len(answers) == 3
        core.store.crash()
        core.store.open()
        assert await peer.ask("stream_index", GetIndexRequest("c", "s")) == [
            IndexResponse("c", "s", 5)
        ]

    with_core(test)


def test_position_that_could_not_be_saved_can_be_saved_again() -> None:
    async def test(core: Core) -> None:
        peer = core.peer()
        core.store.faults.failing_syncs = 1
        save = native.SaveIndexRequest(1, "c", "s", 0, 5)
        answers = await peer.ask("stream_index", save)
        assert (answers[0].code, answers[0].retryable) == ("store.failed", True)
        assert await peer.ask("stream_index", GetIndexRequest("c", "s")) == [
            IndexResponse("c", "s", None)
        ]
        core.clock.advance(1)
        assert await peer.ask("stream_index", save) == [native.SavedIndexResponse(1, 5)]

    with_core(test)


def test_asking_for_positions_creates_none_and_keeps_few_actors() -> None:
    async def test(core: Core) -> None:
        peer = core.peer()
        for number in range(300):
            await peer.ask("stream_index", native.LoadIndexRequest(number, f"c{number}", "s", 0))
        listing = native.ListIndexesRequest(1, "", "", 0, "")
        answers = await peer.ask("stream_index", listing)
        assert answers == [native.ListIndexesResponse(1, [], None)]

    with_core(test)


def test_subscription_stops_at_its_credit_and_goes_on_with_more() -> None:
    async def test(core: Core) -> None:
        peer = core.peer()
        address = await open_stream(peer, "s")
        for _ in range(5):
            await peer.ask(address, native.AppendRequest(1, 1, pack_body([bytes(1_000)])))
        answers = await peer.ask(address, native.SubscribeRequest(9, 0, 2_000))
        assert [b.first_index for a in answers for b in a.blocks] == [0, 1]
        route = peer.answers[0].return_route[0].value
        answers = await peer.ask(route, native.CreditRequest(9, 2_000))
        assert [b.first_index for a in answers for b in a.blocks] == [2, 3]
        await peer.ask(route, native.UnsubscribeRequest(9))
        assert core.router.lookup(route) is None
        assert not peer.origin.attached

    with_core(test)


def test_subscription_answers_its_own_link_only() -> None:
    async def test(core: Core) -> None:
        peer, other = core.peer(), core.peer()
        address = await open_stream(peer, "s")
        await peer.ask(address, native.AppendRequest(1, 1, pack_body([b"x"])))
        await peer.ask(address, native.SubscribeRequest(9, 0, 1_000))
        route = peer.answers[0].return_route[0].value
        answers = await other.ask(route, native.UnsubscribeRequest(9))
        assert answers[0].code == "address.unknown"
        assert core.router.lookup(route) is not None

    with_core(test)


def test_subscription_that_has_brought_nothing_is_ended_at_its_stream() -> None:
    async def test(core: Core) -> None:
        peer, other = core.peer(), core.peer()
        address = await open_stream(peer, "s")
        for number in (9, 10):
            assert await peer.ask(address, native.SubscribeRequest(number, 0, 1_000)) == []
        assert await other.ask(address, native.UnsubscribeRequest(9)) == []
        assert len(peer.origin.attached) == 2
        assert await peer.ask(address, native.UnsubscribeRequest(9)) == []
        assert len(peer.origin.attached) == 1
        answers = await peer.ask(address, native.AppendRequest(1, 1, pack_body([b"x"])))
        assert [answer.request_id for answer in answers] == [1, 10]

    with_core(test)


@pytest.mark.parametrize("where", ["", "n >= 0"])
def test_subscription_past_the_end_says_so_and_waits_for_its_index(where: str) -> None:
    async def test(core: Core) -> None:
        peer = core.peer()
        address = await open_stream(peer, "s")
        if where:
            (told,) = await peer.ask(address, native.SubscribeRequest(9, 2, 10_000, where=where))
            assert told == native.FoundResponse(9, 0, 0, 2, [])
        else:
            (told,) = await peer.ask(address, native.SubscribeRequest(9, 2, 10_000))
            assert told == native.BlocksResponse(9, 0, 0, [])
        for number in range(4):
            body = pack_body([b'{"n":%d}' % number])
            answers = await peer.ask(address, native.AppendRequest(10, 1, body))
            found = [a for a in answers if a.request_id == 9]
            assert len(found) == (number >= 2)

    with_core(test)


def test_what_a_log_grows_by_during_a_slow_read_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The read finds nothing, and is completed only after an append was told of."""

    async def test(core: Core) -> None:
        peer = core.peer()
        address = await open_stream(peer, "s")
        slow: list[Read] = []
        read = core.store.read

        def read_slowly(operation: ReadOperation) -> bool:
            if slow or not isinstance(operation, Read):
                return read(operation)
            slow.append(operation)  # as it is: of an empty log there is nothing to read
            return False

        monkeypatch.setattr(core.store, "read", read_slowly)
        assert await peer.ask(address, native.SubscribeRequest(9, 0, 10_000)) == []
        await peer.ask(address, native.AppendRequest(1, 1, pack_body([b"x"])))
        peer.answers.clear()
        core.complete(slow[0])
        await core.settle()
        (blocks,) = [decode(answer.payload) for answer in peer.answers]
        assert [block.first_index for block in blocks.blocks] == [0]

    with_core(test)


def test_a_stream_that_cannot_be_looked_up_is_not_said_to_be_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(core: Core) -> None:
        peer = core.peer()
        address, read = await open_stream(peer, "s"), core.store.read

        def failing(operation: ReadOperation) -> bool:
            if not isinstance(operation, FindStream):
                return read(operation)
            operation.error = StoreError("store.read", "a block's checksum is wrong")
            return True

        ask = native.ReadRequest(1, 0, 10, 1_000)
        with monkeypatch.context() as broken:
            broken.setattr(core.store, "read", failing)
            (refused,) = await peer.ask(address, ask)
        assert (refused.code, refused.text) == ("store.read", "a block's checksum is wrong")
        assert isinstance((await peer.ask(address, ask))[0], native.BlocksResponse)

    with_core(test)


def test_times_are_found_by_the_nodes_clock() -> None:
    async def test(core: Core) -> None:
        peer = core.peer()
        address = await open_stream(peer, "s")
        began = core.clock.now_ms()
        for _ in range(5):
            await peer.ask(address, native.AppendRequest(1, 1, pack_body([b"x"])))
            core.clock.advance(10)
        asked = [
            (0, False), (began, False), (began + 1, False), (began + 40_000, False),
            (began + 40_001, False), (0, True), (10_000, True), (10_001, True), (2**62, True),
        ]  # fmt: skip
        answers = await peer.ask(
            address, *(native.LocateRequest(9, time, ago) for time, ago in asked)
        )
        assert [answer.index for answer in answers] == [0, 0, 1, 4, 5, 5, 4, 4, 0]

    with_core(test)


@pytest.mark.parametrize(
    ("verb", "is_told"), [("pull", True), ("subscribe", True), ("push", False), ("create", False)]
)
def test_times_are_found_by_who_may_read(verb: Verb, is_told: bool) -> None:
    async def test(core: Core) -> None:
        address = await open_stream(core.peer(), "s")
        core.access.add(Grant(who="noise:aa", streams="s", may=frozenset({verb})))
        (answer,) = await core.peer("noise:aa").ask(address, native.LocateRequest(1, 0, False))
        if is_told:
            assert answer == native.PositionResponse(1, 0)
        else:
            assert answer.code == "stream.unknown"

    with_core(test)


def test_a_time_that_the_store_could_not_find_is_a_failure() -> None:
    async def test(core: Core) -> None:
        peer = core.peer()
        address = await open_stream(peer, "s")

        def read(operation: Locate) -> bool:
            operation.error = StoreError("store.failed", "no")
            return True

        core.store.read = read  # type: ignore[method-assign,assignment]
        (answer,) = await peer.ask(address, native.LocateRequest(1, 0, False))
        assert (answer.code, answer.retryable) == ("store.failed", True)

    with_core(test)


def quakes(first: int, count: int) -> native.AppendRequest:
    items = [b'{"mag": %d}' % (number % 10) for number in range(first, first + count)]
    return native.AppendRequest(1, count, pack_body(items))


def magnitudes(found: native.FoundResponse) -> list[tuple[int, bytes]]:
    return [
        (entry.index, entry.data[-2:-1])
        for block in native.blocks_of(found)
        for entry in entries_of(block)
    ]


def test_a_search_brings_what_matches_and_how_far_it_has_looked() -> None:
    async def test(core: Core) -> None:
        peer = core.peer()
        address = await open_stream(peer, "s")
        await peer.ask(address, quakes(0, 1_000), quakes(1_000, 1_500))
        search = partial(native.SearchRequest, 5)
        (found,) = await peer.ask(address, search(0, 2**64 - 1, 10_000, "mag >= 8"))
        assert (found.request_id, found.first_index, found.next_index) == (5, 0, 2_500)
        assert found.reached == 1_000
        assert [index for index, _ in magnitudes(found)] == [
            index for index in range(1_000) if index % 10 >= 8
        ]
        (found,) = await peer.ask(address, search(1_995, 2_009, 10, "mag > 8"))
        assert (magnitudes(found), found.reached) == ([(1_999, b"9")], 2_009)
        (found,) = await peer.ask(address, search(3, 99, 1, "mag = 4"))
        assert (magnitudes(found), found.reached) == ([(4, b"4")], 5)
        (found,) = await peer.ask(address, search(9_000, 9_999, 1, "mag"))
        assert (found.blocks, found.reached) == ([], 9_000)
        for text, code in (("mag >", "where.syntax"), ("x" * 2_000, "where.length")):
            for request in (
                search(0, 9, 9, text),
                native.SubscribeRequest(6, 0, 1_000, where=text),
            ):
                (refused,) = await peer.ask(address, request)
                assert (refused.code, refused.retryable) == (code, False)

    with_core(test)


def test_a_follower_gets_what_matches_of_what_is_there_and_of_what_comes() -> None:
    async def test(core: Core) -> None:
        peer = core.peer()
        address = await open_stream(peer, "s")
        await peer.ask(address, *(quakes(1_000 * number, 1_000) for number in range(12)))
        answers = await peer.ask(
            address, native.SubscribeRequest(9, 5, 1_000_000, where="mag = 11")
        )
        for _ in range(20):
            core.clock.advance(0.001)
            await core.settle()
        answers += [decode(answer.payload) for answer in peer.answers]
        # Nothing has matched: it tells once in a while how far it has looked.
        (told,) = {answer.reached for answer in answers if isinstance(answer, native.FoundResponse)}
        assert 10_000 < told <= 11_005
        peer.answers.clear()
        late = native.AppendRequest(1, 3, pack_body([b'{"mag":1}', b'{"mag":11}', b"no json"]))
        await peer.ask(address, late)
        for _ in range(5):
            core.clock.advance(0.001)
            await core.settle()
        found = [decode(answer.payload) for answer in peer.answers]
        (matched,) = [one for one in found if isinstance(one, native.FoundResponse)]
        assert matched.request_id == 9
        assert (matched.next_index, matched.reached) == (12_003, 12_003)
        assert [block.first_index for block in native.blocks_of(matched)] == [12_001]

    with_core(test)


def test_credit_counts_what_matches_alone() -> None:
    async def test(core: Core) -> None:
        peer = core.peer()
        address = await open_stream(peer, "s")
        await peer.ask(address, *(quakes(0, 1_000) for _ in range(3)))
        peer.answers.clear()
        peer.send(address, encode(native.SubscribeRequest(9, 0, 1, where="mag = 3")))
        for _ in range(10):
            await core.settle()
            core.clock.advance(0.001)
        (answer,) = peer.answers
        first = decode(answer.payload)
        assert first.reached == 1_000
        assert len(magnitudes(first)) == 100
        peer.answers.clear()
        peer.send(answer.return_route[0].value, encode(native.CreditRequest(9, 100_000)))
        for _ in range(10):
            await core.settle()
            core.clock.advance(0.001)
        assert [decode(one.payload).reached for one in peer.answers] == [2_000, 3_000]

    with_core(test)
