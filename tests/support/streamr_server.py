"""A small Streamr server for the client's tests: in memory, and made to fail where asked to.

It speaks control version 2 and messages of version 32 only, and lets everybody do everything
but what a test takes away.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from aiohttp import WSMsgType, web

from rillnode.codecs.streamr.control import decode_control, encode_control
from rillnode.codecs.streamr.control_messages import (
    BroadcastMessage,
    ControlMessage,
    ErrorResponse,
    PublishRequest,
    ResendFromRequest,
    ResendLastRequest,
    ResendRangeRequest,
    ResendResponseNoResend,
    ResendResponseResending,
    ResendResponseResent,
    SubscribeRequest,
    SubscribeResponse,
    UnicastMessage,
    UnsubscribeRequest,
    UnsubscribeResponse,
)
from rillnode.codecs.streamr.ethereum import recover_address
from rillnode.codecs.streamr.key_exchange import is_key_stream
from rillnode.codecs.streamr.stream_message import StreamMessage

Partition = tuple[str, int]
Answer = (
    SubscribeResponse
    | UnsubscribeResponse
    | ResendResponseResending
    | ResendResponseResent
    | ResendResponseNoResend
)
Resends = ResendLastRequest | ResendFromRequest | ResendRangeRequest


@dataclass
class StreamrServer:
    """A server as a test sees it.

    Attributes:
        stored: all messages of a partition, in the order they came.
        received: all requests.
        refusals: codes that a request of the class is answered with, one for each request.
        silent: requests of these classes get no answer.
        breaks_resends: break the connection after the first message of a resend.
        strangers: addresses that are neither publishers nor subscribers.
        challenge: what is asked to be signed.
    """

    url: str = ""
    stored: defaultdict[Partition, list[StreamMessage]] = field(
        default_factory=lambda: defaultdict(list)
    )
    received: list[ControlMessage] = field(default_factory=list[ControlMessage])
    refusals: defaultdict[type[ControlMessage], list[str]] = field(
        default_factory=lambda: defaultdict(list)
    )
    silent: set[type[ControlMessage]] = field(default_factory=set[type[ControlMessage]])
    breaks_resends: bool = False
    strangers: set[str] = field(default_factory=set[str])
    challenge: str = "Prove {address} with {id}"
    logins: int = 0
    tokens: set[str] = field(default_factory=set[str])
    streams: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    permissions: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    sockets: dict[web.WebSocketResponse, set[Partition]] = field(
        default_factory=dict[web.WebSocketResponse, set[Partition]]
    )
    transports: dict[web.WebSocketResponse, asyncio.Transport] = field(
        default_factory=dict[web.WebSocketResponse, asyncio.Transport]
    )
    accepts: bool = True

    def asked(self, kind: type[ControlMessage]) -> list[ControlMessage]:
        """The requests of one class that have come."""
        return [request for request in self.received if isinstance(request, kind)]

    async def drop_connections(self) -> None:
        """Break every WebSocket, without a word."""
        for transport in self.transports.values():
            transport.abort()
        while self.sockets:
            await asyncio.sleep(0.01)

    async def broadcast(self, message: StreamMessage) -> None:
        """Send a message to everybody who follows its partition."""
        partition = (message.id.stream_id, message.id.partition)
        for socket, followed in list(self.sockets.items()):
            if partition in followed:
                await _send(socket, BroadcastMessage(message=message, request_id=""))

    # WebSocket -------------------------------------------------------------------------------

    async def serve(self, request: web.Request) -> web.StreamResponse:
        versions = (
            request.query.get("controlLayerVersion"),
            request.query.get("messageLayerVersion"),
        )
        if versions != ("2", "32") or not self.accepts:
            return web.Response(status=400 if self.accepts else 503)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.sockets[socket] = set()
        assert request.transport is not None
        self.transports[socket] = request.transport
        try:
            async for frame in socket:
                if frame.type is WSMsgType.TEXT:
                    _, message = decode_control(frame.data)
                    self.received.append(message)
                    await self._handle(socket, message)
        finally:
            del self.sockets[socket], self.transports[socket]
        return socket

    async def _handle(self, socket: web.WebSocketResponse, message: ControlMessage) -> None:
        if type(message) in self.silent:
            return
        request_id = message.request_id
        codes = self.refusals[type(message)]
        if codes:
            error = ErrorResponse(
                error_code=codes.pop(0), error_message="refused", request_id=request_id
            )
            await _send(socket, error)
            return
        match message:
            case PublishRequest(message=published):
                partition = (published.id.stream_id, published.id.partition)
                if not is_key_stream(published.id.stream_id):
                    self.stored[partition].append(published)
                await self.broadcast(published)
            case SubscribeRequest():
                self.sockets[socket].add((message.stream_id, message.partition))
                await _send(socket, _about(message, SubscribeResponse))
            case UnsubscribeRequest():
                self.sockets[socket].discard((message.stream_id, message.partition))
                await _send(socket, _about(message, UnsubscribeResponse))
            case ResendLastRequest() | ResendFromRequest() | ResendRangeRequest():
                await self._resend(socket, message)
            case _:
                raise AssertionError(f"a client sends no {message!r}")

    async def _resend(self, socket: web.WebSocketResponse, request: Resends) -> None:
        about = partial(_about, request)
        found = self._chosen(request)
        if not found:
            await _send(socket, about(ResendResponseNoResend))
            return
        await _send(socket, about(ResendResponseResending))
        for message in found:
            await _send(socket, UnicastMessage(message=message, request_id=request.request_id))
            if self.breaks_resends:
                await socket.close()
                return
        await _send(socket, about(ResendResponseResent))

    def _chosen(self, request: Resends) -> list[StreamMessage]:
        partition = (request.stream_id, request.partition)
        found = sorted(self.stored[partition], key=lambda m: (m.id.timestamp, m.id.sequence))
        if isinstance(request, ResendLastRequest):
            return found[len(found) - request.number_last :] if request.number_last else []
        first, sequence = request.from_ref
        found = [m for m in found if (m.id.timestamp, m.id.sequence) >= (first, sequence or 0)]
        if request.publisher_id is not None:
            publisher = request.publisher_id.lower()
            found = [m for m in found if m.id.publisher_id.lower() == publisher]
        if isinstance(request, ResendRangeRequest):
            last, sequence = request.to_ref
            end = (last, 2**53 if sequence is None else sequence)
            found = [m for m in found if (m.id.timestamp, m.id.sequence) <= end]
            if request.chain_id is not None:
                found = [m for m in found if m.id.chain_id == request.chain_id]
        return found

    # REST ------------------------------------------------------------------------------------

    async def log_in(self, request: web.Request) -> web.Response:
        way = request.match_info["way"]
        body = json.loads(await request.text() or "{}")
        if way.startswith("challenge/"):
            address = way.removeprefix("challenge/")
            text = self.challenge.format(address=address.lower(), id="id-1")
            return web.json_response({"id": "id-1", "challenge": text, "expires": "later"})
        if way == "response":
            text = body["challenge"]["challenge"]
            signer = recover_address(text.encode(), body["signature"])
            if signer != body["address"].lower():
                return _refusal(401, "CHALLENGE_VERIFICATION_FAILED_ERROR")
        elif body.get("apiKey") != "right":
            return _refusal(401, "INVALID_API_KEY_ERROR")
        self.logins += 1
        self.tokens.add(f"token-{self.logins}")
        return web.json_response({"token": f"token-{self.logins}", "expires": "later"})

    async def me(self, request: web.Request) -> web.Response:
        return self._authorized(request) or web.json_response({"name": "n", "username": "user"})

    async def create(self, request: web.Request) -> web.Response:
        refusal = self._authorized(request)
        if refusal is not None:
            return refusal
        document = json.loads(await request.text())
        self.streams[document["id"]] = document
        return web.json_response(document)

    async def about(self, request: web.Request) -> web.Response:
        path = request.match_info["path"].split("/")
        stream_id, *rest = path
        stream_id = stream_id.replace("%2F", "/").replace("%2f", "/")
        match rest:
            case []:
                found = self.streams.get(stream_id)
                return _refusal(404, "NOT_FOUND") if found is None else web.json_response(found)
            case ["publisher" | "subscriber", address]:
                return web.Response(status=404 if address in self.strangers else 200)
            case ["permissions"] if request.method == "POST":
                document = json.loads(await request.text())
                self.permissions.append({"id": len(self.permissions), **document})
                return web.json_response(self.permissions[-1])
            case ["permissions"]:
                return web.json_response(self.permissions)
            case _:
                return web.Response(status=404)

    def _authorized(self, request: web.Request) -> web.Response | None:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        return None if token in self.tokens else _refusal(401, "NOT_LOGGED_IN")


@asynccontextmanager
async def streamr_server() -> AsyncGenerator[StreamrServer]:
    """A running server."""
    server = StreamrServer()
    app = web.Application()
    app.router.add_get("/api/v1/ws", server.serve)
    app.router.add_post("/api/v1/login/{way:.*}", server.log_in)
    app.router.add_get("/api/v1/users/me", server.me)
    app.router.add_post("/api/v1/streams", server.create)
    app.router.add_get("/api/v1/streams/{path:.*}", _raw(server))
    app.router.add_post("/api/v1/streams/{path:.*}", _raw(server))
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"ws://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await server.drop_connections()
        await runner.cleanup()


def _raw(server: StreamrServer) -> Any:
    """The path as it was sent: a stream's id is one part of it, whatever slashes it holds."""

    async def handle(request: web.Request) -> web.Response:
        request.match_info["path"] = request.rel_url.raw_path.removeprefix("/api/v1/streams/")
        return await server.about(request)

    return handle


def _refusal(status: int, code: str) -> web.Response:
    return web.json_response({"code": code, "message": "no"}, status=status)


async def _send(socket: web.WebSocketResponse, message: ControlMessage) -> None:
    if not socket.closed:
        await socket.send_str(encode_control(message, 2, 32))


def _about(
    request: SubscribeRequest | UnsubscribeRequest | Resends, answer: type[Answer]
) -> Answer:
    return answer(
        stream_id=request.stream_id, partition=request.partition, request_id=request.request_id
    )
