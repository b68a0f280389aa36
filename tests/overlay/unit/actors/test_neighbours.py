"""The neighbours actor towards one node: links, floods, resends, and nonsense."""

import pytest

from core_support import Core, with_core
from neighbour_support import (
    ADDRESS,
    CONFIG,
    FRIEND,
    STORAGE_CONFIG,
    Node,
    broadcast,
    log_length,
    overlay_at,
    started,
    subscribe,
)
from rillnode.actors.engine.outside import Outside
from rillnode.actors.log import ListStreams, Read, ReadOperation, RemoveStream
from rillnode.actors.overlay import resending
from rillnode.actors.overlay.announcing import READ_BYTES
from rillnode.actors.overlay.limits import OVERLAY_RESENDS_MAX
from rillnode.actors.overlay.member import RETRY_SECONDS
from rillnode.actors.overlay.neighbours import PAUSE_SECONDS
from rillnode.actors.overlay.stream_keys import overlay_address
from rillnode.codecs.errors import StoreError
from rillnode.codecs.keys import Identity
from rillnode.codecs.limits import LINK_BUFFER_HIGH_BYTES
from rillnode.codecs.routing.stream import CreateRequest, PushRequest
from rillnode.codecs.streamr.control_messages import (
    BroadcastMessage,
    ErrorResponse,
    ResendFromRequest,
    ResendLastRequest,
    ResendRangeRequest,
    ResendResponseNoResend,
    ResendResponseResent,
    SubscribeResponse,
    UnicastMessage,
    UnsubscribeRequest,
    UnsubscribeResponse,
)
from rillnode.codecs.streamr.stream_message import MessageId, MessageRef, StreamMessage
from rillnode.node.config import Config


def check_no_failures(core: Core) -> None:
    failures = {name: one.last_failure for name, one in core.system.stats().items() if one.failures}
    assert failures == {}


async def test_a_neighbour_hears_what_local_clients_push_and_nothing_after_it_left(
    core: Core,
) -> None:
    node, client = await started(core)
    assert isinstance((await node.say(subscribe()))[0], SubscribeResponse)
    await client.ask("ST_S_0_s", PushRequest(1, b"hello"))
    heard = [one for one in await node.heard() if isinstance(one, BroadcastMessage)]
    assert [one.message.content for one in heard] == ['{"data":"aGVsbG8="}']
    leave = UnsubscribeRequest(stream_id="s", partition=0, request_id="r")
    assert isinstance((await node.say(leave))[0], UnsubscribeResponse)
    await client.ask("ST_S_0_s", PushRequest(2, b"again"))
    assert await node.heard() == []
    check_no_failures(core)


async def test_a_node_that_is_not_wanted_any_more_when_it_answers_is_no_neighbour(
    core: Core,
) -> None:
    node, client = await started(core)
    late = SubscribeResponse(stream_id="s", partition=0, request_id="r")
    assert isinstance((await node.say(late))[0], UnsubscribeRequest)
    await client.ask("ST_S_0_s", PushRequest(1, b"hello"))
    assert await node.heard() == []
    check_no_failures(core)


async def test_what_comes_twice_is_kept_once_and_goes_to_all_but_its_source(core: Core) -> None:
    node, client = await started(core)
    await node.say(subscribe())
    assert await node.say(broadcast(1), broadcast(1), broadcast(2, 1), broadcast(1)) == []
    assert await log_length(core, client) == 2
    check_no_failures(core)


