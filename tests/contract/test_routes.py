"""Tests the contract of everything that has a route, over all kinds."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from coroutines import handed_by
from nodes import CLIENT, connect_to
from peer_support import linked
from rillnode import ActorError, Client, RequestError, TransportError, connect_blocking
from rillnode.codecs import native
from rillnode.node.client.lookup import About
from route_support import THINGS, Site, Thing, site, streamr_client

EACH = pytest.mark.parametrize("thing", THINGS, ids=lambda one: one.name)
STOPPED = pytest.mark.parametrize(
    "thing", [one for one in THINGS if one.stopped == "ends"], ids=lambda one: one.name
)

UNSENT = [one for one in THINGS if "Streamr" in one.name or "NextGraph" in one.name]
"""What can only be looked up: no message goes there."""

Test = Callable[[Site, About], Awaitable[None]]


def on_site(directory: Path, thing: Thing, test: Test) -> None:
    async def main() -> None:
        async with site(directory) as made:
            await test(made, await thing.make(made))

    asyncio.run(main())


async def refusal(asked: Awaitable[object]) -> tuple[str, str]:
    with pytest.raises((RequestError, ActorError)) as caught:
        await asked
    return caught.value.code, caught.value.text


@EACH
def test_it_tells_what_it_is(tmp_path: Path, thing: Thing) -> None:
    async def test(site: Site, found: About) -> None:
        again = await site.client.about(found.route)
        assert (again.route, again.kind, again.name) == (found.route, thing.kind, found.name)
        assert fnmatchcase(again.state, thing.state)
        assert again.mailbox == 0
        assert fnmatchcase(again.parent, thing.parent)
        assert again.stoppable == (thing.stopped in ("ends", "rests"))
        listed = [one async for one in site.client.routes(found.route)]
        assert [one.route for one in listed] == [found.route]
        of_kind = [one.route async for one in site.node.routes(kind=thing.kind)]
        assert of_kind.count(found.route) == 1
        assert (await site.node.about(found.route)).kind == thing.kind
        if thing.kind == "link":
            routes = [row["route"] for row in site.node.observed.links()["links"]]
            assert routes.count(found.route) == 1
        if thing in UNSENT:
            for client in (site.client, site.stranger):
                asked = client.ask(found.route, b"to nobody", timeout_seconds=10.0)
                assert (await refusal(asked))[0] == "address.unknown"
            assert (await site.client.about(found.route)).mailbox == 0

    on_site(tmp_path, thing, test)


@EACH
def test_who_may_not_know_of_it_sees_what_is_not_there(tmp_path: Path, thing: Thing) -> None:
    async def test(site: Site, found: About) -> None:
        stranger = site.stranger
        listed = [one.route async for one in stranger.routes()]
        if thing.open or found.owner == await principal_of(stranger):
            assert found.route in listed
            assert (await stranger.about(found.route)).stoppable == (not thing.open)
            return
        assert found.route not in listed
        nothing = await refusal(stranger.about(f"{found.route}x"))
        assert nothing[0] == "address.unknown"
        for ask in (stranger.about, stranger.watch, stranger.stop):
            assert await refusal(ask(found.route)) == nothing

    on_site(tmp_path, thing, test)


async def principal_of(client: Client) -> str:
    """Whom a client has proved to be: it sees its own link."""
    links = [one async for one in client.routes(kind="link")]
    assert len(links) == 1
    return links[0].owner


@STOPPED
def test_who_watches_it_is_told_when_it_was_stopped(tmp_path: Path, thing: Thing) -> None:
    async def test(site: Site, found: About) -> None:
        watching = asyncio.ensure_future(site.client.watch(found.route))
        await asyncio.sleep(0.05)
        assert not watching.done()
        await site.client.stop(found.route)
        async with asyncio.timeout(10.0):
            ended = await watching
        assert (ended.route, ended.kind, ended.state) == (found.route, thing.kind, "ended")
        assert (await refusal(site.client.about(found.route)))[0] == "address.unknown"

    on_site(tmp_path, thing, test)


@pytest.mark.parametrize(
    "thing", [one for one in THINGS if one.stopped != "ends"], ids=lambda one: one.name
)
def test_what_others_need_stays(tmp_path: Path, thing: Thing) -> None:
    async def test(site: Site, found: About) -> None:
        watching = asyncio.ensure_future(site.client.watch(found.route))
        if thing.stopped == "rests":
            await site.client.stop(found.route)
            await site.client.stop(found.route)
            assert (await site.client.about(found.route)).state == "resting"
        else:
            code, text = await refusal(site.client.stop(found.route))
            assert code == thing.stopped
            assert found.kind in text
        await asyncio.sleep(0.05)
        assert not watching.done()
        watching.cancel()

    on_site(tmp_path, thing, test)


def on_bare_site(directory: Path, test: Callable[[Site], Awaitable[None]]) -> None:
    async def main() -> None:
        async with site(directory) as made:
            await test(made)

    asyncio.run(main())


bare = handed_by(on_bare_site)


async def test_a_stream_that_was_stopped_is_back_with_the_next_message(bare: Site) -> None:
    stream = await bare.client.stream("hidden", partitions=2)
    pushes = [asyncio.ensure_future(stream.push(b"%d" % n, partition=1)) for n in range(50)]
    await asyncio.sleep(0)
    await bare.client.stop("ST_S_1_hidden")
    confirmed = await asyncio.gather(*pushes)
    assert await stream.push(b"last", partition=1) == max(confirmed) + 1
    assert (await bare.client.about("ST_S_1_hidden")).state == "idle"
    entries = await stream.pull(0, 1_000, partition=1)
    assert {bytes(one.data) for one in entries} == {b"%d" % n for n in range(50)} | {b"last"}


async def test_a_subscriber_is_told_that_its_subscription_was_stopped(bare: Site) -> None:
    entries = (await bare.client.stream("open")).tail(start="end")
    waiting = asyncio.ensure_future(anext(entries))
    found = await bare.only("subscription")
    await bare.client.stop(found.route)
    assert (await refusal(waiting))[0] == "subscription.stopped"


async def test_whoever_serves_a_stopped_address_is_told_and_does_not_come_again(bare: Site) -> None:
    service = await bare.client.serve("printer", lambda message: b"printed")
    await bare.client.stop("printer")
    assert (await refusal(service.wait()))[0] == "serve.stopped"
    await asyncio.sleep(0.2)
    assert (await refusal(bare.client.ask("printer", b"page")))[0] == "address.unknown"


async def test_a_client_of_streamr_is_told_that_its_subscription_was_stopped(bare: Site) -> None:
    client = await streamr_client(bare)
    waiting = asyncio.ensure_future(anext(await client.subscribe("open")))
    found = await bare.only("subscription", "WS_*")
    await bare.client.stop(found.route)
    assert "stopped at its address" in (await refusal(waiting))[1]
    assert [one.kind async for one in bare.client.routes("WS_*")] == ["link"]


async def test_who_administers_nothing_stops_what_is_its_own(bare: Site) -> None:
    (own,) = [one async for one in bare.stranger.routes(kind="link")]
    await bare.stranger.stop(own.route)
    while [one.route async for one in bare.stranger.routes(kind="link")] == [own.route]:
        await asyncio.sleep(0.02)
    assert (await refusal(bare.stranger.about(own.route)))[0] == "address.unknown"
    assert (await refusal(bare.stranger.stop("ST_S_0_open")))[0] == "route.refused"


async def test_a_blocking_client_looks_up_the_same(bare: Site) -> None:
    def look() -> None:
        url = f"noise://{bare.node.addresses()['noise']}"
        with connect_blocking(url, identity=CLIENT, node_identity=bare.node.identity) as client:
            assert client.about("ST_S_0_open").kind == "stream"
            with client.routes("open*", kind="stream") as found:
                assert [one.route for one in found] == ["ST_S_0_open"]
            client.stop("ST_S_0_open")
            assert {one.kind for one in client.routes("noise *")} == {"link"}

    await asyncio.to_thread(look)


async def test_a_saved_position_is_asked_at_its_address(bare: Site) -> None:
    await bare.client.set_index("a_client", "hidden", 7, partition=1)
    route = "IX_1_a%5Fclient_hidden"
    asked = native.encode(native.LoadIndexRequest(5, "a_client", "hidden", 1))
    answer = await bare.client.ask(route, asked)
    assert native.decode_response(answer.payload) == native.SavedIndexResponse(5, 7)
    hidden = await refusal(bare.stranger.ask(route, asked))
    assert hidden == await refusal(bare.stranger.ask("IX_1_nobody_nothing", asked))
    table = bare.node.observed.router.table
    assert not [one for one in table if one.startswith(b"IX_")]
    assert (await refusal(bare.client.ask("IX_1_a", asked)))[0] == "address.unknown"


async def test_a_watch_outlives_a_link_and_keeps_no_client_from_closing(bare: Site) -> None:
    async with await connect_to(bare.node, CLIENT) as other:
        ref = await bare.node.spawn(lambda message, ctx: b"", address="watched")
        watching = asyncio.ensure_future(other.watch("watched"))
        for_ever = asyncio.ensure_future(other.watch("echo"))
        await asyncio.sleep(0.05)
        for link in [one.route async for one in bare.node.routes("noise *", kind="link")]:
            await bare.node.client.stop(link)
        await asyncio.sleep(0.05)
        await ref.stop()
        assert (await watching).state == "ended"
        started = time.monotonic()
    assert time.monotonic() - started < 5.0
    with pytest.raises(TransportError):
        await for_ever


async def test_what_is_behind_a_peer_is_looked_up_through_it(tmp_path: Path) -> None:
    async with asyncio.timeout(60.0), linked(tmp_path) as (a, b):
        await b.stream("on b")
        found = await a.client.about("peer/b;ST_S_0_on%20b")
        assert (found.route, found.kind) == ("peer/b;ST_S_0_on%20b", "stream")
        listed = [one async for one in a.client.routes("stream*", at="peer/b")]
        assert {one.kind for one in listed} == {"service"}
        assert all(one.route.startswith("peer/b;stream") for one in listed)
        assert (await refusal(a.client.about("peer/b;node")))[0] == "address.unknown"
        assert (await refusal(a.client.about("peer/plain;echo")))[0] == "client.answer"
