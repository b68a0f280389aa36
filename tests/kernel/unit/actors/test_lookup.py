"""Routes that are looked up: who sees what, what is asked wrongly, and what many cost."""

import asyncio
import tracemalloc
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, strategies as st

from actor_support import run
from core_support import Core, Peer, with_core
from link_support import ManualClock
from rillnode.actors.apps.hosting import Hosting
from rillnode.actors.core.access import Grant
from rillnode.actors.core.delivery import Delivery
from rillnode.actors.core.lookup import found, streams, table
from rillnode.actors.core.lookup.desk import ADDRESS, LOOK_SECONDS, LookupActor
from rillnode.actors.core.lookup.streams import index_address, parse_index_address
from rillnode.actors.core.streams.context import stream_address
from rillnode.actors.core.threads import SYSTEM_THREADS
from rillnode.actors.engine.described import Described
from rillnode.actors.engine.faults import When
from rillnode.actors.engine.system import AsyncioSystemBase, Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import ListStreams, PutStream, SavedIndexKey, StreamRecord
from rillnode.codecs import native
from rillnode.codecs.limits import LOOKUPS_PER_LINK_MAX
from rillnode.codecs.routing.routes import Address, WireMessage, local
from rillnode.codecs.routing.stream import CreateRequest, PullRequest, encode_request
from rillnode.testing import fail
from turn_support import counted_by_loop_turn

STREAMS = 10_000


def looked_up(test: Callable[[Core], Awaitable[None]]) -> None:
    async def with_desk(core: Core) -> None:
        core.router.register(ADDRESS, core.system.spawn(partial(LookupActor, core.context)))
        await test(core)

    with_core(with_desk)


def send(peer: Peer, payload: bytes, *hops: bytes | Address) -> None:
    route = tuple(hop if isinstance(hop, Address) else local(hop) for hop in (ADDRESS, *hops))
    peer.core.router.route(peer.origin, [WireMessage(route, peer.back, payload)])


async def answers(peer: Peer, rounds: int = 20) -> list[native.Response]:
    await peer.core.settle(rounds)
    found = [native.decode_response(answer.payload) for answer in peer.answers]
    peer.answers.clear()
    return found


async def ask(peer: Peer, request: native.Request, *hops: bytes | Address) -> native.Response:
    send(peer, native.encode(request), *hops)
    (answer,) = await answers(peer)
    return answer


async def code(peer: Peer, request: native.Request, *hops: bytes | Address) -> str:
    answer = await ask(peer, request, *hops)
    assert isinstance(answer, native.Failure)
    assert answer.request_id == request.request_id
    return answer.code


async def about(peer: Peer, address: bytes) -> native.RouteInfo:
    answer = await ask(peer, native.AboutRequest(1), address)
    assert isinstance(answer, native.RouteResponse)
    return answer.route


async def listed(peer: Peer, pattern: str = "*", kind: str = "") -> list[native.RouteInfo]:
    rows: list[native.RouteInfo] = []
    after = b""
    while True:
        send(peer, native.encode(native.ListRoutesRequest(1, pattern, kind, after)))
        while not peer.answers:
            await asyncio.sleep(0)
        (answer,) = await answers(peer, 0)
        assert isinstance(answer, native.RoutesResponse)
        assert len(answer.routes) <= native.ROUTES_MAX
        rows += answer.routes
        after = answer.next_after
        if not after:
            return rows


async def make(core: Core, *records: StreamRecord) -> None:
    for record in records:
        core.store.submit(PutStream(reply_to=core.streams, record=record))
    await core.settle()


class Told(Worker):
    """Tells of itself what a test wants."""

    has_parts = True

    def __init__(self, described: Described, parts: int = 0) -> None:
        self._described = described
        self._parts = parts

    def described(self, address: bytes) -> Described | None:
        return self._described

    def parts(self) -> Any:
        return (b"told/%04d" % number for number in range(self._parts))

    def handle(self, message: Delivery, sender: Cell | None) -> None:
        """Nothing comes of it."""


async def told(core: Core, address: bytes, described: Described, parts: int = 0) -> Cell:
    cell = core.system.spawn(partial(Told, described, parts))
    core.router.register(address, cell)
    await core.settle()
    return cell


# Who sees what ---------------------------------------------------------------------------------