async def test_what_a_node_has_missed_is_resent(core: Core) -> None:
    node, client = await started(core)
    everything = ResendFromRequest(
        stream_id="s", partition=0, from_ref=MessageRef(0, 0), request_id="q"
    )
    (nothing,) = await node.say(everything)
    assert isinstance(nothing, ResendResponseNoResend)
    await node.say(broadcast(1), broadcast(2, 1), broadcast(3, 2))
    await client.ask("ST_S_0_s", PushRequest(1, b"7"))
    answers = await node.say(everything)
    resent = [one.message for one in answers if isinstance(one, UnicastMessage)]
    assert [one.content for one in resent] == ['{"n":1}'] * 3 + ["7"]
    assert isinstance(answers[-1], ResendResponseResent)
    part = ResendRangeRequest(
        stream_id="s",
        partition=0,
        from_ref=MessageRef(1, 1),
        to_ref=MessageRef(2, 0),
        publisher_id="PUBLISHER",
        chain_id="chain",
        request_id="q",
    )
    resent = [one.message for one in await node.say(part) if isinstance(one, UnicastMessage)]
    assert [one.id.timestamp for one in resent] == [2]
    check_no_failures(core)


@pytest.mark.parametrize(("config", "keeps"), [(STORAGE_CONFIG, True), (CONFIG, False)])
async def test_only_a_node_that_keeps_streams_resends_the_last_and_what_everybody_said(
    core: Core, config: Config, keeps: bool
) -> None:
    def last(count: int) -> ResendLastRequest:
        return ResendLastRequest(stream_id="s", partition=0, number_last=count, request_id="q")

    part = ResendRangeRequest(
        stream_id="s",
        partition=0,
        from_ref=MessageRef(1, 1),
        to_ref=MessageRef(3, None),
        request_id="q",
    )
    node, _ = await started(core, config)
    await node.say(broadcast(1), *(broadcast(n, n - 1) for n in range(2, 6)))
    for request, found in (
        (last(2), [4, 5]),
        (last(9), [1, 2, 3, 4, 5]),
        (last(0), []),
        (part, [2, 3]),
    ):
        answers = await node.say(request)
        resent = [one.message for one in answers if isinstance(one, UnicastMessage)]
        assert [one.id.timestamp for one in resent] == (found if keeps else [])
        end = ResendResponseResent if resent else ResendResponseNoResend
        assert isinstance(answers[-1], end)
    check_no_failures(core)


async def flood(node: Node, first: int, count: int) -> None:
    """Say messages in several batches, which become as many blocks of the log."""
    for begin in range(first, first + count, 250):
        numbers = range(begin, min(begin + 250, first + count))
        await node.say(*(broadcast(n, n - 1 if n > 1 else None) for n in numbers))


async def resent_since(node: Node, since_ms: int) -> list[StreamMessage]:
    request = ResendFromRequest(
        stream_id="s", partition=0, from_ref=MessageRef(since_ms, 0), request_id="q"
    )
    return [one.message for one in await node.say(request) if isinstance(one, UnicastMessage)]


def test_what_is_resent_names_what_it_follows_however_far_back_that_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resending, "READ_BYTES", 1)  # one block at a time

    async def test(core: Core) -> None:
        node, client = await started(core)
        await client.ask("ST_S_0_s", PushRequest(1, b"1"))
        await flood(node, 1, 1_250)
        await client.ask("ST_S_0_s", PushRequest(2, b"2"))
        await flood(node, 1_251, 1_250)
        core.clock.advance(60.0)
        await client.ask("ST_S_0_s", PushRequest(3, b"3"))
        (resent,) = await resent_since(node, core.clock.now_ms())
        assert resent.content == "3"
        assert resent.previous == MessageRef(resent.id.timestamp, 1_251)
        check_no_failures(core)

    with_core(test)


