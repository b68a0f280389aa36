"""Bare WebSocket servers, the floor under what fan-out can cost: no log, no grants, no protocol.

    python -m benchmarks.fanout_servers picows|aiohttp PORT

What comes to `/pub` is sent to everybody at `/sub`, as it is; the first message of a subscriber is
its own answer. `fanout_ws.js` is the same on Node.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from aiohttp import WSMsgType, web

try:
    from uvloop import new_event_loop
except ImportError:
    from asyncio import new_event_loop

_HOST: Final = "127.0.0.1"


async def _aiohttp(port: int) -> None:
    subscribers: set[web.WebSocketResponse] = set()

    async def serve(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(compress=False)
        await socket.prepare(request)
        publishes = request.path == "/pub"
        async for message in socket:
            if message.type is not WSMsgType.TEXT:
                continue
            if publishes:
                for subscriber in subscribers:
                    await subscriber.send_str(message.data)
            else:
                subscribers.add(socket)
                await socket.send_str(message.data)
        subscribers.discard(socket)
        return socket

    app = web.Application()
    app.router.add_get("/pub", serve)
    app.router.add_get("/sub", serve)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, _HOST, port).start()


async def _picows(port: int) -> None:
    import picows  # here, because the other server runs without it

    subscribers: set[picows.WSTransport] = set()

    class Listener(picows.WSListener):
        def __init__(self, publishes: bool) -> None:
            self._publishes = publishes

        def on_ws_frame(self, transport: picows.WSTransport, frame: picows.WSFrame) -> None:
            if frame.msg_type != picows.WSMsgType.TEXT:
                return
            data = frame.get_payload_as_bytes()
            if self._publishes:
                for subscriber in subscribers:
                    subscriber.send(picows.WSMsgType.TEXT, data)
            else:
                subscribers.add(transport)
                transport.send(picows.WSMsgType.TEXT, data)

        def on_ws_disconnected(self, transport: picows.WSTransport) -> None:
            subscribers.discard(transport)

    def listener(request: picows.WSUpgradeRequest) -> Listener:
        return Listener(request.path == b"/pub")

    await picows.ws_create_server(listener, _HOST, port, backlog=1_024)


_SERVERS: Final[dict[str, Callable[[int], Awaitable[None]]]] = {
    "aiohttp": _aiohttp,
    "picows": _picows,
}


async def _serve(name: str, port: int) -> None:
    await _SERVERS[name](port)
    await asyncio.Event().wait()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_serve(sys.argv[1], int(sys.argv[2])))