def test_a_client_sees_its_own_what_its_grants_name_and_what_is_open() -> None:
    async def test(core: Core) -> None:
        await make(core, StreamRecord(name="a/1"), StreamRecord(name="b"))
        core.access.add(Grant(who="friend", streams="a/*", may=frozenset({"push"})))
        core.access.add(Grant(who="friend", addresses="app/*", may=frozenset({"send"})))
        one = core.peer("friend", native_too=True)
        core.access.revoke("friend")
        core.access.add(Grant(who="friend", streams="a/*", may=frozenset({"push"})))
        core.access.add(Grant(who="friend", addresses="app/*", may=frozenset({"send"})))
        await told(core, b"open", Described())
        await told(core, b"WS_0123456789abcdef", Described())
        await told(core, b"mine", Described(owner="friend", open_to="owner"))
        await told(core, b"theirs", Described(owner="other", open_to="owner"))
        await told(core, b"node's", Described(open_to="owner"))
        await told(core, b"app/1", Described("actor", open_to="granted"))
        await told(core, b"hidden", Described("actor", open_to="granted"))
        seen = {info.address for info in await listed(one)}
        services = {ADDRESS, b"appender", b"queues", b"stream", b"stream_index"}
        mine = {b"open", b"mine", b"app/1", b"ST_S_0_a/1", *services}
        assert {info.address for info in await listed(one)} - {b"peer"} == seen
        assert {address for address in seen if not address.startswith(b"peer ")} == mine
        core.access.add(Grant(who="boss", streams="x", may=frozenset({"admin"})))
        everything = {info.address for info in await listed(core.peer("boss"))}
        assert everything > mine | {b"theirs", b"node's", b"hidden", b"ST_S_0_b"}
        unknown = await code(one, native.AboutRequest(1), b"nothing")
        for address in (b"theirs", b"node's", b"hidden", b"ST_S_0_b", b"WS_0123456789abcdef"):
            assert await code(one, native.AboutRequest(1), address) == unknown

    looked_up(test)


def test_what_is_anonymous_is_its_own_link_s_alone() -> None:
    async def test(core: Core) -> None:
        one, other = core.peer("anonymous"), core.peer("anonymous")
        link = Described("link", owner="anonymous", origin=one.origin, open_to="owner")
        await told(core, b"link", link)
        assert (await about(one, b"link")).owner == "anonymous"
        assert await code(other, native.AboutRequest(1), b"link") == "address.unknown"

    looked_up(test)


def test_only_its_owner_and_administrators_stop_a_thing() -> None:
    async def test(core: Core) -> None:
        stopped: list[str] = []
        open_to_all = Described(owner="friend", stop=partial(stopped.append, "it"))
        await told(core, b"thing", open_to_all)
        assert await code(core.peer("other"), native.StopRequest(1), b"thing") == "route.refused"
        assert await ask(core.peer("friend"), native.StopRequest(2), b"thing") == (
            native.DoneResponse(2)
        )
        assert stopped == ["it"]

    looked_up(test)


# Bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "hops",
    [(), (b"thing", b"thing")],
    ids=["no address", "two addresses"],
)
def test_a_request_is_about_one_address(hops: tuple[bytes, ...]) -> None:
    async def test(core: Core) -> None:
        await told(core, b"thing", Described())
        for request in (native.AboutRequest(1), native.WatchRequest(2, 5), native.StopRequest(3)):
            assert await code(core.peer(), request, *hops) == "request.invalid"

    looked_up(test)


@pytest.mark.parametrize(
    "address",
    [b"", b"\xff\x00", b"ST_S_", b"ST_S_x_a", b"ST_S_99999999999_a", b"IX_", b"IX_0_a", b"IX_x_a_b",
     b"IX_0_%ff_b", b"IX_0_%41_b",  b"/", b"a" * 2_000, Address(1, b"host:4000")],
)  # fmt: skip
def test_what_is_no_address_of_the_node_is_unknown(address: bytes | Address) -> None:
    async def test(core: Core) -> None:
        await told(core, b"open", Described())
        assert await code(core.peer(), native.AboutRequest(1), address) == "address.unknown"

    looked_up(test)


def test_malformed_requests_are_told_so_and_cost_nothing_else() -> None:
    async def test(core: Core) -> None:
        peer = core.peer()
        whole = native.encode(native.ListRoutesRequest(7, "*", "", b""))
        for payload in (
            whole[:-1],
            whole + b"\0",
            b"\x0erillnode_about\x05\x01",
            b"",
            b"\xff" * 40,
        ):
            send(peer, payload)
            await core.settle()
        assert len(peer.answers) == 5
        peer.answers.clear()
        assert await code(peer, native.StatusRequest(9)) == "request.invalid"
        invalid = (
            native.ListRoutesRequest(1, "*" * 600, "", b""),
            native.ListRoutesRequest(2, "*", "", b"\x09ST_S_0_a"),
        )
        for request in invalid:
            assert await code(peer, request) == "request.invalid"
        assert await listed(peer, kind="no such kind") == []
        assert len(await listed(peer, "[")) == 0
        failed = [stats.failures for stats in core.system.stats().values()]
        assert sum(failed) == 0

    looked_up(test)


