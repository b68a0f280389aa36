"""A hub that answers with the captured bytes of released Elixir nodes, over TCP."""

import asyncio
import json
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from rillnode.codecs.routing.dialects import Dialect
from rillnode.codecs.routing.routes import Address, WireMessage
from rillnode.codecs.routing.stream import (
    PullRequest,
    PullResponse,
    PushConfirm,
    PushRequest,
    Request,
    Response,
    decode_request,
    decode_response,
    encode_response,
)
from rillnode.codecs.routing.wire import wire_codec

_VECTORS: Final = Path(__file__).parents[1] / "ockam" / "conformance" / "vectors" / "ockam.json"
_LEVELS: Final[dict[str, Dialect]] = {"aug2021": "u16", "head": "2024"}
LEVELS: Final = tuple(_LEVELS)


class Exchange:
    """A captured request, where it went, and the captured answers to it."""

    def __init__(self, wire: WireMessage) -> None:
        self.address = wire.onward_route[0]
        self.request = decode_request(wire.payload)
        self.asked_from = wire.return_route
        self.answers: list[WireMessage] = []

    @property
    def responses(self) -> list[Response]:
        """What the answers say."""
        return [decode_response(answer.payload) for answer in self.answers]


class ReplayedHub:
    """Takes the requests of the run `basic` in their order, and gives the answers of then.

    Attributes:
        dialect: that of the node that was captured.
        exchanges: what is expected, and answered.
        wrong: the requests that came and were not expected.
    """

    def __init__(self, level: str) -> None:
        self.dialect: Dialect = _LEVELS[level]
        self._wire = wire_codec("bare" if self.dialect == "u16" else "cbor")
        self._length_bytes = 2 if self.dialect == "u16" else 4
        self.exchanges = self._read(level)
        self.wrong: list[tuple[Address, Request]] = []
        self._next = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    @property
    def finished(self) -> bool:
        """Whether everything that was expected has come, and nothing else."""
        return self._next == len(self.exchanges) and not self.wrong

    def _read(self, level: str) -> list[Exchange]:
        records: list[dict[str, Any]] = json.loads(_VECTORS.read_text())
        exchanges: list[Exchange] = []
        for record in records:
            if (record["level"], record["run"]) != (level, "basic"):
                continue
            if record["name"] in ("version byte", "plain payload"):
                continue
            frame = bytes.fromhex(record["hex"])[self._length_bytes :]
            (wire,) = self._wire.decode([frame])
            if record["direction"] == "client>service":
                exchanges.append(Exchange(wire))
            else:
                asked = (one for one in exchanges if one.asked_from == wire.onward_route)
                next(asked).answers.append(wire)
        return exchanges

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self.dialect == "2024":
                writer.write(b"\x01")
                await reader.readexactly(1)
            while True:
                size = int.from_bytes(await reader.readexactly(self._length_bytes), "big")
                (wire,) = self._wire.decode([await reader.readexactly(size)])
                for answer in self._answers(wire):
                    frame = self._wire.encode(answer)
                    writer.write(len(frame).to_bytes(self._length_bytes, "big") + frame)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def _answers(self, wire: WireMessage) -> list[WireMessage]:
        request = decode_request(wire.payload)
        asked = self.exchanges[self._next]
        if wire.onward_route != (asked.address,) or _anonymous(request) != _anonymous(
            asked.request
        ):
            self.wrong.append((wire.onward_route[0], request))
            return []
        self._next += 1
        return [
            WireMessage(wire.return_route, answer.return_route, _renumbered(answer, request))
            for answer in asked.answers
        ]


def _anonymous(request: Request) -> Request:
    """A request without its number, which is the client's own affair."""
    match request:
        case PushRequest() | PullRequest():
            return msgspec.structs.replace(request, request_id=0)
        case _:
            return request


def _renumbered(answer: WireMessage, request: Request) -> bytes:
    """The captured bytes, with the number of this request where they hold that of another."""
    response = decode_response(answer.payload)
    if isinstance(response, PushConfirm | PullResponse):
        assert isinstance(request, PushRequest | PullRequest)
        return encode_response(msgspec.structs.replace(response, request_id=request.request_id))
    return answer.payload
