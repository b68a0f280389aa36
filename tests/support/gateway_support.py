"""A node with `[gateway]`, and clients that speak HTTP to it."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from yarl import URL

from nodes import node_config
from rillnode.actors.core.access import Verb
from rillnode.codecs.api_keys import hash_of
from rillnode.node.config import Config, GrantTable
from rillnode.node.config.listener_tables import ApiKeyTable
from rillnode.node.gateway.config import GatewayListener
from rillnode.node.runtime import Node

SECONDS = 60.0
WRITER = "the writer's key"
READER = "the reader's key"
NOBODY = "a key without grants"

KEYS = tuple(
    ApiKeyTable(name=name, hash=hash_of(key))
    for name, key in (("writer", WRITER), ("reader", READER), ("nobody", NOBODY))
)


def grant(name: str, *may: Verb, streams: str = "*") -> GrantTable:
    return GrantTable(who=f"apikey:{name}", streams=streams, may=may)


GRANTS = (grant("writer", "create", "push", "pull"), grant("reader", "pull"))


def gateway_config(directory: Path, *grants: GrantTable, **settings: Any) -> Config:
    table: dict[str, Any] = {"listen": "127.0.0.1:0", "apikeys": KEYS, **settings}
    return node_config(directory, *(grants or GRANTS)).having(GatewayListener(**table))


def place(position: str) -> str:
    """A position without which stream it is in, which it must say."""
    indexes, _, created_at = position.partition("@")
    assert created_at.isdecimal()
    return indexes


@dataclass(frozen=True)
class Answer:
    """An answer; `body` is parsed where it is JSON, or lines of it."""

    status: int
    body: Any
    headers: Mapping[str, str]

    @property
    def following(self) -> str:
        """The place that follows."""
        return place(self.headers["Rillnode-Next"])

    @property
    def refusal(self) -> tuple[int, str]:
        """Status and code of an error, which must be whole."""
        assert self.headers["Content-Type"] == "application/problem+json"
        assert {*self.body} - {"indexes"} == {"status", "code", "text", "next"}
        assert self.body["text"]
        assert self.body["next"]
        assert self.body["status"] == self.status
        return self.status, self.body["code"]


@dataclass(frozen=True)
class Event:
    """A server-sent event; `name` is empty for an entry."""

    name: str
    id: str
    data: Any


class Reading:
    """A tail, read event by event."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self.content = answer.content
        self.id = ""

    async def next(self) -> Event:
        """The next event that has data."""
        name, data = "", ""
        async with asyncio.timeout(SECONDS):
            while line := (await self.content.readline()).decode():
                field, _, value = line.rstrip("\n").partition(": ")
                match field:
                    case "id":
                        self.id = value
                    case "event":
                        name = value
                    case "data":
                        data = value
                    case "" if data and line == "\n":
                        return Event(name, self.id, msgspec.json.decode(data))
                    case _:
                        pass
        raise EOFError

    async def texts(self, count: int) -> list[str]:
        """What the next entries hold."""
        return [(await self.next()).data["text"] for _ in range(count)]


class Caller:
    """Asks with or without a key; paths are sent as they are."""

    def __init__(self, http: aiohttp.ClientSession, base: str, key: str | None) -> None:
        self.http = http
        self.base = base
        self.key = key

    def headers(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        own = {} if self.key is None else {"Authorization": f"Bearer {self.key}"}
        return {**own, **(more or {})}

    async def call(
        self,
        method: str,
        path: str,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        json: object = None,
    ) -> Answer:
        url = URL(self.base + path, encoded=True)
        async with self.http.request(
            method, url, data=data, json=json, headers=self.headers(headers)
        ) as answer:
            body: Any = await answer.read()
            media = answer.content_type
            if media.endswith("ndjson"):
                body = msgspec.json.Decoder().decode_lines(body)
            elif body and media.endswith("json"):
                body = msgspec.json.decode(body)
            return Answer(answer.status, body, answer.headers.copy())

    async def get(self, path: str, **headers: str) -> Answer:
        return await self.call("GET", path, headers=headers)

    async def push(self, name: str, data: bytes = b"x", **headers: str) -> Answer:
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        return await self.call("POST", f"/streams/{name}", data, named)

    async def push_texts(self, name: str, texts: Sequence[str]) -> None:
        for text in texts:
            answer = await self.push(name, text.encode())
            assert answer.status == 200, answer.body

    @asynccontextmanager
    async def tail(self, path: str, **headers: str) -> AsyncGenerator[Reading]:
        name, _, query = path.partition("?")
        url = URL(f"{self.base}/streams/{name}/tail?{query}", encoded=True)
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        async with self.http.get(url, headers=self.headers(named)) as answer:
            assert answer.status == 200, await answer.text()
            assert answer.content_type == "text/event-stream"
            yield Reading(answer)


class Site:
    """A running node and whoever asks it."""

    def __init__(self, node: Node, http: aiohttp.ClientSession, scheme: str) -> None:
        self.node = node
        self.http = http
        self.base = f"{scheme}://{node.addresses()['gateway']}"
        self.writer = self.caller(WRITER)
        self.reader = self.caller(READER)

    def caller(self, key: str | None) -> Caller:
        return Caller(self.http, self.base, key)


def served(config: Config, *tests: Callable[[Site], Awaitable[None]], scheme: str = "http") -> None:
    """Run each test with a node of its own on the same data: in between it is restarted."""

    async def main() -> None:
        for test in tests:
            async with (
                asyncio.timeout(2 * SECONDS),
                Node(config) as node,
                aiohttp.ClientSession() as http,
            ):
                await test(Site(node, http, scheme))

    asyncio.run(main())
