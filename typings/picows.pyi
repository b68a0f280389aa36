import asyncio
from collections.abc import Callable
from enum import Enum

class WSMsgType(Enum):
    TEXT = 1

class WSFrame:
    msg_type: WSMsgType
    def get_payload_as_bytes(self) -> bytes: ...

class WSTransport:
    def send(self, msg_type: WSMsgType, message: bytes) -> None: ...

class WSUpgradeRequest:
    path: bytes

class WSListener:
    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None: ...
    def on_ws_disconnected(self, transport: WSTransport) -> None: ...

async def ws_create_server(
    ws_listener_factory: Callable[[WSUpgradeRequest], WSListener],
    host: str,
    port: int,
    *,
    backlog: int,
) -> asyncio.Server: ...
