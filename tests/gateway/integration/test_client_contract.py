"""Tests a small client of the gateway by the public suites for clients: each request again."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from typing import Any, Final, TypeVar
from urllib.parse import urlencode
from uuid import uuid4

import aiohttp

from long_suites import leaves_long
from rillnode.codecs.errors import RequestError, TransportError
from rillnode.testing.contract import (
    CancellableClientContract,
    FollowingClientContract,
    Place,
    RepeatingClientContract,
)

T = TypeVar("T")

PAUSE_SECONDS: Final = 0.05


class Device:
    """Asks until it has an answer, under one key each; follows from where it was."""

    def __init__(self, address: str) -> None:
        self._url = f"http://{address}/streams/contract"
        self._http = aiohttp.ClientSession()
        self._closed = asyncio.Event()
        self._tails = set[aiohttp.ClientResponse]()
        self._session, self._numbers = uuid4().hex, count()

    async def ask(self, method: str, path: str = "", **more: Any) -> tuple[Any, str]:
        """The body of an answer, and its `Rillnode-Next`."""
        async with self._http.request(method, self._url + path, **more) as answer:
            body = await answer.read()
            if answer.status in (429, 503):
                raise aiohttp.ClientError(f"try again: {body!r}")
            if answer.status >= 400:
                error = json.loads(body)
                raise RequestError(error["code"], error["text"])
            return body, answer.headers.get("Rillnode-Next", "")

    async def repeat(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Ask until an answer comes, or the client is closed."""
        while not self._closed.is_set():
            asking = asyncio.ensure_future(ask())
            closing = asyncio.ensure_future(self._closed.wait())
            try:
                await asyncio.wait((asking, closing), return_when=asyncio.FIRST_COMPLETED)
                if asking.done():
                    return asking.result()
            except aiohttp.ClientError:
                await asyncio.sleep(PAUSE_SECONDS)
            finally:
                asking.cancel()
                closing.cancel()
                await asyncio.wait((asking, closing))
        raise TransportError("client.closed", "the client is closed")

    async def push(self, data: bytes) -> None:
        key = {"Idempotency-Key": f"{self._session}-{next(self._numbers)}"}
        await self.repeat(partial(self.ask, "POST", data=data, headers=key))

    async def read(self, first: int) -> list[bytes]:
        found: list[bytes] = []
        position = str(first)
        while True:
            path = "?" + urlencode({"from": position, "limit": 1_000})
            body, position = await self.repeat(partial(self.ask, "GET", path))
            lines = body.splitlines()
            found += [text_of(json.loads(line)) for line in lines]
            if not lines:
                return found

    async def follow(self) -> AsyncGenerator[bytes]:
        position = "start"
        while not self._closed.is_set():
            try:
                async with self._http.get(f"{self._url}/tail?from={position}") as answer:
                    if answer.status >= 400:
                        raise aiohttp.ClientError
                    self._tails.add(answer)
                    async for event, data in events(answer.content):
                        position = event
                        yield data
            except aiohttp.ClientError:
                await asyncio.sleep(PAUSE_SECONDS)

    async def close(self) -> None:
        self._closed.set()
        for answer in self._tails:
            answer.close()
        await self._http.close()


async def events(content: aiohttp.StreamReader) -> AsyncGenerator[tuple[str, bytes]]:
    """Position and data of each entry."""
    position, data = "", b""
    while line := await content.readline():
        field, _, value = line.rstrip(b"\n").partition(b": ")
        match field:
            case b"id":
                position = value.decode()
            case b"data":
                data = value
            case b"" if data:
                yield position, text_of(json.loads(data))
                data = b""
            case _:
                pass


def text_of(entry: Any) -> bytes:
    return json.dumps(entry["json"], separators=(",", ":")).encode()


# As `test_once_kill`.
@leaves_long("test_what_was_confirmed_is_there_after_the_node_was_killed")
class TestGateway(
    CancellableClientContract[Device],
    RepeatingClientContract[Device],
    FollowingClientContract[Device],
):
    listener = "gateway"
    settings = '[[grant]]\nwho = "anonymous"\nstreams = "*"\nmay = ["create", "push", "pull"]\n'

    async def connect(self, place: Place) -> Device:
        device = Device(place.address)
        try:
            await device.ask("GET", "?limit=1")
        except RequestError:
            pass  # it is made by the first push
        except aiohttp.ClientError as error:
            await device.close()
            raise TransportError("link.refused", str(error)) from None
        return device

    async def push(self, client: Device, data: bytes) -> None:
        await client.push(data)

    async def read(self, client: Device, first: int) -> list[bytes]:
        return await client.read(first)

    @asynccontextmanager
    async def follow(self, client: Device) -> AsyncGenerator[AsyncIterator[bytes]]:
        entries = client.follow()
        yield entries
        await entries.aclose()

    async def close(self, client: Device) -> None:
        await client.close()
