"""The page's admin session pauses and resumes sinks."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from msgspec.structs import replace

import contract_spark
from nodes import connect_to, node_config
from rillnode.node.config import HttpListener
from rillnode.node.runtime import Node
from rillnode.node.spark import process


def test_a_sink_is_paused_and_resumed_in_an_admin_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "launcher", contract_spark.launcher)
    http = HttpListener(listen="127.0.0.1:0", console=True)
    config = replace(node_config(tmp_path), http=http).having(contract_spark.SINKS)

    async def main() -> None:
        async with asyncio.timeout(60), Node(config) as node:
            page = f"http://{node.addresses()['http']}"
            jar = aiohttp.CookieJar(unsafe=True)
            async with (
                await connect_to(node) as client,
                aiohttp.ClientSession(page, cookie_jar=jar, headers={"Origin": page}) as session,
            ):
                sent = {"ticket": (await client.console_ticket()).ticket}
                async with session.post("/v1/session", json=sent) as answer:
                    token = (await answer.json())["token"]

                async def state() -> str:
                    async with session.get("/v1/sinks") as answer:
                        (sink,) = (await answer.json())["sinks"]
                        return str(sink["state"])

                async def run(wanted: bool, *states: str) -> None:
                    body: dict[str, Any] = {"do": "run_sink", "sink": "bronze", "run": wanted}
                    headers = {"Rillnode-Console": token}
                    async with session.post("/v1/console", json=body, headers=headers) as answer:
                        assert (answer.status, await answer.json()) == (200, {})
                    while await state() not in states:
                        await asyncio.sleep(0.01)

                await run(False, "paused")
                await run(True, "starting", "running")

    asyncio.run(main())
