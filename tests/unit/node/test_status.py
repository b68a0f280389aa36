"""The http listener: what health checks and people get."""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from rillnode.codecs.errors import ConfigError, TransportError
from rillnode.node.config import HttpListener
from rillnode.node.status import listen_status


@dataclass(frozen=True)
class FakeCheck:
    name: str
    ok: bool = True
    reason: str = ""


@dataclass
class FakeNode:
    results: list[FakeCheck] = field(default_factory=lambda: [FakeCheck("store")])

    def checks(self) -> list[FakeCheck]:
        return self.results

    def status(self) -> dict[str, Any]:
        return {"name": "a", "streams": [{"name": "s", "next_index": 2**40}]}


Get = Callable[[str], Awaitable[tuple[int, str, str]]]


def served(node: FakeNode, body: Callable[[Get], Awaitable[None]]) -> None:
    async def run() -> None:
        listener = await listen_status(node, HttpListener(listen="127.0.0.1:0"))
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

    served(FakeNode(), body)


def test_a_node_that_is_not_ready_says_why() -> None:
    node = FakeNode([FakeCheck("store"), FakeCheck("sink bronze", False, "no batch for 90 s")])

    async def body(get: Get) -> None:
        for path in ("/readyz", "/healthz"):
            assert await get(path) == (
                503, "text/plain", "[-] sink bronze: no batch for 90 s\nnot ready\n",
            )  # fmt: skip
        assert (await get("/readyz?verbose"))[2].startswith("[+] store\n[-] sink bronze: ")
        assert (await get("/livez"))[0] == 200
        node.results = [FakeCheck("store")]
        assert (await get("/readyz"))[0] == 200

    served(node, body)


def test_state_is_json() -> None:
    async def body(get: Get) -> None:
        status, kind, text = await get("/v1/status")
        assert (status, kind) == (200, "application/json")
        assert json.loads(text)["streams"][0]["next_index"] == 2**40

    served(FakeNode(), body)


def test_the_first_page_links_to_pages_that_exist() -> None:
    async def body(get: Get) -> None:
        status, kind, text = await get("/")
        assert (status, kind) == (200, "text/html")
        links = [part.partition('"')[0] for part in text.split('href="')[1:]]
        assert "/v1/status" in links
        for link in links:
            assert (await get(link))[0] == 200
        assert (await get("/nothing"))[0] == 404

    served(FakeNode(), body)


def test_a_port_that_is_taken_is_an_error_with_a_way_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        table = HttpListener(listen=f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(TransportError, match="choose another port") as caught:
            asyncio.run(listen_status(FakeNode(), table))
        assert caught.value.code == "listen.in_use"


def test_a_certificate_that_is_none_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "c.pem").write_text("nothing")
    table = HttpListener(
        listen="127.0.0.1:0", tls_cert=tmp_path / "c.pem", tls_key=tmp_path / "c.pem"
    )
    with pytest.raises(ConfigError, match=r"http\.tls_cert"):
        asyncio.run(listen_status(FakeNode(), table))
