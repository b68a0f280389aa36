"""A node with `[streamr]`, and clients of its REST interface."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from yarl import URL

from nodes import node_config
from rillnode.codecs.streamr.ethereum import EthereumKey
from rillnode.node.config import Config, GrantTable
from rillnode.node.config.listener_tables import ApiKeyTable
from rillnode.node.runtime import Node
from rillnode.node.streamr.config import StreamrListener

ALICE = EthereumKey(b"\1" * 32)
BOB = EthereumKey(b"\2" * 32)
CREATES = GrantTable(who="eth:*", streams="*", may=("create",))


@dataclass(frozen=True)
class Answer:
    """An answer; `body` is parsed where it is JSON."""

    status: int
    body: Any
    headers: Mapping[str, str]

    @property
    def refusal(self) -> tuple[int, str]:
        """Status and code of an error, which must be whole."""
        assert set(self.body) == {"code", "message", "error"}
        assert self.body["message"]
        return self.status, self.body["code"]


class User:
    """Asks with or without a token; paths are sent as they are."""

    def __init__(self, http: aiohttp.ClientSession, base: str, key: EthereumKey | None) -> None:
        self.http = http
        self.base = base
        self.key = key
        self.token: str | None = None

    @property
    def address(self) -> str:
        assert self.key is not None
        return self.key.address.lower()

    async def log_in(self) -> "User":
        assert self.key is not None
        opened = (await self.post(f"/login/challenge/{self.key.address}")).body
        signature = self.key.sign(opened["challenge"].encode())
        body = {"challenge": opened, "signature": signature, "address": self.key.address}
        self.token = (await self.post("/login/response", body)).body["token"]
        return self

    async def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        sent = dict(headers or {})
        if self.token is not None:
            sent["Authorization"] = f"Bearer {self.token}"
        url = URL(self.base + path, encoded=True)
        async with self.http.request(method, url, json=body, data=data, headers=sent) as answer:
            content = await answer.read()
            parsed: Any = content
            if answer.content_type == "application/json" and content:
                parsed = msgspec.json.decode(content)
            return Answer(answer.status, parsed, answer.headers.copy())

    async def get(self, path: str) -> Answer:
        return await self.call("GET", path)

    async def post(self, path: str, body: object = None) -> Answer:
        return await self.call("POST", path, body)

    async def make(self, **fields: object) -> str:
        """Make a stream; returns its id, ready for a path."""
        made = await self.post("/streams", fields)
        assert made.status == 200, made.body
        name: str = made.body["id"]
        return name.replace("/", "%2F")


class Server:
    """A running node and whoever asks it."""

    def __init__(self, node: Node, http: aiohttp.ClientSession) -> None:
        self.node = node
        self.http = http
        self.base = f"http://{node.addresses()['streamr']}/api/v1"

    def anybody(self) -> User:
        return User(self.http, self.base, None)

    async def user(self, key: EthereumKey = ALICE) -> User:
        return await User(self.http, self.base, key).log_in()


Test = Callable[[Server], Awaitable[None]]


def streamr_config(
    directory: Path,
    *grants: GrantTable,
    apikeys: Sequence[ApiKeyTable] = (),
    origins: Sequence[str] = (),
    logins_per_minute: int = 10_000,
) -> Config:
    listener = StreamrListener(
        listen="127.0.0.1:0",
        apikeys=tuple(apikeys),
        origins=tuple(origins),
        logins_per_minute=logins_per_minute,
    )
    config = node_config(directory, *(grants or (CREATES,)))
    return config.having(listener)


def served(config: Config, *tests: Test) -> None:
    """Run each test with a node of its own on the same data: in between it is restarted."""

    async def main() -> None:
        for test in tests:
            async with (
                asyncio.timeout(120.0),
                Node(config) as node,
                aiohttp.ClientSession() as http,
            ):
                await test(Server(node, http))

    asyncio.run(main())