def test_who_does_not_speak_rillnode_s_own_language_is_told_nothing() -> None:
    async def test(core: Core) -> None:
        peer = core.peer("elixir", native_too=False)
        send(peer, native.encode(native.AboutRequest(1)), b"stream")
        send(peer, encode_request(PullRequest(1, 0, 1)))
        await core.settle()
        assert not any(native.is_native(answer.payload) for answer in peer.answers)

    looked_up(test)


def test_a_link_looks_up_so_much_at_once_and_no_more() -> None:
    async def test(core: Core) -> None:
        peer = core.peer()
        await told(core, b"thing", Described())
        for number in range(LOOKUPS_PER_LINK_MAX + 2):
            send(peer, native.encode(native.WatchRequest(number, 1_000)), b"thing")
        codes = [one.code for one in await answers(peer) if isinstance(one, native.Failure)]
        assert codes == ["route.busy"] * 2
        send(peer, encode_request(CreateRequest("s")))  # which has no id to be refused by
        await core.settle()
        assert len(peer.answers) == 1
        peer.answers.clear()
        core.clock.advance(1.1)
        states = [one.route.state for one in await answers(peer)]  # type: ignore[union-attr]
        assert states == ["idle"] * LOOKUPS_PER_LINK_MAX
        assert (await about(peer, b"thing")).state == "idle"

    looked_up(test)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_desk_that_fails_tells_whoever_waits_and_goes_on(when: When) -> None:
    async def test(core: Core) -> None:
        one, other = core.peer(), core.peer("other")
        await told(core, b"thing", Described())
        send(one, native.encode(native.WatchRequest(5, 60_000)), b"thing")
        await core.settle()
        with fail(LookupActor, message=Delivery, when=when) as fault:
            answer = await ask(other, native.AboutRequest(6), b"thing")
        assert fault.hits == 1
        if when == "before":
            assert isinstance(answer, native.Failure)
            assert answer.code == "actor.failed"
        else:
            assert isinstance(answer, native.RouteResponse)
        (lost,) = await answers(one)
        assert isinstance(lost, native.Failure)
        assert lost.code == "actor.stopped"
        assert (await about(one, b"thing")).state == "idle"

    looked_up(test)


# Watching --------------------------------------------------------------------------------------


def test_whoever_watches_an_actor_is_told_of_its_end_at_once() -> None:
    async def test(core: Core) -> None:
        one, other = core.peer(), core.peer("other")
        cell = await told(core, b"thing", Described("actor"))
        for peer in (one, one, other):
            send(peer, native.encode(native.WatchRequest(5, 60_000)), b"thing")
        assert await answers(one) == []
        core.system.exit(cell)
        ended = [*await answers(one), *await answers(other)]
        assert [one.route.state for one in ended] == ["ended"] * 3  # type: ignore[union-attr]

    looked_up(test)


def test_a_stream_is_watched_though_no_actor_of_it_is_awake() -> None:
    async def test(core: Core) -> None:
        peer = core.peer()
        await make(core, StreamRecord(name="s"))
        send(peer, native.encode(native.WatchRequest(5, 60_000)), b"ST_S_0_s")
        await core.settle()
        core.clock.advance(LOOK_SECONDS)
        assert await answers(peer) == []
        await peer.ask("stream", native.RemoveRequest(6, "s"))
        peer.answers.clear()
        core.clock.advance(LOOK_SECONDS)
        (ended,) = await answers(peer)
        assert isinstance(ended, native.RouteResponse)
        assert ended.route.state == "ended"

    looked_up(test)


def test_a_watch_goes_on_to_the_end_of_the_node_and_no_further() -> None:
    async def main(system: AsyncioSystemBase, clock: ManualClock) -> None:
        core = Core(system, clock)
        desk = system.spawn(partial(LookupActor, core.context))
        core.router.register(ADDRESS, desk)
        peer = core.peer()
        await told(core, b"thing", Described())
        send(peer, native.encode(native.WatchRequest(5, 60_000)), b"thing")
        await core.settle()
        await asyncio.wait_for(system.settle(), 5.0)  # as at the node's stop: nobody is waited for
        system.exit(desk)
        (answer,) = await answers(peer)
        assert isinstance(answer, native.Failure)
        assert answer.code == "actor.stopped"

    run(main)


# Many ------------------------------------------------------------------------------------------


