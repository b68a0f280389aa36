"""Connections of an HTTP client on which one can see how far a WebSocket message is.

aiohttp says nothing of a message before it is whole, and holds what has come of it meanwhile.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, cast

import aiohttp
from aiohttp.client_proto import ResponseHandler

from rillnode.codecs.websocket import MessageScanner

Held = Callable[[int, bool], None]
"""Told of the bytes that are held of the message under way, and whether one before has ended."""

_END_OF_HEAD: Final = b"\r\n\r\n"


class WatchedConnection(ResponseHandler):
    """A connection that is used for one answer: behind its head there are only WebSocket frames.

    Attributes:
        on_held: told of each piece that comes, before it is read; None: nobody.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.on_held: Held | None = None
        self._scanner = MessageScanner()
        self._tail = b""  # the last bytes of a head that is not whole
        self._head = True

    def data_received(self, data: bytes) -> None:
        """Hand on, and see how far the message is."""
        frames = self._behind_head(data) if self._head else data
        ended = self._scanner.feed(frames)
        if self.on_held is not None and frames:
            self.on_held(self._scanner.held_bytes, ended)
        if self.transport is not None and not self.transport.is_closing():
            super().data_received(data)

    def _behind_head(self, data: bytes) -> bytes:
        seen = self._tail + data
        end = seen.find(_END_OF_HEAD)
        if end < 0:
            self._tail = seen[1 - len(_END_OF_HEAD) :]
            return b""
        self._head, self._tail = False, b""
        return seen[end + len(_END_OF_HEAD) :]

    def abort(self) -> None:
        """End at once; what is held is given up."""
        if self.transport is not None:
            assert isinstance(self.transport, asyncio.Transport)
            self.transport.abort()


class WatchedConnector(aiohttp.TCPConnector):
    """Makes such connections, each for one use."""

    def __init__(self) -> None:
        # How many there may be is for the group of links to say.
        super().__init__(force_close=True, limit=0)  # pyright: ignore[reportUnknownMemberType]
        # Where the library's own connections are made; it has no setting for that.
        loop = asyncio.get_running_loop()
        self._factory = cast("partial[ResponseHandler]", partial(WatchedConnection, loop))
