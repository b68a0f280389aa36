"""The discovery service's payloads, of both generations; the first byte tells them apart.

Elixir nodes of 2021-08 to 2022-08, BARE behind a zero byte:

    request  = 00 | union { list: data[0], get: string, register: { id: string,
                                                                    metadata: map<string, data> } }
    answer   = 00 | []ServiceInfo to list, ServiceInfo to get, nothing when there is no such service
    ServiceInfo { id: string, route: Route, metadata: map<string, data> }

A registration has no answer. Later nodes, a request of their CBOR interface as BARE data (of which
no request is empty, so the first byte is not zero):

    request  = data( {1: id uint, 2: path text, 3: method uint, 4: has_body bool} | body )
    answer   = data( {1: id uint, 2: request id uint, 3: status uint, 4: has_body bool} | body )
    body     = an array of infos to the path "", one info to a service's id, a text to an error
    info     = {1: id bytes, 2: [{"type": uint, "value": text}], 3: {}}

Method 0 is get. Other keys of a request's header are ignored, as are the bodies of requests.

Source: the Elixir nodes, services/discovery and services/api/discovery_api, at 2021-08 and 2024-10.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from rillnode.codecs.bare import Codec, Length, UInt
from rillnode.codecs.errors import CodecError
from rillnode.codecs.ockam.cbor_items import encode_array, encode_head, encode_text, read_map
from rillnode.codecs.ockam.routing import Route

GET: Final = 0
OK: Final = 200
NOT_FOUND: Final = 404
METHOD_NOT_ALLOWED: Final = 405

_BARE: Final = b"\x00"


@dataclass(frozen=True, slots=True)
class Service:
    """One service of a node."""

    id: str
    route: Route


@dataclass(frozen=True, slots=True)
class DiscoveryRequest:
    """A question for one service, or for all.

    Attributes:
        service_id: None for all.
        api_id: the request's id in the CBOR interface; None in the BARE form.
        get: whether it is a question at all, and nothing that this node does not do.
    """

    service_id: str | None
    api_id: int | None = None
    get: bool = True


@dataclass(slots=True)
class _List:
    nothing: Annotated[bytes, Length(0)]


@dataclass(slots=True)
class _Get:
    id: str


@dataclass(slots=True)
class _Register:
    id: str
    metadata: dict[str, bytes]


@dataclass(slots=True)
class _ServiceInfo:
    id: str
    route: list[tuple[UInt, bytes]]
    metadata: dict[str, bytes]


_REQUEST: Final = Codec[_List | _Get | _Register](_List | _Get | _Register)
_INFO: Final[Codec[_ServiceInfo]] = Codec(_ServiceInfo)
_INFOS: Final = Codec[list[_ServiceInfo]](list[_ServiceInfo])
_DATA: Final[Codec[bytes]] = Codec(bytes)


def decode_request(payload: bytes) -> DiscoveryRequest:
    """Decode a request of either generation.

    Raises:
        CodecError: the payload is neither.
    """
    if not payload.startswith(_BARE):
        return _decode_api(payload)
    match _REQUEST.decode(payload[1:]):
        case _List():
            return DiscoveryRequest(None)
        case _Get(id=service_id):
            return DiscoveryRequest(service_id)
        case _Register(id=service_id):
            return DiscoveryRequest(service_id, get=False)


def encode_answer(
    request: DiscoveryRequest, services: Sequence[Service], response_id: int
) -> bytes | None:
    """Answer a request in its own form; None where it has no answer.

    Args:
        request: what was asked.
        services: all that there are.
        response_id: of the answer, in the CBOR interface.
    """
    wanted = [one for one in services if request.service_id in (None, one.id)]
    if request.api_id is None:
        return _encode_bare(request, wanted) if request.get else None
    if not request.get:
        status, body = METHOD_NOT_ALLOWED, encode_text(":method_not_allowed")
    elif request.service_id is None:
        status, body = OK, encode_array(map(_encode_info, wanted))
    elif wanted:
        status, body = OK, _encode_info(wanted[0])
    else:
        status, body = NOT_FOUND, encode_text(":not_found")
    header = b"\xa4\x01%b\x02%b\x03%b\x04\xf5" % (
        encode_head(0, response_id),
        encode_head(0, request.api_id),
        encode_head(0, status),
    )
    return _DATA.encode(header + body)


def _encode_bare(request: DiscoveryRequest, wanted: Sequence[Service]) -> bytes:
    infos = [_ServiceInfo(one.id, [(kind, v) for kind, v in one.route], {}) for one in wanted]
    if request.service_id is None:
        return _BARE + _INFOS.encode(infos)
    return _BARE + b"".join(map(_INFO.encode, infos))


def _encode_info(service: Service) -> bytes:
    route = encode_array(
        b"\xa2%b%b%b%b"
        % (
            encode_text("type"),
            encode_head(0, address.type),
            encode_text("value"),
            encode_head(3, len(address.value)) + address.value,
        )
        for address in service.route
    )
    name = service.id.encode()
    return b"\xa3\x01%b%b\x02%b\x03\xa0" % (encode_head(2, len(name)), name, route)


def _decode_api(payload: bytes) -> DiscoveryRequest:
    header, _ = read_map(_DATA.decode(payload), 0)
    api_id, path, method = header.get(1), header.get(2), header.get(3)
    if not (type(api_id) is int and isinstance(path, str) and type(method) is int):
        raise CodecError("discovery.header", "a request has an id, a path and a method")
    return DiscoveryRequest(path or None, api_id, get=method == GET)
