"""Network layer: what trackers and nodes say to each other.

The same five messages are spoken in four forms, all of them JSON in one WebSocket frame:

    OBJECT          {"version":"13.0.0","code":0-4,"payload":{..}}     streamr-network to 19
    ARRAY           [1,type,requestId,..] with trackers, types 1-4     streamr-network 20 to 22
                    [2,..] between nodes: the control message itself
    SPECIFICATION   ["4.4.3",type,source,..], types 0-4                the specification's text
    EXTENDED        ["4.4.3+rillnode",type,source,..], types 0-4       between nodes of this kind

    message            code, type   ARRAY   fields
    StatusMessage      0            1       status
    Instruction        1            2       streamId, streamPartition, nodeAddresses, counter
    FindStorageNodes   2            3       streamId, streamPartition
    StorageNodes       3            4       streamId, streamPartition, nodeAddresses
    Wrapper            4            -       a control message

The specification's form has neither partition nor counter, and its status is a text; EXTENDED has
partition and counter behind the specification's fields. To 13 there is no counter. A receiver
knows the sender by the connection, so `source` is only carried. The specification's example of
StorageNodes shows type 1; its table says 3, and the table counts.

Source: frames of streamr-network 13.0.0, 19.1.0 and 22.1.0; streamr-specs a65e0f9, Network Layer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta, Struct

from rillnode.codecs.errors import CodecError
from rillnode.codecs.limits import LIST_ITEMS_MAX
from rillnode.codecs.streamr.collation import collation_key
from rillnode.codecs.streamr.json_text import Name, read_json, write_json
from rillnode.codecs.streamr.limits import STREAMR_INTEGER_MAX, STREAMR_NODES_MAX

T = TypeVar("T")

TRACKER_VERSION: Final = 1
"""First element of arrays to and from trackers; control messages begin with 2."""

EXTENDED_VERSION: Final = "4.4.3+rillnode"
OBJECT_VERSION: Final = "19.1.0"

PEER_ID_HEADER: Final = "streamr-peer-id"
PEER_TYPE_HEADER: Final = "streamr-peer-type"
"""Of the upgrade request and of its answer."""

ADDRESS_PARAMETER: Final = "address"
"""Of the upgrade request's query: the WebSocket URL at which the dialling side listens."""

CLOSE_REFUSED: Final = 1002
DUPLICATE_REASON: Final = "streamr:endpoint:duplicate-connection"

Count = Annotated[int, Meta(ge=0, le=STREAMR_INTEGER_MAX)]
Nodes = Annotated[tuple[str, ...], Meta(max_length=STREAMR_NODES_MAX)]


class Form(Enum):
    """A way to write a frame."""

    OBJECT = "object"
    ARRAY = "array"
    SPECIFICATION = "specification"
    EXTENDED = "extended"


