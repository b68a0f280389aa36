"""Event streams: what each reader gets, and what becomes of one that does not read."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from rillnode.node.http import events
from rillnode.node.http.answers import Refusal
from rillnode.node.http.events import Events
from rillnode.transports.web_server import listen_web

SECONDS = 60.0


def served(one: Events, body: Callable[[str], Awaitable[None]]) -> None:
    async def main() -> None:
        app = web.Application()
        app.router.add_get("/", one.serve)
        server = await listen_web(app, "127.0.0.1", 0)
        try:
            await asyncio.wait_for(body(server.address), SECONDS)
        finally:
            await one.close()
            await server.close()

    asyncio.run(main())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def test_all_readers_get_documents_that_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "PERIOD_SECONDS", 0.01)
    made = 0

    async def document() -> dict[str, int]:
        nonlocal made
        made += 1
        return {"made": made}

    one = Events({"count": document})

    async def body(address: str) -> None:
        async with aiohttp.ClientSession() as session:
            answers = [await session.get(f"http://{address}/") for _ in range(5)]
            for answer in answers:
                assert (await answer.content.readline()) == b"event: count\n"
            assert one.readers == 5
            for answer in answers:
                answer.close()
            await until(lambda: not one.readers)
            await asyncio.sleep(0.1)
            before = made
            await asyncio.sleep(0.1)
            assert made == before  # nobody reads, so nobody tells

    served(one, body)


def test_what_cannot_be_told_now_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "PERIOD_SECONDS", 0.01)

    async def refused() -> None:
        raise Refusal(503, "node.state", "The node is starting")

    async def body(address: str) -> None:
        async with aiohttp.ClientSession() as session, session.get(f"http://{address}/") as answer:
            assert await answer.content.readline() == b"event: refused\n"
            assert b"The node is starting" in await answer.content.readline()

    served(Events({"streams": refused}), body)


def test_who_does_not_read_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "PERIOD_SECONDS", 0.01)
    monkeypatch.setattr(events, "WRITE_SECONDS", 0.2)

    async def large() -> dict[str, str]:
        return {"text": "x" * 1_000_000}

    one = Events({"large": large})

    async def body(address: str) -> None:
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port))) as lazy:
            lazy.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            await until(lambda: one.readers == 1)
            await until(lambda: one.readers == 0)

    served(one, body)


def test_a_document_that_fails_ends_its_readers_and_not_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events, "PERIOD_SECONDS", 0.01)
    fails = True

    async def odd() -> dict[str, Any]:
        if fails:
            raise ValueError("odd")
        return {}

    one = Events({"odd": odd})

    async def body(address: str) -> None:
        nonlocal fails
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://{address}/") as answer:
                with pytest.raises(aiohttp.ClientError):
                    await answer.content.readexactly(1_000)
            await until(lambda: not one.readers)
            fails = False
            async with session.get(f"http://{address}/") as answer:
                assert await answer.content.readline() == b"event: odd\n"

    served(one, body)
