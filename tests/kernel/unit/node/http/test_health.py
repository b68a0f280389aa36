"""Tests what health checks get."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web

from rillnode.node.http.health import add_health
from rillnode.node.plugin import Check
from rillnode.transports.web_server import listen_web


@dataclass
class Checked:
    results: list[Check] = field(default_factory=lambda: [Check("store", True)])

    def checks(self) -> list[Check]:
        return self.results


Get = Callable[[str], Awaitable[tuple[int, str, str]]]


def served(node: Checked, body: Callable[[Get], Awaitable[None]]) -> None:
    async def run() -> None:
        app = web.Application()
        add_health(app, node)
        listener = await listen_web(app, "127.0.0.1", 0)
        try:
            async with aiohttp.ClientSession(f"http://{listener.address}") as session:

                async def get(path: str) -> tuple[int, str, str]:
                    async with session.get(path) as answer:
                        return answer.status, answer.content_type, await answer.text()

                await body(get)
        finally:
            await listener.close()

    asyncio.run(run())


def test_a_ready_node_says_ok() -> None:
    async def body(get: Get) -> None:
        for path in ("/livez", "/readyz", "/healthz"):
            assert await get(path) == (200, "text/plain", "ok\n")
        assert (await get("/readyz?verbose"))[2] == "[+] store\nok\n"

    served(Checked(), body)


def test_a_node_that_is_not_ready_says_why() -> None:
    node = Checked([Check("store", True), Check("sink bronze", False, "no batch for 90 s")])

    async def body(get: Get) -> None:
        for path in ("/readyz", "/healthz"):
            assert await get(path) == (
                503, "text/plain", "[-] sink bronze: no batch for 90 s\nnot ready\n",
            )  # fmt: skip
        assert (await get("/readyz?verbose"))[2].startswith("[+] store\n[-] sink bronze: ")
        assert (await get("/livez"))[0] == 200
        node.results = [Check("store", True)]
        assert (await get("/readyz"))[0] == 200

    served(node, body)
