"""A headless Chromium, driven by its DevTools protocol over one WebSocket."""

import asyncio
import base64
import itertools
import json
import os
import shutil
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SECONDS = 90.0
STILL_SECONDS = 0.2
"""For how long an element must not have moved before it is clicked."""

KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, "Space": 32}


class BrowserError(Exception):
    """The page raised, or something was waited for in vain."""


class Tab:
    """One page.

    Attributes:
        problems: exceptions and errors that the page's console has shown, requests refused by its
            policy included.
        requested: the URLs that it has asked for.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._ids = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._loaded = asyncio.Event()
        self.problems: list[str] = []
        self.requested: list[str] = []

    async def listen(self) -> None:
        """Take answers and events, until the browser goes."""
        async for message in self._socket:
            document = json.loads(message.data)
            if "id" in document:
                self._answers.pop(document["id"]).set_result(document)
            else:
                self._event(document["method"], document.get("params", {}))

    def _event(self, method: str, parameters: dict[str, Any]) -> None:
        match method:
            case "Page.loadEventFired":
                self._loaded.set()
            case "Runtime.exceptionThrown":
                self.problems.append(json.dumps(parameters["exceptionDetails"])[:500])
            case "Log.entryAdded" if parameters["entry"]["level"] == "error":
                self.problems.append(parameters["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requested.append(parameters["request"]["url"])
            case _:
                pass

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._ids)
        future = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        answer = await asyncio.wait_for(future, SECONDS)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    async def open(self, url: str) -> None:
        self._loaded.clear()
        await self.call("Page.navigate", url=url)
        await asyncio.wait_for(self._loaded.wait(), SECONDS)

    async def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        result = await self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in result:
            raise BrowserError(f"{script}: {result['exceptionDetails']}")
        return result["result"].get("value")

    async def until(self, script: str) -> Any:
        """Wait until an expression in the page is true, and return it.

        While a page is loaded it may have nothing of what the expression names.
        """
        deadline = time.monotonic() + SECONDS
        found: object = None
        while time.monotonic() < deadline:
            try:
                # An element has no value of its own.
                found = await self.run(f"(one => one instanceof Node || one)({script})")
            except BrowserError as error:
                found = error
            else:
                if found:
                    return found
            await asyncio.sleep(0.1)
        raise BrowserError(f"never true: {script}: {found}; {self.problems}")

    async def click(self, selector: str) -> None:
        """Click with the mouse in the middle of an element, once it stays where it is."""
        script = (
            f"(() => {{ const one = document.querySelector({json.dumps(selector)});"
            " one.scrollIntoView({block: 'center'}); const box = one.getBoundingClientRect();"
            " return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        where, before = await self.run(script), None
        async with asyncio.timeout(SECONDS):
            while where != before:
                await asyncio.sleep(STILL_SECONDS)
                where, before = await self.run(script), where
        mouse = {"x": where[0], "y": where[1], "button": "left", "clickCount": 1}
        await self.call("Input.dispatchMouseEvent", type="mousePressed", **mouse)
        await self.call("Input.dispatchMouseEvent", type="mouseReleased", **mouse)

    async def press(self, key: str) -> None:
        code = KEYS[key]
        one = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        text = {"text": "\r"} if key == "Enter" else {}
        await self.call("Input.dispatchKeyEvent", type="keyDown", **one, **text)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **one)

    async def write(self, text: str) -> None:
        await self.call("Input.insertText", text=text)

    async def resize(self, width: int, height: int, *, phone: bool = False) -> None:
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=phone,
        )  # fmt: skip

    async def screenshot(self, path: Path) -> None:
        shot = await self.call("Page.captureScreenshot", format="png", optimizeForSpeed=False)
        path.write_bytes(base64.b64decode(shot["data"]))


@asynccontextmanager
async def browsing(directory: Path) -> AsyncGenerator[Tab]:
    """Start Chromium with a profile in `directory`, and open a tab."""
    assert CHROMIUM is not None
    process = await asyncio.create_subprocess_exec(
        CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--hide-scrollbars", "--disable-lcd-text", "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update", "--remote-debugging-port=0",
        f"--user-data-dir={directory}", "about:blank",
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "HOME": str(directory), "no_proxy": "127.0.0.1"},
    )  # fmt: skip
    try:
        port = await _port(directory / "DevToolsActivePort")
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                pages = [one for one in await answer.json() if one["type"] == "page"]
            address = pages[0]["webSocketDebuggerUrl"]
            async with session.ws_connect(address, max_msg_size=0) as socket:
                tab = Tab(socket)
                listening = asyncio.create_task(tab.listen())
                for domain in ("Page", "Runtime", "Log", "Network"):
                    await tab.call(f"{domain}.enable")
                yield tab
                listening.cancel()
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _port(file: Path) -> int:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if file.is_file() and (lines := file.read_text().splitlines()):
            return int(lines[0])
        await asyncio.sleep(0.05)
    raise BrowserError("Chromium did not start")
