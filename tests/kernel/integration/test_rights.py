"""A right that ends ends what goes on by it, in whichever way it ends and whoever goes on by it."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from nodes import CLIENT, connect_to
from rillnode.actors.core.access import Verb
from rillnode.codecs.api_keys import hash_of
from rillnode.codecs.errors import RequestError
from rillnode.codecs.streamr.ethereum import EthereumKey
from rillnode.node.config import Config, GrantTable
from rillnode.node.config.listener_tables import ApiKeyTable
from rillnode.node.runtime import Node
from rillnode.node.streamr.config import StreamrListener
from streamr_rest_support import ALICE, BOB, CREATES, Server, User, served, streamr_config

CAROL = EthereumKey(b"\3" * 32)
STREAM = "shared"
VERSIONS = "controlLayerVersion=2&messageLayerVersion=32"
NATIVE = f"noise:{CLIENT.public_hex}"
API_KEY = "a key"
BROADCAST, UNICAST, ERROR = 0, 1, 7


# Ways in which a right ends ----------------------------------------------------------------------


@dataclass
class Right:
    """The right of B to read STREAM.

    Attributes:
        token: of B's session; None: B is anybody.
        end: takes the right away.
    """

    token: str | None
    end: Callable[[], Awaitable[object]]


async def permission(server: Server, who: dict[str, Any]) -> Callable[[], Awaitable[object]]:
    """A, whose stream it is, gives a permission, and can take it back."""
    alice = await server.user(ALICE)
    await alice.make(id=STREAM)
    given = await alice.post(f"/streams/{STREAM}/permissions", who)
    assert given.status == 200, given.body
    path = f"/streams/{STREAM}/permissions/{given.body['id']}"
    return lambda: alice.call("DELETE", path)


def subscribing(key: EthereumKey) -> dict[str, Any]:
    return {"user": key.address, "operation": "stream_subscribe"}


async def permission_deleted(server: Server) -> Right:
    end = await permission(server, subscribing(BOB))
    return Right((await server.user(BOB)).token, end)


async def public_permission_deleted(server: Server) -> Right:
    return Right(
        None, await permission(server, {"anonymous": True, "operation": "stream_subscribe"})
    )


async def stream_deleted(server: Server) -> Right:
    await permission(server, subscribing(BOB))
    alice = await server.user(ALICE)
    return Right((await server.user(BOB)).token, lambda: alice.call("DELETE", f"/streams/{STREAM}"))


async def made_again_by_another(server: Server) -> Right:
    await permission(server, subscribing(BOB))
    alice, carol = await server.user(ALICE), await server.user(CAROL)

    async def end() -> None:
        await alice.call("DELETE", f"/streams/{STREAM}")
        await carol.make(id=STREAM)

    return Right((await server.user(BOB)).token, end)


async def logged_out(server: Server) -> Right:
    await permission(server, subscribing(BOB))
    bob = await server.user(BOB)
    return Right(bob.token, lambda: bob.post("/logout"))


async def grant_reloaded(server: Server) -> Right:
    await server.node.stream(STREAM)
    bob = await server.user(BOB)

    async def end() -> None:
        server.node.reload(msgspec.structs.replace(server.node.config, grants=(CREATES,)))

    return Right(bob.token, end)


async def with_api_key(server: Server, *left: ApiKeyTable) -> Right:
    await permission(server, {"user": "board", "operation": "stream_subscribe"})
    login = await server.anybody().post("/login/apikey", {"apiKey": API_KEY})

    async def end() -> None:
        config = server.node.config
        listener = config.table(StreamrListener)
        assert listener is not None
        listener = msgspec.structs.replace(listener, apikeys=left)
        server.node.reload(config.having(listener))

    return Right(login.body["token"], end)


async def api_key_removed(server: Server) -> Right:
    return await with_api_key(server)


async def api_key_replaced(server: Server) -> Right:
    return await with_api_key(server, ApiKeyTable(name="board", hash=hash_of("another")))


async def api_key_renamed(server: Server) -> Right:
    return await with_api_key(server, ApiKeyTable(name="another", hash=hash_of(API_KEY)))


Way = Callable[[Server], Awaitable[Right]]
WAYS: list[Way] = [
    permission_deleted,
    public_permission_deleted,
    stream_deleted,
    made_again_by_another,
    logged_out,
    grant_reloaded,
    api_key_removed,
    api_key_replaced,
    api_key_renamed,
]


def config_of(directory: Path) -> Config:
    bob = GrantTable(who=f"eth:{BOB.address.lower()}", streams="s*", may=("subscribe", "pull"))
    keys = [ApiKeyTable(name="board", hash=hash_of(API_KEY))]
    return streamr_config(directory, CREATES, bob, apikeys=keys)


def in_each_way(
    directory: Path, way: Way, test: Callable[[Server, Right], Awaitable[None]]
) -> None:
    async def prepared(server: Server) -> None:
        if way is not grant_reloaded:
            end = (await grant_reloaded(server)).end
            await end()  # B has no other right than the one that is tested
            await server.node.client.remove(STREAM)
        await test(server, await way(server))

    served(config_of(directory), prepared)


# What goes on ------------------------------------------------------------------------------------


@asynccontextmanager
async def load(node: Node) -> AsyncGenerator[None, None]:
    """Somebody who may pushes all the time, to whichever stream has the name now."""

    stream = await node.stream(STREAM)

    async def push() -> None:
        while True:
            some = (stream.push(b'{"n":1}') for _ in range(8))
            await asyncio.gather(*some, return_exceptions=True)

    pushing = asyncio.create_task(push())
    try:
        yield
    finally:
        pushing.cancel()
        await asyncio.gather(pushing, return_exceptions=True)


@asynccontextmanager
async def connected(server: Server) -> AsyncGenerator[aiohttp.ClientWebSocketResponse, None]:
    url = f"{server.base}/ws?{VERSIONS}"
    async with server.http.ws_connect(url, max_msg_size=0) as socket:
        yield socket


async def until(socket: aiohttp.ClientWebSocketResponse, kind: int) -> list[Any]:
    """What comes up to the first message of a kind, that included."""
    found: list[Any] = []
    async with asyncio.timeout(60.0):
        while not found or found[-1][1] != kind:
            found.append(json.loads(await socket.receive_str()))
    return found


async def nothing_but_pong(socket: aiohttp.ClientWebSocketResponse, request: list[Any]) -> None:
    """The next message is the answer to a request: nothing was on its way before it."""
    await asyncio.sleep(0.2)
    await socket.send_str(json.dumps(request))
    answer = json.loads(await socket.receive_str())
    assert answer[:3] == [2, ERROR, request[2]], answer


LONG = (made_again_by_another, api_key_replaced, api_key_renamed)
"""Ways that begin as another one does."""


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=pytest.mark.long if way in LONG else ()) for way in WAYS]
)
def test_a_subscription_ends_and_its_client_is_told(tmp_path: Path, way: Way) -> None:
    async def test(server: Server, right: Right) -> None:
        async with load(server.node), connected(server) as socket:
            subscribe = [2, 9, "the subscription", STREAM, 0, right.token]
            await socket.send_str(json.dumps(subscribe))
            await until(socket, BROADCAST)
            await right.end()
            *_, last = await until(socket, ERROR)
            assert last[2] == "the subscription"
            assert last[4] == "PERMISSION_DENIED"
            # It is gone: there is nothing to unsubscribe from, and no message in between.
            await nothing_but_pong(socket, [2, 10, "no more", STREAM, 0])
            await nothing_but_pong(socket, [2, 9, "again", STREAM, 0, right.token])

    in_each_way(tmp_path, way, test)


@pytest.mark.parametrize(
    "way",
    [pytest.param(way, marks=pytest.mark.long if n % 3 else ()) for n, way in enumerate(WAYS)],
)
def test_a_running_resend_ends_and_its_client_is_told(tmp_path: Path, way: Way) -> None:
    async def test(server: Server, right: Right) -> None:
        stream = await server.node.stream(STREAM)
        text = b'"' + b"x" * 65_536 + b'"'
        await asyncio.gather(*(stream.push(text) for _ in range(400)))
        async with connected(server) as socket:
            resend = [2, 11, "the resend", STREAM, 0, 400, right.token]
            await socket.send_str(json.dumps(resend))
            await until(socket, UNICAST)
            await right.end()
            *sent, last = await until(socket, ERROR)
            assert last[2] == "the resend"
            assert last[4] in ("PERMISSION_DENIED", "RESEND_FAILED")
            assert len(sent) < 400  # the node waits for who does not read
            await nothing_but_pong(socket, [2, 10, "no more", STREAM, 0])

    in_each_way(tmp_path, way, test)


@pytest.mark.parametrize(
    "way",
    [
        permission_deleted,
        stream_deleted,
        *(
            pytest.param(way, marks=pytest.mark.long)
            for way in (public_permission_deleted, logged_out)
        ),
    ],
)
def test_an_answer_of_stored_messages_is_cut_off(tmp_path: Path, way: Way) -> None:
    async def test(server: Server, right: Right) -> None:
        stream = await server.node.stream(STREAM)
        text = b'"' + b"x" * 65_536 + b'"'
        await asyncio.gather(*(stream.push(text) for _ in range(400)))
        if right.token is None:
            await (await server.user(ALICE)).post(
                f"/streams/{STREAM}/permissions", {"anonymous": True, "operation": "stream_get"}
            )
        reader = User(server.http, server.base, None)
        reader.token = right.token
        headers = {} if right.token is None else {"Authorization": f"Bearer {right.token}"}
        url = f"{server.base}/streams/{STREAM}/data/partitions/0/last?count=400"
        async with server.http.get(url, headers=headers) as answer:
            assert answer.status == 200
            await answer.content.readany()
            await right.end()
            with pytest.raises(aiohttp.ClientError):
                await asyncio.wait_for(answer.read(), 60.0)

    in_each_way(tmp_path, way, test)


@pytest.mark.parametrize(
    "way",
    [permission_deleted, stream_deleted, pytest.param(logged_out, marks=pytest.mark.long)],
)
def test_who_may_publish_no_more_is_refused_from_then_on(tmp_path: Path, way: Way) -> None:
    async def test(server: Server, right: Right) -> None:
        alice = await server.user(ALICE)
        bob = User(server.http, server.base, BOB)
        bob.token = right.token
        publishing = {"user": BOB.address, "operation": "stream_publish"}
        given = await alice.post(f"/streams/{STREAM}/permissions", publishing)
        async with connected(server) as socket:
            number = 0

            async def publish() -> None:
                nonlocal number
                number += 1
                name = [STREAM, 0, number, 0, BOB.address.lower(), "chain"]
                sent = [32, name, None, 27, 0, 0, None, f'{{"n":{number}}}', None, 0, None]
                request = [2, 8, f"p{number}", sent, right.token]
                await socket.send_str(json.dumps(request))

            for _ in range(100):
                await publish()
            if way is permission_deleted:
                await alice.call("DELETE", f"/streams/{STREAM}/permissions/{given.body['id']}")
            else:
                await right.end()
            if way is stream_deleted:
                await (await server.user(CAROL)).make(id=STREAM)
            ended_at = number
            for _ in range(100):
                await publish()
            refused: set[str] = set()
            while f"p{number}" not in refused:
                *_, error = await until(socket, ERROR)
                refused.add(error[2])
            assert refused >= {f"p{one}" for one in range(ended_at + 1, number + 1)}
        stored = await (await server.node.stream(STREAM)).pull(0, 1_000)
        numbers = [json.loads(json.loads(entry.data)[7])["n"] for entry in stored]
        assert all(one <= ended_at for one in numbers)
        if way is stream_deleted:
            assert numbers == []

    in_each_way(tmp_path, way, test)


# Native clients ----------------------------------------------------------------------------------


async def native_permission(server: Server) -> Right:
    end = await permission(server, {"user": NATIVE, "operation": "stream_subscribe"})
    return Right(None, end)


async def native_stream_deleted(server: Server) -> Right:
    await permission(server, {"user": NATIVE, "operation": "stream_subscribe"})
    alice = await server.user(ALICE)
    return Right(None, lambda: alice.call("DELETE", f"/streams/{STREAM}"))


async def native_made_again(server: Server) -> Right:
    await permission(server, {"user": NATIVE, "operation": "stream_subscribe"})
    return Right(None, (await made_again(server)).end)


async def made_again(server: Server) -> Right:
    alice, carol = await server.user(ALICE), await server.user(CAROL)

    async def end() -> None:
        await alice.call("DELETE", f"/streams/{STREAM}")
        await carol.make(id=STREAM)

    return Right(None, end)


async def native_grant_reloaded(server: Server) -> Right:
    """It keeps a grant for another stream, and so its link."""
    await server.node.stream(STREAM)

    async def end() -> None:
        config = server.node.config
        grants = (CREATES, GrantTable(who=NATIVE, streams="else", may=("pull",)))
        server.node.reload(msgspec.structs.replace(config, grants=grants))

    return Right(None, end)


async def exhausted(entries: AsyncIterator[object]) -> None:
    async for _ in entries:
        pass


@pytest.mark.parametrize(
    ("way", "code"),
    [
        (native_permission, "subscription.revoked"),
        pytest.param(public_permission_deleted, "subscription.revoked", marks=pytest.mark.long),
        (native_stream_deleted, "stream.removed"),
        pytest.param(native_made_again, "stream.removed", marks=pytest.mark.long),
        (native_grant_reloaded, "subscription.revoked"),
    ],
)
def test_a_native_subscription_ends_and_its_client_is_told(
    tmp_path: Path, way: Way, code: str
) -> None:
    may: tuple[Verb, ...] = ("pull", "subscribe") if way is native_grant_reloaded else ("pull",)
    streams = STREAM if way is native_grant_reloaded else "else"
    grants = (CREATES, GrantTable(who=NATIVE, streams=streams, may=may))

    async def test(server: Server) -> None:
        right = await way(server)
        async with await connect_to(server.node) as client, load(server.node):
            following = aiter((await client.stream(STREAM)).tail(start=0))
            await anext(following)
            await right.end()
            with pytest.raises(RequestError) as caught:
                await asyncio.wait_for(exhausted(following), 60.0)
            assert caught.value.code in (code, "subscription.revoked")
            # The link is as good as before.
            assert await client.streams() == []

    served(streamr_config(tmp_path, *grants), test)
