"""Forms of control messages: which elements follow version and type, in which order.

FORMS has them all, made from the two tables below. Released readers pass over elements at the end
that they do not know, and take those missing that may be null as null; so do the released forms.
The specification's forms take exactly their elements: a released message is mistaken for one only
if it has a string or null too many in the place of a token, and no released client writes that.

Source: streamr-client-protocol-js 2.0 to 8.0; "Streamr Protocol" of 2018-11 (1) and 2020-07 (2).
"""

from typing import Any, Final, NamedTuple

from msgspec import NODEFAULT, Raw, defstruct
from msgspec.json import Decoder

from rillnode.codecs.streamr.control_messages import (
    BroadcastMessage,
    ControlMessage,
    ErrorResponse,
    PublishRequest,
    RequestId,
    ResendFromRequest,
    ResendLastRequest,
    ResendRangeRequest,
    ResendRequest,
    ResendResponseNoResend,
    ResendResponseResending,
    ResendResponseResent,
    SubscribeRequest,
    SubscribeResponse,
    UnicastMessage,
    UnsubscribeRequest,
    UnsubscribeResponse,
)
from rillnode.codecs.streamr.json_text import Name, Number
from rillnode.codecs.streamr.message_layouts import RefArray
from rillnode.codecs.streamr.stream_message import Layout

CONTROL_VERSIONS: Final = (1, 2)

_RELEASED: Final[dict[type[ControlMessage], tuple[str, str]]] = {
    BroadcastMessage: (
        "message",
        "request_id message",
    ),
    UnicastMessage: (
        "request_id message",
        "request_id message",
    ),
    SubscribeResponse: (
        "stream_id partition",
        "request_id stream_id partition",
    ),
    UnsubscribeResponse: (
        "stream_id partition",
        "request_id stream_id partition",
    ),
    ResendResponseResending: (
        "stream_id partition request_id",
        "request_id stream_id partition",
    ),
    ResendResponseResent: (
        "stream_id partition request_id",
        "request_id stream_id partition",
    ),
    ResendResponseNoResend: (
        "stream_id partition request_id",
        "request_id stream_id partition",
    ),
    ErrorResponse: (
        "error_message",
        "request_id error_message error_code",
    ),
    PublishRequest: (
        "message session_token",
        "request_id message session_token",
    ),
    SubscribeRequest: (
        "stream_id partition session_token",
        "request_id stream_id partition session_token",
    ),
    UnsubscribeRequest: (
        "stream_id partition",
        "request_id stream_id partition",
    ),
    ResendLastRequest: (
        "stream_id partition request_id number_last session_token",
        "request_id stream_id partition number_last session_token",
    ),
    ResendFromRequest: (
        "stream_id partition request_id from_ref publisher_id chain_id session_token",
        "request_id stream_id partition from_ref publisher_id session_token",
    ),
    ResendRangeRequest: (
        "stream_id partition request_id from_ref to_ref publisher_id chain_id session_token",
        "request_id stream_id partition from_ref to_ref publisher_id chain_id session_token",
    ),
}
"""Elements in version 1, and in version 2."""

_SPECIFIED: Final[dict[tuple[type[ControlMessage], int], str]] = {
    (ResendResponseResending, 1): "stream_id partition",
    (ResendResponseNoResend, 1): "stream_id partition",
    (PublishRequest, 1): "message api_key session_token",
    (SubscribeRequest, 1): "stream_id partition api_key session_token",
    (SubscribeRequest, 2): "stream_id partition session_token",
    (
        ResendRequest,
        1,
    ): "stream_id partition request_id resend_all resend_last resend_from resend_to",
}
"""Elements in the specifications, where they are others; in version 2 only an example's."""

_ELEMENTS: Final[dict[str, Any]] = {
    "message": Raw,
    "request_id": RequestId,
    "stream_id": Name,
    "partition": Number | None,
    "session_token": str | None,
    "api_key": str | None,
    "publisher_id": str | None,
    "chain_id": str | None,
    "error_message": str,
    "error_code": str,
    "number_last": Number,
    "from_ref": RefArray,
    "to_ref": RefArray,
    "resend_all": bool | None,
    "resend_last": Number | None,
    "resend_from": Number | None,
    "resend_to": Number | None,
}
"""What an element is. A partition that is null, or missing at the end, is 0."""

_ELEMENTS_1: Final[dict[str, Any]] = {**_ELEMENTS, "request_id": RequestId | None}
_ELEMENTS_2: Final[dict[str, Any]] = {**_ELEMENTS, "request_id": str}
_KINDS: Final[dict[tuple[int, Layout], dict[str, Any]]] = {
    (1, Layout.SPECIFICATION): _ELEMENTS,
    (1, Layout.RELEASED): _ELEMENTS_1,
    # What could be a released request with something wrong in it must not be taken for another.
    (2, Layout.SPECIFICATION): {**_ELEMENTS, "partition": Number, "session_token": str},
    (2, Layout.RELEASED): _ELEMENTS_2,
}
"""Likewise, where version and layout matter."""


class Form(NamedTuple):
    """The form of one type in one version and layout; `reader` reads the whole array."""

    message_class: type[ControlMessage]
    layout: Layout
    names: tuple[str, ...]
    reader: Decoder[Any]


def _form(message_class: type[ControlMessage], version: int, layout: Layout, elements: str) -> Form:
    exact = layout is Layout.SPECIFICATION
    kinds = _KINDS[version, layout]
    fields: list[tuple[str, Any, Any]] = []
    names = tuple(elements.split())
    missing: Any = NODEFAULT if exact else None
    for name in reversed(names):
        if not _is_optional(kinds[name]):
            missing = NODEFAULT
        fields.append((name, kinds[name], missing))
    head = [("version", Raw, NODEFAULT), ("type", Raw, NODEFAULT)]
    array_class = defstruct(
        message_class.__name__, head + fields[::-1], array_like=True, forbid_unknown_fields=exact
    )
    return Form(message_class, layout, names, Decoder(array_class))


def _is_optional(kind: Any) -> bool:
    return type(None) in getattr(kind, "__args__", ())


FORMS: Final[dict[tuple[type[ControlMessage], int, Layout], Form]] = {
    key: _form(*key, elements)
    for key, elements in (
        *(((*key, Layout.SPECIFICATION), names) for key, names in _SPECIFIED.items()),
        *(((kind, 1, Layout.RELEASED), names[0]) for kind, names in _RELEASED.items()),
        *(((kind, 2, Layout.RELEASED), names[1]) for kind, names in _RELEASED.items()),
    )
}
"""By class, version and layout; of one type, the specification's exact forms come first."""

REQUEST_IDS: Final = {
    (version, kind.type): 2 + form.names.index("request_id")
    for (kind, version, _), form in FORMS.items()
    if "request_id" in form.names
}
"""Where a message has its request's id, by version and type: elements before it are scalars."""

REQUEST_ID_LATEST: Final = max(REQUEST_IDS.values())