async def test_what_a_removal_cuts_off_is_not_taken_for_whole(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store knows of a removal before anybody is told of it."""
    node, client = await started(core)
    await client.ask("ST_S_0_s", PushRequest(1, b"1"))
    asked = resending.ResendingActor._read_one  # pyright: ignore[reportPrivateUsage]

    async def read_and_removed(actor: resending.ResendingActor, index: int) -> Read:
        found = await asked(actor, index)
        core.store.submit(RemoveStream(reply_to=Outside("nobody"), name="s"))
        core.store.flush()
        return found

    monkeypatch.setattr(resending.ResendingActor, "_read_one", read_and_removed)
    request = ResendFromRequest(
        stream_id="s", partition=0, from_ref=MessageRef(0, 0), request_id="q"
    )
    *_, answer = await node.say(request)
    assert isinstance(answer, ErrorResponse)


async def test_a_log_of_others_messages_is_not_read_through_for_own_ones(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, _ = await started(core)
    await node.say(subscribe())
    await flood(node, 1, 1_250)
    core.clock.advance(60.0)
    await node.say(broadcast(1_251, 1_250))
    reads: list[Read] = []
    read = core.store.read

    def noted(operation: ReadOperation) -> bool:
        reads.extend([operation] if isinstance(operation, Read) else [])
        return read(operation)

    monkeypatch.setattr(core.store, "read", noted)
    (resent,) = await resent_since(node, core.clock.now_ms())
    assert resent.id.timestamp == 1_251
    assert max(one.until for one in reads if one.entries_max > 1) == 1_251
    assert [one for one in reads if one.until <= 1_250] == []
    check_no_failures(core)


async def test_answers_that_fail_are_told_of_and_take_no_place(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise RuntimeError("planted")

    node, client = await started(core)
    await client.ask("ST_S_0_s", PushRequest(1, b"1"))
    request = ResendFromRequest(
        stream_id="s", partition=0, from_ref=MessageRef(0, 0), request_id="q"
    )
    with monkeypatch.context() as patch:
        patch.setattr(resending.ResendingActor, "_read_one", failing)
        for _ in range(OVERLAY_RESENDS_MAX + 1):
            (answer,) = await node.say(request)
            assert isinstance(answer, ErrorResponse)
            assert answer.error_message == "The log cannot be read now"
    assert len(await resent_since(node, 0)) == 1


async def test_nonsense_is_counted_and_nothing_of_it_is_kept(core: Core) -> None:
    other = StreamMessage(id=MessageId("other", 0, 1, 0, "p", "c"), content="{}")
    late = StreamMessage(id=MessageId("s", 0, 10**15, 0, "p", "c"), content="{}")
    forged = StreamMessage(
        id=MessageId("s", 0, 1, 0, "0x" + "1" * 40, "c"),
        content="{}",
        signature_type=2,
        signature="0x" + "0" * 130,
    )
    carried = StreamMessage(id=MessageId("s", 0, 1, 0, "9" * 64, "rillnode"), content="no json")
    node, client = await started(core)
    await node.send(b"", b"[", b'["4.4.3+rillnode",4,"x",]', b'["4.4.3+rillnode",4,"x",[2,0,]]')
    await node.send(b'["4.4.3+rillnode",1,"x","s",[],0,1]', b"\xff" * 1_000)
    for message in (other, late, forged, carried):
        await node.say(BroadcastMessage(message=message, request_id=""))
    assert await log_length(core, client) == 0
    await node.say(broadcast(1))
    assert await log_length(core, client) == 1
    check_no_failures(core)


async def test_streams_that_could_not_be_listed_are_shared_a_little_later(core: Core) -> None:
    client = core.peer()
    await client.ask("stream", CreateRequest("s"))
    read, failed = core.store.read, list[ListStreams]()

    def failing_once(operation: ReadOperation) -> bool:
        if failed or not isinstance(operation, ListStreams):
            return read(operation)
        operation.error = StoreError("store.read", "a block's checksum is wrong")
        failed.append(operation)
        return True

    with pytest.MonkeyPatch.context() as broken:
        broken.setattr(core.store, "read", failing_once)
        overlay_at(core, CONFIG, Identity.from_seed(bytes(32)))
        await core.settle()
    assert core.router.lookup(overlay_address("s", 0)) is None
    core.clock.advance(RETRY_SECONDS)
    await core.settle()
    assert core.router.lookup(overlay_address("s", 0)) is not None


def revoke(core: Core) -> None:
    core.access.revoke(f"noise:{FRIEND}")


async def test_a_neighbour_that_loses_its_right_is_let_go_and_hears_nothing_more(
    core: Core,
) -> None:
    node, client = await started(core)
    await node.say(subscribe())
    core.access.set_stream("other", {"x": ["pull"]})
    core.access.set_stream("other", {})
    assert await node.heard() == []
    revoke(core)
    (told,) = await node.heard()
    assert isinstance(told, UnsubscribeRequest)
    await client.ask("ST_S_0_s", PushRequest(1, b"hello"))
    assert await node.heard() == []
    node.peer.send(ADDRESS, node.dialect.encode_control(broadcast(1)))
    assert await log_length(core, client) == 1
    check_no_failures(core)


async def test_a_resend_to_a_node_that_loses_its_right_ends(core: Core) -> None:
    node, _ = await started(core)
    await flood(node, 1, 500)
    # It takes nothing, so that the resend waits for it.
    node.peer.links_up().buffered_bytes = 10**9
    assert await resent_since(node, 0) == []
    revoke(core)
    (told,) = await node.heard()
    assert isinstance(told, ErrorResponse)
    core.clock.advance(60.0)
    assert await node.heard() == []
    check_no_failures(core)


async def test_what_is_new_waits_for_the_fastest_neighbour_and_leaves_nobody_out(
    core: Core,
) -> None:
    node, client = await started(core)
    link = node.peer.links_up()
    await node.say(subscribe())
    link.buffered_bytes = LINK_BUFFER_HIGH_BYTES + 1
    for number in range(5):
        await client.ask("ST_S_0_s", PushRequest(number, b"hello %d" % number))
    assert await node.heard() == []
    link.buffered_bytes = 0
    core.clock.advance(2 * PAUSE_SECONDS)
    heard = await node.heard()
    assert [type(one) for one in heard] == [BroadcastMessage] * 5
    core.clock.advance(10.0)
    assert await node.heard() == []  # nothing is left to be brought up to date
    check_no_failures(core)


async def test_what_is_new_is_posted_as_far_as_the_link_takes_it(core: Core) -> None:
    """All of one turn was: of many partitions that was more than a link may have buffered."""
    size, count = 40_000, 60
    node, client = await started(core)
    node.peer.links_up()
    await node.say(subscribe())
    await client.ask("ST_S_0_s", PushRequest(1, b"hello"))
    room = node.peer.origin.own_room
    assert room is not None
    items = (PushRequest(n, bytes(size)) for n in range(count))
    await client.ask("ST_S_0_s", *items)
    posted: list[int] = []
    for _ in range(20):
        posted.append(room.read_bytes)
        room.flushed(0, all_of_it=True)  # as the connection does when it has sent it
        core.clock.advance(2 * PAUSE_SECONDS)
        await core.settle()
    assert max(posted) < LINK_BUFFER_HIGH_BYTES + 4 * READ_BYTES
    assert sum(posted) > count * size > LINK_BUFFER_HIGH_BYTES + 4 * READ_BYTES
    heard = await node.heard()
    assert len([one for one in heard if isinstance(one, BroadcastMessage)]) == 1 + count
    assert (room.reading_bytes, room.read_bytes, room.kept_bytes) == (0, 0, 0)
    check_no_failures(core)


async def test_resends_over_one_link_take_turns_and_give_their_room_back(core: Core) -> None:
    node, _ = await started(core)
    await flood(node, 1, 500)
    link = node.peer.links_up()
    link.buffered_bytes = LINK_BUFFER_HIGH_BYTES + 1
    assert await resent_since(node, 0) == []
    assert await resent_since(node, 0) == []
    room = node.peer.origin.own_room
    assert room is not None
    assert room.waiting == 2
    link.buffered_bytes = 0
    core.clock.advance(0.1)
    heard = await node.heard()
    assert len([one for one in heard if isinstance(one, UnicastMessage)]) == 1_000
    core.clock.advance(1.0)
    assert (room.reading_bytes, room.kept_bytes, room.waiting) == (0, 0, 0)
    check_no_failures(core)
