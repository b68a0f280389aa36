"""Control messages from and to JSON text, in both versions' forms.

A control message is the array `[version, type, ...]`; `control_forms` has what follows. A message
inside may also be a string that holds its text, and a type the string of its number: released
readers take both.
"""

import re
from typing import Any, Final

from msgspec import Raw, Struct
from msgspec.json import Decoder

from rillnode.codecs.errors import CodecError
from rillnode.codecs.streamr.control_forms import (
    CONTROL_VERSIONS,
    FORMS,
    REQUEST_ID_LATEST,
    REQUEST_IDS,
    Form,
)
from rillnode.codecs.streamr.control_messages import (
    ControlMessage,
    RequestId,
    ResendRangeRequest,
    ResendRequest,
)
from rillnode.codecs.streamr.json_text import Scalar, Text, read_json, text_of, whole, write_json
from rillnode.codecs.streamr.limits import STREAMR_INTEGER_MAX
from rillnode.codecs.streamr.message import decode_utf8, encode_message
from rillnode.codecs.streamr.message_layouts import RefArray
from rillnode.codecs.streamr.stream_message import Layout, StreamMessage

_DECIMAL: Final = re.compile("0|[1-9][0-9]?")
_NEVER_NULL: Final = ("request_id", "error_code")
"""What version 2 leaves empty where there is none."""

_FORMS_BY_TYPE: Final[dict[tuple[int, int], list[Form]]] = {}
for (_class, _version, _), _form in FORMS.items():
    _FORMS_BY_TYPE.setdefault((_version, _class.type), []).append(_form)


class _Head(Struct, array_like=True):
    version: Scalar = None
    type: Scalar = None


_HEAD: Final = Decoder(_Head)
_PLAIN_HEAD: Final = re.compile(r"\[([12]),([1-9]?[0-9]),")
"""What nearly all messages begin with. To have a reader find two numbers it must pass over the
whole message."""

_SCALAR: Final[Decoder[Scalar]] = Decoder(Scalar)
_NEXT_SCALAR: Final = re.compile(rb'\s*([\[,])\s*("(?:[^"\\]|\\.)*+"|[^\s",\[\]{}]++)', re.DOTALL)
_STRING: Final = Decoder(str)


def decode_control(value: list[object] | Text) -> tuple[int, ControlMessage]:
    """Decode a control message; return its version and itself.

    Its layout is the specification's if its form or the message inside is.

    Args:
        value: its JSON text, or the array that a JSON reader has made of it.

    Raises:
        CodecError: `codec.json`, `codec.utf8`, `codec.limit`: no JSON that could be read;
            `streamr.version`: none of CONTROL_VERSIONS, or the message inside has an unknown one;
            `streamr.type`: unknown in that version; `codec.field`: not as its type asks. The
            offset is that of an element of the array, or of the array inside.
    """
    text = text_of(value)
    plain = _PLAIN_HEAD.match(text) if isinstance(text, str) else None
    if plain is not None:
        version, kind = int(plain[1]), int(plain[2])
    else:
        head = read_json(_HEAD, text)
        version, kind = _integer(head.version), _integer(head.type, or_string=True)
    if version not in CONTROL_VERSIONS:
        raise CodecError("streamr.version", f"control version is none of {CONTROL_VERSIONS}")
    forms = _FORMS_BY_TYPE.get((version, kind))
    if forms is None:
        raise CodecError("streamr.type", f"control version {version} has no such type")
    return version, _read(forms, text)


def request_id_of(frame: bytes) -> RequestId | None:
    """The id of a request that could not be decoded, so that its error can bear it.

    Only what stands before the id has to be right; None where there is none that could be read.
    """
    scalars: list[Scalar] = []
    at = 0
    while len(scalars) <= REQUEST_ID_LATEST:
        found = _NEXT_SCALAR.match(frame, at)
        if found is None or (found[1] == b"[") is bool(scalars):
            break
        try:
            scalars.append(read_json(_SCALAR, found[2]))
        except CodecError:
            break
        at = found.end()
    if len(scalars) < 2:
        return None
    version, kind = _integer(scalars[0]), _integer(scalars[1], or_string=True)
    place = REQUEST_IDS.get((version, kind), 2 if version == 2 else len(scalars))
    if place >= len(scalars):
        return None
    request_id = scalars[place]
    if isinstance(request_id, str):
        return request_id
    number = _integer(request_id)
    return number if version == 1 and 0 <= number <= STREAMR_INTEGER_MAX else None


