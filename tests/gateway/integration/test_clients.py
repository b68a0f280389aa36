"""Clients that others have made, as they come, at a running node."""

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from chromium import CHROMIUM, browsing
from coroutines import handed_by
from doc_support import ROOT
from gateway_support import READER, WRITER, Site, gateway_config, place, served
from npm_support import npm_packages
from rillnode.node.gateway.config import GatewayListener
from rillnode.node.runtime import Node
from rillnode.node.testing.contract.ports import free_address

site = handed_by(served, of=gateway_config)

SCRIPTS = Path(__file__).with_name("eventsource_client")
SECONDS = 60.0


@pytest.mark.parametrize(
    ("content_type", "data", "stored"),
    [
        ("application/json", {"celsius": 20.5}, {"json": {"celsius": 20.5}}),
        ("text/plain", "t\u00e4xt", {"text": "t\u00e4xt"}),
        ("application/octet-stream", b"\0\xff", {"base64": "AP8="}),
    ],
)
async def test_events_of_the_cloudevents_sdk(
    site: Site, content_type: str, data: Any, stored: dict[str, Any]
) -> None:
    sdk = pytest.importorskip("cloudevents.core.bindings.http")
    events = pytest.importorskip("cloudevents.core.v1.event")
    attributes = {
        "specversion": "1.0", "id": "a-1", "source": "/sensors/1", "type": "org.example.reading",
        "time": datetime(2024, 2, 29, tzinfo=UTC), "subject": "50% \u20ac",
        "datacontenttype": content_type, "partitionkey": "d1",
    }  # fmt: skip
    event = events.CloudEvent(attributes, data)
    for message in (sdk.to_structured_event(event), sdk.to_binary_event(event)):
        answer = await site.writer.call("POST", "/streams/s", message.body, message.headers)
        assert answer.status == 200, answer.body
    one, other = (await site.reader.get("/streams/s")).body
    for entry in (one, other):
        assert stored.items() <= entry.items()
        assert entry["key"] == "d1"
        headers = entry["headers"]
        assert headers["ce-subject"] == "50% \u20ac"
        assert headers["content-type"] == content_type
        time = datetime.fromisoformat(headers["ce-time"].replace("Z", "+00:00"))
        assert time == attributes["time"]
    assert one["headers"].keys() == other["headers"].keys()


async def test_httpx_sse_follows(site: Site) -> None:
    httpx = pytest.importorskip("httpx")
    httpx_sse = pytest.importorskip("httpx_sse")
    await site.writer.push_texts("s", ["0", "1", "2"])
    url, headers = f"{site.base}/streams/s/tail?from=0", site.reader.headers()
    seen: list[tuple[str, Any]] = []
    async with (
        httpx.AsyncClient(timeout=SECONDS) as client,
        httpx_sse.aconnect_sse(client, "GET", url, headers=headers) as source,
    ):
        async for event in source.aiter_sse():
            if event.data:  # it tells of ids that come alone, too
                seen.append((place(event.id), event.json()["text"]))
            if len(seen) == 3:
                break
    assert seen == [("1", "0"), ("2", "1"), ("3", "2")]


def unnamed(output: bytes) -> str:
    """Lines with the places of positions alone."""
    lines = (line.split(" ") for line in output.decode().splitlines(keepends=True))
    return "".join(f"{place(position)} {text}" for position, text in lines)


async def follow(modules: Path, *arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        "node", SCRIPTS / "follow.js", *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "NODE_PATH": str(modules)},
    )  # fmt: skip


@pytest.mark.needs("node")
def test_an_event_source_outlives_the_node(tmp_path: Path) -> None:
    """It comes back by itself with the URL and the ticket that it has, and misses nothing."""
    modules = npm_packages(SCRIPTS)
    address = free_address()
    config = gateway_config(tmp_path, listen=address)
    processes: list[asyncio.subprocess.Process] = []

    async def first(site: Site) -> None:
        made = await site.reader.call("POST", "/tickets", json={"stream": "s%2F1"})
        assert made.status == 404
        await site.writer.push_texts("s%2F1", ["0", "1"])
        made = await site.reader.call("POST", "/tickets", json={"stream": "s/1"})
        url = f"http://{address}/streams/s%2F1/tail?from=0"
        processes.append(await follow(modules, f"{url}&ticket={made.body['ticket']}", "4"))
        processes.append(await follow(modules, url, "4", READER))
        for process in processes:
            assert process.stdout is not None
            for line in ("1 0\n", "2 1\n"):
                said = await asyncio.wait_for(process.stdout.readline(), SECONDS)
                assert unnamed(said) == line

    async def again(site: Site) -> None:
        await site.writer.push_texts("s%2F1", ["2", "3"])
        for process in processes:
            out, err = await asyncio.wait_for(process.communicate(), SECONDS)
            assert (process.returncode, unnamed(out)) == (0, "3 2\n4 3\n"), err
        refused = await follow(modules, f"http://{address}/streams/s%2F1/tail", "1", WRITER[:-1])
        _, err = await asyncio.wait_for(refused.communicate(), SECONDS)
        assert err.startswith(b"401 ")

    async def main() -> None:
        try:
            for test in (first, again):
                async with Node(config) as node, aiohttp.ClientSession() as http:
                    await test(Site(node, http, "http"))
        finally:
            for process in processes:
                if process.returncode is None:
                    process.kill()
                    await process.wait()

    asyncio.run(main())


@pytest.mark.long
@pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium: tests/kernel/integration/browser/install.sh installs it"
)
async def test_the_page_of_the_examples_follows_a_stream(tmp_path: Path) -> None:
    page, pages = free_address(), (ROOT / "examples" / "http_page.html").read_text("utf-8")
    config = gateway_config(
        tmp_path / "node", listen=free_address(), origins=(f"http://{page}",), ticket_seconds=2.0
    )
    gateway = config.table(GatewayListener)
    assert gateway is not None
    items = "[...document.querySelectorAll('li')].map(one => one.textContent).join()"

    async def serve(_: web.Request) -> web.Response:
        return web.Response(text=pages, content_type="text/html")

    app = web.Application()
    app.router.add_get("/", serve)
    runner = web.AppRunner(app)
    await runner.setup()
    host, port = page.split(":")
    await web.TCPSite(runner, host, int(port)).start()
    try:
        async with browsing(tmp_path / "profile") as tab:
            async with Node(config) as node:
                stream = await node.stream("s")
                await stream.push(b"0")
                await tab.open(f"http://{page}/#http://{gateway.listen}/streams/s")
                await tab.run(f"document.querySelector('#key').value = {READER!r}")
                await tab.click("button")
                await tab.until(f"{items} === '0'")
                await stream.push(b"1")
                await tab.until(f"{items} === '0,1'")
                await asyncio.sleep(3.0)  # the first ticket's time is over
            # It comes back by itself, also where its ticket is not good any more.
            await asyncio.sleep(3.0)
            async with Node(config) as node:
                stream = await node.stream("s")
                await stream.push(b"2")
                await tab.until(f"{items} === '0,1,2'")
                await tab.until("document.querySelector('#state').textContent === 'open'")
    finally:
        await runner.cleanup()
