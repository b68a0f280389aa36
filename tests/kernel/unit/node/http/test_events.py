"""Event streams: what each reader gets, and what becomes of one that does not read."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from rillnode.codecs.errors import RequestError
from rillnode.node.http import events
from rillnode.node.http.events import Events, Shown
from rillnode.transports.web_server import listen_web

SECONDS = 60.0
Maker = Callable[[], Awaitable[Any]]


def served(one: Events, shown: Mapping[str, Maker], body: Callable[[str], Awaitable[None]]) -> None:
    async def serve(request: web.Request) -> web.StreamResponse:
        names = request.query.get("show", ",".join(shown)).split(",")
        return await one.serve(request, [Shown(name, "", shown[name]) for name in names])

    async def main() -> None:
        app = web.Application()
        app.router.add_get("/", serve)
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

    one = Events()

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

    served(one, {"count": document}, body)


def test_a_reader_gets_what_it_follows_and_only_when_it_has_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events, "PERIOD_SECONDS", 0.01)
    counts = {"still": 0, "moving": 0, "other": 0}

    async def still() -> str:
        counts["still"] += 1
        return "always the same"

    async def moving() -> int:
        counts["moving"] += 1
        return counts["moving"]

    async def other() -> int:
        counts["other"] += 1
        return 0

    async def body(address: str) -> None:
        url = f"http://{address}/?show=still,moving"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            names = [(await answer.content.readuntil(b"\n\n")).splitlines()[0] for _ in range(9)]
        assert sorted(names) == [b"event: moving"] * 8 + [b"event: still"]
        assert counts["still"] > 5
        assert counts["other"] == 0

    served(Events(), {"still": still, "moving": moving, "other": other}, body)


def test_what_cannot_be_told_now_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "PERIOD_SECONDS", 0.01)

    async def refused() -> None:
        raise RequestError("node.state", "The node is starting")

    async def body(address: str) -> None:
        async with aiohttp.ClientSession() as session, session.get(f"http://{address}/") as answer:
            assert await answer.content.readline() == b"event: refused\n"
            assert b"The node is starting" in await answer.content.readline()

    served(Events(), {"streams": refused}, body)


def test_who_does_not_read_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "PERIOD_SECONDS", 0.01)
    monkeypatch.setattr(events, "WRITE_SECONDS", 0.2)

    sent = 0

    async def large() -> dict[str, str]:
        nonlocal sent
        sent += 1
        return {"text": f"{sent}" * 1_000_000}

    one = Events()

    async def body(address: str) -> None:
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port))) as lazy:
            lazy.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            await until(lambda: one.readers == 1)
            await until(lambda: one.readers == 0)

    served(one, {"large": large}, body)


def test_a_document_that_fails_ends_its_readers_and_not_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events, "PERIOD_SECONDS", 0.01)
    fails = True

    async def odd() -> dict[str, Any]:
        if fails:
            raise ValueError("odd")
        return {}

    one = Events()

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

    served(one, {"odd": odd}, body)
