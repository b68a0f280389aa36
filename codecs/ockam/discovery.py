"""The discovery service's payloads, of both generations; the first byte tells them apart.

Elixir nodes of 2021-08 to 2022-08, BARE behind a zero byte:

    request  = 00 | union { list: data[0], get: string, register: { id: string,
                                                                    metadata: map<string, data> } }
    answer   = 00 | []ServiceInfo to list, ServiceInfo to get, nothing when there is no such service
    ServiceInfo { id: string, route: Route, metadata: map<string, data> }

A registration has no answer. Later nodes use the form of their interfaces (see `api`), with

    body     = an array of infos to the path "", one info to a service's id
    info     = {1: id, 2: [{"type": uint, "value": text}], 3: {}}

where the id is a text since 2022-12 and bytes before; neither end reads the other's. Requests tell
the age of who asks by what they have had since: a body, which is empty, since 2023-06; a tracing
text; the 2024 dialect. Those of 2022-12 to 2023-05 have nothing that the older ones have not.

Source: the Elixir nodes, services/discovery, services/api/discovery_api and api/discovery/
service_info, at 2021-08, 2022-06, 2022-11, 2023-06 and 2024-10.
"""

from collections.abc import Sequence
from typing import Annotated, Final

from msgspec import Struct

from rillnode.codecs.bare import Codec, Length, UInt
from rillnode.codecs.ockam import api
from rillnode.codecs.routing.cbor_items import (
    BYTES,
    TEXT,
    UINT,
    encode_array,
    encode_head,
    encode_text,
)
from rillnode.codecs.routing.routes import Route

_BARE: Final = b"\x00"


class Service(Struct, frozen=True):
    """One service of a node."""

    id: str
    route: Route


class DiscoveryRequest(Struct, frozen=True):
    """A question for one service, or for all.

    Attributes:
        service_id: None for all.
        asked: the request in the later form; None in the BARE form.
        get: whether it is a question at all, and nothing that this node does not do.
        text_ids: whether who asks reads ids that are texts.
    """

    service_id: str | None
    asked: api.ApiRequest | None = None
    get: bool = True
    text_ids: bool = False


class _List(Struct):
    nothing: Annotated[bytes, Length(0)]


class _Get(Struct):
    id: str


class _Register(Struct):
    id: str
    metadata: dict[str, bytes]


class _ServiceInfo(Struct):
    id: str
    route: list[tuple[UInt, bytes]]
    metadata: dict[str, bytes]


_REQUEST: Final = Codec[_List | _Get | _Register](_List | _Get | _Register)
_INFO: Final[Codec[_ServiceInfo]] = Codec(_ServiceInfo)
_INFOS: Final = Codec[list[_ServiceInfo]](list[_ServiceInfo])


def decode_request(payload: bytes, *, cbor: bool = False) -> DiscoveryRequest:
    """Decode a request of either generation.

    Args:
        payload: what came.
        cbor: whether it came in the 2024 dialect.

    Raises:
        CodecError: the payload is neither.
    """
    if not payload.startswith(_BARE):
        request = api.decode_request(payload)
        get = request.method == api.GET
        recent = cbor or request.traced or (get and request.body is not None)
        return DiscoveryRequest(request.path or None, request, get, recent)
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
        response_id: of the answer, in the later form.
    """
    wanted = [one for one in services if request.service_id in (None, one.id)]
    asked = request.asked
    if asked is None:
        return _encode_bare(request, wanted) if request.get else None
    if not request.get:
        status = api.METHOD_NOT_ALLOWED
        return api.encode_error(asked, response_id, status, "method_not_allowed")
    infos = [_encode_info(one, text_ids=request.text_ids) for one in wanted]
    if request.service_id is None:
        return api.encode_answer(asked, response_id, api.OK, encode_array(infos))
    if infos:
        return api.encode_answer(asked, response_id, api.OK, infos[0])
    return api.encode_error(asked, response_id, api.NOT_FOUND, "not_found")


def _encode_bare(request: DiscoveryRequest, wanted: Sequence[Service]) -> bytes:
    infos = [_ServiceInfo(one.id, [(kind, v) for kind, v in one.route], {}) for one in wanted]
    if request.service_id is None:
        return _BARE + _INFOS.encode(infos)
    return _BARE + b"".join(map(_INFO.encode, infos))


def _encode_info(service: Service, *, text_ids: bool) -> bytes:
    route = encode_array(
        b"\xa2%b%b%b%b"
        % (
            encode_text("type"),
            encode_head(UINT, address.type),
            encode_text("value"),
            encode_head(TEXT, len(address.value)) + address.value,
        )
        for address in service.route
    )
    name = service.id.encode()
    head = encode_head(TEXT if text_ids else BYTES, len(name))
    return b"\xa3\x01%b%b\x02%b\x03\xa0" % (head, name, route)
