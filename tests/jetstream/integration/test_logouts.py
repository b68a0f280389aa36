"""Logouts of Streamr's clients, where several nodes keep them in one store."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp

from nats_support import NatsServer, needs_nats, on_jetstream
from nodes import CLIENT
from rillnode.node.config import Config
from rillnode.node.keys.files import write_key
from rillnode.node.runtime import Node
from store_support import eventually
from streamr_rest_support import BOB, Server, User, streamr_config

pytestmark = needs_nats


def configs_of(directory: Path, nats: NatsServer) -> list[Config]:
    return [on_jetstream(streamr_config(directory / name), nats) for name in "ab"]


@asynccontextmanager
async def running(configs: list[Config]) -> AsyncGenerator[list[Server]]:
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(aiohttp.ClientSession())
        yield [Server(await stack.enter_async_context(Node(one)), http) for one in configs]


async def is_known(user: User) -> bool:
    return (await user.get("/users/me")).status == 200


async def test_no_node_overwrites_what_another_one_has_logged_out(
    nats: NatsServer, tmp_path: Path
) -> None:
    configs = configs_of(tmp_path, nats)
    tokens: list[str] = []
    async with running(configs) as servers:
        for server in [*servers, *servers]:
            user = await server.user()
            assert (await user.post("/logout")).status == 204
            assert user.token is not None
            tokens.append(user.token)
    async with running(configs) as servers:
        for server, token in zip([*servers, *servers], tokens, strict=True):
            user = server.anybody()
            user.token = token
            assert not await is_known(user)


async def test_a_logout_holds_at_once_at_every_node_that_takes_the_token(
    nats: NatsServer, tmp_path: Path
) -> None:
    configs = configs_of(tmp_path, nats)
    # Nodes take each other's tokens where they have one identity.
    for config in configs:
        write_key(config.key_file, CLIENT)
    async with running(configs) as (a, b):
        alice, bob = await a.user(), await a.user(BOB)
        same = [b.anybody() for _ in range(2)]
        for user, again in zip((alice, bob), same, strict=True):
            again.token = user.token
            assert await is_known(again)
        assert (await alice.post("/logout")).status == 204

        async def refused() -> bool:
            return not await is_known(same[0])

        await eventually(refused)
        assert await is_known(same[1])
