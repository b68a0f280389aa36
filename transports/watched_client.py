"""Connections of an HTTP client on which one can see how far a WebSocket message is.

aiohttp says nothing of a message before it is whole, and holds what has come of it meanwhile.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import cast

import aiohttp
from aiohttp.client_proto import ResponseHandler

from rillnode.codecs.websocket import MessageScanner

Held = Callable[[int, bool], None]
"""Told of the bytes that are held of the message under way, and whether one before has ended."""


class WatchedConnection(ResponseHandler):
    """A connection that shows what it holds of a WebSocket message.

    Attributes:
        on_held: told of each piece that comes, before it is read; None: nobody.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.on_held: Held | None = None
        self._scanner = MessageScanner()
        self._aborted = False

    @property
    def held_bytes(self) -> int:
        """What has come of the message under way."""
        return self._scanner.held_bytes

    def data_received(self, data: bytes) -> None:
        """Hand on, and see how far the message is."""
        # What follows the head is kept until somebody reads frames, and comes here again then.
        if self._payload_parser is not None:
            ended = self._scanner.feed(data)
            if self.on_held is not None:
                self.on_held(self._scanner.held_bytes, ended)
        if not self._aborted:
            super().data_received(data)

    def abort(self) -> None:
        """End at once; what is held is given up."""
        self._aborted = True
        if self.transport is not None:
            self.transport.abort()


class WatchedConnector(aiohttp.TCPConnector):
    """Makes such connections, each for one use."""

    def __init__(self) -> None:
        # How many there may be is for the group of links to say.
        super().__init__(force_close=True, limit=0)  # pyright: ignore[reportUnknownMemberType]
        # Where the library's own connections are made; it has no setting for that.
        loop = asyncio.get_running_loop()
        self._factory = cast("partial[ResponseHandler]", partial(WatchedConnection, loop))