def test_every_address_is_told_once_page_by_page() -> None:
    async def test(core: Core) -> None:
        described = Described()
        for number in range(3 * native.ROUTES_MAX):
            core.router.register(b"x%d" % (number * 7919 % 1_009), await_less(core, described))
        await told(core, b"told", described, parts=native.ROUTES_MAX)
        await core.settle()
        peer = core.peer()
        rows = [info.address for info in await listed(peer)]
        expected = [one for one in core.router.table if one.startswith((b"x", b"told"))]
        expected += [b"told/%04d" % number for number in range(native.ROUTES_MAX)]
        assert [one for one in rows if one.startswith((b"x", b"told"))] == sorted(expected)
        assert len(await listed(peer, "x*")) == 3 * native.ROUTES_MAX

    looked_up(test)


def await_less(core: Core, described: Described) -> Cell:
    return core.system.spawn(partial(Told, described))


def test_the_partitions_of_streams_and_positions_go_on_where_a_page_ends() -> None:
    async def test(core: Core) -> None:
        await make(core, *(StreamRecord(name=f"s{n:02d}", partitions=40) for n in range(20)))
        peer = core.peer()
        for number in range(300):
            key = native.SaveIndexRequest(1, f"c_{number:03d}", "s00", number % 2, number)
            await peer.ask("stream_index", key)
        peer.answers.clear()
        rows = await listed(peer, kind="stream")
        names = [stream_address(f"s{n:02d}", p) for n in range(20) for p in range(40)]
        assert [info.address for info in rows] == names
        positions = await listed(peer, kind="index")
        assert len({info.address for info in positions}) == len(positions) == 300
        assert {info.parent for info in positions} == {b"stream_index"}
        assert (await about(peer, positions[7].address)) == positions[7]
        both = await listed(peer)
        assert [info for info in both if info.kind in ("stream", "index")] == [*rows, *positions]

    looked_up(test)


@given(st.text(max_size=80), st.integers(0, 2**32 - 1), st.text(max_size=80))
def test_the_address_of_a_position_is_read_again(stream: str, partition: int, client: str) -> None:
    key = SavedIndexKey(stream, partition, client)
    if "\ud800" <= max(stream + client, default="") <= "\udfff":
        return
    assert parse_index_address(index_address(key)) == key


class ManyStreams:
    """Lists more streams than a test can make."""

    def __init__(self, core: Core, count: int = STREAMS) -> None:
        self._count = count
        store: Any = core.store
        self._read = store.read
        store.read = self.read

    def read(self, operation: Any) -> bool:
        if not isinstance(operation, ListStreams):
            answered: bool = self._read(operation)
            return answered
        first = int(operation.after or "-1") + 1
        for number in range(first, min(first + operation.limit, self._count)):
            operation.take(StreamRecord(name=f"{number:06d}"), [])
        operation.more = first + operation.limit < self._count
        return True


@pytest.mark.parametrize("sees", ["all", "none"])
def test_many_streams_are_listed_in_slices(sees: str) -> None:
    async def test(core: Core) -> None:
        ManyStreams(core)
        peer = core.peer("friend" if sees == "all" else "stranger")
        async with counted_by_loop_turn(streams.StreamSource, "_add") as looked:
            count = len(await listed(peer, "*", "stream"))
        assert count == (STREAMS if sees == "all" else 0)
        assert looked.total >= STREAMS
        assert looked.most <= streams.PAGE_ITEMS
        assert len(await listed(peer, "*/0", "stream")) == count

    looked_up(test)


def test_a_list_of_many_keeps_nothing() -> None:
    async def test(core: Core) -> None:
        ManyStreams(core, 20_000)
        peer = core.peer()
        await listed(peer, "0000*", "stream")
        tracemalloc.start()
        try:
            await listed(peer, "0199*", "stream")
            kept, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert most < 2_000_000, f"{most:,}"
        assert kept < 1_000_000, f"{kept:,}"

    looked_up(test)


def test_a_table_of_many_actors_is_gone_through_in_slices() -> None:
    async def test(core: Core) -> None:
        cell = await told(core, b"x", Described("actor", open_to="granted"))
        for number in range(20_000):
            core.router.register(b"device/%d" % number, cell)
        peer = core.peer("stranger")
        async with counted_by_loop_turn(table.TableSource, "_found") as looked:
            assert not await listed(peer, "*", "actor")
        assert looked.total >= 20_000
        assert looked.most <= found.SLICE_ITEMS

    looked_up(test)


def test_actors_of_an_application_tell_who_has_made_them() -> None:
    async def test(core: Core) -> None:
        hosting = Hosting(
            core.system,
            core.router,
            core.access,
            core.context.entropy,
            SYSTEM_THREADS,
            None,
            core.clock,
        )
        ref = await hosting.spawn(lambda message, ctx: b"", address="app")
        info = await about(core.peer(), b"app")
        assert (info.kind, info.state, info.stoppable) == ("actor", "idle", True)
        assert "lambda" in info.name
        await ref.stop()

    looked_up(test)