def encode_control(message: ControlMessage, control_version: int, message_version: int) -> str:
    """Encode a control message in its own layout, where that version has two.

    What comes out depends on the arguments alone, so that one text of a broadcast serves all
    connections of the same versions and layout.

    Args:
        message: the message; its `layout` is also that of the message inside.
        control_version: 1 or 2.
        message_version: the version of the message inside.

    Raises:
        CodecError: `streamr.version`; `streamr.inexpressible`, the version has no such type, or as
            `encode_message`; `codec.utf8`.
    """
    if control_version not in CONTROL_VERSIONS:
        raise CodecError("streamr.version", f"control version is none of {CONTROL_VERSIONS}")
    kind = type(message)
    form = FORMS.get((kind, control_version, message.layout))
    form = form or FORMS.get((kind, control_version, Layout.RELEASED))
    if form is None:
        text = f"{kind.__name__} has no form in control version {control_version}"
        raise CodecError("streamr.inexpressible", text)
    elements: list[object] = [control_version, kind.type]
    for name in form.names:
        element: object = getattr(message, name)
        if isinstance(element, StreamMessage):
            inner = encode_message(element, message_version, message.layout)
            element = Raw(inner.encode())
        elif element is None and control_version == 2 and name in _NEVER_NULL:
            element = ""
        elements.append(element)
    return write_json(elements)


def _read(forms: list[Form], text: Text) -> ControlMessage:
    """Read the first form that fits; the released one, which is last, tells what is wrong."""
    *specified, released = forms
    for form in specified:
        try:
            array = read_json(form.reader, text)
        except CodecError as error:
            if error.code != "codec.field":
                raise
        else:
            return _message(form, array)
    return _message(released, read_json(released.reader, text))


def _message(form: Form, array: object) -> ControlMessage:
    layout = form.layout
    attributes: dict[str, Any] = {}
    for name in form.names:
        element: Any = getattr(array, name)
        if isinstance(element, Raw):
            inner = bytes(element)
            if inner.startswith(b'"'):
                inner = read_json(_STRING, inner).encode()
            element = decode_utf8(inner)
            attributes["message_text"] = inner
            if element.layout is Layout.SPECIFICATION:
                layout = Layout.SPECIFICATION
        elif isinstance(element, RefArray):
            element = element.to_ref()
        elif isinstance(element, float):
            element = whole(element, name)
        attributes[name] = element
    if attributes.get("partition", 0) is None:
        attributes["partition"] = 0
    message = form.message_class(layout=layout, **attributes)
    _check(message)
    return message


def _check(message: ControlMessage) -> None:
    """Check what no single element tells.

    Raises:
        CodecError: `codec.field`.
    """
    if isinstance(message, ResendRangeRequest):
        if message.from_ref.timestamp > message.to_ref.timestamp:
            raise CodecError("codec.field", "the range's end is before its beginning")
    elif isinstance(message, ResendRequest):
        starts = (message.resend_all or None, message.resend_last, message.resend_from)
        if sum(start is not None for start in starts) != 1:
            text = "exactly one of resend_all, resend_last and resend_from is to be set"
            raise CodecError("codec.field", text)
        if message.resend_to is not None and message.resend_to < (message.resend_from or 0):
            raise CodecError("codec.field", "resend_to is before resend_from")


def _integer(value: Scalar, *, or_string: bool = False) -> int:
    """The integer that a version or type is, or -1."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if or_string and isinstance(value, str) and _DECIMAL.fullmatch(value):
        return int(value)
    return value if type(value) is int else -1
