"""The fields of a stream's messages, as its newest one has them."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from aiohttp import web

from rillnode.actors.log import StreamRecord
from rillnode.actors.streamr import metadata, permissions
from rillnode.actors.streamr.requests import ResendQuery
from rillnode.codecs.errors import CodecError, RequestError
from rillnode.codecs.streamr.json_text import read_json
from rillnode.codecs.streamr.stream_message import EncryptionType, StreamMessage
from rillnode.node.streamr.rest.answers import json_answer
from rillnode.node.streamr.rest.rest import ASK_SECONDS, Rest, principal_of

_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])


async def detect(rest: Rest, request: web.Request) -> web.Response:
    """GET /streams/{id}/detectFields: the stream, with the fields that its messages have.

    They are not saved: clients send the stream back for that. Where no message can be read as a
    JSON object, the stream comes as it is.
    """
    principal = principal_of(rest, request)
    record = await rest.find(request.match_info["id"], principal, permissions.GET)
    told = metadata.describe(record)
    for partition in range(record.partitions):
        fields = _fields(await _newest(rest, record, partition, principal))
        if fields:
            config = msgspec.json.decode(told["config"])
            told["config"] = {**config, "fields": fields}
            break
    return json_answer(told)


def _fields(messages: Sequence[StreamMessage]) -> list[dict[str, str]]:
    for message in messages:
        if message.encryption_type == EncryptionType.NONE:
            try:
                content = read_json(_OBJECT, message.content)
            except CodecError:
                continue
            return [
                {"name": name, "type": _type_of(value)}
                for name, value in content.items()
                if value is not None
            ]
    return []


def _type_of(value: object) -> str:
    match value:
        case bool():
            return "boolean"
        case str():
            return "string"
        case int() | float():
            return "number"
        case list():
            return "list"
        case _:
            return "map"


class _Newest:
    """A ResendSink for a message or two."""

    buffered_bytes = 0

    def __init__(self) -> None:
        self.messages: list[StreamMessage] = []
        self.error: RequestError | None = None
        self.ended = asyncio.Event()

    def resent(self, messages: Sequence[StreamMessage]) -> None:
        """Keep them."""
        self.messages += messages

    def finished(self, error: RequestError | None) -> None:
        """That was all."""
        self.error = error
        self.ended.set()


async def _newest(
    rest: Rest, record: StreamRecord, partition: int, principal: str
) -> Sequence[StreamMessage]:
    """The newest message of a partition, if there is one.

    Raises:
        RequestError: `rest.busy`, or why it may not be read.
    """
    sink = _Newest()
    query = ResendQuery(stream_id=record.name, partition=partition, principal=principal, last=1)
    resend = rest.begin_resend(query, sink)
    try:
        async with asyncio.timeout(ASK_SECONDS):
            await sink.ended.wait()
    except TimeoutError:
        raise RequestError("rest.busy", "The store does not answer", retryable=True) from None
    finally:
        rest.end_resend(resend)
    if sink.error is not None:
        raise sink.error
    return sink.messages