class StreamStatus(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A node's neighbours in one stream partition, by peer id.

    Attributes:
        counter: of the last instruction that the node has carried out.
    """

    inbound_nodes: Nodes
    outbound_nodes: Nodes
    counter: Count | None = None


class Location(Struct, frozen=True, kw_only=True):
    """A node's own statement of its location."""

    latitude: float | int | None = None
    longitude: float | int | None = None
    country: str | None = None
    city: str | None = None


class Status(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node's state.

    Attributes:
        streams: by `streamId::partition`.
        started: when the node did, for people.
        rtts: round trips to neighbours, in milliseconds by peer id.
    """

    streams: Annotated[dict[str, StreamStatus], Meta(max_length=LIST_ITEMS_MAX)]
    started: str
    rtts: Annotated[dict[str, float | int | None], Meta(max_length=LIST_ITEMS_MAX)] | None = None
    location: Location | None = None


class StatusMessage(Struct, frozen=True, kw_only=True):
    """Node to tracker: its neighbours, after every change of them."""

    status: Status | str


class Instruction(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Tracker to node: which neighbours to have in a stream partition; all others are left.

    Attributes:
        node_addresses: their WebSocket URLs.
        counter: one more than in the instruction before it.
    """

    stream_id: Name
    stream_partition: Count | None = None
    node_addresses: Nodes
    counter: Count | None = None


class FindStorageNodes(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Node to tracker: which nodes store this stream partition?"""

    stream_id: Name
    stream_partition: Count | None = None


class StorageNodes(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Tracker to node: these do, as WebSocket URLs."""

    stream_id: Name
    stream_partition: Count | None = None
    node_addresses: Nodes


class Wrapper(Struct, frozen=True, kw_only=True):
    """Node to node: a message of the control layer, as its JSON text."""

    payload: str = msgspec.field(name="serializedControlLayerPayload")


Message = StatusMessage | Instruction | FindStorageNodes | StorageNodes | Wrapper

_TYPES: Final[tuple[type[Message], ...]] = (
    StatusMessage,
    Instruction,
    FindStorageNodes,
    StorageNodes,
    Wrapper,
)
"""By their number; one more in arrays of trackers, which know no wrapper."""

_TRACKER_FIELDS: Final[dict[type[Message], tuple[str, ...]]] = {
    StatusMessage: ("status",),
    Instruction: ("streamId", "streamPartition", "nodeAddresses", "counter"),
    FindStorageNodes: ("streamId", "streamPartition"),
    StorageNodes: ("streamId", "streamPartition", "nodeAddresses"),
}
_SPECIFICATION_FIELDS: Final[dict[type[Message], tuple[str, ...]]] = {
    StatusMessage: ("status",),
    Instruction: ("streamId", "nodeAddresses"),
    FindStorageNodes: ("streamId",),
    StorageNodes: ("streamId", "nodeAddresses"),
}
_FIELDS: Final[dict[Form, dict[type[Message], tuple[str, ...]]]] = {
    Form.SPECIFICATION: _SPECIFICATION_FIELDS,
    Form.EXTENDED: {
        StatusMessage: ("status",),
        Instruction: ("streamId", "nodeAddresses", "streamPartition", "counter"),
        FindStorageNodes: ("streamId", "streamPartition"),
        StorageNodes: ("streamId", "nodeAddresses", "streamPartition"),
    },
}
_PARTITIONED: Final = (Instruction, FindStorageNodes, StorageNodes)

_ANY: Final = msgspec.json.Decoder[Any](Any)
_ELEMENTS: Final = msgspec.json.Decoder(list[msgspec.Raw])


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A message as it is sent, in its form.

    Attributes:
        version: the sender's package, in all forms but ARRAY.
        request_id: of the form ARRAY with trackers; empty where an answer belongs to no request.
        source: the sender as the forms SPECIFICATION and EXTENDED name it.
    """

    message: Message
    form: Form
    version: str = OBJECT_VERSION
    request_id: str = ""
    source: str = ""


def decode_frame(text: str | bytes) -> Frame:
    """Decode one frame of any form; what follows the known fields is ignored.

    Raises:
        CodecError: as `read_json`; `network.form`, none of the four; `network.type`, no such
            message; `codec.field`, a field is missing or wrong.
    """
    match read_json(_ANY, text):
        case {"version": _, "code": _, "payload": _} as value:
            frame = _read_object(value)
        case [str(), *_] as value:
            frame = _read_specified_array(value, text)
        case [1, *_] as value:
            frame = _read_tracker_array(value)
        case [2, *_]:
            message = Wrapper(payload=text if isinstance(text, str) else text.decode())
            frame = Frame(message=message, form=Form.ARRAY)
        case _:
            raise CodecError("network.form", "no frame of the network layer")
    if frame.form is not Form.SPECIFICATION:
        _check_partition(frame.message)
    return frame


def encode_frame(frame: Frame) -> str:
    """Encode a frame in its form, as JSON without blanks.

    Raises:
        CodecError: `codec.field`, the form needs a partition that the message does not have;
            `codec.utf8`.
    """
    message = frame.message
    number = _TYPES.index(type(message))
    if frame.form is not Form.SPECIFICATION:
        _check_partition(message)
    if (fields := _FIELDS.get(frame.form)) is not None:
        head = [frame.version, number, frame.source]
        if isinstance(message, Wrapper):
            return write_json([*head, msgspec.Raw(message.payload.encode())])
        return write_json(head + _values(message, fields))
    if frame.form is Form.OBJECT:
        payload = message.status if isinstance(message, StatusMessage) else message
        return write_json({"version": frame.version, "code": number, "payload": payload})
    if isinstance(message, Wrapper):
        return message.payload
    head = [TRACKER_VERSION, number + 1, frame.request_id]
    return write_json(head + _values(message, _TRACKER_FIELDS))


def _read_object(value: dict[str, Any]) -> Frame:
    version = _convert(value["version"], str)
    kind = _type_of(_convert(value["code"], int))
    payload = value["payload"]
    message = _convert({"status": payload} if kind is StatusMessage else payload, kind)
    return Frame(message=message, form=Form.OBJECT, version=version)


def _read_tracker_array(value: Sequence[Any]) -> Frame:
    _, number, request_id = _convert(value[:3], tuple[int, int, str])
    kind = _type_of(number - 1)
    if kind is Wrapper:
        raise CodecError("network.type", "trackers have no message of type 5")
    message = _convert(dict(zip(_TRACKER_FIELDS[kind], value[3:], strict=False)), kind)
    return Frame(message=message, form=Form.ARRAY, request_id=request_id)


def _read_specified_array(value: Sequence[Any], text: str | bytes) -> Frame:
    version, number, source = _convert(value[:3], tuple[str, int, str])
    kind = _type_of(number)
    form = Form.EXTENDED if version == EXTENDED_VERSION else Form.SPECIFICATION
    message: Message
    if kind is Wrapper:
        _convert(value[3:4], tuple[list[Any]])
        # Read once more, for the exact text of the control message.
        payload = read_json(_ELEMENTS, text)[3]
        message = Wrapper(payload=bytes(payload).decode())
    else:
        message = _convert(dict(zip(_FIELDS[form][kind], value[3:], strict=False)), kind)
    return Frame(message=message, form=form, version=version, source=source)


def _type_of(number: int) -> type[Message]:
    if not 0 <= number < len(_TYPES):
        raise CodecError("network.type", "the network layer has no such message")
    return _TYPES[number]


def _convert(value: object, kind: type[T]) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise CodecError("codec.field", str(error)) from None


def _check_partition(message: Message) -> None:
    if isinstance(message, _PARTITIONED) and message.stream_partition is None:
        raise CodecError("codec.field", f"{type(message).__name__} without a partition")


def _values(message: Message, fields: dict[type[Message], tuple[str, ...]]) -> list[Any]:
    by_name = msgspec.to_builtins(message)
    return [by_name.get(name) for name in fields[type(message)]]


# Handshake -----------------------------------------------------------------------------------


class PeerType(StrEnum):
    """A peer's own statement of its type."""

    TRACKER = "tracker"
    NODE = "node"
    STORAGE = "storage"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """The other end of a connection: claimed, not proved.

    Attributes:
        id: names it in statuses.
        address: the WebSocket URL at which it listens.
    """

    id: str
    type: PeerType
    address: str


def handshake_headers(peer_id: str, peer_type: PeerType) -> dict[str, str]:
    """The headers by which each side names itself, in the upgrade request and in its answer."""
    return {PEER_ID_HEADER: peer_id, PEER_TYPE_HEADER: peer_type}


def read_handshake(headers: Mapping[str, str], address: str | None) -> Peer:
    """Read who is at the other end; header names are compared without case.

    Args:
        headers: of the upgrade request, or of its answer.
        address: the request's query parameter, or what was dialled.

    Raises:
        CodecError: `network.handshake`, something is missing or unknown; close with
            `CLOSE_REFUSED`.
    """
    named = {name.lower(): value for name, value in headers.items()}
    peer_id, peer_type = named.get(PEER_ID_HEADER), named.get(PEER_TYPE_HEADER)
    if not peer_id or not address or peer_type not in tuple(PeerType):
        text = "a peer names its id, its type and its address"
        raise CodecError("network.handshake", text)
    return Peer(id=peer_id, type=PeerType(peer_type), address=address)


def drops_new_connection(own_address: str, peer_address: str) -> bool:
    """Which of two connections to one peer goes: the side with the greater address drops the new.

    It is closed with `DUPLICATE_REASON`. Both sides compare alike, as JavaScript's `localeCompare`.
    """
    return collation_key(own_address) > collation_key(peer_address)
