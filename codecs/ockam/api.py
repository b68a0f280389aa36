"""Requests to the interfaces of Ockam's nodes since 2022-05, and their answers, as BARE data.

    request = data( {1: id uint, 2: path text, 3: method uint, 4: has_body bool} | body )
    answer  = data( {1: id uint, 2: request id uint, 3: status uint, 4: has_body bool} | body )

Methods are get, post, put, delete and patch, from 0. The first byte of a request is never zero.
Other keys of a request's header are passed over; nodes since 2024-01 may write a tracing text as 5.
What a body holds is each interface's own matter; that of an error is a text.

Source: the Elixir nodes, api/request, api/response and services/api, 2022-05 to 2024-10.
"""

from typing import Final

from msgspec import Struct

from rillnode.codecs.bare import Codec
from rillnode.codecs.errors import CodecError
from rillnode.codecs.routing.cbor_items import UINT, encode_head, encode_text, read_map

GET: Final = 0
POST: Final = 1

OK: Final = 200
BAD_REQUEST: Final = 400
NOT_FOUND: Final = 404
METHOD_NOT_ALLOWED: Final = 405
CONFLICT: Final = 409
SERVER_ERROR: Final = 500

_TRACING: Final = 5
_DATA: Final[Codec[bytes]] = Codec(bytes)


class ApiRequest(Struct, frozen=True):
    """A request.

    Attributes:
        id: repeated in the answer.
        path: what is asked for; empty for everything.
        method: what is to be done with it.
        body: what follows the header; None where the header says that nothing does.
        traced: whether the header has a tracing text.
    """

    id: int
    path: str
    method: int
    body: bytes | None = None
    traced: bool = False


def decode_request(payload: bytes) -> ApiRequest:
    """Decode a request.

    Raises:
        CodecError: `api.header`, it has no id, path or method; else as BARE data and `read_map`.
    """
    data = _DATA.decode(payload)
    header, end = read_map(data, 0)
    request_id, path, method = header.get(1), header.get(2), header.get(3)
    if not (type(request_id) is int and isinstance(path, str) and type(method) is int):
        raise CodecError("api.header", "a request has an id, a path and a method")
    body = data[end:] if header.get(4) is True else None
    return ApiRequest(request_id, path, method, body, header.get(_TRACING) is not None)


def encode_answer(request: ApiRequest, answer_id: int, status: int, body: bytes) -> bytes:
    """Encode an answer with a body."""
    header = b"\xa4\x01%b\x02%b\x03%b\x04\xf5" % (
        encode_head(UINT, answer_id),
        encode_head(UINT, request.id),
        encode_head(UINT, status),
    )
    return _DATA.encode(header + body)


def encode_error(request: ApiRequest, answer_id: int, status: int, reason: str) -> bytes:
    """Encode an answer that says why something was not done, spelt as in released nodes."""
    return encode_answer(request, answer_id, status, encode_text(f":{reason}"))
